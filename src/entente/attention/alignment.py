"""Converts attention from pieces to words, derives word alignments from it, and scores them (Och & Ney 2003).

The attention to a word is the sum of the attention to its pieces; the attention from a word is the mean over its pieces
(Zenkel et al. 2019; Garg et al. 2019). A target word is linked to the source word with the largest weight, or to none if the
end symbol has the largest weight. Weights are taken at the step that *produces* the target word, or at the next step, which
*reads* it; the latter works better in Transformers (Chen et al. 2020).

Shapes: P pieces, W source words (in `Words`: of either side), E target words, L layers, H heads, G heads plus their mean.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from entente.attention.record import AttentionMap, Side, sides_of
from entente.data.alignments import Gold, Link, Span
from entente.data.text import CHARACTER, UNSPACED
from entente.data.tokenizer import BOS, EOS, SPECIAL, Tokenizer, Vocabulary

Step = Literal["produced", "read"]
STEPS: tuple[Step, ...] = get_args(Step)
NO_LINK = -1
# An elided French article or pronoun is a word of its own (l', qu'); English n't and 's belong to the word before them.
LETTERS = rf"[^\W{UNSPACED}]+"
WORD = re.compile(
    rf"\b(?:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu)['’](?=\w)|{CHARACTER}|{LETTERS}(?:['’-]{LETTERS})*|[^\w\s]", re.IGNORECASE
)


class Words(NamedTuple):
    """The words of a sentence: labels (W), and the share of each piece that belongs to each word (P, W); rows sum to 1."""

    labels: list[str]
    shares: Tensor


class Pair(NamedTuple):
    """A sentence pair: the token ids of the source (with EOS) and of the target (without BOS and EOS), and any gold links."""

    src: list[int]
    tgt: list[int]
    gold: Gold | None

    def words(self, vocabulary: Vocabulary) -> tuple[Words, Words]:
        """Returns the source words and the target words, without end symbols, split as in the gold links if there are any."""
        source, target = (self.gold.src, self.gold.tgt) if self.gold else (None, None)
        return words_of(vocabulary.src, self.src[:-1], source), words_of(vocabulary.tgt, self.tgt, target)


def word_spans(text: str) -> list[Span]:
    return [match.span() for match in WORD.finditer(text)]


def words_of(tokenizer: Tokenizer, ids: Sequence[int], spans: Sequence[Span] | None = None) -> Words:
    """Splits a sentence (ids without start and end symbol) into words at `spans` (default: `word_spans`). A piece that spans
    several words is shared among them in proportion to its characters. A piece outside all words joins the next word, or the
    last one if none follows."""
    text, places = tokenizer.spans(ids)
    spans = list(word_spans(text) if spans is None else spans)
    if places and not spans:
        spans = [(0, len(text))]  # the text is only spaces
    shares = torch.zeros(len(places), len(spans))
    for row, (begin, end) in zip(shares, places, strict=True):
        letters = torch.tensor([max(0, min(end, stop) - max(begin, start)) for start, stop in spans], dtype=torch.float32)
        if letters.any():
            row += letters / letters.sum()
        else:
            row[next((w for w, (_, stop) in enumerate(spans) if stop > begin), -1)] = 1.0
    return Words([text[start:stop] for start, stop in spans], shares)


def merge_pieces(map: AttentionMap, source: Words, target: Words) -> AttentionMap:
    """Converts a map from pieces to words, which do not contain start and end symbols. `allowed` becomes None."""
    rows, columns = (_with_symbol(side, source, target) for side in sides_of(map.kind))
    weights = (rows.shares / rows.shares.sum(0)).T @ map.weights @ columns.shares
    return map._replace(weights=weights, rows=rows.labels, columns=columns.labels, unit="word", allowed=None)


def _with_symbol(side: Side, source: Words, target: Words) -> Words:
    """Returns the words of one side of a map, with the start symbol first ("read") or the end symbol last."""
    labels, shares = source if side == "source" else target
    if side == "read":
        return Words([SPECIAL[BOS], *labels], torch.block_diag(torch.ones(1, 1), shares))
    return Words([*labels, SPECIAL[EOS]], torch.block_diag(shares, torch.ones(1, 1)))


def with_mean(weights: Tensor) -> Tensor:
    """Returns weights (L, H, ...) with the mean over heads appended, if there are several heads: (L, G, ...)."""
    return torch.cat([weights, weights.mean(1, keepdim=True)], dim=1) if weights.size(1) > 1 else weights


class Agreement(NamedTuple):
    """Scores from 0 to 1 that compare links A with the sure gold links S and the possible gold links P."""

    precision: float  # |A and P| / |A|
    recall: float  # |A and S| / |S|
    aer: float  # alignment error rate: 1 - (|A and S| + |A and P|) / (|A| + |S|)


def links_agreement(sentences: Iterable[tuple[Iterable[Link], Gold]]) -> Agreement:
    """Returns the agreement of links with gold links, counted over all sentences."""
    pairs = [(set(links), gold) for links, gold in sentences]
    made, sure = sum(len(links) for links, _ in pairs), sum(len(gold.sure) for _, gold in pairs)
    in_possible = sum(len(links & gold.possible) for links, gold in pairs)
    in_sure = sum(len(links & gold.sure) for links, gold in pairs)
    precision, recall = in_possible / made if made else 1.0, in_sure / sure if sure else 1.0
    return Agreement(precision, recall, aer=1 - (in_possible + in_sure) / (made + sure) if made + sure else 0.0)


def oracle_links(gold: Gold) -> list[Link]:
    """Returns the best links with at most one per target word: a sure one if the word has any, else a possible one. No other
    choice has a lower error rate, because each link adds at least as much to |A and S| + |A and P| as to |A|."""
    return list({j: (i, j) for i, j in [*sorted(gold.possible), *sorted(gold.sure)]}.values())


class Head(NamedTuple):
    """A head of the attention to the source."""

    layer: int  # counted from 0
    head: int | None  # counted from 0; None is the mean of the layer's heads
    step: Step  # whose weights align a target word

    def report(self) -> dict[str, Any]:
        """Returns the entry for metrics.json, with layer and head counted from 1."""
        return {"layer": self.layer + 1, "head": "mean" if self.head is None else self.head + 1, "step": self.step}


def heads_of(shape: Sequence[int], step: Step = "produced") -> list[Head]:
    """Returns the heads and, if a layer has several, their means, for weights of shape (L, G)."""
    n_layers, n = shape
    return [Head(layer, head, step) for layer in range(n_layers) for head in ([0] if n == 1 else [*range(n - 1), None])]


def predicted_links(map: AttentionMap, source: Words, target: Words) -> Tensor:
    """Returns (2, L, G, E): for each of STEPS, head and target word, the index of the linked source word, or NO_LINK."""
    produced = with_mean(map.weights)
    rows = (produced, produced.roll(-1, dims=-2))  # a piece is read in the row after the one that produces it
    words = (merge_pieces(map._replace(weights=weights), source, target).weights[..., :-1, :] for weights in rows)
    links = torch.stack([weights.argmax(-1) for weights in words])
    return links.masked_fill(links == len(source.labels), NO_LINK)


class Alignments(NamedTuple):
    """The links of every head in each sentence, as returned by `predicted_links`, and any gold links."""

    predicted: Sequence[Tensor]
    gold: Sequence[Gold]

    def heads(self) -> list[Head]:
        shape = self.predicted[0].shape[1:3] if self.predicted else (1, 1)
        return [head for step in STEPS for head in heads_of(shape, step)]

    def links(self, head: Head) -> list[list[Link]]:
        place = -1 if head.head is None else head.head
        rows = [links[STEPS.index(head.step), head.layer, place].tolist() for links in self.predicted]
        return [[(i, j) for j, i in enumerate(row) if i != NO_LINK] for row in rows]

    def agreement(self, head: Head) -> Agreement:
        return links_agreement(zip(self.links(head), self.gold, strict=True))

    def error_rates(self, steps: Sequence[Step] = ("produced",)) -> Tensor:
        """Returns each head's lowest alignment error rate over `steps` (L, H)."""
        heads = [head for head in self.heads() if head.step in steps and head.head is not None]
        rates = torch.tensor([self.agreement(head).aer for head in heads], dtype=torch.float64)
        return rates.reshape(len(steps), heads[-1].layer + 1, -1).amin(0)

    def oracle(self) -> Agreement:
        return links_agreement((oracle_links(gold), gold) for gold in self.gold)

    def best(self) -> Head:
        """Returns the first head with the lowest error rate or, without gold links, the mean of the second to last layer, at
        the producing step (Garg et al. 2019)."""
        heads = self.heads()
        if self.gold:
            return min(heads, key=lambda head: self.agreement(head).aer)
        layer = max(0, heads[-1].layer - 1)
        return next(head for head in reversed(heads) if head.layer == layer and head.step == "produced")
