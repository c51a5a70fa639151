r"""Files of text and of sentence pairs, in the forms people have them: text out, cleaned.

Every reader counts alike: a line ends at "\n" and nowhere else (a "\r" before it is white space at the line's end), so a lone
CR, U+2028 or a form feed is text; and a line without text is a pair without text, to be dropped with a count.
"""

import csv
import gzip
import io
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from entente.data.pairs import AT_ONCE, Pair
from entente.errors import InputError
from entente.files import LONGEST_LINE, is_stream, readable, text_lines, too_long

GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
NO_BREAK = re.compile("[\u00a0\u2007\u202f]")
ROWS = 100  # of a table that are Python's strings at a time
NESTED = "translation"  # the column of the hub's translation sets: a text by language


Batches = Callable[[list[str]], Iterable[pa.RecordBatch]]  # paths of columns -> these columns


class Columns(NamedTuple):
    """Where the two sides of a pair stand: a column's name, its number from 1, or None for the column that is named as the
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
                    f"{where}: no column is named {' or '.join(names)}; say where the languages stand, "
                    "data.columns.src=COLUMN data.columns.tgt=COLUMN, each a name or a number from 1"
                )
            found.append(place)
        return found[0], found[1]


def clean(line: str) -> str:
    """The form in which every line meets the tokenizer, training text and text to translate alike: NFC, no-break spaces
    (U+00A0, U+2007, U+202F) made ordinary ones, no outer white space."""
    return NO_BREAK.sub(" ", unicodedata.normalize("NFC", line)).strip()


def read_lines(path: Path) -> Iterator[str]:
    """The cleaned lines of a UTF-8 file, plain or gzip (told by its first bytes, not by its name)."""
    return map(clean, _lines(path))


def read_parallel(src: Path, tgt: Path) -> Iterator[Pair]:
    """Line N of one file with line N of the other."""
    sides = [read_lines(path) for path in (src, tgt)]
    for number, (one, other) in enumerate(zip_longest(*sides)):
        if one is None or other is None:
            longer, shorter = (tgt, src) if one is None else (src, tgt)
            if is_stream(longer):  # which may never end
                raise InputError(f"{longer} has more lines than {shorter}, which has {number}: line N must translate line N")
            counts = [number, number]
            counts[one is None] += 1 + sum(1 for _ in sides[one is None])
            raise InputError(f"{src} has {_count(counts[0], 'line')} and {tgt} has {counts[1]}: line N must translate line N")
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


def table_pairs(where: str, schema: pa.Schema, batches: Batches, columns: Columns) -> Iterator[Pair]:
    """The pairs of an Arrow table: two columns of text, or the fields of a column `translation`."""
    names = schema.names
    of_sides = all({*allowed} & {*names} for allowed in columns.names())
    nested = not of_sides and NESTED in names and pa.types.is_struct(schema.field(NESTED).type)
    if nested:
        names = [field.name for field in schema.field(NESTED).type]
    places = columns.places(where, names)
    for place in places:
        if place >= len(names):
            raise InputError(f"{where}: {_count(len(names), 'column')} and no column {place + 1}")
        if names.count(names[place]) > 1:
            raise InputError(f"{where}: {names.count(names[place])} columns are named {names[place]}; rename one")
    chosen = [names[place] for place in places]
    row = 0
    for batch in batches([f"{NESTED}.{name}" if nested else name for name in chosen]):
        sides = [_checked(where, row, name, pc.struct_field(batch[NESTED], name) if nested else batch[name]) for name in chosen]
        for start in range(0, len(batch), ROWS):
            src, tgt = (map(_sentence, _plain(side.slice(start, ROWS)).to_pylist()) for side in sides)
            yield from zip(src, tgt, strict=True)
        row += len(batch)


def _checked(where: str, row: int, name: str, side: pa.Array) -> pa.Array:
    """A column of a batch that begins behind `row` rows, once it is known to be text of a length that may be."""
    coded = pa.types.is_dictionary(side.type)
    values = side.dictionary if coded else side
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise InputError(f"{where}: column {name} holds {values.type}, not text")
    if side.null_count:
        raise InputError(f"{where}, row {row + 1 + pc.index(pc.is_null(side), True).as_py()}: column {name} is null, not text")
    lengths = pc.binary_length(values)
    too_many = pc.greater(lengths.take(side.indices) if coded else lengths, LONGEST_LINE)
    if (long := pc.index(too_many, True).as_py()) >= 0:
        raise too_long(f"{where}, row {row + 1 + long}: column {name}")
    values.validate(full=True)  # that it is UTF-8
    return side


def _plain(side: pa.Array) -> pa.Array:
    return side.dictionary_decode() if pa.types.is_dictionary(side.type) else side


def _tsv(path: Path, columns: Columns) -> Iterator[Pair]:
    rows = enumerate((line.split("\t") for line in _lines(path)), start=1)
    return _table(path, rows, columns)


def _csv(path: Path, columns: Columns) -> Iterator[Pair]:
    return _table(path, _csv_rows(path), columns)


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
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
    reader = csv.reader(lines(), strict=True)
    try:
        for row in reader:
            held = 0
            yield reader.line_num, [cell.replace(stand_in, "\r") for cell in row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: no proper CSV ({error})") from None


def _table(path: Path, rows: Iterable[tuple[int, list[str]]], columns: Columns) -> Iterator[Pair]:
    """The first row is a heading if a column is found by its name, or if both chosen by number are headed by their names."""
    src = tgt = -1
    for number, row in rows:
        cells = list(map(_sentence, row))
        if src < 0:
            src, tgt = columns.places(str(path), cells)
            by_number = isinstance(columns.src, int) and isinstance(columns.tgt, int)
            heads = [name in names for name, names in zip(_at(cells, src, tgt), columns.names(), strict=True)]
            if not by_number or all(heads):
                continue
        if not any(cells):
            yield "", ""
        elif max(src, tgt) < len(cells):
            yield cells[src], cells[tgt]
        else:
            raise InputError(f"{path}, line {number}: {_count(len(cells), 'column')} and no column {max(src, tgt) + 1}")


def _at(cells: Sequence[str], *places: int) -> list[str | None]:
    return [cells[place] if place < len(cells) else None for place in places]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


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
        if not keys:
            nested = isinstance(item.get(NESTED), dict) and not all({*names} & {*item} for names in columns.names())
            known = list(item[NESTED] if nested else item)
            keys = [known[place] for place in columns.places(where, known)]
        texts = item.get(NESTED) if nested else item
        if not isinstance(texts, dict):
            raise InputError(f"{where}: key {NESTED} holds no object with a text by language")
        for key in keys:
            if key not in texts:
                raise InputError(f"{where}: no key {key}")
            # JSON can write half a surrogate pair, which is no character.
            if not isinstance(texts[key], str) or re.search("[\ud800-\udfff]", texts[key]):
                raise InputError(f"{where}: key {key} holds no text")
        yield _sentence(texts[keys[0]]), _sentence(texts[keys[1]])


def _parquet(path: Path, columns: Columns) -> Iterator[Pair]:
    with readable(path):
        try:
            if path.stat().st_size == 0:
                raise InputError(f"{path}: the file is empty")
            with path.open("rb") as file:
                texts = [leaf.path for leaf in pq.ParquetFile(file).schema if leaf.physical_type == "BYTE_ARRAY"]
                # A value that repeats is held once, however often a few bytes of the file repeat it.
                stored = pq.ParquetFile(file, read_dictionary=texts)
                batches = partial(stored.iter_batches, AT_ONCE, None)
                yield from table_pairs(str(path), stored.schema_arrow, batches, columns)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"{path}: damaged or no Parquet file ({_one_line(error)}); fetch it again") from None


READERS: dict[str, Callable[[Path, Columns], Iterator[Pair]]] = {
    ".tsv": _tsv,
    ".txt": _tsv,
    ".csv": _csv,
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    ".parquet": _parquet,
}


def _sentence(cell: str) -> str:
    """A cell cleaned; it is one line, so a line end within it is a space."""
    return clean(cell.replace("\r\n", "\n").replace("\n", " ") if "\n" in cell else cell)


def _lines(path: Path) -> Iterator[str]:
    """Those of a UTF-8 file, plain or gzip, without their ends; one after the other, so that a large file takes no memory."""
    with readable(path), path.open("rb") as stored:
        gzipped = stored.peek(2).startswith(GZIP_MAGIC)
        try:
            lines = text_lines(io.BufferedReader(gzip.GzipFile(fileobj=stored)) if gzipped else stored, path)
            if (first := next(lines, None)) is None:
                raise InputError(f"{path}: the file is empty")
            yield first
            yield from lines
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path}: damaged or truncated gzip file ({error}); fetch it again") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
