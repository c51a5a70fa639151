"""Attention as word alignment: which links it makes, and how far they are from gold links (Och & Ney 2003).

Pieces are merged to words, and each target word is linked to the source word with the largest weight, or to none if that is the
end symbol. Weights are taken at the step that *produces* the word, or at the next one, which *reads* it and which Chen et al.
2020 found better in a Transformer. A word gets at most one link, so gold with several links per word cannot be matched
fully; the oracle says how much can.

Shapes: W source words, E target words, L layers, H heads; G = H + 1, the heads and their mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from entente.attention.record import AttentionMap
from entente.attention.words import Words, merged
from entente.data.alignments import Gold, Link

Step = Literal["produced", "read"]
STEPS: tuple[Step, ...] = get_args(Step)
NO_LINK = -1


class Agreement(NamedTuple):
    """How links A agree with sure gold links S and possible ones P: precision |A and P| / |A|, recall |A and S| / |S|, and the
    alignment error rate, 1 - (|A and S| + |A and P|) / (|A| + |S|); each 0 to 1."""

    precision: float
    recall: float
    aer: float


def agreement(made: int, in_possible: int, in_sure: int, sure: int) -> Agreement:
    """The agreement for these numbers of links: made, made and possible, made and sure, sure in the gold."""
    return Agreement(
        in_possible / made if made else 1.0,
        in_sure / sure if sure else 1.0,
        1 - (in_possible + in_sure) / (made + sure) if made + sure else 0.0,
    )


def links_agreement(sentences: Iterable[tuple[Iterable[Link], Gold]]) -> Agreement:
    """The agreement of the links of any system, over all sentences."""
    made = in_possible = in_sure = sure = 0
    for links, gold in sentences:
        distinct = set(links)
        made += len(distinct)
        in_possible += len(distinct & gold.possible)
        in_sure += len(distinct & gold.sure)
        sure += len(gold.sure)
    return agreement(made, in_possible, in_sure, sure)


def oracle_links(gold: Gold) -> list[Link]:
    """The best links with at most one per target word: a sure one if the word has any, else a possible one, else none. Each
    adds to |A and S| + |A and P| at least as much as to |A|, so no other choice has a lower error rate."""
    best: dict[int, Link] = {j: (i, j) for i, j in sorted(gold.possible)}
    best.update({j: (i, j) for i, j in sorted(gold.sure)})
    return list(best.values())


def linked(map: AttentionMap, source: Words, target: Words) -> dict[Step, Tensor]:
    """The source word of each target word (L, G, E), or NO_LINK. map: of pieces, to the source; words: without end symbol."""
    weights = torch.cat([map.weights, map.weights.mean(1, keepdim=True)], dim=1)
    columns = torch.block_diag(source.shares, torch.ones(1, 1))
    rows: dict[Step, Tensor] = {"produced": weights[..., :-1, :], "read": weights[..., 1:, :]}
    found = {step: merged(w, target.shares, columns).argmax(-1) for step, w in rows.items()}
    return {step: chosen.masked_fill(chosen == len(source.labels), NO_LINK) for step, chosen in found.items()}


@dataclass(frozen=True)
class Head:
    """One attention to the source, counted from 0, and the step that it is taken at. head None is the mean of the layer."""

    layer: int
    head: int | None
    step: Step

    def place(self) -> str:
        return f"layer {self.layer + 1}, {'mean of heads' if self.head is None else f'head {self.head + 1}'}"

    def words(self) -> str:
        return f"{self.place()}, {self.step}"


class Alignments:
    """The links that every head makes in the sentences added, and their agreement with gold."""

    def __init__(self) -> None:
        self._chosen: dict[int, dict[Step, Tensor]] = {}
        self._gold: dict[int, Gold] = {}

    def add(self, number: int, map: AttentionMap, source: Words, target: Words, gold: Gold | None) -> None:
        """Adds the sentence of this number, in any order."""
        self._chosen[number] = linked(map, source, target)
        if gold:
            self._gold[number] = gold

    def __bool__(self) -> bool:
        return bool(self._chosen)

    def has_gold(self) -> bool:
        return bool(self._gold)

    def heads(self) -> list[Head]:
        """All heads, and the mean of each layer that has several."""
        n_layers, n = next(iter(self._chosen.values()))["produced"].shape[:2]
        which: list[int | None] = [0] if n == 2 else [*range(n - 1), None]
        return [Head(layer, head, step) for step in STEPS for layer in range(n_layers) for head in which]

    def links(self, head: Head) -> list[list[Link]]:
        """The links of each sentence, in the order of their numbers."""
        place = -1 if head.head is None else head.head
        rows = [chosen[head.step][head.layer, place].tolist() for _, chosen in sorted(self._chosen.items())]
        return [[(i, j) for j, i in enumerate(row) if i != NO_LINK] for row in rows]

    def agreement(self, head: Head) -> Agreement:
        return links_agreement(zip(self.links(head), self._golds(), strict=True))

    def oracle(self) -> Agreement:
        return links_agreement((oracle_links(gold), gold) for gold in self._golds())

    def _golds(self) -> list[Gold]:
        return [gold for _, gold in sorted(self._gold.items())]

    def best(self, means: bool = True) -> Head:
        """The head, or mean of a layer's heads, with the lowest error rate; the first of several."""
        heads = [head for head in self.heads() if means or head.head is not None]
        return min(heads, key=lambda head: self.agreement(head).aer)


def usual_head(heads: Sequence[Head]) -> Head:
    """The head to use without gold links: the mean of the last layer but one (Garg et al. 2019), or the only attention, at the
    step that produces the word."""
    layer = max(0, max(head.layer for head in heads) - 1)
    return next(head for head in reversed(heads) if head.layer == layer and head.step == "produced")
