"""Compares the errors of two runs on one split, by sentence and by word, in the manner of compare-mt (Neubig et al. 2019).

Words are the case-sensitive tokens of sacreBLEU's tokenizer 13a. A word of the reference is right if the translation contains
it too. If a sentence repeats the word, counts are clipped as in BLEU. In each pair of values, the baseline's comes first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.table import Table
from sacrebleu.metrics import CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from entente import escape
from entente.ablation.runs import Run, Suite
from entente.data.corpora import describe_sources, read_corpus
from entente.errors import InputError
from entente.evaluation import corpus_scores, length_buckets, rich_table
from entente.files import path_of
from entente.settings import DataSettings

FREQUENCIES = (0, 1, 2, 3, 4, 5, 10, 100, 1000)  # lower bounds of the ranges of training frequency, as in compare-mt
TOKENIZE = Tokenizer13a()
MAX_ITEMS = 20  # words and sentences on the page
Row = dict[str, Any]
Words = Counter[str]
Translations = dict[str, list[str]]


@dataclass(frozen=True)
class Analysis:
    """The differences between two runs' translations of a split, with a row for each range of source lengths, for each range of
    frequencies in the training text (no rows if it cannot be read; `unknown` is the reason), and for each of the sentences that
    differ most. only: for each run, the words that only this run has right, with counts."""

    split: str
    names: list[str]
    lengths: list[Row]
    frequencies: list[Row]
    unknown: str
    only: list[list[tuple[str, int]]]
    sentences: list[Row]


def analyse(suite: Suite, split: str, trusted: bool) -> Analysis:
    """Compares two runs' translations of a split. trusted: whether the first run's training text may be read or fetched."""
    pair = [run.translations(split) for run in suite.runs]
    references, *written = [[*map(count_words, lines)] for lines in (pair[0]["reference"], *(t["translation"] for t in pair))]
    right = [[reference & words for reference, words in zip(references, lines, strict=True)] for lines in written]
    lost = [total(words - other for words, other in zip(*sides, strict=True)) for sides in (right, right[::-1])]
    frequencies, unknown = [], ""
    try:
        frequencies = by_frequency(training_words(suite.runs[0], trusted), *map(total, (references, *written, *right)))
    except InputError as error:
        unknown = error.problems[0]
    only = [[(word, n) for word, n in words.most_common() if any(map(str.isalnum, word))][:MAX_ITEMS] for words in lost]
    return Analysis(split, suite.variants, by_length(pair), frequencies, unknown, only, most_different(pair))


def count_words(line: str) -> Words:
    return Counter(TOKENIZE(line).split())


def total(counts: Iterable[Words]) -> Words:
    return Counter(chain.from_iterable(words.elements() for words in counts))


def training_words(run: Run, trusted: bool) -> Words:
    """Counts the words of the target side of the training text. Raises InputError if it cannot be read or is not trusted."""
    try:
        data: DataSettings = TypeAdapter(DataSettings).validate_python(run.config.get("data"))
    except ValidationError as error:
        text = f"{run.directory / 'config.yaml'}: its data settings cannot be read ({error.errors()[0]['msg']})"
        raise InputError(f"{text}; use the version of Entente that trained the run") from None
    if (places := describe_sources(data)) and not trusted:
        raise InputError(f"add trust_data=true to read the corpus that {run.directory} names: {places}")
    return total(map(count_words, read_corpus(data, path_of(run.config["output_dir"]) / "cache").train["tgt"]))


def by_frequency(trained: Words, *split: Words) -> list[Row]:
    """Returns a row for each range of training frequencies that has words. trained: word counts of the training text. split:
    those of the reference, of each run's translations, and of the words that each run has right."""
    rows = []
    for low, end in zip(FREQUENCIES, (*FREQUENCIES[1:], inf), strict=True):
        counts = [sum(n for word, n in words.items() if low <= trained[word] < end) for words in split]
        if any(counts):
            name = f"{low}+" if end == inf else f"{low}" if end == low + 1 else f"{low}-{end - 1}"
            words, written, matched = counts[0], counts[1:3], counts[3:]
            precision = [n / of if of else 0.0 for n, of in zip(matched, written, strict=True)]
            recall = [n / words if words else 0.0 for n in matched]
            f = [2 * p * r / (p + r) if p + r else 0.0 for p, r in zip(precision, recall, strict=True)]
            rows.append({"frequency": name, "words": words, "right": matched, "precision": precision, "recall": recall, "f": f})
    return rows


def by_length(pair: Sequence[Translations]) -> list[Row]:
    """Returns a row of scores for each range of source lengths that has sentences."""
    rows = []
    for words, numbers in length_buckets(pair[0]["source"]).items():
        references, *texts = [
            [lines[i] for i in numbers] for lines in (pair[0]["reference"], *(t["translation"] for t in pair))
        ]
        scores = [corpus_scores(lines, references, ["bleu", "chrf"]) for lines in texts]
        rows.append({"words": words, "sentences": len(numbers), **{m: [s[m] for s in scores] for m in ("bleu", "chrf")}})
    return rows


def most_different(pair: Sequence[Translations]) -> list[Row]:
    """Returns the sentences whose two translations differ most in chrF, the largest difference first."""
    metric, rows = CHRF(), []
    for source, reference, *texts in zip(
        pair[0]["source"], pair[0]["reference"], *(t["translation"] for t in pair), strict=True
    ):
        scores = [metric.sentence_score(text, [reference]).score for text in texts]
        if scores[0] != scores[1]:
            rows.append({"source": source, "reference": reference, "translations": texts, "chrf": scores})
    return sorted(rows, key=lambda row: -abs(row["chrf"][1] - row["chrf"][0]))[:MAX_ITEMS]


def tables(analysis: Analysis) -> Iterator[Table | str]:
    """Yields what the terminal shows: the tables. The page also has the words and the sentences."""
    yield f"\nErrors on {escape.line(analysis.split)}: {' → '.join(map(escape.line, analysis.names))}"
    rows = [[r["words"], f"{r['sentences']:,}", _arrow(r["bleu"], ".1f"), _arrow(r["chrf"], ".1f")] for r in analysis.lengths]
    yield rich_table(["source words", "sentences", "BLEU", "chrF"], rows)
    rows = [[r["frequency"], f"{r['words']:,}", _arrow(r["right"], ","), _arrow(r["f"], ".3f")] for r in analysis.frequencies]
    if rows:
        yield rich_table(["times in training", "words", "right", "F-measure"], rows)
    else:
        yield f"The table of words by their frequency in training is left out: {escape.line(analysis.unknown)}"


def _arrow(values: Sequence[float], form: str) -> str:
    return " → ".join(f"{value:{form}}" for value in values)
