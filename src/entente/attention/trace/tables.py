"""Tensors as tables in Markdown, and such Markdown as plain text for a terminal."""

import html
import math
import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from torch import Tensor

from entente.console import escape

DECIMALS = 3
LONGEST = 40  # rows of a table, and columns that are tokens
WIDEST = 80  # characters of a table's line on a terminal
GAP = "  "  # between the columns there


def decimals(value: float) -> str:
    """A number with its decimals; what is 0 exactly is written so."""
    if value == 0 or value is True:
        return str(int(value))
    if 1e6 <= abs(value) < math.inf:
        return f"{value:.1e}"
    return f"{value:z.{DECIMALS}f}"


def table(
    title: str,
    tensor: Tensor,
    rows: Sequence[str],
    columns: Sequence[str] | None = None,
    most: int | None = None,
    hidden: Tensor | None = None,
    sums: bool = False,
) -> str:
    """A title, and the numbers of a 2-D tensor in a table, or in several if one would be too wide.

    rows, columns: labels, in Markdown. Without names for its columns they are numbered, and the first `most` are shown. hidden:
    True where a number is put in brackets. sums: of rows and columns, also of those that are not shown.
    """
    height, width = tensor.shape
    high, wide = min(LONGEST, height), min(LONGEST if columns else most or width, width)
    title += f", the first {high} of {height} rows" if high < height else ""
    title += f", the first {wide} of {width} columns" if wide < width else ""
    lines = [["", *map(str, (columns or range(1, width + 1))[:wide])]]
    for label, values in zip(rows[:high], tensor[:high, :wide].tolist(), strict=True):
        lines.append([label, *map(decimals, values)])
    for r, c in hidden[:high, :wide].nonzero().tolist() if hidden is not None else []:
        lines[r + 1][c + 1] = f"({lines[r + 1][c + 1]})"
    if sums:
        totals = ["sum", *map(decimals, tensor[:high].sum(1).tolist())]
        lines = [[*line, total] for line, total in zip(lines, totals, strict=True)]
        if height > 1:
            lines.append(["sum", *map(decimals, tensor[:, :wide].sum(0).tolist()), ""])
    labels, *numbers = (_aligned(column, left=i == 0) for i, column in enumerate(zip(*lines, strict=True)))
    for n in range(1, len(numbers) + 1):  # the fewest pieces that fit, of about as many columns each
        size = math.ceil(len(numbers) / n)
        pieces = [numbers[i : i + size] for i in range(0, len(numbers), size)]
        if max(sum(len(GAP) + _width(column[0]) for column in piece) for piece in pieces) <= WIDEST - _width(labels[0]):
            break
    grids = [list(zip(labels, *piece, strict=True)) for piece in pieces]
    return "\n\n".join([title, *(escape.table(grid[0], grid[1:], left=1) for grid in grids)])


def _aligned(column: Sequence[str], left: bool) -> list[str]:
    width = max(map(_width, column))
    spaces = (" " * (width - _width(cell)) for cell in column)
    return [cell + space if left else space + cell for cell, space in zip(column, spaces, strict=True)]


def _width(cell: str) -> int:
    return cell_len(html.unescape(cell))


def show(text: str, console: Console) -> None:
    """Prints Markdown as what it says; a table as its aligned columns, without lines."""
    for line in text.splitlines():
        if line.startswith("| --- |"):
            continue
        style = "bold" if line.startswith("#") else "cyan" if line.startswith("By hand: ") else ""
        line = line[2:-2].replace(" | ", GAP) if line.startswith("|") else re.sub("^#+ ", "", line)
        console.print(Text(html.unescape(line), style), width=min(console.width, WIDEST))
