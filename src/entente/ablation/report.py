"""Prints a comparison, and writes it as Markdown, as CSV and as a page."""

import csv as csv_format
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from entente import escape, files
from entente.ablation.comparison import REACHED, Comparison, compare
from entente.ablation.page import differences, format_p, notes_of, number, page, spread
from entente.ablation.runs import Suite
from entente.console import Task

TERMINAL_COLUMNS = 5  # number of columns of the main table that a terminal shows


def report(suite: Suite, folder: Path, samples: int, trust_data: bool = False) -> None:
    """Compares the variants of a suite, prints the table, and writes comparison.md, .csv and .html into a folder. trust_data:
    whether the training text that the first of two listed runs names may be read."""
    console = Console(width=None if sys.stdout.isatty() else 250, markup=False, emoji=False)  # so that piped tables do not wrap
    with Task(f"comparing {len(suite.runs)} runs with {samples:,} bootstrap samples"):
        comparison = compare(suite, samples)
    for part in terminal(comparison, suite):
        console.print(part)
    analysis = None
    if suite.listed and comparison.splits and len(suite.runs) == len(suite.variants) == 2:
        from entente.ablation import analysis as errors  # imports torch, which takes seconds

        with Task("comparing the errors of both runs, and counting the words of the training text"):
            analysis = errors.analyse(suite, comparison.splits[0], trust_data)
        for part in errors.tables(analysis):
            console.print(part)
    with Task("drawing the page"):
        forms = {"md": markdown(comparison, suite), "csv": csv(comparison), "html": page(comparison, suite, analysis)}
    with files.writable(f"output={folder}", "folder"):
        for ending, text in forms.items():
            files.write_text(folder / f"comparison.{ending}", text)
    print(folder / "comparison.html")


def _table(comparison: Comparison) -> list[list[str]]:
    """Returns the table of main results: the headings, then one line per variant."""
    first = comparison.splits[0] if comparison.splits else ""
    scores = [f"BLEU {first}" if split == first else split.removeprefix("test_") for split in comparison.splits]
    headings = ["variant", "verdict", *scores[:1], "difference", "p (Holm)", *scores[1:]]
    lines = [[*headings, "NLL", "parameters", "tokens/s", f"steps to {REACHED:.0%}"]]
    for row in comparison.rows:
        bleu = [spread(row[f"{split} bleu"], row[f"{split} bleu_sd"]) for split in comparison.splits]
        compared = [number(row.get(f"{first} difference"), sign=True), format_p(row.get(f"{first} p_holm"))]
        counts = [number(row[name], 0) for name in ("parameters", "tokens_per_second", "steps")]
        lines.append([row["variant"], row["verdict"], *bleu[:1], *compared, *bleu[1:], number(row["nll"], 3), *counts])
    return lines


def terminal(comparison: Comparison, suite: Suite) -> Iterator[Table | str]:
    """Yields the tables and lines to print: the settings that differ, then as many columns as fit a narrow terminal."""
    if rows := differences(suite):
        table = Table(*map(escape.line, ("setting", *suite.variants)), title="Settings that differ")
        for row in rows:
            table.add_row(*map(escape.line, row))
        yield table
    yield from (f"warning: {escape.line(warning)}" for warning in suite.warnings())
    headings, *lines = _table(comparison)
    columns = [
        Column(name, justify="right" if i > 1 else "left", no_wrap=i != 1) for i, name in enumerate(headings[:TERMINAL_COLUMNS])
    ]
    table = Table(*columns, title=escape.line(comparison.name))
    for line in lines:
        table.add_row(*map(escape.line, line[:TERMINAL_COLUMNS]))
    yield table
    yield f"comparison.html, .md and .csv also have {escape.line(', '.join(headings[TERMINAL_COLUMNS:]))}."


def markdown(comparison: Comparison, suite: Suite) -> str:
    headings, *lines = [[escape.markdown(cell) for cell in line] for line in _table(comparison)]
    for line in lines:
        if "&#" not in line[0]:  # Markdown decodes no HTML entities inside code
            line[0] = f"`{line[0]}`"
    notes = "\n".join(f"- {escape.markdown(note)}" for note in notes_of(comparison, suite))
    return f"# {escape.markdown(comparison.name)}\n\n{escape.table(headings, lines, left=2)}\n\n{notes}\n"


def csv(comparison: Comparison) -> str:
    """Returns all numbers in full precision as CSV, one line per variant. The cell of a missing number is empty."""
    rows = [comparison.rows[0], *(row.values() for row in comparison.rows)]  # a row's keys are the headings
    out = io.StringIO()
    csv_format.writer(out, lineterminator="\n").writerows(map(escape.cell, row) for row in rows)
    return out.getvalue()
