"""The LightningModule: loss, optimiser, schedule, and validation by decoding.

Shapes: B batch, T target length, N real target tokens of a batch, D width of the decoder's output, V vocabulary.
"""

import math
import time
from typing import Any

import lightning as L
import torch
from torch import Tensor

from entente.checkpoint import ENTRY
from entente.data.batches import Batch
from entente.data.module import EvaluationSplit
from entente.data.tokenizer import Vocabulary
from entente.decoding.search import Hypothesis, Search
from entente.decoding.translate import translate
from entente.errors import Diverged
from entente.evaluation import Evaluation, Progress, batch_loss, corpus_scores, evaluate
from entente.models import Seq2Seq
from entente.training.optim import Optim

ASTRAY = 10  # times the loss of one who knows nothing, ln V: from there nothing has come back


class Translator(L.LightningModule):
    """A model, its vocabulary, and how both are trained and evaluated.

    `evaluations` holds what each validated split gave last.
    """

    def __init__(
        self,
        model: Seq2Seq,
        vocabulary: Vocabulary,
        optim: Optim,
        search: Search,
        max_steps: int,
        log_every: int = 20,
        checkpoint_entry: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.vocabulary = vocabulary
        self.optim = optim
        self.search = search
        self.max_steps = max_steps
        self.log_every = log_every
        self.checkpoint_entry = checkpoint_entry
        self.evaluations: dict[str, Evaluation] = {}
        self.on_progress: Progress | None = None  # of a validation
        self.tokens_per_second = 0.0  # target tokens, over the last `log_every` steps
        self.last_loss: float | None = None
        self.bleu: float | None = None  # of the last validation
        self._clock, self._tokens = 0.0, 0
        self._step_loss = torch.zeros(2)  # of the batches of a step so far: smoothed, NLL

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.checkpoint_entry is not None:
            checkpoint[ENTRY] = self.checkpoint_entry

    def configure_optimizers(self) -> Any:
        fused = str(self.trainer.precision) != "16-mixed"  # whose gradients are scaled until a step that is not fused
        adam = self.optim.adamw(self.parameters(), fused)
        schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: self.optim.factor(step, self.max_steps))
        return {"optimizer": adam, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """By norm. Lightning's own refuses a fused optimiser in every mixed precision."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def on_train_start(self) -> None:
        self._clock, self._tokens = time.perf_counter(), 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The step's loss is the mean over the target tokens of all its batches, each of which adds its share."""
        loss, tokens = batch_loss(self.model, batch, self.optim.label_smoothing)
        self._tokens += tokens
        accumulate = self.trainer.accumulate_grad_batches
        share = tokens / (batch.step_tokens or tokens)
        weighted = torch.stack(loss).detach() * share
        self._step_loss = weighted if batch_idx % accumulate == 0 else self._step_loss + weighted
        if (batch_idx + 1) % (self.log_every * accumulate) == 0:
            self._log_step(*self._step_loss.tolist())
        return loss.smoothed * (share * accumulate)  # Lightning divides by `accumulate`

    def _log_step(self, loss: float, nll: float) -> None:
        now = time.perf_counter()  # the losses have been computed, so that on a GPU too the work is done
        self.tokens_per_second = self._tokens / (now - self._clock)
        self._clock, self._tokens = now, 0
        self.last_loss = loss
        if not loss <= ASTRAY * math.log(self.model.output.out_features):
            raise Diverged(f"the loss is {loss:.4g} at step {self.global_step + 1}; give a smaller optim.lr")
        self._log(
            {
                "train/loss": loss,
                "train/nll": nll,
                "train/tokens_per_second": self.tokens_per_second,
                "train/lr": self.trainer.optimizers[0].param_groups[0]["lr"],
            },
            step=self.global_step + 1,  # the one under way
        )

    def on_validation_start(self) -> None:
        self._paused = time.perf_counter()

    def on_validation_end(self) -> None:
        self._clock += time.perf_counter() - self._paused  # validating is not training time

    def validation_step(self, split: EvaluationSplit, batch_idx: int) -> None:
        """What Lightning takes for a batch is the whole split."""
        self.evaluations[split.name] = self.evaluate(split)

    def evaluate(self, split: EvaluationSplit) -> Evaluation:
        return evaluate(self.model, self.vocabulary, split, self.search, self.on_progress)

    def on_validation_epoch_end(self) -> None:
        valid = self.evaluations["valid"]
        scores = corpus_scores(valid.hypotheses, valid.references, ["bleu", "chrf"])
        self.bleu = scores["bleu"]
        metrics = {"valid/bleu": scores["bleu"], "valid/chrf": scores["chrf"], "valid/nll": valid.nll}
        self.log_dict(metrics, logger=False)  # for the callbacks that choose by it
        self._log(metrics, step=self.global_step)

    def _log(self, metrics: dict[str, float], step: int) -> None:
        """Lightning's own log counts a validation at the step before its own."""
        for logger in self.loggers:
            logger.log_metrics(metrics, step)

    def translate(self, sentences: list[str], search: Search | None = None) -> list[list[Hypothesis]]:
        """The n best hypotheses of each sentence; greedy where nothing else is said."""
        return translate(self.model, self.vocabulary, sentences, search or Search())


def translator_of(module: L.LightningModule) -> Translator:
    if not isinstance(module, Translator):
        raise TypeError(f"the callbacks of entente go with a Translator, not with a {type(module).__name__}")
    return module
