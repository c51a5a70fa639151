r"""Reads text files, and files of sentence pairs in the usual formats. All readers yield cleaned text.

Only "\n" ends a line (a "\r" before it is stripped as trailing white space); a lone CR, U+2028 or a form feed does not.
A blank line is read as an empty sentence or pair; pairs with an empty side are later dropped and counted.
"""

import csv
import gzip
import io
import json
import re
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from entente.data.pairs import MAX_BLOCK_PAIRS, Pair
from entente.errors import InputError
from entente.files import is_stream, readable

GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
UTF8_BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 1_000_000  # in bytes; far more than MAX_PIECES pieces take up, since a table may have other columns
TYPOGRAPHIC_SPACE = re.compile("[\u00a0\u2007\u2009\u202f]")  # three no-break spaces and the thin space
TRANSLATION_COLUMN = "translation"  # in translation data sets on the hub, this column maps each language to its text


class Columns(NamedTuple):
    """The column of each side: a name, a number from 1, or None for a column named after the language or the side. setting: the
    setting that selects them, for error messages; empty if there is none."""

    languages: Pair
    src: str | int | None = None
    tgt: str | int | None = None
    setting: str = "data.columns"

    @property
    def given(self) -> tuple[str | int | None, str | int | None]:
        return self.src, self.tgt

    def names(self) -> list[list[str]]:
        """Returns the possible names of each side's column."""
        chosen = zip(("src", "tgt"), self.languages, self.given, strict=True)
        return [[given] if isinstance(given, str) else [language, side] for side, language, given in chosen]

    def places(self, where: str, heading: Sequence[str]) -> list[int]:
        """Returns the indices of the two columns, given the heading of a table, or its first row if it has no heading."""
        found = []
        for given, names in zip(self.given, self.names(), strict=True):
            name = next((name for name in names if name in heading), None)
            if not isinstance(given, int) and name is None:
                advice = f"{self.setting}.src=COLUMN {self.setting}.tgt=COLUMN, where COLUMN is a name or a number from 1"
                raise InputError(
                    f"{where}: no column is named {' or '.join(names)}" + (f"; give {advice}" if self.setting else "")
                )
            found.append(given - 1 if isinstance(given, int) else heading.index(name))
        if max(found) >= len(heading):
            raise InputError(f"{where}: no column {max(found) + 1}; there are only {len(heading)}")
        return found


def clean(line: str) -> str:
    """Converts a line to NFC, replaces typographic spaces (U+00A0, U+2007, U+2009, U+202F) with ordinary ones, and strips
    leading and trailing white space. All text is cleaned in this way before it is tokenized, in training and in translation."""
    return TYPOGRAPHIC_SPACE.sub(" ", unicodedata.normalize("NFC", line)).strip()


def read_lines(path: Path | None) -> Iterator[str]:
    """Yields the cleaned lines of UTF-8 text, plain or gzip (recognised by its first bytes). None means standard input."""
    return map(clean, _lines(path))


def read_parallel(src: Path, tgt: Path) -> Iterator[Pair]:
    """Yields each line of `src` with the same line of `tgt`. Raises InputError if one file has more lines than the other."""
    sides = [read_lines(path) for path in (src, tgt)]
    for number, (one, other) in enumerate(zip_longest(*sides)):
        if one is None or other is None:
            longer, shorter = (tgt, src) if one is None else (src, tgt)
            lines = "" if is_stream(longer) else f" ({number + 1 + sum(1 for _ in sides[one is None])})"  # may be endless
            rule = "each line must be the translation of the same line in the other file"
            raise InputError(f"{longer} has more lines{lines} than {shorter} ({number}): {rule}")
        yield one, other


def read_pairs(path: Path, columns: Columns) -> Iterator[Pair]:
    """Yields the pairs of one file. Its suffix gives the format: Parquet, or optionally gzipped TSV, CSV or JSON Lines."""
    form = Path(path.name.lower().removesuffix(".gz")).suffix
    if rows := TABLES.get(form):
        return pairs_of(str(path), rows(path), columns, headed=False)
    if items := RECORDS.get(form):
        return pairs_of(str(path), rows_of(items(path)), columns)
    raise InputError(
        f"{path}: unknown format; a file of pairs ends in {', '.join(TABLES | RECORDS)}; "
        "all but Parquet may be compressed (.gz); two parallel files are given as .src=FILE .tgt=FILE"
    )


def pairs_of(where: str, rows: Iterable[Sequence[Any]], columns: Columns, headed: bool = True) -> Iterator[Pair]:
    """Yields the cleaned pairs of a table. The first row is a heading if `headed`, if a column is looked up by name, or if
    both columns are given by number and their first cells name their language or side. Raises InputError if a cell is not
    text or is too long."""
    places = None
    for number, cells in enumerate(rows, start=0 if headed else 1):
        if all(isinstance(cell, str) and not clean(cell) for cell in cells):
            yield "", ""
            continue
        if places is None:
            heading = [clean(cell) for cell in cells]
            places = columns.places(where, heading)
            named = [heading[place] in names for place, names in zip(places, columns.names(), strict=True)]
            if headed or all(named) or not all(isinstance(given, int) for given in columns.given):
                continue
        pair = []
        for place, language in zip(places, columns.languages, strict=True):
            cell = cells[place] if place < len(cells) else None
            if not isinstance(cell, str) or re.search("[\ud800-\udfff]", cell):  # JSON can contain half a surrogate pair
                raise InputError(f"{where}, row {number}: no {language} text in column {place + 1} of {len(cells)}")
            if len(cell) > LONGEST_LINE:
                raise too_long(f"{where}, row {number}, column {place + 1}")
            pair.append(clean(re.sub("\r?\n", " ", cell)))  # a sentence is one line
        yield pair[0], pair[1]


def rows_of(items: Iterable[dict[str, Any]]) -> Iterator[Sequence[Any]]:
    """Yields the keys of the first item as a heading, then the values of each item. If an item has a dictionary under the
    key `translation`, that dictionary is used instead of the item."""
    heading: list[str] = []
    for item in items:
        item = inner if isinstance(inner := item.get(TRANSLATION_COLUMN), dict) else item
        if item and not heading:
            yield (heading := [*item])
        yield [*map(item.get, heading)] if item else []


def _csv(path: Path) -> Iterator[Sequence[str]]:
    # The parser would end a row at a lone "\r", so we replace it with a lone surrogate, which UTF-8 text cannot contain.
    stand_in = "\udc0d"
    held = 0  # characters of the row so far

    def lines() -> Iterator[str]:
        nonlocal held
        for line in _lines(path):
            held += len(line)
            if held > LONGEST_LINE:
                raise too_long(f"{path}, the row up to line {reader.line_num + 1} (perhaps with an unclosed quote)")
            yield re.sub("\r(?!\n)", stand_in, f"{line}\n")

    csv.field_size_limit(2 * LONGEST_LINE)  # lines() above limits the length of a row
    reader = csv.reader(lines(), strict=True)
    try:
        for row in reader:
            held = 0
            yield [cell.replace(stand_in, "\r") for cell in row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from None


def _json(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_lines(path), start=1):
        try:
            item = (json.loads(line) or None) if line.strip() else {}  # a blank line is an empty pair
        except (ValueError, RecursionError):
            item = None
        if not isinstance(item, dict):
            raise InputError(f"{path}, line {number}: not a JSON object; each line must be an object with both sides of a pair")
        yield item


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    with readable(path), path.open("rb") as file:
        try:
            # A small file can repeat a long text many times; a column read as a dictionary stores each distinct text once.
            texts = [leaf.path for leaf in pq.ParquetFile(file).schema if leaf.physical_type == "BYTE_ARRAY"]
            for batch in pq.ParquetFile(file, read_dictionary=texts).iter_batches(MAX_BLOCK_PAIRS):
                yield from (row.as_py() for row in batch.to_struct_array())  # row by row, since a text may be long
        except (pa.ArrowException, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path}: not a Parquet file, or a damaged one ({reason}); fetch it again") from None


TABLES: dict[str, Callable[[Path], Iterator[Sequence[str]]]] = {
    **dict.fromkeys((".tsv", ".txt"), lambda path: (line.split("\t") for line in _lines(path))),
    ".csv": _csv,
}
RECORDS: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json),
    ".parquet": _parquet,
}


def _lines(path: Path | None) -> Iterator[str]:
    r"""Yields the lines of plain or gzipped UTF-8 text without "\n". To save memory, it reads one line at a time."""
    where, number = path or "standard input", 0
    stored: Any
    with readable(where), path.open("rb") if path else nullcontext(sys.stdin.buffer) as stored:
        file = io.BufferedReader(gzip.GzipFile(fileobj=stored)) if stored.peek(2).startswith(GZIP_MAGIC) else stored
        try:
            file.read(len(UTF8_BOM) if file.peek(3).startswith(UTF8_BOM) else 0)
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), start=1):
                if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                    raise too_long(f"{where}, line {number}")
                yield line.removesuffix(b"\n").decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{where}, line {number}: not UTF-8 text; convert it to UTF-8 first") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{where}: damaged or truncated gzip file ({error}); fetch it again") from None
    if path and not number:
        raise InputError(f"{path}: the file is empty")


def too_long(where: str) -> InputError:
    return InputError(f"{where}: longer than the limit of {LONGEST_LINE:,} bytes; break it into sentences")
