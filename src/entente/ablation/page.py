"""Writes one HTML file that shows what each variant of a suite is worth. It loads nothing: its charts are part of its text.

Prose and markup are in page.html.j2; here is what is shown, and the line charts, which matplotlib draws as SVG.
"""

import io
import math
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from rich.console import Console

from entente.ablation.comparison import (
    AS_GOOD,
    BETTER,
    REACHED,
    TEMPLATES,
    WORSE,
    Comparison,
    Row,
    chance,
    compare,
    csv,
    markdown,
    number,
    spread,
    terminal,
)
from entente.ablation.runs import ASPECTS, Run, Suite, publish, read_suite
from entente.files import path_of, writable, write_text

# Okabe and Ito's colours, which remain distinct to colour-blind readers.
COLORS = {WORSE: "#d55e00", "never left the plateau": "#7a0c1e", "diverged": "#cc79a7", BETTER: "#009e73", AS_GOOD: "#56b4e9"}
OTHER, GREY = "#333333", "#b5b5b5"
STACKS = ("Blues", "Oranges", "Greens", "Purples")  # of lines: one a stack (encoder, decoder, ...), darker with depth
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
}
WIDTH = 10.5  # inches, of a chart across the page
SVG_METADATA = dict(Date=None, Creator=None, Format=None, Type=None)  # the same page each time, and no addresses in it


class Line(NamedTuple):
    xs: Sequence[float]
    ys: Sequence[float]
    color: Any
    label: str = ""


def report(config: Mapping[str, Any]) -> None:
    """Writes the comparison of a suite in three forms and prints it; publishes the suite where `publish` is a folder."""
    suite = read_suite(path_of(config["suite"]))
    comparison = compare(suite, config["samples"])
    output = path_of(config["output"]) if config["output"] else suite.directory
    forms = {"md": markdown(comparison), "csv": csv(comparison), "html": page(comparison, suite)}
    folders = {"output": output}
    if config["publish"]:
        folders["publish"] = path_of(config["publish"])
        publish(suite, folders["publish"])
    for key, folder in folders.items():
        with writable(f"{key}={folder}", "folder"):
            for ending, text in forms.items():
                write_text(folder / f"comparison.{ending}", text)
    console = Console(width=None if sys.stdout.isatty() else 250, markup=False, emoji=False)  # wide enough in a pipe
    console.print(terminal(comparison, console.width))
    print(output / "comparison.html")


def page(comparison: Comparison, suite: Suite) -> str:
    """Returns the whole file as text."""
    first = comparison.splits[0] if comparison.splits else ""
    lengths = [split for split in comparison.splits if split in (first, "test_long")]
    cells = [row.cells[first] for row in comparison.rows if first in row.cells]
    ends = [0.0, *(end for cell in cells for end in (cell.lowest, cell.highest) if end is not None)]
    with matplotlib.rc_context(STYLE):
        return TEMPLATES.get_template("page.html.j2").render(
            comparison=comparison,
            by_harm=_by_harm(comparison, first),
            low=min(ends),
            high=max(ends),
            learning=_panels(comparison, suite, _learning_curve, "step", "validation BLEU"),
            lengths=lengths,
            length=_panels(comparison, suite, lambda run: _by_length(run, lengths), "words of the source", "BLEU"),
            why={row.variant: _why(row, suite, first) for row in comparison.rows if row.failed},
            messages={row.variant: _messages(row, suite) for row in comparison.rows},
            color=_color,
            reached=REACHED,
            number=number,
            chance=chance,
            spread=spread,
        )


def _by_harm(comparison: Comparison, first: str) -> list[Row]:
    """Returns all rows but the baseline's, the greatest loss of BLEU first; those without a result last."""

    def difference(row: Row) -> float:
        cell = row.cells.get(first)
        return math.inf if cell is None or cell.difference is None else cell.difference

    return sorted(comparison.rows[1:], key=difference)


def _messages(row: Row, suite: Suite) -> list[str]:
    """Returns what is known of the runs that did not finish."""
    return [f"seed {run.seed}: {run.message}" for run in suite.of(row.variant) if run.metrics is None and run.message]


def _color(verdict: str) -> str:
    return COLORS.get(verdict.partition(";")[0], OTHER)


def _learning_curve(run: Run) -> list[tuple[Sequence[float], Sequence[float]]]:
    return [tuple(zip(*points, strict=True)) for points in [run.curves.get("valid/bleu")] if points]  # type: ignore[misc]


def _by_length(run: Run, splits: Sequence[str]) -> list[tuple[Sequence[float], Sequence[float]]]:
    """Returns a line a split, over the middle of each range of lengths: 8 for "6-10", 51 for "51+"."""
    lines: list[tuple[Sequence[float], Sequence[float]]] = []
    for scores in map(run.scores, splits):
        if scores and (buckets := scores.bleu_by_source_length):
            ends = [[int(end) for end in re.findall(r"\d+", one.words)] for one in buckets]
            lines.append(([sum(pair) / len(pair) for pair in ends], [one.bleu for one in buckets]))
    return lines


def _panels(comparison: Comparison, suite: Suite, curves: Callable[[Run], list[Any]], x: str, y: str) -> Markup:
    """Draws a panel a variant on the same axes, a line a seed, the baseline in grey."""
    drawn = {variant: [curve for run in suite.of(variant) for curve in curves(run)] for variant in suite.variants}
    rows = [row for row in comparison.rows[1:] if drawn[row.variant]] or [row for row in comparison.rows if drawn[row.variant]]
    if not rows:
        return Markup()
    across = min(5, len(rows))
    figure = Figure((WIDTH, 0.4 + 1.45 * math.ceil(len(rows) / across)), layout="constrained")
    grid = list(figure.subplots(math.ceil(len(rows) / across), across, sharex=True, sharey=True, squeeze=False).flat)
    for axes, row in zip(grid, rows, strict=False):
        baseline = [Line(xs, ys, GREY) for xs, ys in drawn[suite.variants[0]]]
        _draw(axes, row.variant, [*baseline, *(Line(xs, ys, _color(row.verdict)) for xs, ys in drawn[row.variant])])
        axes.set_ylim(-3, 103)
    for i in range(len(rows), len(grid)):
        grid[i].set_axis_off()
        grid[i - across].xaxis.set_tick_params(labelbottom=True)
    figure.supxlabel(x, fontsize=8)
    figure.supylabel(y, fontsize=8)
    return _svg(figure, y + x)


def _why(row: Row, suite: Suite, first: str) -> dict[str, Markup]:
    """Returns a chart of each aspect that was measured, of the seed that did worst on the first test split."""
    measured = [run for run in suite.of(row.variant) if any(tag.startswith("why/") for tag in run.curves)]
    if not measured:
        return {}
    worst = min(measured, key=lambda run: scores.bleu if (scores := run.scores(first)) else -1.0)
    baseline = next(run for run in suite.of(suite.variants[0]) if run.seed == worst.seed)
    charts = {}
    for aspect, logarithmic in ASPECTS.items():
        sides = [_places(run, aspect, logarithmic) for run in (baseline, worst)]
        if any(sides[1].values()):
            titles = [f"{run.variant} (seed {run.seed})" for run in (baseline, worst)]
            charts[aspect] = _side_by_side(titles, sides, logarithmic, row.variant + aspect)
    return charts


def _places(run: Run, aspect: str, logarithmic: bool) -> dict[str, list[tuple[int, float]]]:
    """Returns the points that can be drawn of each place in the model, places in the order of their numbers."""
    prefix = f"why/{aspect}/"
    lowest = 0.0 if logarithmic else -math.inf
    found = {tag.removeprefix(prefix): points for tag, points in run.curves.items() if tag.startswith(prefix)}
    order = sorted(found, key=lambda place: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", place)])
    return {place: [(step, value) for step, value in found[place] if lowest < value < math.inf] for place in order}


def _side_by_side(
    titles: Sequence[str], sides: Sequence[Mapping[str, list[tuple[int, float]]]], logarithmic: bool, salt: str
) -> Markup:
    """Draws two runs on the same axes, a line a place."""
    places = list(dict.fromkeys(place for side in sides for place in side))
    stacks: dict[str, list[str]] = {}
    for place in places:
        stacks.setdefault(re.split(r"[\W\d_]", place)[0], []).append(place)
    colors = {
        place: matplotlib.colormaps[STACKS[i % len(STACKS)]](0.4 + 0.55 * j / max(1, len(members) - 1))
        for i, members in enumerate(stacks.values())
        for j, place in enumerate(members)
    }
    figure = Figure((WIDTH / 2, max(1.9, 0.3 + 0.115 * len(places))), layout="constrained")
    handles: dict[str, Any] = {}
    for axes, title, side in zip(figure.subplots(1, 2, sharex=True, sharey=True), titles, sides, strict=True):
        lines = [
            Line([step for step, _ in points], [value for _, value in points], colors[place], place)
            for place, points in side.items()
            if points
        ]
        handles |= _draw(axes, title, lines)
        axes.set_xlabel("step")
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(LogFormatter())  # the usual one writes TeX, which an HTML page shows as it is
            axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
    order = [place for place in places if place in handles]
    legend: dict[str, Any] = {"loc": "outside right center", "fontsize": 6, "frameon": False, "handlelength": 1}
    figure.legend([handles[place] for place in order], order, **legend)
    return _svg(figure, salt)


def _draw(axes: Axes, title: str, lines: Sequence[Line]) -> dict[str, Any]:
    """Draws lines; returns matplotlib's by label. Points are marked where there are too few for a line."""
    axes.set_title(textwrap.shorten(title, 34), loc="left")
    marks: dict[str, Any] = {"marker": "o", "markersize": 2}
    return {
        line.label: axes.plot(line.xs, line.ys, color=line.color, linewidth=1, **marks if len(line.xs) < 10 else {})[0]
        for line in lines
    }


def _svg(figure: Figure, salt: str) -> Markup:
    """Returns the figure as an HTML element. salt: makes its identifiers unlike those of the page's other charts."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(out, format="svg", metadata=SVG_METADATA)
    text = out.getvalue()
    return Markup(text[text.index("<svg") :])
