"""Held-out parts of a corpus that has none: chosen by chance, and no sentence of either side stands in two parts."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from entente.data.files import Pair


def same(sentence: str) -> str:
    """Equal for sentences that differ only in case or in white space: to have met one is to have met the other."""
    return " ".join(sentence.casefold().split())


def hold_out(pairs: Sequence[Pair], sizes: Mapping[str, int], seed: int) -> dict[str, list[Pair]]:
    """`train` and the parts of `sizes`, which have at most that many pairs; each in the corpus's order.

    Pairs that share a sentence, directly or by way of others, stay together. Such groups are dealt in an order that a hash of
    the seed and their text gives: the same on every machine, whatever the order of the lines. A group too big for what is left
    of the parts goes to train.
    """
    part_of: dict[int, str] = {}
    left = dict(sizes)
    for _, rows in sorted((_chance(seed, name), rows) for name, rows in _groups(pairs)):
        part = next((part for part, room in left.items() if len(rows) <= room), None)
        if part is not None:
            left[part] -= len(rows)
            part_of |= dict.fromkeys(rows, part)
    parts: dict[str, list[Pair]] = {part: [] for part in ("train", *sizes)}
    for row, pair in enumerate(pairs):
        parts[part_of.get(row, "train")].append(pair)
    return parts


def shared(train: Iterable[Pair], parts: Mapping[str, Iterable[Pair]]) -> dict[str, int]:
    """How many pairs of each part have a sentence, on either side, that stands in train."""
    met = {same(sentence) for pair in train for sentence in pair}
    return {part: sum(any(same(sentence) in met for sentence in pair) for pair in pairs) for part, pairs in parts.items()}


def _chance(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def _groups(pairs: Sequence[Pair]) -> Iterable[tuple[str, list[int]]]:
    """The connected components of the graph whose nodes are sentences and whose edges are pairs: the least sentence of each,
    by which it is known, and its rows."""
    parent: dict[str, str] = {}  # a forest (union-find): sentences of one tree are in one component, its root is the least

    def root(node: str) -> str:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    keys = [(same(src), same(tgt)) for src, tgt in pairs]
    for src, tgt in keys:
        low, high = sorted((root(src), root(tgt)))
        parent[high] = low
    rows = defaultdict(list)
    for row, (src, _) in enumerate(keys):
        rows[root(src)].append(row)
    return rows.items()
