"""Tests that an optimiser step over several batches has the loss and gradient of one batch with all their sentences."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor
from torch.nn import functional as F

from entente.data.batches import Batch, collate
from entente.data.tokenizer import PAD
from entente.training.train import build_trainer, prepare_run
from entente.training.translator import Translator
from tiny import SMALL, precise_settings

ACCUMULATE, STEPS = 3, 5


class Watch(L.Callback):
    """Records, for each optimiser step, the rows of its batches, the weights before the step, the gradients and the loss."""

    def __init__(self) -> None:
        self.rows: list[list[list[int]]] = [[]]
        self.weights: list[Mapping[str, Tensor]] = []
        self.gradients: list[Mapping[str, Tensor]] = []
        self.losses: list[float | None] = []

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Batch, batch_idx: int) -> None:
        self.rows[-1].append(batch.index.tolist())

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Any) -> None:
        assert isinstance(pl_module, Translator)
        parameters = dict(pl_module.model.named_parameters())
        self.weights.append({name: value.detach().clone() for name, value in parameters.items()})
        self.gradients.append({name: value.grad.clone() for name, value in parameters.items() if value.grad is not None})
        self.losses.append(pl_module.last_loss)
        self.rows.append([])

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        trainer.train_dataloader.consume()  # type: ignore[union-attr]


@pytest.mark.parametrize("model", sorted(SMALL))
def test_the_gradient_and_the_loss_shown_are_those_of_one_batch_of_all_sentences(model: str, tmp_path: Path) -> None:
    settings = precise_settings(model, tmp_path, f"trainer.max_steps={STEPS}", f"trainer.accumulate={ACCUMULATE}")
    data, translator = prepare_run(settings)
    per_epoch = len(data.train_dataloader().epoch(0).batches)
    assert per_epoch < ACCUMULATE * STEPS and per_epoch % ACCUMULATE  # some steps span two epochs
    watch = Watch()
    build_trainer(settings.trainer, tmp_path / "run", [watch]).fit(translator, datamodule=data)
    src, tgt = data.ids("train")
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    shown = [[event.value for event in events.Scalars(f"train/{name}")] for name in ("loss", "nll")]
    assert len(watch.gradients) == STEPS and watch.rows.pop() == []
    stream = [rows.tolist() for n in range(STEPS) for rows in data.train_dataloader().epoch(n).batches]
    assert [rows for step in watch.rows for rows in step] == stream[: ACCUMULATE * STEPS]
    uneven = 0
    for step, rows in enumerate(watch.rows):
        assert len(rows) == ACCUMULATE
        tokens = [sum(len(tgt[i]) - 1 for i in batch) for batch in rows]
        uneven += max(tokens) > 1.2 * min(tokens)
        whole = [i for batch in rows for i in batch]
        batch = collate(src, tgt, whole)
        translator.model.load_state_dict(watch.weights[step], strict=False)  # buffers are not recorded
        target = batch.tgt[:, 1:]
        real = target != PAD
        logits = translator.model.output(translator.model(batch.src, batch.tgt[:, :-1]))[real]
        loss = F.cross_entropy(logits, target[real], label_smoothing=0.2)
        used = {name: value for name, value in translator.model.named_parameters() if name in watch.gradients[step]}
        expected = dict(zip(used, torch.autograd.grad(loss, [*used.values()]), strict=True))
        torch.testing.assert_close(watch.gradients[step], expected, rtol=1e-10, atol=1e-13)
        assert watch.losses[step] == pytest.approx(loss.item(), rel=1e-10)
        assert shown[0][step] == pytest.approx(loss.item(), rel=1e-6)
        assert shown[1][step] == pytest.approx(F.cross_entropy(logits, target[real]).item(), rel=1e-6)
    assert uneven >= 2  # otherwise an average of the batches' mean losses would pass too
