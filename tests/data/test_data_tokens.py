"""Tests that texts are encoded only once, in blocks of any size, and that processes and runs share the token ids of train."""

import itertools
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from entente.data import tokenizer
from entente.data.batches import Rows, TrainingBatches, write_rows
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
    tests = {"test": pairs.select(range(5, 19)), "other": pairs.select(range(3))}
    corpus = Corpus(pairs, pairs.select(range(7)), tests)
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


def test_overfitting_reads_one_batch_in_place_of_every_split(data: TranslationData) -> None:
    one = TranslationData(data.corpus, data.vocabulary, max_tokens=211, seed=3, overfit=True)
    chosen = data.train_dataloader().epoch(0).batches[0].tolist()
    pairs, src = data.pairs("train").select(chosen)[:], data.ids("train")[0]
    assert 1 < len(chosen) < len(src) and len(one.train_dataloader().epoch(0).batches) == 1
    for name in ("train", "valid", "test", "other"):
        assert one.pairs(name)[:] == pairs
        assert lists(one.ids(name))[0] == [src[row].tolist() for row in chosen]


@pytest.fixture
def corpus(pairs: Dataset) -> Corpus:
    return Corpus(pairs, pairs.select(range(7)), {})


@pytest.mark.parametrize("plain", [False, True])
def test_stored_ids_are_those_in_memory(corpus: Corpus, vocabulary: Vocabulary, tmp_path: Path, plain: bool) -> None:
    vocabulary = Vocabulary.train(corpus.train, 290, "bpe", plain, plain_source=plain)  # `joint` is `plain` too
    memory = TranslationData(corpus, vocabulary, 211, seed=3)
    for _ in range(2):  # the first time, texts are encoded; the second time, ids are read from the cache
        stored = TranslationData(corpus, vocabulary, 211, seed=3, cache_dir=tmp_path)
        assert lists(stored.ids("train")) == lists(memory.ids("train")) and len(list(tmp_path.iterdir())) == 2
        for one, other in zip(stored.ids("train"), memory.ids("train"), strict=True):
            assert one.values.dtype == one[3].dtype == np.uint16 and not one[3].flags.writeable
            assert one.lengths.tolist() == other.lengths.tolist()
            assert one.counts(307, len(one)).tolist() == np.bincount(other.values, minlength=307).tolist()
        assert stored.unigram_nll() == memory.unigram_nll()
        assert [batch.src.tolist() for batch, _ in zip(stored.train_dataloader(), range(5), strict=False)] == [
            batch.src.tolist() for batch, _ in zip(memory.train_dataloader(), range(5), strict=False)
        ]
    assert lists(stored.ids("valid")) == lists(memory.ids("valid")) and len(list(tmp_path.iterdir())) == 2
    TranslationData(corpus, vocabulary, 211, seed=3, overfit=True, cache_dir=tmp_path).ids("train")
    assert len(list(tmp_path.iterdir())) == 2  # with overfit=True, ids are not stored


@given(
    expected=st.lists(st.lists(st.integers(0, 2**17), min_size=1, max_size=3), min_size=1, max_size=23), size=st.integers(1, 9)
)
def test_rows_are_read_as_they_were_written(expected: Ids, size: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path, dtype = tmp_path_factory.mktemp("rows") / "x.ids", np.dtype(np.uint32)
    with path.open("wb") as file:
        write_rows(file, (expected[i : i + size] for i in range(0, len(expected), size)), len(expected), dtype)
    rows = Rows.stored(path, len(expected), dtype)
    assert [row.tolist() for row in rows] == expected and rows.lengths.tolist() == list(map(len, expected))
    assert path.stat().st_size == 8 * len(expected) + 4 * sum(map(len, expected))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says what is mapped")
def test_training_reads_stored_ids_without_keeping_them_in_memory(tmp_path: Path) -> None:
    def memory() -> int:
        return int(re.findall(r"Rss: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text())[0])

    sides = []
    for name in ("src", "tgt"):
        with (tmp_path / name).open("wb") as file:
            write_rows(file, ([[5] * 997] for _ in range(10007)), 10007, np.dtype(np.uint32))
        sides.append(Rows.stored(tmp_path / name, 10007, np.dtype(np.uint32)))
    batches = iter(TrainingBatches(*sides, 1000, seed=3))
    next(batches)
    before = memory()
    assert {batch.src.shape for batch in islice(batches, 10006)} == {(1, 997)}
    assert memory() - before < 16_000  # the two files have 80 MB
    assert str(tmp_path) not in Path("/proc/self/smaps").read_text()


def test_ids_of_another_text_or_tokenizer_are_not_used(corpus: Corpus, vocabulary: Vocabulary, tmp_path: Path) -> None:
    other = Corpus(corpus.train.select(range(3, 31)), corpus.valid, {})
    for text, pieces in itertools.product((corpus, other), (290, 291)):
        data = TranslationData(text, Vocabulary.train(corpus.train, pieces, "bpe", True), 211, seed=3, cache_dir=tmp_path)
        assert lists(data.ids("train"))[0] == data.vocabulary.encode_src(text.train["src"][:])
    assert len(list(tmp_path.iterdir())) == 8


def test_damaged_ids_are_encoded_again(corpus: Corpus, vocabulary: Vocabulary, tmp_path: Path) -> None:
    def ids() -> tuple[Ids, Ids]:
        return lists(TranslationData(corpus, vocabulary, 211, seed=3, cache_dir=tmp_path).ids("train"))

    expected, content = ids(), {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path, good in content.items():
        for damaged in (b"", good[:101], good + b"\0", bytes([*good[:-3], good[-3] ^ 1, *good[-2:]])):
            path.write_bytes(damaged)
            assert ids() == expected
            assert {path: path.read_bytes() for path in tmp_path.iterdir()} == content


# Prints "ready" and waits for a line of input, so that two processes can start encoding at the same time.
PROGRAM = """
import sys
from pathlib import Path
from datasets import Dataset
from entente.data.corpora import Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
pairs = Dataset.from_dict({"src": [f"Le {i} " * 7 for i in range(10_007)], "tgt": [f"The {i} " * 5 for i in range(10_007)]})
print("ready", flush=True)
input()
vocabulary = Vocabulary.train(pairs, 290, "bpe", True, Path(sys.argv[1]) / "tokenizer")
data = TranslationData(Corpus(pairs, pairs, {}), vocabulary, 211, 3, cache_dir=Path(sys.argv[1]) / "ids")
print(*(hash(b''.join(row.tobytes() for row in rows) + rows.lengths.tobytes()) for rows in data.ids("train")))
"""


@pytest.mark.slow
def test_processes_that_prepare_the_same_text_at_once_share_their_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    both = [subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True, env=environment) for _ in range(2)]
    assert [process.stdout.readline() for process in both if process.stdout] == ["ready\n"] * 2
    for process in both:
        print(file=process.stdin, flush=True)
    ended = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert ended[0][0] == ended[1][0] and len(ended[0][0].split()) == 2
    assert sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file()) == [".ids", ".ids", ".model"]
