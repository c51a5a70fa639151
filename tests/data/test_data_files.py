"""Tests that all file formats give the same pairs, and that a bad file is reported in one line that locates the error."""

import bz2
import csv
import gzip
import io
import json
import lzma
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entente.data.files import Columns, Pair, read_lines, read_pairs, read_parallel
from entente.data.pairs import NumberedPair
from entente.data.text import clean
from entente.errors import InputError

BY_NAME = Columns(("fr", "en"))
BY_NUMBER = Columns(("fr", "en"), (1, 2))
Read = Callable[..., list[Pair]]
SWAPPED = Columns(("fr", "en"), (2, 1))


def test_clean() -> None:
    assert clean("\u00a0 e\u0301te\u0301\u202f?\u2007!\r") == "été ? !"
    assert clean("été\u2009?") == "été ?"
    assert clean("a  b\tc") == "a  b c"
    assert clean(" \u00a0\t") == ""
    spaces = [space for space in map(chr, range(0x10000)) if unicodedata.category(space) == "Zs"]
    assert len(spaces) == 17 and {clean(f"a{space}b") for space in spaces} == {"a b"}
    for code in (0xAD, *range(0x200B, 0x2010), 0x2060, 0xFEFF):
        assert clean(f"e{chr(code)}\u0301{chr(code)}t") == "ét" == clean("\ufeffét")
    assert clean("می\u200cخواهم श्री\u200d मान \u200d") == "می\u200cخواهم श्री मान"  # joiners stay within Persian or Hindi words


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a\rb\r\n\u2028c\u2028d\x0c e\x0bf\x85g\n\n h ".encode())
    assert [*read_lines(path)] == ["a\rb", "c\u2028d\x0c e\x0bf\x85g", "", "h"]
    path.write_bytes(path.read_bytes() + b"\n")  # a newline at the end does not start another line
    assert len([*read_lines(path)]) == 4


def as_csv(pairs: list[Pair], delimiter: str = ",") -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(pairs)
    return out.getvalue().encode()


def as_json(pairs: list[Pair], nested: bool, ascii: bool) -> bytes:
    items = [{"fr": src, "id": 7, "en": tgt} for src, tgt in pairs]
    lines = [json.dumps({"translation": item} if nested else item, ensure_ascii=ascii) for item in items]
    return "".join(f"{line}\n" for line in lines).encode()


def as_parquet(pairs: list[Pair], nested: bool) -> bytes:
    items = [{"en": tgt, "fr": src} for src, tgt in pairs]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"id": "x", "translation": item} for item in items] if nested else items), out)
    return out.getvalue()


FORMATS: dict[str, tuple[Columns, Callable[[list[Pair]], bytes]]] = {
    "pairs.tsv": (BY_NUMBER, lambda pairs: "".join(f"{src}\t{tgt}\tby me\n" for src, tgt in pairs).encode()),
    "swapped.txt": (SWAPPED, lambda pairs: "".join(f"{tgt}\t{src}\n" for src, tgt in pairs).encode()),
    "headed.tsv": (BY_NAME, lambda pairs: ("en\tfr\n" + "".join(f"{tgt}\t{src}\n" for src, tgt in pairs)).encode()),
    "crlf.tsv": (BY_NUMBER, lambda pairs: "".join(f"{src}\t{tgt}\r\n" for src, tgt in pairs).encode()),
    "pairs.csv": (BY_NUMBER, as_csv),
    "headed.csv": (BY_NAME, lambda pairs: as_csv([("fr", "en"), *pairs])),
    "semicolons.csv": (BY_NUMBER, lambda pairs: as_csv(pairs, ";")),
    "tabs.csv": (BY_NUMBER, lambda pairs: as_csv(pairs, "\t")),
    "bars.csv": (BY_NAME, lambda pairs: as_csv([("fr", "en"), *pairs], "|")),
    "array.json": (BY_NAME, lambda pairs: b"[" + b",\n".join(as_json(pairs, False, False).split(b"\n")[:-1]) + b"\n]"),
    "flat.jsonl": (BY_NAME, lambda pairs: as_json(pairs, nested=False, ascii=False)),
    "nested.ndjson": (BY_NAME, lambda pairs: as_json(pairs, nested=True, ascii=True)),
    "flat.parquet": (BY_NAME, lambda pairs: as_parquet(pairs, nested=False)),
    "nested.parquet": (BY_NAME, lambda pairs: as_parquet(pairs, nested=True)),
}
# Draws letters, characters that cleaning changes, and characters that a parser could take for quotes, line ends or cell ends.
sentence = st.text("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029,;\"'\\ \u00a0\u202fe\u0301éœ😀", max_size=7)


def cleaned(pairs: Iterable[NumberedPair]) -> list[Pair]:
    return [(clean(src), clean(tgt)) for _, src, tgt in pairs]


@settings(max_examples=61, deadline=None)
@given(pairs=st.lists(st.tuples(sentence, sentence), min_size=1, max_size=5))
def test_all_formats_give_the_same_pairs(pairs: list[Pair]) -> None:
    expected = [(clean(src), clean(tgt)) for src, tgt in pairs]
    with TemporaryDirectory() as name:
        folder = Path(name)
        for place, side in enumerate(("fr", "en")):
            (folder / side).write_bytes("".join(f"{pair[place]}\n" for pair in pairs).encode())
        assert cleaned(read_parallel(folder / "fr", folder / "en")) == expected
        for name, (columns, encode) in FORMATS.items():
            (folder / name).write_bytes(encode(pairs))
            assert cleaned(read_pairs(folder / name, columns)) == expected, name


@pytest.mark.parametrize("name", ["crlf.tsv", "headed.csv", "array.json", "flat.jsonl"])
def test_text_may_be_compressed_and_have_a_byte_order_mark(tmp_path: Path, name: str) -> None:
    columns, encode = FORMATS[name]
    pairs = [("Va !", "Go."), ("été", "summer"), ("", "nothing")]
    for data in (encode(pairs), b"\xef\xbb\xbf" + encode(pairs)):
        for ending, stored in (("gz", gzip.compress(data, mtime=0)), ("bz2", bz2.compress(data)), ("xz", lzma.compress(data))):
            for form in (name, f"{name}.{ending}", name.upper()):
                for content in (data, stored):
                    (tmp_path / form).write_bytes(content)
                    assert cleaned(read_pairs(tmp_path / form, columns)) == pairs


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(name: str, content: str | bytes, columns: Columns = BY_NAME) -> list[Pair]:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return cleaned(read_pairs(tmp_path / name, columns))

    return read


def test_a_line_without_text_is_a_pair_without_text(read: Read) -> None:
    expected = [("a", "b"), ("", ""), ("", ""), ("c", "d"), ("", "")]
    assert read("x.tsv", "a\tb\n\n \t\u00a0\nc\td\n\n", BY_NUMBER) == expected
    assert read("x.csv", 'a,b\n\n ,\u00a0\nc,"d"\n\n', BY_NUMBER) == expected
    assert read("x.jsonl", '{"fr":"a","en":"b"}\n\n{"fr":"","en":""}\n{"fr":"c","en":"d"}\n\n') == expected


def test_quotes_in_csv_may_enclose_line_breaks(read: Read) -> None:
    text = 'fr,en\r\n"Il dit ""oui"", puis\r\nnon.","He said\n""yes""."\r\nun,"a\rb"\n5" de neige,x\n'
    expected = [('Il dit "oui", puis non.', 'He said "yes".'), ("un", "a\rb"), ('5" de neige', "x")]
    assert read("x.csv", text) == expected
    with pytest.raises(InputError, match=r"x\.csv, line 4: no en text in column 2 of 1; columns are separated by tabs, or"):
        read("x.csv", '"a\nb\n",c\nd', BY_NUMBER)


def test_a_pair_comes_with_the_number_of_its_first_line(tmp_path: Path) -> None:
    texts = {
        "x.tsv": ("\nfr\ten\na\tb\n\nc\td\n", [1, 3, 4, 5]),
        "x.csv": ('fr,en\n"a\na","b\nb\nb"\n\nc,d\n', [2, 6, 7]),
        "x.jsonl": (GOOD * 2, [1, 2]),
        "x.json": ("[\n" + GOOD + ",\n" + GOOD + "]", [1, 2]),  # items
    }
    for name, (text, numbers) in texts.items():
        (tmp_path / name).write_text(text)
        assert [number for number, _, _ in read_pairs(tmp_path / name, BY_NAME)] == numbers
    assert [*read_parallel(tmp_path / "x.jsonl", tmp_path / "x.jsonl")] == [(n, GOOD[:-1], GOOD[:-1]) for n in (1, 2)]


@pytest.mark.parametrize(
    ("columns", "text", "expected"),
    [
        (BY_NAME, "fr\ten\na\tb", [("a", "b")]),
        (BY_NAME, "tgt\tsrc\na\tb", [("b", "a")]),
        (BY_NAME, "id\t en \tfr\n1\ta\tb", [("b", "a")]),
        (BY_NAME, "src\ttgt\tfr\ten\na\tb\tc\td", [("c", "d")]),  # fr and en take precedence over src and tgt
        (Columns(("fr", "en"), ("French", "English")), "English\tby\tFrench\na\tx\tb", [("b", "a")]),
        (Columns(("fr", "en"), ("French", 1)), "English\tFrench\na\tb", [("b", "a")]),
        (SWAPPED, "a\tb\tc", [("b", "a")]),
        (SWAPPED, "en\tfr\na\tb", [("fr", "en"), ("b", "a")]),  # not a heading, since both columns are numbers
    ],
)
def test_headings_are_recognised(read: Read, columns: Columns, text: str, expected: list[Pair]) -> None:
    assert read("x.tsv", text, columns) == expected
    for delimiter in ",;|":
        assert read("x.csv", text.replace("\t", delimiter), columns) == expected


def test_keys_and_columns_by_name(read: Read) -> None:
    named = Columns(("fr", "en"), ("French", "English"))
    assert read("x.jsonl", '{"French": "a", "English": "b"}', named) == [("a", "b")]
    assert read("x.jsonl", '{"translation": {"English": "b", "French": "a"}}', named) == [("a", "b")]
    assert read("x.jsonl", '{"src": "a", "tgt": "b", "translation": {"fr": "c", "en": "d"}}') == [("c", "d")]
    assert read("x.jsonl", GOOD * 2, SWAPPED) == [("b", "a")] * 2
    with pytest.raises(InputError, match=r"x\.jsonl, row 1: no en text in column 3 of 2$"):
        read("x.jsonl", GOOD, Columns(("fr", "en"), (1, 3)))
    table = pa.table({"English": ["b"], "n": [1], "French": ["a"]})
    for columns in (named, Columns(("fr", "en"), (3, 1))):
        assert read("x.parquet", parquet(table), columns) == [("a", "b")]


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


GZ = gzip.compress(b"un\tone\n" * 97, mtime=0)
DAMAGED = [GZ[:2], GZ[:7], GZ[:-1], GZ[:23] + b"?" + GZ[24:], GZ + b"rubbish", lzma.compress(GZ)[:-9], b"BZh9 is no text"]
GOOD = '{"fr": "a", "en": "b"}\n'
INVALID = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("x.tsv", "", BY_NUMBER, ": the file is empty$"),
        ("x.tsv", "fr\tb\n", BY_NAME, ": no column is named en or tgt; "),
        ("x.tsv", "a\tb\nc\td", Columns(("fr", "en"), (1, 3)), ", line 1: no en text in column 3 of 2$"),
        ("x.csv", 'a,b\nc,"d"e\n', BY_NUMBER, r", line 2: not valid CSV \("),
        ("x.tsv", "a\tb\nc d", BY_NUMBER, ", line 2: no en text in column 2 of 1; columns are separated by tabs"),
        *[("x.tsv", data, BY_NUMBER, ": damaged or truncated compressed file ") for data in DAMAGED],
        ("x.tsv", gzip.compress(b"", mtime=0), BY_NUMBER, ": the file is empty$"),
        ("x.tsv", b"\xef\xbb\xbfa\tb\n\xff\tc", BY_NUMBER, ", line 2: not UTF-8 text; "),
        ("x.tsv", gzip.compress(b"a\tb\n\n\xe9", mtime=0), BY_NUMBER, ", line 3: not UTF-8 text; "),
        ("x.json", "[\n" + GOOD, BY_NAME, ", item 1: not a JSON object; each line, or each item of an array, must be"),
        ("x.json", "[" + GOOD + ", 3]", BY_NAME, ", item 2: not a JSON object; "),
        ("x.jsonl", GOOD + "[3]", BY_NAME, ", line 2: not a JSON object; "),
        ("x.jsonl", GOOD + '\n{"fr": "a"}', BY_NAME, ", row 3: no en text in column 2 of 2$"),
        ("x.jsonl", GOOD + '{"fr": "a", "en": null}', BY_NAME, ", row 2: no en text in column 2 of 2$"),
        ("x.jsonl", GOOD + '{"fr": "\\ud83d", "en": "b"}', BY_NAME, ", row 2: no fr text in column 1 of 2$"),
        ("x.parquet", b"", BY_NAME, ": not a Parquet file, or a damaged one .* 0 bytes"),
        ("x.parquet", parquet(pa.table({"fr": ["a", "b"], "en": ["c", None]})), BY_NAME, ", row 2: no en text in column 2 "),
        ("x.parquet", parquet(pa.table({"fr": INVALID, "en": ["c"]})), BY_NAME, ": not a Parquet file, .*utf-8"),
        ("x.fr", "a\n", BY_NAME, r": unknown format; a file of pairs ends in \.tsv, .*; two parallel files are given as "),
    ],
)  # fmt: skip
def test_a_bad_file_is_an_error_with_its_place(
    read: Read, tmp_path: Path, name: str, content: str | bytes, columns: Columns, message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        read(name, content, columns)
    assert str(error.value).startswith(str(tmp_path / name))
    assert "\n" not in str(error.value)
