"""Gives a model its fast implementations, from outside: the model's own files do not know them.

Each replaces one method on the instances, so that parameters, their names and hooks stay as they are. `attach` replaces what
serves training and decoding alike; `packed` is for decoding, while weights are constant.

Shapes: B batch, H heads, T queries, S keys, K key width of a head; N target tokens, R of them at a time, D width of the
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
from entente.models import BiRNN, Seq2Seq
from entente.models.attention import KV, MultiHeadAttention
from entente.models.seq2seq import Loss

Model = TypeVar("Model", bound=nn.Module)
LEVELS = 2**16  # the number of values that 16 bits can take
STEP_BY_STEP = {"cpu"}  # types of devices on which the fused attention kernel is the slower one
PACKED_ROWS = 256  # the number of rows that packed weights are laid out for; any number works
ROWS = 512  # R: a block of 512 x 8,000 logits takes 16 MB


def drop(layer: nn.Dropout, x: Tensor) -> Tensor:
    """nn.Dropout's forward, x of any shape. On a CPU torch draws one random number per value, which took a tenth of a training
    step. Here one 64-bit number decides on four values: p is rounded to a multiple of 1 / 65,536, and the values that are kept
    grow to match."""
    if not layer.training or layer.p == 0 or x.device.type != "cpu":
        return F.dropout(x, layer.p, layer.training)
    dropped = min(round(layer.p * LEVELS), LEVELS - 1)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - LEVELS // 2
    return x * kept.to(x.dtype).mul_(LEVELS / (LEVELS - dropped))


def attend(layer: MultiHeadAttention, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
    """MultiHeadAttention.attend, query (B, H, T, K) -> (B, H, T, K), in torch's fused kernel in training on a GPU. In
    evaluation the weights are recorded, and on a CPU separate steps are faster at the lengths of sentences."""
    if not layer.training or query.device.type in STEP_BY_STEP:
        return MultiHeadAttention.attend(layer, query, kv, mask)
    return F.scaled_dot_product_attention(query, kv.key, kv.value, mask, dropout_p=layer.dropout.p)


def is_standard(layer: MultiHeadAttention) -> bool:
    """Whether the layer is what its constructor makes of `d_model`, `n_heads` and `dropout` alone, with which the fused kernel
    computes the same. Any argument that leaves a trace in the layer, one added later too, makes it another layer."""
    with torch.device("meta"):  # shapes without memory
        standard = MultiHeadAttention(layer.out.out_features, layer.n_heads, layer.dropout.p)
    return _traces(layer) == _traces(standard)


def _traces(layer: nn.Module) -> list[Any]:
    """The names, classes and attributes of all modules in it, and the names and shapes of their parameters."""
    own = vars(nn.Module()).keys() | {"attend", "forward"}  # torch's attributes, and what `attach` replaces
    attributes = [{key: value for key, value in vars(module).items() if key not in own} for module in layer.modules()]
    classes = [(name, type(module)) for name, module in layer.named_modules()]
    return [classes, attributes, [(name, value.shape) for name, value in layer.named_parameters()]]


def loss(model: Seq2Seq, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Loss:
    """Seq2Seq.loss, hidden (N, D), target (N,), a block of rows at a time: the logits would be the largest tensor.
    Gradients are computed in the forward pass, while the logits of a block exist, and the backward pass only scales them.
    Products are computed in autocast's precision where that is on, and compared in float32 at least. An output projection with
    a bias is left to the plain loss."""
    if model.output.bias is not None:
        return Seq2Seq.loss(model, hidden, target, label_smoothing)
    if not torch.is_grad_enabled():
        return _in_blocks(hidden, model.output.weight, target, label_smoothing, None)
    return Loss(*_ProjectedCrossEntropy.apply(hidden, model.output.weight, target, label_smoothing))


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> tuple[Tensor, ...]:
        gradients = torch.zeros_like(hidden), torch.zeros_like(weight)
        found = _in_blocks(hidden, weight, target, label_smoothing, gradients)
        ctx.save_for_backward(*gradients)
        ctx.scale = _precision(hidden)[1]
        ctx.mark_non_differentiable(found.nll)
        return tuple(found)

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


FAST: list[tuple[type[nn.Module], str, Any]] = [
    (nn.Dropout, "forward", drop),
    (MultiHeadAttention, "attend", attend),
    (BiRNN, "read", recurrent.read),
    (BiRNN, "write", recurrent.write),
    (Seq2Seq, "loss", loss),
]


def attach(model: Model) -> Model:
    """The model itself, with every fast implementation that computes the same. Attaching twice changes nothing."""
    for module in model.modules():
        for kind, method, function in FAST:
            if isinstance(module, kind) and (not isinstance(module, MultiHeadAttention) or is_standard(module)):
                setattr(module, method, MethodType(function, module))
    return model


@contextmanager
def packed(model: nn.Module) -> Iterator[None]:
    """Inside, float32 linear layers on a CPU use a copy of their weights, which must not change meanwhile; with gradients
    enabled they use the weights themselves. Other layers, and every layer under autocast, are left alone. The copy is laid out
    as oneDNN reads it. It takes one pass over the weights, and the small products of a search step become 1.1 to 1.5 times as
    fast as torch's own, which lay the weights out again at each call."""
    known = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))  # torch's own
    able = known and torch.backends.mkldnn.is_available() and not torch.is_autocast_enabled("cpu")
    with ExitStack() as stack:
        for layer in model.modules() if able else ():
            if type(layer) is not nn.Linear or "forward" in vars(layer):  # packed already, or replaced by someone else
                continue
            if layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32:
                weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), PACKED_ROWS)
                layer.forward = partial(_multiply_packed, layer, weight)  # type: ignore[method-assign]
                stack.callback(delattr, layer, "forward")  # then it is the method of the class again
        yield


def _multiply_packed(layer: nn.Linear, weight: Tensor, x: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        return F.linear(x, layer.weight, layer.bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, layer.bias, "none", [], "")
