"""Dropout with cheap random numbers on a CPU.

torch draws one random number per value there, which took a tenth of a training step. Sixteen bits per value are enough, so one
64-bit number decides on four values.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 2**16  # the number of values that 16 bits can take


def drop(layer: nn.Dropout, x: Tensor) -> Tensor:
    """nn.Dropout's forward: x of any shape -> the same shape. On a CPU, p is rounded to a multiple of 1 / 65,536, and the
    values that are kept grow to match."""
    if not layer.training or layer.p == 0 or x.device.type != "cpu":
        return F.dropout(x, layer.p, layer.training)
    dropped = min(round(layer.p * LEVELS), LEVELS - 1)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - LEVELS // 2
    return x * kept.to(x.dtype).mul_(LEVELS / (LEVELS - dropped))
