"""Sentence pairs in Arrow's memory, where a sentence takes its bytes and little more, a third of a Python string; and which of
them to hold out of training."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from entente.errors import InputError
from entente.process import memory

Pair = tuple[str, str]  # source, target

AT_ONCE = 10_000  # pairs in a block, and pairs that are Python strings at a time
LONGEST_BLOCK = 1 << 26  # characters of a block, which Python and Arrow hold at the same time for a moment
SCHEMA = pa.schema({"src": pa.string(), "tgt": pa.string()})
POOL = pa.system_memory_pool()  # Arrow's default pool keeps half as much again for itself


class Pairs:
    """The pairs read from `where` that have text on both sides, to iterate over any number of times. An InputError if they take
    more than half the memory of the machine, since token ids and the model take as much again."""

    def __init__(self, pairs: Iterable[Pair], where: str = "these pairs") -> None:
        self.where, self.read = where, 0
        blocks, size, most = list[pa.RecordBatch](), 0, memory() // 2
        for block in self._blocks(pairs):
            sides = [pa.array(side, pa.string(), memory_pool=POOL) for side in zip(*block, strict=True)]
            blocks.append(pa.record_batch(sides, schema=SCHEMA))
            size += blocks[-1].nbytes
            if size > most:
                raise InputError(
                    f"{where}: more text than half the memory of this machine holds ({most / 1e9:.1f} GB); give less of it"
                )
        self._table = pa.Table.from_batches(blocks, SCHEMA)
        self.empty = self.read - len(self)

    def _blocks(self, pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
        """The pairs with text, in blocks that fit in memory, however long their sentences are."""
        block, size = list[Pair](), 0
        for self.read, pair in enumerate(pairs, start=1):
            if all(pair):
                block.append(pair)
                size += len(pair[0]) + len(pair[1])
            if len(block) >= AT_ONCE or size > LONGEST_BLOCK:
                yield block
                block, size = [], 0
        if block:
            yield block

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Pair]:
        for block in self._table.to_batches():
            yield from zip(*(side.to_pylist() for side in block.columns), strict=True)

    def keep(self, mask: np.ndarray) -> None:
        """Drops the pairs at which `mask` (N,) is false. For a moment both are held, before there are ids or a model."""
        self._table = pc.filter(self._table, pa.array(mask), memory_pool=POOL)

    def dataset(self) -> Dataset:
        """The pairs in the same memory, with a random fingerprint: `datasets` would pickle all the text for one of its own. An
        InputError if there are none."""
        if not len(self):
            raise InputError(f"{self.where}: no sentence pair left after dropping empty and over-long ones")
        return Dataset(self._table, fingerprint=uuid.uuid4().hex)


def same(sentence: str) -> str:
    """Equal for sentences that differ only in case or in white space: to have met one is to have met the other."""
    return " ".join(sentence.casefold().split())


def hold_out(pairs: Iterable[Pair], sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """`train` and the parts of `sizes`, which have at most that many pairs; each as a mask of the pairs (N,).

    Pairs that share a sentence, directly or by way of others, stay together. Such groups are dealt in an order that a hash of
    the seed and their text gives: the same on every machine, whatever the order of the lines. A group too big for what is left
    of the parts goes to train.
    """
    group = _groups(pairs)
    count = np.bincount(group)
    part_of = np.zeros(len(count), np.int8)  # 0: train
    left = dict(enumerate(sizes.values(), start=1))
    for g in np.argsort(_order(pairs, group, count, seed), kind="stable"):
        if not any(left.values()):
            break
        if part := next((part for part, room in left.items() if count[g] <= room), 0):
            part_of[g] = part
            left[part] -= int(count[g])
    return {name: part_of[group] == part for part, name in enumerate(["train", *sizes])}


def shared(train: Iterable[Pair], parts: Mapping[str, Iterable[Pair]]) -> dict[str, int]:
    """How many pairs of each part have a sentence, on either side, that train has too."""
    if not parts:
        return {}
    asked = {same(sentence) for pairs in parts.values() for pair in pairs for sentence in pair}  # train may be far larger
    met = {known for pair in train for sentence in pair if (known := same(sentence)) in asked}
    return {part: sum(any(same(sentence) in met for sentence in pair) for pair in pairs) for part, pairs in parts.items()}


def _order(pairs: Iterable[Pair], group: np.ndarray, count: np.ndarray, seed: int) -> np.ndarray:
    """(G,) the number by which a group is sorted: a hash of the seed and the least of its sentences."""
    order, left = np.zeros(len(count), np.uint64), count.copy()
    least: dict[int, str] = {}  # of the groups that have pairs left
    for pair, g in zip(pairs, group, strict=True):
        name = min(map(same, pair))
        least[g] = min(name, least.get(g, name))
        left[g] -= 1
        if not left[g]:
            order[g] = _hash(f"{seed} {least.pop(g)}")
    return order


def _hash(text: str) -> int:
    """The first 64 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _groups(pairs: Iterable[Pair]) -> np.ndarray:
    """(N,) which group each pair is in, from 0 on: the connected components of the graph whose nodes are sentences and whose
    edges are pairs. Sentences are known by their hashes, since their text takes much memory."""
    hashes = np.fromiter((_hash(same(sentence)) for pair in pairs for sentence in pair), np.uint64)
    known = np.unique(hashes)
    src, tgt = np.searchsorted(known, hashes).reshape(-1, 2).T
    label = np.arange(len(known))  # of each sentence: a sentence of its component, in the end the same one for all of them
    del hashes, known
    while (label[src] != label[tgt]).any():
        np.minimum.at(label, label[src], label[tgt])
        np.minimum.at(label, label[tgt], label[src])
        label = label[label]
    number = np.cumsum(label == np.arange(len(label))) - 1
    return number[label[src]]
