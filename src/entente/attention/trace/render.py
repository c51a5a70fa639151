"""A trace as text: on a terminal, and as Markdown."""

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, Group
from rich.table import Table as Grid
from rich.text import Text

from entente.attention.trace.steps import ENVIRONMENT, Table, Trace, decimals
from entente.console import escape

LONGEST = 40  # rows of a table, and columns that are tokens
WIDEST = 100  # characters of a line of text
GAP = 2  # characters between columns


def cells(table: Table, columns: int | None) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table as text, the first column its labels. A last column or row says how many more there are than are
    shown; sums are of all."""
    wide = LONGEST if table.tokens else columns or table.tensor.size(1)
    tensor = table.tensor[:LONGEST, :wide]
    more, below = table.tensor.size(1) - tensor.size(1), table.tensor.size(0) - tensor.size(0)
    head = ["", *table.columns[: tensor.size(1)]]
    rows = []
    for r, values in enumerate(tensor):
        hidden = [False] * len(values) if table.hidden is None else table.hidden[r].tolist()
        texts = [decimals(value) for value in values]
        rows.append([table.rows[r], *(f"({text})" if masked else text for text, masked in zip(texts, hidden, strict=False))])
    if more:
        head.append(f"+{more}")
        rows = [[*row, "…"] for row in rows]
    if table.sums:
        head.append("sum")
        rows = [[*row, decimals(total)] for row, total in zip(rows, table.tensor.sum(1), strict=False)]
    if below:
        rows.append([f"+{below}", *["…"] * (len(head) - 1)])
    if table.sums and table.tensor.size(0) > 1:
        totals = [decimals(total) for total in table.tensor.sum(0)[: tensor.size(1)]]
        rows.append(["sum", *totals, *[""] * (len(head) - 1 - len(totals))])
    return head, rows


def show(found: Trace, console: Console, columns: int | None) -> None:
    """On a terminal: small tables side by side, wide ones in pieces."""
    width = min(console.width, WIDEST)

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), width=width)

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
        for worked in step.worked:
            say(f"By hand: {worked}", "cyan")
        for text in step.sentences:
            say(text)
    console.print()


def _grids(table: Table, columns: int | None, width: int) -> Iterator[Group]:
    """One table, in pieces that fit the width, each with the labels of the rows."""
    head, rows = cells(table, columns)
    widths = [max(cell_len(row[i]) for row in [head, *rows]) + GAP for i in range(len(head))]
    start = 1
    while start < len(head):
        end = start + 1
        while end < len(head) and widths[0] + sum(widths[start : end + 1]) <= width:
            end += 1
        grid = Grid(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        grid.add_column(no_wrap=True)
        for name in head[start:end]:
            grid.add_column(Text(name), justify="right", no_wrap=True)
        for row in rows:
            shown = [Text(cell, "dim" if cell.startswith("(") else "") for cell in row[start:end]]
            grid.add_row(Text(row[0], "bold"), *shown)
        yield Group(Text(table.title, "dim", no_wrap=True), grid)
        start = end


def markdown(found: Sequence[Trace], columns: int | None) -> str:
    """The same as Markdown, with pipe tables, every cell of which is shown as it is."""
    text = ENVIRONMENT.get_template("markdown.j2").render(traces=found, columns=columns, cells=cells)
    return text.strip() + "\n"


def _prose(text: str) -> str:
    """Text in which Markdown finds no markup."""
    return re.sub(r"([\\`*\[\]<>|~&#])", r"\\\1", " ".join(text.split()))


ENVIRONMENT.filters.update(prose=_prose, cell=escape.markdown)
