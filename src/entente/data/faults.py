"""Finds faulty pairs in a text by rules, which compare a pair with the rest of the text, so most of it must be sound.

N is the number of lines or pairs.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html.entities import html5
from itertools import groupby
from math import log
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from entente.console import show_progress, show_share
from entente.data.batches import Rows
from entente.data.numbers import numbers_differ
from entente.data.pairs import Pair, match_key
from entente.data.text import clean, distinct_words

RULES = {
    "empty": "a side is empty",
    "duplicate": "equal to an earlier pair but for case and spaces",
    "near_duplicate": "the same words as in an earlier pair, in the same order, repetitions aside",
    "entity": "an HTML entity, such as &amp;",
    "tag": "an HTML tag, such as <b>",
    "encoding": "UTF-8 that was read as another encoding, such as Ã©",
    "control": "a character that cannot be printed",
    "untranslated": "both sides in one language",
    "swapped": "each side in the language of the other",
    "language": "a side in another language",
    "numbers": "different numbers on the two sides",
    "misaligned": "words that hardly ever occur together in other pairs",
    "shifted": "in a run of misaligned lines, so that one side may be shifted",
}
SURE = tuple(rule for rule in RULES if rule != "near_duplicate")  # hardly ever wrong, so applied by default
ENTITIES = "|".join(name.removesuffix(";") for name in html5 if name.endswith(";"))
USUAL = "amp|apos|gt|lt|nbsp|quot"  # found without a semicolon, too
ALONE = "async|checked|controls|defer|disabled|hidden|nowrap|required|selected"  # attributes without a value
PATTERNS = {  # searched for in the text as it is in the file
    "entity": re.compile(
        rf"&(?:\s?(?:{ENTITIES}|#\s?\d{{2,7}}|#x[0-9a-f]{{2,6}})\s?;|(?:{USUAL}|#\d{{2,5}})\b)", re.IGNORECASE
    ),
    "tag": re.compile(
        rf"</?[a-z][\w:-]*(?:\s+(?:{ALONE}))*(?:\s+[\w:-]+\s?=[^<>]*>|\s*/?>)|<!(?:--|\[CDATA\[|doctype)|<\?xml", re.IGNORECASE
    ),
    # UTF-8 read as Windows-1252 or Latin-1. The second byte of à becomes a no-break space, which a program may have changed.
    "encoding": re.compile(
        "\ufffd|[ÂÃÄÅÐÑ][\x80-¿ŒœŠšŸŽžƒˆ˜‐-•…‰‹›€™]|â[\x80\x82€‚]|(?:^|[\\sa-zà-ÿ'’])Ã(?:\\s|$)|\\wÂ [?!:;»%€]"
    ),
}
JOINERS = re.compile("[\u200c\u200d]")  # with which some scripts spell
COMMON, OTHER_LANGUAGE = 8, -1.0  # pairs with a word that tells the sides apart; the mean log-odds of a sentence's words
RARE, RARE_SHARE = 1e-4, 0.1  # share of the pairs that have a rare word; of rare words in a sentence that may be foreign
MIN_WORDS = 5  # of a sentence whose language is judged
SAMPLE, GRAM, FOREIGN, IMPROBABLE = 20_000, 4, 0.5, 1e-3  # limits of `_foreign`
WINDOW = 20  # lines, of which half are misaligned where a text is shifted
SUSPECT = 0.75  # a score of `misalignment` that hardly any pair reaches in a corpus of careful translations
WORDS, STEM, TYPES = 256, 5, 4999  # limits of `misalignment`: words per sentence, letters per word, word types per side
NEAR = 0.5  # nats; mismatched pairs that are so near typical ones tell nothing (5 in a corpus of everyday sentences)
PRIOR = 1.0  # pseudocount added to observed and expected counts, so that rare words weigh less
CHUNK = 1_000_000  # pairs of words that are compared at once
CONTROLS = 2000  # maximum number of mismatched pairs; the median of their scores becomes 1


class Line(NamedTuple):
    """A pair as it is in a file, not yet cleaned. number: of its line or row, from 1."""

    split: str
    where: str
    number: int
    src: str
    tgt: str


class Fault(NamedTuple):
    rule: str
    row: int  # of the line, from 0
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.rule} ({self.detail})" if self.detail else self.rule


def find_faults(lines: Sequence[Line], rules: Sequence[str] = SURE) -> tuple[list[Fault], bool]:
    """Returns the faults by rule, those of a rule sorted by row, and whether the sides of most pairs correspond, without which
    no pair is misaligned."""
    texts = [[clean(line.src) for line in lines], [clean(line.tgt) for line in lines]]
    pairs = [*zip(*texts, strict=True)]
    finders: dict[str, Callable[[], Iterator[Fault]]] = {
        "empty": lambda: (Fault("empty", i) for i, pair in enumerate(pairs) if not all(pair)),
        "duplicate": lambda: _copies("duplicate", lines, pairs, match_key),
        "near_duplicate": lambda: _copies("near_duplicate", lines, pairs, lambda text: " ".join(distinct_words(text))),
        "control": lambda: (
            Fault("control", i) for i, pair in enumerate(pairs) if not JOINERS.sub("", "".join(pair)).isprintable()
        ),
        "numbers": lambda: (Fault("numbers", i) for i, pair in enumerate(pairs) if numbers_differ(*pair)),
        **{rule: partial(_marked, rule, pattern, lines) for rule, pattern in PATTERNS.items()},
    }
    faults: list[Fault] = []
    for rule, finder in finders.items():
        if rule in rules:
            show_progress(rule)
            faults += finder()
    if {"untranslated", "swapped", "language"} & {*rules}:
        faults += (fault for fault in _by_language(texts) if fault.rule in rules)
    corresponds = True
    if {"misaligned", "shifted"} & {*rules}:
        score = misalignment(*texts)
        faults += (fault for fault in _by_score(lines, score) if fault.rule in rules)
        corresponds = bool(score.any())
    order = [*RULES]
    return sorted(faults, key=lambda fault: (order.index(fault.rule), fault.row)), corresponds


def _marked(rule: str, pattern: re.Pattern[str], lines: Sequence[Line]) -> Iterator[Fault]:
    for i, line in enumerate(lines):
        if match := pattern.search(line.src) or pattern.search(line.tgt):
            yield Fault(rule, i, match[0].strip())


def _copies(rule: str, lines: Sequence[Line], pairs: Sequence[Pair], key: Callable[[str], str]) -> Iterator[Fault]:
    first: dict[tuple[str, str, str], int] = {}
    for i, (line, (src, tgt)) in enumerate(zip(lines, pairs, strict=True)):
        keys = key(src), key(tgt)
        j = first.setdefault((line.split, *keys), i)
        if j != i and all(keys):
            yield Fault(rule, i, f"of {lines[j].where}, line {lines[j].number:,}")


def _by_language(texts: list[list[str]]) -> Iterator[Fault]:
    """Compares how many pairs have a word on either side. A sentence whose common words are mostly those of the other side is
    in its language."""
    index: dict[str, int] = {}
    sides = [_word_ids(side, index) for side in texts]
    n, counts = len(texts[0]), [np.bincount(ids, minlength=len(index)) for ids, _ in sides]
    odds, suspect, enough = np.zeros((2, n)), np.zeros((2, n), bool), np.zeros((2, n), bool)
    for s, (ids, rows) in enumerate(sides):
        own, other = counts[s][ids] - 1, counts[1 - s][ids]
        is_common, is_rare = own + other >= COMMON, np.maximum(own, other) <= max(2, RARE * n)
        values = np.log((own + 0.5) / (other + 0.5)).clip(-6, 6)
        words, common = np.bincount(rows, minlength=n), np.bincount(rows, is_common, n)
        odds[s] = np.bincount(rows, values * is_common, n) / np.maximum(common, 1)
        suspect[s] = (np.bincount(rows, is_rare, n) >= RARE_SHARE * words) & (words >= MIN_WORDS)
        enough[s] = common > 2
    is_other = (odds < OTHER_LANGUAGE) & enough
    equal = [src.count(" ") > 2 and match_key(src) == match_key(tgt) for src, tgt in zip(*texts, strict=True)]
    for i in range(n):
        if is_other[:, i].all():
            yield Fault("swapped", i)
        elif is_other[:, i].any() or equal[i]:
            yield Fault("untranslated", i)
    foreign = [_foreign(texts, s, suspect[s]) for s in (0, 1)]
    for i in sorted(foreign[0].keys() ^ foreign[1].keys()):  # a name or a formula is on both sides
        if not is_other[:, i].any():
            yield Fault("language", i, foreign[0].get(i) or foreign[1][i])


def _word_ids(texts: Sequence[str], index: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of the distinct words of each text, which are added to the index, and the row of each."""
    ids, rows = array("i"), array("i")
    for i, text in enumerate(texts):
        words = [word for word in distinct_words(text) if word.isalpha()]
        ids.extend(index.setdefault(word, len(index)) for word in words)
        rows.extend([i] * len(words))
    return np.array(ids), np.array(rows)


def _foreign(texts: list[list[str]], side: int, suspects: np.ndarray) -> dict[int, str]:
    """Returns the languages of sentences that are in neither of the two, by row. They have many rare words (`suspects`), their
    n-grams of letters are closer to those of a foreign language than to the side's, and the language model of langid (Lui and
    Baldwin 2012) has no doubt either. The other side is the foreign language with which this is measured."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    rows = np.flatnonzero(~suspects)
    typical = rows[:: -(-len(rows) // SAMPLE) or 1].tolist()
    if len(typical) < 2:
        return {}
    grams, beginnings = Counter[str](), Counter[str]()
    for i in typical:
        parts = _grams(texts[side][i])
        grams.update(parts)
        beginnings.update(gram[:-1] for gram in parts)

    def fit(text: str) -> float:
        parts = _grams(text)
        return sum(log((grams[gram] + 0.5) / (beginnings[gram[:-1]] + 15)) for gram in parts) / max(1, len(parts))

    few = typical[:: -(-len(typical) // 1000)]
    usual, other = (float(np.median([fit(texts[s][i]) for i in few])) for s in (side, 1 - side))
    identifier = LanguageIdentifier.from_pickled_model(MODEL_FILE, norm_probs=True)
    languages = [Counter(identifier.classify(texts[s][i])[0] for i in few[:100]).most_common(1)[0][0] for s in (0, 1)]
    foreign = {}
    for i in np.flatnonzero(suspects).tolist():
        show_progress("language")
        if usual - fit(texts[side][i]) > FOREIGN * (usual - other) > 0:
            ranks = dict(identifier.rank(texts[side][i]))
            if max(ranks.get(language, 0.0) for language in languages) < IMPROBABLE:
                foreign[i] = next(iter(ranks))
    return foreign


def _grams(text: str) -> list[str]:
    padded = f" {text.casefold()} "
    return [padded[i : i + GRAM] for i in range(len(padded) - GRAM + 1)]


def _by_score(lines: Sequence[Line], score: np.ndarray) -> Iterator[Fault]:
    bad = score > SUSPECT
    for i in np.flatnonzero(bad).tolist():
        yield Fault("misaligned", i, f"{score[i]:.2f}")
    start = 0
    for _, text in groupby(lines, key=lambda line: line.where):
        end = start + len([*text])
        for first, last in runs(bad[start:end]):
            rows = range(start + first, start + last + 1)
            share = f"{bad[rows.start : rows.stop].mean():.0%} of lines {lines[rows[0]].number:,} to {lines[rows[-1]].number:,}"
            yield from (Fault("shifted", i, share) for i in rows)
        start = end


def runs(bad: np.ndarray) -> list[tuple[int, int]]:
    """Returns the first and last row of each run in which at least half of WINDOW rows are bad, wherever one looks."""
    if len(bad) < WINDOW:
        return []
    dense = np.convolve(bad, np.ones(WINDOW), "valid") * 2 >= WINDOW  # the window that begins at each row
    edges = np.flatnonzero(np.diff(np.concatenate([[0], dense, [0]])))
    spans: list[tuple[int, int]] = []
    for start, end in edges.reshape(-1, 2):  # windows from start to end - 1
        rows = np.flatnonzero(bad[start : end + WINDOW - 1]) + start
        start, last = (int(rows[0]), int(rows[-1]))
        if spans and start <= spans[-1][1]:  # two stretches of windows that have lines in common
            start = spans.pop()[0]
        spans.append((start, last))
    return spans


def misalignment(src: Iterable[str], tgt: Iterable[str]) -> np.ndarray:
    """Returns a score for each pair, (N,): 0 for a typical one, 1 for the median of deliberately mismatched pairs. All scores
    are 0 unless a fifth of the pairs score better than nearly all mismatched ones, so that most of a text may be misaligned.
    The score measures by how much each word's best match on the other side is weaker than usual. The strength of a match is the
    pointwise mutual information of the two words in the other pairs (Church & Hanks 1990)."""
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
