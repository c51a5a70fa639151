"""The mistakes of scripts/mistakes.py are those that it names, and a run with one trains."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import mistakes
from conftest import PAD, small
from entente.data.batches import Batch
from tiny import QUIET, SMALL, write_corpus


def test_each_mistake_is_what_it_says(name: str, src: Tensor, tgt: Tensor) -> None:
    tgt[1, -3:] = PAD
    model, target = small(name), tgt[:, 1:]
    padded = target.flatten() == PAD
    batch = Batch(src, tgt, torch.arange(len(src)), (~padded).nonzero().squeeze(1))
    for mistake, read, counted in (("unshifted", target, ~padded), ("padding", tgt[:, :-1], torch.ones_like(padded))):
        logits = model.output(model(src, read)).flatten(0, 1)
        loss, tokens = mistakes.MISTAKES[mistake](model, batch, 0.1)
        assert tokens == counted.sum()
        pieces = target.flatten()[counted]
        torch.testing.assert_close(loss.nll, F.cross_entropy(logits[counted], pieces))
        torch.testing.assert_close(loss.smoothed, F.cross_entropy(logits[counted], pieces, label_smoothing=0.1))


def test_a_run_with_a_mistake_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mistakes.translator, mistakes.evaluation):
        monkeypatch.setattr(module, "batch_loss", module.batch_loss)  # restores it
    options = ["trainer.max_steps=2", "trainer.validate_every=2", *QUIET]
    mistakes.main("padding", *write_corpus(tmp_path), *SMALL["transformer"], *options, f"output_dir={tmp_path}", "name=wrong")
    assert (tmp_path / "wrong" / "metrics.json").exists()
