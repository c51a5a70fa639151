"""Simulates suites, and counts how often their verdicts are wrong and right:  python scripts/simulate.py SUITE [NUMBER]

The simulated suites (NUMBER, or 1,000) have the numbers of seeds and variants of SUITE. BLEU of all runs is drawn from one
normal distribution with the mean of SUITE's baseline on its first test split and the standard deviation of the runs near it, so
every "worse" or "better" is wrong. Then one variant is made 1 BLEU worse than the baseline, and the suites that say so are
counted. Draws are the same each time.
"""

import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from entente.ablation.comparison import scores_of, splits_of
from entente.ablation.runs import read_suite
from entente.ablation.significance import BETTER, WORSE, Difference, judge
from entente.console import Task, exit_codes, show_share, start_log
from entente.errors import InputError

LOSS = 1.0  # BLEU


def simulate(
    sizes: Sequence[int], mean: float, sigma: float, losses: Sequence[float], number: int
) -> Iterator[dict[int, Difference]]:
    """Yields the differences of the variants of each simulated suite, by their place. sizes: numbers of runs of the baseline
    and of each variant. losses: how far the mean of each of these is below `mean`."""
    generator = np.random.default_rng(1)
    for _ in show_share(range(number), number, "the suites"):
        runs = enumerate(zip(losses, sizes, strict=True))
        scores = {str(place): generator.normal(mean - loss, sigma, size).tolist() for place, (loss, size) in runs}
        yield {int(place): difference for place, difference in judge(scores).differences.items()}


def main(folder: Path, number: int) -> None:
    suite = read_suite(folder)
    split = (splits_of(suite) or ["test"])[0]
    scores = {variant: scores_of(suite.of(variant), split, "bleu") for variant in suite.variants}
    sizes, judgement = [len(values) for values in scores.values() if values], judge(scores)
    if not judgement.sigma or len(sizes) < 2:
        raise InputError(f"{folder}: has no two seeds of its baseline or of a variant near it, so their deviation is unknown")
    usual = statistics.mode(sizes[1:])
    print(f"seeds: {sizes[0]} of the baseline, {usual} of most of the {len(sizes) - 1} variants")
    print(f"standard deviation: {judgement.sigma:.2f} BLEU ({judgement.degrees} degrees of freedom)")
    place = sizes.index(usual, 1)
    losses, mean = [LOSS * (i == place) for i in range(len(sizes))], statistics.fmean(scores[suite.variants[0]])
    with Task(f"simulating {2 * number:,} suites"):
        equal = simulate(sizes, mean, judgement.sigma, [0.0] * len(sizes), number)
        wrong = sum(any(each.verdict in (WORSE, BETTER) for each in differences.values()) for differences in equal)
        unequal = simulate(sizes, mean, judgement.sigma, losses, number)
        right = sum(place in differences and differences[place].verdict == WORSE for differences in unequal)
    print(f'all variants equal the baseline: {wrong / number:.1%} of {number:,} suites call one "worse" or "better"')
    print(f'a variant is {LOSS:g} BLEU worse: {right / number:.1%} of {number:,} suites call it "worse"')


if __name__ == "__main__":
    with exit_codes():
        start_log()
        match sys.argv[1:]:
            case [root]:
                main(Path(root), 1000)
            case [root, number] if number.isdecimal() and int(number):
                main(Path(root), int(number))
            case _:
                raise InputError("give a suite: python scripts/simulate.py outputs/SUITE [NUMBER]")
