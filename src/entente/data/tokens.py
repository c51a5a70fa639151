"""Token ids of a corpus, made once and kept in an Arrow file that is mapped into memory."""

import hashlib
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import sentencepiece
from datasets import Dataset, Features, Value

from entente.data.cache import cached
from entente.data.pairs import digest
from entente.data.tokenizer import Vocabulary

FORM = 1  # of the files; to be raised when what is written changes
AT_ONCE = 10_000  # pairs encoded together, and a block of the file
IDS = pa.list_(pa.int32())


class Rows:
    """N sentences' token ids, end to end in Arrow's memory; a row is a view of it, an int32 array that cannot be written to."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        blocks = [block for block in column.chunks if len(block)]
        self._offsets = [block.offsets.to_numpy() for block in blocks]
        self._values = [block.values.to_numpy() for block in blocks]
        self._starts = np.cumsum([0, *map(len, blocks)]).tolist()  # each block's first row
        self.lengths = np.concatenate([np.zeros(0, np.int64), *map(np.diff, self._offsets)])  # (N,)

    @classmethod
    def of(cls, ids: "Rows | Sequence[Sequence[int]]") -> "Rows":
        return ids if isinstance(ids, Rows) else cls(pa.chunked_array([pa.array(ids, IDS)]))

    def __len__(self) -> int:
        return len(self.lengths)

    def values(self) -> np.ndarray:
        """All ids, end to end."""
        return np.concatenate([np.zeros(0, np.int32), *(self[i] for i in range(len(self)))])

    def __getitem__(self, row: int) -> np.ndarray:
        row = range(len(self))[row]
        block = bisect_right(self._starts, row) - 1
        start, stop = self._offsets[block][row - self._starts[block] :][:2]
        return self._values[block][start:stop]


def tokenise(pairs: Dataset, vocabulary: Vocabulary, cache_dir: Path | None) -> tuple[Rows, Rows]:
    """Returns the ids of both sides of (src, tgt) text pairs, with their BOS and EOS; from `cache_dir` where they are there
    already (None: in memory)."""
    if cache_dir is None:
        return _sides(_encoded(pairs, vocabulary, keep_in_memory=True))
    models = [hashlib.sha256(tokenizer.model).hexdigest() for tokenizer in (vocabulary.src, vocabulary.tgt)]
    key = (FORM, sentencepiece.__version__, *models, digest(pairs, "src", "tgt"))  # everything that decides the ids

    def write(path: Path) -> None:
        _encoded(pairs, vocabulary, cache_file_name=str(path))

    return _sides(Dataset.from_file(str(cached(cache_dir, key, ".arrow", write, "token ids"))))


def _encoded(pairs: Dataset, vocabulary: Vocabulary, **where: Any) -> Dataset:
    def encode(texts: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"src": vocabulary.encode_src(texts["src"]), "tgt": vocabulary.encode_tgt(texts["tgt"])}

    # In parallel by SentencePiece's own threads, not by `num_proc`: a process forked from one with torch's threads can hang.
    with _progress(sys.stderr.isatty()):
        return pairs.map(
            encode,
            batched=True,
            batch_size=AT_ONCE,
            writer_batch_size=AT_ONCE,
            load_from_cache_file=False,
            features=Features({side: datasets.Sequence(Value("int32")) for side in ("src", "tgt")}),
            new_fingerprint="tokens",  # or datasets would pickle and hash the vocabulary; the file's name is our hash
            desc="tokens",
            **where,
        )


def _sides(ids: Dataset) -> tuple[Rows, Rows]:
    table = ids.with_format("arrow")[:]
    return Rows(table["src"]), Rows(table["tgt"])


@contextmanager
def _progress(shown: bool) -> Iterator[None]:
    """Hides the progress bars of datasets, a setting of the whole process, unless they are wanted."""
    hide = not shown and not datasets.are_progress_bars_disabled()
    if hide:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if hide:
            datasets.enable_progress_bars()
