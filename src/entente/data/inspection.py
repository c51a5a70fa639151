"""Measures a corpus before a model is trained on it, and how well its sides correspond. N is a number of pairs."""

from collections.abc import Iterable
from itertools import product
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
    src_words, tgt_words = (
        Rows(sorted({first + crc32(word[:STEM].encode()) % TYPES for word in distinct_words(text)[:WORDS]}) for text in side)
        for first, side in ((0, src), (TYPES, tgt))
    )
    n = len(src_words)
    some = np.arange(0, n, -(-n // CONTROLS))
    pairs = [(row, row) for row in range(n)] + list(zip(some, np.roll(some, len(some) // 2), strict=True))
    together, alone, usual = np.zeros((TYPES, TYPES), np.float32), np.zeros(2 * TYPES), np.zeros(2 * TYPES)
    for row in range(n):
        together[np.ix_(src_words[row], tgt_words[row] - TYPES)] += 1
        alone[np.append(src_words[row], tgt_words[row])] += 1
    score = np.zeros(len(pairs))
    for at, (i, j) in enumerate(show_share(pairs, len(pairs), "the scores of pairs")):
        self_count = int(at < n)  # a pair's own counts are left out, since they let rare words explain each other
        expected = np.outer(alone[src_words[i]] - self_count, alone[tgt_words[j]] - self_count) / n
        joint = together[np.ix_(src_words[i], tgt_words[j] - TYPES)] - self_count
        information = np.log((joint + PRIOR) / (expected + PRIOR))
        gain = np.append(information.max(1, initial=0), information.max(0, initial=0))
        usual[np.append(src_words[i], tgt_words[j])] += self_count * gain
        score[at] = -gain.sum()
    usual /= np.maximum(alone, 1)
    for at, (i, j) in enumerate(pairs):
        score[at] += usual[src_words[i]].sum() + usual[tgt_words[j]].sum()
        score[at] /= max(1, len(src_words[i]) + len(tgt_words[j])) ** 0.5
    score, mismatched = score[:n], score[n:]
    aligned = score < np.percentile(mismatched, 2)  # the pairs that surely correspond
    typical = np.median(score[aligned]) if aligned.mean() > 0.2 else np.inf
    distance = np.median(mismatched) - typical
    return (score - typical) / distance if distance > NEAR else np.zeros(len(score))
