"""Text of unknown origin, written so that what shows it shows it and does nothing else: a terminal, Markdown, a spreadsheet."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

LONGEST = 4000  # characters of a line
CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode categories: control and format characters, surrogates, line separators
MARKUP = re.compile(r"[\\`*\[\]<>&|~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word is one
FORMULA = re.compile(r"[=+\-@\t\r]")  # what a spreadsheet takes for the beginning of a formula


def line(text: str, longest: int = LONGEST) -> str:
    """One line for a terminal or a log: control characters as their escapes, cut where it is long."""
    shown = "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in CONTROL else character
        for character in text[: longest + 1]  # of a megabyte, no more is looked at
    )
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def markdown(text: str) -> str:
    """A cell of a table, or a line: what Markdown or HTML would take for a sign of its own is written as its number."""
    return MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", " ".join(text.split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> str:
    """A table in Markdown, without a line end after it. Its cells are Markdown; see `markdown` for text that is not.

    left: how many columns are aligned left, None all; the others, of numbers, are aligned right.
    """
    left = len(head) if left is None else left
    marks = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, marks, *rows])


def cell(value: object) -> object:
    """A cell of a CSV file: text that a spreadsheet would compute begins with an apostrophe; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value
