"""Measures what a corpus is like before a model is trained on it. Arrays hold the N pairs of all splits in order."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from zlib import crc32

import numpy as np

from entente.console.progress import track
from entente.data.batches import Rows
from entente.data.corpora import Corpus
from entente.data.misalignment import misalignment
from entente.data.pairs import sentence_hashes
from entente.data.tokenizer import BYTES, SPECIAL, Vocabulary, texts

SIDES = ("src", "tgt")
WORD = re.compile(r"\w+")
LONGEST, STEM, TYPES = 256, 5, 4999  # the lexical score reads the first 256 words, and the first 5 letters of each
END = 1  # ends each row, so that none is empty
SAMPLE = 20_000  # maximum number of sentences of a split that are encoded
CONTINUATION = re.escape("".join(bytes(range(0x80, 0xC0)).decode(code, "ignore") for code in ("cp1252", "latin-1")))
MOJIBAKE = re.compile(f"[ÂÃÐÑ][{CONTINUATION}]|â[{CONTINUATION}]{{2}}")  # UTF-8 of Latin, Cyrillic and punctuation
INVISIBLE = {"Cc", "Cf", "Co", "Cn", "Zl", "Zp"}  # Unicode categories: control, format, private, unassigned, line ends


@dataclass(frozen=True)
class Inspection:
    """The measurements of a corpus. sides: by split and side, numbers by heading. findings: by list (duplicates, leaks,
    odd text) and kind, the rows of the pairs."""

    splits: dict[str, slice]  # rows
    words: np.ndarray  # (2, N) lengths in words separated by spaces
    sides: dict[tuple[str, str], dict[str, float]]
    findings: dict[str, dict[str, np.ndarray]]
    score: np.ndarray  # (N,), see misalignment


def inspect(corpus: Corpus, vocabulary: Vocabulary) -> Inspection:
    ends = np.cumsum([len(part) for part in corpus.splits.values()]).tolist()
    splits = {name: slice(start, end) for name, start, end in zip(corpus.splits, [0, *ends], ends, strict=False)}
    split = np.repeat(np.arange(len(ends), dtype=np.uint64), np.diff([0, *ends]))

    def sentences(side: str, *names: str) -> Iterator[str]:
        blocks = chain.from_iterable(texts(corpus.split(name), side) for name in names or splits)
        return track(chain.from_iterable(blocks), f"reading {side}, sentence", ends[-1])

    words = np.stack([np.fromiter((len(text.split()) for text in sentences(side)), np.int64) for side in SIDES])
    keys = np.stack([sentence_hashes(sentences(side)) for side in SIDES])
    rows = [Rows([END, *map(_word_type, words_in(text)[:LONGEST])] for text in sentences(side)) for side in SIDES]
    odd, sides = {"equal sides": np.flatnonzero(keys[0] == keys[1])}, {}
    for side, lengths, foreign in zip(SIDES, words, foreign_rows(*rows), strict=True):
        odd[f"words of the other language in {side}"] = np.setdiff1d(foreign, odd["equal sides"])
        rules = odd_text(Counter(chain.from_iterable(sentences(side))))
        found = [(kind, i) for i, text in enumerate(sentences(side)) for kind, rule in rules.items() if rule.search(text)]
        odd |= {f"{kind} in {side}": np.array([i for other, i in found if other == kind], int) for kind in rules}
        seen = set(chain.from_iterable(map(words_in, sentences(side, "train"))))
        ratios = lengths / words[::-1][SIDES.index(side)]
        for name, at in splits.items():
            new = (
                [word not in seen for text in sentences(side, name) for word in words_in(text)] if name != "train" else [False]
            )
            every = slice(None, None, -(-(at.stop - at.start) // SAMPLE))
            pieces = np.concatenate(getattr(vocabulary, side).encode_all(corpus.split(name)[every][side]))
            median, high, longest = np.percentile(lengths[at], (50, 95, 100), method="lower").tolist()
            low_ratio, ratio, high_ratio = np.percentile(ratios[at], (5, 50, 95)).tolist()
            sides[name, side] = {
                "pairs": at.stop - at.start,
                "words": int(lengths[at].sum()),
                "characters": sum(map(len, sentences(side, name))),
                **{"median": median, "95%": high, "longest": longest},
                **{"ratio 5%": low_ratio, "ratio 50%": ratio, "ratio 95%": high_ratio},
                "pieces": len(pieces) / float(lengths[at][every].sum()),
                "bytes": 100 * float(((pieces >= len(SPECIAL)) & (pieces < len(SPECIAL) + BYTES)).mean()),
                "unseen": 100 * float(np.mean(new or [False])),
            }
    findings = {"Duplicates": duplicates(keys + split), "Leaks between splits": leaks(keys, splits), "Odd text": odd}
    return Inspection(splits, words, sides, findings, misalignment(rows[0], rows[1], ends[0]))


def words_in(text: str) -> list[str]:
    return WORD.findall(text.casefold())


@cache
def _word_type(word: str) -> int:
    return END + 1 + crc32(word[:STEM].encode()) % TYPES


def duplicates(keys: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the pairs with a repeated sentence, given a hash of each sentence and its split, (2, N)."""
    first = np.unique(keys[0] * np.uint64(3) + keys[1], return_index=True)[1]
    found = {"the same pair again": np.setdiff1d(np.arange(keys.shape[1]), first)}
    for side, kind in enumerate(("one src, several tgt", "one tgt, several src")):
        _, group, size = np.unique(keys[side, first], return_inverse=True, return_counts=True)
        found[kind] = np.sort(first[size[group] > 1])
    return found


def leaks(keys: np.ndarray, splits: dict[str, slice]) -> dict[str, np.ndarray]:
    """Returns the pairs that have a sentence of an earlier split."""
    found: dict[str, np.ndarray] = {}
    for name in splits:
        for side, key in zip(SIDES, keys, strict=True):
            later = np.arange(len(key)) >= splits[name].stop
            found[f"{side} also in {name}"] = np.flatnonzero(later & np.isin(key, key[splits[name]]))
    return found


def odd_text(counts: Counter[str]) -> dict[str, re.Pattern[str]]:
    """Returns a pattern for each kind of odd text, given how often each character occurs on a side."""
    letters, scripts = Counter[str](), Counter[str]()
    for character in filter(str.isalpha, counts):
        letters[character.casefold()] += counts[character]
        scripts[_script(character)] += counts[character]
    kinds: dict[str, Iterable[str]] = {
        "control or invisible character": (c for c in counts if unicodedata.category(c) in INVISIBLE),
        "replacement character U+FFFD": "\ufffd",
        "letter of another script": (c for c in counts if c.isalpha() and scripts[_script(c)] < scripts.total() / 100),
        "rare letter": (c for c in counts if c.isalpha() and letters[c.casefold()] < letters.total() / 100_000),
    }
    patterns = {kind: re.compile(f"[{re.escape(found)}]") for kind, of in kinds.items() if (found := "".join(of))}
    return {"wrongly decoded text (Ã©)": MOJIBAKE, **patterns}


def _script(letter: str) -> str:
    return unicodedata.name(unicodedata.normalize("NFKC", letter)[0], "unknown").partition(" ")[0]


def foreign_rows(src: Rows, tgt: Rows) -> Iterator[np.ndarray]:
    """Yields, for each side, the rows of at least 3 words that are on average e times as frequent on the other side."""
    own, other = (np.log((np.bincount(rows.values, minlength=END + 1 + TYPES) + 1) / len(rows.values)) for rows in (src, tgt))
    for rows, tilt in ((src, own - other), (tgt, other - own)):
        total = np.bincount(np.repeat(np.arange(len(rows)), rows.lengths), tilt[rows.values])
        yield np.flatnonzero((total < -rows.lengths) & (rows.lengths > 3))
