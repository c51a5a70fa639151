"""The progress of a run, on a terminal or in a log."""

import logging
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

from entente.training.translator import translator_of

log = logging.getLogger("entente")


class TrainingProgress(ProgressBar):
    """Optimiser steps done and to do, loss, target tokens per second, BLEU, time.

    On a terminal it is one live line, written at most 4 times a second; elsewhere (a pipe, a log of CI) a line in the log every
    `every_n_steps`. After each validation a line goes to the log in both cases.
    """

    def __init__(self, every_n_steps: int = 100, console: Console | None = None) -> None:
        super().__init__()
        self.every_n_steps = every_n_steps
        self._console = console or Console(stderr=True)
        self._enabled = True
        self._live: Progress | None = None
        self._task = TaskID(0)
        self._bleu: float | None = None
        self._best: float | None = None
        self._step = self._first_step = self._logged = 0
        self._started: float | None = None  # by time.monotonic, in seconds
        self._shown = 0.0

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def state_dict(self) -> dict[str, Any]:
        return {"bleu": self._bleu, "best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._bleu, self._best = state_dict["bleu"], state_dict["best"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._started = time.monotonic()
        self._step = self._first_step = self._logged = trainer.global_step
        if self._enabled and self._console.is_interactive:
            self._live = Progress(
                BarColumn(bar_width=None),
                TextColumn("{task.description}", table_column=Column(no_wrap=True)),
                console=self._console,
                auto_refresh=False,
                transient=True,
                expand=True,
            )
            self._task = self._live.add_task("", total=_total(trainer))
            self._show(trainer, pl_module)
            self._live.start()

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int) -> None:
        # Only now, so that after a step with a validation there is one line, with its result.
        if not self._live and self._step % self.every_n_steps == 0 and self._step != self._logged:
            self._log(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._step = trainer.global_step
        if self._live:
            self._show(trainer, pl_module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._live:
            translator = translator_of(pl_module)
            translator.on_progress = lambda done, n: self._show(trainer, translator, f"validating {done}/{n}")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.sanity_checking or self._started is None:
            return
        self._bleu = float(trainer.callback_metrics["valid/bleu"])
        self._best = max(self._bleu, self._best or 0.0)
        if self._live:  # out of the way of whatever the log writes to
            self._live.stop()
        self._log(trainer, pl_module)
        if self._step == _total(trainer):
            self._close()
        if self._live:
            self._shown = 0.0
            self._show(trainer, pl_module)
            self._live.start()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close()
        if self._step != self._logged:
            self._log(trainer, pl_module)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def _show(self, trainer: L.Trainer, pl_module: L.LightningModule, doing: str = "") -> None:
        now = time.monotonic()
        if self._live and now - self._shown >= 0.25:
            self._shown = now
            line = self._line(trainer, pl_module, doing)
            self._live.update(self._task, completed=self._step, description=line, refresh=True)

    def _log(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._logged = self._step
        if self._enabled:
            log.info(self._line(trainer, pl_module))

    def _line(self, trainer: L.Trainer, pl_module: L.LightningModule, doing: str = "") -> str:
        translator, total = translator_of(pl_module), _total(trainer)
        elapsed, done = time.monotonic() - (self._started or 0.0), self._step - self._first_step
        parts = [f"step {self._step}/{total}" if total else f"step {self._step}"]
        if doing:
            parts.append(doing)
        if translator.last_loss is not None:
            parts.append(f"loss {translator.last_loss:.2f}")
        if translator.tokens_per_second:
            parts.append(f"{translator.tokens_per_second:,.0f} tokens/s")
        if self._bleu is not None and self._best is not None:
            parts.append(f"BLEU {self._bleu:.1f}" + (f" (best {self._best:.1f})" if self._best > self._bleu else ""))
        left = f", {clock(elapsed / done * (total - self._step))} left" if total and done else ""
        parts.append(clock(elapsed) + left)
        return "  ".join(parts)


def _total(trainer: L.Trainer) -> int | None:
    """The budget in optimiser steps; Lightning writes no budget as -1."""
    return trainer.max_steps if trainer.max_steps > 0 else None


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any: 2:10, 1:02:10."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
