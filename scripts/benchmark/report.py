"""Reads the settings of the benchmark, runs it, prints its tables, and writes benchmark.json, benchmark.md and a picture.

Figures are medians, and the lowest and highest values, of bursts (timed measurements). After a warm-up, the programs took
turns. `ours / it` is the ratio of our speed to the program's in the same round, so it is meaningful even if the speed of the
machine varies; above 1, ours is faster. Peak MB is the peak resident memory. GFLOP are counted by formula, for matrix products
only.
"""

import json
import platform
import re
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from benchmark.cases import DECODING, PROFILED_STEPS, Bench
from benchmark.contestants import ours
from benchmark.parts import PARTS
from benchmark.turns import OURS, Measured
from entente import cli
from entente.errors import InputError
from entente.settings import RunSettings
from entente.validation import validate

FILE = Path(__file__).with_name("benchmark.yaml")
PREFIX = "benchmark."
HEADINGS = ("case", "contestant", "median", "lowest - highest", "ours / it", "lowest - highest", "peak MB", "note")
# The unit of each case except training, and the key of the quantity that is measured per second; None: the seconds themselves.
UNITS = {"startup": ("seconds", None), "data": ("pairs/s", "pairs"), "ceiling": ("GFLOP/s", "gflop")}
UNITS |= dict.fromkeys(DECODING, ("sentences/s", "sentences"))
Result = dict[str, Any]  # keys: case, unit, rows, left_out, raw


def read(arguments: Sequence[str]) -> tuple[SimpleNamespace, dict[str, Any]]:
    """Returns the settings in benchmark.yaml, with the values of arguments benchmark.KEY=VALUE and, as `birnn`, the
    model of the case birnn; and the configuration of a run, composed with the other arguments."""
    settings: Any = OmegaConf.load(FILE)
    cases = [*settings.cases]
    OmegaConf.set_struct(settings, True)  # refuses unknown settings
    try:
        settings.merge_with_dotlist([word.removeprefix(PREFIX) for word in arguments if word.startswith(PREFIX)])
    except OmegaConfBaseException as error:
        raise InputError(f"{PREFIX}{str(error).splitlines()[0]}") from None
    if unknown := [case for case in settings.cases if case not in cases]:
        raise InputError(f"{PREFIX}cases={unknown}: choose from {', '.join(cases)}")
    config = compose(["experiment=transformer_small", *(word for word in arguments if not word.startswith(PREFIX))])
    birnn = compose(["experiment=ablation_baseline", "model=birnn"])["model"]
    values: Any = OmegaConf.to_container(settings)
    return SimpleNamespace(**values, birnn=birnn), config


def compose(overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the checked configuration of a training run."""
    return validate(RunSettings, cli.compose("train", overrides).values).stored()


def benchmark(settings: SimpleNamespace, config: dict[str, Any]) -> list[Result]:
    """Measures the cases, prints each result, and writes all to `output` if it is set."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder, Console(stderr=True).status("preparing") as status:
        bench = Bench(config, settings, Path(folder), status.update)
        for case in settings.cases:
            results.append(case_result(case, *bench.measure(case)))
            print(summary(results[-1:]), "\n", sep="")
            if settings.output:  # after each case, so that an interruption loses only the case in progress
                write(Path(settings.output).expanduser(), results, about(bench))
    return results


def case_result(case: str, measurements: Mapping[str, Measured], notes: Mapping[str, str]) -> Result:
    unit, count = UNITS.get(case, ("target tokens/s", "tokens"))
    figures: dict[str, list[float]] = {}
    rows = []
    for name, answers in measurements.items():
        if not answers.bursts:
            continue
        figures[name] = [burst[count] / burst["seconds"] if count else burst["seconds"] for burst in answers.bursts]
        pairs = zip(figures[OURS], figures[name], strict=True)
        ratios = spread([mine / other if count else other / mine for mine, other in pairs])
        peak = max(burst["peak_mb"] for burst in answers.bursts)
        row = {"contestant": name, "figure": spread(figures[name]), "ratio": None if name == OURS else ratios}
        rows.append({**row, "peak_mb": peak, "note": notes.get(name, "")})
    left_out = {name: answers.left_out for name, answers in measurements.items() if answers.left_out}
    raw = {name: asdict(measurements[name]) for name in figures}
    return {"case": case, "unit": unit, "rows": rows, "left_out": left_out, "raw": raw}


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def summary(results: Sequence[Result]) -> str:
    """Returns the table of the results in Markdown, and remarks below it."""
    rows, remarks = [HEADINGS, ("---", "---", *["---:"] * 5, "---")], []
    for result in results:
        for row in result["rows"]:
            figure, ratio = row["figure"], row["ratio"]
            cells = [number(figure["median"]), f"{number(figure['lowest'])} - {number(figure['highest'])}"]
            cells += [f"{ratio['median']:.2f}", f"{ratio['lowest']:.2f} - {ratio['highest']:.2f}"] if ratio else ["", ""]
            case = f"{result['case']}, {result['unit']}"
            rows.append((case, row["contestant"], *cells, number(row["peak_mb"]), row["note"]))
        remarks += [f"{result['case']}: left out {name}: {reason}" for name, reason in result["left_out"].items()]
        for name, parts in parts_of(result).items():
            seconds = sum(parts.values())
            shares = ", ".join(f"{part} {value / seconds:.0%}" for part, value in parts.items())
            remarks.append(f"{name}: a profiled step takes {1000 * seconds:,.0f} ms: {shares}")
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", *(f"- {remark}" for remark in remarks)])


def number(value: float) -> str:
    """Formats a number with two decimals below 10, with one from 10 to 100, and with none from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def parts_of(result: Result) -> dict[str, dict[str, float]]:
    """Returns, for each contestant, the seconds that each part takes in a step. Empty for all cases except `profile`."""
    bursts = {name: raw["bursts"][0] for name, raw in result["raw"].items() if result["case"] == "profile"}
    return {name: {part: time / PROFILED_STEPS for part, time in burst["parts"].items()} for name, burst in bursts.items()}


def picture(parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draws how the time of a training step divides into parts: one stacked bar per contestant. `parts` has, for each
    contestant, the seconds that each of PARTS takes in a step."""
    figure = Figure(figsize=(9, 1.5 + 0.6 * len(parts)), dpi=100, layout="constrained")
    axes = figure.add_subplot(xlabel="seconds per training step, profiled")
    times = np.array([[step[part] for part in PARTS] for step in parts.values()])  # (contestants, parts)
    for i, part in enumerate(PARTS):
        bars = axes.barh([*parts], times[:, i], left=times[:, :i].sum(axis=1), height=0.6, label=part)
        shares = [f"{share:.0%}" if share > 0.06 else "" for share in times[:, i] / times.sum(axis=1)]  # others have no room
        axes.bar_label(bars, shares, label_type="center")
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return figure


def about(bench: Bench) -> dict[str, Any]:
    """Describes the machine, the commit and the command."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else "")
    return {
        **bench.common,
        **ours.provenance(),
        "cpu": names[0] if names else platform.machine(),
        "device": torch.cuda.get_device_name() if bench.common["device"] == "cuda" else "CPU",
        "benchmark": vars(bench.settings),
    }


def write(output: Path, results: Sequence[Result], about: Mapping[str, Any]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / "benchmark.json").write_text(json.dumps({**about, "results": results}, indent=1), encoding="utf-8")
    machine = "{cpu}, {threads} threads, {device}, {dtype}; commit {commit}. Made by: {command}".format(**about)
    explanation = str(__doc__).partition("\n\n")[2]
    (output / "benchmark.md").write_text(f"# Benchmark\n\n{summary(results)}\n\n{explanation}\n{machine}\n", encoding="utf-8")
    for parts in filter(None, map(parts_of, results)):
        picture(parts).savefig(output / "profile.png")
