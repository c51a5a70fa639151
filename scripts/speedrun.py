"""Draws validation BLEU against training time, one colour per recipe:  python scripts/speedrun.py PICTURE RUN ... [/ RUN ...]

Runs that differ only in the seed are one recipe. After each slash, a new panel begins. The first run of a panel names it.
"""

import sys
from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure

from entente.ablation.runs import read_runs
from entente.console.endings import endings


def draw(panels: list[list[str]], picture: Path) -> None:
    figure = Figure(figsize=(4.6 * len(panels), 3.2), layout="constrained")
    for axes, places in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        suite = read_runs([Path(place) for place in places], picture.parent)
        for number, variant in enumerate(suite.settings.variants):
            for i, run in enumerate(suite.of(variant)):
                minutes, bleu = zip(*run.by_minutes("valid/bleu"), strict=True)
                axes.plot(minutes, bleu, marker=".", color=f"C{number}", label="" if i else variant)
        name = {"transformer": "Transformer", "birnn": "BiRNN"}[suite.runs[0].config["model"]["name"]]
        axes.set(title=name, xlabel="minutes of training", ylabel="validation BLEU", ylim=(0, 100))
        axes.legend(loc="lower right", frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    with endings():
        path, *given = sys.argv[1:]
        draw([list(group) for is_slash, group in groupby(given, "/".__eq__) if not is_slash], Path(path))
