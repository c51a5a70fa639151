"""Stop anywhere, go on, and end with the same bits as a run that never stopped.

A checkpoint is a moment between two optimiser steps, after whatever validation followed the first of them. It holds what
Lightning keeps (weights, optimiser, schedule, loops, callbacks) and what it does not: the random states of torch, NumPy and
Python, and, from our loader, how many batches were consumed. TensorBoard's events are flushed before it is written, and those
after it are purged when a run goes on from it, so no point is lost or shown twice.
"""

import logging
import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
import yaml
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.loggers import TensorBoardLogger

from entente.checkpoint import ENTRY, checksum, read, write
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError, Interrupted, shortage
from entente.reading import read_yaml
from entente.signals import Stopped, StopSignals

log = logging.getLogger("entente")

RANDOM = "random"  # our entry for the random states in Lightning's checkpoint
FINISHED = "metrics.json"  # the last file a run writes


@dataclass(frozen=True)
class Point:
    """Where a run goes on."""

    path: Path | None  # of the checkpoint; None: from the beginning
    step: int = 0
    trained: bool = False  # what is left is the evaluation
    best: float | None = None  # BLEU of the best validation so far, whose weights best.ckpt holds
    vocabulary: str | None = None  # checksum of the checkpoint's
    text: str | None = None  # digest of the corpus; None in a checkpoint from before these were kept

    def refuse_text(self, digest: str) -> None:
        """Raises InputError where the corpus is not the one that the run began with."""
        if self.path and self.text is None:
            log.info("%s holds no digest of the text: only its vocabulary is compared with this one's", self.path)
        elif self.path and self.text != digest:
            raise InputError(
                f"{self.path}: the training or validation text has changed since this was written; "
                "give the run its own text again, or begin a new one without resume"
            )

    def refuse_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raises InputError where a piece would no longer mean what the weights know it as."""
        if self.path and self.vocabulary != checksum(vocabulary.state()):
            raise InputError(
                f"{self.path}: its vocabulary is not the one that the text gives now; "
                "give the run its own text and SentencePiece again, or begin a new one without resume"
            )


BEGINNING = Point(None)


def unfinished(root: Path, name: str, config: Mapping[str, Any]) -> Path | None:
    """The newest unfinished run of this name and configuration (where it lies does not matter), None if there is none; if all
    there are have finished, the newest of these."""
    pattern = re.compile(re.escape(Path(name).name) + r"(?:-(\d+))?")
    numbered = [
        (int(match[1] or 1), path)
        for path in (root / name).parent.glob("*/")
        if (match := pattern.fullmatch(path.name)) and _same(path / "config.yaml", config)
    ]
    runs = [path for _, path in sorted(numbered, reverse=True)]
    return next((path for path in runs if not is_finished(path)), runs[0] if runs else None)


def is_finished(run_dir: Path) -> bool:
    return (run_dir / FINISHED).exists()


def _same(stored: Path, config: Mapping[str, Any]) -> bool:
    try:
        there = read_yaml(stored)
    except (OSError, ValueError, yaml.YAMLError):
        return False
    here = yaml.safe_load(yaml.safe_dump(dict(config)))
    return isinstance(there, dict) and {**there, "output_dir": None} == {**here, "output_dir": None}


def newest(run_dir: Path, every: int = 1, average: int = 1, last: int | None = None) -> Point:
    """The latest checkpoint that is whole and from which training forward gives whatever else the run's end needs and is not
    there: the points of the mean, and best.ckpt. Each damaged or missing file is named. last: the run's last step where that is
    known before it is reached."""
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
        point = _point(path, content(path.name))
        if point is None or (lost is not None and point.best == lost):
            continue
        end = point.step if point.trained else last or point.step + 1
        if not all(content(f"step-{step}.ckpt") for step in steps_of_mean(end, every, average) if step <= point.step):
            continue
        if lost is None and point.best is not None and content("best.ckpt") is None:
            lost = point.best
            continue
        return point
    return BEGINNING


def _point(path: Path, content: Mapping[str, Any] | None) -> Point | None:
    if content is None:
        return None
    state, ours = content.get("callbacks", {}).get(Checkpoints.__qualname__), content[ENTRY]
    if state is None:
        log.warning("%s: not a checkpoint that training goes on from: going back to one before it", path)
        return None
    return Point(path, content["global_step"], state["trained"], state["best"], checksum(ours["vocabulary"]), ours.get("text"))


def forget_after(run_dir: Path, point: Point) -> None:
    """Removes the checkpoints of later steps: training writes them again, as it does their points for TensorBoard."""
    for path in steps(run_dir / "checkpoints"):
        if step_of(path) > point.step:
            path.unlink()


def steps_of_mean(last: int, every: int, n: int) -> list[int]:
    """The steps whose weights `checkpoint.average=n` averages in a run of `last` steps, oldest first: the regular points before
    the last step, and that. What an interrupt saved is none of them, or the mean would depend on it."""
    regular = (last - 1) // every
    return [*(every * i for i in range(max(1, regular - n + 2), regular + 1)), last]


def step_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def steps(folder: Path) -> list[Path]:
    """The checkpoints of steps in a folder, oldest first."""
    return sorted((path for path in folder.glob("step-*.ckpt") if path.stem[5:].isdecimal() and path.is_file()), key=step_of)


def how_to_resume(run_dir: Path) -> str:
    return f"go on: python scripts/train.py resume={run_dir}"


def _without_disk_errors(error: threading.ExceptHookArgs) -> None:
    """TensorBoard's writer is a thread, whose error the main thread raises again at the next write."""
    if not isinstance(error.exc_value, OSError):
        threading.__excepthook__(error)


@contextmanager
def resumable(run_dir: Path) -> Iterator[None]:
    """Turns what ends the run in `run_dir` early into a line that says how to resume it."""
    try:
        with StopSignals():
            threading.excepthook = _without_disk_errors
            yield
    except Stopped as stopped:
        raise Interrupted(f"{stopped}; {how_to_resume(run_dir)}") from None
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        if isinstance(error, BrokenPipeError) or (line := shortage(error)) is None:
            raise
        raise InputError(f"{run_dir}: {line}; {how_to_resume(run_dir)}") from error


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
