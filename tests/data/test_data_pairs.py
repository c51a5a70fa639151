"""Tests that pairs are stored unchanged in Arrow, and that a corpus is never held all at once as Python strings."""

import gc
import hashlib
import random
import shutil
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entente.data import corpora, pairs, tokenizer
from entente.data.corpora import files
from entente.data.files import Columns, Pair, read_pairs
from entente.data.pairs import Pairs
from entente.data.tokenizer import Tokenizer, Vocabulary, digest, texts
from entente.errors import InputError

sentence = st.text("aé œ😀\u2028", max_size=5)
rows = st.lists(st.tuples(st.tuples(sentence, sentence), st.booleans()), max_size=23)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MAX_BLOCK_PAIRS", 7)
    monkeypatch.setattr(tokenizer, "MAX_BLOCK_PAIRS", 7)


@given(rows=rows)
def test_pairs_with_text_are_stored_in_order(rows: list[tuple[Pair, bool]]) -> None:
    expected = [pair for pair, _ in rows if all(pair)]
    made = Pairs(pair for pair, _ in rows)
    assert list(made) == list(made) == expected and len(made) == len(expected)
    assert (made.read, made.empty) == (len(rows), len(rows) - len(expected))
    if expected:
        assert made.dataset().to_dict() == {"src": [src for src, _ in expected], "tgt": [tgt for _, tgt in expected]}

    mask = np.array([kept for pair, kept in rows if all(pair)], bool)
    kept = [pair for pair, kept in rows if kept and all(pair)]
    made.keep(mask)
    assert list(made) == kept and len(made) == len(kept)
    if not kept:
        return
    dataset = made.dataset()
    lines = [*dataset["tgt"], *dataset["src"]]
    assert [text for block in texts(dataset, "tgt", "src") for text in block] == lines
    assert digest(dataset, "tgt", "src") == hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def test_a_corpus_is_never_held_as_python_strings_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MAX_BLOCK_PAIRS", 101)
    monkeypatch.setattr(tokenizer, "MAX_BLOCK_PAIRS", 101)
    monkeypatch.setattr(tokenizer, "SAMPLE", 503)
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefgé", k=11)) for _ in range(997)]
    lines = [" ".join(generator.choices(words, k=17)) for _ in range(3001)]
    for side in ("fr", "en"):
        (tmp_path / f"train.{side}").write_text("".join(f"{side} {line}\n" for line in lines), encoding="utf-8")
    given = {"src": "train.fr", "tgt": "train.en"}
    tracemalloc.start()  # counts memory allocated by Python and NumPy, but not by Arrow
    try:
        corpus = files(root=str(tmp_path), train=given, split={"valid": 101, "test": 103, "seed": 1})
        Vocabulary.train(corpus.train, 400, "bpe", True, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(corpus.train) == 3001 - 101 - 103
    assert peak < 0.3 * 2 * sum(map(len, lines))


def test_a_tokenizer_learns_from_a_sample_of_a_large_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[list[str]] = []
    train = Tokenizer.train

    def seen(lines: list[str], vocab_size: int, type: str) -> Tokenizer:
        learned.append(list(lines))
        return train(learned[-1], vocab_size, type)

    monkeypatch.setattr(Tokenizer, "train", seen)
    monkeypatch.setattr(tokenizer, "SAMPLE", 20)
    corpus = Pairs((f"phrase {i}", f"sentence {i}") for i in range(29)).dataset()
    Vocabulary.train(corpus, 290, "bpe", True, tmp_path)
    Vocabulary.train(corpus, 290, "bpe", False, tmp_path)
    both = [*corpus["src"], *corpus["tgt"]]
    assert learned == [both[::3], corpus["src"][::2], corpus["tgt"][::2]]

    monkeypatch.setattr(tokenizer, "SAMPLE", 58)  # the number of lines, so that all lines are used
    Vocabulary.train(corpus, 290, "bpe", True, tmp_path)
    assert learned[3:] == [both]


def test_pairs_are_not_in_memory_but_in_files_without_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pairs, "MAX_BLOCK_PAIRS", 211)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()
    before = pa.total_allocated_bytes() + pairs.POOL.bytes_allocated()
    made = Pairs((f"phrase {i} " * 31, f"sentence {i} " * 31) for i in range(1009))
    held = corpora._take_held_out(made, {"valid": 101, "test": 0, "seed": 1}, with_test=True)
    assert len(held["valid"]) == 101 and len(made) == 1009 - 101
    assert pa.total_allocated_bytes() + pairs.POOL.bytes_allocated() < before + 0.01 * made.dataset().data.nbytes
    assert [*tmp_path.iterdir()] == []


def give_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Makes the disk appear to have `free` bytes of free space."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))


def test_text_that_needs_more_than_half_of_the_disk_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MAX_BLOCK_PAIRS", 211)  # several blocks, each of which adds overhead to the file
    give_disk(monkeypatch, 122_880)
    fits = [("phrase", "sentence")] * 2003
    assert len(Pairs(fits)) == len(fits)  # about 50 kB
    with pytest.raises(InputError, match=r"more text than fits in half of the free space of .+ \(0\.0 GB\); give less text"):
        Pairs(fits * 2)
    give_disk(monkeypatch, 245_760)
    assert len(Pairs(fits * 2)) == 2 * len(fits)


def test_a_few_bytes_of_parquet_do_not_fill_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_disk(monkeypatch, 20_480_000)
    monkeypatch.setattr(pairs, "MAX_BLOCK_PAIRS", 10_000)  # large, so that only LONGEST_BLOCK ends a block
    monkeypatch.setattr(pairs, "LONGEST_BLOCK", 1 << 23)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 101, pa.int32()), pa.array(["x" * 499_979]))
    table = pa.table({"fr": repeated.cast(pa.string()), "en": ["y"] * 101})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 10_000
    read = 0

    def counted() -> Iterator[Pair]:
        nonlocal read
        for pair in read_pairs(tmp_path / "x.parquet", Columns(("fr", "en"))):
            read += 1
            yield pair

    with pytest.raises(InputError, match="more text than fits in half of the free space"):
        Pairs(counted())
    assert read < 50
