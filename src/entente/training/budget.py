"""Turns the length of a run, in epochs or minutes, into a number of steps."""

import time
from typing import Any

import lightning as L
import torch

from entente import distributed
from entente.console import Task, clock, log
from entente.data.batches import Batch, to_device
from entente.data.module import TranslationData
from entente.decoding.translate import parallel_map
from entente.errors import InputError
from entente.settings import RunSettings
from entente.training.trainer import build_trainer, on_accelerator
from entente.training.translator import Translator

SKIPPED, MEASURED = 20, 40  # steps before the measurement, which are slower, and in it
DECODED = 8  # validation batches, spread over all lengths, on which the time of an evaluation is measured


def steps_of_epochs(settings: RunSettings, data: TranslationData) -> int:
    """Returns the number of steps of `trainer.epochs`, and logs it."""
    batches, epochs = data.train_dataloader(), settings.trainer.epochs or 1.0
    per_step = settings.trainer.accumulate * distributed.world_size()
    steps = max(1, round(batches.until(epochs) / per_step))
    log.info("steps per epoch: %.3g; epochs: %g; steps: %s", batches.until(1) / per_step, epochs, f"{steps:,}")
    return steps


class StepClock(L.Callback):
    """Measures the time from the end of step SKIPPED to the end of training."""

    seconds = 0.0

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step <= SKIPPED:
            self._began = time.perf_counter()
        self.seconds = time.perf_counter() - self._began


def steps_of_minutes(settings: RunSettings, translator: Translator, data: TranslationData, began: float) -> int:
    """Returns the number of steps that `trainer.minutes` allow, with validations and the final evaluation, and logs it. Trains
    `translator` a few steps, and then measures its evaluation. began: when the minutes began, as by `time.perf_counter`. Raises
    InputError if the minutes are too few."""
    step_clock, minutes, validate_every = StepClock(), settings.trainer.minutes or 0.0, settings.trainer.validate_every
    with Task("measuring the time of a step, for trainer.minutes"):
        trainer = build_trainer(translator, data)
        trainer.callbacks, trainer.limit_val_batches = [step_clock], 0  # type: ignore[attr-defined]
        trainer.fit(translator, datamodule=data)
        device, step = trainer.strategy.root_device, step_clock.seconds / MEASURED
        with on_accelerator(translator.model, device.type, settings.trainer.precision, device.index):
            valid, *tests = (seconds_of_evaluation(translator, data, split) for split in ("valid", *data.corpus.tests))
    around = time.perf_counter() - began + sum(tests) + valid * (1 + (settings.checkpoint.average > 1))
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


def seconds_of_evaluation(translator: Translator, data: TranslationData, split: str) -> float:
    """Returns the time to evaluate a split with a trained model, whose translations are about as long as the references: that
    of decoding the references of some batches, piece by piece."""
    model, device, beam = translator.model, next(translator.model.parameters()).device, translator.settings.search.beam
    batches = data.evaluation(split)
    some = range(0, len(batches), max(1, len(batches) // DECODED))

    @torch.inference_mode()
    def decode(batch: Batch) -> int:
        batch = to_device(batch, device)
        state = model.encode(batch.src.repeat_interleave(beam, 0))
        for piece in batch.tgt.repeat_interleave(beam, 0).split(1, dim=1):
            hidden, state = model.decode(piece, state)
            model.output(hidden).topk(beam)
        return len(batch.tgt)

    began = time.perf_counter()
    sentences = parallel_map((batch for i in some for batch in batches.batches[i : i + 1]), decode, model)
    share = len(batches) / len(batches.batches) / distributed.world_size()  # of the sentences that this process evaluates
    return (time.perf_counter() - began) * share * len(batches.sources) / sum(sentences)
