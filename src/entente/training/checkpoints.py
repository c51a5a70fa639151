"""Writes and keeps the checkpoints of a run, and stops training between two steps when a signal asks for it."""

import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightning as L

from entente import distributed
from entente.console import Task
from entente.errors import Interrupted, Stopped
from entente.settings import CheckpointSettings
from entente.training.trainer import count_whole_steps


def steps(folder: Path) -> dict[int, Path]:
    """Returns the paths of the step-N.ckpt files in a folder, keyed and sorted by step."""
    files = ((path.stem.removeprefix("step-"), path) for path in folder.glob("step-*.ckpt"))
    return dict(sorted((int(step), path) for step, path in files if step.isdecimal()))


def regular_steps(steps: Iterable[int], every: float, last: int | None) -> list[int]:
    """Returns the steps whose checkpoints were not saved on an interrupt, so that interrupts change neither which are kept nor
    their mean. last: the last step of a run that is trained."""
    return [step for step in steps if step % every == 0 or step == last]


class Checkpoints(L.Callback):
    """Writes step-N.ckpt every `every` steps and at the end, keeps the latest max(keep, average) of them, and writes best.ckpt
    after the best validation. Validation always runs after the last step.

    When any process of the run has `received` a signal, all processes finish the current step and save a checkpoint. Then the
    first process raises `Interrupted`, and the others exit. But a validation that is due, or in progress, would take too long:
    then the first process ends the run without another checkpoint.
    """

    def __init__(self, folder: Path, settings: CheckpointSettings) -> None:
        self.folder, self.settings = folder, settings
        self.received = 0  # the number of a signal
        self.in_step = False  # whether a step is in progress, so that a signal waits for its end
        self.trained = False  # whether training is complete, so that only the evaluation is left
        self._saved: int | None = None  # the step of the last checkpoint
        self._batches_per_step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"trained": self.trained, "batches_per_step": self._batches_per_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.trained = state_dict["trained"]

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        count_whole_steps(checkpoint, trainer.accumulate_grad_batches)

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._saved = checkpoint["global_step"]
        count_whole_steps(checkpoint, trainer.accumulate_grad_batches)  # the saved run may have used another `accumulate`

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._batches_per_step = trainer.accumulate_grad_batches * distributed.world_size()
        trainer.should_stop = self.trained

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self.in_step = True
        loader: Any = trainer.train_dataloader
        if loader.position % loader.batches_per_step:
            return  # in the middle of an accumulated step
        step, received = trainer.global_step, self._received_anywhere()
        if step and step != self._saved and (step % self.settings.every == 0 or received):
            self._save(trainer)
        if received:
            self._stop(received, step)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        loader: Any = trainer.train_dataloader
        loader.consume()
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True  # makes Lightning validate even if no validation is due

    def on_validation_start(self, *_: Any) -> None:
        self.in_step = False
        if self.received and not distributed.rank():
            raise Stopped(self.received)

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if pl_module.is_best:
            trainer.save_checkpoint(self.folder / "best.ckpt", weights_only=True)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.in_step = self.trained = True
        self._save(trainer)
        self.in_step = False
        if received := self._received_anywhere():
            self._stop(received, trainer.global_step)

    def _save(self, trainer: L.Trainer) -> None:
        for logger in trainer.loggers:
            logger.save()  # flushes TensorBoard's events
        self._saved = trainer.global_step
        with Task("saving a checkpoint"):
            trainer.save_checkpoint(self.folder / f"step-{self._saved}.ckpt")
        if distributed.rank():
            return
        files, keep = steps(self.folder), max(self.settings.keep, self.settings.average)
        # A checkpoint saved on an interrupt is kept until there is a later one, and does not count towards `keep`.
        regular = regular_steps(files, self.settings.every, self._saved if self.trained else None)
        for step in files.keys() - {*regular[-keep:], self._saved}:
            files[step].unlink()

    def _received_anywhere(self) -> int:
        """Returns the number of a signal that this or another process of the run has received, or 0."""
        return max(distributed.gather(self.received))

    def _stop(self, number: int, step: int) -> None:
        if distributed.rank():
            sys.exit(0)  # the first process reports the signal
        when = f"after step {step}, which is saved" if step else "before the first step"
        raise Interrupted(f"stopped by {signal.Signals(number).name} {when}")
