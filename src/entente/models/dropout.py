"""Dropout whose random numbers are cheap on a CPU.

torch draws one random number for each value there, which took a tenth of a training step. Sixteen bits are enough to decide on
one: a 64-bit number decides on four values.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 2**16  # what 16 bits can say


class Dropout(nn.Module):
    """Each value is dropped with probability p and the others grow by 1 / (1 - p), in training (Srivastava et al. 2014). On a
    CPU, p is rounded to a multiple of 1 / 65,536, and the others grow to match."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped = min(round(self.p * LEVELS), LEVELS - 1)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - LEVELS // 2
        return x * kept.to(x.dtype).mul_(LEVELS / (LEVELS - dropped))

    def extra_repr(self) -> str:
        return f"p={self.p}"
