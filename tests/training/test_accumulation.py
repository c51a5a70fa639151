"""Tests that a step is that of torch's optimiser with the settings of the run, from the gradient of one batch or of several."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor
from torch.nn import functional as F

from entente.data.batches import Batch, collate
from entente.data.tokenizer import PAD
from entente.training.train import prepare
from entente.training.trainer import build_trainer
from tiny import SMALL, precise_settings

ACCUMULATE, STEPS = 3, 5


class Watch(L.Callback):
    """Records, for each optimiser step, the rows of its batches, the weights before the step, the gradients and the loss."""

    def __init__(self) -> None:
        self.rows: list[list[list[int]]] = [[]]
        self.weights: list[Mapping[str, Tensor]] = []
        self.gradients: list[Mapping[str, Tensor]] = []
        self.losses: list[float] = []

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Batch, batch_idx: int) -> None:
        self.rows[-1].append(batch.index.tolist())

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        parameters = dict(pl_module.model.named_parameters())
        self.weights.append({name: value.detach().clone() for name, value in parameters.items()})
        self.gradients.append({name: value.grad.clone() for name, value in parameters.items() if value.grad is not None})
        self.losses.append(pl_module.losses[-1])
        self.rows.append([])

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        trainer.train_dataloader.consume()  # type: ignore[union-attr]


@pytest.mark.parametrize("model", sorted(SMALL))
def test_the_gradient_and_the_logged_loss_are_those_of_one_batch_of_all_sentences(model: str, tmp_path: Path) -> None:
    steps = [f"trainer.max_steps={STEPS}", f"trainer.accumulate={ACCUMULATE}", "model.dropout=0", "views.diagnosis=0"]
    settings = precise_settings(model, tmp_path, *steps)
    data, translator = prepare(settings)
    per_epoch = len(data.train_dataloader().epoch(0))
    assert per_epoch < ACCUMULATE * STEPS and per_epoch % ACCUMULATE  # some steps span two epochs
    watch, trainer = Watch(), build_trainer(translator, data)
    trainer.logger = TensorBoardLogger(tmp_path / "run", name="", version="")
    trainer.callbacks.append(watch)  # type: ignore[attr-defined]
    trainer.fit(translator, datamodule=data)
    src, tgt = data.ids("train")
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    curves = [[event.value for event in events.Scalars(f"train/{name}")] for name in ("loss", "nll")]
    assert len(watch.gradients) == STEPS and watch.rows.pop() == []
    stream = [rows.tolist() for n in range(STEPS) for rows in data.train_dataloader().epoch(n)]
    assert [rows for step in watch.rows for rows in step] == stream[: ACCUMULATE * STEPS]
    uneven = 0
    for step, rows in enumerate(watch.rows):
        assert len(rows) == ACCUMULATE
        tokens = [sum(len(tgt[i]) - 1 for i in batch) for batch in rows]
        uneven += max(tokens) > 1.2 * min(tokens)
        batch = collate(src, tgt, [i for batch in rows for i in batch])
        translator.model.load_state_dict(watch.weights[step], strict=False)  # buffers are not recorded
        target = batch.tgt[:, 1:]
        real = target != PAD
        logits = translator.model.output(translator.model(batch.src, batch.tgt[:, :-1]))[real]
        loss = F.cross_entropy(logits, target[real], label_smoothing=0.2)
        used = {name: value for name, value in translator.model.named_parameters() if name in watch.gradients[step]}
        expected = dict(zip(used, torch.autograd.grad(loss, [*used.values()]), strict=True))
        torch.testing.assert_close(watch.gradients[step], expected, rtol=1e-10, atol=1e-13)
        assert watch.losses[step] == pytest.approx(loss.item(), rel=1e-10)
        assert curves[0][step] == pytest.approx(loss.item(), rel=1e-6)
        assert curves[1][step] == pytest.approx(F.cross_entropy(logits, target[real]).item(), rel=1e-6)
    assert uneven >= 2  # otherwise an average of the batches' mean losses would pass too


def test_a_step_is_torchs_with_the_settings_of_the_run(tmp_path: Path) -> None:
    optim = ["optim.optimizer=adam", "optim.beta1=0.7", "optim.beta2=0.8", "optim.weight_decay=0.3", "optim.lr=0.01"]
    optim += ["optim.schedule=linear", "optim.warmup=2", "optim.decay_from=2", "trainer.gradient_clip=0.01"]
    settings = precise_settings("birnn", tmp_path, "trainer.max_steps=5", "views.diagnosis=0", *optim)
    data, translator = prepare(settings)
    watch, trainer = Watch(), build_trainer(translator, data)
    trainer.callbacks.append(watch)  # type: ignore[attr-defined]
    trainer.fit(translator, datamodule=data)
    theirs = {name: torch.nn.Parameter(value.clone()) for name, value in watch.weights[0].items()}
    adam = torch.optim.AdamW(theirs.values(), 0.01, (0.7, 0.8), eps=1e-9, weight_decay=0.3)
    final = dict(translator.model.named_parameters())
    for rate, gradients, after in zip((0.5, 1, 1, 2 / 3, 1 / 3), watch.gradients, [*watch.weights[1:], final], strict=True):
        for name, parameter in theirs.items():
            parameter.grad = gradients[name].clone()
        assert torch.nn.utils.clip_grad_norm_(theirs.values(), 0.01) > 0.01
        adam.param_groups[0]["lr"] = 0.01 * rate
        adam.step()
        for name, parameter in theirs.items():
            torch.testing.assert_close(parameter.detach(), after[name].detach(), rtol=1e-9, atol=1e-12)


def test_the_seed_decides_initial_weights_and_the_order(tmp_path: Path) -> None:
    weights, orders = [], []
    for seed in (3, 3, 4):
        data, translator = prepare(precise_settings("birnn", tmp_path, f"seed={seed}"))
        weights.append(translator.model.first_hidden.weight.tolist())
        orders.append([rows.tolist() for rows in data.train_dataloader().epoch(0)])
    assert weights[0] == weights[1] != weights[2] and orders[0] == orders[1] != orders[2]
