"""The activations of a model by name, as in TransformerLens's encoder-decoder, with functions that see and replace them.

    encoder.{i}.attn.       hook_q hook_k hook_v (B, T, H, K), before rotation; hook_attn_scores (B, H, T, S), before the mask;
    decoder.{i}.attn.       hook_pattern (B, H, T, S), the weights; hook_z (B, T, H, K), the heads' outputs
    decoder.{i}.cross_attn.
    encoder.{i}.            hook_resid_pre hook_attn_out hook_resid_mid hook_mlp_out hook_resid_post, all (B, T, D)
    decoder.{i}.            likewise, with hook_cross_attn_out hook_resid_mid_cross before hook_mlp_out
    alignment.              hook_scores hook_pattern (B, T, S), in a BiRNN; one call per target position
    readout.                hook_out, in a BiRNN: the output of the readout's linear layer

Layers i are counted from 0. In a step of a search, T is 1 and B counts the beams; but in cross-attention, B counts the
sentences and T their beams.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from entente.errors import InputError
from entente.models.attention import MultiHeadAttention
from entente.models.birnn import BiRNN
from entente.models.seq2seq import Seq2Seq
from entente.models.transformer import Block, Transformer

Change = Callable[[Tensor], Tensor | None]  # returns another value, or None for the same
OUTPUT = -1
AFTER = {"self": ("attn_out", "resid_mid"), "cross": ("cross_attn_out", "resid_mid_cross"), "ff": ("mlp_out", "resid_post")}


class Point(NamedTuple):
    """A tensor that a module receives as its argument number `slot`, or returns (OUTPUT). n_heads: H if its last dimension is
    H K, which functions see as (..., H, K), else 0."""

    module: nn.Module
    slot: int
    n_heads: int = 0

    def on(self, change: Change) -> Callable[[], None]:
        """Calls `change` at this point from now on, and returns a function that ends this."""

        def replaced(value: Tensor) -> Tensor:
            new = change(value.unflatten(-1, (self.n_heads, -1)) if self.n_heads else value)
            return value if new is None else new.reshape(value.shape)

        def before(_: nn.Module, inputs: Any) -> Any:
            return *inputs[: self.slot], replaced(inputs[self.slot]), *inputs[self.slot + 1 :]

        if self.slot == OUTPUT:
            return self.module.register_forward_hook(lambda _, inputs, output: replaced(output)).remove
        return self.module.register_forward_pre_hook(before).remove


def points(model: Seq2Seq) -> dict[str, Point]:
    """Returns the points of a model, by name."""
    return dict(_of_transformer(model) if isinstance(model, Transformer) else _of_birnn(model))


class Hook(NamedTuple):
    """What a function of `hooked` is told about the place where it is called."""

    name: str


@contextmanager
def hooked(model: Seq2Seq, functions: Iterable[tuple[str, Callable[[Tensor, Hook], Tensor | None]]]) -> Iterator[None]:
    """Calls each function at the points whose names match its pattern (as in `fnmatch`) inside the context. Raises InputError if
    none matches."""
    names = points(model)
    with ExitStack() as stack:
        for pattern, function in functions:
            found = fnmatch.filter(names, pattern)
            if not found:
                raise InputError(f"{pattern}: no activation has such a name; see hook_names()")
            for name in found:
                stack.callback(names[name].on(partial(_told, function, Hook(name))))
        yield


def _told(function: Callable[[Tensor, Hook], Tensor | None], hook: Hook, value: Tensor) -> Tensor | None:
    return function(value, hook)


def _of_transformer(model: Transformer) -> Iterator[tuple[str, Point]]:
    for side, blocks in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, block in enumerate(blocks):
            assert isinstance(block, Block)
            yield f"{side}.{i}.hook_resid_pre", Point(block, 0)
            for name in block.present:
                if name != "ff":
                    attention: MultiHeadAttention = getattr(block, f"{name}_attention")
                    yield from _of_attention(f"{side}.{i}.{'cross_attn' if name == 'cross' else 'attn'}", attention)
                out, mid = AFTER[name]
                yield f"{side}.{i}.hook_{out}", Point(block.residual[name], 1)
                last = name == block.present[-1]
                yield f"{side}.{i}.hook_{'resid_post' if last else mid}", Point(block.after[name], OUTPUT)


def _of_attention(place: str, layer: MultiHeadAttention) -> Iterator[tuple[str, Point]]:
    for letter, linear in (("q", layer.query), ("k", layer.key), ("v", layer.value)):
        yield f"{place}.hook_{letter}", Point(linear, OUTPUT, layer.n_heads)
    yield f"{place}.hook_attn_scores", Point(layer.weights, 0)
    yield f"{place}.hook_pattern", Point(layer.weights, OUTPUT)
    yield f"{place}.hook_z", Point(layer.out, 0, layer.n_heads)


def _of_birnn(model: BiRNN) -> Iterator[tuple[str, Point]]:
    if hasattr(model.attention, "weights"):
        yield "alignment.hook_scores", Point(model.attention.weights, 0)
        yield "alignment.hook_pattern", Point(model.attention.weights, OUTPUT)
    yield "readout.hook_out", Point(model.readout, OUTPUT)
