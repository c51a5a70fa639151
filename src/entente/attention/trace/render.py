"""A trace as text: on a terminal, and as Markdown."""

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, Group
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from entente.attention.trace import ENVIRONMENT, Table, Trace, decimals
from entente.console import escape

LONGEST = 40  # rows of a table, and columns that are tokens
WIDEST = 100  # characters of a line of text
GAP = 2  # characters between columns


def cells(table: Table, columns: int | None) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table as text, labels first. One more column or row counts those not shown; sums are of all."""
    height, width = table.tensor.shape
    head = ["", *(table.columns or [str(i + 1) for i in range(width)])]
    rows = [[label, *map(decimals, values)] for label, values in zip(table.rows, table.tensor.tolist(), strict=True)]
    if table.hidden is not None:
        for r, c in table.hidden.nonzero().tolist():
            rows[r][c + 1] = f"({rows[r][c + 1]})"
    if table.sums:
        head.append("sum")
        rows = [[*row, decimals(total)] for row, total in zip(rows, table.tensor.sum(1).tolist(), strict=True)]
        if height > 1:
            rows.append(["sum", *map(decimals, table.tensor.sum(0).tolist()), ""])
    wide = LONGEST if table.columns else columns or width
    if width > wide:
        head = [*head[: wide + 1], f"+{width - wide}", *head[width + 1 :]]
        rows = [[*row[: wide + 1], "…", *row[width + 1 :]] for row in rows]
    if height > LONGEST:
        rows[LONGEST:height] = [[f"+{height - LONGEST}", *["…"] * (len(head) - 1)]]
    return head, rows


def show(found: Trace, console: Console, columns: int | None) -> None:
    """On a terminal: small tables side by side, wide ones in pieces."""

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), width=min(console.width, WIDEST))

    say(found.title, "bold underline")
    for text in found.preface:
        say(text)
    for number, step in enumerate(found.steps, start=1):
        console.print()
        say(f"{number}. {step.title}:  {step.formula}", "bold")
        if step.shapes:
            say(f"Shapes: {step.shapes}", "dim")
        grids = [grid for table in step.tables for grid in _grids(table, columns, console.width)]
        if grids:
            console.print(Columns(grids, padding=(0, 2 * GAP, 0, 0)))
        for text in step.sentences:
            say(text, "cyan" if text.startswith("By hand: ") else "")
    console.print()


def _grids(table: Table, columns: int | None, width: int) -> Iterator[Group]:
    """One table, in pieces that fit the width, each with the labels of the rows."""
    head, rows = cells(table, columns)
    widths = [max(map(cell_len, column)) + GAP for column in zip(head, *rows, strict=True)]
    pieces: list[list[int]] = [[]]
    for i in range(1, len(head)):
        if pieces[-1] and widths[0] + sum(widths[j] for j in [*pieces[-1], i]) > width:
            pieces.append([])
        pieces[-1].append(i)
    for piece in pieces:
        names = [Column(Text(head[i]), justify="right", no_wrap=True) for i in piece]
        grid = Grid(Column(no_wrap=True), *names, box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        for row in rows:
            grid.add_row(Text(row[0], "bold"), *(Text(row[i], "dim" if row[i].startswith("(") else "") for i in piece))
        yield Group(Text(table.title, "dim", no_wrap=True), grid)


def markdown(found: Sequence[Trace], columns: int | None) -> str:
    """The same as Markdown, with pipe tables, every cell of which is shown as it is."""
    text = ENVIRONMENT.get_template("markdown.j2").render(traces=found, columns=columns, cells=cells)
    return text.strip() + "\n"


def _prose(text: str) -> str:
    """Text in which Markdown finds no markup."""
    return re.sub(r"([\\`*\[\]<>|~&#])", r"\\\1", " ".join(text.split()))


ENVIRONMENT.filters.update(prose=_prose, cell=escape.markdown)
