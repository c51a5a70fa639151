"""Attention maps as pictures. Figures are objects of their own: no pyplot, no global state, safe in threads, nothing to close.

Each map has one pair of axes, measured in inches from the upper left panel: its heads are images and its pieces texts in it.
matplotlib's constrained layout finds the space around them. Axes of its own for each head would take four times as long.

Lengths are in inches, font sizes in points (1/72 inch). Shapes: L layers, H heads.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.image import AxesImage
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
COLORS = "Blues"  # white at 0, and perceptually even steps
MARK = "#d95f02"  # orange contrasts with every blue
FONT = "DejaVu Sans"  # comes with matplotlib: the same picture everywhere
DPI = 100
LETTER = 0.62 / 72  # width of a letter per point of its font, on average and rather more
LINE = 1.4 / 72  # height of a line per point of its font
GAP = 0.12  # between the panels of a map
SMALLEST = 1.1  # side of a panel


def draw(map: AttentionMap, title: str) -> Figure:
    """All layers (rows of panels) and heads (columns) of one kind of attention; `title` says of which sentence."""
    n_layers, n_heads, n_rows, n_columns = map.weights.shape
    # Few panels are drawn large. In a long sentence cells and labels shrink, so that a picture does not grow without end.
    cell = min(max(0.2, 6 / (n_heads * n_columns)), 0.32, 6 / max(n_rows, n_columns))
    names = [[_which(map, i, j) for j in range(n_heads)] for i in range(n_layers)]
    title = "\n".join([TITLES.get(map.kind, map.kind.capitalize()).format(unit=map.unit), title])
    return _figure([map], [names], title, cell, font=min(10, 44 * cell))


def draw_pair(
    maps: Mapping[str, AttentionMap],
    title: str,
    layer: int = -1,
    head: int | None = None,
    marks: Mapping[tuple[int, int], bool] | None = None,
) -> Figure:
    """One attention of each named map, large, side by side. Of a map with several layers or heads it is that layer (from 0) and
    that head, or the mean of the layer's heads if None. marks: links drawn over it, (row, column) -> sure or only possible."""
    panels, names = [], []
    for name, map in maps.items():
        n_layers, n_heads = map.weights.shape[:2]
        i = layer % n_layers if n_layers > 1 else 0
        j = head % n_heads if head is not None and n_heads > 1 else None
        weights = map.weights[i].mean(0) if j is None else map.weights[i, j]
        panels.append(map._replace(weights=weights[None, None]))
        names.append([[", ".join(part for part in (name, _which(map, i, j)) if part)]])
    cell = min(0.75, 13 / sum(len(map.columns) for map in panels))
    return _figure(panels, names, title, cell, font=min(17, 40 * cell), marks=marks or {})


def _which(map: AttentionMap, layer: int, head: int | None) -> str:
    """Layer and head in words, counted from 1; only what the map has several of. The head None is the mean."""
    n_layers, n_heads = map.weights.shape[:2]
    words = [f"layer {layer + 1}"] if n_layers > 1 else []
    if n_heads > 1:
        words.append(f"mean of {n_heads} heads" if head is None else f"head {head + 1}")
    return ", ".join(words)


def _figure(
    maps: Sequence[AttentionMap],
    names: Sequence[Sequence[Sequence[str]]],
    title: str,
    cell: float,
    font: float,
    marks: Mapping[tuple[int, int], bool] | None = None,
) -> Figure:
    """The maps side by side, each a grid of panels (layers, heads) under their names. The page's size is an estimate, to which
    the layout fits the panels."""
    small, large = max(font, 9.0), max(font, 9.0) * 1.2
    above = small * LINE  # for the name of a panel
    figure = Figure(dpi=DPI, layout="compressed")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(maps), squeeze=False, width_ratios=[cell * len(map.columns) for map in maps])[0]
    width, height = 0.8, 0.0  # 0.8: the colour bar
    for ax, map, of_map in zip(axes, maps, names, strict=True):
        n_layers, n_heads, n_rows, n_columns = map.weights.shape
        wide, high = max(SMALLEST, cell * n_columns), max(SMALLEST, cell * n_rows)
        for i in range(n_layers):
            for j in range(n_heads):
                left, top = j * (wide + GAP), i * (high + GAP + above)
                image = _draw_panel(ax, map.weights[i, j], (left, left + wide, top + high, top), marks or {})
                _write(ax, left + wide / 2, top - above / 4, of_map[i][j], small, ha="center")
                for k, label in enumerate(map.rows if j == 0 else []):
                    _write(ax, left - 0.06, top + (k + 0.5) / n_rows * high, label, font, ha="right", va="center_baseline")
                for k, label in enumerate(map.columns if i == n_layers - 1 else []):
                    at = left + (k + 0.5) / n_columns * wide
                    _write(ax, at, top + high + 0.06, label, font, ha="center", va="top", rotation=90)
        ax.set_xlim(0, left + wide)
        width += left + wide + _length(map.rows, font)
        height = max(height, top + high + above + _length(map.columns, font))
    bottom = max(ax.dataLim.y1 for ax in axes)
    for ax in axes:
        ax.set(ylim=(bottom, -above), aspect="equal", anchor="NW")
        ax.set_axis_off()
    bar = figure.colorbar(image, ax=axes, ticks=[0, 0.5, 1], fraction=0.04, pad=0.1 / width, aspect=40)
    bar.ax.tick_params(labelsize=small, labelfontfamily=FONT, length=2)
    cautions = [] if all(map.as_decoded for map in maps) else [NOT_AS_DECODED]
    at_most = int((max(7.2, width) - 0.3) / (large * LETTER))
    lines = [part for line in [*title.split("\n"), *cautions] for part in textwrap.wrap(_readable(line), at_most)]
    figure.set_size_inches(max(7.2, width), height + len(lines) * large * LINE + 0.3)
    figure.suptitle("\n".join(lines), x=0.01, ha="left", size=large, family=FONT)
    return figure


def _draw_panel(
    ax: Axes, weights: Tensor, place: tuple[float, float, float, float], marks: Mapping[tuple[int, int], bool]
) -> AxesImage:
    """place: left, right, bottom, top."""
    image = ax.imshow(weights.numpy(), COLORS, vmin=0, vmax=1, interpolation="nearest", extent=place)
    left, right, bottom, top = place
    ax.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, linewidth=0.5, clip_on=False))
    high, wide = (bottom - top) / weights.size(0), (right - left) / weights.size(1)
    for (row, column), sure in marks.items():  # a frame within the cell
        corner = (left + (column + 0.08) * wide, top + (row + 0.08) * high)
        style = "-" if sure else "--"
        ax.add_patch(Rectangle(corner, 0.84 * wide, 0.84 * high, fill=False, linewidth=1.8, edgecolor=MARK, linestyle=style))
    return image


def _write(ax: Axes, x: float, y: float, text: str, size: float, **placed: Any) -> None:
    ax.text(x, y, _readable(mark(text)), size=size, family=FONT, **placed)


def _length(labels: Iterable[str], size: float) -> float:
    """An estimate of the space for labels written away from a panel's edge."""
    return 0.1 + max(map(len, labels)) * size * LETTER


def mark(piece: str) -> str:
    """A piece as a label: the space at a word's start is a dot in the middle, which is legible when rotated too."""
    return piece.replace("▁", "·")


def _readable(text: str) -> str:
    """A box for every character that the font lacks; a dollar sign does not open mathematics."""
    return "".join(c if ord(c) in _glyphs() else "□" for c in text).replace("$", r"\$")


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family=FONT))).get_charmap())
