"""Draws the charts of the comparison page by matplotlib, as SVG images on a white background."""

import base64
import gzip
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from entente import escape
from entente.ablation.comparison import DIVERGED, FAILED, Points, measured
from entente.ablation.runs import Run, Suite
from entente.ablation.significance import BETTER, BETTER_RUN, SAME, WITHIN, WORSE, WORSE_RUN

# Mostly Okabe and Ito's colours, which colour-blind readers can tell apart.
COLORS = {WORSE: "#d55e00", FAILED: "#a8324a", DIVERGED: "#cc79a7", BETTER: "#009e73", SAME: "#56b4e9", WITHIN: "#0072b2"}
COLORS |= {WORSE_RUN: COLORS[WORSE], BETTER_RUN: COLORS[BETTER]}
OTHER, GREY = "#777777", "#b5b5b5"
KINDS = (  # of parts of a model: the label, the colour, and a pattern of their names, the first that fits
    ("self-attention", "#0072b2", " self$"),
    ("cross-attention", "#d55e00", " cross$|^attention$"),
    ("feed-forward", "#009e73", " ff$"),
    ("embedding", "#cc79a7", " embedding$"),
    ("whole layer", "#000000", r"coder \d+$"),
    ("norm, output, others", "#b8860b", ""),
)
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "font.sans-serif": "DejaVu Sans", "font.size": 8, "axes.titlesize": 8}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "entente"}  # the salt makes pages reproducible
POINTS = 24  # of a line, about; more make a page large
LOGARITHMIC = ("gradient norm", "score variance")  # titles of panels with a log axis

Look = Mapping[str, Any]  # matplotlib's properties of a line
Curves = Sequence[tuple[Points, Look]]


def draw(panels: Mapping[str, Curves], x: str, y: str = "", legend: Mapping[str, Look] | None = None) -> Markup:
    """Draws panels by title as one image; no panels give no markup. x, y: labels; with y, the panels share an axis from 0 to
    100. legend: the looks of lines by label."""
    if not panels:
        return Markup()
    across = min(5 if y else 3, len(panels))
    down = math.ceil(len(panels) / across)
    size = (10.5, max(1.9, (1.55 if y else 1.9) * down, 0.15 * len(legend or ())))  # inches
    with matplotlib.rc_context(STYLE):
        figure = Figure(size, layout="constrained")
        grid = figure.subplots(down, across, sharey=bool(y), squeeze=False).flatten()
        for axes, (title, lines) in zip(grid, panels.items(), strict=False):
            axes.set_title(escape.line(title, 34).replace("$", r"\$"), loc="left")
            if title in LOGARITHMIC and any(0 < value < math.inf for points, _ in lines for _, value in points):
                axes.set_yscale("log", nonpositive="mask")
            for points, look in lines:
                points = [*points[: -1 : -(-len(points) // POINTS)], points[-1]]
                marker = {"marker": ".", "markersize": 2} if len(points) < POINTS / 2 else {}  # three quarters of the bytes
                axes.plot(*zip(*points, strict=True), clip_on=False, **{"linewidth": 1, **marker, **look})
        if y:
            grid[0].set_ylim(-3, 103)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel(x, fontsize=8)
        figure.supylabel(y, fontsize=8)
        if legend:
            handles = [Line2D([], [], label=label, **look) for label, look in legend.items()]
            figure.legend(handles=handles, loc="outside right center", fontsize=7, frameon=False, handlelength=2.4)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    image = base64.b64encode(gzip.compress(out.getvalue(), mtime=0)).decode()  # a fifth of the bytes; the page decompresses it
    return Markup('<img alt="{} against {}" data-svg="{}">').format(y or "measurements", x, image)


def against_baseline(suite: Suite, colors: Mapping[str, str], curves: Callable[[Run], list[Points]], x: str, y: str) -> Markup:
    """Draws a panel per variant, with the lines that `curves` returns for its runs in colour and the baseline's in grey."""
    lines = {variant: [curve for run in suite.of(variant) for curve in curves(run) if curve] for variant in suite.variants}
    grey = [(points, {"color": GREY}) for points in lines[suite.variants[0]]]
    variants = [variant for variant in suite.variants[1:] or suite.variants if lines[variant]]
    panels = {variant: [*grey, *((points, {"color": colors[variant]}) for points in lines[variant])] for variant in variants}
    return draw(panels, x, y)


def diagnosis(run: Run, baseline: Run) -> Markup:
    """Draws a panel for each aspect that was measured in a run, with a line per part of the model, and its baseline's lines in
    grey. Colour shows the kind of a part, width for its layer; lines of the decoder are dashed."""
    curves = measured(run)
    base = [(aspect, (points, {"color": GREY})) for aspect, _, points in measured(baseline)]
    colored = [(aspect, (points, look_of(place))) for aspect, place, points in curves]
    aspects = dict.fromkeys(aspect for aspect, _ in colored)
    panels = {aspect: [line for name, line in (*base, *colored) if name == aspect] for aspect in aspects}
    places = [place for _, place, _ in curves]
    colors = {look_of(place)["color"] for place in places}
    legend: dict[str, Look] = {label: {"color": color} for label, color, _ in KINDS if color in colors}
    layers = sorted({int(number) for place in places for number in re.findall(r"\d+", place)})
    legend |= {f"layer {layer}": {**look_of(f"layer {layer}"), "color": OTHER} for layer in layers}
    legend |= {"decoder": {"color": OTHER, "linestyle": "--"}, "baseline": {"color": GREY}}
    return draw(panels, "step", legend=legend)


def look_of(place: str) -> Look:
    """Returns the look of the line of a part of the model, such as "encoder 1 self"."""
    color = next(color for _, color, pattern in KINDS if re.search(pattern, place))
    layer = int("".join(re.findall(r"\d+", place)) or 1)
    return {"color": color, "linewidth": min(0.2 + 0.6 * layer, 3.2), "linestyle": "--" if place.startswith("decoder") else "-"}
