"""Sub-words merged to words, so that a map can be read, and compared with alignments of words.

The attention to a word is the sum of the attention to its pieces; the attention of a word is the mean of that of its pieces
(Zenkel et al. 2019; Garg et al. 2019). Both are one product with a matrix of shares, and rows that sum to 1 still do.

Shapes: P pieces, W words, L layers, H heads; pieces and words both with the symbol at the sentence's start or end.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from entente.attention.record import AttentionMap, Side, sides_of
from entente.data.alignments import Span
from entente.data.tokenizer import BOS, EOS, SPECIAL, Tokenizer

# A French article or pronoun that has lost its vowel is a word (l'Afrique, qu'il); English n't and 's belong to theirs.
WORD = re.compile(r"\b(?:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu)['’](?=\w)|\w+(?:['’-]\w+)*|[^\w\s]", re.IGNORECASE)


class Words(NamedTuple):
    """The words of a sentence: labels (W), and which share of each piece belongs to each word (P, W); each row sums to 1."""

    labels: list[str]
    shares: Tensor


def words_in(text: str) -> list[Span]:
    """The spans of words and punctuation in a text."""
    return [match.span() for match in WORD.finditer(text)]


def words_of(tokenizer: Tokenizer, ids: Sequence[int], spans: Sequence[Span] | None = None) -> Words:
    """ids: of a sentence, without start and end symbol. spans: of its words in its text; None: `words_in`.

    A piece over several words is shared by its letters; one with no letter of a word (a lone space, the first bytes of a
    character) belongs to the word that follows it."""
    text, places = tokenizer.spans(ids)
    spans = list(words_in(text) if spans is None else spans)
    if places and not spans:
        spans = [(0, len(text))]  # nothing but spaces
    shares = torch.zeros(len(places), len(spans))
    for row, (begin, end) in zip(shares, places, strict=True):
        letters = torch.tensor([max(0, min(end, stop) - max(begin, start)) for start, stop in spans], dtype=torch.float32)
        if letters.any():
            row += letters / letters.sum()
        else:
            row[next((w for w, (_, stop) in enumerate(spans) if stop > begin), -1)] = 1.0
    return Words([text[start:stop] for start, stop in spans], shares)


def sides_in_words(source: Words, target: Words) -> dict[Side, Words]:
    """What the rows and columns of maps are, as words."""
    start, end = SPECIAL[BOS], SPECIAL[EOS]
    one = torch.ones(1, 1)
    return {
        "source": Words([*source.labels, end], torch.block_diag(source.shares, one)),
        "produced": Words([*target.labels, end], torch.block_diag(target.shares, one)),
        "read": Words([start, *target.labels], torch.block_diag(one, target.shares)),
    }


def in_words(map: AttentionMap, sides: Mapping[Side, Words]) -> AttentionMap:
    """A map of pieces as a map of words."""
    rows, columns = (sides[side] for side in sides_of(map.kind))
    weights = merged(map.weights, rows.shares, columns.shares)
    allowed = None if map.allowed is None else merged(map.allowed.float(), rows.shares, columns.shares) > 0
    return map._replace(weights=weights, rows=rows.labels, columns=columns.labels, unit="word", allowed=allowed)


def merged(weights: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """weights (..., P, P'), shares of the rows' pieces (P, W) and of the columns' (P', W') -> (..., W, W'): mean over the
    pieces of a row, sum over those of a column."""
    return (rows / rows.sum(0)).T @ weights @ columns
