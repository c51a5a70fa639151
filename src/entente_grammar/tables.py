"""The package's word lists: tab-separated tables in words/, each with a line of headings."""

import csv
from importlib.resources import files


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of words/NAME.tsv by heading; a cell that is left out at the end of a row is empty."""
    text = (files(__package__) / "words" / f"{name}.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", restval="", quoting=csv.QUOTE_NONE))


def read_forms(name: str, kind: str) -> dict[str, str]:
    """The irregular forms of one kind by word."""
    return {row["word"]: row["form"] for row in read_table(name) if row["kind"] == kind}


def read_words(cell: str) -> list[str]:
    """The lexemes of a cell; an underscore is a space within one."""
    return [word.replace("_", " ") for word in cell.split()]
