"""Defines the optimisers (Adam alone, or Muon for the matrices and Adam for the rest) and the learning rate schedules."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from entente.models.attention import BilinearScore, SlicedLinear
from entente.models.initialise import GATES
from entente.settings import OptimSettings

# Coefficients a, b, c of polynomials a x + b x^3 + c x^5. Applied one after the other, they map singular values in [0.01, 1]
# to [0.73, 1.27]. Each is optimal for the interval to which the previous one maps its inputs (Amsel et al. 2025).
POLYNOMIALS = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))


def build_optimiser(settings: OptimSettings, model: nn.Module, fused: bool = False) -> torch.optim.Optimizer:
    """Returns the optimiser of a model's parameters. With `adam`, AdamW (Kingma & Ba 2015; Loshchilov & Hutter
    2019) updates all of them. With `muon`, Muon (Jordan et al. 2024) updates the matrices and AdamW the rest. fused: see
    torch.optim.AdamW."""
    stacked = matrices(model) if settings.optimizer == "muon" else {}
    by_muon = {id(parameter) for group in stacked.values() for parameter in group}
    rest = {"params": [parameter for parameter in model.parameters() if id(parameter) not in by_muon]}
    betas, decay = (settings.beta1, settings.beta2), settings.weight_decay
    adam = torch.optim.AdamW([rest], settings.lr, betas, eps=1e-9, weight_decay=decay, fused=fused)
    if not stacked:
        return adam
    groups = [{"params": group, "stacked": count} for count, group in stacked.items()]
    return CombinedOptimiser(Muon(groups, settings.lr, settings.momentum, decay), adam)


def rate_factor(settings: OptimSettings, step: int, max_steps: int) -> float:
    """Returns the factor by which lr is multiplied at `step`, counted from 0.

    The first of `warmup` steps has 1 / warmup of lr, and the last all of it. lr is kept until step `decay_from`, or until the
    end of the warm-up if that is later. Then `inverse_sqrt` decays it as 1 / sqrt(step), with steps counted from 1 (Vaswani et
    al. 2017, section 5.3), and `constant` keeps it. `linear` and `cosine` (Loshchilov & Hutter 2017) decay it over the n steps
    that are left: the first of them still has lr, and zero would be reached one step after the last, whose factor is 1 / n with
    `linear`. A warm-up of at most `decay_from` steps does not change later rates.
    """
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    start = max(settings.warmup, settings.decay_from)
    if step < start or settings.schedule == "constant":
        return 1.0
    if settings.schedule == "inverse_sqrt":
        return math.sqrt(max(start, 1) / (step + 1))
    done = min(1.0, (step - start) / max(1, max_steps - start))
    return 1 - done if settings.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def matrices(model: nn.Module) -> dict[int, list[nn.Parameter]]:
    """Returns the parameters that Muon updates, by the number of matrices that each of them stacks: the weights of linear
    layers other than the output projection (1; one per head if heads read slices), of recurrent networks (one per gate) and of
    bilinear scores (one per head). Adam updates all others: embeddings, vectors (H, K) of additive scores, norms and biases."""
    groups: dict[int, list[nn.Parameter]] = defaultdict(list)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "output":
            count = module.n_heads if isinstance(module, SlicedLinear) else 1
            groups[count] += [parameter for parameter in module.parameters() if parameter.dim() == 2]
        elif isinstance(module, BilinearScore):
            groups[len(module.weight)].append(module.weight)
        elif type(module) in GATES:
            groups[GATES[type(module)]] += [parameter for parameter in module.parameters() if parameter.dim() == 2]
    return groups


class Muon(torch.optim.Optimizer):
    """Updates matrices by Nesterov momentum, orthogonalised (Jordan et al. 2024, "Muon: an optimizer for hidden layers in
    neural networks") and multiplied by 0.2 sqrt(longer side). The root mean square of an update is then about 0.2, as in Adam,
    so both can use the same learning rates (Liu et al. 2025, section 2.2). torch's Muon is not used, because it iterates in
    bfloat16, which is 40 times slower on CPUs without bfloat16 instructions than on CPUs with them.

    Each parameter group has an entry `stacked`, the number of matrices that each of its parameters stacks along dim 0. Every
    matrix is updated separately."""

    def __init__(self, params: Iterable[Any], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "stacked": 1})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every matrix that has a gradient. Does not call `closure`: CombinedOptimiser does, once for all its parts."""
        for group in self.param_groups:
            by_shape: dict[Sequence[int], list[tuple[Tensor, Tensor]]] = defaultdict(list)  # (matrix, update) pairs
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                mean = state["momentum_buffer"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(mean, group["momentum"])
                rows = (x.flatten(end_dim=-2).chunk(group["stacked"]) for x in (parameter, update))  # a score's are (H, K, K)
                for pair in zip(*rows, strict=True):
                    matrix, change = (x.T if x.size(0) > x.size(1) else x for x in pair)
                    by_shape[change.shape].append((matrix, change))
            for shape, pairs in by_shape.items():
                updates = orthogonalise(torch.stack([change for _, change in pairs]))
                for (matrix, _), change in zip(pairs, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(change, alpha=-group["lr"] * 0.2 * math.sqrt(max(shape)))


def orthogonalise(x: Tensor) -> Tensor:
    """Returns approximately U V^T for each matrix of x (N, rows, columns), where rows <= columns and U S V^T is the matrix's
    singular value decomposition. The singular vectors stay the same, and the singular values become about 1."""
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for a, b, c in POLYNOMIALS:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class CombinedOptimiser(torch.optim.Optimizer):
    """Combines optimisers into one, so that Lightning, schedulers and checkpoints see the groups and states of all of them."""

    def __init__(self, *optimisers: torch.optim.Optimizer) -> None:
        self.optimisers = optimisers
        super().__init__([group for each in optimisers for group in each.param_groups], {})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = closure() if closure else None
        groups = iter(self.param_groups)  # which loading a checkpoint replaces, as it does the state
        for each in self.optimisers:
            each.param_groups, each.state = [next(groups) for _ in each.param_groups], self.state
            each.step()
        return loss
