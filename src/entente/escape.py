"""Escapes text of unknown origin, so that terminals and Markdown display it without interpreting it."""

import re
from collections.abc import Iterable, Sequence

MARKUP = re.compile(r"[\\`*\[\]<>&|~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word is not markup


def line(text: str, longest: int = 4000) -> str:
    """Returns text as one line for a terminal or a log: escapes control characters, and shortens it to `longest` characters."""
    escaped = (letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text[: longest + 1])
    printable = "".join(escaped)
    return printable if len(printable) <= longest else f"{printable[: longest - 3]}..."


def markdown(text: str) -> str:
    """Returns text as one line of Markdown, such as a table cell. Characters special to Markdown or HTML become entities."""
    return MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", " ".join(text.split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> str:
    """Returns a Markdown table, without a final newline. Its cells must be Markdown: escape other text with `markdown`. left:
    how many columns, from the first, are left-aligned (None: all). The others are right-aligned, for numbers."""
    left = len(head) if left is None else left
    marks = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, marks, *rows])
