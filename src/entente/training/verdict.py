"""Says at the end of a run whether more training would help, from the losses and scores that were measured anyway."""

from collections.abc import Iterable, Mapping
from typing import Any

from entente.settings import RunSettings

RISE = 0.02  # nats by which the validation NLL of a model that overfits rises
GAIN, FALL = 0.5, 0.05  # what a model that still learns gains in BLEU, or loses in NLL, in the last quarter of its run


def verdict(rows: Iterable[Mapping[str, Any]], settings: RunSettings) -> tuple[str, str, str] | None:
    """Returns a word, and two lines that explain it and give advice, or None after fewer than four validations. rows: those of
    metrics.csv."""
    curves: dict[str, list[tuple[int, float]]] = {"valid/bleu": [], "valid/nll": [], "train/nll": []}
    for row in rows:
        for name, curve in curves.items():
            if row.get(name) not in (None, ""):
                curve.append((int(row["step"]), float(row[name])))
    bleu, nll, train = curves.values()
    if len(nll) < 4:
        return None
    last, now = nll[-1]
    lowest, best = min((value, step) for step, value in nll)
    earlier_loss, later_loss = mean(train, best - (last - best), best), mean(train, best, last)
    if now > lowest + RISE and not later_loss >= earlier_loss:  # NaN, where nothing was measured, does not speak against it
        rise = f"since then, the validation NLL rose from {lowest:.2f} to {now:.2f}"
        advice = (
            f"try model.dropout above {settings.model.dropout:g}, less training ({length(settings)}), or more text (data.extra)"
        )
        return "overfitting", f"overfitting since step {best}: {rise}", advice
    start = max(step for step, _ in nll[:-1] if step <= 0.75 * last or step == nll[0][0])
    gain, fall = bleu[-1][1] - dict(bleu)[start], dict(nll)[start] - now
    change = f"since step {start}, validation BLEU changed by {gain:+.1f} and NLL by {-fall:+.2f}"
    if gain > GAIN or fall > FALL:
        return "still rising", f"still rising: {change}", f"longer training would help; {length(settings)}"
    return "converged", f"converged: {change}", "longer training would help little; more text or a wider model might"


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
