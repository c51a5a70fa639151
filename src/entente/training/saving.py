"""Checkpoints of a run: when they are written, which are kept, how a signal stops a run, and where it resumes.

A checkpoint is a moment between two optimiser steps, after any validation that follows the first of them. It holds what
Lightning keeps (weights, optimiser, schedule, loops, callbacks) and what it does not: the random states of torch, NumPy and
Python, and, from our loader, how many batches were consumed. TensorBoard's events are flushed before it is written, and later
ones are purged when a run resumes from it, so no point is lost or shown twice. A run that was stopped anywhere and resumed
therefore ends with the same bits as one that was never stopped.
"""

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import lightning as L
import numpy as np
import torch
from annotated_types import Ge, doc
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.loggers import TensorBoardLogger

from entente.checkpoint import ENTRY, checksum, read, write
from entente.console.signals import Stopped, StopSignals
from entente.errors import InputError, Interrupted
from entente.training.run_directory import how_to_resume

log = logging.getLogger("entente")

RANDOM = "random"  # our entry for the random states in Lightning's checkpoint


@dataclass(frozen=True)
class CheckpointSettings:
    """When checkpoints are written, and what becomes of the last ones."""

    every: Annotated[int, Ge(1), doc("steps; a run that is killed loses no more than these")] = 200
    keep: Annotated[int, Ge(1), doc("checkpoints kept to go on from, the latest")] = 2
    average: Annotated[
        int, Ge(1), doc("above 1: the mean of so many of the latest is the run's model where validation BLEU says so")
    ] = 1


class VerifiedCheckpoints(TorchCheckpointIO):
    """Has Lightning read and write checkpoints as we do, with a checksum."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        write(checkpoint, Path(path))

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return read(Path(path))


class Checkpoints(L.Callback):
    """Writes step-N.ckpt every `every` steps and at the end, keeps the last `keep` of them, and writes best.ckpt by validation
    BLEU. The end is always validated.

    After SIGINT or SIGTERM the current step is completed and saved, and `Interrupted` is raised. A second SIGINT quits at once.
    """

    def __init__(self, folder: Path, every: int, keep: int) -> None:
        self.folder, self.every, self.keep = folder, every, keep
        self.best: float | None = None
        self.trained = False
        self._seconds = 0.0  # of training in earlier processes
        self._since = 0.0  # when this process began to train, by time.perf_counter
        self._saved: int | None = None  # the last step with a checkpoint
        self._ahead = False  # Lightning counts a batch as begun that has not
        self._random: dict[str, Any] | None = None  # to be restored before the next step
        self._signals = StopSignals(keep="stopping when this step is complete and saved; Ctrl-C once more to quit at once")

    @property
    def seconds(self) -> float:
        """Of training, in all processes of this run."""
        return self._seconds + (time.perf_counter() - self._since if self._since else 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "trained": self.trained, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self._seconds = state_dict["best"], state_dict["seconds"]

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[RANDOM] = random_state()
        loops = checkpoint["loops"]["fit_loop"]
        # Lightning counts a validation it skips after a start as a step.
        loops["epoch_loop.state_dict"]["_batches_that_stepped"] = trainer.global_step
        if self._ahead:
            progress = loops["epoch_loop.batch_progress"]
            for counted in (progress["total"], progress["current"]):
                counted["ready"] -= 1

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._random = checkpoint[RANDOM]
        self._saved = checkpoint["global_step"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._since = time.perf_counter()
        self._signals.install()

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if self._random is not None:
            restore_random_state(self._random)
            self._random = None
        loader: Any = trainer.train_dataloader
        if loader.position % trainer.accumulate_grad_batches:
            return  # within a step
        step = trainer.global_step
        if step and step != self._saved and (step % self.every == 0 or self._signals.received):
            self._ahead = True
            self._save(trainer)
            self._ahead = False
        self.stop_if_asked(step)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        loader: Any = trainer.train_dataloader
        loader.consume()
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True  # has Lightning validate, whether or not a validation is due

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        bleu = getattr(pl_module, "bleu", None)  # in double precision, unlike Lightning's copy
        if not trainer.sanity_checking and bleu is not None and (self.best is None or bleu > self.best):
            self.best = bleu
            self.write_best(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.trained = True
        self._save(trainer)
        self.stop_if_asked(trainer.global_step)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._signals.remove()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._signals.remove()

    def write_best(self, trainer: L.Trainer, translator: L.LightningModule) -> None:
        """Writes the current weights to best.ckpt, which is for translation and not for further training."""
        content = {"state_dict": translator.state_dict(), "global_step": trainer.global_step}
        translator.on_save_checkpoint(content)
        write(content, self.folder / "best.ckpt")

    def _save(self, trainer: L.Trainer) -> None:
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.flush()
        self._saved = trainer.global_step
        trainer.save_checkpoint(self.folder / f"step-{self._saved}.ckpt")
        points = steps(self.folder)
        # A checkpoint saved on an interrupt is kept until there is a later one, and does not count as one of the `keep`.
        regular = [path for path in points if step_of(path) % self.every == 0 or (self.trained and path == points[-1])]
        for path in set(points) - {*regular[-self.keep :], points[-1]}:
            path.unlink()

    def stop_if_asked(self, step: int) -> None:
        if self._signals.received:
            done = f"{Stopped(self._signals.received)} after step {step}, which is saved"
            raise Interrupted(f"{done}; {how_to_resume(self.folder.parent)}")


def step_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def steps(folder: Path) -> list[Path]:
    """The checkpoints of steps in a folder, oldest first."""
    return sorted((path for path in folder.glob("step-*.ckpt") if path.stem[5:].isdecimal() and path.is_file()), key=step_of)


def steps_of_mean(last: int, every: int, n: int) -> list[int]:
    """The steps whose weights `checkpoint.average=n` averages in a run of `last` steps, oldest first: regular ones and the last
    one, but none that was saved on an interrupt, or the mean would depend on it."""
    regular = (last - 1) // every
    return [*(every * i for i in range(max(1, regular - n + 2), regular + 1)), last]


@dataclass(frozen=True)
class Point:
    """Where a run resumes."""

    path: Path | None = None  # of the checkpoint; None: at the beginning
    step: int = 0
    trained: bool = False  # only the evaluation is left
    best: float | None = None  # BLEU of the best validation so far, whose weights best.ckpt holds
    entry: Mapping[str, Any] = field(default_factory=dict)  # see checkpoint.entry

    def what_is_left(self, max_steps: int) -> str:
        if self.trained:
            return f"has trained its {self.step} steps, its evaluation is left"
        if self.path is None:
            return f"has no checkpoint, starts again from step 0 of {max_steps}"
        return f"goes on from step {self.step} to {max_steps}"

    def refuse_other_text(self, entry: Mapping[str, Any]) -> None:
        """Raises InputError where the run began with another corpus than that of `entry`, or with another vocabulary, to whose
        pieces the weights belong."""
        if self.path is None:
            return
        if (text := self.entry.get("text")) is None:
            log.info("%s holds no digest of the text: only its vocabulary is compared with this one's", self.path)
        elif text != entry["text"]:
            raise InputError(
                f"{self.path}: the training or validation text has changed since this was written; "
                "give the run its own text again, or begin a new one without resume"
            )
        if checksum(self.entry["vocabulary"]) != checksum(entry["vocabulary"]):
            raise InputError(
                f"{self.path}: its vocabulary is not the one that the text gives now; "
                "give the run its own text and SentencePiece again, or begin a new one without resume"
            )


def newest(run_dir: Path, every: int = 1, average: int = 1, last: int | None = None) -> Point:
    """The latest undamaged checkpoint from which training yields all that the run's end needs: whatever of the checkpoints to
    average and best.ckpt is missing would be written again. Damaged and missing files are logged. last: the run's last step, if
    it is known in advance."""
    folder = run_dir / "checkpoints"

    @cache
    def content(name: str) -> dict[str, Any] | None:
        try:
            return read(folder / name)
        except InputError as error:
            log.warning("%s: going back to a checkpoint before it", error)
            return None

    lost: float | None = None  # BLEU of the best.ckpt that must be written again
    for path in steps(folder)[::-1]:
        if (saved := content(path.name)) is None:
            continue
        if (state := saved.get("callbacks", {}).get(Checkpoints.__qualname__)) is None:
            log.warning("%s: not a checkpoint that training goes on from: going back to one before it", path)
            continue
        point = Point(path, saved["global_step"], state["trained"], state["best"], saved[ENTRY])
        if lost is not None and point.best == lost:
            continue
        end = point.step if point.trained else last or point.step + 1
        if not all(content(f"step-{step}.ckpt") for step in steps_of_mean(end, every, average) if step <= point.step):
            continue
        if lost is None and point.best is not None and content("best.ckpt") is None:
            lost = point.best
            continue
        return point
    return Point()


def forget_after(run_dir: Path, point: Point) -> None:
    """Removes the checkpoints of later steps: training writes them again, as it does their points for TensorBoard."""
    for path in steps(run_dir / "checkpoints"):
        if step_of(path) > point.step:
            path.unlink()


def random_state() -> dict[str, Any]:
    """The states of all generators that training may draw from, as plain values and tensors."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, next_gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(words), next_gauss],
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    version, words, next_gauss = state["python"]
    random.setstate((version, tuple(words), next_gauss))
