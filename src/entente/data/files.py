r"""Reads text files, and files of sentence pairs in the usual formats. The pairs are not yet cleaned. Each comes with the
number of the line on which it begins (in Parquet and JSON arrays of its row or item), from 1.

Only "\n" ends a line; a lone CR, U+2028 or a form feed does not. A blank line is read as an empty sentence or pair.
"""

import bz2
import csv
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from entente.data.pairs import NumberedPair, Pair
from entente.data.text import clean
from entente.errors import InputError, reason

Row = tuple[int, Sequence[Any]]  # its number, and its cells
OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}  # by a file's first bytes
DELIMITERS, SAMPLE = ",;\t|", 100  # of CSV; the lines that decide between them


class Columns(NamedTuple):
    """The column of each side: a name, a number from 1, or None for a column named after the language or the side."""

    languages: Pair
    selected: tuple[str | int | None, str | int | None] = (None, None)

    def places(self, where: str, cells: Sequence[str]) -> list[int]:
        """Returns the indices of the two columns. cells: the heading of a table, or its first row if it has no heading."""
        places = []
        for side, language, column in zip(("src", "tgt"), self.languages, self.selected, strict=True):
            names = [column] if isinstance(column, str) else [language, side]
            if isinstance(column, int):
                places.append(column - 1)
            elif name := next((name for name in names if name in cells), None):
                places.append(cells.index(name))
            else:
                advice = "give each column by its name, or by its number from 1"
                raise InputError(f"{where}: no column is named {' or '.join(names)}; {advice}")
        return places


def read_lines(path: Path) -> Iterator[str]:
    """Yields the cleaned lines of UTF-8 text, plain or compressed (see OPENERS)."""
    return map(clean, raw_lines(path))


def read_parallel(src: Path, tgt: Path) -> Iterator[NumberedPair]:
    """Yields each line of `src` with the same line of `tgt`. Raises InputError if one file has more lines than the other."""
    try:
        for number, (line, translation) in enumerate(zip(raw_lines(src), raw_lines(tgt), strict=True), start=1):
            yield number, line, translation
    except ValueError as error:
        longer, shorter = (src, tgt) if "shorter" in str(error) else (tgt, src)
        rule = "each line must be the translation of the same line in the other file"
        raise InputError(f"{longer} has more lines than {shorter}: {rule}") from None


def read_pairs(path: Path, columns: Columns) -> Iterator[NumberedPair]:
    """Yields the pairs of one file. Its suffix gives the format: Parquet, or optionally compressed TSV, CSV or JSON."""
    form = Path(re.sub(r"\.(gz|bz2|xz)$", "", path.name.lower())).suffix
    if form not in FORMATS:
        raise InputError(
            f"{path}: unknown format; a file of pairs ends in {', '.join(FORMATS)}; "
            "all but Parquet may be compressed (.gz, .bz2, .xz); two parallel files are given as .src=FILE .tgt=FILE"
        )
    return pairs_of(str(path), FORMATS[form](path), columns, headed=form not in TABLES)


def pairs_of(where: str, rows: Iterable[Row], columns: Columns, headed: bool = True) -> Iterator[NumberedPair]:
    """Yields the pairs of a table. The first row is a heading if `headed`, or if a column is looked up by name."""
    places = None
    for number, cells in rows:
        if all(isinstance(cell, str) and not clean(cell) for cell in cells):
            yield number, "", ""
            continue
        if places is None:
            places = columns.places(where, [clean(cell) for cell in cells])
            if headed or not all(isinstance(column, int) for column in columns.selected):
                continue
        pair = []
        for place, language in zip(places, columns.languages, strict=True):
            cell = cells[place] if place < len(cells) else None
            if not isinstance(cell, str) or re.search("[\ud800-\udfff]", cell):  # JSON can contain half a surrogate pair
                rule = "; columns are separated by tabs, or in CSV by one of , ; | or tabs" if len(cells) == 1 else ""
                row = f"{where}, {'row' if headed else 'line'} {number}"
                raise InputError(f"{row}: no {language} text in column {place + 1} of {len(cells)}{rule}")
            pair.append(re.sub("\r?\n", " ", cell))  # a sentence is one line
        yield number, pair[0], pair[1]


def rows_of(items: Iterable[dict[str, Any]]) -> Iterator[Row]:
    """Yields the keys of the first item as a heading, then the values of each item. A dictionary under the key `translation`,
    as in translation data sets on the hub, is used instead of its item."""
    heading: list[str] = []
    for number, item in enumerate(items, start=1):
        item = inner if isinstance(inner := item.get("translation"), dict) else item
        if item and not heading:
            yield 0, (heading := [*item])
        yield number, [*map(item.get, heading)] if item else []


def _csv(path: Path) -> Iterator[Row]:
    lines = (f"{line}\n" for line in raw_lines(path))
    sample = [*islice(lines, SAMPLE)]
    reader = csv.reader(chain(sample, lines), delimiter=_delimiter(sample), strict=True)
    end = 0
    try:
        for row in reader:
            yield end + 1, row
            end = reader.line_num
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from None


def _delimiter(sample: list[str]) -> str:
    """Returns the first of DELIMITERS that divides all rows into the same number of columns, at least two, or else a comma.
    csv.Sniffer also takes a comma in the text for a delimiter."""
    for delimiter in DELIMITERS:
        rows: list[list[str]] = []
        with suppress(csv.Error):  # the last row may be incomplete
            rows.extend(filter(None, csv.reader(sample, delimiter=delimiter, strict=True)))
        if len(widths := {*map(len, rows)}) == 1 and widths != {1}:
            return delimiter
    return ","


def _json(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of JSON Lines, or of a JSON array."""
    lines, number = raw_lines(path), 1
    first = next(lines)
    is_array = first.lstrip().startswith("[")
    texts = ["\n".join([first, *lines])] if is_array else chain([first], lines)
    try:
        items = (json.loads(text.strip() or "{}") for text in texts)  # a blank line is an empty pair
        for item in chain.from_iterable(items) if is_array else items:
            yield {**item}
            number += 1
    except (TypeError, ValueError):
        rule = "each line, or each item of an array, must be an object with both sides of a pair"
        raise InputError(f"{path}, {'item' if is_array else 'line'} {number}: not a JSON object; {rule}") from None


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        try:
            for batch in pq.ParquetFile(file).iter_batches():
                yield from batch.to_pylist()
        except (pa.ArrowException, ValueError) as error:
            raise InputError(f"{path}: not a Parquet file, or a damaged one ({reason(error)}); fetch it again") from None


TABLES = (".tsv", ".txt", ".csv")  # formats in which a row may be a heading
FORMATS: dict[str, Callable[[Path], Iterator[Row]]] = {
    **dict.fromkeys((".tsv", ".txt"), lambda path: ((n, line.split("\t")) for n, line in enumerate(raw_lines(path), start=1))),
    ".csv": _csv,
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), lambda path: rows_of(_json(path))),
    ".parquet": lambda path: rows_of(_parquet(path)),
}


def raw_lines(path: Path) -> Iterator[str]:
    r"""Yields the lines of plain or compressed UTF-8 text without "\n"."""
    number = 0
    with path.open("rb") as stored:
        start = stored.peek(6)
        file = next((opener(stored) for magic, opener in OPENERS.items() if start.startswith(magic)), stored)
        try:
            for number, line in enumerate(file, start=1):
                yield line.removesuffix(b"\n").decode("utf-8-sig" if number == 1 else "utf-8")  # may begin with a BOM
        except UnicodeDecodeError:
            raise InputError(f"{path}, line {number}: not UTF-8 text; convert it to UTF-8 first") from None
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if file is stored:
                raise
            raise InputError(f"{path}: damaged or truncated compressed file ({error}); fetch it again") from None
    if not number:
        raise InputError(f"{path}: the file is empty")
