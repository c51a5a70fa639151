"""Measures a corpus before a model is trained on it, and finds suspicious pairs. N is the number of pairs in all splits."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np
from datasets import Dataset, concatenate_datasets

from entente import escape
from entente.data.corpora import Corpus
from entente.data.misalignment import misalignment
from entente.data.pairs import match_key
from entente.data.tokenizer import BYTES, SPECIAL, Vocabulary, texts
from entente.data.words import distinct_words

SIDES = ("src", "tgt")
WORST = 200  # minimum number of pairs listed as misaligned; every pair above SUSPECT is listed
SUSPECT = 0.75  # a score that hardly any pair reaches in a corpus of careful translations
SAMPLE = 20_000  # maximum number of sentences per split and side to encode
MOJIBAKE = re.compile("\ufffd|[ÂÃÐÑ][\x80-¿Œ-ſƒˆ˜‐-•…‰‹›€™]|â[\x80\x82€‚]")  # UTF-8 read as Windows-1252 or Latin-1
Marks = list[tuple[str, int]]  # a label of what is suspicious, and the row in the concatenation of all splits
Finding = tuple[str, str, int]  # a label, the split, and the row in that split


def measure(corpus: Corpus, vocabulary: Vocabulary) -> dict[str, dict[str, float]]:
    """Returns measurements of the corpus, keyed by split and then by the name of the measurement."""
    numbers: dict[str, dict[str, float]] = {name: {"pairs": len(part)} for name, part in corpus.splits.items()}
    for side, opposite in zip(SIDES, SIDES[::-1], strict=True):
        train_words = set(chain.from_iterable(map(distinct_words, _sentences(corpus.train, side))))
        for name, part in corpus.splits.items():
            lengths, opposite_lengths = (
                np.array([len(text.split()) for text in _sentences(part, language)]) for language in (side, opposite)
            )
            sample = slice(None, None, -(-len(part) // SAMPLE))
            pieces = np.concatenate(getattr(vocabulary, side).encode_all(part[sample][side]))
            words = Counter(chain.from_iterable(map(distinct_words, _sentences(part, side))))
            unknown = sum(words[word] for word in words.keys() - train_words)
            length, ratio = np.percentile(lengths, (50, 95, 100)), np.percentile(lengths / opposite_lengths, (5, 50, 95))
            numbers[name] |= {
                f"{side} words": int(lengths.sum()),
                f"{side} characters": sum(map(len, _sentences(part, side))),
                **{f"{side} length in words, {p}": int(n) for p, n in zip(("median", "95%", "longest"), length, strict=True)},
                **{f"{side} / {opposite} words, {p}": float(n) for p, n in zip(("5%", "median", "95%"), ratio, strict=True)},
                f"{side} pieces per word": len(pieces) / float(lengths[sample].sum()),
                f"{side} % unknown pieces": 100 * float(((pieces >= len(SPECIAL)) & (pieces < len(SPECIAL) + BYTES)).mean()),
                f"{side} % words not in train": 100 * unknown / max(1, words.total()),
            }
    return numbers


def find(corpus: Corpus) -> dict[str, list[Finding]]:
    """Returns the findings by kind: duplicates, leaks, odd text and misaligned pairs."""
    pairs, sizes = concatenate_datasets([*corpus.splits.values()]), [len(part) for part in corpus.splits.values()]
    split = np.repeat(np.arange(len(sizes)), sizes)
    keys = np.array([[hash(match_key(text)) for text in _sentences(pairs, side)] for side in SIDES])
    score = misalignment(_sentences(pairs, "src"), _sentences(pairs, "tgt"), sizes[0])
    worst = np.argsort(-score)[: max(WORST, (score > SUSPECT).sum())] if score.any() else ()
    duplicates, leaks = repeats(keys, split, [*corpus.splits])
    lists: dict[str, Marks] = {
        "duplicates": duplicates,
        "leaks": leaks,
        "odd": odd_text(pairs) + [("equal sides", row) for row in np.flatnonzero(keys[0] == keys[1]).tolist()],
        "misalignment": [(f"{score[row]:.3f}", row) for row in worst],
    }
    places = [(name, row) for name, part in corpus.splits.items() for row in range(len(part))]
    return {name: [(label, *places[row]) for label, row in marks] for name, marks in lists.items()}


def _sentences(pairs: Dataset, *sides: str) -> Iterator[str]:
    return chain.from_iterable(texts(pairs, *sides))


def repeats(keys: np.ndarray, split: np.ndarray, names: list[str]) -> tuple[Marks, Marks]:
    """Returns the duplicates and the leaks: pairs of which one or both sides occurred earlier in the same split (duplicates) or
    in another (leaks). keys: a hash of each sentence, (2, N). split: the index of each pair's split, (N,)."""
    duplicates, leaks = Marks(), Marks()
    for what, key in zip(("pair", *SIDES), (3 * keys[0] + keys[1], *keys), strict=True):
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        for row in np.flatnonzero(first[group] < np.arange(len(key))).tolist():
            earlier = split[first[group[row]]]
            (duplicates if earlier == split[row] else leaks).append((f"{what} already in {names[earlier]}", row))
    return duplicates, leaks


def odd_text(pairs: Dataset) -> Marks:
    """Returns the pairs with suspicious characters: rare letters, invisible characters, or signs of a wrong encoding."""
    counts = Counter(chain.from_iterable(map(str.casefold, _sentences(pairs, *SIDES))))
    threshold = sum(n for character, n in counts.items() if character.isalpha()) / 100_000
    labels = {character: "rare letter" for character, n in counts.items() if character.isalpha() and n < threshold}
    labels |= {character: "invisible character" for character in counts if unicodedata.category(character) in escape.CONTROL}
    marks = set[tuple[str, int]]()
    for i, text in enumerate(_sentences(pairs, *SIDES)):
        marks.update((labels[character], i % len(pairs)) for character in labels.keys() & text.casefold())
        if MOJIBAKE.search(text):
            marks.add(("wrong encoding", i % len(pairs)))
    return sorted(marks)
