"""Shows the progress of a run, on a terminal or in a log."""

import logging
import time
from typing import Any

import lightning as L

from entente.console.log import Task, clock

log = logging.getLogger("entente")


class TrainingProgress(L.Callback):
    """Shows one line with the optimiser step, loss, target tokens per second, BLEU, and the time elapsed and left (see
    `console.log`). Logs this line after each validation and at the end."""

    def __init__(self) -> None:
        self._training, self._validation = Task(self._line), Task("validating")
        self._bleu: float | None = None
        self._best = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"bleu": self._bleu, "best": self._best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._bleu, self._best = state_dict["bleu"], state_dict["best"] or 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._trainer, self._started = trainer, time.monotonic()
        self._first_step = self._logged = trainer.global_step
        self._training.__enter__()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validation.__enter__()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validation.__exit__()
        self._bleu = float(trainer.callback_metrics["valid/bleu"])
        self._best = max(self._bleu, self._best)
        self._log(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._training.__exit__()
        if trainer.global_step != self._logged:
            self._log(trainer)

    def on_exception(self, *_: Any) -> None:
        self._validation.__exit__()
        self._training.__exit__()

    def _log(self, trainer: L.Trainer) -> None:
        self._logged = trainer.global_step
        log.info(self._line())

    def _line(self) -> str:
        translator: Any = self._trainer.lightning_module
        step, total = self._trainer.global_step, self._trainer.max_steps
        elapsed, done = time.monotonic() - self._started, step - self._first_step
        best = f" (best {self._best:.1f})" if self._best > (self._bleu or 0.0) else ""
        parts = [
            f"step {step}/{total}",
            f"loss {translator.last_loss:.2f}" if translator.last_loss is not None else "",
            f"{translator.tokens_per_second:,.0f} tokens/s" if translator.tokens_per_second else "",
            f"BLEU {self._bleu:.1f}{best}" if self._bleu is not None else "",
            clock(elapsed) + (f", {clock(elapsed / done * (total - step))} left" if done else ""),
        ]
        return "  ".join(filter(None, parts))
