"""Adam, the schedule of its learning rate, and label smoothing."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, assert_never

import torch
from annotated_types import Interval, doc
from torch import Tensor


@dataclass(frozen=True)
class Optim:
    """Adam (Kingma & Ba 2015), a warm-up and a schedule, and label smoothing (Szegedy et al. 2016, section 7).

    lr is the peak, reached after `warmup` steps and kept up to step `decay_from`. From there `inverse_sqrt` falls as
    1 / sqrt(step) (Vaswani et al. 2017, section 5.3) and `cosine` to zero at the last step of the budget (Loshchilov & Hutter
    2017); `constant` stays. Where the fall begins is a setting of its own, so that another warm-up, up to that step, changes
    the learning rates of the warm-up and no others. A longer warm-up postpones the fall to its end.
    """

    lr: Annotated[float, Interval(gt=0), doc("peak learning rate")] = 3e-3
    beta1: Annotated[float, Interval(ge=0, lt=1), doc("decay of the mean of gradients")] = 0.9
    beta2: Annotated[float, Interval(ge=0, lt=1), doc("decay of the mean of squared gradients")] = 0.98
    weight_decay: Annotated[float, Interval(ge=0), doc("decoupled from the gradient, as in AdamW")] = 0.0
    warmup: Annotated[int, Interval(ge=0), doc("steps of the linear warm-up")] = 200
    schedule: Annotated[Literal["inverse_sqrt", "cosine", "constant"], doc("shape of the decay")] = "cosine"
    decay_from: Annotated[int, Interval(ge=0), doc("step at which the decay starts; a short run needs an earlier one")] = 200
    label_smoothing: Annotated[float, Interval(ge=0, lt=1), doc("share of the target spread over the vocabulary")] = 0.1

    def adamw(self, parameters: Iterable[Tensor], fused: bool = False) -> torch.optim.Optimizer:
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(parameters, self.lr, betas, eps=1e-9, weight_decay=self.weight_decay, fused=fused)

    def factor(self, step: int, max_steps: int) -> float:
        """What lr is multiplied by at a step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        start = max(self.warmup, self.decay_from)
        if step < start or self.schedule == "constant":
            return 1.0
        if self.schedule == "inverse_sqrt":
            return math.sqrt(max(start, 1) / (step + 1))
        if self.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - start) / max(1, max_steps - start))))
        assert_never(self.schedule)
