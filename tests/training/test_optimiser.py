"""Tests Muon, and the optimiser that applies it to a model's matrices and Adam to the other parameters."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import SIZES, small
from entente import training
from entente.training.optimiser import Muon, Optim, matrices, orthogonalise
from numerics import close, normal

SETTINGS: dict[str, Any] = {"lr": 0.03, "momentum": 0.9, "weight_decay": 0.1}


def layers() -> nn.ModuleDict:
    """Returns linear layers with biases. Their weight matrices are wide, tall or square."""
    sizes = {"wide": (7, 5), "tall": (5, 11), "square": (5, 5), "another": (5, 5)}
    return nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()}).double()


def give_gradients(module: nn.Module, seed: int) -> None:
    for i, parameter in enumerate(module.parameters()):
        parameter.grad = normal(*parameter.shape, seed=100 * seed + i)


def train(module: nn.Module, optimiser: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        give_gradients(module, seed)
        optimiser.step()


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
    monkeypatch.setattr(training.optimiser, "POLYNOMIALS", [newton_schulz] * 30)
    ours, theirs = layers(), layers()
    theirs.load_state_dict(ours.state_dict())
    start = copy.deepcopy(ours.state_dict())
    both = [[p for p in module.parameters() if p.dim() == 2] for module in (ours, theirs)]
    same: Any = {"ns_coefficients": newton_schulz, "ns_steps": 30, "adjust_lr_fn": "match_rms_adamw"}
    for module, optimiser in ((ours, Muon(both[0], **SETTINGS)), (theirs, torch.optim.Muon(both[1], **SETTINGS, **same))):
        train(module, optimiser, range(7))
    for name, value in ours.state_dict().items():
        moved = value - start[name]
        if name.endswith("weight"):
            assert 0.1 < moved.norm() and (moved - theirs.state_dict()[name] + start[name]).norm() < 0.02 * moved.norm(), name


def test_the_matrices_of_a_gru_are_orthogonalised_one_by_one() -> None:
    gru = nn.GRU(5, 7).double()
    layer = nn.ModuleList(nn.Linear(5, 7, bias=False) for _ in range(3)).double()
    gradients = normal(21, 5)
    with torch.no_grad():
        for one, rows, gradient in zip(layer, gru.weight_ih_l0.chunk(3), gradients.chunk(3), strict=True):
            one.weight.copy_(rows)
            one.weight.grad = gradient
    gru.weight_ih_l0.grad = gradients
    for module in (gru, layer):
        Optim(optimizer="muon").build(module).step()
    close(gru.weight_ih_l0, torch.cat([one.weight for one in layer]))


@pytest.mark.parametrize("changes", [{}, {"tied": False}], ids=str)
@pytest.mark.parametrize("name", sorted(SIZES))
def test_muon_has_the_matrices_and_adam_the_embeddings_the_projection_to_the_vocabulary_and_all_vectors(
    name: str, changes: dict[str, Any]
) -> None:
    model = small(name, **changes)
    found = {id(p) for group in matrices(model).values() for p in group}
    names = {path for path, p in model.named_parameters() if id(p) in found}
    rest = {path for path, p in model.named_parameters() if p.dim() > 1} - names
    assert rest == {path for path, _ in model.named_parameters() if "embedding" in path or path == "output.weight"}
    assert len(names) > 5 and all(model.get_parameter(path).dim() == 2 for path in names)
    optimiser = Optim(optimizer="muon").build(model)
    updated = [p for group in optimiser.param_groups for p in group["params"]]
    assert sorted(map(id, updated)) == sorted(map(id, model.parameters()))  # each parameter once


def test_adam_updates_the_other_parameters_as_it_does_alone() -> None:
    one, other = layers(), layers()
    other.load_state_dict(one.state_dict())
    for module, optimizer in ((one, "muon"), (other, "adam")):
        train(module, Optim(optimizer=optimizer).build(module), range(3))
    for (path, actual), expected in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(actual, expected) == path.endswith("bias"), path


def test_a_schedule_changes_the_rates_of_both_and_a_restored_state_continues_with_the_same_bits() -> None:
    def rate(step: int) -> float:
        return 1 / (step + 1)

    def start(module: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
        optimiser = Optim(optimizer="muon").build(module)
        return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, rate)

    def go_on(module: nn.Module, optimiser: torch.optim.Optimizer, schedule: Any, seeds: range) -> Tensor:
        for seed in seeds:
            train(module, optimiser, range(seed, seed + 1))
            schedule.step()
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    whole, stopped = layers(), layers()
    stopped.load_state_dict(whole.state_dict())
    expected = go_on(whole, *start(whole), range(7))
    optimiser, schedule = start(stopped)
    go_on(stopped, optimiser, schedule, range(3))
    saved = copy.deepcopy((optimiser.state_dict(), schedule.state_dict()))
    optimiser, schedule = start(stopped)
    optimiser.load_state_dict(saved[0])
    schedule.load_state_dict(saved[1])
    assert {group["lr"] for group in optimiser.param_groups} == {Optim().lr * rate(3)}
    assert torch.equal(go_on(stopped, optimiser, schedule, range(3, 7)), expected)
    groups: Any = optimiser
    assert {group["lr"] for part in groups.optimisers for group in part.param_groups} == {Optim().lr * rate(7)}


def test_a_parameter_without_a_gradient_does_not_change() -> None:
    module = layers()
    before = copy.deepcopy(module.state_dict())
    module["wide"].weight.grad = normal(5, 7)
    Optim(optimizer="muon").build(module).step()
    assert [name for name, value in module.state_dict().items() if not torch.equal(value, before[name])] == ["wide.weight"]
