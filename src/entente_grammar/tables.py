"""Reads the word lists of the package, which are tab-separated tables in words/, each with a header line."""

import csv
from importlib.resources import files


def read_table(name: str) -> list[dict[str, str]]:
    """Returns each row of words/NAME.tsv as a dict from column names to cells. Cells missing at the end of a row are empty."""
    text = (files(__package__) / "words" / f"{name}.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", restval="", quoting=csv.QUOTE_NONE))


def read_forms(name: str, kind: str) -> dict[str, str]:
    """Returns the irregular forms of one kind (such as plural) in words/NAME.tsv, as a dict from words to forms."""
    return {row["word"]: row["form"] for row in read_table(name) if row["kind"] == kind}


def read_words(cell: str) -> list[str]:
    """Returns the lexemes of a cell. An underscore stands for a space within a lexeme."""
    return [word.replace("_", " ") for word in cell.split()]
