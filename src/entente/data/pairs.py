"""Stores sentence pairs in Arrow files, and selects pairs to hold out."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from entente.console import show_progress, show_share
from entente.files import open_atomic

Pair = tuple[str, str]  # source, target
NumberedPair = tuple[int, str, str]  # the number of its line or row, source, target

BLOCK = 10_000  # pairs that are Python strings at a time
SCHEMA = pa.schema({"src": pa.string(), "tgt": pa.string()})


class Pairs:
    """Sentence pairs, stored in the Arrow file `path`. `where` names their source in messages."""

    def __init__(self, pairs: Iterable[Pair], path: Path, where: str) -> None:
        self.where = where
        rows, text, stored = iter(pairs), hashlib.sha256(), 0
        with open_atomic(path) as file, pa.ipc.new_stream(file, SCHEMA) as writer:
            while block := [*islice(rows, BLOCK)]:
                text.update("".join(f"{src}\n{tgt}\n" for src, tgt in block).encode())
                src, tgt = zip(*block, strict=True)
                writer.write_batch(pa.record_batch({"src": src, "tgt": tgt}, SCHEMA))
                stored += len(block)
                show_progress(f"{stored:,} pairs of {where}")
        self.digest = text.hexdigest()  # SHA-256 of all sentences, one per line
        self._table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Pair]:
        blocks = self._table.to_batches()
        for block in show_share(blocks, len(blocks), self.where):
            yield from zip(*(side.to_pylist() for side in block.columns), strict=True)


def match_key(sentence: str) -> str:
    """Returns a key that is equal for sentences that differ only in case or white space; these count as the same sentence."""
    return " ".join(sentence.casefold().split())


def hold_out(pairs: Iterable[Pair], sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Splits pairs into `train` and parts with the names and maximum sizes in `sizes`. Returns a mask (N,) for each of them.

    Pairs that share a sentence, directly or through other pairs, form a group, which stays together. The groups are assigned in
    the order of a hash of seed and text, not of their lines. A group that does not fit into any part goes to train.
    """
    group = _groups(pairs)
    count = np.bincount(group)
    part_of = np.zeros(len(count), np.int8)  # 0: train
    left = [0, *sizes.values()]  # room in each part
    for g in np.argsort(_order(pairs, group, count, seed), kind="stable"):
        if part := next((part for part, room in enumerate(left) if count[g] <= room), 0):
            part_of[g] = part
            left[part] -= int(count[g])
        elif not any(left):
            break
    return {name: part_of[group] == part for part, name in enumerate(["train", *sizes])}


def _order(pairs: Iterable[Pair], group: np.ndarray, count: np.ndarray, seed: int) -> np.ndarray:
    """Returns the sort key of each group, (G,): a hash of the seed and the group's alphabetically first sentence."""
    order, left = np.zeros(len(count), np.uint64), count.copy()
    first: dict[int, str] = {}  # the alphabetically first sentence so far, by group, for groups with pairs left
    for pair, g in zip(pairs, group, strict=True):
        name = min(map(match_key, pair))
        first[g] = min(name, first.get(g, name))
        left[g] -= 1
        if not left[g]:
            order[g] = _hash(f"{seed} {first.pop(g)}")
    return order


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _groups(pairs: Iterable[Pair]) -> np.ndarray:
    """Returns the index of each pair's group, (N,): a connected component of the graph of sentences, with pairs as edges."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    hashes = np.fromiter((_hash(match_key(sentence)) for pair in pairs for sentence in pair), np.uint64)
    sentences, ends = np.unique(hashes, return_inverse=True)
    src, tgt = ends.reshape(-1, 2).T
    graph = coo_array((np.ones(len(src), bool), (src, tgt)), (len(sentences), len(sentences)))
    return connected_components(graph)[1][src]
