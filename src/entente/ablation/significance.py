"""Tells differences between the variants and the baseline, here called the control, from chance. Functions of numbers alone.

Dunnett's test (1955) compares all variants with one control. It assumes that all of them have one standard deviation, which it
estimates from all their runs, so it takes only the variants of which every run is near the control's mean: within POOLED, or
within DEVIATIONS standard deviations of the control if that is further, and not below NOTHING. A variant that learned half of
the task has a much larger deviation, and one that learned nothing has none. Both are compared by Welch's test, whose p values
are corrected for their number (Holm 1979). Each test has the error rate ALPHA. A variant that equals the control hardly ever
has a run so far from the mean, so the error rate is ALPHA for all such variants together.

Where there are too few seeds for both tests, approximate randomisation compares two runs, and not two ways of training.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05  # probability that any of the variants that equal the control is called worse or better
POOLED, DEVIATIONS, EQUIVALENT = 5.0, 4.0, 1.0  # BLEU; standard deviations of a run's distance from the control's mean; BLEU
NOTHING = 1.0  # BLEU: a model with less translates nothing
TRIALS, CHUNK = 10_000, 250  # of approximate randomisation; bootstrap samples that are computed at once
DUNNETT, WELCH, RANDOMISATION = "Dunnett", "Welch", "randomisation"
WORSE, BETTER, SAME, WITHIN = "worse", "better", "no difference found", f"within {EQUIVALENT:g} BLEU"
WORSE_RUN, BETTER_RUN = f"{WORSE} (1 seed)", f"{BETTER} (1 seed)"
Scores = Mapping[str, Sequence[float]]  # the scores of each variant's runs; the first variant is the control
Array = NDArray[Any]


class Difference(NamedTuple):
    """A variant's mean minus the control's. low, high: the 95 % interval, simultaneous over the variants of a test (for Welch's
    by Bonferroni's correction); None for approximate randomisation. p: two-sided and corrected for their number."""

    difference: float
    low: float | None
    high: float | None
    p: float
    method: str

    @property
    def verdict(self) -> str:
        """The verdict, if the scores are BLEU."""
        if self.p < ALPHA:
            worse, better = (WORSE_RUN, BETTER_RUN) if self.method == RANDOMISATION else (WORSE, BETTER)
            return worse if self.difference < 0 else better
        is_within = self.low is not None and self.high is not None and max(-self.low, self.high) < EQUIVALENT
        return WITHIN if is_within else SAME


class Judgement(NamedTuple):
    """differences: of the variants for which there are enough runs. sigma: standard deviation of a run, pooled over the groups
    of Dunnett's test; None without degrees of freedom. control, seeds: numbers of runs of the control and of most variants of
    the test. smallest: half the width of the interval of such a variant, the smallest significant difference."""

    differences: dict[str, Difference]
    sigma: float | None
    degrees: int
    control: int
    seeds: int
    smallest: float | None


def judge(scores: Scores, bleu: Scores | None = None) -> Judgement:
    """Compares each variant's mean with the control's. bleu: BLEU of the same runs if `scores` are others, since BLEU decides
    which variants are pooled."""
    bleu, first = bleu or scores, next(iter(scores), "")
    if not (control := scores.get(first)):
        return Judgement({}, None, 0, 0, 0, None)
    center, n = statistics.fmean(bleu[first]), len(bleu[first])
    limit = max(POOLED, DEVIATIONS * math.sqrt(_variance(bleu[first]) * (1 + 1 / n)) if n > 1 else 0.0)
    variants = {name: values for name, values in scores.items() if values and name != first}
    near = {name for name in variants if all(score >= NOTHING and abs(score - center) <= limit for score in bleu[name])}
    pooled = {name: values for name, values in variants.items() if name in near}
    apart = {name: values for name, values in variants.items() if name not in pooled and min(len(control), len(values)) > 1}
    groups = [control, *pooled.values()]
    degrees, seeds = sum(len(group) - 1 for group in groups), statistics.mode([*map(len, pooled.values())] or [0])
    differences = _welch(control, apart)
    if not degrees:
        return Judgement(differences, None, 0, len(control), seeds, None)
    sigma = math.sqrt(sum((len(group) - 1) * _variance(group) for group in groups if len(group) > 1) / degrees)
    errors = {n: sigma * math.sqrt(1 / n + 1 / len(control)) for n in map(len, pooled.values())}
    design = len(control), tuple(map(len, pooled.values())), degrees
    for name, values in pooled.items():
        error, value = errors[len(values)], statistics.fmean(values) - statistics.fmean(control)
        margin, p = critical(*design) * error, exceedance(abs(value) / error, *design)
        differences[name] = Difference(value, value - margin, value + margin, p, DUNNETT)
    return Judgement(differences, sigma, degrees, len(control), seeds, critical(*design) * errors[seeds] if pooled else None)


def _welch(control: Sequence[float], variants: Scores) -> dict[str, Difference]:
    """Compares variants with the control by the deviations of both. All have at least two runs."""
    from scipy.special import stdtr, stdtrit

    differences = {}
    for name, values in variants.items():
        squares = [_variance(group) / len(group) for group in (values, control)]
        value, error = statistics.fmean(values) - statistics.fmean(control), math.sqrt(sum(squares))
        degrees = error**4 / (squares[0] ** 2 / (len(values) - 1) + squares[1] ** 2 / (len(control) - 1))
        margin = float(stdtrit(degrees, 1 - ALPHA / 2 / len(variants))) * error  # Bonferroni
        p = 2 * float(stdtr(degrees, -abs(value) / error))
        differences[name] = Difference(value, value - margin, value + margin, p, WELCH)
    ps = holm({name: difference.p for name, difference in differences.items()})
    return {name: difference._replace(p=ps[name]) for name, difference in differences.items()}


def _variance(values: Sequence[float]) -> float:
    return max(statistics.variance(values), 1e-12)  # equal runs would give t = 0 / 0


def exceedance(t: float, control: int, sizes: tuple[int, ...], degrees: int) -> float:
    """Returns the probability that the largest of Dunnett's statistics |t| is above t if no variant differs from the control.
    control, sizes: numbers of runs. Given the estimated deviation s (relative to the true one) and the control's mean z, the
    statistics are independent, so the probability is an integral over s and z (Dunnett 1955). It is summed over equally spaced
    values of z and of log s. (scipy.stats.dunnett estimates the same integral from random numbers, in seconds, with an error of
    1e-4. Here it was at most 3e-4 for controls of one or two runs, and below 1e-6 for more.)"""
    from scipy.special import chdtri, ndtr

    low, high = (math.log(chdtri(degrees, above) / degrees) / 2 for above in (1 - 1e-12, 1e-12))  # by chi-squared quantiles
    log_s = np.linspace(low, high, 96)[:, None]
    z = np.linspace(-8, 8, 65)
    weights = np.exp(degrees * (log_s - np.exp(2 * log_s) / 2 + 0.5) - z**2 / 2)
    below = np.ones_like(weights)
    for size, repeats in zip(*np.unique(sizes, return_counts=True), strict=True):
        ratio = math.sqrt(size / control)
        width, shift = t * np.exp(log_s) * math.sqrt(1 + ratio**2), ratio * z
        below *= (ndtr(shift + width) - ndtr(shift - width)) ** repeats
    return float(1 - np.average(below, weights=weights))


@cache
def critical(control: int, sizes: tuple[int, ...], degrees: int) -> float:
    """Returns the value that the largest of Dunnett's statistics |t| exceeds with probability ALPHA."""
    from scipy.optimize import brentq

    return float(brentq(lambda t: exceedance(t, control, sizes, degrees) - ALPHA, 0, 1e5))


def holm(ps: Mapping[str, float]) -> dict[str, float]:
    """Returns p values corrected for their number n (Holm 1979): smallest * n, next * (n - 1), ..., never decreasing."""
    order = sorted(ps, key=lambda name: ps[name])
    corrected = [min(1.0, (len(ps) - rank) * ps[name]) for rank, name in enumerate(order)]
    return dict(zip(order, accumulate(corrected, max), strict=True))


def randomisation(control: Array, runs: Mapping[str, Array], trials: int = TRIALS) -> dict[str, Difference]:
    """Compares single runs with one run of the control by approximate randomisation (Riezler and Maxwell 2005), from the counts
    of their sentences (sentences, 10). The trials are those of `sacrebleu --paired-ar`, but a trial counts against a difference
    also if it equals it."""
    swaps = np.random.default_rng(12345).integers(2, size=(trials, len(control)), dtype=bool)
    values, ps = {}, {}
    for name, counts in runs.items():
        values[name] = float(corpus_bleu(counts.sum(0)) - corpus_bleu(control.sum(0)))
        moved = np.concatenate([part.astype(float) @ (control - counts) for part in np.array_split(swaps, trials // CHUNK + 1)])
        shuffled = np.abs(corpus_bleu(counts.sum(0) + moved) - corpus_bleu(control.sum(0) - moved))
        ps[name] = (1 + int((shuffled > abs(values[name]) - 1e-9).sum())) / (trials + 1)
    return {name: Difference(values[name], None, None, p, RANDOMISATION) for name, p in holm(ps).items()}


def corpus_bleu(counts: Array) -> Array:
    """Returns sacreBLEU's BLEU with its default smoothing (exp) from counts summed over sentences: (..., 10) -> (...)."""
    lengths, matches, totals = counts[..., :2], counts[..., 2:6], counts[..., 6:]
    halvings = np.cumsum(matches == 0, axis=-1)  # the k-th precision without a match is 1 / (2^k * total)
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(matches == 0, 0.5**halvings, matches) / totals
        brevity = np.exp(np.minimum(0, 1 - lengths[..., 1] / lengths[..., 0]))
        bleu = 100 * brevity * np.exp(np.log(precisions).mean(-1))
    return np.where((totals > 0).all(-1) & (matches > 0).any(-1), bleu, 0.0)


class Spread(NamedTuple):
    """How far chance moves a difference: the standard deviation due to seeds (None if the variant or the control has only one)
    and to sentences, and a 95 % interval of both together."""

    seed_sd: float | None
    sentence_sd: float
    bootstrap_low: float
    bootstrap_high: float


def crossed_bootstrap(variant: Array, control: Array, samples: int, seed: int) -> Spread:
    """Resamples the difference in mean BLEU between a variant and the control, given by the counts of each sentence (runs,
    sentences, 10). Sentences are drawn for all runs alike. Of R runs, R - 1 are drawn, since drawing R would make the variance
    of their mean too small by a factor (R - 1) / R (Rao and Wu 1988)."""
    generator, n = np.random.default_rng(seed), variant.shape[1]
    runs = np.concatenate([variant, control]).swapaxes(0, 1)  # (sentences, runs, 10)
    sizes = len(variant), len(control)
    full, resampled = corpus_bleu(runs.sum(0)), []
    for start in range(0, samples, CHUNK):
        rows = [np.bincount(generator.integers(n, size=n), minlength=n) for _ in range(min(CHUNK, samples - start))]
        resampled.append(corpus_bleu(np.tensordot(np.array(rows, float), runs, 1)))
    scores = np.concatenate(resampled)  # (samples, runs)
    means = []
    for size, first in zip(sizes, (0, sizes[0]), strict=True):
        picks = first + generator.integers(size, size=(samples, max(1, size - 1)))
        group = slice(first, first + size)
        means.append([full[picks].mean(1), scores[:, group].mean(1), np.take_along_axis(scores, picks, 1).mean(1)])
    by_seeds, by_sentences, by_both = (a - b for a, b in zip(*means, strict=True))
    low, high = np.quantile(by_both, [ALPHA / 2, 1 - ALPHA / 2])
    return Spread(float(by_seeds.std()) if min(sizes) > 1 else None, float(by_sentences.std()), float(low), float(high))
