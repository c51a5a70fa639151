"""Compares each variant with the baseline: scores, differences over seeds (entente.ablation.significance), a verdict, and, from
what was measured inside the model (entente.attention.diagnose), the causes of a failure. A run without these measurements
(views.diagnosis=0) shows fewer causes.

The verdict is on the first test split that all runs have, or else on validation. A failure of any seed comes first. notes.j2
explains the verdicts, except for "not compared": the variant or the baseline lacks that split.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from entente.ablation import significance
from entente.ablation.runs import BASELINE, Run, Suite
from entente.ablation.significance import NOTHING, WORSE, WORSE_RUN, Array, Judgement
from entente.console import show_progress
from entente.errors import InputError
from entente.evaluation import METRICS

NOT_COMPARED, FAILED, DIVERGED, UNFINISHED = "not compared", "failed", "diverged", "not finished"
HARMED = (WORSE, WORSE_RUN, FAILED, DIVERGED, UNFINISHED)
Row = dict[str, Any]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Comparison:
    """The results of a suite. splits: see splits_of. judgements: of BLEU, by split. rows: one per variant, the baseline first.
    The keys of a row are columns of comparison.csv. A number that does not exist is None, or its key is absent. Each split has
    these columns, which begin with its name:
    bleu, chrf, nll                   means over the finished seeds
    bleu_sd, chrf_sd, nll_sd          their sample standard deviations
    difference, low, high, p, method  of BLEU: see Difference in entente.ablation.significance
    seed_sd, sentence_sd              of the difference: see Spread there (crossed bootstrap)
    bootstrap_low, bootstrap_high     its 95 % interval due to both, of this variant alone
    nll_difference, nll_p             the same difference and p of NLL
    A split decoded in other batches as well, such as test@alone, is not compared."""

    name: str
    seeds: list[int]
    samples: int
    splits: list[str]
    first: str  # the split that decides the verdicts
    signature: str
    judgements: dict[str, Judgement]
    rows: list[Row]


def splits_of(suite: Suite) -> list[str]:
    """Returns the test splits, first those that all finished runs have. If there is no such split, validation is the first."""
    finished = [run.metrics for run in suite.runs if run.metrics]
    tests = dict.fromkeys(split for metrics in finished for split in metrics if split != "valid")
    shared = [split for split in tests if all(split in metrics for metrics in finished)]
    first = shared or ["valid"] * any("valid" in metrics for metrics in finished)
    return [*first, *(split for split in tests if split not in first)]


def compare(suite: Suite, samples: int) -> Comparison:
    splits = splits_of(suite)
    first = splits[0] if splits else "test"
    scores = {split: _scores(suite, split, samples) for split in splits}
    judgements = {split: judgement for split, (_, judgement) in scores.items()}
    rows: list[Row] = []
    for variant in suite.variants:
        runs, difference = suite.of(variant), judgements[first].differences.get(variant) if splits else None
        finished = [run for run in runs if run.metrics]
        failures = [failure for run in runs if (failure := _failure(run, first))]
        verdict = BASELINE if not rows else difference.verdict if difference else NOT_COMPARED
        row: Row = {
            "variant": variant,
            "verdict": failures[0] if failures else verdict,
            "finished": len(finished),
            "runs": len(runs),
            "parameters": finished[0].training["parameters"] if finished else None,
            "tokens_per_second": mean([run.training["tokens_per_second"] for run in finished]),
        }
        rows.append(row | {f"{split} {name}": value for split in splits for name, value in scores[split][0][variant].items()})
    signatures = [run.metrics[first]["signature"]["bleu"] for run in suite.runs if first in run.metrics]
    seeds = sorted({run.seed for run in suite.runs})
    return Comparison(suite.name, seeds, samples, splits, first, "".join(signatures[:1]), judgements, rows)


def _scores(suite: Suite, split: str, samples: int) -> tuple[dict[str, Row], Judgement]:
    """Returns the columns of each variant for a split, and the judgement of BLEU that they are based on."""
    groups = {variant: [run for run in suite.of(variant) if split in run.metrics] for variant in suite.variants}
    bleu, chrf, nll = ({name: scores_of(runs, split, key) for name, runs in groups.items()} for key in ("bleu", "chrf", "nll"))
    base, counts = suite.variants[0], {} if "@" in split else _counts(groups, split)
    judgement = significance.judge({name: bleu[name] for name in counts})
    finite = {name: [value for value in nll[name] if math.isfinite(value)] for name in counts}
    by_nll = significance.judge(finite, bleu).differences
    single = {name: counts[name][0] for name in counts if name != base and name not in judgement.differences}
    if single:
        randomised = significance.randomisation(counts[base][0], single)
        for name, difference in randomised.items():
            value = statistics.fmean(bleu[name]) - statistics.fmean(bleu[base])
            has_same_sign = value * difference.difference > 0  # as that of the first runs, of which p is
            randomised[name] = difference._replace(difference=value, p=difference.p if has_same_sign else 1.0)
        judgement = judgement._replace(differences=judgement.differences | randomised)
    columns: dict[str, Row] = {}
    for variant in suite.variants:
        row = columns[variant] = {}
        for name, values in (("bleu", bleu), ("chrf", chrf), ("nll", nll)):
            row |= {name: mean(values[variant]), f"{name}_sd": deviation(values[variant])}
        if variant in judgement.differences:
            show_progress(f"{split}: {variant}")
            row |= judgement.differences[variant]._asdict()
            row |= significance.crossed_bootstrap(counts[variant], counts[base], samples, seed=1)._asdict()
        if variant in by_nll:
            row |= {"nll_difference": by_nll[variant].difference, "nll_p": by_nll[variant].p}
    return columns, judgement


def scores_of(runs: Sequence[Run], split: str, metric: str) -> list[float]:
    return [run.metrics[split][metric] for run in runs if metric in run.metrics.get(split, {})]


def _counts(groups: Mapping[str, Sequence[Run]], split: str) -> dict[str, Array]:
    """Returns sacreBLEU's counts (runs, sentences, 10) of the variants that have runs, the baseline first, or {} if there is
    nothing to compare. Raises InputError if the runs were not scored alike on the same sentences."""
    arrays: dict[str, list[Any]] = {variant: [] for variant, runs in groups.items() if runs}
    first: tuple[Path, str, str] | None = None  # directory, digest and signature
    for variant, run in ((variant, run) for variant, runs in groups.items() for run in runs):
        show_progress(f"{split}: {variant}")
        counts, digest = run.counts(split)
        directory, sentences, signature = first = first or (run.directory, digest, _signature(run, split))
        if digest != sentences:
            text = f"{run.directory}: its {split} sentences are not those of {directory}"
            raise InputError(f"{text}; compare runs on the same corpus")
        if _signature(run, split) != signature:
            text = f"{run.directory}: its BLEU signature on {split} differs from that of {directory}"
            raise InputError(f"{text}; compare runs that were scored in the same way")
        arrays[variant].append(counts)
    has_baseline = next(iter(groups.values()), ())
    return {variant: np.array(lists) for variant, lists in arrays.items()} if has_baseline and len(arrays) > 1 else {}


def _signature(run: Run, split: str) -> str:
    return str(run.metrics[split]["signature"]["bleu"]).partition("|version")[0]


def _failure(run: Run, first: str) -> str | None:
    """Returns what went wrong with a run. first: the split that decides."""
    if run.metrics and first not in run.metrics:
        return None
    if diverged(run, first):
        return DIVERGED
    if not run.metrics:
        return UNFINISHED
    scores = run.metrics[first]
    return FAILED if scores["bleu"] < NOTHING and scores.get("chrf", 0.0) < 20 else None  # chrF may not be measured


def mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def deviation(values: Sequence[float]) -> float | None:
    """Returns the sample standard deviation of the finite values, if there are several."""
    finite = [value for value in values if math.isfinite(value)]
    return statistics.stdev(finite) if len(finite) > 1 else None


def explain(run: Run, baseline: Run) -> dict[str, str]:
    """Returns the causes that a run shows and its baseline does not, by name. The baseline itself is explained too."""
    common = {} if run is baseline else dict(causes(baseline))
    return {name: f"{name.capitalize()}: {text}." for name, text in causes(run) if name not in common}


def causes(run: Run) -> Iterator[tuple[str, str]]:
    """Yields the name and an explanation of each cause of failure that a run shows, the most specific first. The limits were
    set on the published suites."""
    scores, unigram = run.metrics.get("valid", {"nll": 0.0, "bleu": 100.0}), run.training.get("unigram_nll", math.inf)
    nlls = [nll for _, nll in run.history.get("valid/nll", []) if math.isfinite(nll)] or [math.inf]
    metric = "chrf" if "chrf" in scores else "bleu"  # evaluation.metrics may leave out chrF
    if diverged(run):
        yield "diverged", "its loss is not finite or above that of a uniform guess; try a lower optim.lr"
    if nlls[-1] < 0.25 * unigram and scores[metric] < 20:  # NLL is computed with the reference as input
        text = f"it predicts the references (NLL {nlls[-1]:.2f}) but cannot translate ({METRICS[metric]} {scores[metric]:.1f})"
        yield "copies the future", f"{text}, so its decoder must see the pieces that it has to predict in training"
    if (cosine := max(_last(run, "position cosine"), default=0.0)) > 0.95:
        text = f"all positions hold nearly the same vector (mean cosine {cosine:.2f})"
        yield "rank collapse", f"{text}, so words cannot be told apart"
    if min(norms := _last(run, "gradient norm") or [1.0]) < 1e-3 * max(norms):
        text = f"norms from {min(norms):.1g} to {max(norms):.1g}"
        yield "vanishing gradients", f"part of the model receives almost no gradient ({text})"
    if (entropy := statistics.median(_last(run, "attention entropy") or [1.0])) < 0.1:
        text = f"most layers put all weight on one piece (median entropy {entropy:.2f})"
        yield "attention saturated", f"{text}, where softmax has hardly any gradient"
    if (share := scores["nll"] / unigram) >= 0.9:
        text = f"NLL {share:.2f} times that of a unigram model"
        yield "never left the plateau", f"it predicts pieces by their frequency, whatever the context ({text})"
    if nlls[-1] > 1.2 * min(nlls):
        text = f"validation NLL rose from {min(nlls):.2f} to {nlls[-1]:.2f}"
        yield "overfits", f"it memorises the training text ({text})"
    if (effect := min(_last(run, "source effect"), default=1.0)) < 0.05:
        yield "ignores the source", f"another source changes its predictions by only {effect:.1%}"


def measured(run: Run) -> list[tuple[str, str, Points]]:
    """Returns the curves that were logged as why/ASPECT/PLACE, each with its aspect and place."""
    tags = [(tag, tag.split("/")) for tag in run.history if tag.startswith("why/")]
    return [(parts[1].replace("_", " "), parts[2], run.history[tag]) for tag, parts in tags if len(parts) == 3]


def _last(run: Run, aspect: str) -> list[float]:
    """Returns the last value of an aspect in each part of the model, without NaN and infinity."""
    values = [points[-1][1] for name, _, points in measured(run) if name == aspect]
    return [value for value in values if math.isfinite(value)]


def diverged(run: Run, split: str = "valid") -> bool:
    """Whether a run stopped because of its loss, or has an NLL that is more than 1 nat above that of a uniform guess."""
    if not run.metrics:
        return run.diverged
    nll = run.metrics[split]["nll"]
    return not math.isfinite(nll) or nll > math.log(run.learning["data.tokenizer.vocab_size"]) + 1
