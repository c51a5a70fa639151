"""Shows the progress of a run, on a terminal or in a log."""

import time
from typing import Any

import lightning as L

from entente.console import Task, clock, log

INTERVAL = 10.0  # least number of seconds from one logged line to the next, except the last


class TrainingProgress(L.Callback):
    """Shows one line with the optimiser step, the epochs, the mean loss since the last line, target tokens per second, NLL and
    BLEU of the last validation, and the time elapsed and left (see `entente.console`). Logs it after a validation, unless the
    last one was less than INTERVAL ago, and at the end."""

    def __init__(self) -> None:
        self._training, self._validation = Task(self._line), Task("validating")
        self._due = 0.0  # time of the next line

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._trainer, self._started = trainer, time.monotonic()
        self._first_step = self._logged = trainer.global_step
        self._training.__enter__()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validation.__enter__()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validation.__exit__()
        if trainer.sanity_checking:
            translator: Any = pl_module
            log.info("before the first step: validation NLL %.2f, BLEU %.1f", translator.valid.nll, translator.bleu)
        elif time.monotonic() >= self._due:
            self._log(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._training.__exit__()
        if trainer.global_step != self._logged:
            self._log(trainer)

    def on_exception(self, *_: Any) -> None:
        self._validation.__exit__()
        self._training.__exit__()

    def _log(self, trainer: L.Trainer) -> None:
        self._logged, self._due = trainer.global_step, time.monotonic() + INTERVAL
        log.info(self._line())
        translator: Any = trainer.lightning_module
        translator.losses = translator.losses[-1:]  # the next line has at least one value, even if it comes soon

    def _line(self) -> str:
        translator: Any = self._trainer.lightning_module
        step, total = self._trainer.global_step, self._trainer.max_steps
        elapsed, done = time.monotonic() - self._started, step - self._first_step
        bleu, best, losses = translator.bleu, translator.best_bleu, translator.losses
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
