"""Builds Lightning's Trainer, shows its progress, and starts processes. All use of Lightning's private parts is here."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn

from entente import checkpoint, distributed
from entente.console import Task, clock, log
from entente.data.batches import Batch
from entente.data.module import TranslationData
from entente.errors import InputError, Stopped, reason
from entente.evaluation import batch_loss
from entente.process import prepare_process
from entente.settings import TrainerSettings
from entente.training.translator import Translator
from entente.training.views import TensorBoardViews

REFUSALS = (TypeError, ValueError, ImportError, MisconfigurationException, RuntimeError)  # Lightning's errors for bad settings
HARDWARE = {"accelerator", "devices", "num_nodes", "strategy", "precision"}  # settings that Lightning takes as they are
GRACE = 10.0  # seconds that a process waits for the first one to report an error that both have
LAUNCHER = "lightning.fabric.strategies.launchers.subprocess_script"  # logs which process has died


class AtomicCheckpoints(TorchCheckpointIO):
    """Makes Lightning write checkpoints with entente.checkpoint."""

    def save_checkpoint(self, checkpoint_: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        checkpoint.write(checkpoint_, Path(path))


class TrainingProgress(L.Callback):
    """Shows one line with the optimiser step, the epochs, the mean loss since the last line, target tokens per second, NLL and
    BLEU of the last validation, and the time elapsed and left (see `entente.console`). Logs it after each validation."""

    def __init__(self) -> None:
        self._task = Task(self._line)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._trainer, self._started = trainer, time.monotonic()
        self._first_step = trainer.global_step
        self._task.__enter__()

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.sanity_checking:
            log.info("before the first step: validation NLL %.2f, BLEU %.1f", pl_module.valid.nll, pl_module.bleu)
        else:
            log.info(self._line())
            pl_module.losses = pl_module.losses[-1:]  # the next line has at least one value, even if it comes soon

    def on_train_end(self, *_: Any) -> None:
        self._task.__exit__()

    def on_exception(self, *_: Any) -> None:
        self._task.__exit__()

    def _line(self) -> str:
        translator: Any = self._trainer.lightning_module
        step, total = self._trainer.global_step, self._trainer.max_steps
        elapsed, done = time.monotonic() - self._started, step - self._first_step
        bleu, best, losses = translator.bleu, translator.best[0], translator.losses
        loader: Any = self._trainer.train_dataloader
        parts = [
            f"step {step}/{total}",
            f"epoch {loader.epochs():.1f}" if loader else "",
            f"loss {sum(losses) / len(losses):.2f}" if losses else "",
            f"{translator.tokens_per_second:,.0f} tokens/s" if translator.tokens_per_second else "",
            f"NLL {translator.valid.nll:.2f}" if translator.valid else "",
            f"BLEU {bleu:.1f}{f' (best {best:.1f})' * (best > bleu)}" if bleu is not None else "",
            clock(elapsed) + (f", {clock(elapsed / done * (total - step))} left" if 0 < done and step < total else ""),
        ]
        return "  ".join(filter(None, parts))


def build_trainer(translator: Translator, data: TranslationData) -> L.Trainer:
    """Returns a Trainer that counts steps, not epochs. `open_run` gives it a logger and checkpoints to resume from."""
    settings = translator.settings.trainer
    hardware: dict[str, Any] = settings.model_dump(include=HARDWARE)
    uses_ddp = settings.strategy == "ddp" or distributed.world_size() > 1
    if uses_ddp and has_unused_parameters(translator, data.sample(1)):
        hardware["strategy"] = "ddp_find_unused_parameters_true"  # slower
    views = TensorBoardViews(translator.settings.views, translator.settings.data.src)
    trainer = L.Trainer(
        **hardware,
        max_steps=settings.steps,
        val_check_interval=int(settings.validate_every) * settings.accumulate,
        check_val_every_n_epoch=None,
        gradient_clip_val=settings.gradient_clip or None,
        accumulate_grad_batches=settings.accumulate,
        num_sanity_val_steps=1 if translator.settings.init else 0,  # validates once before the first step of a new run
        log_every_n_steps=1,  # the LightningModule decides which steps it logs
        logger=False,
        plugins=[AtomicCheckpoints()],
        callbacks=[TrainingProgress(), views],
        enable_checkpointing=False,  # `open_run` adds Checkpoints
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.precision_plugin.convert_module(translator)  # Lightning 2.6 converts only after it has restored a checkpoint
    # Lightning 2.6: for SIGTERM alone, it would make all processes and GPUs wait before each batch. `open_run` handles signals.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    return trainer


def count_whole_steps(state: dict[str, Any], accumulate: int) -> None:
    """Sets the batch counters in a checkpoint of Lightning 2.6 to a whole number of steps. Otherwise, after resuming, Lightning
    would count a skipped validation as a step, and would treat the next batch as already started."""
    step, loops = state["global_step"], state["loops"]["fit_loop"]
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] = step
    for counters in (loops["epoch_loop.batch_progress"][which] for which in ("total", "current")):
        counters |= dict.fromkeys(counters, step * accumulate)


def has_unused_parameters(translator: Translator, batch: Batch) -> bool:
    """Returns whether some parameters have no gradient, as in ablations without cross-attention."""
    with isolate_rng():
        batch_loss(translator.model, batch)[0].smoothed.backward()
    unused = any(parameter.grad is None for parameter in translator.parameters())
    translator.zero_grad()
    return unused


@contextmanager
def refused(**settings: object) -> Iterator[None]:
    """Turns Lightning's refusal of settings into one line that names them."""
    try:
        yield
    except REFUSALS as error:
        values = " ".join(f"{name}={value}" for name, value in settings.items())
        raise InputError(f"{values}: Lightning refuses this combination here ({reason(error)})") from error


@contextmanager
def on_accelerator(model: nn.Module, accelerator: str, precision: str | int, index: int | None = None) -> Iterator[None]:
    """Moves a model to an accelerator. Within the context, computations run in `precision`, as named by Lightning. index: the
    device's number, or None to let Lightning choose."""
    devices: Any = 1 if index is None else [index]
    with refused(accelerator=accelerator, precision=precision):
        fabric = L.Fabric(accelerator=accelerator, devices=devices, precision=precision)  # type: ignore[arg-type]
    fabric.setup_module(model)  # moves and converts the model in place; the returned wrapper would only add autocast
    with fabric.autocast():
        yield


@contextmanager
def launched(settings: TrainerSettings) -> Iterator[None]:
    """Starts the other processes of a run with this process's command line, unless torchrun or SLURM has, and connects them.

    If a process other than the first fails, Lightning says which, kills all of them, and so ends the run."""
    prepare_process(settings.threads)
    hardware: dict[str, Any] = settings.model_dump(include=HARDWARE)
    with refused(**{f"trainer.{name}": value for name, value in hardware.items()}):
        fabric = L.Fabric(**hardware)
        logging.getLogger(LAUNCHER).setLevel(logging.INFO)
        fabric.launch()
    if settings.threads:
        torch.set_num_threads(settings.threads)  # `launch` has set it to a share of the cores
    if distributed.world_size() > 1:
        if distributed.rank():
            log.setLevel(logging.ERROR)  # hides the log and the tasks, since the first process shows the same ones
        log.info("%d processes, threads in each: %d", distributed.world_size(), torch.get_num_threads())
    parent, first = os.getppid(), distributed.rank() == 0
    try:
        yield
    except (Exception, Stopped) as error:
        if first and distributed.world_size() > 1 and isinstance(error, RuntimeError):
            time.sleep(GRACE)  # if the connection to a process that has died broke, Lightning says so and kills this one
        for _ in range(0 if first else round(GRACE / 0.1)):  # the first process usually has the same error, reports it and ends
            if os.getppid() != parent:
                os._exit(1)  # `sys.exit` would close the connection, which may wait for ever for the process that has died
            time.sleep(0.1)
        raise
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
