"""Text pairs in Arrow's memory, where a sentence takes its bytes and little more; Python's strings take three times that."""

import hashlib
import uuid
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

Pair = tuple[str, str]  # source, target

AT_ONCE = 10_000  # pairs that are Python's strings at a time, and a block
SCHEMA = pa.schema({"src": pa.string(), "tgt": pa.string()})
POOL = pa.system_memory_pool()  # the usual one keeps half as much again for itself


class Pairs(Collection[Pair]):
    """Pairs to go through again and again."""

    def __init__(self, blocks: list[pa.RecordBatch]) -> None:
        self._blocks = blocks

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> "Pairs":
        rest, blocks = iter(pairs), []
        while block := list(islice(rest, AT_ONCE)):
            sides = [pa.array(side, pa.string(), memory_pool=POOL) for side in zip(*block, strict=True)]
            blocks.append(pa.record_batch(sides, schema=SCHEMA))
        return cls(blocks)

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[Pair]:
        for block in self._blocks:
            src, tgt = block.columns
            yield from zip(src.to_pylist(), tgt.to_pylist(), strict=True)

    def __contains__(self, pair: object) -> bool:
        return any(pair == other for other in self)

    def chosen(self, mask: np.ndarray) -> "Pairs":
        """A copy of those at which `mask` (N,) is true."""
        return Pairs([_filtered(block, part) for block, part in zip(self._blocks, self._parts(mask), strict=True)])

    def keep(self, mask: np.ndarray) -> None:
        """Those alone at which `mask` (N,) is true; in place, block by block, since twice the text may be too much."""
        for i, part in enumerate(self._parts(mask)):
            self._blocks[i] = _filtered(self._blocks[i], part)

    def _parts(self, mask: np.ndarray) -> list[np.ndarray]:
        """Of each block."""
        return np.split(mask, np.cumsum([len(block) for block in self._blocks])[:-1]) if self._blocks else []

    def dataset(self) -> Dataset:
        """In the same memory. With a name by chance, or `datasets` would pickle all of it for a hash."""
        return Dataset(pa.Table.from_batches(self._blocks, SCHEMA), fingerprint=uuid.uuid4().hex)


def _filtered(block: pa.RecordBatch, mask: np.ndarray) -> pa.RecordBatch:
    if mask.all():
        return block
    return pa.record_batch([pc.filter(side, pa.array(mask), memory_pool=POOL) for side in block.columns], schema=SCHEMA)


def texts(pairs: Dataset, *sides: str) -> Iterator[list[str]]:
    """The sentences of one side, or of one and then the other, in blocks."""
    for side in sides:
        for block in pairs.with_format("arrow").iter(AT_ONCE):
            yield block[side].to_pylist()


def digest(pairs: Dataset, *sides: str) -> str:
    """SHA-256 of the sentences of the sides, in their order; no sentence holds a line end."""
    found = hashlib.sha256()
    for block in texts(pairs, *sides):
        found.update("".join(f"{text}\n" for text in block).encode())
    return found.hexdigest()
