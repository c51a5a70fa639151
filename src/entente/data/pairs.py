"""Stores sentence pairs on disk in memory-mapped Arrow tables, and selects pairs to hold out."""

import hashlib
import mmap
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from entente.console.log import show_progress, show_share
from entente.errors import InputError
from entente.files import writable

if TYPE_CHECKING:
    from datasets import Dataset

Pair = tuple[str, str]  # source, target

MAX_BLOCK_PAIRS = 10_000  # only one block at a time is held as Python strings
LONGEST_BLOCK = 1 << 26  # characters per block; each block is briefly in memory twice, as Python strings and in Arrow
ARROW_SCHEMA = pa.schema({"src": pa.string(), "tgt": pa.string()})
POOL = pa.system_memory_pool()  # Arrow's default pool takes 1.5 times as much memory
MAPPED = WeakSet[mmap.mmap]()  # the mapped files of all Pairs in use


class Pairs:
    """The given pairs that have text on both sides. They can be iterated over repeatedly, and are stored in an unnamed
    temporary file, which is deleted when it is no longer used. `where` names the source of the pairs in messages. Raises
    InputError if the file would take more than half of the free disk space."""

    def __init__(self, pairs: Iterable[Pair], where: str = "these pairs") -> None:
        self.where, self.read = where, 0
        self._table = self._store(
            pa.record_batch(
                [pa.array(side, pa.string(), memory_pool=POOL) for side in zip(*block, strict=True)], schema=ARROW_SCHEMA
            )
            for block in self._blocks(pairs)
        )
        self.empty = self.read - len(self)

    def _store(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Writes the batches to a temporary file and returns them as a memory-mapped table."""
        with writable(f"{self.where}: a temporary copy", "TMPDIR"), tempfile.TemporaryFile() as file:
            most = shutil.disk_usage(folder := tempfile.gettempdir()).free // 2
            with pa.ipc.new_stream(file, ARROW_SCHEMA) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    if file.tell() > most:
                        raise InputError(
                            f"{self.where}: more text than fits in half of the free space of {folder} ({most / 1e9:.1f} GB); "
                            "give less text, or set TMPDIR to another folder"
                        )
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        MAPPED.add(mapped)
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()

    def _blocks(self, pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
        """Yields the pairs with text on both sides, in blocks of limited size, so that long sentences fit in memory."""
        block, size = list[Pair](), 0
        for self.read, pair in enumerate(pairs, start=1):
            if all(pair):
                block.append(pair)
                size += len(pair[0]) + len(pair[1])
            if self.read % 1000 == 0:
                show_progress(f"{self.read:,} pairs of {self.where}")
            if len(block) >= MAX_BLOCK_PAIRS or size > LONGEST_BLOCK:
                yield block
                block, size = [], 0
        if block:
            yield block

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Pair]:
        blocks = self._table.to_batches()
        for block in show_share(blocks, len(blocks), self.where):
            yield from zip(*(side.to_pylist() for side in block.columns), strict=True)

    def keep(self, mask: np.ndarray) -> None:
        """Drops the pairs for which `mask` (N,) is false. For a short time, the old and the new table are both on disk."""
        if not mask.all():
            batches = self._table.to_batches()
            parts = np.split(mask, np.cumsum([len(batch) for batch in batches])[:-1])
            self._table = self._store(batch.filter(pa.array(part)) for batch, part in zip(batches, parts, strict=True))

    def dataset(self) -> "Dataset":
        """Returns the pairs as a Dataset, without a copy. Its fingerprint is random, because `datasets` would pickle all the
        text to compute one. Raises InputError if there are no pairs."""
        if not len(self):
            raise InputError(f"{self.where}: no sentence pair is left after dropping empty, over-long and uneven ones")
        from datasets import Dataset  # imported here: it takes half a second, and translation does not need it

        return Dataset(self._table, fingerprint=uuid.uuid4().hex)


def release_pages() -> None:
    """Releases the memory that holds the text of all pairs. Text that is needed later is read from its file again."""
    for mapped in MAPPED:
        if hasattr(mapped, "madvise"):  # not on Windows
            mapped.madvise(mmap.MADV_DONTNEED)


def match_key(sentence: str) -> str:
    """Returns a key that is equal for sentences that differ only in case or white space; these count as the same sentence."""
    return " ".join(sentence.casefold().split())


def hold_out(pairs: Iterable[Pair], sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Splits pairs into `train` and parts with the names and maximum sizes in `sizes`. Returns a mask (N,) for each of them.

    Pairs that share a sentence, directly or through other pairs, form a group, which stays together. The groups are assigned in
    the order of a hash of seed and text, so the result depends neither on the machine nor on the order of the lines. A group
    that does not fit into any part goes to train.
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


def count_overlap(train: Iterable[Pair], parts: Mapping[str, Iterable[Pair]]) -> dict[str, int]:
    """Returns how many pairs of each part have a sentence, on either side, that is also in train."""
    if not parts:
        return {}
    # We collect the keys of the parts only, since train may be far larger.
    asked = {match_key(sentence) for pairs in parts.values() for pair in pairs for sentence in pair}
    met = {known for pair in train for sentence in pair if (known := match_key(sentence)) in asked}
    return {part: sum(any(match_key(sentence) in met for sentence in pair) for pair in pairs) for part, pairs in parts.items()}


def _order(pairs: Iterable[Pair], group: np.ndarray, count: np.ndarray, seed: int) -> np.ndarray:
    """Returns the sort key of each group, (G,): a hash of the seed and the group's alphabetically first sentence."""
    order, left = np.zeros(len(count), np.uint64), count.copy()
    least: dict[int, str] = {}  # the alphabetically first sentence so far, by group, for groups with pairs left
    for pair, g in zip(pairs, group, strict=True):
        name = min(map(match_key, pair))
        least[g] = min(name, least.get(g, name))
        left[g] -= 1
        if not left[g]:
            order[g] = _hash(f"{seed} {least.pop(g)}")
    return order


def _hash(text: str) -> int:
    """Returns the first 64 bits of the SHA-256 of a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _groups(pairs: Iterable[Pair]) -> np.ndarray:
    """Returns the index of each pair's group, (N,). The groups are the connected components of the graph whose nodes are the
    sentences and whose edges are the pairs. Sentences are represented by hashes, since their text would take much memory."""
    hashes = np.fromiter((_hash(match_key(sentence)) for pair in pairs for sentence in pair), np.uint64)
    known = np.unique(hashes)
    src, tgt = np.searchsorted(known, hashes).reshape(-1, 2).T
    label = np.arange(len(known))  # (sentences,): the lowest index found so far in each sentence's component
    del hashes, known
    while (label[src] != label[tgt]).any():
        np.minimum.at(label, label[src], label[tgt])
        np.minimum.at(label, label[tgt], label[src])
        label = label[label]
    number = np.cumsum(label == np.arange(len(label))) - 1
    return number[label[src]]
