"""Tests which validation counts as the best one, for best.ckpt and for patience."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from entente.checkpoint import read
from entente.evaluation import Evaluation
from entente.training.train import train
from entente.training.translator import Translator
from tiny import QUIET, SMALL, run_settings, write_corpus

LONG, SHORT = "the cat sees the dog", "the cat sees"
Validations = list[tuple[str, float]]  # translation and NLL


def run(validations: Validations, folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Path:
    """Trains 2 steps before each of these validations, the last of which is also the result of the evaluation at the end."""
    results = iter([*validations, *[validations[-1]] * 9])

    def evaluate(self: Translator, split: Any) -> Evaluation:
        hypothesis, nll = next(results)
        return Evaluation([LONG], [LONG], [hypothesis], nll, cut=0)

    monkeypatch.setattr(Translator, "evaluate", evaluate)
    steps = [f"trainer.max_steps={2 * len(validations)}", "trainer.validate_every=2", "checkpoint.every=1", "checkpoint.keep=9"]
    arguments = [*write_corpus(folder), "model=birnn", *SMALL["birnn"], *QUIET, *steps, *overrides]
    return train(run_settings(arguments, output_dir=str(folder)))


def test_the_best_validation_has_the_highest_bleu_and_of_equal_ones_the_lowest_nll_or_is_the_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lowest NLL alone is the sixth, the first of the highest BLEU the second, the earlier of equal NLL the third."""
    validations = [(SHORT, 2.0), (LONG, 3.0), (LONG, 1.0), (LONG, 1.0), (LONG, 2.0), (SHORT, 0.5)]
    path = run(validations, tmp_path, monkeypatch)
    assert read(path / "checkpoints" / "best.ckpt")["global_step"] == 2 * 4


@pytest.mark.parametrize(("single", "mean", "chosen"), [((LONG, 1.0), (SHORT, 2.0), False), ((SHORT, 2.0), (LONG, 1.0), True)])
def test_the_mean_of_checkpoints_is_kept_if_it_is_better(
    single: tuple[str, float], mean: tuple[str, float], chosen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run([single, single, mean], tmp_path, monkeypatch, "checkpoint.average=2", "trainer.max_steps=4")
    report = json.loads((path / "training.json").read_text())["mean_of_checkpoints"]
    assert report["of"] == [3, 4] and report["chosen"] == chosen
    best, third, last = (read(path / "checkpoints" / f"{name}.ckpt")["state_dict"] for name in ("best", "step-3", "step-4"))
    expected = {name: (third[name] + last[name]) / 2 for name in last} if chosen else last
    assert all(torch.allclose(best[name], expected[name], rtol=0, atol=1e-7) for name in last)


def test_patience_begins_with_the_model_that_training_started_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = run([(LONG, 1.0)], tmp_path, monkeypatch)
    worse = [(LONG, nll) for nll in (1.0, 4.0, 3.0, 2.0, 2.0)]  # the first is that of the first model
    path = run(worse, tmp_path, monkeypatch, "trainer.patience=2", f"init={start}", "name=again")
    assert (path / "checkpoints" / "step-4.ckpt").exists() and not (path / "checkpoints" / "step-5.ckpt").exists()


@pytest.mark.parametrize(("nll", "steps"), [((3.0, 2.0, 1.0, 0.5), 8), ((1.0, 2.0, 3.0, 4.0), 6)])
def test_patience_waits_for_a_lower_nll_of_equal_bleu(
    nll: tuple[float, ...], steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run([(LONG, value) for value in nll], tmp_path, monkeypatch, "trainer.patience=2")
    assert (path / "checkpoints" / f"step-{steps}.ckpt").exists()
    assert not (path / "checkpoints" / f"step-{steps + 1}.ckpt").exists()
