"""Draws the charts of the comparison page by matplotlib, as inline SVG on a white background."""

import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from xml.etree import ElementTree
from zlib import crc32

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from entente import escape

GREY = "#b5b5b5"
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
