"""The directory of a run, written by one process at a time.

Checkpoints are saved between optimiser steps, after any validation that is due. TensorBoard's events are flushed before a
checkpoint is written, and later events are purged when a run resumes from it, so that no point is lost or shown twice.
Everything random in training is a function of the seed and the position of a batch. Therefore, a run that is stopped at any
time and resumed gives the same results, bit for bit, as an uninterrupted run.
"""

import csv
import logging
import math
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning as L
import yaml
from filelock import FileLock, Timeout
from lightning.pytorch.loggers import Logger

from entente import checkpoint, distributed
from entente.console import Task, log, stop_signals
from entente.errors import InputError, Interrupted, Stopped
from entente.files import csv_text, numbered, read_yaml, write_text
from entente.recipe import with_steps
from entente.settings import CheckpointSettings, RunSettings
from entente.training import views
from entente.training.trainer import count_whole_steps
from entente.training.translator import Translator

STOPPING = b"\nstopping after this step; press Ctrl-C again to quit at once\n"


@dataclass(frozen=True)
class RunDirectory:
    """The directory of a run. checkpoint: the step-N.ckpt to resume from, or None to start at step 0."""

    path: Path
    checkpoint: Path | None = None

    @property
    def is_finished(self) -> bool:
        return (self.path / "metrics.json").exists()  # the last file that a run writes

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"


def run_name(settings: RunSettings) -> str:
    return settings.name + ("-overfit" if settings.overfit else "")


def find_run(settings: RunSettings) -> RunDirectory | None:
    """Returns the run that `resume` refers to, or None to start a new one. "auto" means the newest unfinished run with this
    name and configuration (see `_same_config`), or the newest finished one if all have finished."""
    if settings.resume is None:
        return None
    path = Path(settings.resume)
    if settings.resume == "auto":
        latest = Path(settings.output_dir) / run_name(settings)
        pattern = re.compile(re.escape(latest.name) + r"(?:-(\d+))?")
        runs = [
            (not RunDirectory(folder).is_finished, int(match[1] or 1), folder)
            for folder in latest.parent.glob("*/")
            if (match := pattern.fullmatch(folder.name)) and _same_config(folder / "config.yaml", settings)
        ]
        if not runs:
            log.info("resume=auto: no run named %s has this configuration yet; starting a new one", latest)
            return None
        path = max(runs)[-1]
    return RunDirectory(path, newest(path))


def newest(run: Path) -> Path | None:
    """Returns a run's newest checkpoint to resume from."""
    return next(reversed(steps(run / "checkpoints").values()), None)


def _same_config(path: Path, settings: RunSettings) -> bool:
    """Returns whether "auto" may resume a run with this config.yaml: its settings are equal, other than output_dir, strategy,
    threads and accelerator. Of num_nodes, devices and accumulate, the product must be equal, the batches per step."""
    try:
        stored = RunSettings.model_validate(read_yaml(path)).stored()  # with the settings that it is too old to have
        steps = settings.trainer.max_steps or stored["trainer"]["max_steps"]
        configs = [stored, with_steps(settings, steps).stored()]
    except (InputError, OSError, TypeError, ValueError):
        return False
    for config in configs:
        trainer = config["trainer"] | dict.fromkeys(("strategy", "threads", "accelerator"))
        factors = [trainer.pop(key) for key in ("num_nodes", "devices", "accumulate")]
        config |= {"output_dir": None, "trainer": trainer, "batches": factors if "auto" in factors else math.prod(factors)}
    return configs[0] == configs[1]


def new_run(settings: RunSettings) -> RunDirectory:
    """Creates the directory output_dir/NAME, or NAME-2, ... if that exists. It appears together with the run's configuration,
    so that a run stopped at any time is found again."""
    first = Path(settings.output_dir) / run_name(settings)
    first.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".", dir=first.parent) as folder:
        made = Path(folder) / "run"
        write_text(made / "config.yaml", yaml.safe_dump(settings.stored(), sort_keys=False, allow_unicode=True))
        for path in (path for path in numbered(first) if not path.exists()):
            try:
                made.rename(path)
                break
            except OSError:
                if not path.exists():  # otherwise another process was faster
                    raise
    return RunDirectory(path)


def check_resumable(run: RunDirectory, translator: Translator, trainer: L.Trainer) -> int:
    """Returns the step of the run's checkpoint. Raises InputError if training cannot resume from it with this text or these
    numbers of processes and batches."""
    if not run.checkpoint:
        return 0
    content = checkpoint.read(run.checkpoint)
    if content[checkpoint.ENTRY]["text"] != translator.checkpoint_entry["text"]:
        problem = "the training or validation text has changed since this checkpoint was written"
        raise InputError(f"{run.checkpoint}: {problem}; restore that text, or start a new run without resume")
    stored = content["callbacks"][Checkpoints.__qualname__]["batches_per_step"]
    current = trainer.accumulate_grad_batches * distributed.world_size()
    if stored != current:
        raise InputError(
            f"{run.path}: each of its steps takes {stored} batches (trainer.devices x num_nodes x accumulate), not {current}; "
            "change trainer.accumulate or the number of processes"
        )
    step = int(content["global_step"])
    log.info("%s: resuming at step %d of %d", run.path, step, trainer.max_steps)
    return step


@contextmanager
def open_run(run: RunDirectory | None, translator: Translator, trainer: L.Trainer) -> Iterator[RunDirectory]:
    """Locks the run, or a new one, and gives the trainer its logger and checkpoints. In the context, messages go to train.log
    too, and a signal becomes an error that says how to resume the run."""
    settings, step = translator.settings, check_resumable(run, translator, trainer) if run else 0
    run = run or distributed.share(lambda: new_run(settings))
    saving = Checkpoints(run.checkpoints, settings.checkpoint)

    def receive(number: int) -> None:
        if not saving.in_step and not distributed.rank():
            raise Stopped(number)
        saving.received = number  # the other processes end after a step, or because the first one has ended
        if saving.in_step:
            os.write(2, STOPPING)  # not print(): the signal may have interrupted another print()

    with ExitStack() as stack:
        try:
            stack.enter_context(stop_signals(receive))
            trainer.callbacks.insert(0, saving)  # type: ignore[attr-defined]
            if not distributed.rank():
                stack.enter_context(FileLock(run.path / ".lock", timeout=0))
                if run.is_finished or run.checkpoint != newest(run.path):
                    raise InputError(f"{run.path}: another process has trained this run meanwhile; run the command again")
                file = stack.enter_context(closing(logging.FileHandler(run.path / "train.log", encoding="utf-8")))
                file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
                stack.callback(log.removeHandler, file)
                log.addHandler(file)
                board = views.Board(run.path, name="", version="", default_hp_metric=False, purge_step=step + 1)
                trainer.loggers = [board, Table(run.path / "metrics.csv", step)]
                views.log_settings(trainer, settings.stored())
            yield run
        except Timeout:
            raise InputError(f"{run.path}: another process is training this run; wait for it or stop it") from None
        except (Stopped, Interrupted) as stop:
            raise Interrupted(f"{stop}; resume it with: entente train resume={shlex.quote(str(run.path))}") from None


class Table(Logger):
    """Writes a CSV file with a row per step and a column per metric. Lightning's CSVLogger would delete the rows of a run that
    resumes, and its file is not written atomically. step: the last step whose row is read back."""

    name = version = ""

    def __init__(self, path: Path, step: int) -> None:
        super().__init__()
        self.path = path
        rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines() if path.exists() else [])
        self.rows: dict[int, dict[str, Any]] = {n: row for row in rows if (n := int(row["step"])) <= step}

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.setdefault(step or 0, {"step": step}).update(metrics)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Does nothing, since config.yaml has the settings."""

    def save(self) -> None:
        write_text(self.path, csv_text([*self.rows.values()]))


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
        self.received = 0  # the number of a signal, or 0
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
        step, received = trainer.global_step, max(distributed.gather(self.received))  # in any process
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
        if received := max(distributed.gather(self.received)):
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

    def _stop(self, number: int, step: int) -> None:
        if distributed.rank():
            sys.exit(0)  # the first process reports the signal
        when = f"after step {step}, which is saved" if step else "before the first step"
        raise Interrupted(f"stopped by {signal.Signals(number).name} {when}")
