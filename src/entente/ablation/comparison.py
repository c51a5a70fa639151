"""Compares each variant with the baseline: scores over seeds, significance of differences, and a verdict.

p comes from sacreBLEU's paired bootstrap resampling (Koehn 2004), which compares a variant's run with the baseline's run of
the same seed, or with the baseline's first run if there is none. The largest p over the seeds is used, so that every seed must
show a difference. It is doubled, since sacreBLEU's test is one-tailed, and corrected for the number of variants (Holm 1979).

Verdicts, of which a failure of any seed comes first, on the first test split, or on validation if there is none:
    diverged               the loss was not finite, or NLL is more than 1 nat above that of a uniform guess
    failed                 the run translates nothing: BLEU is below 1 and chrF below 20 (entente.ablation.causes says why)
    not finished           no metrics: waiting, interrupted, refused, or crashed
    worse, better          every seed differs in this direction, and Holm's p < 0.05
    no difference shown    which does not prove equality
    not compared           the variant and the baseline have no split in common
"""

import logging
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from entente.ablation.causes import diverged
from entente.ablation.runs import BASELINE, Run, Suite
from entente.console import show_progress
from entente.errors import InputError

ALPHA = 0.05  # family-wise error rate of the verdicts "worse" and "better" on a split
SAME, WORSE, BETTER, NOT_COMPARED = "no difference shown", "worse", "better", "not compared"
FAILED, DIVERGED, UNFINISHED = "failed", "diverged", "not finished"
HARMED = (WORSE, FAILED, DIVERGED, UNFINISHED)
Row = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The results of a suite. splits: all but valid, unless there is no other. rows: one per variant, the baseline first. The
    keys of a row are the columns of comparison.csv; a missing number is None. Each split has these columns, which begin with
    its name:
    bleu, chrf, nll    means over the finished seeds; bleu_sd and chrf_sd are the sample standard deviations
    difference         BLEU minus the baseline's, averaged over the seeds compared; lowest and highest are its range over them
    p, p_holm          the largest one-tailed p over these seeds; the same p, doubled and corrected
    A split decoded in other batches as well, such as test@alone, is not compared."""

    name: str
    seeds: list[int]
    samples: int
    splits: list[str]
    signature: str
    rows: list[Row]

    @property
    def first(self) -> str:
        """The split that decides the verdicts."""
        return self.splits[0] if self.splits else "test"


def compare(suite: Suite, samples: int) -> Comparison:
    splits = list(dict.fromkeys(split for run in suite.runs for split in run.metrics))
    splits = [split for split in splits if split != "valid"] or splits
    first = splits[0] if splits else "test"
    scores = {split: _scores(suite, split, samples) for split in splits}
    rows: list[Row] = []
    for variant in suite.variants:
        runs, numbers = suite.of(variant), scores[first][variant] if splits else {}
        finished = [run for run in runs if run.metrics]
        failures = [failure for run in runs if (failure := _failure(run, first))]
        row: Row = {
            "variant": variant,
            "verdict": failures[0] if failures else _verdict(numbers) if rows else BASELINE,
            "finished": len(finished),
            "runs": len(runs),
            "parameters": finished[0].training["parameters"] if finished else None,
            "tokens_per_second": mean([run.training["tokens_per_second"] for run in finished]),
        }
        rows.append(row | {f"{split} {name}": value for split in splits for name, value in scores[split][variant].items()})
    signatures = [run.metrics[first]["signature"]["bleu"] for run in suite.runs if first in run.metrics]
    return Comparison(suite.name, sorted({run.seed for run in suite.runs}), samples, splits, "".join(signatures[:1]), rows)


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
        runs = [run for run in suite.runs if run.variant != base.variant and suite.base_of(run) is base]
        runs = [run for run in runs if split in run.metrics]
        if runs and split in base.metrics and "@" not in split:
            show_progress(split)
            counts, digests = zip(*(run.counts(split) for run in (base, *runs)), strict=True)
            if different := [run for run, digest in zip(runs, digests[1:], strict=True) if digest != digests[0]]:
                text = f"{different[0].directory}: its {split} sentences are not those of {base.directory}"
                raise InputError(f"{text}; compare runs on the same corpus")
            if len({run.metrics[split]["signature"]["bleu"].partition("|version")[0] for run in (base, *runs)}) > 1:
                raise InputError(f"{base.directory}: not all BLEU of {split} have its signature; compare runs scored alike")
            for run, p in zip(runs, paired_bootstrap(counts, samples), strict=True):
                compared[run.variant].append((p, run.metrics[split]["bleu"], base.metrics[split]["bleu"]))
    worst = {variant: max(p for p, _, _ in seeds) for variant, seeds in compared.items()}
    adjusted = holm({variant: min(1.0, 2 * p) for variant, p in worst.items()})
    numbers = {}
    for variant in suite.variants:
        metrics = [run.metrics[split] for run in suite.of(variant) if split in run.metrics]
        bleu, chrf, nll = ([scores[name] for scores in metrics if name in scores] for name in ("bleu", "chrf", "nll"))
        differences = [score - base for _, score, base in compared[variant]]
        numbers[variant] = {
            "bleu": mean(bleu),
            "bleu_sd": statistics.stdev(bleu) if len(bleu) > 1 else None,
            "chrf": mean(chrf),
            "chrf_sd": statistics.stdev(chrf) if len(chrf) > 1 else None,
            "nll": mean(nll),
            "difference": mean(differences),
            "lowest": min(differences, default=None),
            "highest": max(differences, default=None),
            "p": worst.get(variant),
            "p_holm": adjusted.get(variant),
        }
    return numbers


def _verdict(numbers: Mapping[str, float | None]) -> str:
    """Returns the verdict on a variant without failures from its numbers on the split that decides."""
    p, lowest, highest = (numbers.get(name) for name in ("p_holm", "lowest", "highest"))
    if p is None or lowest is None or highest is None:
        return NOT_COMPARED
    if p >= ALPHA or lowest <= 0 <= highest:
        return SAME
    return WORSE if highest < 0 else BETTER


def _failure(run: Run, first: str) -> str | None:
    """Returns what went wrong with a run. first: the split that decides."""
    if run.metrics and first not in run.metrics:
        return None
    if diverged(run, first):
        return DIVERGED
    if not run.metrics:
        return UNFINISHED
    scores = run.metrics[first]
    return FAILED if scores["bleu"] < 1 and scores.get("chrf", 0.0) < 20 else None  # evaluation.metrics may leave out chrF


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
