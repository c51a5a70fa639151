"""Draws the charts of the comparison page by matplotlib, as SVG images on a white background."""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from entente import escape
from entente.ablation.comparison import AS_GOOD, BETTER, DIVERGED, STUCK, WORSE
from entente.ablation.runs import Run, Suite

# Mostly Okabe and Ito's colours, which colour-blind readers can tell apart.
COLORS = {WORSE: "#d55e00", STUCK: "#a8324a", DIVERGED: "#cc79a7", BETTER: "#009e73", AS_GOOD: "#56b4e9"}
OTHER, GREY = "#777777", "#b5b5b5"
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "font.sans-serif": "DejaVu Sans", "font.size": 8, "axes.titlesize": 8}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "entente"}  # the salt makes pages reproducible
LOGARITHMIC = ("gradient norm", "score variance")  # titles of panels with a log axis

Points = Sequence[tuple[float, float]]
Curves = Sequence[tuple[Points, Any]]  # the points and the colour of each curve


def draw(panels: Mapping[str, Curves], x: str, y: str = "", legend: Mapping[str, Any] | None = None) -> Markup:
    """Draws panels by title as one image; no panels give no markup. x, y: labels; with y, the panels share an axis from 0 to
    100. legend: colours by label."""
    if not panels:
        return Markup()
    across = min(5 if y else 3, len(panels))
    down = math.ceil(len(panels) / across)
    size = (10.5, max(1.9, (1.55 if y else 1.9) * down, 0.12 * len(legend or ())))  # inches
    with matplotlib.rc_context(STYLE):
        figure = Figure(size, layout="constrained")
        grid = figure.subplots(down, across, sharey=bool(y), squeeze=False).flatten()
        for axes, (title, lines) in zip(grid, panels.items(), strict=False):
            axes.set_title(escape.line(title, 34).replace("$", r"\$"), loc="left")
            if title in LOGARITHMIC and any(0 < value < math.inf for points, _ in lines for _, value in points):
                axes.set_yscale("log", nonpositive="mask")
            for points, shade in lines:
                axes.plot(*zip(*points, strict=True), ".-", color=shade, linewidth=1, markersize=2, clip_on=False)
        if y:
            grid[0].set_ylim(-3, 103)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel(x, fontsize=8)
        figure.supylabel(y, fontsize=8)
        if legend:
            handles = [Line2D([], [], color=shade, label=label) for label, shade in legend.items()]
            figure.legend(handles=handles, loc="outside right center", fontsize=6, frameon=False, handlelength=1)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    image = base64.b64encode(out.getvalue()).decode()  # an image, since ids would collide if several SVGs were part of the page
    return Markup('<img alt="{} against {}" src="data:image/svg+xml;base64,{}">').format(y or "measurements", x, image)


def against_baseline(suite: Suite, colors: Mapping[str, str], curves: Callable[[Run], list[Points]], x: str, y: str) -> Markup:
    """Draws a panel per variant, with the lines that `curves` returns for its runs in colour and the baseline's in grey."""
    lines = {variant: [curve for run in suite.of(variant) for curve in curves(run) if curve] for variant in suite.variants}
    grey = [(points, GREY) for points in lines[suite.variants[0]]]
    variants = [variant for variant in suite.variants[1:] or suite.variants if lines[variant]]
    panels = {variant: [*grey, *((points, colors[variant]) for points in lines[variant])] for variant in variants}
    return draw(panels, x, y)


def diagnosis(suite: Suite, variant: str, first: str) -> Markup:
    """Draws a panel for each aspect that was measured in the variant's worst run, with a line per part of the model, and the
    baseline's lines in grey. first: the first test split."""
    worst = min(suite.of(variant), key=lambda run: run.metrics[first]["bleu"] if first in run.metrics else -1.0)
    curves = measured(worst)
    places = list(dict.fromkeys(place for _, place, _ in curves))
    shades = dict(zip(places, colormaps["turbo"](np.linspace(0.07, 0.93, len(places))), strict=True))  # without dark ends
    base = [(aspect, (points, GREY)) for aspect, _, points in measured(suite.base_of(worst))]
    colored = [(aspect, (points, shades[place])) for aspect, place, points in curves]
    aspects = dict.fromkeys(aspect for aspect, _ in colored)
    panels = {aspect: [line for name, line in (*base, *colored) if name == aspect] for aspect in aspects}
    return draw(panels, "step", legend=shades)


def measured(run: Run) -> list[tuple[str, str, Points]]:
    """Returns the curves that were logged as why/ASPECT/PLACE, each with its aspect and place."""
    tags = [(tag, tag.split("/")) for tag in run.history if tag.startswith("why/")]
    return [(parts[1].replace("_", " "), parts[2], run.history[tag]) for tag, parts in tags if len(parts) == 3]
