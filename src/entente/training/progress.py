"""Shows the progress of a run, on a terminal or in a log."""

import logging
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

log = logging.getLogger("entente")


class TrainingProgress(ProgressBar):
    """Shows the optimiser step, loss, target tokens per second, BLEU, and the time elapsed and left.

    On a terminal, it redraws one live line 4 times a second; elsewhere (a pipe, a CI log), it logs a line every
    `every_n_steps` steps. In both cases it logs a line after each validation.
    """

    def __init__(self, every_n_steps: int = 100, console: Console | None = None) -> None:
        super().__init__()
        self.every_n_steps = every_n_steps
        console = console or Console(stderr=True)
        columns = BarColumn(bar_width=None), TextColumn("{task.description}", table_column=Column(no_wrap=True))
        off = not console.is_interactive
        self._live = Progress(*columns, console=console, refresh_per_second=4, transient=True, expand=True, disable=off)
        self._task = self._live.add_task("")
        self._bleu: float | None = None
        self._best = 0.0
        self._first_step = self._logged = 0
        self._started = 0.0  # time.monotonic() at the start of training

    def state_dict(self) -> dict[str, Any]:
        return {"bleu": self._bleu, "best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._bleu, self._best = state_dict["bleu"], state_dict["best"] or 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._started = time.monotonic()
        self._first_step = self._logged = trainer.global_step
        self._show(trainer)
        self._live.start()

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        # The line is logged here, not at the end of the batch, so that a step with a validation gets only one line, with BLEU.
        if self._live.disable and trainer.global_step % self.every_n_steps == 0 and trainer.global_step != self._logged:
            self._log(trainer)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self._show(trainer)

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        pl_module.on_progress = lambda done, n: self._show(trainer, f"validating {done}/{n}")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._bleu = float(trainer.callback_metrics["valid/bleu"])
        self._best = max(self._bleu, self._best)
        self._live.stop()  # the live line must not garble the log's output
        self._log(trainer)
        self._show(trainer)
        self._live.start()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._live.stop()
        if trainer.global_step != self._logged:
            self._log(trainer)

    def on_exception(self, *_: Any) -> None:
        self._live.stop()

    def _show(self, trainer: L.Trainer, doing: str = "") -> None:
        line = self._line(trainer, doing)
        self._live.update(self._task, completed=trainer.global_step, total=trainer.max_steps, description=line)

    def _log(self, trainer: L.Trainer) -> None:
        self._logged = trainer.global_step
        log.info(self._line(trainer))

    def _line(self, trainer: L.Trainer, doing: str = "") -> str:
        translator: Any = trainer.lightning_module
        step, total = trainer.global_step, trainer.max_steps
        elapsed, done = time.monotonic() - self._started, step - self._first_step
        best = f" (best {self._best:.1f})" if self._best > (self._bleu or 0.0) else ""
        parts = [
            f"step {step}/{total}",
            doing,
            f"loss {translator.last_loss:.2f}" if translator.last_loss is not None else "",
            f"{translator.tokens_per_second:,.0f} tokens/s" if translator.tokens_per_second else "",
            f"BLEU {self._bleu:.1f}{best}" if self._bleu is not None else "",
            clock(elapsed) + (f", {clock(elapsed / done * (total - step))} left" if done else ""),
        ]
        return "  ".join(filter(None, parts))


def clock(seconds: float) -> str:
    """Formats a duration as minutes and seconds, with hours only if there are any: 2:10, 1:02:10."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
