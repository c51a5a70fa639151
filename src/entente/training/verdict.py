"""Says at the end of a run whether more training would help, from the losses and scores that were measured anyway."""

from collections.abc import Iterable, Mapping
from typing import Any

from entente.settings import RunSettings

RISE = 0.02  # a rise of the validation NLL that is no noise, as a share
GAIN = 0.5  # a gain of BLEU in the last quarter that more steps would probably add to

STILL_RISING, OVERFITTING, CONVERGED = "still rising", "overfitting", "converged"


def verdict(rows: Iterable[Mapping[str, Any]], settings: RunSettings) -> tuple[str, str] | None:
    """Returns the verdict, and two lines that explain it and give advice; None after fewer than four validations. rows: those
    of metrics.csv."""
    curves: dict[str, list[tuple[int, float]]] = {"valid/bleu": [], "valid/nll": [], "train/nll": []}
    for row in rows:
        for name, curve in curves.items():
            if row.get(name) not in (None, ""):
                curve.append((int(row["step"]), float(row[name])))
    bleu, nll, train = curves.values()
    if len(nll) < 4:
        return None
    last, unit = nll[-1][0], length(settings)
    lowest, best = min((value, step) for step, value in nll)
    before, after = mean(train, best - (last - best), best), mean(train, best, last)
    if nll[-1][1] > (1 + RISE) * lowest and after < before:
        rise = f"since then, the validation NLL rose from {lowest:.2f} to {nll[-1][1]:.2f}, and that of training fell"
        advice = f"try model.dropout above {settings.model.dropout:g}, less training ({unit}), or more text (data.extra)"
        return OVERFITTING, f"overfitting since step {best}: {rise}\n{advice}"
    start = max((point for point in bleu if point[0] <= 0.75 * last), default=bleu[0])
    if (gain := bleu[-1][1] - start[1]) > GAIN:
        return STILL_RISING, f"still rising: validation BLEU gained {gain:.1f} since step {start[0]}\ntrain for longer: {unit}"
    return CONVERGED, (
        f"converged: validation BLEU changed by {gain:+.1f} since step {start[0]}\n"
        "longer training would add little; a wider model (model.d_model) or more text might"
    )


def mean(curve: list[tuple[int, float]], first: int, last: int) -> float:
    """Returns the mean of the values at steps in (first, last], or NaN if there is none."""
    values = [value for step, value in curve if first < step <= last]
    return sum(values) / len(values) if values else float("nan")


def length(settings: RunSettings) -> str:
    """Returns the setting that says how long the run was."""
    trainer = settings.trainer
    for name in ("epochs", "minutes"):
        if value := getattr(trainer, name):
            return f"trainer.{name} was {value:g}"
    return f"trainer.max_steps was {trainer.steps}"
