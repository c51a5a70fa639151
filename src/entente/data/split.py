"""Held-out parts of a corpus that has none: chosen by chance, and no sentence of either side stands in two parts."""

import hashlib
from array import array
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from entente.data.pairs import Pair


def same(sentence: str) -> str:
    """Equal for sentences that differ only in case or in white space: to have met one is to have met the other."""
    return " ".join(sentence.casefold().split())


def hold_out(pairs: Collection[Pair], sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """`train` and the parts of `sizes`, which have at most that many pairs; for each, at which of the pairs it is true (N,).

    Pairs that share a sentence, directly or by way of others, stay together. Such groups are dealt in an order that a hash of
    the seed and their text gives: the same on every machine, whatever the order of the lines. A group too big for what is left
    of the parts goes to train.
    """
    group = _groups(pairs)
    count = np.bincount(group)
    names = ["train", *sizes]
    part_of = np.zeros(len(count), np.int8)  # an index of `names`
    left = dict(sizes)
    for g in np.argsort(_chances(pairs, group, count, seed), kind="stable"):
        if not any(left.values()):
            break
        part = next((part for part, room in left.items() if count[g] <= room), None)
        if part is not None:
            left[part] -= int(count[g])
            part_of[g] = names.index(part)
    return {name: part_of[group] == i for i, name in enumerate(names)}


def shared(train: Iterable[Pair], parts: Mapping[str, Collection[Pair]]) -> dict[str, int]:
    """How many pairs of each part have a sentence, on either side, that stands in train."""
    if not parts:
        return {}
    asked = {same(sentence) for pairs in parts.values() for pair in pairs for sentence in pair}  # train may be far larger
    met = {known for pair in train for sentence in pair if (known := same(sentence)) in asked}
    return {part: sum(any(same(sentence) in met for sentence in pair) for pair in pairs) for part, pairs in parts.items()}


def _chances(pairs: Iterable[Pair], group: np.ndarray, count: np.ndarray, seed: int) -> np.ndarray:
    """(G,) a number for each group, from a hash of the seed and the least of its sentences."""
    chances = np.zeros(len(count), np.uint64)
    least: dict[int, str] = {}  # of groups with more than one pair
    for pair, g in zip(pairs, group, strict=True):
        name = min(map(same, pair))
        if count[g] == 1:
            chances[g] = _number(f"{seed} {name}")
        else:
            least[g] = min(name, least.get(g, name))
    for g, name in least.items():
        chances[g] = _number(f"{seed} {name}")
    return chances


def _number(text: str) -> int:
    """The first 64 bits of its hash."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _groups(pairs: Collection[Pair]) -> np.ndarray:
    """The connected components of the graph whose nodes are sentences and whose edges are pairs: which of them, from 0 on, each
    pair is in (N,). Sentences are known by their hashes, since their text takes much memory."""
    numbers = (_number(same(sentence)) for pair in pairs for sentence in pair)
    node = np.fromiter(numbers, np.uint64, 2 * len(pairs))
    ordered = np.sort(node)
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])  # met more than once
    del ordered
    linked = _among(node, again).reshape(-1, 2).any(axis=1)  # the other pairs are components by themselves
    group = np.cumsum(~linked) - 1
    if not linked.any():
        return group
    known, edges = np.unique(node.reshape(-1, 2)[linked], return_inverse=True)
    edges = edges.reshape(-1, 2)
    parent = array("q", range(len(known)))  # a forest (union-find): nodes of one tree are in one component

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    for edge in edges:
        one, other = map(root, edge.tolist())
        parent[other] = one
    roots = np.fromiter((root(one) for one in edges[:, 0]), np.int64, len(edges))
    group[linked] = np.unique(roots, return_inverse=True)[1] + (~linked).sum()
    return group


def _among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Whether each is among the known ones, which are sorted; numpy's own `isin` sorts them all again."""
    if not len(known):
        return np.zeros(len(values), bool)
    return known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
