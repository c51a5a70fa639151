"""Tests what is said about differences over seeds and sentences, against scipy, sacreBLEU and the laws of each test."""

import math
import random
import statistics
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from scipy.stats import dunnett, ttest_ind

from entente.ablation.significance import (
    ALPHA,
    WELCH,
    Difference,
    corpus_bleu,
    critical,
    crossed_bootstrap,
    exceedance,
    holm,
    judge,
)

DESIGNS = [(10, (3,) * 7), (2, (2, 3, 5)), (1, (3, 1)), (5, (2,)), (1, (2, 1, 1))]  # runs of the control and of the variants


def draw(control: int, sizes: tuple[int, ...], sigma: float = 0.3, seed: int = 1) -> dict[str, list[float]]:
    generator = np.random.default_rng(seed)
    return {str(i): generator.normal(90, sigma, size).tolist() for i, size in enumerate((control, *sizes))}


@pytest.mark.parametrize(("control", "sizes"), DESIGNS)
def test_p_and_intervals_are_those_of_dunnetts_test(control: int, sizes: tuple[int, ...]) -> None:
    """The variants near the baseline have scipy's p, and at each statistic the critical value decides as scipy's p does."""
    first, *variants = draw(control, sizes).values()
    variants[0] = [score + 0.9 for score in variants[0]]
    judgement = judge({"base": first, **{str(i): scores for i, scores in enumerate(variants)}})
    expected = dunnett(*variants, control=first, rng=np.random.default_rng(1))
    degrees = control + sum(sizes) - 1 - len(sizes)
    assert judgement.degrees == degrees and judgement.control == control
    for t, p, difference in zip(expected.statistic, expected.pvalue, judgement.differences.values(), strict=True):
        assert difference.p == pytest.approx(p, abs=1e-3) and difference.method == "Dunnett"
        assert (p < ALPHA) == (abs(t) > critical(control, sizes, degrees)) == (difference.p < ALPHA)
        assert (difference.p < ALPHA) == (difference.low > 0 or difference.high < 0)


def test_with_one_variant_dunnetts_test_is_students() -> None:
    first, second = draw(5, (3,)).values()
    expected = ttest_ind(second, first)
    judged = judge({"base": first, "other": second})
    difference, interval = judged.differences["other"], expected.confidence_interval()
    assert difference[:4] == pytest.approx((statistics.fmean(second) - statistics.fmean(first), *interval, expected.pvalue))
    assert judged.smallest == pytest.approx((interval.high - interval.low) / 2)


def test_the_critical_value_grows_with_the_variants() -> None:
    values = [critical(10, (3,) * n, 9 + 2 * n) for n in (1, 2, 5, 33)]
    assert values == sorted(values) and len({*values}) == 4
    assert exceedance(0, 10, (3,) * 33, 75) == pytest.approx(1)


def test_variants_that_learned_half_are_compared_by_their_own_deviation() -> None:
    scores = draw(6, (3, 3))
    pooled = judge(scores)
    half, torn = [40.0, 51.0, 35.0], [90.1, 89.9, 80.0]  # the mean of the second is near the baseline, one run is not
    judged = judge({**scores, "half": half, "torn": torn, "single": [50.0]})
    assert (judged.sigma, judged.degrees, judged.smallest) == (pooled.sigma, pooled.degrees, pooled.smallest)
    assert {name: judged.differences[name] for name in ("1", "2")} == pooled.differences
    tests = [ttest_ind(values, scores["0"], equal_var=False) for values in (half, torn)]
    corrected = holm({"half": tests[0].pvalue, "torn": tests[1].pvalue})
    for name, test in zip(("half", "torn"), tests, strict=True):
        interval = test.confidence_interval(1 - ALPHA / 2)
        assert judged.differences[name][1:] == pytest.approx((*interval, corrected[name], "Welch"))
    assert judged.differences["half"].verdict == "worse" and judged.differences["torn"].verdict == "no difference found"
    assert "single" not in judged.differences  # one run has no deviation


def test_other_scores_are_grouped_by_bleu() -> None:
    bleu = {**draw(4, (3,)), "far": [10.0, 11.0, 12.0]}
    nll = {"0": [0.30, 0.31, 0.29, 0.30], "1": [9.5, 9.51, 9.49], "far": [0.31, 0.30, 0.32]}
    judged = judge(nll, bleu).differences
    assert {name: difference.method for name, difference in judged.items()} == {"1": "Dunnett", "far": "Welch"}


def test_without_two_runs_of_any_group_seeds_say_nothing() -> None:
    judged = judge({"base": [90.0], "other": [90.5], "far": [3.0]})
    assert judged.differences == {} and judged.sigma is None and judged.smallest is None
    assert judge({"base": [], "other": [90.0, 91.0]}).differences == judge({}).differences == {}


def test_variants_that_translate_nothing_do_not_make_the_deviation_smaller() -> None:
    runs = {"control": [4.2, 3.1, 4.9], "twin": [3.3, 5.2, 4.1]}
    failed = {f"failed {i}": [0.01, 0.0, 0.02] for i in range(5)}
    alone, judgement = judge(runs), judge(runs | failed)
    assert judgement.sigma == alone.sigma and judgement.differences["twin"] == alone.differences["twin"]
    assert {each.method for name, each in judgement.differences.items() if name in failed} == {WELCH}


def test_equal_runs_differ_in_nothing() -> None:
    judged = judge({"base": [90.0, 90.0], "equal": [90.0, 90.0], "far": [1.0, 1.0]}).differences
    assert judged["equal"].p == 1 and judged["equal"].verdict == "within 1 BLEU" and judged["far"].verdict == "worse"


@pytest.mark.parametrize(
    ("low", "high", "p", "test", "verdict"),
    [
        (-0.9, 0.2, 0.3, "Dunnett", "within 1 BLEU"),
        (-1.1, 0.4, 0.3, "Dunnett", "no difference found"),
        (-0.4, 1.1, 0.3, "Welch", "no difference found"),
        (-0.9, -0.1, 0.01, "Dunnett", "worse"),
        (0.1, 3.0, 0.01, "Welch", "better"),
        (None, None, 0.3, "randomisation", "no difference found"),
        (None, None, 0.01, "randomisation", "worse (1 seed)"),
    ],
)
def test_verdict(low: float | None, high: float | None, p: float, test: str, verdict: str) -> None:
    value = -0.35 if low is None or high is None else (low + high) / 2
    assert Difference(value, low, high, p, test).verdict == verdict


def test_holm_by_hand() -> None:
    # The p values are sorted in ascending order and multiplied by 4, 3, 2 and 1. Each result is at least the previous one.
    assert holm({"d": 0.5, "b": 0.02, "a": 0.01, "c": 0.03}) == pytest.approx({"a": 0.04, "b": 0.06, "c": 0.06, "d": 0.5})
    assert holm({"a": 0.04, "b": 0.04}) == pytest.approx({"a": 0.08, "b": 0.08})
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


WORDS = "the a dog cat bird horse sees hears follows likes not old red small".split()


def counts(runs: int, damage: float, seed: int) -> np.ndarray[Any, Any]:
    """Returns sacreBLEU's counts of runs that replace some words of the same sentences: (runs, sentences, 10)."""
    corpus, noise = random.Random(7), random.Random(seed)
    references = [" ".join(corpus.choices(WORDS, k=corpus.randrange(3, 17))) for _ in range(53)]
    arrays = []
    for run in range(runs):
        share = damage * (1 + run / 3)  # so that seeds differ more than by chance
        lines = [" ".join(noise.choice(WORDS) if noise.random() < share else word for word in x.split()) for x in references]
        arrays.append(BLEU(force=True)._extract_corpus_statistics(lines, [references]))
    return np.array(arrays)


TEXTS = {  # translations of "the old dog sees a cat"
    "right": "the old dog sees a cat",
    "no matches of 3 and 4": "the old cat sees the dog",
    "no matches of 2 to 4": "cat the dog",
    "long": "the old dog sees a cat and the old dog",
    "short": "the old dog sees",
    "no 4-grams": "the old dog",
    "no matches": "une carte de plus",
    "empty": "",
}


@pytest.mark.parametrize("name", TEXTS)
def test_bleu_of_counts_is_sacrebleus(name: str) -> None:
    metric, reference = BLEU(force=True), [["the old dog sees a cat"]]
    array = np.array(metric._extract_corpus_statistics([TEXTS[name]], reference)).sum(0)
    assert float(corpus_bleu(array)) == pytest.approx(metric.corpus_score([TEXTS[name]], reference).score, abs=1e-9)
    assert corpus_bleu(np.array([[array] * 3] * 2)).shape == (2, 3)


def test_the_bootstrap_tells_seeds_from_sentences() -> None:
    variant, control = counts(3, 0.2, seed=1), counts(5, 0.1, seed=2)
    spread = crossed_bootstrap(variant, control, 4000, seed=1)
    assert spread == crossed_bootstrap(variant, control, 4000, seed=1)
    scores = [corpus_bleu(array.sum(1)) for array in (variant, control)]
    error = math.sqrt(sum(statistics.variance(values.tolist()) / len(values) for values in scores))
    assert spread.seed_sd == pytest.approx(error, rel=0.05)  # the standard error of a difference in means
    assert spread.sentence_sd > 0 and spread.bootstrap_low < scores[0].mean() - scores[1].mean() < spread.bootstrap_high
    width = (spread.bootstrap_high - spread.bootstrap_low) / 2 / 1.96
    assert width > max(spread.seed_sd, spread.sentence_sd)
    assert width == pytest.approx(math.hypot(spread.seed_sd, spread.sentence_sd), rel=0.15)


def test_the_bootstrap_finds_nothing_where_nothing_varies() -> None:
    equal = np.repeat(counts(1, 0.1, seed=1), 3, axis=0)
    assert crossed_bootstrap(equal, equal, 300, seed=1) == (0, 0, 0, 0)  # all runs have the same translations
    alike = np.repeat(counts(3, 0.2, seed=1)[:, :1], 20, axis=1)
    spread = crossed_bootstrap(alike, alike[:2], 300, seed=1)
    assert spread.sentence_sd == pytest.approx(0, abs=1e-9) and spread.seed_sd is not None and spread.seed_sd > 0
    assert crossed_bootstrap(alike[:1], alike, 300, seed=1).seed_sd is None


@pytest.mark.parametrize("sigma", [0.5, 4.0])
def test_equal_variants_get_a_verdict_at_the_error_rate_however_much_runs_differ(sigma: float) -> None:
    suites = [judge(draw(10, (2,) * 40, sigma, seed=seed)) for seed in range(101)]
    wrong = sum(any(each.p < ALPHA for each in judgement.differences.values()) for judgement in suites)
    assert 0 < wrong < 13  # 5 % would be 5, with a standard error of 2.2
    assert statistics.fmean(judgement.sigma or 0 for judgement in suites) == pytest.approx(sigma, rel=0.06)
