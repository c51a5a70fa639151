"""Text pairs in Arrow's memory, where a sentence takes its bytes and little more; Python's strings take three times that."""

import hashlib
import os
import uuid
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from entente.errors import InputError

Pair = tuple[str, str]  # source, target

AT_ONCE = 10_000  # pairs that are Python's strings at a time, and a block
LONGEST_BLOCK = 1 << 26  # characters of a block; Python and Arrow hold it at the same time for a moment
SCHEMA = pa.schema({"src": pa.string(), "tgt": pa.string()})
POOL = pa.system_memory_pool()  # the usual one keeps half as much again for itself


class Pairs(Collection[Pair]):
    """Pairs to go through again and again."""

    def __init__(self, blocks: list[pa.RecordBatch]) -> None:
        self._blocks = blocks

    @classmethod
    def of(cls, pairs: Iterable[Pair], where: str = "these pairs") -> "Pairs":
        """An InputError that says where they are from if they take more memory than text may."""
        blocks, held, most = [], 0, most_text()
        for block in _blocks(pairs):
            sides = [pa.array(side, pa.string(), memory_pool=POOL) for side in zip(*block, strict=True)]
            blocks.append(pa.record_batch(sides, schema=SCHEMA))
            held += blocks[-1].nbytes
            if held > most:
                raise InputError(
                    f"{where}: more text than half the memory of this machine holds ({most / 1e9:.1f} GB); give less of it"
                )
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


def _blocks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Pairs in blocks that are no longer than memory allows, however long their sentences are."""
    rest, block, size = iter(pairs), list[Pair](), 0
    while some := list(islice(rest, min(AT_ONCE, 20))):
        block += some
        size += sum(map(len, chain.from_iterable(some)))
        if len(block) >= AT_ONCE or size > LONGEST_BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def most_text() -> int:
    """Bytes of text that are read at most: token ids and the model take as much again."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


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
