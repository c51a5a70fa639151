"""Writes a comparison as a self-contained HTML page. Its prose and markup are in page.html.j2; its charts are drawn here by
matplotlib, as inline SVG on a white background."""

import io
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from zlib import crc32

import matplotlib
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from entente import escape
from entente.ablation import comparison as verdicts
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
OTHER, GREY = "#777777", "#b5b5b5"
FONT: dict[Any, Any] = {"svg.fonttype": "none", "font.sans-serif": "DejaVu Sans", "font.size": 8, "axes.titlesize": 8}
STYLE = {**FONT, "text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False}
WIDTH = 10.5  # inches; the width of a chart that spans the page
SVG_METADATA = dict(Date=None, Creator=None, Format=None, Type=None)  # no dates, so that pages are reproducible, and no URLs
SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")  # HTML knows only this prefix

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """A part of a chart. lines: the points and colour of each. band: lines whose range is drawn in grey."""

    title: str
    lines: Sequence[tuple[Points, Any]]
    band: Sequence[Points] = ()
    log: bool = False


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
    baseline, *others = suite.variants
    names = [variant for variant in others if lines[variant]] or [baseline] * bool(lines[baseline])
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


def draw(panels: Sequence[Panel], x: str, y: str = "", legend: Mapping[str, Any] | None = None) -> Markup:
    """Draws panels as one SVG figure; no panels give no markup. x, y: labels; with y, the panels share an axis
    from 0 to 100. legend: colours by label."""
    if not panels:
        return Markup()
    across = min(5 if y else 3, len(panels))
    down = math.ceil(len(panels) / across)
    height = 1.55 if y else max(1.9, 0.12 * len(legend or ()) / down)
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": str(crc32(repr(panels).encode()))}):  # ids must be unique on a page
        figure = Figure((WIDTH, max(1.9, height * down)), layout="constrained")
        grid = list(figure.subplots(down, across, sharex=True, sharey=bool(y), squeeze=False).flat)
        for axes, panel in zip(grid, panels, strict=False):
            axes.set_title(escape.line(panel.title, 34), loc="left")
            for points, shade in panel.lines:
                marker = "o" if len(points) < 10 else None  # show the points if there are too few for a line
                axes.plot(*zip(*points, strict=True), color=shade, linewidth=1, marker=marker, markersize=2, clip_on=False)
            values = defaultdict(list)
            for step, value in chain.from_iterable(panel.band):
                values[step].append(value)
            axes.fill_between([*values], [*map(min, values.values())], [*map(max, values.values())], color=GREY, clip_on=False)
            if panel.log:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(LogFormatter())  # the default formatter writes TeX, which HTML does not render
                axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
        if y:
            grid[0].set_ylim(-3, 103)
        for i in range(len(panels), len(grid)):
            grid[i].set_axis_off()
            grid[i - across].xaxis.set_tick_params(labelbottom=True)
        figure.supxlabel(x, fontsize=8)
        figure.supylabel(y, fontsize=8)
        if legend:
            handles = [Line2D([], [], color=shade, linewidth=1) for shade in legend.values()]
            figure.legend(handles, [*legend], loc="outside right center", fontsize=6, frameon=False, handlelength=1)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=SVG_METADATA)
    svg = ElementTree.fromstring(out.getvalue())
    for group in svg.iter(f"{{{SVG}}}g"):
        group.attrib.pop("id", None)  # the same in each chart, whereas an id must be unique on a page
    return Markup(ElementTree.tostring(svg, encoding="unicode"))
