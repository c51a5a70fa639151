"""Tests each cause of failure on what was recorded of a run that shows it and of runs that do not."""

import dataclasses
import math
from pathlib import Path

import pytest
from torch import Tensor

from conftest import small
from entente.ablation.comparison import explain
from entente.ablation.runs import Run, read_suite
from entente.attention.diagnose import diagnose

SUITE = read_suite(Path(__file__).parents[2] / "outputs" / "published" / "grammar" / "transformer")
CASES = {
    "baseline": [],
    "no_dropout": [],
    "one_head": [],
    "no_residual": ["rank collapse", "vanishing gradients", "never left the plateau"],
    "layers_4_no_residual": ["rank collapse", "vanishing gradients", "never left the plateau"],
    "no_residual_cross": ["rank collapse", "vanishing gradients", "overfits"],
    "unscaled": ["attention saturated"],
    "no_causal_mask": ["copies the future", "ignores the source"],
    "weak_mask": ["copies the future"],
    "softmax_queries": ["copies the future"],
}


@pytest.mark.parametrize("variant", CASES)
def test_published_runs(variant: str) -> None:
    """The first run shows these causes, and every run of a variant that translates shows none."""
    runs = SUITE.of(variant)
    causes = [explain(run, SUITE.base_of(run)) for run in runs]
    assert list(causes[0]) == CASES[variant] and (CASES[variant] or not any(causes))
    assert all(any(map(str.isdigit, text)) for each in causes for text in each.values())
    assert explain(runs[0], dataclasses.replace(runs[0])) == {}, "what the baseline shows too explains no difference"


@pytest.mark.parametrize(("nll", "expected"), [(math.nan, True), (math.log(8000) + 1.1, True), (8.0, False)])
def test_a_run_that_diverged(nll: float, expected: bool) -> None:
    scores = {"valid": {"nll": nll, "bleu": 0.0}}  # without chrF, which evaluation.metrics may leave out
    run = Run(Path("run"), {"data": {"tokenizer": {"vocab_size": 8000}}}, scores, {"unigram_nll": 99.0}, {"history": {}})
    assert list(explain(run, run)) == ["diverged"] * expected


def test_a_model_that_ignores_its_source(name: str, src: Tensor, tgt: Tensor) -> None:
    effects = []
    for model in (small(name, spread=0.3), small("transformer", spread=0.3, sublayers=("self", "ff"))):
        values = diagnose(model, src, tgt)
        history = {f"why/{key}": [(1, value)] for key, value in values.items() if key.startswith("source")}
        effects.append(list(explain(run := Run(Path("run"), {}, row={"history": history}), run)))
    assert effects == [[], ["ignores the source"]]
