"""The directory of a run, written by one process at a time, and its checkpoints.

Checkpoints are saved between optimiser steps, after any validation that is due. A checkpoint holds what Lightning saves
(weights, optimiser, schedule, loops, callbacks), the random states of torch, NumPy and Python, and the number of batches
consumed from our loader. TensorBoard's events are flushed before a checkpoint is written, and later events are purged when a
run resumes from it, so that no point is lost or shown twice. Therefore, a run that is stopped at any time and resumed gives
the same results, bit for bit, as an uninterrupted run.
"""

import errno
import logging
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import lightning as L
import torch
import yaml
from annotated_types import Ge, doc
from filelock import FileLock, Timeout
from lightning.fabric.plugins import TorchCheckpointIO

from entente import distributed
from entente.checkpoint import ENTRY, read, write
from entente.console.endings import Stopped, StopSignals
from entente.console.log import LineFormatter
from entente.errors import InputError, Interrupted, reason, shortage
from entente.files import path_of, read_yaml, scratch, write_json, write_text
from entente.training.random_states import random_state, restore_random_state

log = logging.getLogger("entente")

FINISHED = "metrics.json"  # the last file that a run writes
RANDOM = "random"  # our key for the random states in Lightning's checkpoint


def output_dir_problems(output_dir: str) -> list[str]:
    """Returns the reasons why `output_dir` cannot be written to, one line each, without creating anything."""
    try:
        path = path_of(output_dir)
    except InputError as error:
        return [f"output_dir={problem}" for problem in error.problems]
    there = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
    if not there.is_dir():
        return [f"output_dir={output_dir}: {there} is a file; give a folder"]
    if not os.access(there, os.W_OK | os.X_OK):
        return [f"output_dir={output_dir}: you may not write in {there}; give another folder"]
    return []


def new_run_directory(root: Path, name: str, config: Mapping[str, Any], proof: Mapping[str, Any] | None = None) -> Path:
    """Atomically creates root/name, or root/name-2, ... if that exists, to hold `config` and `proof`. Returns its path."""
    path, number = root / name, 1
    try:
        with scratch(path.parent) as new:
            write_text(new / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
            if proof:
                write_json(new / "proof.json", proof)
            while True:
                try:
                    return new.rename(path)  # fails if `path` is a file or a non-empty directory
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        raise InputError(f"name={name}: cannot create a directory with this name ({reason(error)})") from error
                number += 1
                path = root / f"{name}-{number}"
    except OSError as error:
        raise InputError(f"output_dir={root} name={name}: cannot be written ({reason(error)})") from error


def run_to_resume(resume: str | None, root: Path, name: str, config: Mapping[str, Any]) -> Path | None:
    """Returns the directory that `resume` refers to, or None to start a new run. "auto" means the newest unfinished run with
    this name and configuration (see `_compared`), or the newest finished one if all have finished."""
    if resume != "auto":
        return None if resume is None else Path(resume)
    pattern = re.compile(re.escape(Path(name).name) + r"(?:-(\d+))?")
    runs = [
        (not is_finished(path), int(match[1] or 1), path)
        for path in (root / name).parent.glob("*/")
        if (match := pattern.fullmatch(path.name)) and _same_config(path / "config.yaml", config)
    ]
    if not runs:
        log.info("resume=auto: no run named %s has this configuration yet; starting a new one", root / name)
        return None
    return max(runs)[-1]


def _same_config(stored: Path, config: Mapping[str, Any]) -> bool:
    try:
        there = read_yaml(stored)
    except ValueError:
        return False
    here = yaml.safe_load(yaml.safe_dump(dict(config)))
    return isinstance(there, dict) and isinstance(there.get("trainer"), dict) and _compared(there) == _compared(here)


def _compared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that must be equal for "auto" to resume a run. Omits output_dir, strategy, threads and accelerator,
    and replaces num_nodes, devices and accumulate by their product, the batches per step."""
    trainer = {**config["trainer"], "strategy": None, "threads": None, "accelerator": None}
    batches = [trainer.pop(key, 1) for key in ("num_nodes", "devices", "accumulate")]
    if all(isinstance(count, int) for count in batches):
        batches = [math.prod(batches)]
    return {**config, "output_dir": None, "trainer": {**trainer, "batches": batches}}


def is_finished(run_dir: Path) -> bool:
    return (run_dir / FINISHED).exists()


@contextmanager
def open_run(run_dir: Path) -> Iterator[None]:
    """Locks the run, and turns a signal or a lack of memory or disk space into an error that says how to resume the run."""
    how = f"resume it with: entente train resume={run_dir}"
    lock = nullcontext() if distributed.rank() else FileLock(run_dir / ".lock", timeout=0)
    try:
        with StopSignals(), lock:
            if not all(distributed.gather((run_dir / "config.yaml").exists())):
                raise InputError(f"{run_dir}: not on the disk of all machines; give an output_dir that they share")
            threading.excepthook = _ignore_disk_errors
            yield
    except Timeout:
        raise InputError(f"{run_dir}: another process is training this run; wait for it or stop it") from None
    except (Stopped, Interrupted) as stopped:
        raise Interrupted(f"{stopped}; {how}") from None
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        if isinstance(error, BrokenPipeError) or (line := shortage(error)) is None:
            raise
        raise InputError(f"{run_dir}: {line}; {how}") from error


class LogFile(logging.FileHandler):
    """Writes each log record, with its time, to train.log until `close` is called. A failed write raises OSError."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir / "train.log", encoding="utf-8")
        self.setFormatter(LineFormatter("%(asctime)s %(message)s"))
        log.addHandler(self)

    def close(self) -> None:
        log.removeHandler(self)
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        raise


def _ignore_disk_errors(error: threading.ExceptHookArgs) -> None:
    """Hides OSErrors in TensorBoard's writer thread, since the next write in the main thread raises them again."""
    if not isinstance(error.exc_value, OSError):
        threading.__excepthook__(error)


@dataclass(frozen=True)
class CheckpointSettings:
    """Settings for writing, keeping and averaging checkpoints."""

    every: Annotated[int, Ge(1), doc("steps between checkpoints; a run that is killed loses at most this many")] = 200
    keep: Annotated[int, Ge(1), doc("number of latest checkpoints to keep for resuming")] = 2
    average: Annotated[
        int, Ge(1), doc("if above 1, evaluate the mean of this many latest checkpoints unless a single one has a higher BLEU")
    ] = 1

    def steps_of_mean(self, last: int) -> list[int]:
        """Returns the steps whose checkpoints a run of `last` steps averages, in order: the latest multiples of `every` and
        the last step. Checkpoints saved on an interrupt are left out, so that interrupts do not change the mean."""
        regular = (last - 1) // self.every
        return [*(self.every * i for i in range(max(1, regular - self.average + 2), regular + 1)), last]


class VerifiedCheckpoints(TorchCheckpointIO):
    """Makes Lightning write checkpoints with `checkpoint.write`, which is atomic and adds a checksum."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        write(checkpoint, Path(path))


class Checkpoints(L.Callback):
    """Writes step-N.ckpt every `every` steps and at the end, and keeps the latest max(keep, average) of them. Writes best.ckpt
    when validation BLEU improves. Validation always runs after the last step.

    When any process of the run receives a signal to stop (see `signals`), all processes finish the current step and save a
    checkpoint. Then the first process raises `Interrupted`, and the others exit. A second SIGINT quits at once.
    """

    def __init__(self, run_dir: Path, settings: CheckpointSettings) -> None:
        self.run_dir, self.folder, self.settings = run_dir, run_dir / "checkpoints", settings
        self.best: float | None = None
        self.trained = False
        self.seconds = 0.0  # time in training and validation, from the start of the run to the last checkpoint
        self._began = 0.0  # such that `time.perf_counter() - _began` is the time in training and validation until now
        self._saved: int | None = None  # the step of the last checkpoint
        self._random: dict[str, Any] | None = None  # random states to restore before the next step
        self._batches_per_step = 0  # batches over all processes; 0 until training has begun
        self.signals = StopSignals(keep="stopping once this step is complete and saved; press Ctrl-C again to quit at once")

    def state_dict(self) -> dict[str, Any]:
        size = {"batches_per_step": self._batches_per_step}
        return {"best": self.best, "trained": self.trained, "seconds": self.seconds, **size}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.seconds = state_dict["best"], state_dict["seconds"]
        self._batches_per_step = state_dict["batches_per_step"]

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[RANDOM] = distributed.gather(random_state())
        count_batches(checkpoint, trainer.accumulate_grad_batches)

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._saved = step = checkpoint["global_step"]
        states = checkpoint[RANDOM]
        if len(states) == distributed.world_size():
            self._random = states[distributed.rank()]
        else:
            log.info(
                "%d process(es) wrote the checkpoint and %d will resume from it, so dropout will draw different random numbers",
                len(states),
                distributed.world_size(),
            )
            torch.manual_seed(distributed.seed(torch.initial_seed(), step))
        count_batches(checkpoint, trainer.accumulate_grad_batches)  # the saved run may have used another `accumulate`

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        loader: Any = trainer.train_dataloader
        before, self._batches_per_step = self._batches_per_step, loader.batches_per_step
        if before not in (0, self._batches_per_step):
            raise InputError(
                f"{self.run_dir}: each of its steps takes {before} batches (trainer.devices x num_nodes x accumulate), but "
                f"{distributed.world_size()} processes with trainer.accumulate={trainer.accumulate_grad_batches} take "
                f"{self._batches_per_step}; change trainer.accumulate or the number of processes"
            )
        self._began = time.perf_counter() - self.seconds
        self.signals.install()

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if self._random is not None:
            restore_random_state(self._random)
            self._random = None
        loader: Any = trainer.train_dataloader
        if loader.position % loader.batches_per_step:
            return  # in the middle of an accumulated step
        step = trainer.global_step
        asked = self._asked_to_stop()
        if step and step != self._saved and (step % self.settings.every == 0 or asked):
            self._save(trainer)
        if asked:
            self._stop(asked, step)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        loader: Any = trainer.train_dataloader
        loader.consume()
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True  # makes Lightning validate even if no validation is due

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if self.best is None or pl_module.bleu > self.best:
            self.best = pl_module.bleu
            self.write_best(pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.trained = True
        self._save(trainer)
        self.stop_if_asked(trainer.global_step)

    def write_best(self, translator: L.LightningModule) -> None:
        """Writes the current weights to best.ckpt, which is enough to translate but not to resume training."""
        if distributed.rank():
            return
        content = {"state_dict": translator.state_dict(), "global_step": translator.global_step}
        write({**content, ENTRY: translator.checkpoint_entry}, self.folder / "best.ckpt")

    def _save(self, trainer: L.Trainer) -> None:
        for logger in trainer.loggers:
            logger.save()  # flushes TensorBoard's events
        self._saved, self.seconds = trainer.global_step, time.perf_counter() - self._began
        trainer.save_checkpoint(self.folder / f"step-{self._saved}.ckpt")
        if distributed.rank():
            return
        there, keep = steps(self.folder), max(self.settings.keep, self.settings.average)
        # A checkpoint saved on an interrupt is kept until there is a later one, and does not count towards `keep`.
        regular = [step for step in there if step % self.settings.every == 0 or (self.trained and step == self._saved)]
        for step in there.keys() - {*regular[-keep:], self._saved}:
            there[step].unlink()

    def _asked_to_stop(self) -> signal.Signals | None:
        """Returns a signal that this or another process of the run has received, or None."""
        received = distributed.largest(self.signals.received or 0)
        return signal.Signals(received) if received else None

    def stop_if_asked(self, step: int) -> None:
        if asked := self._asked_to_stop():
            self._stop(asked, step)

    def _stop(self, asked: signal.Signals, step: int) -> None:
        distributed.wait_for_first()
        if distributed.rank():
            sys.exit(0)  # the first process reports the signal
        when = f"after step {step}, which is saved" if step else "before the first step"
        raise Interrupted(f"{Stopped(asked)} {when}")


def count_batches(checkpoint: dict[str, Any], accumulate: int) -> None:
    """Sets Lightning's batch counters in a checkpoint to a whole number of steps. Otherwise, after resuming, Lightning would
    count a skipped validation as a step, and would treat the next batch as already started."""
    step, loops = checkpoint["global_step"], checkpoint["loops"]["fit_loop"]
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] = step
    for counted in (loops["epoch_loop.batch_progress"][which] for which in ("total", "current")):
        counted |= dict.fromkeys(counted, step * accumulate)


def steps(folder: Path) -> dict[int, Path]:
    """Returns the paths of the step-N.ckpt files in a folder, keyed and sorted by step."""
    files = ((path.stem.removeprefix("step-"), path) for path in folder.glob("step-*.ckpt") if path.is_file())
    return dict(sorted((int(step), path) for step, path in files if step.isdecimal()))


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoint and the step from which a run resumes."""

    path: Path | None = None  # the checkpoint to load, or None to start from step 0
    step: int = 0
    trained: bool = False  # training is complete; only the evaluation is left
    entry: Mapping[str, Any] = field(default_factory=dict)  # see checkpoint.entry

    def remaining_work(self, max_steps: int) -> str:
        if self.trained:
            return f"training is complete after {self.step} steps; only the evaluation is left"
        if self.path is None:
            return f"there is no usable checkpoint; starting again at step 0 of {max_steps}"
        return f"resuming at step {self.step} of {max_steps}"


def find_resume_point(run_dir: Path, settings: CheckpointSettings, last: int | None = None) -> ResumePoint:
    """Returns the latest undamaged checkpoint, or step 0 if there is none. best.ckpt and the checkpoints to average must also
    be undamaged, unless the resumed training will write them again. Logs damaged and missing files. last: the run's last
    step, if known."""
    folder = run_dir / "checkpoints"

    @cache
    def content(name: str) -> dict[str, Any] | None:
        try:
            saved = read(folder / name)
        except InputError as error:
            log.warning("%s: going back to an earlier checkpoint", error)
            return None
        return {key: value for key, value in saved.items() if key not in ("state_dict", "optimizer_states")}  # to save memory

    lost: float | None = None  # BLEU of best.ckpt if it is unreadable; training then resumes from a step before it was written
    for path in reversed(steps(folder).values()):
        if (saved := content(path.name)) is None:
            continue
        if (state := saved.get("callbacks", {}).get(Checkpoints.__qualname__)) is None:
            log.warning("%s: training cannot resume from this checkpoint; going back to an earlier one", path)
            continue
        point, best = ResumePoint(path, saved["global_step"], state["trained"], saved[ENTRY]), state["best"]
        if lost is None and best is not None and content("best.ckpt") is None:
            lost = best
        end = point.step if point.trained else last or point.step + 1
        averaged = (content(f"step-{step}.ckpt") for step in settings.steps_of_mean(end) if step <= point.step)
        if (lost is None or best != lost) and all(averaged):
            return point
    return ResumePoint()


def remove_later_checkpoints(run_dir: Path, point: ResumePoint) -> None:
    """Removes the checkpoints of steps after `point`, since training will reach these steps again and write new ones."""
    for step, path in steps(run_dir / "checkpoints").items():
        if step > point.step:
            path.unlink()
