"""Attention in numbers, for each head.

Each is a mean over the rows of real pieces that have a choice between keys:

    entropy       of a row, relative to its maximum: 0 is all mass on one piece, 1 is uniform
    end           the mass on the end symbol </s> (in the decoder's self-attention, on <s>)
    punctuation   the mass on pieces without a letter or digit
    diagonal      the distance from the diagonal: mean |column / last column - row / last row|, weighted by attention

A head is near-uniform if its entropy is at least NEAR_UNIFORM.

Shapes: L layers, H heads.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import torch
from rich.table import Table
from torch import Tensor

from entente.attention.alignment import STEPS, Alignments, Head, usual_head
from entente.attention.occlusion import WITH_OCCLUSION, correlations, occlusion
from entente.attention.record import (
    NAME_OF_KIND,
    SMALLEST,
    TO_SOURCE,
    AttentionMap,
    entropy_share,
    has_attention,
    record,
    record_batch,
)
from entente.attention.words import Words, in_words, sides_in_words, words_of
from entente.data.alignments import Gold, Link
from entente.data.module import TranslationData, split_of
from entente.data.tokenizer import BOS, EOS, SPECIAL, Vocabulary
from entente.models import Seq2Seq

NEAR_UNIFORM = 0.95
BATCH = 32  # sentences recorded in one pass
ONLY = Head(0, 0, "produced")
ENDS = (SPECIAL[BOS], SPECIAL[EOS])


class Pair(NamedTuple):
    """A sentence pair to measure on: ids without BOS, the source with EOS; and its gold links if there are any."""

    src: list[int]
    tgt: list[int]
    gold: Gold | None


class Numbers(NamedTuple):
    """The numbers of every head of one kind of attention, each (L, H)."""

    entropy: Tensor
    end: Tensor
    punctuation: Tensor
    diagonal: Tensor

    def near_uniform(self) -> float:
        """The share of heads that are near-uniform."""
        return float((self.entropy >= NEAR_UNIFORM).float().mean())

    def rows(self) -> dict[str, Any]:
        """For metrics.json."""
        return {**{name: values.tolist() for name, values in self._asdict().items()}, "near_uniform": self.near_uniform()}


def numbers_of(map: AttentionMap) -> Tensor:
    """The four numbers of every row that has a choice between keys, (4, L, H, rows)."""
    allowed = torch.ones(map.weights.shape[-2:], dtype=torch.bool) if map.allowed is None else map.allowed
    w = map.weights / map.weights.sum(-1, keepdim=True).clamp(min=SMALLEST)  # some ablations' rows do not sum to 1
    n_rows, n_columns = w.shape[-2:]
    end = torch.tensor([float(label in ENDS) for label in map.columns])
    signs = torch.tensor([float(label not in ENDS and not any(c.isalnum() for c in label)) for label in map.columns])
    distance = (torch.linspace(0, 1, n_columns) - torch.linspace(0, 1, n_rows)[:, None]).abs()
    numbers = torch.stack([entropy_share(map.weights, allowed), w @ end, w @ signs, (w * distance).sum(-1)])
    return numbers[..., allowed.sum(-1) > 1]


class HeadNumbers:
    """Means over the sentences added, by kind."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Tensor, int]] = {}

    def add(self, maps: Iterable[AttentionMap]) -> None:
        for map in maps:
            values = numbers_of(map)
            total, rows = self._sums.get(map.kind, (torch.zeros(values.shape[:-1]), 0))
            self._sums[map.kind] = (total + values.sum(-1), rows + values.size(-1))

    def means(self) -> dict[str, Numbers]:
        return {kind: Numbers(*(total / max(rows, 1))) for kind, (total, rows) in self._sums.items()}


class Measured(NamedTuple):
    """The measurements of one split. best: the head, or mean of a layer's heads, with the lowest alignment error rate on the
    split that it was chosen on; best_head: the same among single heads."""

    numbers: dict[str, Numbers]
    alignments: Alignments
    best: Head
    best_head: Head
    chosen_on: str
    occlusion: dict[Head, dict[str, float]]
    sentences: int

    def links(self) -> list[list[Link]]:
        """The links of each sentence, made by the best head."""
        return self.alignments.links(self.best) if self.alignments else []

    def report(self) -> dict[str, Any]:
        """For metrics.json."""
        found: dict[str, Any] = {kind: numbers.rows() for kind, numbers in self.numbers.items()}
        if self.alignments.has_gold():
            found["word_alignment"] = {
                "oracle": self.alignments.oracle()._asdict(),
                "best": {**_row(self.best), **self.alignments.agreement(self.best)._asdict(), "chosen_on": self.chosen_on},
                "best_head": {**_row(self.best_head), **self.alignments.agreement(self.best_head)._asdict()},
                "heads": [{**_row(h), **self.alignments.agreement(h)._asdict()} for h in self.alignments.heads()],
            }
        if self.occlusion:
            found["occlusion"] = [{**_row(head), **values} for head, values in self.occlusion.items()]
        return found

    def tables(self, split: str) -> Iterator[Table]:
        """The report as tables for a terminal."""
        sentences = f"{self.sentences} sentences"
        table = _table(f"{split}: attention, means over the rows of {sentences}", "", *Numbers._fields)
        for kind, numbers in self.numbers.items():
            for i, j in product(*map(range, numbers.entropy.shape)):
                table.add_row(f"{NAME_OF_KIND[kind]} {i + 1}.{j + 1}", *(f"{values[i, j]:.2f}" for values in numbers))
            table.add_row("near-uniform heads", f"{numbers.near_uniform():.0%}", end_section=True)
        table.caption = "LAYER.HEAD; entropy: 0 one piece, 1 all alike; end, punctuation: mass on </s> or <s>, on signs"
        yield table
        if self.alignments.has_gold():
            best = f"best on {self.chosen_on}: {self.best.words()}"
            steps = [heading for step in STEPS for heading in (f"{step}: P", "R", "AER")]
            table = _table(f"{split}: attention to the source as word alignment", "", *steps)
            table.caption = f"oracle: the best of one link a target word; produced, read: at the step that does so; {best}"
            oracle = [f"{value:.3f}" for value in self.alignments.oracle()]
            table.add_row("oracle", *oracle * len(STEPS), end_section=True)
            for head in self.alignments.heads():
                if head.step == STEPS[0]:
                    both = [self.alignments.agreement(replace(head, step=step)) for step in STEPS]
                    table.add_row(head.place(), *(f"{value:.3f}" for agreement in both for value in agreement))
            yield table
        if self.occlusion:
            yield occlusion_table(split, self.occlusion)


def occlusion_table(of: str, agreements: Mapping[Head, Mapping[str, float]]) -> Table:
    """A table of how each head agrees with occlusion, see `correlations`. of: a split or a model."""
    table = _table(f"{of}: attention and what leaving out a source word changes", "", *WITH_OCCLUSION)
    for head, agreement in agreements.items():
        table.add_row(head.place(), *(f"{value:.2f}" for value in agreement.values()))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table


def _row(head: Head) -> dict[str, Any]:
    return {"layer": head.layer + 1, "head": "mean" if head.head is None else head.head + 1, "step": head.step}


def measure_split(
    model: Seq2Seq, vocabulary: Vocabulary, pairs: Sequence[Pair], occluded: int, chosen: Measured | None
) -> Measured:
    """Measures one split. occluded: for how many sentences attention is compared with leaving words out. chosen: the split that
    the best head was chosen on, None for this one."""
    if not has_attention(model):
        return Measured({}, Alignments(), ONLY, ONLY, "", {}, len(pairs))
    numbers, alignments = measure(model, vocabulary, pairs)
    if chosen:
        best, best_head, on = chosen.best, chosen.best_head, "valid"
    elif alignments.has_gold():
        best, best_head, on = alignments.best(), alignments.best(means=False), "these sentences themselves"
    else:
        heads = alignments.heads() if alignments else [ONLY]
        best = best_head = usual_head(heads)
        on = ""
    changes = agreement_with_occlusion(model, vocabulary, pairs[:occluded]) if occluded and alignments else {}
    return Measured(numbers, alignments, best, best_head, on, changes, len(pairs))


def agreement_with_occlusion(model: Seq2Seq, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> dict[Head, dict[str, float]]:
    """How each head, at the step that produces the word, agrees with occlusion, see `correlations`; means over the target words
    of all sentences."""
    found: dict[Head, list[dict[str, float]]] = defaultdict(list)
    weights: list[int] = []
    for pair in pairs:
        source, target = words_of_pair(vocabulary, pair)
        if len(source.labels) < 2 or not target.labels:
            continue
        change = occlusion(model, pair.src, pair.tgt, source, target)
        for map in record(model, vocabulary, pair.src, pair.tgt):
            if map.kind in TO_SOURCE:
                words = in_words(map, sides_in_words(source, target)).weights[..., :-1, :-1]  # without the end symbols
                for head, agreement in head_correlations(words, change).items():
                    found[head].append(agreement)
        weights.append(len(target.labels))
    return {head: {name: _mean([row[name] for row in rows], weights) for name in rows[0]} for head, rows in found.items()}


def head_correlations(weights: Tensor, change: Tensor) -> dict[Head, dict[str, float]]:
    """weights (L, H, E, W), change (E, W) of target and source words -> the correlations of each head, and of the mean of each
    layer that has several."""
    found: dict[Head, dict[str, float]] = {}
    for layer, heads in enumerate(weights):
        for head, rows in enumerate(heads):
            found[Head(layer, head, "produced")] = correlations(rows, change)
        if len(heads) > 1:
            found[Head(layer, None, "produced")] = correlations(heads.mean(0), change)
    return found


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """The weighted mean of the values that are not NaN."""
    there = [(value, weight) for value, weight in zip(values, weights, strict=True) if value == value]
    return sum(v * w for v, w in there) / sum(w for _, w in there) if there else float("nan")


def pairs_of(data: TranslationData, split: str, n: int | None = None) -> list[Pair]:
    """The pairs of a split, or its first n, with their gold links if the corpus has any."""
    src, tgt = data.ids(split)
    gold = data.corpus.gold.get(split_of(split))
    rows = range(len(src))[:n]
    return [Pair(src[i].tolist(), tgt[i].tolist()[1:-1], gold[i] if gold else None) for i in rows]


def words_of_pair(vocabulary: Vocabulary, pair: Pair) -> tuple[Words, Words]:
    """The words of the source without its end symbol, and of the target: those of the gold links, if there are any."""
    source, target = (pair.gold.src, pair.gold.tgt) if pair.gold else (None, None)
    return words_of(vocabulary.src, pair.src[:-1], source), words_of(vocabulary.tgt, pair.tgt, target)


def measure(model: Seq2Seq, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> tuple[dict[str, Numbers], Alignments]:
    """The numbers of every kind of attention, and the alignments of those to the source, over the references."""
    numbers, alignments = HeadNumbers(), Alignments()
    for i, maps in recorded(model, vocabulary, pairs):
        numbers.add(maps)
        source, target = words_of_pair(vocabulary, pairs[i])
        for map in maps:
            if map.kind in TO_SOURCE:
                alignments.add(i, map, source, target, pairs[i].gold)
    return numbers.means(), alignments


def recorded(model: Seq2Seq, vocabulary: Vocabulary, pairs: Sequence[Pair]) -> Iterator[tuple[int, list[AttentionMap]]]:
    """Yields the index of each pair with its maps; pairs of similar length are recorded together, for speed."""
    order = sorted(range(len(pairs)), key=lambda i: (len(pairs[i].src), len(pairs[i].tgt)))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        maps = record_batch(model, vocabulary, [pairs[i].src for i in chosen], [pairs[i].tgt for i in chosen])
        yield from zip(chosen, maps, strict=True)
