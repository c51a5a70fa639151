"""Runs the benchmark of a configuration, prints its tables, and writes benchmark.json, benchmark.md and a picture."""

import logging
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console

from benchmark.cases import PROFILED_STEPS, Bench, measure
from benchmark.parts import OTHER, PARTS
from benchmark.results import Result, Row
from benchmark.settings import Benchmark
from benchmark.turns import OURS
from entente import checkpoint
from entente.config.schema import fill
from entente.console import escape
from entente.files import path_of, writable, write_json, write_text
from entente.process import prepare_process
from entente.training.settings import add_defaults

log = logging.getLogger("entente")

HEADINGS = ("case", "contestant", "median", "lowest - highest", "ours / it", "lowest - highest", "peak MB", "note")
PROGRAMS = ("torch", "lightning", "numpy", "transformers", "ctranslate2", "sentencepiece")
COLORS = ("#1b4f72", "#2e86c1", "#85c1e9", "#d95f02", "#c9cfd4", "#7d8a96", "#59a14f", "#eeeeee")  # of PARTS, in order
MIN_LABELLED_SHARE = 0.06  # smaller shares have no room for a label


def benchmark(config: Mapping[str, Any]) -> list[Result]:
    """Measures the cases of a checked configuration, prints each result, and writes all to `output` if it is set."""
    settings = fill(Benchmark, "benchmark", config["benchmark"])
    run = add_defaults({key: value for key, value in config.items() if key not in ("benchmark", "resume")})
    prepare_process(run["trainer"]["threads"])
    console, results = Console(stderr=True), list[Result]()
    with tempfile.TemporaryDirectory() as folder, console.status("preparing") as status:
        bench = Bench(run, settings, Path(folder), status.update)
        for result in measure(bench):
            results.append(result)
            print(summary([result]).rstrip())
            if settings.output:  # after each case, so that an interruption loses only the case in progress
                with writable(f"benchmark.output={settings.output}"):
                    write(path_of(settings.output), results, about(bench), config)
    if settings.output:
        log.info("written: %s", settings.output)
    return results


def number(value: float) -> str:
    """Formats a number with two decimals below 10, with one from 10 to 100, and with none from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cells(row: Row, result: Result) -> list[str]:
    ratio = row.ratio
    return [
        f"{result.case}, {result.unit}",
        row.contestant,
        number(row.figure.median),
        f"{number(row.figure.lowest)} - {number(row.figure.highest)}",
        f"{ratio.median:.2f}" if ratio else "",
        f"{ratio.lowest:.2f} - {ratio.highest:.2f}" if ratio else "",
        number(row.peak_mb) if row.peak_mb else "",
        row.note,
    ]


def remarks(result: Result) -> list[str]:
    """Returns the remarks that are printed below the table of a case."""
    said = [f"{result.case}: left out {name}: {why}" for name, why in result.left_out.items()]
    for row in result.rows:
        if result.case == "ceiling" and row.contestant.startswith("products") and (share := row.ratio):
            said.append(
                f"ceiling: {OURS} runs at {share.median:.0%} ({share.lowest:.0%} - {share.highest:.0%}) of the speed of matrix "
                "products of the same sizes; operations are counted by formula, for matrix products only"
            )
    for name, parts in parts_of(result).items():
        shares = ", ".join(f"{part} {seconds / sum(parts.values()):.0%}" for part, seconds in parts.items())
        said.append(f"{name}: a profiled step takes {1000 * sum(parts.values()):,.0f} ms: {shares}")
    return said


def parts_of(result: Result) -> dict[str, dict[str, float]]:
    """Returns, for each contestant, the seconds that each part takes in a step. Empty for all cases except `profile`."""
    bursts = {row.contestant: result.raw[row.contestant]["bursts"][0] for row in result.rows if result.case == "profile"}
    return {name: {part: seconds / PROFILED_STEPS for part, seconds in one["parts"].items()} for name, one in bursts.items()}


def picture(parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draws how the time of a training step divides into parts: one stacked bar per contestant. `parts` has, for each
    contestant, the seconds that each of PARTS takes in a step."""
    figure = Figure(figsize=(9, 1.5 + 0.6 * len(parts)), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    left = np.zeros(len(parts))
    total = np.array([sum(one.values()) for one in parts.values()])
    for part, color in zip(PARTS, COLORS, strict=True):
        width = np.array([one.get(part, 0.0) for one in parts.values()])
        label = "Python, callbacks and other" if part == OTHER else part
        bars = axes.barh([*parts], width, left=left, height=0.6, color=color, edgecolor="white", label=label)
        shares = [f"{share:.0%}" if share > MIN_LABELLED_SHARE else "" for share in width / total]
        dark = part in ("products", "attention", "dropout", "optimiser", "data")
        axes.bar_label(bars, shares, label_type="center", fontsize=9, color="white" if dark else "#333333")
        left += width
    axes.invert_yaxis()
    axes.set_xlabel("seconds per training step, profiled")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure


def summary(results: Sequence[Result]) -> str:
    rows = [cells(row, result) for result in results for row in result.rows]
    notes = "\n".join(f"- {line}" for result in results for line in remarks(result))
    return (escape.table(HEADINGS, rows, left=2) + "\n\n" if rows else "") + notes


def machine() -> dict[str, Any]:
    """Describes the machine, the versions of the programs, the commit and the command."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    versions = {}
    for name in PROGRAMS:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        **checkpoint.provenance(),
        "cpu": next(names, platform.machine()),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "versions": versions,
    }


def about(bench: Bench) -> dict[str, Any]:
    device = torch.cuda.get_device_name() if bench.device == "cuda" else "CPU"
    settings = {"device": device, "precision": bench.common["precision"], "pairs": bench.settings.pairs}
    return {**machine(), "threads": bench.threads, **settings, "load": os.getloadavg()[0]}


def write(output: Path, results: Sequence[Result], about: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    write_json(output / "benchmark.json", {**about, "config": dict(config), "results": [asdict(r) for r in results]})
    notes = [
        f"{about['cpu']}, {about['threads']} threads, {about['device']}, {about['precision']}; commit {about['commit']}.",
        f"Medians are over {about['pairs']} bursts (timed measurements) of each program. After a warm-up, they took turns. "
        "`ours / it` is the median ratio of our speed to the contestant's in the same round: above 1, ours is faster. Peak MB "
        "is the peak resident memory.",
        f"Made by: {about['command']}",
    ]
    lines = "".join(f"\n- {note}" for note in notes)
    write_text(output / "benchmark.md", f"# Benchmark\n\n{summary(results)}{lines}\n")
    for parts in filter(None, map(parts_of, results)):
        figure = picture(parts)
        figure.savefig(output / "profile.png")
        figure.savefig(output / "profile.svg", metadata={"Date": None})
