"""Provides fast implementations of model methods. Each replaces one method of a module instance, so parameters, their names and
hooks remain unchanged. `attach` is for training and decoding, `packed` only for decoding.

Shapes: B batch, H heads, T queries, S keys, K key width of a head, N target tokens, R target tokens of a block, D width of the
decoder's output, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from entente.fast import recurrent
from entente.models.attention import KV, MultiHeadAttention
from entente.models.birnn import BiRNN
from entente.models.seq2seq import Loss, Seq2Seq
from entente.settings import TransformerSettings

Model = TypeVar("Model", bound=nn.Module)
LEVELS = 2**16  # the number of values that 16 bits can represent
UNFUSED_DEVICES = {"cpu"}  # device types on which the fused attention kernel is slower than separate steps
PACKED_ROWS = 256  # the number of input rows for which the layout of packed weights is chosen; other numbers work too
PACKED_SIZE = 1_000_000  # values from which a weight is packed; the products of smaller ones do not become faster
STANDARD = {"score", "scale", "projections", "softmax", "mask_value"}  # settings whose defaults the fused kernel implements
LOSS_ROWS = 512  # R: a block of 512 x 8,000 logits takes 16 MB


def drop(layer: nn.Dropout, x: Tensor) -> Tensor:
    """Implements nn.Dropout.forward with one 64-bit random number for four values; torch draws one per value, which took a
    tenth of the training time on a CPU. p is rounded to a multiple of 1 / 65,536, and kept values are scaled to match."""
    if not layer.training or layer.p == 0 or x.device.type != "cpu":
        return F.dropout(x, layer.p, layer.training)
    dropped = min(round(layer.p * LEVELS), LEVELS - 1)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    keep = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - LEVELS // 2
    return x * keep.to(x.dtype).mul_(LEVELS / (LEVELS - dropped))


def attend(layer: MultiHeadAttention, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
    """Implements MultiHeadAttention.attend for query (B, H, T, K): training on a GPU uses torch's fused kernel. Evaluation does
    not, so that hooks see the weights."""
    if not layer.training or query.device.type in UNFUSED_DEVICES:
        return MultiHeadAttention.attend(layer, query, kv, mask)
    return F.scaled_dot_product_attention(query, kv.key, kv.value, mask, dropout_p=layer.dropout.p)


def is_standard(layer: MultiHeadAttention) -> bool:
    """Returns whether the fused kernel can replace the layer: the settings STANDARD are the defaults."""
    usual, settings = (each.model_dump(include=STANDARD) for each in (TransformerSettings(), layer.settings))
    return type(layer) is MultiHeadAttention and settings == usual


def loss(model: Seq2Seq, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Loss:
    """Implements Seq2Seq.loss for hidden (N, D) and target (N,) in blocks of rows, because all logits together would be the
    largest tensor in training. The forward pass also computes the gradients; the backward pass only scales them. Products use
    autocast's dtype; softmax and losses use at least float32."""
    if model.output.bias is not None:
        return Seq2Seq.loss(model, hidden, target, label_smoothing)
    if not torch.is_grad_enabled():  # in evaluation, where autocast should not round the losses
        with torch.autocast(hidden.device.type, enabled=False):
            return _blockwise_loss(hidden.to(model.output.weight.dtype), model.output.weight, target, label_smoothing, None)
    return Loss(*_ProjectedCrossEntropy.apply(hidden, model.output.weight, target, label_smoothing))


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> tuple[Tensor, ...]:
        gradients = torch.zeros_like(hidden), torch.zeros_like(weight)
        losses = _blockwise_loss(hidden, weight, target, label_smoothing, gradients)
        ctx.save_for_backward(*gradients)
        ctx.scale = _precision(hidden)[1]
        ctx.mark_non_differentiable(losses.nll)
        return tuple(losses)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_smoothed: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_weight = ctx.saved_tensors
        d_smoothed = d_smoothed / ctx.scale
        return d_hidden * d_smoothed, d_weight * d_smoothed, None, None


def _precision(hidden: Tensor) -> tuple[torch.dtype, int]:
    """Returns the dtype of the matrix products, and a factor by which gradients are scaled until the backward pass: N in
    float16, where the gradients of a mean over N target tokens would underflow, else 1."""
    device = hidden.device.type
    narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    return narrow, len(hidden) if narrow == torch.float16 else 1


def _blockwise_loss(
    hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float, gradients: tuple[Tensor, Tensor] | None
) -> Loss:
    """Returns the loss. Unless `gradients` is None, also stores scaled gradients of `smoothed` in its two tensors of zeros."""
    n, vocabulary = len(target), len(weight)
    narrow, scale = _precision(hidden)
    wide = torch.promote_types(hidden.dtype, torch.float32)
    smoothed, nll = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
    with torch.autocast(hidden.device.type, enabled=False):
        w = weight.to(narrow)
        for start in range(0, n, LOSS_ROWS):
            rows = slice(start, start + LOSS_ROWS)
            h, y = hidden[rows].to(narrow), target[rows].unsqueeze(1)
            logits = (h @ w.T).to(wide)  # (R, V)
            mean, of_target = logits.mean(-1), logits.gather(1, y)
            highest = logits.amax(-1)
            p = torch.softmax(logits, -1, out=logits)  # overwrites the logits
            log_sum = highest - p.amax(-1).log()  # never log(0): the largest probability is at least 1 / V
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


REPLACEMENTS: list[tuple[type[nn.Module], str, Any]] = [  # class, method name, fast implementation
    (nn.Dropout, "forward", drop),
    (MultiHeadAttention, "attend", attend),
    (BiRNN, "read", recurrent.read),
    (BiRNN, "write", recurrent.write),
    (Seq2Seq, "loss", loss),
]


def attach(model: Model) -> Model:
    """Replaces each method that has an equivalent fast implementation, and returns the model."""
    for module in model.modules():
        for kind, method, function in REPLACEMENTS:
            if isinstance(module, kind) and (not isinstance(module, MultiHeadAttention) or is_standard(module)):
                setattr(module, method, MethodType(function, module))
    return model


@contextmanager
def packed(model: nn.Module) -> Iterator[None]:
    """Makes large float32 linear layers on a CPU, above all the output projection, use a copy of their weights in oneDNN's
    layout, unless gradients are enabled; the weights must not change inside the context. The products of a search step become
    1.2 to 2 times as fast, because torch would otherwise rearrange the weights at each call."""
    usable = hasattr(torch.ops.mkldnn, "_linear_pointwise") and not torch.is_autocast_enabled("cpu")
    with ExitStack() as stack:
        for layer in model.modules() if usable else ():
            if type(layer) is not nn.Linear or "forward" in vars(layer):  # other layers, and methods already replaced
                continue
            weight = layer.weight
            if weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= PACKED_SIZE:
                copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACKED_ROWS)
                layer.forward = partial(_multiply_packed, layer, copy)  # type: ignore[method-assign]
                stack.callback(delattr, layer, "forward")  # restores the method of the class
        yield


def _multiply_packed(layer: nn.Linear, weight: Tensor, x: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        return F.linear(x, layer.weight, layer.bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, layer.bias, "none", [], "")
