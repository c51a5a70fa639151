"""Finds faulty pairs in a text by rules, which compare a pair with the rest of the text, so most of it must be sound.

N is the number of lines or pairs.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html.entities import html5
from itertools import groupby
from typing import NamedTuple
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
OTHER, FOREIGN = 11.0, 20.0  # nats by which the other side's language, or a third, must be likelier than a side's own
ENOUGH = 100  # letters of a sentence that tell its language
MIN_WORDS = 5  # of a sentence that may be in a third language
COPIED = 0.2  # largest share of words of its own in a sentence that may be a copy
BETWEEN_WORDS = re.compile(r"[\s\d!-/:-@\[-`{-~’“”«»…–—]+")
SAMPLE = 1000  # sentences of each side that tell its language
WINDOW = 20  # lines, of which half are misaligned where a text is shifted
SUSPECT = 0.75  # a score of `misalignment` that hardly any pair reaches in a corpus of careful translations
WORDS, STEM, TYPES = 256, 5, 4999  # limits of `misalignment`: words per sentence, letters per word, word types per side
NEAR = 0.5  # nats; mismatched pairs that are so near typical ones tell nothing (5 in a corpus of everyday sentences)
PRIOR = 1.0  # pseudocount added to observed and expected counts, so that rare words weigh less
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
    """Finds sentences for which the language model of langid (Lui and Baldwin 2012) finds another language much likelier than
    that of most of their side. Words on both sides, often names, do not count, unless hardly any others are left."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    model = LanguageIdentifier.from_pickled_model(MODEL_FILE)

    def scores(text: str) -> np.ndarray:
        """Returns the log-probability of each language, up to a constant."""
        counts = model.instance2fv(text[:ENOUGH])
        features = counts.nonzero()[0]
        return np.asarray(counts[features] @ model.nb_ptc[features] + model.nb_pc)

    samples = [side[:: len(side) // SAMPLE + 1] for side in texts]
    usual = [Counter(int(scores(text).argmax()) for text in sample).most_common(1)[0][0] for sample in samples]
    pairs = zip(*texts, strict=True)
    for i, pair in enumerate(show_share(pairs, len(texts[0]), "the languages of pairs")):
        words = [[word for word in BETWEEN_WORDS.split(text.casefold()) if word] for text in pair]
        sets = [*map(set, words)]
        unshared = [[word for word in words[s] if word not in sets[1 - s]] for s in (0, 1)]
        is_copy = min(map(len, words)) > 2 and any(len(unshared[s]) <= COPIED * len(words[s]) for s in (0, 1))
        values = [scores(text) for text in (pair if is_copy else map(" ".join, unshared))]
        leads = [values[s][usual[1 - s]] - values[s][usual[s]] for s in (0, 1)]
        foreign = [
            str(model.nb_classes[values[s].argmax()])
            for s in (0, 1)
            if values[s].max() - values[s][usual[s]] > FOREIGN and len(unshared[s]) >= MIN_WORDS
        ]
        if min(leads) > 0 and sum(leads) > OTHER:
            yield Fault("swapped", i)
        elif max(leads) > (0 if is_copy else OTHER):
            yield Fault("untranslated", i)
        elif len(foreign) == 1:
            yield Fault("language", i, foreign[0])


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
    for place, (i, j) in enumerate(show_share([*pairs.T], pairs.shape[1], "the scores of pairs")):
        s, t, counted = sides[0][i], sides[1][j], place < n  # its own count would let rare words explain each other
        expected = np.outer(alone[0][s] - counted, alone[1][t] - counted) / n
        information = np.log((together[s[:, None], t] - counted + PRIOR) / (expected + PRIOR))
        best = information.max(1, initial=0), information.max(0, initial=0)
        gains[place] = best[0].sum() + best[1].sum()
        if counted:
            usual[0][s] += best[0]
            usual[1][t] += best[1]
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
