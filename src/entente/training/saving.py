"""Checkpoints during training: when they are written, which are kept, and how a signal stops a run."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import lightning as L
import numpy as np
import torch
from annotated_types import Ge, doc
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.loggers import TensorBoardLogger

from entente.checkpoint import read, write
from entente.console.endings import Stopped, StopSignals
from entente.errors import Interrupted
from entente.training.run_directory import how_to_resume, step_of, steps

RANDOM = "random"  # our entry for the random states in Lightning's checkpoint


@dataclass(frozen=True)
class CheckpointSettings:
    """When checkpoints are written, and what becomes of the last ones."""

    every: Annotated[int, Ge(1), doc("steps; a run that is killed loses no more than these")] = 200
    keep: Annotated[int, Ge(1), doc("checkpoints kept to go on from, the latest")] = 2
    average: Annotated[
        int, Ge(1), doc("above 1: the mean of so many of the latest is the run's model where validation BLEU says so")
    ] = 1


class VerifiedCheckpoints(CheckpointIO):
    """Lightning's way to a file: ours, with its checksum."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        write(checkpoint, Path(path))

    def load_checkpoint(self, path: str | Path, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return read(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


class Checkpoints(L.Callback):
    """step-N.ckpt every `every` steps and at the end, the last `keep` of them, and best.ckpt by validation BLEU. The end is
    always validated.

    SIGINT and SIGTERM are honoured when the step under way is complete: its checkpoint is written, `Interrupted` raised.
    A second SIGINT quits at once.
    """

    def __init__(self, folder: Path, every: int, keep: int) -> None:
        self.folder, self.every, self.keep = folder, every, keep
        self.best: float | None = None
        self.trained = False
        self._seconds, self._since = 0.0, 0.0  # of training before this process; when this process began to train
        self._saved: int | None = None  # the last step with a checkpoint
        self._ahead = False  # a batch is counted as begun and is not
        self._random: dict[str, Any] | None = None  # to be restored before the next step
        self._signals = StopSignals(keep="stopping when this step is complete and saved; Ctrl-C once more to quit at once")

    @property
    def seconds(self) -> float:
        """Of training, in all the processes that this run had."""
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

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int) -> None:
        if self._random is not None:
            restore_random_state(self._random)
            self._random = None
        if _loader(trainer).position % trainer.accumulate_grad_batches:
            return  # within a step
        step = trainer.global_step
        if step and step != self._saved and (step % self.every == 0 or self._signals.received):
            self._ahead = True
            self._save(trainer)
            self._ahead = False
        self.stop_if_asked(step)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        _loader(trainer).consume()
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True  # has Lightning validate, whether or not it is the turn of this step

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        bleu = getattr(pl_module, "bleu", None)  # as it was computed, where Lightning's own copy is in single precision
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
        """best.ckpt: what the weights now are, to translate with and not to train on."""
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
        # What an interrupt saved stays until a later point is there, and takes the place of none.
        regular = [path for path in points if step_of(path) % self.every == 0 or (self.trained and path == points[-1])]
        for path in set(points) - {*regular[-self.keep :], points[-1]}:
            path.unlink()

    def stop_if_asked(self, step: int) -> None:
        if self._signals.received:
            done = f"{Stopped(self._signals.received)} after step {step}, which is saved"
            raise Interrupted(f"{done}; {how_to_resume(self.folder.parent)}")


def _loader(trainer: L.Trainer) -> Any:
    return trainer.train_dataloader


def random_state() -> dict[str, Any]:
    """Of every generator that anything in training may draw from, as plain values and tensors."""
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
