"""Says why a run failed, from its scores and from what was measured inside the model (see entente.attention.diagnose). A run
without these measurements (views.diagnosis=0) shows fewer causes."""

import math
import statistics
from collections.abc import Sequence

from entente.ablation.runs import Run
from entente.evaluation import METRICS

Points = Sequence[tuple[float, float]]


def explain(run: Run, baseline: Run) -> dict[str, str]:
    """Returns the causes that a run shows and its baseline does not, as `causes` does. The baseline itself is explained too."""
    common = {} if run is baseline else causes(baseline)
    return {name: f"{name.capitalize()}: {text}." for name, text in causes(run).items() if name not in common}


def causes(run: Run) -> dict[str, str]:
    """Returns the causes of failure that a run shows, the most specific first: an explanation by name. The limits were set on
    the published suites."""
    scores, unigram = run.metrics.get("valid", {"nll": 0.0, "bleu": 100.0}), run.training.get("unigram_nll", math.inf)
    nlls = [nll for _, nll in run.history.get("valid/nll", []) if math.isfinite(nll)] or [math.inf]
    metric = "chrf" if "chrf" in scores else "bleu"  # evaluation.metrics may leave out chrF
    share = scores["nll"] / unigram
    cosine, norms = max(_last(run, "position cosine"), default=0.0), _last(run, "gradient norm") or [1.0]
    entropy, effect = statistics.median(_last(run, "attention entropy") or [1.0]), min(_last(run, "source effect"), default=1.0)
    rules = {
        "diverged": (diverged(run), "its loss is not finite or above that of a uniform guess; try a lower optim.lr"),
        "copies the future": (
            nlls[-1] < 0.25 * unigram and scores[metric] < 20,  # NLL is computed with the reference as input
            f"it predicts the references (NLL {nlls[-1]:.2f}) but cannot translate ({METRICS[metric]} {scores[metric]:.1f}), "
            "so its decoder must see the pieces that it has to predict in training",
        ),
        "rank collapse": (
            cosine > 0.95,
            f"all positions hold nearly the same vector (mean cosine {cosine:.2f}), so words cannot be told apart",
        ),
        "vanishing gradients": (
            min(norms) < 1e-3 * max(norms),
            f"part of the model receives almost no gradient (norms from {min(norms):.1g} to {max(norms):.1g})",
        ),
        "attention saturated": (
            entropy < 0.1,
            f"most layers put all weight on one piece (median entropy {entropy:.2f}), where softmax has hardly any gradient",
        ),
        "never left the plateau": (
            share >= 0.9,
            f"it predicts pieces by their frequency, whatever the context (NLL {share:.2f} times that of a unigram model)",
        ),
        "overfits": (
            nlls[-1] > 1.2 * min(nlls),
            f"it memorises the training text (validation NLL rose from {min(nlls):.2f} to {nlls[-1]:.2f})",
        ),
        "ignores the source": (effect < 0.05, f"another source changes its predictions by only {effect:.1%}"),
    }
    return {name: text for name, (is_shown, text) in rules.items() if is_shown}


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
