"""Tests that the user's files become a corpus: which pairs are kept, held out, weighted and dropped, and what is refused."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from entente.data.corpora import Corpus, describe_sources, read_corpus
from entente.data.text import clean
from entente.errors import InputError
from entente.settings import FilesSettings, GrammarSettings, Multi30kSettings
from entente.validation import validate

Sides = dict[str, str]
Read, Write = Callable[..., Corpus], Callable[..., Sides]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, src: str | bytes, tgt: str | bytes) -> Sides:
        for side, text in (("fr", src), ("en", tgt)):
            (tmp_path / f"{name}.{side}").write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"src": f"{name}.fr", "tgt": f"{name}.en"}

    return write


@pytest.fixture
def read(tmp_path: Path, write: Write) -> Read:
    """Returns a function that reads a corpus from valid files. Keyword arguments of the function replace files and settings."""
    good = {"train": write("train", "un\ndeux\ntrois\n", "one\ntwo\nthree\n"), "valid": write("valid", "a\nb\n", "c\nd\n")}

    def read(**changes: Any) -> Corpus:
        return read_corpus(validate(FilesSettings, {"root": str(tmp_path), "max_words": 3, **good, **changes}))

    return read


def is_complete(corpus: Corpus) -> bool:
    """Returns whether every pair that was read is in a split or counted as dropped."""
    return sum(corpus.read.values()) == sum(map(len, corpus.splits.values())) + sum(corpus.dropped.values())


def test_files_become_splits_in_the_order_of_their_lines(read: Read, write: Write, tmp_path: Path) -> None:
    corpus = read(test=write("t", "x", "y"))
    assert corpus.train.to_dict() == {"src": ["un", "deux", "trois"], "tgt": ["one", "two", "three"]}
    assert corpus.split("valid").to_dict() == {"src": ["a", "b"], "tgt": ["c", "d"]}
    assert corpus.split("test").to_dict() == {"src": ["x"], "tgt": ["y"]}
    assert corpus.dropped == {} and is_complete(corpus)
    (tmp_path / "pairs.tsv").write_text("one\tun\tby me\ntwo\tdeux\tby you\n", encoding="utf-8")
    columns = {"src": 2, "tgt": 1}
    mixed = read(train="pairs.tsv", test={"news": "pairs.tsv", "talks": str(tmp_path / "pairs.tsv")}, columns=columns)
    assert mixed.train.to_dict() == mixed.tests["news"].to_dict() == mixed.tests["talks"].to_dict()
    assert mixed.train.to_dict() == {"src": ["un", "deux"], "tgt": ["one", "two"]}


def test_test_sets_may_be_none_one_or_several(read: Read, write: Write) -> None:
    first, second = write("first", "x", "y"), write("second", "z", "w")
    assert read().tests == {}
    assert list(read(test={"news": first, "talks": second, "gone": None}).tests) == ["news", "talks"]
    assert list(read(test={**first, "news": second}).tests) == ["test", "news"]
    assert list(read(test={"test": first}).tests) == ["test"]
    for name, test in (("valid", {"valid": first}), ("test", {**first, "test": second})):
        with pytest.raises(InputError, match=rf"data\.test\.{name}: this name is taken by another split"):
            read(test=test)


def test_dropped_pairs_are_counted(read: Read, write: Write) -> None:
    src = "un deux trois\nun deux trois quatre\n\nb\nc\u00a0d\u00a0e\u00a0f\n \u202f\nz"
    tgt = "one two three\nx\nb\n\ny\n\na b c d"
    corpus = read(train=write("t", src, tgt), valid=write("v", src, tgt), test=write("s", src, tgt), max_words=3)
    assert corpus.train.to_dict() == {"src": ["un deux trois"], "tgt": ["one two three"]}
    assert len(corpus.valid) == len(corpus.tests["test"]) == 4  # over-long sentences are dropped only from train
    assert corpus.dropped == {"train: empty": 3, "train: over-long": 3, "valid: empty": 3, "test: empty": 3}
    uneven = read(train=write("u", "un deux trois\nun deux\nun", "one\none\none two three"), max_ratio=2.5)
    assert uneven.train.to_dict() == {"src": ["un deux"], "tgt": ["one"]}
    assert uneven.dropped == {"train: uneven": 2}
    assert is_complete(corpus) and is_complete(uneven)
    even = read(train=write("z", "un deux trois", "我们今天"), max_words=4, max_ratio=1.5)  # a character counts as a word
    assert even.dropped == {}


def test_the_settings_that_select_the_text_are_named() -> None:
    settings = FilesSettings(train={"src": "a.fr", "tgt": "a.en"}, test={"news": "n.tsv"}, root="x")
    names = "data.name=files, data.root=x, data.train.src=a.fr, data.train.tgt=a.en, data.test.news=n.tsv"
    assert describe_sources(settings) == names
    assert "data.tests=['t']" in describe_sources(Multi30kSettings(root="x", tests=["t"]))
    assert describe_sources(GrammarSettings()) == ""


# Splits, weights and extra text --------------------------------------------------------------------------------------

SPLIT = {"valid": 13, "test": 7, "seed": 1}


@pytest.fixture
def numbers(write: Write) -> Sides:
    lines = [f"numéro {i}" if i % 7 else "" for i in range(101)]
    return write("numbers", "\n".join(lines), "\n".join(lines).replace("é", "e") + " and far too many words")


def test_without_a_validation_set_one_is_held_out(
    read: Read, write: Write, numbers: Sides, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="entente"):
        corpus = read(train=numbers, valid=None, split=SPLIT)
    assert "85 pairs, split at random: train 65, valid 13, test 7" in [record.getMessage() for record in caplog.records]
    assert [len(corpus.valid), len(corpus.tests["test"])] == [13, 7]
    assert corpus.read == {"train": 101} and is_complete(corpus)
    shares = read(train=numbers, valid=None, split={"valid": 0.15, "test": 0.001, "seed": 1})
    assert [len(shares.valid), len(shares.tests["test"])] == [13, 1]
    tested = read(train=numbers, valid=None, test=write("t", "x", "y"), split=SPLIT)
    assert tested.tests["test"].to_dict() == {"src": ["x"], "tgt": ["y"]} and len(tested.valid) == 13
    news = read(train=numbers, valid=None, test={"news": write("news", "x", "y")}, split=SPLIT)
    assert {name: part[:] for name, part in news.splits.items() if name != "news"} == {
        name: part[:] for name, part in corpus.splits.items()
    }
    assert read(train=numbers, valid=None, split={**SPLIT, "test": 0}).tests == {}
    assert read(train=numbers, split=SPLIT).tests == {}  # there is a validation set, so nothing is held out
    assert read(train=numbers, valid=None, split={**SPLIT, "seed": 2}).valid[:] != corpus.valid[:]


@pytest.mark.parametrize(("pairs", "held_out"), [(7, 1), (211, 11), (23_003, 1000)])
def test_by_default_a_twentieth_is_held_out_for_valid_and_for_test_and_at_most_1000_pairs(
    read: Read, write: Write, pairs: int, held_out: int
) -> None:
    lines = "\n".join(map(str, range(pairs)))
    corpus = read(train=write("t", lines, lines), valid=None)
    assert {name: len(part) for name, part in corpus.splits.items()} == {
        "train": pairs - 2 * held_out, "valid": held_out, "test": held_out,
    }  # fmt: skip


def test_an_impossible_split_is_an_error(read: Read, write: Write, numbers: Sides) -> None:
    with pytest.raises(InputError, match=r"^data.split.valid=80 data.split.test=7: of 85 pairs, none is left for train; "):
        read(train=numbers, valid=None, split={**SPLIT, "valid": 80})
    with pytest.raises(InputError, match="of 3 pairs, none is left for valid; pairs that share a sentence stay together$"):
        read(train=write("linked", "a\na\na", "b\nc\nd"), valid=None, split={"valid": 2, "test": 1, "seed": 1})


def test_extra_text_is_trained_on_with_its_weight(read: Read, write: Write, tmp_path: Path) -> None:
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
    with pytest.raises(InputError, match="empty.fr and .*empty.en: no sentence pair is left"):
        read(extra={"x": write("empty", "\n", "\n")})
    with pytest.raises(InputError, match=r"x\.tsv: no column is named fr or src; give each column by its name, or by its num"):
        read(extra={"x": {"file": "x.tsv"}})


def test_extra_text_neither_changes_the_split_nor_repeats_a_held_out_sentence(read: Read, write: Write, numbers: Sides) -> None:
    alone = read(train=numbers, valid=None, split=SPLIT)
    valid, test = alone.valid[0], alone.tests["test"][0]
    lines = [(valid["src"].upper(), "new"), ("new", test["tgt"]), (valid["tgt"], "newer"), ("new", "newest"), ("a b c d", "e")]
    extra = write("extra", *("\n".join(side) for side in zip(*lines, strict=True)))
    extended = read(train=numbers, valid=None, split=SPLIT, extra={"x": extra})
    assert extended.valid[:] == alone.valid[:] and extended.tests["test"][:] == alone.tests["test"][:]
    assert extended.train["src"][:] == [*alone.train["src"], "new"]
    assert extended.dropped == {**alone.dropped, "train: held-out sentence": 3, "train: over-long": 2} and is_complete(extended)


# Other corpora -------------------------------------------------------------------------------------------------------


def test_a_share_of_the_pairs_is_also_read_with_varied_sources(read: Read, write: Write) -> None:
    """In lower case, without the full stop, or both, once each, and not in other splits."""
    lines = {f"Un Chat {i} ?!": f"A cat {i}?!" for i in range(211)}
    train = write("cats", "\n".join(lines), "\n".join(lines.values()))
    corpus = read(train=train, max_words=9, varied=0.5, weight=3, extra={"more": write("more", "Neuf.", "nine")})
    rows = [(row["src"], row["tgt"]) for row in corpus.train]
    assert rows[:212] == [*lines.items(), ("Neuf.", "nine")] and corpus.valid.num_rows == 2
    sources = [src.replace(tgt.removeprefix("A cat ").removesuffix("?!"), "N") for src, tgt in rows[212:]]
    assert {*sources} == {"Un Chat N", "un chat N ?!", "un chat N"} and min(map(sources.count, sources)) > 20
    assert corpus.weights is not None and corpus.weights.tolist() == [3] * 211 + [1] * (1 + len(sources))
    assert len({tgt for _, tgt in rows[212:]}) == len(sources) == corpus.varied and 70 < len(sources) < 140
    unchanged = read(train=write("small", "chat\nchien", "cat\ndog"), varied=1.0)
    assert unchanged.train.num_rows == 2, "nothing of these can be varied"
    lines = [f"{letter}{stop}" for letter in "abcdefghijklmnopqrstuvwxyz" for stop in ("", ".")]
    corpus = read(train=write("stops", "\n".join(lines), "\n".join(f"{i}" for i in range(52))), valid=None, varied=1.0)
    assert corpus.train.num_rows > 50 and {*corpus.train["src"]}.isdisjoint(
        [*corpus.valid["src"], *corpus.tests["test"]["src"]]
    )
    given = read(train=write("stops", "Oui.\nNon !", "Yes.\nNo!"), valid=write("v", "OUI\nNON", "yes\nno"), varied=1.0)
    assert not {text.casefold() for text in given.train["src"]} & {"oui", "non"}


def test_the_grammar_is_read_in_either_direction() -> None:
    sizes = {"seed": 3, "train": 401, "valid": 13, "test": 17}
    french, english = (read_corpus(GrammarSettings(src=src, tgt=tgt, **sizes)) for src, tgt in (("fr", "en"), ("en", "fr")))
    assert {name: len(part) for name, part in french.splits.items()} == french.read == {
        "train": 401, "valid": 13, "test": 17, "test_long": 17, "test_compositional": 17,
    }  # fmt: skip
    for name, split in french.splits.items():
        assert split["src"][:] == english.splits[name]["tgt"][:] and split["tgt"][:] == english.splits[name]["src"][:]
        assert split["src"][:] != split["tgt"][:] and all(clean(line) == line != "" for line in split["src"])
    assert french.gold.keys() == french.tests.keys() | {"valid"}
    assert [gold.swap_sides() for gold in french.gold["test"]] == english.gold["test"]
    assert read_corpus(GrammarSettings(**{**sizes, "seed": 4})).train[:] != french.train[:]


@pytest.mark.parametrize("seed", range(5))
def test_pairs_too_long_or_uneven_are_dropped_before_any_are_held_out(read: Read, write: Write, seed: int) -> None:
    lines = [f"w{i} {'x ' * (i % 5)}" for i in range(53)]
    uneven = "\n".join(f"u{i}" for i in range(7)), "\n".join(f"v{i} y y" for i in range(7))
    train = write("all", "\n".join([*lines, uneven[0]]), "\n".join([*(f"t{i}" for i in range(53)), uneven[1]]))
    corpus = read(train=train, valid=None, split={"valid": 11, "test": 7, "seed": seed}, max_words=4, max_ratio=2.5)
    assert corpus.dropped == {"train: over-long": 10, "train: uneven": 28} and is_complete(corpus)
    assert {name: len(part) for name, part in corpus.splits.items()} == {"train": 4, "valid": 11, "test": 7}
