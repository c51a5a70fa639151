"""The length of a run: turns epochs or minutes into a number of steps, and says at the end whether more would help."""

import time
from collections.abc import Collection, Mapping
from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning.pytorch.callbacks import LambdaCallback

from entente import distributed
from entente.console import Task, clock, log
from entente.data.module import TranslationData
from entente.data.tokenizer import EOS
from entente.errors import InputError
from entente.settings import RunSettings
from entente.training.trainer import build_trainer
from entente.training.translator import Translator
from entente.training.views import Board, TensorBoardViews

SKIPPED, MEASURED = 20, 40  # steps before the measurement, which are slower, and in it
RISE = 0.02  # nats by which the validation NLL of a model that overfits rises
GAIN, FALL = 0.5, 0.05  # what a model that still learns gains in BLEU, or loses in NLL, in the last quarter of its run


def steps_of_epochs(settings: RunSettings, data: TranslationData) -> int:
    """Returns the number of steps of `trainer.epochs`, and logs it."""
    batches, epochs = data.train_dataloader(), settings.trainer.epochs or 1.0
    per_step = settings.trainer.accumulate * distributed.world_size()
    steps = max(1, round(batches.until(epochs) / per_step))
    log.info("steps per epoch: %.3g; epochs: %g; steps: %s", batches.until(1) / per_step, epochs, f"{steps:,}")
    return steps


def steps_of_minutes(settings: RunSettings, translator: Translator, data: TranslationData, began: float) -> int:
    """Returns the number of steps that `trainer.minutes` allow, with validations and the final evaluation, and logs it. Trains
    `translator` a few steps and then validates it, in a directory that is deleted. began: when the minutes began, as by
    `time.perf_counter`. Raises InputError if the minutes are too few."""
    minutes, validate_every, (src, tgt) = settings.trainer.minutes or 0.0, settings.trainer.validate_every, data.ids("valid")
    times: list[float] = []  # when batches ended
    step_clock = LambdaCallback(on_train_batch_end=lambda *_: times.append(time.perf_counter()))
    task = Task("measuring the time of a step and of a validation, for trainer.minutes")
    with task, TemporaryDirectory() as scratch:
        trainer = build_trainer(translator, data)
        trainer.callbacks = [step_clock, TensorBoardViews(settings.views, settings.data.src)]  # type: ignore[attr-defined]
        trainer.loggers, trainer.limit_val_batches = [Board(scratch, name="", version="")], 0
        trainer.fit(translator, datamodule=data)
        # The translations are to be as long as those of a trained model: as long as the references.
        ratio = float((tgt.lengths - 1).sum() / src.lengths.sum())
        search = settings.search.model_copy(update={"length_factor": ratio, "length_offset": 1})
        translator.settings = settings.model_copy(update={"search": search})
        with torch.no_grad():
            translator.model.output.weight[EOS] = 0  # lower than the best logit, so that none ends before its limit
        trainer.limit_val_batches, trainer.should_stop = 1, True  # draws all views, as after the last step
        valid = -time.perf_counter()
        trainer.validate(translator, datamodule=data, verbose=False)
        valid += time.perf_counter()
    names = [*data.corpus.tests, *[*data.corpus.tests][:1] * len(settings.also_evaluate)]
    tests = sum(len(data.evaluation(name).sources) for name in names) / len(src.lengths)  # relative to valid
    around = time.perf_counter() - began + valid * (tests + 1 + (settings.checkpoint.average > 1))
    step = (times[-1] - times[-1 - MEASURED * settings.trainer.accumulate]) / MEASURED
    if isinstance(validate_every, int):
        step += valid / validate_every
    else:
        around += valid / validate_every
    steps = distributed.share(lambda: int((60 * minutes - around) / step))
    if steps < SKIPPED:
        needed = (around + SKIPPED * step) / 60
        raise InputError(f"trainer.minutes={minutes:g}: preparation and evaluation need most of it; give at least {needed:.2g}")
    text = f"{step:.3f} s per step with validations, {clock(around)} for preparation and evaluation"
    log.info("trainer.minutes=%g: %s, so the run takes %s steps", minutes, text, f"{steps:,}")
    return steps


def verdict(rows: Collection[Mapping[str, Any]], settings: RunSettings) -> tuple[str, str, str] | None:
    """Returns a word, and two lines that explain it and give advice, or None after fewer than four validations. rows: those of
    metrics.csv."""
    bleu, nll, train = (
        {int(row["step"]): float(row[name]) for row in rows if row.get(name) not in (None, "")}
        for name in ("valid/bleu", "valid/nll", "train/nll")
    )
    if len(nll) < 4:
        return None
    first, *between, last = nll
    lowest, best = min((value, step) for step, value in nll.items())
    earlier_loss, later_loss = mean(train, best - (last - best), best), mean(train, best, last)
    if nll[last] > lowest + RISE and not later_loss >= earlier_loss:  # NaN, where nothing was measured, is no objection
        rise = f"since then, the validation NLL rose from {lowest:.2f} to {nll[last]:.2f}"
        advice = f"less training ({length(settings)}), or more text (data.extra)"
        dropout = f"try model.dropout above {settings.model.dropout:g}"
        return "overfitting", f"overfitting since step {best}: {rise}", f"{dropout}, {advice}"
    start = max([first, *(step for step in between if step <= 0.75 * last)])
    gain, fall = bleu[last] - bleu[start], nll[start] - nll[last]
    change = f"since step {start}, validation BLEU changed by {gain:+.1f} and NLL by {-fall:+.2f}"
    if gain > GAIN or fall > FALL:
        return "still rising", f"still rising: {change}", f"longer training would help; {length(settings)}"
    return "converged", f"converged: {change}", "longer training would help little; more text or a wider model might"


def mean(curve: Mapping[int, float], first: int, last: int) -> float:
    """Returns the mean of the values at steps in (first, last], or NaN if there is none."""
    values = [value for step, value in curve.items() if first < step <= last]
    return sum(values) / len(values) if values else float("nan")


def length(settings: RunSettings) -> str:
    """Returns the setting that says how long the run was."""
    for name in ("epochs", "minutes"):
        if value := getattr(settings.trainer, name):
            return f"trainer.{name} was {value:g}"
    return f"trainer.max_steps was {settings.trainer.steps}"
