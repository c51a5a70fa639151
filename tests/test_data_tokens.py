"""Token ids made once: the same from the disk as from the vocabulary, whatever becomes of the file."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from entente.data import tokenizer
from entente.data.corpora import Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import Rows, Vocabulary, tokenise
from entente.errors import InputError

Ids = list[list[int]]


def lists(sides: tuple[Rows, Rows]) -> tuple[Ids, Ids]:
    one, other = ([row.tolist() for row in rows] for rows in sides)
    return one, other


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "AT_ONCE", 17)


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    src = [f"Le numéro {i} " + "est là " * (i % 7) for i in range(101)]
    return Dataset.from_dict({"src": src, "tgt": [text.replace("numéro", "number") for text in src]})


@pytest.fixture(scope="module")
def vocabulary(pairs: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return Vocabulary.train(pairs, 290, "bpe", True, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def expected(pairs: Dataset, vocabulary: Vocabulary) -> tuple[Ids, Ids]:
    return vocabulary.encode_src(pairs["src"][:]), vocabulary.encode_tgt(pairs["tgt"][:])


@given(
    blocks=st.lists(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=3), max_size=5), max_size=5), skip=st.integers(0, 3)
)
def test_rows_are_those_of_all_blocks(blocks: list[Ids], skip: int) -> None:
    rows = Rows(pa.chunked_array([pa.array(block, tokenizer.IDS) for block in blocks], tokenizer.IDS).slice(skip))
    expected = [row for block in blocks for row in block][skip:]
    assert [row.tolist() for row in rows] == expected
    assert [rows[i - len(expected)].tolist() for i in range(len(expected))] == expected
    assert rows.lengths.tolist() == list(map(len, expected)) and len(rows) == len(expected)
    with pytest.raises(IndexError):
        rows[len(expected)]
    assert Rows.of(rows) is rows
    assert [row.tolist() for row in Rows.of(expected)] == expected


def test_ids_are_the_same_in_memory_made_and_found(
    pairs: Dataset, vocabulary: Vocabulary, expected: tuple[Ids, Ids], tmp_path: Path
) -> None:
    folder = tmp_path / "not" / "yet"
    assert lists(tokenise(pairs, vocabulary, None)) == expected
    assert lists(tokenise(pairs, vocabulary, folder)) == expected
    [file] = folder.iterdir()
    before = file.stat()
    assert lists(tokenise(pairs, vocabulary, folder)) == expected
    [file] = folder.iterdir()
    assert file.stat() == before  # found, not made again


def test_ids_found_are_read_where_they_lie(vocabulary: Vocabulary, tmp_path: Path) -> None:
    many = Dataset.from_dict({"src": ["été " * 97] * 1009, "tgt": ["summer"] * 1009})
    size = sum(map(len, tokenise(many, vocabulary, tmp_path)[0])) * 4
    before = pa.total_allocated_bytes()
    src, _ = tokenise(many, vocabulary, tmp_path)
    assert pa.total_allocated_bytes() - before < size / 13
    row = src[1003]
    assert row.dtype == np.int32 and not row.flags.owndata and not row.flags.writeable


def test_what_decides_the_ids_decides_the_file(pairs: Dataset, vocabulary: Vocabulary, tmp_path: Path) -> None:
    other_text = pairs.map(lambda pair: {"tgt": pair["tgt"] + "."})
    other_pieces = Vocabulary.train(pairs, 286, "bpe", True, tmp_path / "tokenizer")
    swapped = Vocabulary(vocabulary.src, other_pieces.tgt, False)
    for made, (some, what) in enumerate(
        [
            (pairs, vocabulary),
            (other_text, vocabulary),
            (pairs, other_pieces),
            (pairs, swapped),
            (pairs.select(range(97)), vocabulary),
        ]
    ):
        assert len(list((tmp_path / "tokens").glob("*.arrow"))) == made
        ids = lists(tokenise(some, what, tmp_path / "tokens"))
        assert ids == (what.encode_src(some["src"][:]), what.encode_tgt(some["tgt"][:]))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut in the middle": lambda data: data[: len(data) // 2],
    "cut by a block": lambda data: data[: data.rindex(b"\xff\xff\xff\xff", 0, -16)],
    "another id": lambda data: data[:-2003] + bytes([data[-2003] ^ 1]) + data[-2002:],
    "longer": lambda data: data + b"\0",
    "other": lambda data: b"no Arrow",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_again(
    pairs: Dataset, vocabulary: Vocabulary, expected: tuple[Ids, Ids], tmp_path: Path, damage: str
) -> None:
    tokenise(pairs, vocabulary, tmp_path)
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(DAMAGE[damage](whole))
    assert lists(tokenise(pairs, vocabulary, tmp_path)) == expected
    assert file.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [file]


def test_several_may_make_one_file_at_once(
    pairs: Dataset, vocabulary: Vocabulary, expected: tuple[Ids, Ids], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(5) as pool:
        made = list(pool.map(lambda _: lists(tokenise(pairs, vocabulary, tmp_path)), range(11)))
    assert made == [expected] * 11
    [file] = tmp_path.iterdir()
    assert file.suffix == ".arrow"


def test_a_folder_that_cannot_be_is_said(pairs: Dataset, vocabulary: Vocabulary, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"the token ids in \S+file/x: cannot be written \(.+\); give another output_dir$"):
        tokenise(pairs, vocabulary, tmp_path / "file" / "x")


def test_progress_is_shown_on_terminals_only(pairs: Dataset, vocabulary: Vocabulary, capfd: pytest.CaptureFixture[str]) -> None:
    shown = not datasets.are_progress_bars_disabled()
    tokenise(pairs, vocabulary, None)
    assert capfd.readouterr().err == ""
    assert shown == (not datasets.are_progress_bars_disabled())


def test_data_are_the_same_with_and_without_a_cache(
    pairs: Dataset, vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = Corpus("numbers", pairs, pairs.select(range(7)), {"test": pairs.select(range(5, 19))})
    seen = []
    with caplog.at_level(logging.WARNING):
        for cache_dir in (None, tmp_path, tmp_path):
            data = TranslationData(corpus, vocabulary, max_tokens=211, seed=3, eval_max_tokens=97, cache_dir=cache_dir)
            loaders = [data.evaluation(split) for split in ("valid", "test")]
            batches = [data.train_dataloader().batch(rows) for n in (0, 1) for rows in data.train_dataloader().epoch(n)]
            batches += [batch for loader in loaders for batch in loader]
            seen.append([[part.tolist() for part in (batch.src, batch.tgt, batch.index)] for batch in batches])
    assert seen[0] == seen[1] == seen[2]
    assert caplog.records == []
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"] * 3
