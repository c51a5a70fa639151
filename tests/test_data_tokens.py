"""Texts are encoded into token ids only once, in blocks of any size."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from entente.data import tokenizer
from entente.data.batches import Rows
from entente.data.corpora import Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary

Ids = list[list[int]]


def lists(sides: tuple[Rows, Rows]) -> tuple[Ids, Ids]:
    one, other = ([row.tolist() for row in rows] for rows in sides)
    return one, other


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "MAX_BLOCK_PAIRS", 17)


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    src = [f"Le numéro {i} " + "est là " * (i % 7) for i in range(101)]
    return Dataset.from_dict({"src": src, "tgt": [text.replace("numéro", "number") for text in src]})


@pytest.fixture(scope="module")
def vocabulary(pairs: Dataset) -> Vocabulary:
    return Vocabulary.train(pairs, 290, "bpe", True)


@pytest.fixture
def data(pairs: Dataset, vocabulary: Vocabulary) -> TranslationData:
    corpus = Corpus("numbers", pairs, pairs.select(range(7)), {"test": pairs.select(range(5, 19))})
    return TranslationData(corpus, vocabulary, max_tokens=211, seed=3, eval_max_tokens=97)


@given(expected=st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=3), max_size=23))
def test_rows_are_stored_in_order(expected: Ids) -> None:
    rows = Rows(iter(expected))
    assert [row.tolist() for row in rows] == expected
    assert [rows[i - len(expected)].tolist() for i in range(len(expected))] == expected
    assert rows.lengths.tolist() == list(map(len, expected)) and len(rows) == len(expected)
    assert rows.values.tolist() == [id for row in expected for id in row]
    with pytest.raises(IndexError):
        rows[len(expected)]


def test_a_row_is_a_view_that_cannot_be_written_to() -> None:
    rows = Rows([[5, 6], [7]])
    assert rows[1].dtype == np.int32 and np.shares_memory(rows[1], rows.values) and not rows[1].flags.writeable


def test_ids_are_those_of_the_vocabulary_and_are_computed_once(data: TranslationData, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = {name: data.pairs(name) for name in ("train", "valid", "test")}
    encode = data.vocabulary.encode_src, data.vocabulary.encode_tgt
    expected = {name: (encode[0](pairs["src"][:]), encode[1](pairs["tgt"][:])) for name, pairs in splits.items()}
    assert {name: lists(data.ids(name)) for name in splits} == expected
    monkeypatch.setattr(Vocabulary, "encode_src", None)
    assert data.ids("test@alone") is data.ids("test")
    assert {name: lists(data.ids(name)) for name in splits} == expected


def test_overfitting_has_ids_of_its_own(data: TranslationData) -> None:
    one = TranslationData(data.corpus, data.vocabulary, max_tokens=211, seed=3, overfit=True)
    chosen = data.train_dataloader().epoch(0)[0]
    src = data.ids("train")[0]
    assert 1 < len(chosen) < len(src)
    for name in ("train", "valid", "test"):
        assert lists(one.ids(name))[0] == [src[row].tolist() for row in chosen]
