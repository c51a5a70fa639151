"""Provides random tensors, assertions and forward passes for tests that compare models in float64."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from conftest import LENGTHS, PAD, T, small_settings
from entente.checkpoint import sizes_of
from entente.data.tokenizer import Vocabulary
from entente.models.attention import AttentionWeights
from entente.models.build import build
from entente.models.seq2seq import Seq2Seq

Layer = TypeVar("Layer", bound=nn.Module)
B, S = len(LENGTHS), max(LENGTHS)
REAL = torch.arange(S) < torch.tensor(LENGTHS)[:, None]  # (B, S): True at real source tokens, False at padding
FUTURE = torch.ones(T, T, dtype=torch.bool).triu(1)  # (T, T): True where a key comes after its query


def close(actual: Tensor, expected: Tensor) -> None:
    """Asserts that two tensors are equal up to the rounding of float64."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Returns float64 values drawn from a standard normal distribution."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small_layer(kind: Callable[[Any], Layer], **changes: Any) -> Layer:
    """Returns a layer of the small Transformer, such as an EncoderBlock, with random weights, biases and gains."""
    layer = kind(small_settings("transformer", **changes)).double().eval()
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter.copy_(0.3 * normal(*parameter.shape, seed=i))
    return layer


def model_of(name: str, vocabulary: Vocabulary, **changes: Any) -> Seq2Seq:
    """Returns a small model of the pieces of a vocabulary, in float32 and evaluation mode, with weights as large as after
    training, because small weights give nearly uniform attention."""
    model = build(small_settings(name, **changes), sizes_of(vocabulary, seed=7)).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.8)
    return model


@contextmanager
def recorded(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Yields a dictionary from each AttentionWeights module's name to its outputs, one tensor per call in the `with` block."""
    outputs: dict[str, list[Tensor]] = {n: [] for n, m in model.named_modules() if isinstance(m, AttentionWeights)}
    handles = [model.get_submodule(n).register_forward_hook(lambda _, __, w, n=n: outputs[n].append(w)) for n in outputs]
    yield outputs
    for handle in handles:
        handle.remove()


def has_hooks(model: nn.Module) -> bool:
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def logits(model: Seq2Seq, src: Tensor, tgt: Tensor) -> Tensor:
    return model.output(model(src, tgt))


def logits_in_chunks(model: Seq2Seq, src: Tensor, tgt: Tensor, sizes: Sequence[int]) -> Tensor:
    """Returns the logits of a target that is decoded in chunks of the given sizes."""
    state = model.encode(src)
    parts = []
    for chunk in tgt.split(list(sizes), dim=1):
        hidden, state = model.decode(chunk, state)
        parts.append(model.output(hidden))
    return torch.cat(parts, dim=1)


def tensors(state: Any) -> list[Tensor]:
    """Returns all tensors of a decoder's state."""
    return [state] if isinstance(state, Tensor) else [tensor for part in state for tensor in tensors(part)]


def loss_of(model: Seq2Seq, src: Tensor, read: Tensor, produced: Tensor) -> Tensor:
    return F.cross_entropy(logits(model, src, read).flatten(0, 1), produced.flatten(), ignore_index=PAD)
