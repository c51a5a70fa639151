"""Files in, clean pairs out; what cannot be read is said in one line with its place."""

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from entente.data.corpora import CORPORA, Corpus, clean, grammar, read_lines
from entente.errors import InputError

Sides = dict[str, str | None]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Sides]:
    def write(name: str, src: str | bytes, tgt: str | bytes) -> Sides:
        for side, text in (("fr", src), ("en", tgt)):
            (tmp_path / f"{name}.{side}").write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"src": f"{name}.fr", "tgt": f"{name}.en"}

    return write


@pytest.fixture
def read(tmp_path: Path, write: Callable[..., Sides]) -> Callable[..., Corpus]:
    """A corpus of good files but for what a test says."""
    good = {
        "train": write("train", "un\ndeux\ntrois\n", "one\ntwo\nthree\n"),
        "valid": write("valid", "a\nb\n", "c\nd\n"),
    }

    def read(**given: object) -> Corpus:
        plain = {"src": "fr", "tgt": "en", "root": str(tmp_path), "test": None, "max_words": 3, **good}
        return CORPORA["files"](**{**plain, **given})

    return read


def test_pairs_stay_in_order(read: Callable[..., Corpus], write: Callable[..., Sides]) -> None:
    corpus = read(test=write("t", "x", "y"))
    assert corpus.train.to_dict() == {"src": ["un", "deux", "trois"], "tgt": ["one", "two", "three"]}
    assert corpus.split("valid").to_dict() == {"src": ["a", "b"], "tgt": ["c", "d"]}
    assert corpus.split("test").to_dict() == {"src": ["x"], "tgt": ["y"]}
    assert corpus.dropped == {}
    with pytest.raises(InputError, match=r"split=tset: this corpus has train, valid, test$"):
        corpus.split("tset")


def test_test_sets_may_be_none_one_or_several(read: Callable[..., Corpus], write: Callable[..., Sides]) -> None:
    one, other = write("one", "x", "y"), write("other", "z", "w")
    empty: Sides = {"src": None, "tgt": None}
    assert read(test=empty).tests == {}
    assert list(read(test={**empty, "news": one, "talks": other, "gone": None}).tests) == ["news", "talks"]
    assert list(read(test={**one, "news": other}).tests) == ["test", "news"]
    with pytest.raises(InputError, match=r"data\.test\.valid: a test set needs a name of its own"):
        read(test={"valid": one})


def test_clean() -> None:
    assert clean("\u00a0 e\u0301te\u0301\u202f?\u2007!\r") == "été ? !"
    assert clean("a  b\tc") == "a  b\tc"
    assert clean(" \u00a0\t") == ""


def test_only_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a\rb\r\n\u2028c\u2028d\x0c e\x0bf\x85g\n\n h ".encode())
    assert read_lines(path) == ["a\rb", "c\u2028d\x0c e\x0bf\x85g", "", "h"]
    path.write_bytes(path.read_bytes() + b"\n")  # a newline at the end begins no line
    assert len(read_lines(path)) == 4


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_plain_and_gzip_are_told_by_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for data in (b"", b"\xef\xbb\xbf"):  # without and with a byte order mark
        path.write_bytes(data + "é\nb".encode())
        plain = read_lines(path)
        path.write_bytes(gzip.compress(data + "é\nb".encode()))
        assert read_lines(path) == plain == ["é", "b"]


def test_what_is_dropped_is_counted(read: Callable[..., Corpus], write: Callable[..., Sides]) -> None:
    src = "un deux trois\nun deux trois quatre\n\nb\nc\u00a0d\u00a0e\u00a0f\n \u202f\nz"
    tgt = "one two three\nx\nb\n\ny\n\na b c d"
    corpus = read(train=write("t", src, tgt), valid=write("v", src, tgt), test=write("s", src, tgt), max_words=3)
    assert corpus.train.to_dict() == {"src": ["un deux trois"], "tgt": ["one two three"]}
    assert len(corpus.valid) == len(corpus.tests["test"]) == 4  # a score is over long sentences too
    assert corpus.dropped == {"train: empty": 3, "train: over-long": 3, "valid: empty": 3, "test: empty": 3}


GZ = gzip.compress(b"un\ndeux\ntrois\n" * 97, mtime=0)


@pytest.mark.parametrize(
    ("src", "message"),
    [
        (b"", "bad.fr: the file is empty$"),
        (gzip.compress(b"", mtime=0), "bad.fr: the file is empty$"),
        (b"a\nb\n", "bad.fr has 2 lines and .*bad.en has 3: line N must translate line N$"),
        (b"\n \n\t", "bad.fr and .*bad.en: no sentence pair left after dropping empty and over-long ones$"),
        ("un\nété\nb".encode("latin-1"), "bad.fr, line 2: not UTF-8 text; "),
        (b"\xef\xbb\xbfa\n\xff\nc", "bad.fr, line 2: not UTF-8 text; "),
        ("a\nb\nc".encode("utf-16"), "bad.fr, line 1: not UTF-8 text; "),
        (gzip.compress(b"a\nb\n\xe9", mtime=0), "bad.fr, line 3: not UTF-8 text; "),
        *[(GZ[:n], "bad.fr: damaged or truncated gzip file") for n in (2, 3, 7, 11, len(GZ) - 9, len(GZ) - 1)],
        (GZ[:23] + b"?" + GZ[24:], "bad.fr: damaged or truncated gzip file"),
        (GZ[:-5] + b"?" + GZ[-4:], "bad.fr: damaged or truncated gzip file"),
        (GZ + b"rubbish", "bad.fr: damaged or truncated gzip file"),
    ],
)
def test_a_bad_file_is_said(
    read: Callable[..., Corpus], write: Callable[..., Sides], tmp_path: Path, src: bytes, message: str
) -> None:
    bad = write("bad", src, "one\ntwo\nthree\n")
    for split in ("train", "valid", "test"):
        with pytest.raises(InputError, match=message) as error:
            read(**{split: bad})
        assert str(error.value).startswith(str(tmp_path))
        assert "\n" not in str(error.value)


def test_a_wrong_path_is_said(read: Callable[..., Corpus], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for wrong, message in {
        "gone.fr": "gone.fr: no such file$",
        "folder": "folder: this is a folder; give a text file$",
        "train.fr/x": "train.fr/x: cannot be read (.+)$",
        "x" * 1009: "x: cannot be read (.+)$",
    }.items():
        with pytest.raises(InputError, match=message):
            read(train={"src": wrong, "tgt": "train.en"})


@pytest.mark.parametrize("missing", ["???", None, ""])
def test_a_path_not_given_is_said(read: Callable[..., Corpus], missing: str | None) -> None:
    with pytest.raises(InputError, match=r"^data\.valid\.tgt is not set: give the file, data\.valid\.tgt=FILE$"):
        read(valid={"src": "valid.fr", "tgt": missing})
    with pytest.raises(InputError, match=r"^data\.train\.src is not set"):
        read(train=missing)
    with pytest.raises(InputError, match=r"^data\.test\.tgt is not set"):
        read(test={"src": "valid.fr", "tgt": missing})


def test_one_path_for_two_is_said(read: Callable[..., Corpus]) -> None:
    for split in ("train", "valid", "test"):
        with pytest.raises(InputError, match=rf"^data\.{split}=text\.tsv: give two files, data\.{split}\.src=FILE"):
            read(**{split: "text.tsv"})


def test_languages_must_fit(read: Callable[..., Corpus]) -> None:
    with pytest.raises(InputError, match=r"^data\.src=fr data\.tgt=fr: source and target language are the same$"):
        read(tgt="fr")
    for src, tgt in (("fr", "de"), ("en", "en")):
        with pytest.raises(InputError, match=rf"^data\.src={src} data\.tgt={tgt}: the grammar has fr and en"):
            grammar(src, tgt, seed=1, train=2, valid=1, test=1)


def test_relative_paths_start_from_root_and_absolute_ones_do_not(
    read: Callable[..., Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absolute: Sides = {"src": str(tmp_path / "valid.fr"), "tgt": str(tmp_path / "valid.en")}
    assert read(train=absolute).train["src"][:] == ["a", "b"]
    monkeypatch.chdir(tmp_path)
    assert read(root=None, train=absolute).valid["src"][:] == ["a", "b"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read(root="~").train["src"][:] == ["un", "deux", "trois"]


def test_thousands_of_pairs_are_read_at_once(read: Callable[..., Corpus], write: Callable[..., Sides]) -> None:
    text = "\n".join(f"Un homme numéro {i} marche dans la rue ." for i in range(29_000))
    sides = write("big", gzip.compress(text.encode(), 1), text)
    start = time.perf_counter()
    corpus = read(train=sides, max_words=50)
    assert time.perf_counter() - start < 5
    assert len(corpus.train) == 29_000


def test_the_grammar_is_read_in_either_direction() -> None:
    there, back = (grammar(src, tgt, seed=3, train=401, valid=13, test=17) for src, tgt in (("fr", "en"), ("en", "fr")))
    assert [len(there.train), len(there.valid), len(there.tests["test"])] == [401, 13, 17]
    assert {"test", "test_long", "test_compositional"} == set(there.tests)
    for name in ("train", "valid", *there.tests):
        assert there.split(name)["src"][:] == back.split(name)["tgt"][:]
        assert there.split(name)["tgt"][:] == back.split(name)["src"][:]
        assert all(clean(line) == line != "" for line in there.split(name)["src"])
    assert there.train["src"][:] != there.train["tgt"][:]
