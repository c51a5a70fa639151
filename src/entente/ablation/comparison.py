"""Compares each variant with the baseline: scores over seeds, significance of differences, and a verdict.

p comes from sacreBLEU's paired bootstrap resampling (Koehn 2004), which compares a variant's run with the baseline's run of
the same seed, or with the baseline's first run if there is none. The largest p over the seeds is used, so that every seed must
show a difference. It is doubled, since sacreBLEU's test is one-tailed, and corrected for the number of variants (Holm 1979). p
accounts for the choice of test sentences; the standard deviation accounts for the choice of seeds.

Verdicts:
    worse, better              on the first test split, every seed differs in this direction, and Holm's p < 0.05
    as good                    no difference shown with this many seeds and sentences, which does not prove equality
    never left the plateau     NLL on test is at least 0.9 times that of a unigram model, which predicts pieces by frequency
    diverged                   NLL on test is not finite, or more than 1 nat above that of a uniform guess
    crashed, killed, diverged, refused, not finished, not trained    the outcome of runs without metrics
"""

import logging
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any

from annotated_types import Interval, MinLen, doc
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from entente.ablation.runs import Run, Suite, Translations
from entente.config.schema import flat
from entente.console.log import show_progress

ALPHA = 0.05  # family-wise error rate of the verdicts "worse" and "better" on a split
REACHED = 0.9  # share of the baseline's BLEU that counts as reaching it
PLATEAU = 0.9  # a model is on the plateau if its NLL is at least this share of the unigram NLL
BASELINE, AS_GOOD, WORSE, BETTER = "baseline", "as good", "worse", "better"
STUCK, DIVERGED = "never left the plateau", "diverged"
Row = dict[str, Any]
FAILED = ("crashed", "killed", DIVERGED, "refused")  # states of a run that are also verdicts


@dataclass(frozen=True)
class Compare:
    """The settings of `entente compare`, as in configs/compare.yaml."""

    runs: Annotated[
        str | Annotated[Sequence[str], MinLen(1)],
        doc("a suite's directory, or a list of finished runs, such as [RUN,RUN]; the first is the baseline"),
    ]
    output: Annotated[
        str | None,
        doc("folder for comparison.html, .md and .csv; null: the suite's folder, or a new one in output_dir for given runs"),
    ] = None
    # The limit bounds memory: all samples are drawn at once, and each is as long as the test set.
    samples: Annotated[int, Interval(ge=1, le=100_000), doc("number of bootstrap samples")] = 2000
    output_dir: Annotated[str, doc("folder for new comparisons")] = "outputs"
    trust_data: Annotated[
        bool, doc("for two runs, allow reading the first run's training text to count its words; not needed for data=grammar")
    ] = False


@dataclass(frozen=True)
class Comparison:
    """The results of a suite. splits: the test splits. again: splits decoded again in other batches, such as test@alone.
    rows: one per variant, the baseline first; the keys are the columns of comparison.csv. A missing number is None.

    Columns for each split, which begin with its name:
        bleu, chrf    means over the finished seeds; bleu_sd and chrf_sd are the sample standard deviations
        baseline      the baseline's BLEU, averaged over the seeds that are compared with it
        difference    BLEU minus the baseline's, averaged over these seeds; lowest and highest are its range over them
        p, p_holm     the largest one-tailed p over these seeds; the same p, doubled and corrected
    Other columns:
        nll           mean NLL on the first test split
        steps         mean step at which validation BLEU reaches REACHED times the baseline's best; None if a seed never does
        differs       the aspects in which the proof of effect found a difference
    """

    name: str
    seeds: list[int]
    samples: int
    splits: list[str]
    again: list[str]
    signature: str
    command: str
    rows: list[Row]


def compare(suite: Suite, samples: int) -> Comparison:
    """Returns the comparison of a suite. samples: number of bootstrap samples."""
    settings = suite.settings
    splits = list(dict.fromkeys(split for run in suite.runs for split in run.test_splits))
    again = list(dict.fromkeys(split for run in suite.runs for split in run.metrics if "@" in split))
    first = splits[0] if splits else ""
    scores = {split: _scores(suite, split, samples) for split in splits}
    rows: list[Row] = []
    for variant in settings.variants:
        runs = suite.of(variant)
        finished = [run for run in runs if run.metrics]
        rows.append(
            {
                "variant": variant,
                "verdict": _verdict(suite, runs, scores[first][variant] if first else None, first),
                "finished": len(finished),
                "runs": len(runs),
                "nll": mean(run.metrics[first].nll for run in runs if first in run.metrics),
                "parameters": next((run.training.parameters for run in runs if run.training), None),
                "tokens_per_second": mean(map(_speed, runs)),
                "steps": _steps(suite, finished),
                "differs": ", ".join(next((run.proof.differs for run in runs if run.proof.differs), [])),
                **{f"{split} {name}": value for split in splits for name, value in scores[split][variant].items()},
                **{f"{split} bleu": mean(run.metrics[split].bleu for run in runs if split in run.metrics) for split in again},
            }
        )
    signatures = (run.metrics[first].signature.get("bleu", "") for run in suite.runs if first in run.metrics)
    command = "; ".join(settings.commands)
    return Comparison(suite.name, settings.seeds, samples, splits, again, next(signatures, ""), command, rows)


def has_failed(row: Row, splits: Sequence[str]) -> bool:
    """Returns whether a variant failed, or is worse with at most REACHED times the baseline's BLEU."""
    verdict = row["verdict"].partition(";")[0]
    kept = verdict == WORSE and row[f"{splits[0]} difference"] > (REACHED - 1) * row[f"{splits[0]} baseline"]
    return verdict not in (BASELINE, AS_GOOD, BETTER) and not kept


def paired_bootstrap(found: Sequence[Translations], samples: int) -> list[float]:
    """Returns, for each system after the first, the p value of its difference in BLEU from the first, computed as by `sacrebleu
    --paired-bs`. If the two scores are equal, p is 1, whereas sacreBLEU would return the smallest possible p."""
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    systems: Any = [(str(number), one.translation) for number, one in enumerate(found)]
    _, results = PairedTest(systems, {"BLEU": BLEU()}, [found[0].reference], test_type="bs", n_samples=samples)()
    scores: list[Any] = results["BLEU"]
    return [1.0 if one.score == scores[0].score else one.p_value for one in scores[1:]]


def holm(ps: Mapping[str, float]) -> dict[str, float]:
    """Returns p values corrected for their number n (Holm 1979): smallest * n, next * (n - 1), ..., never decreasing."""
    order = sorted(ps, key=lambda name: ps[name])
    corrected = [min(1.0, (len(ps) - rank) * ps[name]) for rank, name in enumerate(order)]
    return dict(zip(order, accumulate(corrected, max), strict=True))


def _scores(suite: Suite, split: str, samples: int) -> dict[str, dict[str, float | None]]:
    """Returns the scores of each variant on a split, and their difference from the baseline's."""
    compared: dict[str, list[tuple[float, float, float]]] = defaultdict(list)  # (p, BLEU, baseline's BLEU) of each seed
    for base in suite.of(suite.settings.variants[0]):
        others = [
            run for run in suite.runs if run.variant != base.variant and suite.base_of(run) is base and split in run.metrics
        ]
        if others and split in base.metrics:
            show_progress(split)
            ps = paired_bootstrap(suite.translations(split, [base, *others]), samples)
            for run, p in zip(others, ps, strict=True):
                compared[run.variant].append((p, run.metrics[split].bleu, base.metrics[split].bleu))
    worst = {variant: max(p for p, _, _ in seeds) for variant, seeds in compared.items()}
    adjusted = holm({variant: min(1.0, 2 * p) for variant, p in worst.items()})
    numbers = {}
    for variant in suite.settings.variants:
        scores = [run.metrics[split] for run in suite.of(variant) if split in run.metrics]
        bleu, chrf = [one.bleu for one in scores], [one.chrf for one in scores if one.chrf is not None]
        differences = [own - base for _, own, base in compared[variant]]
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
    outcomes = Counter(filter(None, (_failure(run, first) for run in runs)))
    said = [f"{count} of {len(runs)} {outcome}" for outcome, count in outcomes.items()]
    if runs[0].variant == suite.settings.variants[0]:
        return "; ".join([BASELINE, *said])
    if outcomes.total() == len(runs):
        return next(iter(outcomes)) if len(outcomes) == 1 else "; ".join(said)
    if numbers is None or numbers["p_holm"] is None:
        return "; ".join(["not compared", *said])
    significant, lowest, highest = numbers["p_holm"] < ALPHA, numbers["lowest"], numbers["highest"]
    verdict = WORSE if significant and highest < 0 else BETTER if significant and lowest > 0 else AS_GOOD
    if verdict == AS_GOOD:
        if said:
            return "; ".join(said)  # not AS_GOOD: a failed run is no evidence of equality
        said = ["seeds disagree"] * (significant and lowest < 0 < highest)
    if alone := sum(bool(run.metrics) and not suite.base_of(run).metrics for run in runs):
        said.append(f"{alone} of {len(runs)} without a same-seed baseline")
    return "; ".join([verdict, *said])


def _failure(run: Run, first: str) -> str:
    """Returns what went wrong with a run, or an empty string. first: the first test split."""
    if not run.metrics:
        return run.status.state if run.status.state in FAILED else "not finished" if run.config else "not trained"
    scores = run.metrics.get(first)
    if scores is None or scores.nll is None:
        return ""
    unigram = run.training.unigram_nll if run.training else None
    pieces = dict(flat(run.config)).get("data.tokenizer.vocab_size")
    even = math.log(pieces) if isinstance(pieces, int) and pieces > 0 else unigram + 2 if unigram else math.inf
    if not math.isfinite(scores.nll) or scores.nll > even + 1:
        return DIVERGED
    stuck = scores.nll >= PLATEAU * unigram if unigram else scores.bleu < 1
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
    measured = [value for _, value in run.history.get("train/tokens_per_second", []) if value > 0]
    return statistics.median(measured) if measured else run.training.tokens_per_second if run.training else None


def mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
