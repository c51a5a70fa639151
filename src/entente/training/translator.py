"""The LightningModule that trains a model: loss, optimiser, learning rate schedule, and validation by decoding."""

import math
import time
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor

from entente import distributed
from entente.checkpoint import ENTRY
from entente.console import Task
from entente.data.batches import Batch, EvaluationSplit
from entente.data.tokenizer import Vocabulary
from entente.errors import Diverged
from entente.evaluation import Evaluation, batch_loss, bleu_tokenizer, evaluate
from entente.models.seq2seq import Seq2Seq
from entente.settings import RunSettings
from entente.training.optimiser import build_optimiser, rate_factor

STORED = "translator"  # our key in Lightning's checkpoint
DIVERGENCE_FACTOR = 10  # training ends if the loss exceeds this many times that of a uniform guess; no run recovered from it


class Translator(L.LightningModule):
    """Trains and evaluates a model. checkpoint_entry: the result of `checkpoint.entry`, which every checkpoint stores."""

    def __init__(self, model: Seq2Seq, vocabulary: Vocabulary, settings: RunSettings, checkpoint_entry: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.vocabulary, self.settings, self.checkpoint_entry = model, vocabulary, settings, checkpoint_entry
        self._tokenize = bleu_tokenizer(settings, settings.evaluation)
        self.tokens_per_second = 0.0  # target tokens per second of all processes, over the last `log_every` steps
        self.tokens = 0  # target tokens that all processes have trained on so far
        self.seconds = 0.0  # training time without validation, up to the last checkpoint
        self.elapsed = 0.0  # time in training and validation, up to the last checkpoint
        self.valid: Evaluation | None = None  # the result of the last validation
        self.bleu: float | None = None  # BLEU of the last validation
        self.best = (-math.inf, -math.inf)  # the highest quality of a validation: BLEU and, if it is equal, the negative NLL
        self.without_gain = 0  # validations since the last one that was better than all before it
        self.is_best = False  # whether the last validation was at least as good as all before it
        self.mean_report: dict[str, Any] | None = None  # how the mean of the last checkpoints compares with the best one
        self._began = self._started = 0.0  # such that perf_counter() minus them is `seconds`, or `elapsed`, until now
        self._step_loss = torch.zeros(2)  # smoothed loss and NLL of the current step's batches so far
        self._loss_sum, self._loss_steps = torch.zeros(()), 0  # over the steps since the last one that was logged
        self.losses: list[float] = []  # means of the smoothed loss, from one logged step to the next, since the last line

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if not self.trainer.sanity_checking:  # before the first step
            self.seconds, self.elapsed = time.perf_counter() - self._began, time.perf_counter() - self._started
        names = ("tokens", "seconds", "elapsed", "bleu", "best", "without_gain")
        checkpoint |= {ENTRY: self.checkpoint_entry, STORED: {name: getattr(self, name) for name in names}}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for name, value in checkpoint[STORED].items():
            setattr(self, name, value)

    def configure_optimizers(self) -> Any:
        optim, steps = self.settings.optim, self.settings.trainer.steps
        fused = str(self.trainer.precision) != "16-mixed"  # a fused step would unscale float16 gradients only after clipping
        optimiser = build_optimiser(optim, self.model, fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_factor(optim, step, steps))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """Clips the gradient norm. Lightning's own method refuses a fused optimiser with any mixed precision."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def on_train_start(self) -> None:
        self._began, self._started = time.perf_counter() - self.seconds, time.perf_counter() - self.elapsed
        self._logged = self.tokens, self.seconds  # tokens and seconds at the last logged step

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Returns the batch's share of the step's loss, multiplied by the batches per step, over which Lightning averages.
        The step's loss is the mean over the target tokens of all its batches, in all processes. Dropout is a function of the
        run's seed and the batch's position, so N processes draw what one process that accumulates N batches draws."""
        seeds = np.random.SeedSequence([self.settings.seed, batch.position])
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
        loss, tokens = batch_loss(self.model, batch, self.settings.optim.label_smoothing)
        accumulate, log_every = self.trainer.accumulate_grad_batches, self.settings.trainer.log_every
        step_tokens = batch.step_tokens or tokens
        share = tokens / step_tokens
        weighted = torch.stack(loss).detach() * share
        is_first = batch_idx % accumulate == 0
        self.tokens += step_tokens if is_first else 0
        self._step_loss = weighted if is_first else self._step_loss + weighted
        self._loss_sum = self._loss_sum + weighted[0]
        self._loss_steps += is_first
        if (batch_idx + 1) % (log_every * accumulate) == 0:
            self._log_step()
        return loss.smoothed * (share * accumulate * distributed.world_size())

    def _log_step(self) -> None:
        ours = [*self._step_loss.tolist(), float(self._loss_sum) / self._loss_steps]
        loss, nll, mean = (sum(parts) for parts in zip(*distributed.gather(ours), strict=True))
        self.losses.append(mean)
        self._loss_sum, self._loss_steps = torch.zeros_like(self._loss_sum), 0
        seconds = time.perf_counter() - self._began  # reading the losses has waited for the GPU to finish the step
        self.tokens_per_second = (self.tokens - self._logged[0]) / (seconds - self._logged[1])
        self._logged = self.tokens, seconds
        if not loss <= DIVERGENCE_FACTOR * math.log(self.model.output.out_features):
            raise Diverged(f"the loss is {loss:.4g} at step {self.global_step + 1}; give a smaller optim.lr")
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        metrics = {"train/loss": loss, "train/nll": nll, "train/tokens_per_second": self.tokens_per_second, "train/lr": rate}
        self.write(metrics, step=self.global_step + 1)  # the step in progress

    def on_validation_start(self) -> None:
        self._paused = time.perf_counter()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Does nothing: `on_validation_epoch_end` evaluates the whole split, in batches of its own."""

    def on_validation_epoch_end(self) -> None:
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        with Task("validating"):
            self.valid = self.evaluate(data.evaluation("valid"))
        scores = self.valid.scores("bleu", "chrf")
        self.bleu = scores["bleu"]
        quality = scores["bleu"], -self.valid.nll
        # For patience, the model that training started from counts as the first validation.
        self.without_gain = 0 if quality > self.best else self.without_gain + 1
        self.trainer.should_stop |= self.without_gain == self.settings.trainer.patience
        self.is_best = quality >= self.best  # of equally good validations, the last is kept as best.ckpt
        self.best = max(quality, self.best)
        metrics = {"valid/bleu": scores["bleu"], "valid/chrf": scores["chrf"], "valid/nll": self.valid.nll}
        self.write(metrics, step=self.global_step)

    def on_validation_end(self) -> None:
        self._began += time.perf_counter() - self._paused  # validation is not training time

    def evaluate(self, split: EvaluationSplit) -> Evaluation:
        return evaluate(self.model, self.vocabulary, split, self.settings.search, self._tokenize)

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Writes metrics directly to the loggers, since Lightning's `log` would record a validation one step too early."""
        for logger in self.loggers:
            logger.log_metrics(metrics, step)
