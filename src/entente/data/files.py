r"""Files of text and of sentence pairs, in the forms people have them: text out, cleaned.

Every reader counts alike: a line ends at "\n" and nowhere else (a "\r" before it is white space at the line's end), so a lone
CR, U+2028 or a form feed is text; and a line without text is a pair without text, to be dropped with a count.
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
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from entente.data.pairs import AT_ONCE, Pair
from entente.errors import InputError
from entente.files import is_stream, readable

GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
UTF8_BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 1_000_000  # bytes; a sentence has a thousand pieces at most, and a table's row holds more than the sentences
NO_BREAK = re.compile("[\u00a0\u2007\u202f]")
NESTED = "translation"  # the column of the hub's translation sets: a text by language


class Columns(NamedTuple):
    """Where the two sides of a pair are: a column's name, its number from 1, or None for the column that is named as the
    language or `src` and `tgt`."""

    languages: Pair
    src: str | int | None = None
    tgt: str | int | None = None

    def names(self) -> list[list[str]]:
        """What the column of each side may be called."""
        chosen = zip(("src", "tgt"), self.languages, self[1:], strict=True)
        return [[given] if isinstance(given, str) else [language, side] for side, language, given in chosen]

    def places(self, where: str, cells: Sequence[str]) -> tuple[int, int]:
        """The two columns of a table whose heading, or first row, is `cells`; from 0."""
        found = []
        for given, names in zip(self[1:], self.names(), strict=True):
            by_name = next((cells.index(name) for name in names if name in cells), None)
            place = given - 1 if isinstance(given, int) else by_name
            if place is None:
                raise InputError(
                    f"{where}: no column is named {' or '.join(names)}; say where the languages are, "
                    "data.columns.src=COLUMN data.columns.tgt=COLUMN, each a name or a number from 1"
                )
            found.append(place)
        return found[0], found[1]

    def keys(self, where: str, outer: Sequence[str], inner: Sequence[str]) -> tuple[list[str], bool]:
        """The names of the two columns of a table that has the columns `outer`, one of which, `translation`, has the fields
        `inner` (may be none); and whether they are such fields."""
        nested = bool(inner) and not all({*names} & {*outer} for names in self.names())
        known = inner if nested else outer
        places = self.places(where, known)
        for place in places:
            if place >= len(known):
                raise InputError(f"{where}: no column {place + 1} of {len(known)}")
            if (n := known.count(known[place])) > 1:
                raise InputError(f"{where}: {n} columns are named {known[place]}; rename one")
        return [known[place] for place in places], nested


def clean(line: str) -> str:
    """The form in which every line meets the tokenizer, training text and text to translate alike: NFC, no-break spaces
    (U+00A0, U+2007, U+202F) made ordinary ones, no outer white space."""
    return NO_BREAK.sub(" ", unicodedata.normalize("NFC", line)).strip()


def read_lines(path: Path | None) -> Iterator[str]:
    """The cleaned lines of UTF-8 text, plain or gzip (told by its first bytes, not by its name). None: of standard input."""
    return map(clean, _lines(path))


def read_parallel(src: Path, tgt: Path) -> Iterator[Pair]:
    """Line N of one file with line N of the other."""
    sides = [read_lines(path) for path in (src, tgt)]
    for number, (one, other) in enumerate(zip_longest(*sides)):
        if one is None or other is None:
            longer, shorter = (tgt, src) if one is None else (src, tgt)
            lines = "" if is_stream(longer) else f" ({number + 1 + sum(1 for _ in sides[one is None])})"  # one may never end
            raise InputError(f"{longer} has more lines{lines} than {shorter} ({number}): line N must translate line N")
        yield one, other


def read_pairs(path: Path, columns: Columns) -> Iterator[Pair]:
    """The pairs of one file, in a form told by its name: tab separated, CSV, JSON lines (these also as gzip) or Parquet."""
    form = Path(path.name.lower().removesuffix(".gz")).suffix
    if form not in READERS:
        raise InputError(
            f"{path}: in which form? A file of pairs is named {', '.join(READERS)}, all but Parquet also with .gz; "
            "two parallel files are given as .src=FILE .tgt=FILE"
        )
    return READERS[form](path, columns)


def _table(path: Path, columns: Columns, **dialect: Any) -> Iterator[Pair]:
    """The first row is a heading if a column is found by its name, or if both chosen by number are headed by their names."""
    places = None
    for number, row in _rows(path, **dialect):
        cells = list(map(_sentence, row))
        if places is None:
            places, cell_at = columns.places(str(path), cells), dict(enumerate(cells))
            headed = [cell_at.get(place) in names for place, names in zip(places, columns.names(), strict=True)]
            if all(headed) or not all(isinstance(given, int) for given in columns[1:]):
                continue
        if not any(cells):
            yield "", ""
        elif max(places) < len(cells):
            yield cells[places[0]], cells[places[1]]
        else:
            raise InputError(f"{path}, line {number}: no column {max(places) + 1} of {len(cells)}")


def _rows(path: Path, **dialect: Any) -> Iterator[tuple[int, list[str]]]:
    r"""(number of its last line, cells) of each row; a quoted cell may go over lines."""
    # The parser would end a row at a lone "\r". A lone surrogate, which no UTF-8 text can hold, takes its place.
    stand_in = "\udc0d"
    held = 0  # characters of the row so far

    def lines() -> Iterator[str]:
        nonlocal held
        for number, line in enumerate(_lines(path), start=1):
            held += len(line)
            if held > LONGEST_LINE:
                raise too_long(f"{path}, line {number}: a row whose quote may be left open, with its lines before")
            yield re.sub("\r(?!\n)", stand_in, f"{line}\n")

    csv.field_size_limit(2 * LONGEST_LINE)  # a row is bounded here
    reader = csv.reader(lines(), strict=True, **dialect)
    try:
        for row in reader:
            held = 0
            yield reader.line_num, [cell.replace(stand_in, "\r") for cell in row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: no proper CSV ({error})") from None


def _json(path: Path, columns: Columns) -> Iterator[Pair]:
    """One object a line; the sides are two of its keys, or of those of its key `translation`."""
    if isinstance(columns.src, int) or isinstance(columns.tgt, int):
        raise InputError(f"{path}: the keys of JSON have no numbers; give data.columns.src=KEY data.columns.tgt=KEY")
    keys: list[str] = []
    nested = False
    for number, line in enumerate(_lines(path), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            yield "", ""
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            item = None
        if not isinstance(item, dict):
            raise InputError(f"{where}: no JSON object; each line is one, with both sides of a pair")
        inner = found if isinstance(found := item.get(NESTED), dict) else {}
        if not keys:
            keys, nested = columns.keys(where, [*item], [*inner])
        src, tgt = (_text((inner if nested else item).get(key), where, key) for key in keys)
        yield src, tgt


def _parquet(path: Path, columns: Columns) -> Iterator[Pair]:
    with readable(path):
        try:
            with path.open("rb") as file:
                texts = [leaf.path for leaf in pq.ParquetFile(file).schema if leaf.physical_type == "BYTE_ARRAY"]
                # A value that repeats is held once, however often a few bytes of the file repeat it.
                stored = pq.ParquetFile(file, read_dictionary=texts)
                yield from table_pairs(str(path), stored.schema_arrow, partial(stored.iter_batches, AT_ONCE, None), columns)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path}: damaged or no Parquet file ({reason}); fetch it again") from None


def table_pairs(
    where: str, schema: pa.Schema, batches: Callable[[list[str]], Iterable[pa.RecordBatch]], columns: Columns
) -> Iterator[Pair]:
    """The pairs of an Arrow table: two columns of text, or the fields of a column `translation`. `batches` reads the columns
    at some paths."""
    inner = schema.field(NESTED).type if schema.names.count(NESTED) == 1 else None
    fields = [field.name for field in inner] if inner and pa.types.is_struct(inner) else []
    keys, nested = columns.keys(where, schema.names, fields)
    found = batches([f"{NESTED}.{key}" if nested else key for key in keys])
    sides = ([pc.struct_field(batch[NESTED], key) if nested else batch[key] for key in keys] for batch in found)
    rows = chain.from_iterable(zip(*both, strict=True) for both in sides)  # one at a time, since its text may be long
    for row, cells in enumerate(rows, start=1):
        src, tgt = (_text(cell.as_py(), f"{where}, row {row}", key) for cell, key in zip(cells, keys, strict=True))
        yield src, tgt


def _text(value: object, where: str, key: str) -> str:
    """A sentence of JSON or Parquet; an InputError if it is no text, or longer than a text may be."""
    if not isinstance(value, str) or re.search("[\ud800-\udfff]", value):  # JSON can write half a surrogate pair
        raise InputError(f"{where}: no text under {key}")
    if len(value) > LONGEST_LINE:
        raise too_long(f"{where}, {key}")
    return _sentence(value)


READERS: dict[str, Callable[[Path, Columns], Iterator[Pair]]] = {
    **dict.fromkeys((".tsv", ".txt"), partial(_table, delimiter="\t", quoting=csv.QUOTE_NONE)),
    ".csv": _table,
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json),
    ".parquet": _parquet,
}


def _sentence(cell: str) -> str:
    """A cell cleaned; it is one line, so a line end within it is a space."""
    return clean(re.sub("\r?\n", " ", cell))


def _lines(path: Path | None) -> Iterator[str]:
    r"""Those of UTF-8 text, plain or gzip, without their "\n"; one after the other, so that a large file takes no memory."""
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
    return InputError(f"{where}: longer than {LONGEST_LINE:,} bytes, the most that is read at a time; break it into sentences")
