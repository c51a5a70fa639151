"""Prints a comparison, and writes it as CSV, as Markdown and as a page, which also shows the words and sentences in which
translations differ. Prose and markup are in page.html.j2 and notes.j2."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from sacrebleu.metrics import CHRF

from entente import escape
from entente.ablation.charts import COLORS, OTHER, against_baseline, diagnosis
from entente.ablation.comparison import DIVERGED, HARMED, Comparison, Points, Row, compare, explain
from entente.ablation.runs import Run, Suite
from entente.ablation.significance import ALPHA, DEVIATIONS, DUNNETT, EQUIVALENT, POOLED, TRIALS
from entente.console import Task, print_table
from entente.files import csv_text, write_text
from entente.settings import MISSING
from entente.validation import to_text

MAX_ITEMS, SAMPLES = 20, 5  # words and sentences of two runs on the page; sentences of all variants
Sentence = tuple[str, ...]  # source, reference, and a translation per variant
Lines = list[list[str]]  # of a table, the headings first; no lines if there is nothing to show
LOADER, ESCAPED = FileSystemLoader(Path(__file__).parent), select_autoescape(["html.j2"])
TEMPLATES = Environment(loader=LOADER, autoescape=ESCAPED, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
TEMPLATES.globals.update(alpha=ALPHA, equivalent=EQUIVALENT, trials=TRIALS, pooled=POOLED, deviations=DEVIATIONS)


def report(suite: Suite, folder: Path, samples: int) -> None:
    """Compares the variants of a suite, prints the table, and writes comparison.csv, .md and .html into a folder."""
    with Task(f"comparing {len(suite.runs)} runs with {samples:,} bootstrap samples"):
        comparison = compare(suite, samples)
    show(comparison, suite)
    with Task("drawing the page"):
        forms = {"csv": csv_text(comparison.rows), "md": markdown(comparison), "html": page(comparison, suite)}
    for ending, text in forms.items():
        write_text(folder / f"comparison.{ending}", text)
    print(folder / "comparison.html")


def number(value: float | None, digits: int = 2, sign: bool = False) -> str:
    """Formats a number for a table, with a real minus sign; returns a dash for None."""
    return "–" if value is None else f"{value:{'+' * sign}z,.{digits}f}".replace("-", "−")


def spread(row: Row, name: str, digits: int = 2) -> str:
    """Formats a mean and, if there are several seeds, their standard deviation."""
    deviation = row.get(f"{name}_sd")
    return number(row.get(name), digits) + (f" ± {number(deviation, digits)}" if deviation is not None else "")


def p_value(p: float | None) -> str:
    return "< 0.001" if p is not None and p < 0.001 else number(p, 3)


def interval(low: float | None, high: float | None) -> str:
    """Formats an interval of a difference in BLEU, which lies between -100 and 100."""
    return "" if low is None or high is None else f" [{number(max(-100, low), sign=True)}, {number(min(100, high), sign=True)}]"


def chance(row: Row, split: str) -> str:
    """Formats how far seeds and sentences move a difference, and says if their interval disagrees with the verdict's p."""
    names = ("p", "seed_sd", "sentence_sd", "bootstrap_low", "bootstrap_high")
    p, seeds, sentences, low, high = (row.get(f"{split} {name}") for name in names)
    if p is None or low is None or high is None:
        return "–"
    text = f"sentences ± {number(sentences)}"
    text = text if seeds is None else f"seeds ± {number(seeds)}, {text}"
    return text + (f"; disagrees:{interval(low, high)}" if (low > 0 or high < 0) != (p < ALPHA) else "")


def score_table(comparison: Comparison) -> Lines:
    """Returns the table of scores, with a line per variant. The first five columns fit a narrow terminal."""
    first, rest = comparison.first, comparison.splits[1:]
    headings = ["variant", "verdict", f"BLEU {first}", "difference", "p", "spread of the difference"]
    lines = [[*headings, "NLL", "difference in NLL", "p of NLL", *rest, "chrF", "finished", "parameters", "tokens/s"]]
    names = ("difference", "low", "high", "p", "method", "nll_difference", "nll_p")
    for row in comparison.rows:
        difference, low, high, p, method, nll, nll_p = (row.get(f"{first} {name}") for name in names)
        cells = [row["variant"], row["verdict"], spread(row, f"{first} bleu")]
        cells += [number(difference, sign=True) + interval(low, high)]
        cells += [p_value(p) + (f" ({method})" if method not in (None, DUNNETT) else ""), chance(row, first)]
        cells += [spread(row, f"{first} nll", 3), number(nll, 3, sign=True), p_value(nll_p)]
        cells += [*(spread(row, f"{split} bleu") for split in rest), spread(row, f"{first} chrf")]
        counts = [number(row["parameters"], 0), number(row["tokens_per_second"], 0)]
        lines.append([*cells, f"{row['finished']} of {row['runs']}", *counts])
    return lines


def difference_table(suite: Suite) -> Lines:
    differences = suite.differences()
    lines = [[key, *("–" if value == MISSING else to_text(value) for value in values)] for key, values in differences.items()]
    return [["setting", *suite.variants], *lines] if lines else []


def notes(comparison: Comparison) -> list[str]:
    """Returns the notes on how the numbers were computed, each as one line."""
    methods = {row.get(f"{comparison.first} method") for row in comparison.rows}
    return TEMPLATES.get_template("notes.j2").render(vars(comparison), methods=methods, number=number).splitlines()


def show(comparison: Comparison, suite: Suite) -> None:
    if differences := difference_table(suite):
        print_table(differences, "What differs")
    print_table([line[:5] for line in score_table(comparison)], comparison.name, notes(comparison)[0])


def markdown(comparison: Comparison) -> str:
    """Returns the table of scores and the notes."""
    headings, *rows = [[escape.line(cell).replace("|", "\\|") for cell in line] for line in score_table(comparison)]
    title, table = f"# {escape.line(comparison.name)}", escape.table(headings, rows)
    return "\n".join([title, "", table, "", *(f"- {note}" for note in notes(comparison)), ""])


def page(comparison: Comparison, suite: Suite) -> str:
    rows, first = comparison.rows, comparison.first
    is_pair = suite.listed and len(suite.runs) == len(rows) == 2 and all(first in run.metrics for run in suite.runs)
    lengths = [split for split in comparison.splits if split in (first, "test_long")]
    colors = {row["variant"]: COLORS.get(row["verdict"], OTHER) for row in rows}

    harmed = [suite.of(row["variant"]) for row in rows if row["verdict"] in HARMED]
    worst = [min(runs, key=lambda run: run.metrics.get(first, {}).get("bleu", -1.0)) for runs in harmed]

    def length(run: Run) -> list[Points]:
        ranges = [run.metrics.get(split, {}).get("bleu_by_source_length", []) for split in lengths]
        return [[(int(re.split(r"\D", part["words"])[0]), part["bleu"]) for part in parts] for parts in ranges]

    values = [row.get(f"{first} difference") or 0.0 for row in rows]
    return TEMPLATES.get_template("page.html.j2").render(
        comparison=comparison,
        first=first,
        ends=(min(values), max(values)),
        causes={run.variant: explain(run, suite.base_of(run)) for run in worst},
        scores=score_table(comparison),
        differences=difference_table(suite),
        by_harm=sorted(rows[1:], key=lambda row: (row["verdict"] != DIVERGED, row.get(f"{first} difference") or 0.0)),
        learning=against_baseline(suite, colors, lambda run: [run.history.get("valid/bleu", [])], "step", "validation BLEU"),
        length=against_baseline(suite, colors, length, "words of the source", "BLEU"),
        lengths=lengths,
        failures={run.variant: diagnosis(run, suite.base_of(run)) for run in worst},
        words=words_of_one(suite, first) if is_pair else {},
        samples=sample_sentences(suite, first, contrast=is_pair),
        notes=notes(comparison),
        colors=colors,
        number=number,
    )


def words_of_one(suite: Suite, split: str) -> dict[str, list[tuple[str, int]]]:
    """Returns, by the name of each of two runs, the words that only this run has right and how often, the most frequent first.
    Words are the case-sensitive tokens with which BLEU was computed. A word of the reference is right if the translation
    contains it too. If a sentence repeats the word, counts are clipped as in BLEU (as in compare-mt, Neubig et al. 2019)."""
    columns, tokenize = [run.translations(split) for run in suite.runs], suite.runs[0].bleu(split).tokenizer
    texts = (columns[0]["reference"], *(column["translation"] for column in columns))
    words, *written = [[Counter(tokenize(line).split()) for line in lines] for lines in texts]
    first, second = [[a & b for a, b in zip(words, lines, strict=True)] for lines in written]
    sides = (first, second), (second, first)
    only = (Counter(chain.from_iterable((a - b).elements() for a, b in zip(*side, strict=True))) for side in sides)
    items = ([(word, n) for word, n in counts.most_common() if any(map(str.isalnum, word))][:MAX_ITEMS] for counts in only)
    return dict(zip(suite.variants, items, strict=True))


def sample_sentences(suite: Suite, split: str, contrast: bool) -> list[dict[str, Any]]:
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
