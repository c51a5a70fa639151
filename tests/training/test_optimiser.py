"""Tests the schedules, Muon, and the optimiser that applies Muon to a model's matrices and Adam to the other parameters."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from conftest import SIZES, small
from entente.models.attention import AdditiveScore, BilinearScore, SlicedLinear
from entente.recipe import with_steps
from entente.settings import OptimSettings
from entente.training import optimiser as module
from entente.training.optimiser import Muon, build_optimiser, matrices, orthogonalise, rate_factor
from numerics import close, normal
from tiny import run_settings

MUON = OptimSettings(optimizer="muon")
SETTINGS: dict[str, Any] = {"lr": 0.03, "momentum": 0.9, "weight_decay": 0.1}


def layers() -> nn.ModuleDict:
    """Returns linear layers with biases. Their weight matrices are wide, tall or square."""
    sizes = {"wide": (7, 5), "tall": (5, 11), "square": (5, 5), "another": (5, 5)}
    return nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()}).double()


def train(model: nn.Module, optimiser: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        for i, parameter in enumerate(model.parameters()):
            parameter.grad = normal(*parameter.shape, seed=100 * seed + i)
        optimiser.step()


# Maps the override that chooses a schedule to its published learning rate after warm-up, divided by the peak, as a function of
# the step (from 0) and the number of steps. The cosine schedule is from Loshchilov & Hutter 2017.
DECAYS: dict[str, Callable[[int, int], float]] = {
    "optim.schedule=cosine": lambda step, steps: (1 + math.cos(math.pi * (step - 200) / (steps - 200))) / 2,
    "optim.schedule=inverse_sqrt": lambda step, steps: 200**0.5 * (step + 1) ** -0.5,  # Vaswani et al. 2017, section 5.3
    "optim.schedule=constant": lambda step, steps: 1.0,
    "experiment=transformer_base": lambda step, steps: 4000**0.5 * (step + 1) ** -0.5,
    "experiment=multi30k_transformer": lambda step, steps: (steps - step) / (steps - round(0.025 * steps)),
    "experiment=multi30k_birnn": lambda step, steps: (1 + math.cos(math.pi * (step - 400) / (steps - 400))) / 2,
}


@pytest.mark.parametrize("override", DECAYS)
def test_without_warm_up_only_the_rates_of_the_warm_up_change(override: str) -> None:
    overrides = [override, *["data.root=."] * ("multi30k" in override)]
    overrides += ["experiment=ablation_baseline"] * ("experiment" not in override)
    settings = {}
    for name, ablation in {"baseline": [], "no_warmup": ["ablation=no_warmup"]}.items():
        settings[name] = with_steps(run_settings([*overrides, *ablation]), 5003).optim
    warmup = int(settings["baseline"].warmup)
    assert settings["no_warmup"] == settings["baseline"].model_copy(update={"warmup": 0}) and warmup > 0
    rates = {name: [rate_factor(optim, step, 5003) for step in range(5003)] for name, optim in settings.items()}
    assert rates["baseline"][:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)])
    assert rates["no_warmup"][:warmup] == [1.0] * warmup
    assert rates["no_warmup"][warmup:] == rates["baseline"][warmup:]
    assert rates["baseline"][warmup:] == pytest.approx([DECAYS[override](step, 5003) for step in range(warmup, 5003)])


def test_muon_has_a_momentum_of_its_own() -> None:
    optim = OptimSettings(optimizer="muon", lr=0.5, momentum=0.3, beta1=0.8, weight_decay=0.1)
    group = build_optimiser(optim, nn.Linear(5, 5)).param_groups[0]
    assert [group[name] for name in ("lr", "momentum", "weight_decay")] == [0.5, 0.3, 0.1] and "betas" not in group


@pytest.mark.parametrize("schedule", ["cosine", "linear", "inverse_sqrt", "constant"])
@pytest.mark.parametrize("decay_from", [1, 7, 300])
def test_only_a_warm_up_longer_than_decay_from_postpones_the_decay(schedule: Any, decay_from: int) -> None:
    def rates(warmup: int, decay_from: int) -> list[float]:
        optim = OptimSettings(warmup=warmup, schedule=schedule, decay_from=decay_from)
        return [rate_factor(optim, step, 307) for step in range(307)]

    without = rates(0, decay_from)
    assert without[0] == 1 and without == sorted(without, reverse=True) and without[-1] > 0
    for warmup in {1, decay_from // 2, decay_from}:
        assert rates(warmup, decay_from)[warmup:] == without[warmup:]
    assert rates(decay_from + 3, decay_from) == rates(decay_from + 3, decay_from + 3)


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 5, 5), (2, 1, 11)], ids=str)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_orthogonalising_keeps_the_singular_vectors_and_makes_the_values_about_1(shape: tuple[int, ...], size: float) -> None:
    u, _, v = torch.linalg.svd(normal(*shape), full_matrices=False)
    x = size * u * torch.logspace(0, -1.9, shape[1], dtype=torch.float64) @ v
    values = u.mT @ orthogonalise(x) @ v.mT
    diagonal = torch.diagonal(values, dim1=-2, dim2=-1)
    close(values, torch.diag_embed(diagonal))
    assert 0.73 < diagonal.min() and diagonal.max() < 1.27


def test_muon_equals_torchs_muon_up_to_the_rounding_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both optimisers apply the same polynomial 30 times, which brings the singular values close to 1."""
    newton_schulz = (1.875, -1.25, 0.375)
    monkeypatch.setattr(module, "POLYNOMIALS", [newton_schulz] * 30)
    ours, theirs = layers(), layers()
    theirs.load_state_dict(ours.state_dict())
    start = copy.deepcopy(ours.state_dict())
    weights = [[p for p in model.parameters() if p.dim() == 2] for model in (ours, theirs)]
    same: Any = {"ns_coefficients": newton_schulz, "ns_steps": 30, "adjust_lr_fn": "match_rms_adamw"}
    for model, optimiser in ((ours, Muon(weights[0], **SETTINGS)), (theirs, torch.optim.Muon(weights[1], **SETTINGS, **same))):
        train(model, optimiser, range(7))
    for name, value in ours.state_dict().items():
        moved = value - start[name]
        if name.endswith("weight"):
            assert 0.1 < moved.norm() and (moved - theirs.state_dict()[name] + start[name]).norm() < 0.02 * moved.norm(), name


@pytest.mark.parametrize(
    "stacked",
    [nn.GRU(5, 7), BilinearScore(3, 7, "d_k"), SlicedLinear(6, 3, 7)],
    ids=["the gates of a GRU", "the heads of a score", "heads that read a slice each"],
)
def test_stacked_matrices_are_orthogonalised_one_by_one(stacked: nn.Module) -> None:
    """A GRU stacks the matrices of its 3 gates in one parameter (21, 5), a bilinear score those of 3 heads in (3, 7, 7),
    and a sliced layer those of 3 heads in (21, 2)."""
    weight = next(stacked.double().parameters())
    weight.data = normal(*weight.shape, seed=1)
    weight.grad = normal(*weight.shape)
    alone = nn.ModuleList(nn.Linear(weight.size(-1), 7, bias=False) for _ in range(3)).double()
    with torch.no_grad():
        for layer, rows, gradient in zip(alone, weight.reshape(3, 7, -1), weight.grad.reshape(3, 7, -1), strict=True):
            layer.weight.copy_(rows)
            layer.weight.grad = gradient.clone()
    for model in (stacked, alone):
        build_optimiser(MUON, model).step()
    close(weight.reshape(3, 7, -1), torch.stack([layer.weight for layer in alone]))


MODELS: list[tuple[str, dict[str, Any]]] = [
    *((name, changes) for name in sorted(SIZES) for changes in ({}, {"tied": False}, {"score": "bilinear"})),
    ("transformer", {"score": "additive"}),
    ("transformer", {"activation": "swiglu"}),
    ("birnn", {"cell": "lstm"}),
]


@pytest.mark.parametrize(("name", "changes"), MODELS, ids=str)
def test_muon_has_the_matrices_and_adam_the_embeddings_the_projection_to_the_vocabulary_and_all_vectors(
    name: str, changes: dict[str, Any]
) -> None:
    model, score = small(name, **changes), changes.get("score") if name == "transformer" else None
    count_of = {id(parameter): count for count, group in matrices(model).items() for parameter in group}
    counts = {path: count_of[id(p)] for path, p in model.named_parameters() if id(p) in count_of}
    rest = {path for path, p in model.named_parameters() if p.dim() > 1} - counts.keys()
    vectors = {path for path in rest if "embedding" not in path and path != "output.weight"}  # (H, K), a vector per head
    assert all(isinstance(model.get_submodule(path.rpartition(".")[0]), AdditiveScore) for path in vectors)
    assert bool(vectors) == (score == "additive")
    heads = {path: model.get_parameter(path) for path in counts if model.get_parameter(path).dim() == 3}  # (H, K, K)
    assert bool(heads) == (score == "bilinear")
    assert all(counts[path] == len(parameter) for path, parameter in heads.items()) and len(counts) > 5
    if name == "transformer":
        assert {counts[path] for path in counts.keys() - heads} == {1}  # SwiGLU's first layer is one matrix
    optimiser = build_optimiser(MUON, model)
    updated = [p for group in optimiser.param_groups for p in group["params"]]
    assert sorted(map(id, updated)) == sorted(map(id, model.parameters()))  # each parameter once


def test_adam_updates_the_other_parameters_as_it_does_alone() -> None:
    models = {"muon": layers(), "adam": layers()}
    models["adam"].load_state_dict(models["muon"].state_dict())
    for optimizer, model in models.items():
        train(model, build_optimiser(MUON.model_copy(update={"optimizer": optimizer}), model), range(3))
    for (path, actual), expected in zip(models["muon"].state_dict().items(), models["adam"].state_dict().values(), strict=True):
        assert torch.equal(actual, expected) == path.endswith("bias"), path


def test_a_schedule_changes_the_rates_of_both() -> None:
    optimiser: Any = build_optimiser(MUON, layers())
    torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5)
    assert [{group["lr"] for group in part.param_groups} for part in optimiser.optimisers] == [{0.5 * MUON.lr}] * 2


def test_a_parameter_without_a_gradient_does_not_change() -> None:
    model = layers()
    initial = copy.deepcopy(model.state_dict())
    model["wide"].weight.grad = normal(5, 7)
    build_optimiser(MUON, model).step()
    assert [name for name, value in model.state_dict().items() if not torch.equal(value, initial[name])] == ["wide.weight"]
