"""Defines the optimisers (Adam alone, or Muon for the matrices and Adam for the rest) and the learning rate schedules."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Interval, doc
from torch import Tensor, nn

from entente.models.initialise import GATES

Schedule = Literal["inverse_sqrt", "cosine", "linear", "constant"]
# Coefficients a, b, c of polynomials a x + b x^3 + c x^5. Applied one after the other, they map singular values in [0.01, 1]
# to [0.73, 1.27]. Each is optimal for the interval to which the previous one maps its inputs (Amsel et al. 2025).
POLYNOMIALS = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))


@dataclass(frozen=True)
class Optim:
    """Settings of the optimiser, its learning rate, and label smoothing (Szegedy et al. 2016, section 7).

    optimizer: `adam` (Kingma & Ba 2015) updates all parameters. With `muon`, Muon (Jordan et al. 2024) updates the matrices and
    Adam the rest, such as embeddings, the output projection, norms and biases. lr: the peak learning rate of both. It is
    reached after `warmup` steps and kept until step `decay_from`, or until the end of the warm-up if that is later. Then
    `inverse_sqrt` decays it as 1 / sqrt(step) (Vaswani et al. 2017, section 5.3), `cosine` (Loshchilov & Hutter 2017) and
    `linear` decay it to zero at the last step, and `constant` keeps it. A warm-up of at most `decay_from` steps does not change
    later rates.
    """

    optimizer: Annotated[Literal["adam", "muon"], doc("adam, or muon for the matrices and adam for the rest")] = "adam"
    lr: Annotated[float, Interval(gt=0), doc("peak learning rate")] = 3e-3
    momentum: Annotated[float, Interval(ge=0, lt=1), doc("decay rate of muon's running mean of gradients")] = 0.95
    beta1: Annotated[float, Interval(ge=0, lt=1), doc("decay rate of adam's running mean of gradients")] = 0.9
    beta2: Annotated[float, Interval(ge=0, lt=1), doc("decay rate of adam's running mean of squared gradients")] = 0.98
    weight_decay: Annotated[float, Interval(ge=0), doc("weight decay, decoupled from the gradient as in AdamW")] = 0.0
    warmup: Annotated[int, Interval(ge=0), doc("steps of the linear warm-up")] = 200
    schedule: Annotated[Schedule, doc("shape of the decay")] = "cosine"
    decay_from: Annotated[int, Interval(ge=0), doc("step at which the decay starts; short runs need a smaller value")] = 200
    label_smoothing: Annotated[float, Interval(ge=0, lt=1), doc("probability spread uniformly over the vocabulary")] = 0.1

    def build(self, model: nn.Module, fused: bool = False) -> torch.optim.Optimizer:
        """Returns the optimiser of a model's parameters. fused: see torch.optim.AdamW."""
        stacked = matrices(model) if self.optimizer == "muon" else {}
        chosen = {id(parameter) for group in stacked.values() for parameter in group}
        others = {"params": [parameter for parameter in model.parameters() if id(parameter) not in chosen]}
        betas = (self.beta1, self.beta2)
        adam = torch.optim.AdamW([others], self.lr, betas, eps=1e-9, weight_decay=self.weight_decay, fused=fused)
        if not stacked:
            return adam
        groups = [{"params": group, "stacked": count} for count, group in stacked.items()]
        return CombinedOptimiser(Muon(groups, self.lr, self.momentum, self.weight_decay), adam)

    def factor(self, step: int, max_steps: int) -> float:
        """Returns the factor by which lr is multiplied at `step`, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        start = max(self.warmup, self.decay_from)
        if step < start or self.schedule == "constant":
            return 1.0
        if self.schedule == "inverse_sqrt":
            return math.sqrt(max(start, 1) / (step + 1))
        done = min(1.0, (step - start) / max(1, max_steps - start))
        return 1 - done if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def matrices(model: nn.Module) -> dict[int, list[nn.Parameter]]:
    """Returns the parameters that Muon updates: all 2-D parameters but embeddings and the output projection. They are grouped
    by the number of matrices stacked along dim 0, since torch's GRU and LSTM stack their gates' matrices."""
    found: dict[int, list[nn.Parameter]] = defaultdict(list)
    for name, module in model.named_modules():
        if not isinstance(module, nn.Embedding) and name != "output":
            for parameter in module.parameters(recurse=False):
                if parameter.dim() == 2:
                    found[GATES.get(type(module), 1)].append(parameter)
    return found


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
            alike: dict[Sequence[int], list[tuple[Tensor, Tensor]]] = defaultdict(list)  # (matrix, update) pairs by shape
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                mean = state["momentum_buffer"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(mean, group["momentum"])
                for pair in zip(parameter.chunk(group["stacked"]), update.chunk(group["stacked"]), strict=True):
                    matrix, change = (x.T if x.size(0) > x.size(1) else x for x in pair)
                    alike[change.shape].append((matrix, change))
            for shape, pairs in alike.items():
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
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for each in self.optimisers:
            each.param_groups, each.state = [next(groups) for _ in each.param_groups], self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = closure() if closure else None
        for each in self.optimisers:
            each.step()
        return loss
