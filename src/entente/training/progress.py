"""Shows the progress of a run, on a terminal or in a log."""

import time
from typing import Any

import lightning as L

from entente.console import Task, clock, log


class TrainingProgress(L.Callback):
    """Shows one line with the optimiser step, the epochs, the mean loss since the last line, target tokens per second, NLL and
    BLEU of the last validation, and the time elapsed and left (see `entente.console`). Logs it after each validation."""

    def __init__(self) -> None:
        self._training, self._validation = Task(self._line), Task("validating")

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._trainer, self._started = trainer, time.monotonic()
        self._first_step = trainer.global_step
        self._training.__enter__()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validation.__enter__()

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._validation.__exit__()
        if trainer.sanity_checking:
            log.info("before the first step: validation NLL %.2f, BLEU %.1f", pl_module.valid.nll, pl_module.bleu)
        else:
            log.info(self._line())
            pl_module.losses = pl_module.losses[-1:]  # the next line has at least one value, even if it comes soon

    def on_train_end(self, *_: Any) -> None:
        self._training.__exit__()

    def on_exception(self, *_: Any) -> None:
        self._validation.__exit__()
        self._training.__exit__()

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
