"""Text of unknown origin, written so that what shows it shows it and does nothing else: a terminal, Markdown, a spreadsheet."""

import logging
import re
import unicodedata

LONGEST = 4000  # characters of a line
CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode categories: control and format characters, surrogates, line separators
MARKUP = re.compile(r"[\\`*\[\]<>&|~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word is one
FORMULA = re.compile(r"[=+\-@\t\r]")  # what a spreadsheet takes for the beginning of a formula


def line(text: str, longest: int = LONGEST) -> str:
    """One line for a terminal or a log: control characters as their escapes, cut where it is long."""
    begin = text[: longest + 1]  # of a megabyte, no more is looked at
    shown = "".join(_visible(character) if unicodedata.category(character) in CONTROL else character for character in begin)
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode()


def markdown(text: str) -> str:
    """A cell of a table, or a line: what Markdown or HTML would take for a sign of its own is written as its number."""
    return MARKUP.sub(lambda sign: f"&#{ord(sign[0])};", " ".join(text.split()))


def cell(value: object) -> object:
    """Of a CSV file: text that a spreadsheet would compute begins with an apostrophe; numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


class LineFormatter(logging.Formatter):
    """Each record is one line, see `line`."""

    def format(self, record: logging.LogRecord) -> str:
        return line(super().format(record))
