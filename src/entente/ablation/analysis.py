"""Shows where translations of runs differ: by sentence and, for two runs, by word, as does compare-mt (Neubig et al. 2019)."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from sacrebleu.metrics import CHRF

from entente.ablation.runs import Suite

MAX_ITEMS, SAMPLES = 20, 5  # words and sentences of two runs on the page; sentences of all variants
Sentence = tuple[str, ...]  # source, reference, and a translation per variant


def words_of_one(suite: Suite, split: str) -> dict[str, list[tuple[str, int]]]:
    """Returns, by the name of each of two runs, the words that only this run has right and how often, the most frequent first.
    Words are the case-sensitive tokens with which BLEU was computed. A word of the reference is right if the translation
    contains it too. If a sentence repeats the word, counts are clipped as in BLEU."""
    columns, tokenize = [run.translations(split) for run in suite.runs], suite.runs[0].bleu(split).tokenizer
    texts = (columns[0]["reference"], *(column["translation"] for column in columns))
    words, *written = [[Counter(tokenize(line).split()) for line in lines] for lines in texts]
    first, second = [[a & b for a, b in zip(words, lines, strict=True)] for lines in written]
    sides = (first, second), (second, first)
    only = (Counter(chain.from_iterable((a - b).elements() for a, b in zip(*side, strict=True))) for side in sides)
    items = ([(word, n) for word, n in counts.most_common() if any(map(str.isalnum, word))][:MAX_ITEMS] for counts in only)
    return dict(zip(suite.variants, items, strict=True))


def samples(suite: Suite, split: str, contrast: bool) -> list[dict[str, Any]]:
    """Returns sentences of a split with the translations of the first run of every variant. They are those that differ most
    between two runs with `contrast`, and otherwise drawn at random."""
    runs = {run.variant: run for run in reversed(suite.runs) if split in run.metrics and not run.row}
    columns = {variant: runs[variant].translations(split) for variant in suite.variants if variant in runs}
    sides = [column[side] for column in list(columns.values())[:1] for side in ("source", "reference")]
    rows = list(zip(*sides, *(column["translation"] for column in columns.values()), strict=True))
    rows = contrasts(rows) if contrast else random.Random(1).sample(rows, min(len(rows), SAMPLES))
    return [dict(source=src, reference=tgt, translations=dict(zip(columns, out, strict=True))) for src, tgt, *out in rows]


def contrasts(rows: Sequence[Sentence]) -> list[Sentence]:
    """Returns the sentences whose two translations differ most in chrF, the largest difference first. Of second translations of
    the same characters, such as "the the" and "the the the", only one is kept, since a failed model repeats itself."""
    metric = CHRF()

    def difference(row: Sentence) -> float:
        first, second = (metric.sentence_score(text, [row[1]]).score for text in row[2:])
        return abs(first - second)

    kinds: dict[frozenset[str], Sentence] = {}
    for row in sorted((row for row in rows if row[2] != row[3]), key=difference, reverse=True):
        kinds.setdefault(frozenset(row[3]), row)
    return list(kinds.values())[:MAX_ITEMS]
