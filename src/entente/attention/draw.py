"""Draws attention maps. Figures are created without pyplot, which is not thread-safe and keeps each figure until it is closed.

Each figure has one Axes, whose data coordinates are inches from the top left corner of the first row of panels, because one
Axes per head would take 4 times as long. Lengths are in inches, font sizes in points (1/72 inch). Shapes: L layers, H heads.
"""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.patches import Rectangle
from rich.cells import cell_len
from torch import Tensor

from entente.attention.alignment import with_mean
from entente.attention.record import TO_SOURCE, AttentionMap, sides_of
from entente.console import log
from entente.errors import InputError

NOT_AS_DECODED = "This decoder sees later target pieces, so these are not the weights that decoding used."
FRAMES = "Frames mark the gold links: solid for sure links, dashed for possible ones."
COLORS = "Blues"  # white at 0 and perceptually uniform
LINK_COLOR = "#d95f02"  # orange, which contrasts with every shade of blue
FONT = "DejaVu Sans"  # ships with matplotlib, so pictures look the same everywhere
GLYPHS = get_font(findfont(FONT)).get_charmap()
FALLBACKS: dict[str, str | None] = {}  # the family that draws a character which FONT lacks; None if no installed one has it
LETTER = 0.62 / 72  # average width of a letter per point of font size, rounded up; a Chinese character has twice this width
LINE = 1.4 / 72  # height of a line of text per point of font size
GAP = 0.12  # space between the panels of a map
MIN_PANEL_SIDE = 1.1
HEAD_CELL = (0.42, 0.26)  # width and height of the cell in which `draw_heads` shows the value of a head
ASPECTS = {  # headings under which `draw_heads` shows measurements of heads
    "entropy": "entropy (1: uniform)",
    "end": "weight on </s> or <s>",
    "punctuation": "weight on punctuation",
    "diagonal": "distance from diagonal",
    "aer": "alignment error rate",
}
Marks = Mapping[tuple[int, int], bool]  # gold links: (row, column) -> True if sure, False if only possible


def draw(
    map: AttentionMap, title: str, layer: int | None = None, head: int | None = None, marks: Marks | None = None
) -> Figure:
    """Draws one kind of attention below the title, with a row of panels per layer and a column per head; or, if the layer or
    the head is chosen, one large panel, as `draw_pair` does."""
    if (layer, head) != (None, None):
        return draw_pair({map.kind: map}, title, layer, head, marks)
    _, n_heads, n_rows, n_columns = map.weights.shape
    # If there are few panels, cells are large; for long sentences, cells and labels shrink to limit the size of the picture.
    cell = min(max(0.2, 6 / (n_heads * n_columns)), 0.32, 6 / max(n_rows, n_columns))
    row, column = sides_of(map.kind)
    attended = f"{map.unit} read so far" if column == "read" else f"source {map.unit}"
    legend = f"{map.kind.capitalize()}: how much each {row} {map.unit} (row) attends to each {attended} (column)"
    return _figure({"": map}, f"{legend}\n{title}", cell, min(10, 44 * cell), marks or {})


def draw_pair(
    maps: Mapping[str, AttentionMap], title: str, layer: int | None = None, head: int | None = None, marks: Marks | None = None
) -> Figure:
    """Draws one head of each named map, large and side by side. layer, head: counted from 1, ignored for a map with a single
    layer or head; None: the last layer, the mean of its heads. marks: gold links to draw over maps of attention to the source.
    Raises InputError if a map lacks the layer or the head."""
    shapes, panels = [map.weights.shape[:2] for map in maps.values()], {}
    for name, number, sizes in zip(("layer", "head"), (layer, head), zip(*shapes, strict=True), strict=True):
        last = min((size for size in sizes if size > 1), default=1)
        if number is not None and not 1 <= number <= last:
            raise InputError(f"{name}={number}: choose from 1 to {last}")
    for (name, map), (n_layers, n_heads) in zip(maps.items(), shapes, strict=True):
        i, j = ((layer or 0) - 1) % n_layers, None if head is None else (head - 1) % n_heads
        weights = with_mean(map.weights)[i, -1 if j is None else j]
        panels[_name(name, map, i, j)] = map._replace(weights=weights[None, None])
    cell = min(0.75, 13 / sum(len(map.columns) for map in panels.values()))
    return _figure(panels, title, cell, min(17, 40 * cell), marks or {})


def _name(name: str, map: AttentionMap, layer: int, head: int | None) -> str:
    """Returns the title of a panel, with the layer and the head, counted from 1, if the map has several."""
    n_layers, n_heads = map.weights.shape[:2]
    which = f"mean of {n_heads} heads" if head is None else f"head {head + 1}"
    words = (name, f"layer {layer + 1}" if n_layers > 1 else "", which if n_heads > 1 else "")
    return ", ".join(filter(None, words))


def draw_heads(values: Mapping[str, Mapping[str, Tensor]], title: str) -> Figure:
    """Draws tensors (L, H), by kind of attention and aspect (measurement), as a grid of heat maps: a column per kind, a row per
    aspect. A heat map has a row per layer and a column per head. The lightest value is 0; the darkest is 1 for ASPECTS, and
    for others the largest of all kinds."""
    aspects = list(dict.fromkeys(chain.from_iterable(values.values())))
    n_layers, n_heads = (max(of.size(i) for of_kind in values.values() for of in of_kind.values()) for i in (0, 1))
    wide, high = max(n_heads, 4) + 1, n_layers + 1  # size of a panel in cells, with numbers on the left and a heading above
    columns, rows = wide * len(values), high * len(aspects)
    lines = textwrap.wrap(title, int(columns * HEAD_CELL[0] / (10 * LETTER)))
    above = len(lines) + 2.5  # space for the title and the names of the kinds
    figure, ax = _canvas((columns + 0.5) * HEAD_CELL[0], (above + rows + 0.4) * HEAD_CELL[1])
    cells = np.full((rows, columns), np.nan)
    ax.text(0.3, 0.3 - above, "\n".join(lines), size=10, family=FONT, va="top")
    for (j, (kind, of_kind)), (i, aspect) in product(enumerate(values.items()), enumerate(aspects)):
        left, top = j * wide + 1, i * high + 1
        if i == 0:
            name = textwrap.fill(kind, 20, break_on_hyphens=False)
            ax.text(left, -0.3, name, size=9, family=FONT, weight="bold")
        if aspect not in of_kind:
            continue
        _write(ax, left, top - 0.3, ASPECTS.get(aspect, aspect), 9)
        layers, heads = of_kind[aspect].shape
        largest = 1.0 if aspect in ASPECTS else max(1e-9, *(float(of[aspect].max()) for of in values.values() if aspect in of))
        cells[top : top + layers, left : left + heads] = of_kind[aspect] / largest
        for layer in range(layers):
            _write(ax, left - 0.15, top + layer + 0.5, f"{layer + 1}", 8, ha="right", va="center_baseline")
        for (layer, head), value in np.ndenumerate(of_kind[aspect].numpy()):
            color, text = "white" if value > 0.6 * largest else "black", f"{value:z.{1 if largest >= 10 else 2}f}"
            _write(ax, left + head + 0.5, top + layer + 0.5, text, 8, color=color, ha="center", va="center_baseline")
    ax.imshow(cells, COLORS, vmin=0, vmax=1, interpolation="nearest", aspect="auto", extent=(0, columns, rows, 0))
    ax.set(xlim=(0, columns + 0.5), ylim=(rows + 0.4, -above))
    return figure


def _figure(maps: Mapping[str, AttentionMap], title: str, cell: float, font: float, marks: Marks) -> Figure:
    """Draws the named maps side by side, each as a grid of panels (layers, heads)."""
    find_fonts("".join(chain([title], *((*map.rows, *map.columns) for map in maps.values()))))
    small, large = max(font, 9.0), max(font, 9.0) * 1.2
    above = small * LINE  # space for the title of a panel
    figure, ax = _canvas(1, 1)  # resized when the maps are drawn
    right = bottom = 0.0
    for name, map in maps.items():
        n_layers, n_heads, n_rows, n_columns = map.weights.shape
        wide, high = max(MIN_PANEL_SIDE, cell * n_columns), max(MIN_PANEL_SIDE, cell * n_rows)  # size of a panel
        row, column = high / n_rows, wide / n_columns  # size of a cell
        titles = [_name(name, map, i, j) for i, j in product(range(n_layers), range(n_heads))]
        spare = max(0.0, (_longest(titles, small) - wide) / 2)  # by which a title is wider than its panel, on either side
        first = right + 0.2 + max(spare, _longest(map.rows, font))  # where the panels start
        for i, j in product(range(n_layers), range(n_heads)):
            left, top = first + j * (wide + GAP), i * (high + GAP + above)
            right, end = left + wide, top + high
            place = (left, right, end, top)
            image = ax.imshow(map.weights[i, j].numpy(), COLORS, vmin=0, vmax=1, interpolation="nearest", extent=place)
            ax.add_patch(Rectangle((left, top), wide, high, fill=False, linewidth=0.5, clip_on=False))
            for (r, c), sure in marks.items() if map.kind in TO_SOURCE else ():
                corner = (left + (c + 0.08) * column, top + (r + 0.08) * row)
                frame = Rectangle(corner, 0.84 * column, 0.84 * row, fill=False, linewidth=1.8, edgecolor=LINK_COLOR)
                frame.set_linestyle("-" if sure else "--")
                ax.add_patch(frame)
            _write(ax, left + wide / 2, top - above / 4, titles[i * n_heads + j], small, ha="center")
            for k, label in enumerate(map.rows if j == 0 else []):
                _write(ax, left - 0.06, top + (k + 0.5) * row, label, font, ha="right", va="center_baseline")
            for k, label in enumerate(map.columns if i == n_layers - 1 else []):
                _write(ax, left + (k + 0.5) * column, end + 0.06, label, font, ha="center", va="top", rotation=90)
        edge, right = right, right + spare
        bottom = max(bottom, end + 0.2 + _longest(map.columns, font))
    bar = figure.colorbar(image, cax=ax.inset_axes((edge + 0.15, 0, 0.12, end), transform=ax.transData), ticks=[0, 0.5, 1])
    bar.ax.tick_params(labelsize=small, labelfontfamily=FONT, length=2)
    width = max(7.2, right + 0.8)
    notes = [] if all(map.as_decoded for map in maps.values()) else [NOT_AS_DECODED]
    notes += [FRAMES] if marks and any(map.kind in TO_SOURCE for map in maps.values()) else []
    lines = [part for line in [*title.split("\n"), *notes] for part in _wrap(line, int((width - 0.3) / (large * LETTER)))]
    start = -above - 0.1 - len(lines) * large * LINE
    figure.set_size_inches(width, bottom - start)
    figure.suptitle("\n".join(_readable(line) for line in lines), x=0.01, y=0.99, ha="left", size=large, family=_families())
    ax.set(xlim=(0, width), ylim=(bottom, start), aspect="auto")
    return figure


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure((width, height), dpi=100)
    FigureCanvasAgg(figure)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    return figure, ax


def find_fonts(text: str) -> None:
    """Finds an installed family for each character that FONT lacks. The first time that there is none, logs a hint."""
    missing = {c for c in text if c.isprintable() and ord(c) not in GLYPHS} - FALLBACKS.keys()
    for entry in fontManager.ttflist if missing else ():
        # Last Resort draws boxes that name the script, and matplotlib lists fonts that are no longer installed.
        if "LastResort" not in entry.fname and Path(entry.fname).is_file():
            font = get_font(entry.fname)
            covered = {c for c in missing if font.get_char_index(ord(c))}
            FALLBACKS.update(dict.fromkeys(covered, entry.name))
            missing -= covered
    if missing and None not in FALLBACKS.values():
        advice = "install one, such as Noto Sans of its script, and run again"
        log.warning("no installed font has %s, so pictures show a box; %s", "".join(sorted(missing)[:20]), advice)
    FALLBACKS.update(dict.fromkeys(missing))


def _families() -> list[str]:
    return list(dict.fromkeys([FONT, *filter(None, FALLBACKS.values())]))


def _wrap(line: str, width: int) -> list[str]:
    """Wraps a line at a width in letters, of which a Chinese character takes two."""
    return textwrap.wrap(line, max(1, width * len(line) // (cell_len(line) or 1)))


def _longest(labels: Sequence[str], font: float) -> float:
    return max(map(cell_len, labels)) * font * LETTER


def _write(ax: Axes, x: float, y: float, text: str, size: float, **options: Any) -> None:
    label = text.replace("▁", "·")  # the word-boundary marker becomes a middle dot, which is legible even when rotated
    ax.text(x, y, _readable(label), size=size, family=_families(), **options)


def _readable(text: str) -> str:
    """Replaces characters that no font has with a box, and escapes dollar signs, which would start a formula."""
    return "".join(c if ord(c) in GLYPHS or FALLBACKS.get(c) else "□" for c in text).replace("$", r"\$")
