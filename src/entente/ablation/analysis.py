"""Compares the errors of two runs on one split, by sentence and by word, in the manner of compare-mt (Neubig et al. 2019).

Words are the case-sensitive tokens of sacreBLEU's tokenizer 13a. A word of the reference is right if the translation contains
it too. If a sentence repeats the word, counts are clipped as in BLEU. In each pair of values, the baseline's comes first.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Any

from rich.console import Console
from sacrebleu.metrics import CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from entente.ablation.runs import Run, Suite, Translations
from entente.console import escape
from entente.data.corpora import describe_sources, read_corpus
from entente.errors import InputError
from entente.evaluation import corpus_scores, length_buckets, rich_table
from entente.training.settings import data_problems

FREQUENCIES = (0, 1, 2, 3, 4, 5, 10, 100, 1000)  # lower bounds of the ranges of training frequency, as in compare-mt
TOKENIZE = Tokenizer13a()
MOST_WORDS, MOST_SENTENCES = 20, 20  # maximum numbers on the page
FEW_WORDS, FEW_SENTENCES = 8, 3  # maximum numbers in the terminal
Row = dict[str, Any]
Words = Counter[str]


@dataclass(frozen=True)
class Analysis:
    """The differences between two runs' translations of a split. names: the runs. lengths: a row of scores for each range of
    source lengths. frequencies: a row for each range of word frequencies in the training text, or no rows if the text cannot be
    read; `unknown` is the reason. only: for each run, the words that only this run has right, with counts. sentences: a row for
    each of the sentences whose translations differ most in chrF."""

    split: str
    names: list[str]
    lengths: list[Row]
    frequencies: list[Row]
    unknown: str
    only: list[list[tuple[str, int]]]
    sentences: list[Row]


def analyse(suite: Suite, split: str, trusted: bool) -> Analysis:
    """Compares two runs' translations of a split. trusted: whether the first run's training text may be read or fetched."""
    both = suite.translations(split, suite.runs)
    references, *written = [[*map(count_words, lines)] for lines in (both[0].reference, *(one.translation for one in both))]
    right = [[reference & own for reference, own in zip(references, one, strict=True)] for one in written]
    lost = [total(one - other for one, other in zip(*pair, strict=True)) for pair in (right, right[::-1])]
    frequencies, unknown = [], ""
    try:
        trained = training_words(suite.runs[0], trusted)
        frequencies = by_frequency(trained, *map(total, (references, *written, *right)))
    except InputError as error:
        unknown = error.problems[0]
    return Analysis(
        split=split,
        names=suite.settings.variants,
        lengths=by_length(both),
        frequencies=frequencies,
        unknown=unknown,
        only=[[(word, n) for word, n in one.most_common() if any(map(str.isalnum, word))][:MOST_WORDS] for one in lost],
        sentences=most_different(both),
    )


def count_words(line: str) -> Words:
    return Counter(TOKENIZE(line).split())


def total(counts: Iterable[Words]) -> Words:
    return Counter(chain.from_iterable(one.elements() for one in counts))


def training_words(run: Run, trusted: bool) -> Words:
    """Counts the words of the target side of the training text. Raises InputError if it cannot be read or is not trusted."""
    data: Any = run.config.get("data")
    if wrong := data_problems(data):
        raise InputError(f"{run.directory / 'config.yaml'}: {wrong[0]}")
    if (places := describe_sources(data)) and not trusted:
        raise InputError(f"add trust_data=true to read the corpus that {run.directory} names: {places}")
    return total(map(count_words, read_corpus(data).train["tgt"]))


def by_frequency(trained: Words, reference: Words, one: Words, other: Words, right: Words, right_of_other: Words) -> list[Row]:
    """Returns a row for each range of training frequencies that has words. trained: word counts of the training text. The other
    arguments are word counts of the split: `reference`, the translations `one` and `other`, and the words each has right."""
    rows = []
    for low, end in zip(FREQUENCIES, (*FREQUENCIES[1:], inf), strict=True):
        counts = [
            sum(n for word, n in words.items() if low <= trained[word] < end)
            for words in (reference, one, other, right, right_of_other)
        ]
        if any(counts):
            name = f"{low}+" if end == inf else f"{low}" if end == low + 1 else f"{low}-{end - 1}"
            words, written, matched = counts[0], counts[1:3], counts[3:]
            precision = [n / of if of else 0.0 for n, of in zip(matched, written, strict=True)]
            recall = [n / words if words else 0.0 for n in matched]
            f = [2 * p * r / (p + r) if p + r else 0.0 for p, r in zip(precision, recall, strict=True)]
            rows.append({"frequency": name, "words": words, "right": matched, "precision": precision, "recall": recall, "f": f})
    return rows


def by_length(both: Sequence[Translations]) -> list[Row]:
    """Returns a row of scores for each range of source lengths that has sentences."""
    rows = []
    for words, chosen in length_buckets(both[0].source).items():
        references = [both[0].reference[i] for i in chosen]
        scores = [corpus_scores([one.translation[i] for i in chosen], references, ["bleu", "chrf"]) for one in both]
        pairs = {name: [score[name] for score in scores] for name in ("bleu", "chrf")}
        rows.append({"words": words, "sentences": len(chosen), **pairs})
    return rows


def most_different(both: Sequence[Translations]) -> list[Row]:
    """Returns the sentences whose two translations differ most in chrF, the largest difference first."""
    metric, rows = CHRF(), []
    for source, reference, *texts in zip(both[0].source, both[0].reference, *(one.translation for one in both), strict=True):
        scores = [metric.sentence_score(text, [reference]).score for text in texts]
        rows.append({"source": source, "reference": reference, "translations": texts, "chrf": scores})
    differing = [row for row in rows if row["chrf"][0] != row["chrf"][1]]
    return sorted(differing, key=lambda row: -abs(row["chrf"][1] - row["chrf"][0]))[:MOST_SENTENCES]


def show(found: Analysis, console: Console) -> None:
    """Prints the analysis, with fewer words and sentences than on the page."""
    names = [*map(escape.line, found.names)]

    def pair(values: Sequence[float], form: str) -> str:
        return " → ".join(f"{value:{form}}" for value in values)

    console.print(f"\nErrors on {escape.line(found.split)}: {names[0]} → {names[1]}")
    rows = [[r["words"], f"{r['sentences']:,}", pair(r["bleu"], ".1f"), pair(r["chrf"], ".1f")] for r in found.lengths]
    console.print(rich_table(["source words", "sentences", "BLEU", "chrF"], rows))
    if found.frequencies:
        rows = [[r["frequency"], f"{r['words']:,}", pair(r["right"], ","), pair(r["f"], ".3f")] for r in found.frequencies]
        console.print(rich_table(["times in training", "words", "right", "F-measure"], rows))
    else:
        console.print(f"The table of words by their frequency in training is left out: {escape.line(found.unknown)}")
    for name, words in zip(names, found.only, strict=True):
        said = ", ".join(f"{escape.line(word)} {count}" for word, count in words[:FEW_WORDS])
        console.print(f"Words that only {name} has right: {said or 'none'}")
    for row in found.sentences[:FEW_SENTENCES]:
        console.print(f"\nsource: {escape.line(row['source'])}\nreference: {escape.line(row['reference'])}")
        for name, text, score in zip(names, row["translations"], row["chrf"], strict=True):
            console.print(f"{name} (chrF {score:.1f}): {escape.line(text)}")
