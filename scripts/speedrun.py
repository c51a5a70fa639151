"""Draws validation BLEU against training time, one colour per variant:  python scripts/speedrun.py PICTURE RUN ... [/ RUN ...]

Runs that differ only in the seed are one variant. Each slash starts a new panel, titled with the name of its model.
"""

import sys
from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure

from entente.ablation.runs import Suite, read_runs
from entente.console import exit_codes
from entente.errors import InputError

FORMATS = (".png", ".svg", ".pdf")
TITLES = {"transformer": "Transformer", "birnn": "BiRNN"}


def draw(panels: list[Suite]) -> Figure:
    figure = Figure(figsize=(4.6 * len(panels), 3.2), layout="constrained")
    for axes, suite in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for number, variant in enumerate(suite.variants):
            for i, run in enumerate(suite.of(variant)):
                if not (curve := run.history.get("valid/bleu")):
                    raise InputError(f"{run.directory}: has no events with validation BLEU; give a run that still has them")
                minutes = run.training["seconds"] / run.training["steps"] / 60  # of a step, on average
                points = [(step * minutes, bleu) for step, bleu in curve]
                axes.plot(*zip(*points, strict=True), marker=".", color=f"C{number}", label="" if i else variant)
        model = suite.runs[0].config["model"]["name"]
        axes.set(title=TITLES.get(model, model), xlabel="minutes of training", ylabel="validation BLEU")
        axes.set(xlim=(0, None), ylim=(0, 100))
        axes.legend(loc="lower right", frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    with exit_codes():
        groups = [list(group) for is_slash, group in groupby(sys.argv[2:], "/".__eq__) if not is_slash]
        if not groups:
            raise InputError("give a file and finished runs: python scripts/speedrun.py PICTURE.png RUN ... [/ RUN ...]")
        picture = Path(sys.argv[1])
        if picture.suffix not in FORMATS:
            raise InputError(f"{picture}: give a file whose name ends in {', '.join(FORMATS)}")
        figure = draw([read_runs(list(map(Path, group)), picture.parent) for group in groups])
        figure.savefig(picture, dpi=110)
