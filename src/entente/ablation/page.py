"""Writes a comparison as a self-contained HTML page, whose prose and markup are in page.html.j2."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from matplotlib import colormaps

from entente.ablation import comparison as verdicts
from entente.ablation.charts import GREY, Panel, Points, draw
from entente.ablation.comparison import Comparison, Row, has_failed
from entente.ablation.runs import DIAGNOSTICS, LOGARITHMIC, Run, Suite
from entente.settings import MISSING
from entente.validation import to_text

if TYPE_CHECKING:
    from entente.ablation.analysis import Analysis

# Mostly Okabe and Ito's colours, which colour-blind readers can tell apart.
COLORS = {verdicts.WORSE: "#d55e00", verdicts.STUCK: "#a8324a", verdicts.DIVERGED: "#cc79a7"}
COLORS |= {verdicts.BETTER: "#009e73", verdicts.AS_GOOD: "#56b4e9"}
PHRASES = {verdicts.AS_GOOD: "not shown to differ"}  # verdicts that the page's summary words differently
OTHER = "#777777"


def number(value: float | None, digits: int = 2, sign: bool = False) -> str:
    """Formats a number for a table, with a real minus sign; returns a dash for None."""
    if value is None:
        return "–"
    value = round(value, digits) + 0.0  # turns -0.0 into 0.0
    return f"{value:{'+' * sign},.{digits}f}".replace("-", "−")


def format_p(p: float | None) -> str:
    """Formats a p value for a table. Values below 0.001 are shown as "< 0.001", since their digits would mean little."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def spread(value: float | None, deviation: float | None) -> str:
    return number(value) + (f" ± {number(deviation)}" if deviation is not None else "")


def color(verdict: str) -> str:
    return COLORS.get(verdict.partition(";")[0], OTHER)


LOADER, ESCAPED = FileSystemLoader(Path(__file__).parent), select_autoescape(["html.j2"])
TEMPLATES = Environment(loader=LOADER, autoescape=ESCAPED, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
TEMPLATES.globals |= {"number": number, "format_p": format_p, "spread": spread, "color": color, "reached": verdicts.REACHED}


def notes_of(comparison: Comparison, suite: Suite) -> list[str]:
    """Returns the notes on how the numbers were computed, each as one line."""
    values = {**vars(comparison), "alpha": verdicts.ALPHA, "warnings": [*suite.warnings()]}
    return TEMPLATES.get_template("notes.j2").render(values).splitlines()


def differences(suite: Suite) -> list[list[str]]:
    """Returns a row for each setting that differs between listed runs: its name, then its value in each variant."""
    rows = suite.differences().items()
    return [[key, *("–" if value == MISSING else to_text(value) for value in values)] for key, values in rows]


def page(comparison: Comparison, suite: Suite, analysis: "Analysis | None" = None) -> str:
    """Returns the whole HTML file."""
    lengths = [split for split in comparison.splits if split in (comparison.splits[0], "test_long")]
    against_baseline = partial(_against_baseline, comparison, suite)
    difference = f"{comparison.splits[0]} difference" if comparison.splits else ""

    def learning(run: Run) -> list[Points]:
        return [run.by_minutes("valid/bleu") if suite.listed else run.history.get("valid/bleu", [])]

    counts = Counter(row["verdict"].partition(";")[0] for row in comparison.rows[1:])
    failed = [row for row in comparison.rows if has_failed(row, comparison.splits)]
    return TEMPLATES.get_template("page.html.j2").render(
        comparison=comparison,
        suite=suite,
        analysis=analysis,
        differences=differences(suite),
        counts=counts.most_common(),
        phrases=PHRASES,
        notes=notes_of(comparison, suite),
        learning=against_baseline(learning, "minutes" if suite.listed else "step", "validation BLEU"),
        by_harm=sorted(comparison.rows[1:], key=lambda row: (row.get(difference) is None, row.get(difference) or 0.0)),
        lengths=lengths,
        length=against_baseline(lambda run: [_by_length(run, split) for split in lengths], "words of the source", "BLEU"),
        why={row["variant"]: _why(row, comparison, suite) for row in failed},
    )


def _by_length(run: Run, split: str) -> Points:
    """Returns a point (length, BLEU) for each range of source lengths, at its middle: 8 for "6-10", 51 for "51+"."""
    buckets = run.metrics.get(split, {}).get("bleu_by_source_length", [])
    ends = [[*map(int, bucket["words"].rstrip("+").split("-"))] for bucket in buckets]
    return [(sum(pair) / len(pair), bucket["bleu"]) for pair, bucket in zip(ends, buckets, strict=True)]


def _against_baseline(comparison: Comparison, suite: Suite, curves: Callable[[Run], list[Points]], x: str, y: str) -> Markup:
    """Draws a panel per variant, with the lines of its runs in colour and the baseline's in grey. curves: returns a run's
    lines."""
    lines = {variant: [curve for run in suite.of(variant) for curve in curves(run) if curve] for variant in suite.variants}
    baseline, *variants = suite.variants
    names = [variant for variant in variants if lines[variant]] or [baseline] * bool(lines[baseline])
    colors = {row["variant"]: color(row["verdict"]) for row in comparison.rows}
    grey = [(points, GREY) for points in lines[baseline]]
    return draw([Panel(name, [*grey, *((points, colors[name]) for points in lines[name])]) for name in names], x, y)


def _why(row: Row, comparison: Comparison, suite: Suite) -> Markup:
    """Draws a panel for each aspect that was measured in the variant's worst run, with a line per part of the model, and the
    range of the baseline's lines in grey."""
    runs = [run for run in suite.of(row["variant"]) if any(map(run.measured, DIAGNOSTICS))]
    if not runs:
        return Markup()
    splits = comparison.splits
    worst = min(runs, key=lambda run: next((run.metrics[split]["bleu"] for split in splits if split in run.metrics), -1.0))
    aspects = {aspect: lines for aspect in DIAGNOSTICS if (lines := worst.measured(aspect))}
    places = list(dict.fromkeys(chain.from_iterable(aspects.values())))
    shades = dict(zip(places, colormaps["turbo"](np.linspace(0.07, 0.93, len(places))), strict=True))  # without dark ends
    panels = []
    for aspect, lines in aspects.items():
        colored = [(points, shades[place]) for place, points in lines.items()]
        band = [*suite.base_of(worst).measured(aspect).values()]
        panels.append(Panel(aspect.replace("_", " "), colored, band, log=aspect in LOGARITHMIC))
    return draw(panels, "step", legend=shades)
