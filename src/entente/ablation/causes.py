"""Says why a run failed, by rules on its scores and on what was measured inside the model during training.

A rule returns its evidence, or an empty string if it does not apply. The measurements are those of entente.attention.diagnose;
a run without them (views.diagnosis=0) shows fewer causes. The limits were set on the published suites.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from entente.ablation.runs import Run

Points = Sequence[tuple[float, float]]


class Cause(NamedTuple):
    name: str
    explanation: str
    evidence: Callable[[Run], str]


def explain(run: Run, baseline: Run) -> dict[str, str]:
    """Returns the causes that a run shows and its baseline does not, the most specific first: a sentence by name. The baseline
    itself may be explained, too."""
    evidence = {cause: cause.evidence(run) for cause in CAUSES if run is baseline or not cause.evidence(baseline)}
    return {cause.name: f"{cause.name.capitalize()}: {cause.explanation} ({text})." for cause, text in evidence.items() if text}


def measured(run: Run) -> list[tuple[str, str, Points]]:
    """Returns the curves that were logged as why/ASPECT/PLACE, each with its aspect and place."""
    tags = [(tag, tag.split("/")) for tag in run.history if tag.startswith("why/")]
    return [(parts[1].replace("_", " "), parts[2], run.history[tag]) for tag, parts in tags if len(parts) == 3]


def diverged(run: Run, split: str = "valid") -> bool:
    """Whether a run stopped because of its loss, or has an NLL that is more than 1 nat above that of a uniform guess."""
    if not run.metrics:
        return run.diverged
    nll = run.metrics[split]["nll"]
    return not math.isfinite(nll) or nll > math.log(run.learning["data.tokenizer.vocab_size"]) + 1


def _last(run: Run, aspect: str) -> dict[str, float]:
    """Returns the last value of an aspect that is finite, by place."""
    values = {place: [y for _, y in points if math.isfinite(y)] for name, place, points in measured(run) if name == aspect}
    return {place: curve[-1] for place, curve in values.items() if curve}


def _diverged(run: Run) -> str:
    return "its loss is not finite, or above that of a uniform guess" if diverged(run) else ""


def _copies(run: Run) -> str:
    """A model that sees the future has a low NLL, which is computed with the reference as input, and translates nothing."""
    if not (scores := run.metrics.get("valid")) or not run.history.get("valid/nll"):
        return ""
    nll = run.history["valid/nll"][-1][1]  # of the last weights; those with the highest BLEU may be early ones
    is_shown = nll < 0.25 * run.training["unigram_nll"] and scores["chrf"] < 20
    return f"NLL of the references {nll:.2f}, chrF of the translations {scores['chrf']:.1f}" if is_shown else ""


def _collapsed(run: Run) -> str:
    cosines = _last(run, "position cosine")
    place = max(cosines, key=lambda place: cosines[place], default="")
    return f"position cosine {cosines[place]:.2f} after {place}" if place and cosines[place] > 0.95 else ""


def _vanishes(run: Run) -> str:
    norms = _last(run, "gradient norm")
    low, high = (pick(norms, key=lambda place: norms[place], default="") for pick in (min, max))
    is_shown = low and norms[low] < 1e-3 * norms[high]
    return f"gradient norm {norms[low]:.1g} in {low}, {norms[high]:.1g} in {high}" if is_shown else ""


def _saturates(run: Run) -> str:
    entropies = _last(run, "attention entropy").values()
    return f"median attention entropy {middle:.2f}" if entropies and (middle := statistics.median(entropies)) < 0.1 else ""


def _is_stuck(run: Run) -> str:
    share = run.metrics["valid"]["nll"] / run.training["unigram_nll"] if run.metrics else 0.0
    return f"its NLL is {share:.2f} times that of a unigram model" if share >= 0.9 else ""


def _overfits(run: Run) -> str:
    values = [nll for _, nll in run.history.get("valid/nll", []) if math.isfinite(nll)]
    is_shown = values and values[-1] > 1.2 * min(values)
    return f"validation NLL rose from {min(values):.2f} to {values[-1]:.2f}" if is_shown else ""


def _ignores(run: Run) -> str:
    effects = _last(run, "source effect")
    is_shown = effects and effects["output"] < 0.05
    return f"another source changes its predictions by {effects['output']:.1%}" if is_shown else ""


CAUSES = (
    Cause("diverged", "a lower learning rate, a longer warm-up or gradient clipping may keep the loss finite", _diverged),
    Cause("copies the future", "its decoder sees the pieces to predict in training, but not when it translates", _copies),
    Cause("ranks collapsed", "all positions hold nearly the same vector, so words cannot be told apart", _collapsed),
    Cause("vanishing gradients", "part of the model receives almost no gradient, so it does not learn", _vanishes),
    Cause("attention saturated", "most layers put all weight on one piece, where softmax has hardly any gradient", _saturates),
    Cause("never left the plateau", "it predicts pieces by their frequency, whatever the context", _is_stuck),
    Cause("overfits", "it memorises the training text", _overfits),
    Cause("ignores the source", "its predictions hardly depend on the source sentence", _ignores),
)
