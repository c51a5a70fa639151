"""Compares each variant with the baseline: scores over seeds, significance of differences, and a verdict.

p comes from sacreBLEU's paired bootstrap resampling (Koehn 2004), which compares a variant's run with the baseline's run of
the same seed, or with the baseline's first run if there is none. The largest p over the seeds is used, so that every seed must
show a difference. It is doubled, since sacreBLEU's test is one-tailed, and corrected for the number of variants (Holm 1979). p
accounts for the choice of test sentences; the standard deviation accounts for the choice of seeds.

Verdicts:
    worse, better              on the first test split, every seed differs in this direction, and Holm's p < 0.05
    as good                    no difference shown with this many seeds and sentences, which does not prove equality
    never left the plateau     NLL on test is at least 0.9 times that of a unigram model, which predicts pieces by frequency
    diverged                   the loss was not finite, or NLL on test is more than 1 nat above that of a uniform guess
    not finished               no metrics: waiting, interrupted, refused, or crashed
"""

import logging
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from entente.ablation.runs import Run, Suite
from entente.console import show_progress
from entente.errors import InputError

ALPHA = 0.05  # family-wise error rate of the verdicts "worse" and "better" on a split
REACHED = 0.9  # share of the baseline's BLEU that counts as reaching it
PLATEAU = 0.9  # a model is on the plateau if its NLL is at least this share of the unigram NLL
BASELINE, AS_GOOD, WORSE, BETTER = "baseline", "as good", "worse", "better"
STUCK, DIVERGED, UNFINISHED = "never left the plateau", "diverged", "not finished"
Row = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The results of a suite. splits: the test splits. regrouped: those decoded in other batches as well, such as test@alone.
    rows: one per variant, the baseline first; the keys are the columns of comparison.csv. A missing number is None.

    Columns for each split, which begin with its name:
        bleu, chrf    means over the finished seeds; bleu_sd and chrf_sd are the sample standard deviations
        baseline      the baseline's BLEU, averaged over the seeds that are compared with it
        difference    BLEU minus the baseline's, averaged over these seeds; lowest and highest are its range over them
        p, p_holm     the largest one-tailed p over these seeds; the same p, doubled and corrected
    Other columns:
        nll           mean NLL on the first test split
        steps         mean step at which validation BLEU reaches REACHED times the baseline's best; None if a seed never does
    """

    name: str
    seeds: list[int]
    samples: int
    splits: list[str]
    regrouped: list[str]
    signature: str
    rows: list[Row]


def compare(suite: Suite, samples: int) -> Comparison:
    """Returns the comparison of a suite. samples: number of bootstrap samples."""
    splits = list(dict.fromkeys(split for run in suite.runs for split in run.test_splits))
    regrouped = list(dict.fromkeys(split for run in suite.runs for split in run.metrics if "@" in split))
    first = splits[0] if splits else ""
    scores = {split: _scores(suite, split, samples) for split in splits}
    rows: list[Row] = []
    for variant in suite.variants:
        runs = suite.of(variant)
        finished = [run for run in runs if run.metrics]
        rows.append(
            {
                "variant": variant,
                "verdict": _verdict(suite, runs, scores[first][variant] if first else None, first),
                "finished": len(finished),
                "runs": len(runs),
                "nll": mean(run.metrics[first].get("nll") for run in runs if first in run.metrics),
                "parameters": next((run.training["parameters"] for run in runs if run.training), None),
                "tokens_per_second": mean(map(_speed, runs)),
                "steps": _steps(suite, finished),
                **{f"{split} {name}": value for split in splits for name, value in scores[split][variant].items()},
                **{
                    f"{split} bleu": mean(run.metrics[split]["bleu"] for run in runs if split in run.metrics)
                    for split in regrouped
                },
            }
        )
    signatures = (run.metrics[first]["signature"].get("bleu", "") for run in suite.runs if first in run.metrics)
    seeds = sorted({run.seed for run in suite.runs})
    return Comparison(suite.name, seeds, samples, splits, regrouped, next(signatures, ""), rows)


def has_failed(row: Row, splits: Sequence[str]) -> bool:
    """Returns whether a variant failed, or is worse with at most REACHED times the baseline's BLEU."""
    verdict = row["verdict"].partition(";")[0]
    slightly = verdict == WORSE and row[f"{splits[0]} difference"] > (REACHED - 1) * row[f"{splits[0]} baseline"]
    return verdict not in (BASELINE, AS_GOOD, BETTER) and not slightly


class CountedBLEU(BLEU):
    """BLEU of systems that are given by the n-gram counts of their sentences instead of their text."""

    def _extract_corpus_statistics(self, hypotheses: Any, references: Any) -> Any:
        self.num_refs = 1
        return hypotheses


def paired_bootstrap(systems: Sequence[Any], samples: int) -> list[float]:
    """Returns, for each system after the first, the p value of its difference in BLEU from the first, computed as by `sacrebleu
    --paired-bs`. If the two scores are equal, p is 1, whereas sacreBLEU would return the smallest possible p."""
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    named = [(str(number), counts) for number, counts in enumerate(systems)]
    results: Any = PairedTest(named, {"BLEU": CountedBLEU()}, None, test_type="bs", n_samples=samples)()[1]
    base, *systems = results["BLEU"]
    return [1.0 if other.score == base.score else other.p_value for other in systems]


def holm(ps: Mapping[str, float]) -> dict[str, float]:
    """Returns p values corrected for their number n (Holm 1979): smallest * n, next * (n - 1), ..., never decreasing."""
    order = sorted(ps, key=lambda name: ps[name])
    corrected = [min(1.0, (len(ps) - rank) * ps[name]) for rank, name in enumerate(order)]
    return dict(zip(order, accumulate(corrected, max), strict=True))


def _scores(suite: Suite, split: str, samples: int) -> dict[str, dict[str, float | None]]:
    """Returns the scores of each variant on a split, and their difference from the baseline's."""
    compared: dict[str, list[tuple[float, float, float]]] = defaultdict(list)  # (p, BLEU, baseline's BLEU) of each seed
    for base in suite.of(suite.variants[0]):
        compared_runs = [run for run in suite.runs if run.variant != base.variant and suite.base_of(run) is base]
        runs = [run for run in compared_runs if split in run.metrics]
        if runs and split in base.metrics:
            show_progress(split)
            counts, digests = zip(*(run.counts(split) for run in (base, *runs)), strict=True)
            for run, digest in zip(runs, digests[1:], strict=True):
                if digest != digests[0]:
                    text = f"{run.directory}: its {split} sentences are not those of {base.directory}"
                    raise InputError(f"{text}; compare runs on the same corpus")
            for run, p in zip(runs, paired_bootstrap(counts, samples), strict=True):
                compared[run.variant].append((p, run.metrics[split]["bleu"], base.metrics[split]["bleu"]))
    worst = {variant: max(p for p, _, _ in seeds) for variant, seeds in compared.items()}
    adjusted = holm({variant: min(1.0, 2 * p) for variant, p in worst.items()})
    numbers = {}
    for variant in suite.variants:
        scores = [run.metrics[split] for run in suite.of(variant) if split in run.metrics]
        bleu, chrf = [score["bleu"] for score in scores], [score["chrf"] for score in scores if "chrf" in score]
        differences = [bleu - base for _, bleu, base in compared[variant]]
        numbers[variant] = {
            "bleu": mean(bleu),
            "bleu_sd": _deviation(bleu),
            "chrf": mean(chrf),
            "chrf_sd": _deviation(chrf),
            "baseline": mean(base for _, _, base in compared[variant]),
            "difference": mean(differences),
            "lowest": min(differences, default=None),
            "highest": max(differences, default=None),
            "p": worst.get(variant),
            "p_holm": adjusted.get(variant),
        }
    return numbers


def _verdict(suite: Suite, runs: Sequence[Run], numbers: Row | None, first: str) -> str:
    """Returns the verdict on a variant from its runs and its numbers on the first test split."""
    failures = Counter(filter(None, (_failure(run, first) for run in runs)))
    notes = [f"{count} of {len(runs)} {failure}" for failure, count in failures.items()]
    if runs[0].variant == suite.variants[0]:
        return "; ".join([BASELINE, *notes])
    if failures.total() == len(runs):
        return next(iter(failures)) if len(failures) == 1 else "; ".join(notes)
    if numbers is None or numbers["p_holm"] is None:
        return "; ".join(["not compared", *notes])
    significant, lowest, highest = numbers["p_holm"] < ALPHA, numbers["lowest"], numbers["highest"]
    verdict = WORSE if significant and highest < 0 else BETTER if significant and lowest > 0 else AS_GOOD
    if verdict == AS_GOOD:
        if notes:
            return "; ".join(notes)  # not AS_GOOD: a failed run is no evidence of equality
        notes = ["seeds disagree"] * (significant and lowest < 0 < highest)
    if unmatched := sum(bool(run.metrics) and not suite.base_of(run).metrics for run in runs):
        notes.append(f"{unmatched} of {len(runs)} without a same-seed baseline")
    return "; ".join([verdict, *notes])


def _failure(run: Run, first: str) -> str:
    """Returns what went wrong with a run, or an empty string. first: the first test split."""
    if not run.metrics:
        return DIVERGED if run.diverged else UNFINISHED
    scores = run.metrics.get(first, {})
    nll, unigram, pieces = scores.get("nll"), run.training.get("unigram_nll"), run.learning.get("data.tokenizer.vocab_size")
    if nll is None:
        return ""
    guess = math.log(pieces) if pieces else unigram + 2 if unigram else math.inf
    if not math.isfinite(nll) or nll > guess + 1:
        return DIVERGED
    stuck = nll >= PLATEAU * unigram if unigram else scores["bleu"] < 1
    return STUCK if stuck else ""


def _steps(suite: Suite, finished: Sequence[Run]) -> float | None:
    """Returns the mean step at which validation BLEU reaches REACHED times the baseline's best; None if a seed never does."""
    reached = []
    for run in finished:
        goal = max((bleu for _, bleu in suite.base_of(run).history.get("valid/bleu", []) if math.isfinite(bleu)), default=None)
        if goal is not None:
            reached.append(next((step for step, v in run.history.get("valid/bleu", []) if v >= REACHED * goal), None))
    return None if None in reached else mean(reached)


def _speed(run: Run) -> float | None:
    """Returns the median of the logged speeds, which is robust to other load, or the overall speed if none was logged."""
    speeds = [value for _, value in run.history.get("train/tokens_per_second", []) if value > 0]
    return statistics.median(speeds) if speeds else run.training.get("tokens_per_second")


def mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
