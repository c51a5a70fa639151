"""Measures a corpus before a model is trained on it, and how well its sides correspond. N is a number of pairs."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np

from entente.console import show_share
from entente.data.batches import Rows
from entente.data.corpora import Corpus
from entente.data.pairs import match_key
from entente.data.text import count_words, distinct_words
from entente.data.tokenizer import Vocabulary, texts

SIDES = ("src", "tgt")
SUSPECT = 0.75  # a score of `misalignment` that hardly any pair reaches in a corpus of careful translations
WORDS, STEM, TYPES = 256, 5, 4999  # limits of `misalignment`: words per sentence, letters per word, word types per side
NEAR = 0.5  # nats; mismatched pairs that are so near typical ones tell nothing (5 in a corpus of everyday sentences)
PRIOR = 1.0  # pseudocount added to observed and expected counts, so that rare words weigh less
CHUNK = 1_000_000  # pairs of words that are compared at once
CONTROLS = 2000  # maximum number of mismatched pairs; the median of their scores becomes 1


def measure(corpus: Corpus, vocabulary: Vocabulary) -> dict[str, dict[str, float]]:
    """Returns measurements of the corpus, keyed by split and then by the name of the measurement."""
    numbers: dict[str, dict[str, float]] = {name: {"pairs": len(part)} for name, part in corpus.splits.items()}
    for side, (name, part) in product(SIDES, corpus.splits.items()):
        lengths = np.array([count_words(text) for block in texts(part, side) for text in block])
        pieces = sum(len(ids) for block in texts(part, side) for ids in getattr(vocabulary, side).encode_all(block))
        numbers[name] |= {
            f"{side} words": int(lengths.sum()),
            f"{side} length in words, median": int(np.median(lengths)),
            f"{side} length in words, 95%": int(np.percentile(lengths, 95)),
            f"{side} length in words, longest": int(lengths.max()),
            f"{side} pieces per word": pieces / int(lengths.sum()),
        }
    return numbers


def leaks(corpus: Corpus) -> int:
    """Returns the number of pairs with a side that occurred in an earlier split."""
    count, earlier = 0, [set[str](), set[str]()]
    for part in corpus.splits.values():
        keys = [[match_key(corpus.without_tag(text)) for block in texts(part, side) for text in block] for side in SIDES]
        count += sum(src in earlier[0] or tgt in earlier[1] for src, tgt in zip(*keys, strict=True))
        for sentences, new in zip(earlier, keys, strict=True):
            sentences.update(new)
    return count


def misalignment(src: Iterable[str], tgt: Iterable[str]) -> np.ndarray:
    """Returns a score for each pair, (N,): 0 for a typical one, 1 for the median of deliberately mismatched pairs. All scores
    are 0 unless a fifth of the pairs score better than nearly all mismatched ones, so that most of a text may be misaligned.

    The score measures by how much each word's best match on the other side is weaker than usual. The strength of a match is the
    pointwise mutual information of the two words in the other pairs (Church & Hanks 1990).
    """
    from scipy.sparse import csr_array

    sides = [
        Rows(sorted({crc32(word[:STEM].encode()) % TYPES for word in distinct_words(text)[:WORDS]}) for text in side)
        for side in (src, tgt)
    ]
    n = len(sides[0])
    some = np.arange(0, n, -(-n // CONTROLS))
    pairs = np.stack([np.append(np.arange(n), row) for row in (some, np.roll(some, len(some) // 2))])  # (2, all pairs)
    alone = [np.bincount(side.values, minlength=TYPES) for side in sides]
    occurs = [csr_array((np.ones(len(side.values), np.float32), side.values, [0, *side.ends]), (n, TYPES)) for side in sides]
    together = (occurs[0].T @ occurs[1]).toarray()
    gains, usual = np.zeros(pairs.shape[1]), [np.zeros(TYPES), np.zeros(TYPES)]
    products = (sides[0].lengths[pairs[0]] * sides[1].lengths[pairs[1]]).cumsum(dtype=np.int64)
    chunks = np.split(np.arange(pairs.shape[1]), np.flatnonzero(np.diff(products // CHUNK)) + 1)
    for chunk in show_share(chunks, len(chunks), "the scores of pairs"):
        rows, self_count = pairs[:, chunk], (chunk < n).astype(int)
        for total, (ids, pair, gain) in zip(usual, _matches(occurs, rows, together, alone, self_count), strict=True):
            gains[chunk] += np.bincount(pair, gain, rows.shape[1])
            total += np.bincount(ids, gain * self_count[pair], TYPES)
    score, length = -gains, np.zeros(len(gains))
    for side, words, counts, total, row in zip(sides, occurs, alone, usual, pairs, strict=True):
        score += (words @ (total / np.maximum(counts, 1)))[row]
        length += side.lengths[row]
    score /= np.maximum(length, 1) ** 0.5
    score, mismatched = score[:n], score[n:]
    aligned = score < np.percentile(mismatched, 2)  # the pairs that surely correspond
    typical = np.median(score[aligned]) if aligned.mean() > 0.2 else np.inf
    distance = np.median(mismatched) - typical
    return (score - typical) / distance if distance > NEAR else np.zeros(len(score))


def _matches(
    occurs: Sequence[Any], rows: np.ndarray, together: np.ndarray, alone: Sequence[np.ndarray], self_count: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns, for each side, the words of some pairs, the pair of each word, and the strength of its best match. occurs: 1 for
    the words of each side's sentences, (N, TYPES). rows: of each side, (2, pairs). self_count: 1 for pairs that are in the
    counts, which are left out, since they let rare words explain each other."""
    (s_pair, s), (t_pair, t) = (words[row].nonzero() for words, row in zip(occurs, rows, strict=True))
    lengths = np.bincount(t_pair, minlength=rows.shape[1])
    # Each source word goes with all target words of its pair: the places of both
    repeats = lengths[s_pair]
    left = np.repeat(np.arange(len(s)), repeats)
    right = np.arange(len(left)) + np.repeat((lengths.cumsum() - lengths)[s_pair] - (repeats.cumsum() - repeats), repeats)
    counted = self_count[s_pair][left]
    expected = (alone[0][s[left]] - counted) * (alone[1][t[right]] - counted) / occurs[0].shape[0]
    information = np.log((together[s[left], t[right]] - counted + PRIOR) / (expected + PRIOR))
    matches = []
    for ids, pair, place in ((s, s_pair, left), (t, t_pair, right)):
        gain = np.zeros(len(ids))
        np.maximum.at(gain, place, information)
        matches.append((ids, pair, gain))
    return matches
