"""Attention maps as pictures. Figures are objects of their own: no pyplot, no global state, safe in threads, nothing to close.

A figure has one pair of axes that covers it, measured in inches from its upper left corner: panels are images in it and labels
are texts. Axes of its own for every panel take four times as long, most of it for ticks.

Lengths are in inches, font sizes in points (1/72 inch). Shapes: L layers, H heads.
"""

import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.patches import Rectangle
from torch import Tensor

from entente.attention.record import ALIGNMENT, CROSS, DECODER, ENCODER, AttentionMap

TITLES = {
    ENCODER: "Encoder self-attention: which source {unit} (column) each source {unit} (row) looks at",
    DECODER: "Decoder masked self-attention: which {unit} read so far (column) each produced {unit} (row) looks at",
    CROSS: "Cross-attention: which source {unit} (column) each produced {unit} (row) looks at",
    ALIGNMENT: "Alignment: which source {unit} (column) each produced {unit} (row) looks at",
}
NOT_AS_DECODED = "This decoder sees target pieces that come later: these are not the weights that decoding used."
COLORS = "Blues"  # white at 0, and even steps to the eye
MARK = "#d95f02"  # orange stands out from any blue
FONT = "DejaVu Sans"  # comes with matplotlib: the same picture everywhere
DPI = 100
EM = 64  # pixels, to measure letters by
LINE = 1.3 / 72  # height of a line per point of its font
GAP = 0.12  # between parts
SMALLEST = 1.1  # side of a panel


class Panel(NamedTuple):
    """One head's weights (rows, columns)."""

    title: str
    weights: Tensor
    rows: list[str]
    columns: list[str]
    marks: Mapping[tuple[int, int], bool] = {}  # (row, column) -> whether the link is sure; a possible one is dashed


def draw(map: AttentionMap, title: str) -> Figure:
    """All layers (rows of panels) and heads (columns) of one kind of attention; `title` says of which sentence."""
    n_layers, n_heads, n_rows, n_columns = map.weights.shape
    # Few panels are drawn large. In a long sentence cells and labels shrink, so that a picture does not grow without end.
    cell = min(max(0.2, 6 / (n_heads * n_columns)), 0.32, 6 / max(n_rows, n_columns))
    panels = [
        [Panel(_which(map, i, j), map.weights[i, j], map.rows, map.columns) for j in range(n_heads)] for i in range(n_layers)
    ]
    title = "\n".join([TITLES.get(map.kind, map.kind.capitalize()).format(unit=map.unit), title, *_caution([map])])
    return _figure(panels, title, cell, font=min(10, 44 * cell))


def draw_pair(
    maps: Mapping[str, AttentionMap],
    title: str,
    layer: int = -1,
    head: int | None = None,
    marks: Mapping[tuple[int, int], bool] | None = None,
) -> Figure:
    """One attention of each named map, large, side by side. Of a map with several layers or heads it is that layer (from 0) and
    that head, or the mean of the layer's heads if None. marks: links drawn over it, (row, column) -> sure or only possible."""
    panels = []
    for name, map in maps.items():
        n_layers, n_heads = map.weights.shape[:2]
        i = layer % n_layers if n_layers > 1 else 0
        j = head % n_heads if head is not None and n_heads > 1 else None
        weights = map.weights[i].mean(0) if j is None else map.weights[i, j]
        which = _which(map, i, j)
        panels.append(Panel(f"{name}, {which}" if which else name, weights, map.rows, map.columns, marks or {}))
    cell = min(0.75, 13 / sum(len(map.columns) for map in maps.values()))
    return _figure([panels], "\n".join([title, *_caution(maps.values())]), cell, font=min(17, 40 * cell))


def _caution(maps: Iterable[AttentionMap]) -> list[str]:
    return [] if all(map.as_decoded for map in maps) else [NOT_AS_DECODED]


def _which(map: AttentionMap, layer: int, head: int | None) -> str:
    """Layer and head in words, counted from 1; only what the map has several of. The head None is the mean."""
    n_layers, n_heads = map.weights.shape[:2]
    words = [f"layer {layer + 1}"] if n_layers > 1 else []
    if n_heads > 1:
        words.append(f"mean of {n_heads} heads" if head is None else f"head {head + 1}")
    return ", ".join(words)


def _figure(grid: list[list[Panel]], title: str, cell: float, font: float) -> Figure:
    """Panels in rows and columns, titles above them. What columns of weights are stands below the last panel; what rows are,
    left of the first panel and of each whose rows are not those of the one before it."""
    first, small, large = grid[0], max(font, 9.0), max(font, 9.0) * 1.2
    width = [max(SMALLEST, cell * len(panel.columns)) for panel in first]
    height = [max(SMALLEST, cell * len(panel.rows)) for panel in first]
    own_rows = [j == 0 or panel.rows != first[j - 1].rows for j, panel in enumerate(first)]
    left = [_room(panel.rows, font) if own else GAP for panel, own in zip(first, own_rows, strict=True)]
    above, below = 1.4 * small * LINE, max(_room(panel.columns, font) for panel in first)
    bar = 4 * GAP + _width("0.5", small) + GAP

    page_width = max(7.2, sum(left) + sum(width) + bar)
    lines = [part for line in title.split("\n") if line for part in _wrapped(line, large, page_width - 2 * GAP)]
    top = 1.5 * GAP + len(lines) * large * LINE
    page = _Page(page_width, top + len(grid) * (above + max(height) + GAP) + below)
    for i, line in enumerate(lines):
        page.text(GAP, GAP + i * large * LINE, line, large, va="top")

    y = top
    for row in grid:
        x, y = 0.0, y + above
        for j, panel in enumerate(row):
            x += left[j]
            page.image(panel.weights.numpy(), x, y, width[j], height[j])
            side, step = width[j] / len(panel.columns), height[j] / len(panel.rows)
            for (at_row, at_column), sure in panel.marks.items():
                page.box(x + at_column * side, y + at_row * step, side, step, dashed=not sure)
            page.text(x + width[j] / 2, y - GAP / 2, panel.title, small, ha="center", va="baseline")
            if own_rows[j]:
                for at, label in _middles(panel.rows, height[j]):
                    page.text(x - GAP / 2, y + at, mark(label), font, ha="right")
            if row is grid[-1]:
                for at, label in _middles(panel.columns, width[j]):
                    page.text(x + at, y + height[j] + GAP / 2, mark(label), font, ha="center", va="top", rotation=90)
            x += width[j]
        y += max(height) + GAP
    x, y = x + 2 * GAP, top + above
    page.image(np.linspace(1, 0, 100)[:, None], x, y, 1.5 * GAP, max(height))
    for value in (0, 0.5, 1):
        page.text(x + 2 * GAP, y + (1 - value) * max(height), f"{value:g}", small)
    return page.figure


class _Page:
    """A figure in inches from its upper left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure((width, height), DPI)
        FigureCanvasAgg(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        self.axes.set_axis_off()

    def text(
        self, x: float, y: float, text: str, size: float, ha: str = "left", va: str = "center_baseline", rotation: float = 0
    ) -> None:
        # A dollar sign is no mathematics.
        self.axes.text(x, y, readable(text), size=size, ha=ha, va=va, rotation=rotation, family=FONT, parse_math=False)

    def image(self, weights: np.ndarray, x: float, y: float, width: float, height: float) -> None:
        place = (x, x + width, y + height, y)
        self.axes.imshow(weights, COLORS, vmin=0, vmax=1, interpolation="nearest", aspect="auto", extent=place)
        self.axes.add_patch(Rectangle((x, y), width, height, fill=False, linewidth=0.5))

    def box(self, x: float, y: float, width: float, height: float, dashed: bool) -> None:
        """A frame within a cell."""
        inset = 0.08 * min(width, height)
        place = ((x + inset, y + inset), width - 2 * inset, height - 2 * inset)
        style = "--" if dashed else "-"
        self.axes.add_patch(Rectangle(*place, fill=False, linewidth=1.8, edgecolor=MARK, linestyle=style))


def _middles(labels: list[str], length: float) -> list[tuple[float, str]]:
    """Each label with the middle of its share of a length."""
    return [((i + 0.5) * length / len(labels), label) for i, label in enumerate(labels)]


def _room(labels: list[str], size: float) -> float:
    """What labels take that are written away from a panel's edge."""
    return 1.5 * GAP + max(_width(mark(label), size) for label in labels)


def _wrapped(line: str, size: float, width: float) -> list[str]:
    return textwrap.wrap(
        line, max(1, int(0.93 * width / _width(line, size) * len(line)))
    )  # 0.93: parts differ in their letters


def _width(text: str, size: float) -> float:
    return sum(_advance(c) for c in readable(text)) * size / 72


def mark(piece: str) -> str:
    """A piece as a label: the space at a word's start is a dot in the middle, which is legible upright too."""
    return piece.replace("▁", "·")


def readable(text: str) -> str:
    """A box for every character that the font lacks."""
    return "".join(c if ord(c) in _glyphs() else "□" for c in text)


@cache
def _font() -> FT2Font:
    font = FT2Font(findfont(FontProperties(family=FONT)))
    font.set_size(EM, 72)
    return font


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(_font().get_charmap())


@cache
def _advance(character: str) -> float:
    """Its width over the size of the font."""
    return _font().load_char(ord(character)).linearHoriAdvance / 2**16 / EM
