"""Compares what ablations cost on two corpora, and in the literature:  python scripts/transfer.py FOLDER SUITE SUITE ...

The suites come in pairs, that of the Transformer first: one on the grammar, then one on Multi30k with the same variants.
FOLDER/transfer.png shows the differences in BLEU with their simultaneous 95 % intervals, and the table is printed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from entente.ablation import significance
from entente.ablation.comparison import HARMED, NOT_COMPARED, UNFINISHED, Row, compare
from entente.ablation.report import interval, number
from entente.ablation.runs import read_suite
from entente.ablation.significance import BETTER_RUN
from entente.console import Task, exit_codes, start_log
from entente.errors import InputError

SAMPLES = 2000
CORPORA = ("grammar", "Multi30k")
LARGE, SMALL = ((-100, 8), (-60, 8)), (-6, 3)  # BLEU: the ranges of x and y on the left, and of both on the right
WORSE, BETTER, NO_DIFFERENCE, OPEN = "worse", "better", "no difference", "open"
AGREE = {True: "yes", False: "no", None: "–"}


class Claim(NamedTuple):
    """What a publication says about this change in translation, in BLEU unless it says otherwise. small: that it is less than 1
    BLEU, which a difference within 1 BLEU does not contradict."""

    outcome: str
    text: str
    small: bool = False


class Side(NamedTuple):
    """A variant on one corpus. value, low, high: its difference in BLEU, and the simultaneous interval. outcome: OPEN if no
    difference was found, which does not mean that there is none; NO_DIFFERENCE if the interval is within 1 BLEU."""

    verdict: str
    outcome: str
    value: float | None
    low: float | None
    high: float | None

    @property
    def margin(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


Pair = tuple[Side, Side]  # on the grammar and on Multi30k


# Publications that we know of. Few of them make this very change in a model like ours, and the figures are theirs, many of them
# on development sets. For the other variants, we found none.
LITERATURE = {
    "no_residual": Claim(WORSE, "not about BLEU: without skips and MLPs, attention loses rank (Dong et al. 2021)"),
    "unscaled": Claim(NO_DIFFERENCE, "inferred: with small keys, as good as the additive score (Vaswani et al. 2017, 3.2.1)"),
    "one_head": Claim(WORSE, "−0.9 against the best number of heads (Vaswani et al. 2017, table 3 A)", small=True),
    "no_feed_forward": Claim(WORSE, "−2.1, Transformer Big on WMT22 En-De (Pires et al. 2023, table 3)"),
    "no_positions": Claim(WORSE, "12.5 instead of 25.8 with relative ones (Shaw et al. 2018, tables 2 and 3)"),
    "learned_positions": Claim(NO_DIFFERENCE, "−0.1 (Vaswani et al. 2017, table 3 E)"),
    "rotary": Claim(NO_DIFFERENCE, "+0.2, WMT14 En-De (Su et al. 2021, table 1)"),
    "post_norm": Claim(NO_DIFFERENCE, "+0.75 on WMT14, −0.27 on five small corpora (Nguyen and Salazar 2019, tables 6 and 3)"),
    "no_norm": Claim(WORSE, "training fails, WMT14 En-De (Zhang and Sennrich 2019, table 4)"),
    "rms_norm": Claim(NO_DIFFERENCE, "+0.2 and 0.0, WMT14 En-De, two test sets (Zhang and Sennrich 2019, table 4)"),
    "cosine_score": Claim(BETTER, "+0.9, five small corpora, not the only change (Henry et al. 2020)", small=True),
    "no_warmup": Claim(NO_DIFFERENCE, "pre-norm without one equals post-norm with one (Xiong et al. 2020, 4.2)"),
    "no_dropout": Claim(WORSE, "−1.2 (Vaswani et al. 2017, table 3 D)"),
    "no_label_smoothing": Claim(WORSE, "−0.5, and a better perplexity (Vaswani et al. 2017, table 3 D)", small=True),
    "untied": Claim(NO_DIFFERENCE, "tying does no harm, in recurrent models (Press and Wolf 2017)"),
    "additive_score": Claim(NO_DIFFERENCE, "inferred: equal to unscaled products of small keys (Vaswani et al. 2017, 3.2.1)"),
    "no_attention": Claim(WORSE, "17.8 instead of 26.8, and a one-way encoder (Bahdanau et al. 2015, table 1)"),
    "lstm": Claim(BETTER, "+0.4 (Britz et al. 2017, 4.2)", small=True),
    "one_direction": Claim(WORSE, "−1.2 with one layer (Britz et al. 2017, 4.4)"),
}


def pairs_of(suites: Sequence[Path]) -> dict[str, Pair]:
    """Returns the variants that both suites of a pair have finished, by name."""
    pairs: dict[str, Pair] = {}
    for paths in zip(suites[::2], suites[1::2], strict=True):
        sides: list[dict[str, Side]] = []
        for path in paths:
            with Task(f"comparing {path}"):
                comparison = compare(read_suite(path), SAMPLES)
            rows = [row for row in comparison.rows[1:] if row["verdict"] not in (UNFINISHED, NOT_COMPARED)]
            sides.append({row["variant"]: _side(row, comparison.first) for row in rows})
        for variant in sides[0].keys() & sides[1].keys():
            name = f"{variant} ({paths[0].name})" if variant in pairs else variant  # of a second model, perhaps
            pairs[name] = sides[0][variant], sides[1][variant]
    if not pairs:
        raise InputError("the suites have no finished variant in common")
    return dict(sorted(pairs.items(), key=lambda item: (item[1][0].value or 0.0, item[0])))  # the largest loss first


def _side(row: Row, split: str) -> Side:
    verdict = row["verdict"]
    outcomes = {significance.BETTER: BETTER, BETTER_RUN: BETTER, significance.WITHIN: NO_DIFFERENCE}
    outcome = WORSE if verdict in HARMED else outcomes.get(verdict, OPEN)
    return Side(verdict, outcome, *(row.get(f"{split} {name}") for name in ("difference", "low", "high")))


def table(pairs: dict[str, Pair]) -> str:
    lines = ["| variant | grammar | verdict | Multi30k | verdict | agree | literature | agrees with |", "|---" * 8 + "|"]
    for variant, pair in pairs.items():
        cells = [f"`{variant}`"]
        for side in pair:
            cells += [number(side.value, sign=True) + interval(side.low, side.high), side.verdict]
        cells.append(AGREE[_agree(pair)])
        if claim := LITERATURE.get(variant):
            silent = {OPEN, NO_DIFFERENCE} if claim.small else {OPEN}
            known = {corpus: side.outcome for corpus, side in zip(CORPORA, pair, strict=True) if side.outcome not in silent}
            agreeing = [corpus for corpus, outcome in known.items() if outcome == claim.outcome]
            disagreeing = "neither" if len(known) == 2 else "".join(f"not {corpus}" for corpus in known)
            cells += [f"{claim.outcome}: {claim.text}", " and ".join(agreeing) or disagreeing or "–"]
        else:
            cells += ["–", "–"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _agree(pair: Pair) -> bool | None:
    """Returns whether the outcomes on both corpora are the same, or None if one is open."""
    outcomes = {side.outcome for side in pair}
    return None if OPEN in outcomes else len(outcomes) == 1


def draw(pairs: dict[str, Pair]) -> Figure:
    """Draws the differences on the grammar against those on Multi30k: all of them, and next to these the small ones, with their
    names. Blue: the outcomes agree; red: they do not; grey: one is open."""
    figure = Figure(figsize=(10.5, 5), layout="constrained")
    points = {name: pair for name, pair in pairs.items() if None not in (pair[0].value, pair[1].value)}
    small = {name for name, pair in points.items() if all(SMALL[0] <= (side.value or 0.0) <= SMALL[1] for side in pair)}
    x_label, y_label = (f"difference in BLEU, {corpus}" for corpus in CORPORA)
    for axes, limits, shown in zip(figure.subplots(1, 2), (LARGE, (SMALL, SMALL)), ([*points], sorted(small)), strict=True):
        axes.axline((0, 0), slope=1, color="0.8", linewidth=1, zorder=0)
        for line in (axes.axhline, axes.axvline):
            line(0, color="0.8", linewidth=1, zorder=0)
        for i, variant in enumerate(shown):
            x, y = points[variant]
            color = {True: "C0", False: "C3", None: "0.5"}[_agree((x, y))]
            style = {"fmt": "o", "color": color, "markersize": 4, "elinewidth": 0.8}
            axes.errorbar([x.value], [y.value], xerr=x.margin, yerr=y.margin, **style)
            if limits != LARGE or variant not in small:
                place = (4, 4 if i % 2 else -10)  # above or below, since neighbours would overlap
                axes.annotate(variant, (x.value, y.value), xytext=place, textcoords="offset points", fontsize=7)
        axes.set(xlim=limits[0], ylim=limits[1], xlabel=x_label, ylabel=y_label)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main(folder: Path, suites: Sequence[Path]) -> None:
    pairs = pairs_of(suites)
    folder.mkdir(parents=True, exist_ok=True)
    draw(pairs).savefig(folder / "transfer.png", dpi=110)
    print(table(pairs))


if __name__ == "__main__":
    with exit_codes():
        start_log()
        if len(sys.argv) < 4 or len(sys.argv) % 2:
            raise InputError("give a folder and pairs of suites: python scripts/transfer.py FOLDER GRAMMAR MULTI30K ...")
        main(Path(sys.argv[1]), [Path(path) for path in sys.argv[2:]])
