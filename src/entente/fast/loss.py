"""Output projection and cross-entropy in one, a block of rows at a time.

The logits of a batch are the largest tensor of a training step, and never needed all at once. Projection, loss and gradients
are computed for some rows at a time, in one small block of memory: the gradients in the forward pass, while the logits exist,
and the backward pass only scales them.

Shapes: N target tokens, R of them at a time, D width of the decoder's output, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from entente.models.seq2seq import Loss, Seq2Seq

ROWS = 512  # R: a block of 512 x 8,000 logits takes 16 MB


def loss(model: Seq2Seq, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Loss:
    """Seq2Seq.loss: hidden (N, D), target (N,). Products are computed in autocast's precision where that is on, and compared in
    float32 at least."""
    if torch.is_grad_enabled():
        return Loss(*_ProjectedCrossEntropy.apply(hidden, model.output.weight, target, label_smoothing))
    return _in_blocks(hidden, model.output.weight, target, label_smoothing, None)


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> tuple[Tensor, ...]:
        gradients = torch.zeros_like(hidden), torch.zeros_like(weight)
        loss = _in_blocks(hidden, weight, target, label_smoothing, gradients)
        ctx.save_for_backward(*gradients)
        ctx.scale = _precision(hidden)[1]
        ctx.mark_non_differentiable(loss.nll)
        return tuple(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_smoothed: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_weight = ctx.saved_tensors
        d_smoothed = d_smoothed / ctx.scale
        return d_hidden * d_smoothed, d_weight * d_smoothed, None, None


def _precision(hidden: Tensor) -> tuple[torch.dtype, int]:
    """The type of the products, and the scale kept on float16 gradients until the backward pass brings the loss scale: without
    it, the gradients of a mean over N target tokens underflow."""
    device = hidden.device.type
    narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    return narrow, len(hidden) if narrow == torch.float16 else 1


def _in_blocks(
    hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float, gradients: tuple[Tensor, Tensor] | None
) -> Loss:
    """gradients: zeros like hidden and like weight, filled with the scaled gradients of the smoothed loss."""
    n, vocabulary = len(target), len(weight)
    narrow, scale = _precision(hidden)
    wide = torch.promote_types(hidden.dtype, torch.float32)
    smoothed, nll = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
    with torch.autocast(hidden.device.type, enabled=False):
        w = weight.to(narrow)
        for start in range(0, n, ROWS):
            rows = slice(start, start + ROWS)
            h, y = hidden[rows].to(narrow), target[rows].unsqueeze(1)
            logits = (h @ w.T).to(wide)  # (R, V)
            mean, of_target = logits.mean(-1), logits.gather(1, y)
            highest = logits.amax(-1)
            p = torch.softmax(logits, -1, out=logits)  # in the same memory
            log_sum = highest - p.amax(-1).log()  # the likeliest has 1 / V at least: never log 0
            block = (log_sum - of_target.squeeze(1)).sum()
            nll += block
            smoothed += (1 - label_smoothing) * block + label_smoothing * (log_sum - mean).sum()
            if gradients:
                d_hidden, d_weight = gradients
                p -= label_smoothing / vocabulary
                p.scatter_add_(1, y, p.new_full((1, 1), label_smoothing - 1).expand_as(y))
                d_logits = p.div_(n / scale).to(narrow)
                d_hidden[rows] = d_logits @ w
                if d_weight.dtype == narrow:
                    d_weight.addmm_(d_logits.T, h)
                else:
                    d_weight += d_logits.T @ h
    return Loss(smoothed / n, nll / n)
