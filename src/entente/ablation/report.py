"""Prints a comparison, and writes it as Markdown, as CSV and as a page, whose prose and markup are in page.html.j2."""

import csv as csv_format
import io
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from rich.console import Console
from rich.table import Table

from entente import escape
from entente.ablation.analysis import Lines, analyse, arrow, samples
from entente.ablation.causes import Points, explain
from entente.ablation.charts import COLORS, OTHER, against_baseline, diagnosis
from entente.ablation.comparison import ALPHA, DIVERGED, HARMED, NOT_COMPARED, SAME, Comparison, Row, compare
from entente.ablation.runs import Run, Suite
from entente.console import Task
from entente.files import write_text
from entente.settings import MISSING
from entente.validation import to_text

Analysis = dict[str, Any] | None  # what `analyse` returns
LOADER, ESCAPED = FileSystemLoader(Path(__file__).parent), select_autoescape(["html.j2"])
TEMPLATES = Environment(loader=LOADER, autoescape=ESCAPED, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def report(suite: Suite, folder: Path, samples: int, trust_data: bool = False) -> None:
    """Compares the variants of a suite, prints the table, and writes comparison.md, .csv and .html into a folder. trust_data:
    whether the training text that the first of two listed runs names may be read."""
    with Task(f"comparing {len(suite.runs)} runs with {samples:,} bootstrap samples"):
        comparison = compare(suite, samples)
    analysis: Analysis = None
    if suite.listed and len(suite.runs) == len(suite.variants) == 2 and comparison.rows[1]["verdict"] != NOT_COMPARED:
        with Task("comparing the errors of both runs, and counting the words of the training text"):
            analysis = analyse(suite, comparison.first, trust_data)
    show(comparison, suite, analysis)
    with Task("drawing the page"):
        forms = {"md": markdown(comparison, suite), "csv": csv(comparison), "html": page(comparison, suite, analysis)}
    for ending, text in forms.items():
        write_text(folder / f"comparison.{ending}", text)
    print(folder / "comparison.html")


def number(value: float | None, digits: int = 2, sign: bool = False) -> str:
    """Formats a number for a table, with a real minus sign; returns a dash for None."""
    return "–" if value is None else f"{value:{'+' * sign}z,.{digits}f}".replace("-", "−")


def spread(row: Row, split: str) -> str:
    """Formats the mean BLEU on a split and, if there are several seeds, its standard deviation."""
    deviation = row.get(f"{split} bleu_sd")
    return number(row.get(f"{split} bleu")) + (f" ± {number(deviation)}" if deviation is not None else "")


def score_table(comparison: Comparison) -> Lines:
    """Returns the table of scores, with a line per variant."""
    first, rest = comparison.first, comparison.splits[1:]
    headings = ["variant", "verdict", f"BLEU {first}", "difference", "p (Holm)", *rest]
    lines = [[*headings, "chrF", "NLL", "finished", "parameters", "tokens/s"]]
    for row in comparison.rows:
        p = row.get(f"{first} p_holm")
        compared = [number(row.get(f"{first} difference"), sign=True), "< 0.001" if p and p < 0.001 else number(p, 3)]
        bleu = [spread(row, first), *compared, *(spread(row, split) for split in rest)]
        finished = f"{row['finished']} of {row['runs']}"
        counts = [number(row["parameters"], 0), number(row["tokens_per_second"], 0)]
        scores = [*bleu, number(row.get(f"{first} chrf")), number(row.get(f"{first} nll"), 3)]
        lines.append([row["variant"], row["verdict"], *scores, finished, *counts])
    return lines


def headline(comparison: Comparison, row: Row, reason: str) -> str:
    """Returns what a variant loses or gains, and the reason if there is one."""
    difference, verdict = row.get(f"{comparison.first} difference"), row["verdict"]
    text = f"{row['variant']}: {verdict}"
    if difference is not None:
        scores = arrow((each[f"{comparison.first} bleu"] for each in (comparison.rows[0], row)), ".1f")
        change = f"{'loses' if difference < 0 else 'gains'} {number(abs(difference), 1)} BLEU"
        text = f"{text} ({scores} BLEU)" if verdict == SAME else f"{row['variant']} {change} ({scores})"
    return f"{text}: {reason}" if reason else text


def difference_table(suite: Suite) -> Lines:
    differences = suite.differences()
    lines = [[key, *("–" if value == MISSING else to_text(value) for value in values)] for key, values in differences.items()]
    return [["setting", *suite.variants], *lines] if lines else []


def notes(comparison: Comparison) -> list[str]:
    """Returns the notes on how the numbers were computed, each as one line."""
    values = {**vars(comparison), "alpha": ALPHA, "first": comparison.first}
    return TEMPLATES.get_template("notes.j2").render(values).splitlines()


def show(comparison: Comparison, suite: Suite, analysis: Analysis = None) -> None:
    console = Console(width=None if sys.stdout.isatty() else 250, markup=False, emoji=False)  # so that piped tables do not wrap
    scores = [line[:5] for line in score_table(comparison)]  # as many columns as fit a narrow terminal
    tables = {"What differs": difference_table(suite), comparison.title: scores, **(analysis["tables"] if analysis else {})}
    for title, lines in tables.items():
        if lines:
            headings, *rows = [[escape.line(cell) for cell in line] for line in lines]
            table = Table(*headings, title=escape.line(title))
            for row in rows:
                table.add_row(*row)
            console.print(table)
    if analysis and analysis["problem"]:
        console.print(escape.line(analysis["problem"]))


def markdown(comparison: Comparison, suite: Suite) -> str:
    parts = [f"# {escape.markdown(comparison.title)}"]
    for table, left in ((score_table(comparison), 2), (difference_table(suite), None)):
        if table:
            headings, *lines = [[escape.markdown(cell) for cell in line] for line in table]
            parts.append(escape.table(headings, lines, left))
    parts.append("\n".join(f"- {escape.markdown(note)}" for note in notes(comparison)))
    return "\n\n".join(parts) + "\n"


def csv(comparison: Comparison) -> str:
    """Returns all numbers in full precision as CSV, one line per variant. The cell of a missing number is empty."""
    rows = [comparison.rows[0], *(row.values() for row in comparison.rows)]  # a row's keys are the headings
    out = io.StringIO()
    csv_format.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def page(comparison: Comparison, suite: Suite, analysis: Analysis = None) -> str:
    rows, first = comparison.rows, comparison.first
    lengths = [split for split in comparison.splits if split in (first, "test_long")]
    colors = {row["variant"]: COLORS.get(row["verdict"], OTHER) for row in rows}

    def bleu(run: Run) -> float:
        return run.metrics[first]["bleu"] if first in run.metrics else -1.0

    failed = {row["variant"]: min(suite.of(row["variant"]), key=bleu) for row in rows if row["verdict"] in HARMED}  # worst runs
    causes = {variant: explain(run, suite.base_of(run)) for variant, run in failed.items()}
    reasons = {row["variant"]: next((x for x in causes.get(row["variant"], ()) if x != row["verdict"]), "") for row in rows}

    def loss(row: Row) -> float:
        difference = row.get(f"{first} difference")
        return difference if difference is not None else -100.0 * (row["verdict"] == DIVERGED)

    def length(run: Run) -> list[Points]:
        ranges = [run.metrics.get(split, {}).get("bleu_by_source_length", []) for split in lengths]
        return [[(int(re.split(r"\D", part["words"])[0]), part["bleu"]) for part in parts] for parts in ranges]

    by_harm = sorted(rows[1:], key=loss)
    return TEMPLATES.get_template("page.html.j2").render(
        comparison=comparison,
        first=first,
        headline=headline(comparison, by_harm[0], reasons[by_harm[0]["variant"]]) if by_harm else "",
        reasons=reasons,
        best=max(rows, key=lambda row: row.get(f"{first} bleu") or -1.0),
        verdicts=Counter(row["verdict"] for row in rows[1:]),
        causes=causes,
        scores=score_table(comparison),
        differences=difference_table(suite),
        by_harm=by_harm,
        learning=against_baseline(suite, colors, lambda run: [run.history.get("valid/bleu", [])], "step", "validation BLEU"),
        length=against_baseline(suite, colors, length, "words of the source", "BLEU"),
        lengths=lengths,
        failures={variant: diagnosis(run, suite.base_of(run)) for variant, run in failed.items()},
        samples=[] if analysis else samples(suite, first),
        analysis=analysis,
        notes=notes(comparison),
        number=number,
        colors=colors,
    )
