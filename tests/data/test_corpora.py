"""Tests that files are read into clean pairs, and that an unreadable file is reported in one line that locates the error."""

import gzip
import inspect
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from entente.data.corpora import CORPORA, Corpus, clean, grammar
from entente.errors import InputError

CONFIGS = Path(__file__).parents[2] / "configs"

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
    """Returns a function that reads a corpus from valid files. Keyword arguments of the function replace files and settings."""
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


def test_test_sets_may_be_none_one_or_several(read: Callable[..., Corpus], write: Callable[..., Sides]) -> None:
    one, other = write("one", "x", "y"), write("other", "z", "w")
    empty: Sides = {"src": None, "tgt": None}
    assert read(test=empty).tests == {}
    assert list(read(test={**empty, "news": one, "talks": other, "gone": None}).tests) == ["news", "talks"]
    assert list(read(test={**one, "news": other}).tests) == ["test", "news"]
    assert list(read(test={**empty, "test": one}).tests) == ["test"]
    for name, test in (("valid", {"valid": one}), ("test", {**one, "test": other})):
        with pytest.raises(InputError, match=rf"data\.test\.{name}: this name is taken by another split"):
            read(test=test)


def test_dropped_pairs_are_counted(read: Callable[..., Corpus], write: Callable[..., Sides]) -> None:
    src = "un deux trois\nun deux trois quatre\n\nb\nc\u00a0d\u00a0e\u00a0f\n \u202f\nz"
    tgt = "one two three\nx\nb\n\ny\n\na b c d"
    corpus = read(train=write("t", src, tgt), valid=write("v", src, tgt), test=write("s", src, tgt), max_words=3)
    assert corpus.train.to_dict() == {"src": ["un deux trois"], "tgt": ["one two three"]}
    assert len(corpus.valid) == len(corpus.tests["test"]) == 4  # over-long sentences are dropped only from train
    assert corpus.dropped == {"train: empty": 3, "train: over-long": 3, "valid: empty": 3, "test: empty": 3}
    uneven = read(train=write("u", "un deux trois\nun deux\nun", "one\none\none two three"), max_ratio=2.5)
    assert uneven.train.to_dict() == {"src": ["un deux"], "tgt": ["one"]}
    assert uneven.dropped == {"train: uneven": 2}
    for some in (corpus, uneven):
        assert is_complete(some)


def is_complete(corpus: Corpus) -> bool:
    """Returns whether every pair that was read is in a split or counted as dropped."""
    splits = [corpus.train, corpus.valid, *corpus.tests.values()]
    return sum(corpus.read.values()) == sum(map(len, splits)) + sum(corpus.dropped.values())


GZ = gzip.compress(b"un\ndeux\ntrois\n" * 97, mtime=0)


@pytest.mark.parametrize(
    ("src", "message"),
    [
        (gzip.compress(b"", mtime=0), "bad.fr: the file is empty$"),
        (b"\n \n\t", "bad.fr and .*bad.en: no sentence pair is left after dropping empty, over-long and uneven ones$"),
        (b"\xef\xbb\xbfa\n\xff\nc", "bad.fr, line 2: not UTF-8 text; "),
        (gzip.compress(b"a\nb\n\xe9", mtime=0), "bad.fr, line 3: not UTF-8 text; "),
        *[(GZ[:n], "bad.fr: damaged or truncated gzip file") for n in (2, 3, 7, 11, len(GZ) - 9, len(GZ) - 1)],
        (GZ[:23] + b"?" + GZ[24:], "bad.fr: damaged or truncated gzip file"),
        (GZ[:-5] + b"?" + GZ[-4:], "bad.fr: damaged or truncated gzip file"),
        (GZ + b"rubbish", "bad.fr: damaged or truncated gzip file"),
    ],
)
def test_a_bad_file_is_an_error_with_its_place(
    read: Callable[..., Corpus], write: Callable[..., Sides], tmp_path: Path, src: bytes, message: str
) -> None:
    bad = write("bad", src, "one\ntwo\nthree\n")
    for split in ("train", "valid", "test"):
        with pytest.raises(InputError, match=message) as error:
            read(**{split: bad})
        assert str(error.value).startswith(str(tmp_path))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["???", None, ""])
def test_a_missing_path_is_an_error(read: Callable[..., Corpus], missing: str | None) -> None:
    with pytest.raises(InputError, match=r"^data\.valid\.tgt is not set: give it as data\.valid\.tgt=FILE$"):
        read(valid={"src": "valid.fr", "tgt": missing})
    with pytest.raises(InputError, match=r"^data\.train is not set: give it as data\.train=FILE$"):
        read(train=missing)
    with pytest.raises(InputError, match=r"^data\.train\.src is not set: give it as data\.train\.src=FILE$"):
        read(train={"src": missing, "tgt": missing})
    with pytest.raises(InputError, match=r"^data\.test\.tgt is not set"):
        read(test={"src": "valid.fr", "tgt": missing})


def test_a_path_that_is_too_long_is_an_error(read: Callable[..., Corpus]) -> None:
    with pytest.raises(InputError, match="x: cannot be read (.+)$"):
        read(train={"src": "x" * 1009, "tgt": "train.en"})


def test_a_file_of_pairs_replaces_two_parallel_files(read: Callable[..., Corpus], tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("one\tun\tby me\ntwo\tdeux\tby you\n", encoding="utf-8")
    (tmp_path / "more.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    columns = {"src": 2, "tgt": 1}
    corpus = read(train="pairs.tsv", valid="more.tsv", test="more.tsv", columns=columns)
    assert corpus.train.to_dict() == {"src": ["un", "deux"], "tgt": ["one", "two"]}
    assert corpus.valid[:] == corpus.tests["test"][:] == {"src": ["b", "d"], "tgt": ["a", "c"]}
    mixed = read(test={"src": None, "tgt": None, "news": "more.tsv", "talks": str(tmp_path / "pairs.tsv")}, columns=columns)
    assert mixed.train["src"][:] == ["un", "deux", "trois"]
    assert [mixed.tests[name]["src"][:] for name in ("news", "talks")] == [["b", "d"], ["un", "deux"]]
    with pytest.raises(InputError, match=r"pairs\.tsv: no column is named fr or src; "):
        read(train="pairs.tsv")


SPLIT = {"valid": 13, "test": 7, "seed": 1}


@pytest.fixture
def numbers(write: Callable[..., Sides]) -> Sides:
    lines = [f"numéro {i}" if i % 7 else "" for i in range(101)]
    return write("numbers", "\n".join(lines), "\n".join(lines).replace("é", "e") + " and far too many words")


def test_without_a_validation_set_one_is_held_out(
    read: Callable[..., Corpus], write: Callable[..., Sides], numbers: Sides, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="entente"):
        corpus = read(train=numbers, valid=None, split=SPLIT)
    assert [record.getMessage() for record in caplog.records] == ["86 pairs, split at random: train 66, valid 13, test 7"]
    assert [len(corpus.valid), len(corpus.tests["test"])] == [13, 7]
    assert corpus.read == {"train": 101} and is_complete(corpus)
    assert not set(corpus.train["src"]) & set(corpus.valid["src"]) | set(corpus.valid["src"]) & set(corpus.tests["test"]["src"])

    nothing: Sides = {"src": None, "tgt": None}
    shares = read(train=numbers, valid=nothing, test=nothing, split={"valid": 0.15, "test": 0.001, "seed": 1})
    assert [len(shares.valid), len(shares.tests["test"])] == [13, 1]
    given = read(train=numbers, valid=nothing, test=write("t", "x", "y"), split=SPLIT)
    assert given.tests["test"].to_dict() == {"src": ["x"], "tgt": ["y"]} and len(given.valid) == 13
    assert read(train=numbers, valid=None, split={**SPLIT, "test": 0}).tests == {}
    assert read(train=numbers, split=SPLIT).tests == {}  # a validation set is given, so nothing is held out
    for seed in (1, 2):
        again = read(train=numbers, valid=None, split={**SPLIT, "seed": seed})
        assert (again.valid[:] == corpus.valid[:]) == (seed == 1)


def test_extra_text_is_trained_on_with_its_weight(
    read: Callable[..., Corpus], write: Callable[..., Sides], tmp_path: Path
) -> None:
    (tmp_path / "x.tsv").write_text("seven\tsept\neight\thuit\n", encoding="utf-8")
    swapped = {"src": 2, "tgt": 1}
    corpus = read(
        extra={"x": {"file": "x.tsv", "columns": swapped, "weight": 3}, "more": write("more", "neuf\n\n", "nine\n\n")}
    )
    assert corpus.train["src"][:] == ["un", "deux", "trois", "sept", "huit", "neuf"]
    assert corpus.train["tgt"][:] == ["one", "two", "three", "seven", "eight", "nine"]
    assert corpus.weights is not None and corpus.weights.tolist() == [1, 1, 1, 3, 3, 1]
    assert corpus.read == {"train": 7, "valid": 2} and corpus.dropped == {"train: empty": 1} and is_complete(corpus)
    # An extra text that is given as a path alone uses the columns in data.columns.
    light = read(extra={"x": "x.tsv", "more": write("more", "neuf", "nine")}, columns=swapped)
    assert light.train[:] == corpus.train[:] and light.weights is None
    assert light.digest() != corpus.digest()
    assert read(extra={"more": write("more", "neuf", "nine")}, weight=2).weights.tolist() == [2, 2, 2, 1]  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"^data\.extra\.x is not set: give it as data\.extra\.x=FILE$"):
        read(extra={"x": ""})
    with pytest.raises(InputError, match="empty.fr and .*empty.en: no sentence pair is left"):
        read(extra={"x": write("empty", "\n", "\n")})
    with pytest.raises(InputError, match=r"x\.tsv: no column is named fr or src; give \+data\.extra\.x\.columns\.src=COLUMN "):
        read(extra={"x": {"file": "x.tsv"}})


def test_extra_text_neither_changes_the_split_nor_repeats_a_held_out_sentence(
    read: Callable[..., Corpus], write: Callable[..., Sides], numbers: Sides
) -> None:
    alone = read(train=numbers, valid=None, split=SPLIT)
    held, other = alone.valid[0], alone.tests["test"][0]
    lines = [(held["src"].upper(), "new"), ("new", other["tgt"]), (held["tgt"], "newer"), ("new", "newest"), ("a b c d", "e")]
    extra = write("extra", *("\n".join(side) for side in zip(*lines, strict=True)))
    both = read(train=numbers, valid=None, split=SPLIT, extra={"x": extra})
    assert both.valid[:] == alone.valid[:] and both.tests["test"][:] == alone.tests["test"][:]
    assert both.train["src"][:] == [*alone.train["src"], "new"]
    assert both.dropped == {**alone.dropped, "train: held-out sentence": 3, "train: over-long": 2} and is_complete(both)


def test_other_test_sets_are_added_to_the_one_held_out(
    read: Callable[..., Corpus], write: Callable[..., Sides], numbers: Sides
) -> None:
    alone = read(train=numbers, valid=None, split=SPLIT)
    news = read(train=numbers, valid=None, split=SPLIT, test={"src": None, "tgt": None, "news": write("news", "x", "y")})
    assert {name: part[:] for name, part in news.splits.items() if name != "news"} == {n: p[:] for n, p in alone.splits.items()}
    assert news.tests["news"].to_dict() == {"src": ["x"], "tgt": ["y"]}


def test_an_impossible_split_is_an_error(read: Callable[..., Corpus], write: Callable[..., Sides], numbers: Sides) -> None:
    with pytest.raises(InputError, match=r"^data\.valid is not set: give it as "):
        read(valid=None)
    with pytest.raises(InputError, match=r"^data.split.valid=80 data.split.test=7: of 86 pairs, none is left for train; "):
        read(train=numbers, valid=None, split={**SPLIT, "valid": 80})
    with pytest.raises(InputError, match="of 3 pairs, none is left for valid; pairs that share a sentence stay together$"):
        read(train=write("one", "a\na\na", "b\nc\nd"), valid=None, split={"valid": 2, "test": 1, "seed": 1})


def test_sentences_shared_with_training_are_logged(
    read: Callable[..., Corpus], write: Callable[..., Sides], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="entente"):
        corpus = read(test={"news": write("news", "Un\nx\ny\nz", "a\n two \nb\nTHREE")})
    assert [record.getMessage() for record in caplog.records] == [
        "valid: 0 of 2 pairs have a sentence that is also in train",
        "news: 3 of 4 pairs have a sentence that is also in train",
    ]
    assert len(corpus.tests["news"]) == 4


@pytest.mark.parametrize("name", sorted(CORPORA))
def test_a_configuration_has_exactly_the_arguments_of_its_corpus(name: str) -> None:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        data = compose("train", [f"data={name}"]).data
    assert data.name == name
    assert set(data) - {"name", "tokenizer", "batch"} == set(inspect.signature(CORPORA[name]).parameters)


def test_one_file_of_pairs_replaces_two_on_the_command_line() -> None:
    overrides = ["data.train=a.tsv", "data.valid=b.tsv", "+data.test.news=c.tsv", "data.columns.src=2", "data.columns.tgt=en"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        data = compose("train", ["data=files", *overrides]).data
    assert (data.train, data.valid, data.columns) == ("a.tsv", "b.tsv", {"src": 2, "tgt": "en"})
    assert data.test == {"src": None, "tgt": None, "news": "c.tsv"}


def test_unusable_pairs_of_languages_are_refused(read: Callable[..., Corpus]) -> None:
    for src, tgt in (("fr", "de"), ("en", "en")):
        with pytest.raises(InputError, match=rf"^data\.src={src} data\.tgt={tgt}: the grammar is for fr and en"):
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


def test_thousands_of_pairs_are_read_in_seconds(read: Callable[..., Corpus], write: Callable[..., Sides]) -> None:
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
