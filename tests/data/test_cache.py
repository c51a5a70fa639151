"""Tests that pairs and token ids are stored unchanged, and that what is stored equals what would be computed anew."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from entente.data import pairs as pairs_module
from entente.data import tokenizer
from entente.data.batches import Rows
from entente.data.corpora import Corpus, read_corpus
from entente.data.module import TranslationData
from entente.data.pairs import Pair, Pairs
from entente.data.tokenizer import EOS, Tokenizer, Vocabulary
from entente.files import build_once
from entente.settings import BatchSettings, DataSettings, FilesSettings, GrammarSettings, TokenizerSettings

Ids = list[list[int]]
sentence = st.text("aé œ😀\u2028", max_size=5)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "BLOCK", 7)
    monkeypatch.setattr(tokenizer, "BLOCK", 7)


@settings(deadline=None)  # a busy machine may write files slowly
@given(rows=st.lists(st.tuples(sentence, sentence), max_size=23))
def test_pairs_are_stored_in_order(rows: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> None:
    pairs = Pairs(iter(rows), tmp_path_factory.mktemp("pairs") / "x", "x")
    assert list(pairs) == list(pairs) == rows and len(pairs) == len(rows)
    assert pairs.digest == hashlib.sha256("".join(f"{src}\n{tgt}\n" for src, tgt in rows).encode()).hexdigest()


@settings(deadline=None)
@given(rows=st.lists(st.lists(st.integers(4, 2**17), max_size=3), min_size=1, max_size=23), stored=st.booleans())
def test_rows_are_stored_in_order(rows: Ids, stored: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    expected = [[*row, EOS] for row in rows]
    actual = Rows(expected)
    if stored:
        path = tmp_path_factory.mktemp("rows") / "x.npy"
        actual.write(path, 2**17 + 1)
        actual = Rows(path)
    assert [row.tolist() for row in actual] == expected
    assert actual.lengths.tolist() == [*map(len, expected)] and len(actual) == len(expected)
    assert np.shares_memory(actual[0], actual.values)


# Token ids -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    src = [f"Le numéro {i} " + "est là " * (i % 7) for i in range(101)]
    return Dataset.from_dict({"src": src, "tgt": [text.replace("numéro", "number") for text in src]})


def lists(data: TranslationData, split: str) -> tuple[Ids, Ids]:
    src, tgt = ([row.tolist() for row in rows] for rows in data.ids(split))
    return src, tgt


@pytest.mark.parametrize("plain", [False, True])
def test_stored_ids_are_those_of_the_vocabulary_and_are_computed_once(
    pairs: Dataset, tmp_path: Path, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus(pairs, pairs.select(range(7)), {})
    vocabulary = Vocabulary.train(pairs, TokenizerSettings(vocab_size=290, joint=plain, plain_source=plain))
    computed = TranslationData(corpus, vocabulary, BatchSettings(max_tokens=211), seed=3)
    for split in ("train", "valid"):
        part = corpus.splits[split]
        assert lists(computed, split) == (vocabulary.encode_src(part["src"][:]), vocabulary.encode_tgt(part["tgt"][:]))
    for is_stored in (False, True):
        stored = TranslationData(corpus, vocabulary, BatchSettings(max_tokens=211), seed=3, cache_dir=tmp_path)
        if is_stored:
            monkeypatch.setattr(Vocabulary, "encode_src", None)
        assert lists(stored, "train") == lists(computed, "train")
        assert {rows.values.dtype for rows in stored.ids("train")} == {np.dtype(np.uint16)}
        assert stored.ids("train@alone") is stored.ids("train")
        monkeypatch.undo()
        assert stored.unigram_nll() == computed.unigram_nll()
    assert [path.parent.name for path in tmp_path.rglob("*.npy")] == ["ids"] * 2


# Tokenizers ----------------------------------------------------------------------------------------------------------


def test_tokenizers_are_cached_by_content(pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, train = [], Tokenizer.train

    def counted(lines: list[str], vocab_size: int, *others: Any) -> Tokenizer:
        sizes.append(vocab_size)
        return train(lines, vocab_size, *others)

    monkeypatch.setattr(Tokenizer, "train", counted)
    settings = TokenizerSettings(vocab_size=300)
    first = Vocabulary.train(pairs, settings, tmp_path)
    second = Vocabulary.train(Dataset.from_dict(pairs.to_dict()), settings, tmp_path)
    assert second.src.model == first.src.model and sizes == [300]
    (file,) = tmp_path.glob("tokenizer/*.model")
    assert file.read_bytes() == first.src.model

    Vocabulary.train(pairs, TokenizerSettings(vocab_size=300, type="unigram"), tmp_path)
    Vocabulary.train(pairs.select(range(97)), settings, tmp_path)
    assert sizes == [300, 300, 300]


# Corpora -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path: Path) -> FilesSettings:
    (tmp_path / "x.tsv").write_text(
        "".join(f"numéro {i}{' bis' * (i % 2)}\tnumber {i}\n\n" for i in range(61)), encoding="utf-8"
    )
    (tmp_path / "y.tsv").write_text("sept\tseven\nnuméro 7\tnumber seven\n", encoding="utf-8")
    columns, extra = {"src": 1, "tgt": 2}, {"y": {"file": "y.tsv", "weight": 3}}
    split = {"valid": 7, "test": 5}
    return FilesSettings(root=str(tmp_path), train="x.tsv", extra=extra, test={"y": "y.tsv"}, columns=columns, split=split)


def content(corpus: Corpus) -> list[object]:
    """Returns everything that a corpus holds, for comparison."""
    weights = None if corpus.weights is None else (corpus.weights.dtype, corpus.weights.tolist())
    splits = [(name, split.to_dict()) for name, split in corpus.splits.items()]
    return [splits, corpus.read, corpus.dropped, corpus.gold, weights, corpus.digest()]


@pytest.mark.parametrize("kind", ["files", "grammar"])
def test_a_stored_corpus_is_the_one_that_was_read_and_its_text_is_not_read_again(
    kind: str, settings: FilesSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: DataSettings = settings if kind == "files" else GrammarSettings(train=31, valid=5, test=7)
    computed = content(read_corpus(source))
    assert content(read_corpus(source, tmp_path / "cache")) == computed
    monkeypatch.setattr(Pairs, "__init__", None)
    assert content(read_corpus(source, tmp_path / "cache")) == computed


def test_other_settings_or_text_give_another_corpus_but_the_time_of_a_file_does_not(
    settings: FilesSettings, tmp_path: Path
) -> None:
    first, file = read_corpus(settings, tmp_path), tmp_path / "x.tsv"
    changes = {"max_words": 2}, {"weight": 2}, {"split": {"valid": 7, "test": 5, "seed": 2}}, {"columns": {"src": 2, "tgt": 1}}
    for change in changes:
        changed = FilesSettings(**settings.model_dump() | change)
        assert content(read_corpus(changed, tmp_path)) == content(read_corpus(changed)) != content(first)
    os.utime(file, (1, 1))
    assert content(read_corpus(settings, tmp_path)) == content(first)
    file.write_text(file.read_text(encoding="utf-8").replace("7", "8"), encoding="utf-8")  # of the same length
    assert read_corpus(settings, tmp_path).digest() == read_corpus(settings).digest() != first.digest()


def test_a_build_that_was_stopped_begins_again(
    settings: FilesSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(json, "dumps", stop)
        read_corpus(settings, tmp_path / "cache")
    assert content(read_corpus(settings, tmp_path / "cache")) == content(read_corpus(settings))


def test_what_two_need_at_once_is_built_once(tmp_path: Path) -> None:
    """Threads stand for processes, since a lock belongs to an open file."""
    path, began, returned, builds = tmp_path / "x", Event(), Event(), list[int]()

    def build(_: BinaryIO) -> None:
        builds.append(1)
        began.set()
        assert not returned.wait(0.3), "the other did not wait for the file"

    def need() -> None:
        began.wait(60)
        build_once(path, build)
        returned.set()

    with ThreadPoolExecutor() as pool:
        second = pool.submit(need)
        build_once(path, build)
        second.result()
    assert builds == [1]
