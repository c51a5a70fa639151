"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> str:
    """Returns a table without a line end behind it. Cells are Markdown; see `escape.markdown` for text that is none.

    left: how many columns are aligned left, None all; the others, of numbers, are aligned right.
    """
    left = len(head) if left is None else left
    marks = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, marks, *rows])
