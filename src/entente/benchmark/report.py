"""From a configuration to benchmark.json, benchmark.md, a table and a picture."""

import logging
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from entente import checkpoint
from entente.benchmark.cases import Bench, measure
from entente.benchmark.picture import picture
from entente.benchmark.results import Result, Row, Spread
from entente.benchmark.settings import Benchmark, check
from entente.config.schema import fill
from entente.errors import InputError
from entente.files.reading import path_of
from entente.files.writing import write_json, write_text
from entente.process import prepare_process
from entente.training.settings import completed

log = logging.getLogger("entente")

HEADINGS = ("case", "contestant", "median", "lowest - highest", "ours / it", "lowest - highest", "peak MB", "note")
PROGRAMS = ("torch", "lightning", "numpy", "transformers", "ctranslate2")


def benchmark(config: Mapping[str, Any]) -> list[Result]:
    """Measures what the configuration asks for, prints each case as it is done, and writes it all where `output` says."""
    if found := check(config):
        raise InputError(*found)
    settings = fill(Benchmark, "benchmark", config["benchmark"])
    run = completed({key: value for key, value in config.items() if key not in ("benchmark", "resume")})
    prepare_process(run["trainer"]["threads"])
    output = path_of(settings.output) if settings.output else None
    console, results = Console(), list[Result]()
    with tempfile.TemporaryDirectory() as folder, showing(settings) as begin:
        bench = Bench(run, settings, Path(folder), begin)
        for result in measure(bench):
            results.append(result)
            if result.rows:
                console.print(table(result))
            for line in remarks(result):
                log.info("%s", line)
            if output:  # after each case: what is measured is not lost
                write(output, results, machine(bench), config)
    if output:
        log.info("written: %s", output)
    return results


@contextmanager
def showing(settings: Benchmark) -> Iterator[Any]:
    """A line with what is running and the time left, on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as progress:
        task = progress.add_task("preparing", total=bursts_of(settings))

        def begin(name: str) -> None:
            progress.update(task, description=name, advance=1)

        yield begin


def bursts_of(settings: Benchmark) -> int:
    """About how many bursts and set-ups there will be, for the time left; who can take part is not known yet."""
    peers = settings.peers
    joeynmt, eole, turns = peers.joeynmt is not None, peers.eole is not None, settings.pairs + 2
    trained = settings.checkpoint is not None
    of_case = {
        "transformer": (2 + 2 * joeynmt + eole) * turns,
        "ceiling": 2 * turns,
        "birnn": (1 + 2 * joeynmt) * turns,
        "greedy": 6 * turns,
        "beam": (6 + joeynmt) * turns,
        "greedy_trained": 7 * turns * trained,
        "beam_trained": 7 * turns * trained,
        "startup": 2 * (turns - 1),
        "data": turns,
        "profile": 2 * 3,
    }
    return sum(of_case[case] for case in set(settings.cases))


def number(value: float) -> str:
    """Three or more digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cells(row: Row, unit: str) -> list[str]:
    ratio = row.ratio
    return [
        f"{row.case}, {unit}",
        row.contestant,
        number(row.figure.median),
        f"{number(row.figure.lowest)} - {number(row.figure.highest)}",
        f"{ratio.median:.2f}" if ratio else "",
        f"{ratio.lowest:.2f} - {ratio.highest:.2f}" if ratio else "",
        number(row.peak_mb) if row.peak_mb else "",
        row.note,
    ]


def remarks(result: Result) -> list[str]:
    """What stands below a case's table."""
    said = [f"{result.case}: left out {name}: {why}" for name, why in result.left_out.items()]
    if shares := result.raw.get("share_of_ceiling"):
        share = Spread.of(shares)
        said.append(
            f"{result.case}: ours reaches {share.median:.0%} ({share.lowest:.0%} - {share.highest:.0%}) of what products of "
            "its sizes reach; operations counted, those of matrix products"
        )
    if result.case == "profile":
        for name, parts in parts_of(result).items():
            shares = ", ".join(f"{part} {seconds / sum(parts.values()):.0%}" for part, seconds in parts.items())
            said.append(f"{name}, a step of {1000 * sum(parts.values()):,.0f} ms when profiled: {shares}")
    if uncounted := result.raw.get("uncounted"):
        said.append(f"{result.case}: not counted, for want of a formula: {', '.join(uncounted)}")
    return said


def table(result: Result) -> Table:
    """For the terminal."""
    shown = Table(title=f"{result.case}, {result.unit}", title_justify="left")
    for i, heading in enumerate(HEADINGS[1:]):
        shown.add_column(heading, justify="left" if i in (0, len(HEADINGS) - 2) else "right")
    for row in result.rows:
        shown.add_row(*cells(row, result.unit)[1:])
    return shown


def parts_of(result: Result) -> dict[str, dict[str, float]]:
    """Of the case profile: the seconds a step that each part took, of each contestant."""
    steps = result.raw["steps"]
    found = {row.contestant: result.raw[row.contestant]["about"]["last"]["parts"] for row in result.rows}
    return {name: {part: seconds / steps for part, seconds in parts.items()} for name, parts in found.items()}


def markdown(results: Sequence[Result], about: Mapping[str, Any]) -> str:
    lines: list[Sequence[str]] = [HEADINGS, ("---", "---", "---:", "---:", "---:", "---:", "---:", "---")]
    lines += [cells(row, result.unit) for result in results for row in result.rows]
    notes = [line for result in results for line in remarks(result)]
    notes += [
        f"{about['cpu']}, {about['threads']} threads, {about['device']}, {about['precision']}; commit {about['commit']}.",
        f"Median of {about['pairs']} bursts each, taken in turn after one to warm up; `ours / it` is the median of the ratios "
        "of neighbours, above 1 in our favour. Peak MB: resident memory of the contestant's process.",
        f"Made by: {about['command']}",
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"# Benchmark\n\n{body}\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def machine(bench: Bench) -> dict[str, Any]:
    """On what, with what, from which code."""
    versions = {}
    for name in PROGRAMS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": checkpoint.provenance()["commit"],
        "command": checkpoint.provenance()["command"],
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "threads": bench.threads,
        "device": torch.cuda.get_device_name() if bench.device == "cuda" else "CPU",
        "precision": bench.common["precision"],
        "pairs": bench.settings.pairs,
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        "versions": versions,
    }


def cpu() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def write(output: Path, results: Sequence[Result], about: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    try:
        write_json(output / "benchmark.json", {**about, "config": dict(config), "results": [asdict(r) for r in results]})
        write_text(output / "benchmark.md", markdown(results, about))
        for result in results:
            if result.case == "profile":
                figure = picture(parts_of(result))
                for form in ("png", "svg"):
                    figure.savefig(output / f"profile.{form}", metadata={"Date": None} if form == "svg" else None)
    except OSError as error:
        raise InputError(f"benchmark.output={output}: cannot be written ({error.strerror or error}); give another") from error
