"""Compares the errors of two runs on one split, by sentence and by word, in the manner of compare-mt (Neubig et al. 2019).

Words are the case-sensitive tokens with which BLEU was computed. A word of the reference is right if the translation contains
it too. If a sentence repeats the word, counts are clipped as in BLEU. In each pair of values, the baseline's comes first.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

from sacrebleu.metrics import CHRF

from entente.ablation.runs import Run, Suite
from entente.data.corpora import describe_sources, read_corpus
from entente.errors import InputError
from entente.settings import RunSettings
from entente.validation import validate

FREQUENCIES = (0, 1, 2, 3, 4, 5, 10, 100, 1000)  # lower bounds of the ranges of training frequency, as in compare-mt
MAX_ITEMS, SAMPLES = 20, 5  # words and sentences of two runs on the page; sentences of all variants
MAX_REPEATS = 2  # sentences with the same kind of error
Words = Counter[str]
Lines = list[list[str]]  # of a table, the headings first; no lines if there is nothing to show


def analyse(suite: Suite, split: str, trusted: bool) -> dict[str, Any]:
    """Compares two runs' translations of a split. trusted: whether the first run's training text may be read or fetched.
    Returns: `tables` by title; `problem`, why the training text could not be read, or an empty string; `only`, for each run,
    the words that only this run has right; `sentences`, some that differ (see `contrasts`); `names` of the runs; `split`."""
    columns = [run.translations(split) for run in suite.runs]
    sources, references, texts = columns[0]["source"], columns[0]["reference"], [each["translation"] for each in columns]
    tokenize = suite.runs[0].bleu(split).tokenizer
    words, *written = [[Counter(tokenize(line).split()) for line in lines] for lines in (references, *texts)]
    right = [[a & b for a, b in zip(words, lines, strict=True)] for lines in written]
    lost = [total(a - b for a, b in zip(*sides, strict=True)) for sides in (right, right[::-1])]
    only = [[(word, n) for word, n in counts.most_common() if any(map(str.isalnum, word))][:MAX_ITEMS] for counts in lost]
    lengths = zip(*(run.metrics[split]["bleu_by_source_length"] for run in suite.runs), strict=True)
    rows = [[a["words"], f"{a['sentences']:,}", arrow([a["bleu"], b["bleu"]], ".1f")] for a, b in lengths]
    tables, problem = {"By the length of the source": [["source words", "sentences", "BLEU"], *rows]}, ""
    try:
        trained = training_words(suite.runs[0], tokenize, trusted)
        lines = by_frequency(trained, total(words), [*map(total, written)], [*map(total, right)])
        tables["By the frequency of a word in the training text"] = lines
    except (InputError, OSError) as error:
        problem = f"The table of words by their frequency in training is left out: {error}"
    sentences = contrasts(sources, references, texts)
    return dict(split=split, names=suite.variants, tables=tables, problem=problem, only=only, sentences=sentences)


def total(counts: Iterable[Words]) -> Words:
    return Counter(chain.from_iterable(words.elements() for words in counts))


def training_words(run: Run, tokenize: Callable[[str], str], trusted: bool) -> Words:
    """Counts the words of the target side of the training text. tokenize: puts spaces between words. Raises InputError if the
    text cannot be read or is not trusted."""
    data = validate(RunSettings, run.config, f"{run.directory / 'config.yaml'}: ").data
    if (places := describe_sources(data)) and not trusted:
        raise InputError(f"add trust_data=true to read the corpus that {run.directory} names: {places}")
    lines = read_corpus(data, Path(run.config["output_dir"]) / "cache").train["tgt"]
    return Counter(chain.from_iterable(tokenize(line).split() for line in lines))


def by_frequency(trained: Words, reference: Words, written: Sequence[Words], right: Sequence[Words]) -> Lines:
    """Returns a table with a line for each range of training frequencies that has words. trained: word counts of the training
    text. written, right: those of each run's translations, and of the words that each run has right."""
    table = [["times in training", "words", "right", "F-measure"]]
    for low, end in zip(FREQUENCIES, (*FREQUENCIES[1:], inf), strict=True):
        words, *counts = (
            sum(n for word, n in each.items() if low <= trained[word] < end) for each in (reference, *written, *right)
        )
        if words or any(counts):
            name = f"{low}+" if end == inf else f"{low}" if end == low + 1 else f"{low}-{end - 1}"
            f = [2 * matched / ((words + n) or 1) for n, matched in zip(counts[:2], counts[2:], strict=True)]
            table.append([name, f"{words:,}", arrow(counts[2:], ","), arrow(f, ".3f")])
    return table


def contrasts(sources: Sequence[str], references: Sequence[str], texts: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Returns sentences whose two translations differ in chrF, the largest difference first. Half of them differ most and the
    others are drawn at random. At most MAX_REPEATS have second translations of the same characters, such as "the the the"."""
    metric, rows = CHRF(), []
    for source, reference, *pair in zip(sources, references, *texts, strict=True):
        scores = [metric.sentence_score(text, [reference]).score for text in pair]
        if scores[0] != scores[1]:
            rows.append({"source": source, "reference": reference, "translations": pair, "chrf": scores})

    def difference(row: dict[str, Any]) -> float:
        return -abs(float(row["chrf"][1] - row["chrf"][0]))

    rows.sort(key=difference)
    kinds: dict[frozenset[str], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(frozenset(row["translations"][1]), []).append(row)
    rows = sorted(chain.from_iterable(kind[:MAX_REPEATS] for kind in kinds.values()), key=difference)
    first, rest = rows[: MAX_ITEMS // 2], rows[MAX_ITEMS // 2 :]
    return sorted(first + random.Random(1).sample(rest, min(len(rest), MAX_ITEMS // 2)), key=difference)


def samples(suite: Suite, split: str) -> list[dict[str, Any]]:
    """Returns SAMPLES sentences of a split, drawn at random, each with the translations of the first run of every variant."""
    # Published rows may lack the file or the variant.
    runs = {run.variant: run for run in reversed(suite.runs) if split in run.metrics and run.text_file(split).exists()}
    columns = {variant: runs[variant].translations(split) for variant in suite.variants if variant in runs}
    columns = {variant: column for variant, column in columns.items() if column["translation"]}
    texts = [column["translation"] for column in columns.values()]
    sides = [column[side] for column in list(columns.values())[:1] for side in ("source", "reference")]
    rows = list(zip(*sides, *texts, strict=True))
    picks = [rows[i] for i in sorted(random.Random(1).sample(range(len(rows)), min(len(rows), SAMPLES)))]
    return [dict(source=src, reference=tgt, translations=dict(zip(columns, out, strict=True))) for src, tgt, *out in picks]


def arrow(values: Iterable[float], form: str) -> str:
    return " → ".join(f"{value:{form}}" for value in values)
