r"""Reads text files, and files of sentence pairs in the usual formats. All readers yield cleaned text.

Only "\n" ends a line; a lone CR, U+2028 or a form feed does not. A blank line is read as an empty sentence or pair.
"""

import csv
import gzip
import json
import re
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from entente.data.pairs import Pair
from entente.errors import InputError, reason

GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
UTF8_BOM = b"\xef\xbb\xbf"
TYPOGRAPHIC_SPACE = re.compile("[\u00a0\u2007\u2009\u202f]")  # three no-break spaces and the thin space


class Columns(NamedTuple):
    """The column of each side: a name, a number from 1, or None for a column named after the language or the side."""

    languages: Pair
    selected: tuple[str | int | None, str | int | None] = (None, None)

    def places(self, where: str, cells: Sequence[str]) -> list[int]:
        """Returns the indices of the two columns. cells: the heading of a table, or its first row if it has no heading."""
        places = []
        for side, language, column in zip(("src", "tgt"), self.languages, self.selected, strict=True):
            names = [column] if isinstance(column, str) else [language, side]
            name = next((name for name in names if name in cells), None)
            if isinstance(column, int):
                places.append(column - 1)
            elif name is not None:
                places.append(cells.index(name))
            else:
                advice = "give each column by its name, or by its number from 1"
                raise InputError(f"{where}: no column is named {' or '.join(names)}; {advice}")
        return places


def clean(line: str) -> str:
    """Converts a line to NFC, replaces typographic spaces (U+00A0, U+2007, U+2009, U+202F) with ordinary ones, and strips
    leading and trailing white space. All text is cleaned in this way before it is tokenized, in training and in translation."""
    return TYPOGRAPHIC_SPACE.sub(" ", unicodedata.normalize("NFC", line)).strip()


def read_lines(path: Path | None) -> Iterator[str]:
    """Yields the cleaned lines of UTF-8 text, plain or gzip (recognised by its first bytes). None means standard input."""
    return map(clean, _lines(path))


def read_parallel(src: Path, tgt: Path) -> Iterator[Pair]:
    """Yields each line of `src` with the same line of `tgt`. Raises InputError if one file has more lines than the other."""
    try:
        yield from zip(read_lines(src), read_lines(tgt), strict=True)
    except ValueError as error:
        longer, shorter = (src, tgt) if "shorter" in str(error) else (tgt, src)
        rule = "each line must be the translation of the same line in the other file"
        raise InputError(f"{longer} has more lines than {shorter}: {rule}") from None


def read_pairs(path: Path, columns: Columns) -> Iterator[Pair]:
    """Yields the pairs of one file. Its suffix gives the format: Parquet, or optionally gzipped TSV, CSV or JSON Lines."""
    form = Path(path.name.lower().removesuffix(".gz")).suffix
    if form not in FORMATS:
        raise InputError(
            f"{path}: unknown format; a file of pairs ends in {', '.join(FORMATS)}; "
            "all but Parquet may be compressed (.gz); two parallel files are given as .src=FILE .tgt=FILE"
        )
    return pairs_of(str(path), FORMATS[form](path), columns, headed=form not in (".tsv", ".txt", ".csv"))


def pairs_of(where: str, rows: Iterable[Sequence[Any]], columns: Columns, headed: bool = True) -> Iterator[Pair]:
    """Yields the cleaned pairs of a table. The first row is a heading if `headed`, or if a column is looked up by name."""
    places = None
    for number, cells in enumerate(rows, start=0 if headed else 1):
        if all(isinstance(cell, str) and not clean(cell) for cell in cells):
            yield "", ""
            continue
        if places is None:
            places = columns.places(where, [clean(cell) for cell in cells])
            if headed or not all(isinstance(column, int) for column in columns.selected):
                continue
        pair = []
        for place, language in zip(places, columns.languages, strict=True):
            cell = cells[place] if place < len(cells) else None
            if not isinstance(cell, str) or re.search("[\ud800-\udfff]", cell):  # JSON can contain half a surrogate pair
                raise InputError(f"{where}, row {number}: no {language} text in column {place + 1} of {len(cells)}")
            pair.append(clean(re.sub("\r?\n", " ", cell)))  # a sentence is one line
        yield pair[0], pair[1]


def rows_of(items: Iterable[dict[str, Any]]) -> Iterator[Sequence[Any]]:
    """Yields the keys of the first item as a heading, then the values of each item. A dictionary under the key `translation`,
    as in translation data sets on the hub, is used instead of its item."""
    heading: list[str] = []
    for item in items:
        item = inner if isinstance(inner := item.get("translation"), dict) else item
        if item and not heading:
            yield (heading := [*item])
        yield [*map(item.get, heading)] if item else []


def _csv(path: Path) -> Iterator[Sequence[str]]:
    reader = csv.reader((f"{line}\n" for line in _lines(path)), strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from None


def _json(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_lines(path), start=1):
        try:
            item = json.loads(line) if line.strip() else {}  # a blank line is an empty pair
        except ValueError:
            item = None
        if not isinstance(item, dict):
            raise InputError(f"{path}, line {number}: not a JSON object; each line must be an object with both sides of a pair")
        yield item


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        try:
            for batch in pq.ParquetFile(file).iter_batches():
                yield from batch.to_pylist()
        except (pa.ArrowException, ValueError) as error:
            raise InputError(f"{path}: not a Parquet file, or a damaged one ({reason(error)}); fetch it again") from None


FORMATS: dict[str, Callable[[Path], Iterator[Sequence[Any]]]] = {
    **dict.fromkeys((".tsv", ".txt"), lambda path: (line.split("\t") for line in _lines(path))),
    ".csv": _csv,
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), lambda path: rows_of(_json(path))),
    ".parquet": lambda path: rows_of(_parquet(path)),
}


def _lines(path: Path | None) -> Iterator[str]:
    r"""Yields the lines of plain or gzipped UTF-8 text without "\n"."""
    where, number = path or "standard input", 0
    stored: Any
    with path.open("rb") if path else nullcontext(sys.stdin.buffer) as stored:
        file = gzip.GzipFile(fileobj=stored) if stored.peek(2).startswith(GZIP_MAGIC) else stored
        try:
            for number, line in enumerate(file, start=1):
                line = line.removeprefix(UTF8_BOM) if number == 1 else line
                yield line.removesuffix(b"\n").decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{where}, line {number}: not UTF-8 text; convert it to UTF-8 first") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{where}: damaged or truncated gzip file ({error}); fetch it again") from None
    if path and not number:
        raise InputError(f"{path}: the file is empty")
