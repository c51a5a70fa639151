"""The activations of a model by name, as in TransformerLens's encoder-decoder, and functions that see and replace them.

    encoder.{i}.attn.        hook_q, hook_k, hook_v before rotation; hook_attn_scores, before the mask; hook_pattern, the
    decoder.{i}.attn.        weights; hook_z, the heads' outputs
    decoder.{i}.cross_attn.
    encoder.{i}.             hook_resid_pre, hook_attn_out, hook_resid_mid, hook_mlp_out, hook_resid_post
    decoder.{i}.             likewise, with hook_cross_attn_out and hook_resid_mid_cross before hook_mlp_out
    encoder.{i}.mlp.         hook_pre and hook_post, the neurons before and after their activation function
    decoder.{i}.mlp.
    encoder.hook_state, decoder.hook_state, alignment.hook_scores, alignment.hook_pattern    in a BiRNN, with
    readout.                 hook_state, hook_word, hook_context, which the readout receives, and hook_out

Layers i are counted from 0. In a step of a search, T is 1 and B counts the beams; but in cross-attention, B counts the
sentences and T their beams. A BiRNN computes its alignment (T is 1) and its decoder's state (B, D) for each target position in
turn; `run_with_cache` joins them.

Shapes: B sentences, S source length, T target length, H heads, K width of a head, D model width; in a BiRNN, D state width, M
width of the encoder's output, A width of what the readout's linear layer returns.
"""

import fnmatch
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from entente.attention.record import observing
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.models.attention import MultiHeadAttention, NoAttention
from entente.models.birnn import BiRNN
from entente.models.seq2seq import Seq2Seq
from entente.models.transformer import Block, Transformer

Undo = Callable[[], object]
OUTPUT = -1
OUTPUTS = {"self": "attn_out", "cross": "cross_attn_out", "ff": "mlp_out"}  # of the sublayers
SUMS = {"self": "resid_mid", "cross": "resid_mid_cross"}  # after their residual connections; that of the last is resid_post


class Point(NamedTuple):
    """A tensor that a module receives as its argument number `slot`, or returns (OUTPUT). shape: with letters for the lengths.
    n_heads: H if the tensor's last dimension is H K, which functions see as two; else 0. width: K, if there are heads. columns:
    those that functions see."""

    module: nn.Module
    slot: int
    shape: str
    n_heads: int = 0
    width: int = 0
    columns: slice = slice(None)

    def on(self, change: Callable[..., Tensor | None], *arguments: object) -> Undo:
        """Calls change(tensor, *arguments) at this point from now on, and returns a function that ends this. What `change`
        returns replaces the tensor; None keeps it. A gradient of the output reaches the tensor that `change` receives."""

        def replaced(value: Tensor) -> Tensor:
            part = value[..., self.columns]
            part = part.unflatten(-1, (self.n_heads, -1)) if self.n_heads else part
            new = change(part, *arguments)
            if new is None:
                if not part.requires_grad:
                    return value
                new = part  # which is then on the way of the gradient
            value = value.clone()
            value[..., self.columns] = new.flatten(-2) if self.n_heads else new
            return value

        def before(_: nn.Module, inputs: Any) -> Any:
            return *inputs[: self.slot], replaced(inputs[self.slot]), *inputs[self.slot + 1 :]

        if self.slot == OUTPUT:
            return self.module.register_forward_hook(lambda _, inputs, output: replaced(output)).remove
        return self.module.register_forward_pre_hook(before).remove


class Hook(NamedTuple):
    """What a function of `hooked` is told about the activation it receives."""

    name: str


def _checked(value: Tensor, function: Callable[[Tensor, Hook], Tensor | None], hook: Hook) -> Tensor | None:
    new = function(value, hook)
    if new is not None and (not isinstance(new, Tensor) or new.shape != value.shape):
        returned = tuple(new.shape) if isinstance(new, Tensor) else f"a {type(new).__name__}"
        raise InputError(
            f"{hook.name}: the function returned {returned}; return a tensor of shape {tuple(value.shape)}, or None"
        )
    return new


@contextmanager
def hooked(model: Seq2Seq, functions: Iterable[tuple[str, Callable[[Tensor, Hook], Tensor | None]]]) -> Iterator[None]:
    """Inside the context, calls each function at the points whose names match its pattern (see fnmatch). Raises InputError if
    there is none, or if a function returns something else than None or a tensor of the same shape."""
    names = points(model)
    with ExitStack() as stack:
        for pattern, function in functions:
            matches = fnmatch.filter(names, pattern)
            if not matches:
                raise InputError(f"{pattern}: no activation has such a name; hook_names() lists them")
            for hook in map(Hook, matches):
                stack.callback(names[hook.name].on(_checked, function, hook))
        yield


def points(model: Seq2Seq) -> dict[str, Point]:
    """Returns the points of a model, by name: none, if it is neither a Transformer nor a BiRNN."""
    if isinstance(model, Transformer):
        return dict(_of_transformer(model))
    return dict(_of_birnn(model)) if isinstance(model, BiRNN) else {}


def _of_transformer(model: Transformer) -> Iterator[tuple[str, Point]]:
    for side, blocks, length in (("encoder", model.encoder, "S"), ("decoder", model.decoder, "T")):
        residual_stream = f"(B, {length}, {model.d_model})"
        for i, block in enumerate(blocks):
            assert isinstance(block, Block)
            yield f"{side}.{i}.hook_resid_pre", Point(block, 0, residual_stream)
            for name in block.present:
                if name == "self":
                    yield from _of_attention(f"{side}.{i}.attn", block.self_attention, length, length)
                elif name == "cross":
                    yield from _of_attention(f"{side}.{i}.cross_attn", block.cross_attention, length, "S")
                else:
                    neurons, _, output = block.ff
                    yield f"{side}.{i}.mlp.hook_pre", Point(neurons, OUTPUT, f"(B, {length}, {neurons.out_features})")
                    yield f"{side}.{i}.mlp.hook_post", Point(output, 0, f"(B, {length}, {output.in_features})")
                yield f"{side}.{i}.hook_{OUTPUTS[name]}", Point(block.residual[name], 1, residual_stream)
                total = "resid_post" if name == block.present[-1] else SUMS[name]
                yield f"{side}.{i}.hook_{total}", Point(block.after[name], OUTPUT, residual_stream)


def _of_attention(place: str, layer: MultiHeadAttention, rows: str, columns: str) -> Iterator[tuple[str, Point]]:
    heads, width = layer.n_heads, layer.d_k
    for letter, linear, length in (("q", layer.query, rows), ("k", layer.key, columns), ("v", layer.value, columns)):
        yield f"{place}.hook_{letter}", Point(linear, OUTPUT, f"(B, {length}, {heads}, {width})", heads, width)
    yield f"{place}.hook_attn_scores", Point(layer.weights, 0, f"(B, {heads}, {rows}, {columns})")
    yield f"{place}.hook_pattern", Point(layer.weights, OUTPUT, f"(B, {heads}, {rows}, {columns})")
    yield f"{place}.hook_z", Point(layer.out, 0, f"(B, {rows}, {heads}, {width})", heads, width)


def _of_birnn(model: BiRNN) -> Iterator[tuple[str, Point]]:
    width, directions = model.encoder.hidden_size, 1 + model.encoder.bidirectional
    length = "1" if isinstance(model.attention, NoAttention) else "S"
    yield "encoder.hook_state", Point(model.memory, OUTPUT, f"(B, {length}, {directions * width})")
    if hasattr(model.attention, "weights"):
        yield "alignment.hook_scores", Point(model.attention.weights, 0, "(B, T, S)")
        yield "alignment.hook_pattern", Point(model.attention.weights, OUTPUT, "(B, T, S)")
    yield "decoder.hook_state", Point(model.state, OUTPUT, f"(B, T, {width})")
    if model.maxout:
        start = 0
        for part, size in (("state", width), ("word", model.tgt_embedding.embedding_dim), ("context", directions * width)):
            yield f"readout.hook_{part}", Point(model.readout, 0, f"(B, T, {size})", columns=slice(start, start + size))
            start += size
    else:
        for slot, part in enumerate(("state", "context")):
            if model.residual.keep or part == "context":
                yield f"readout.hook_{part}", Point(model.residual, slot, f"(B, T, {width})")
    yield "readout.hook_out", Point(model.readout, OUTPUT, f"(B, T, {model.readout.out_features})")


class Target:
    """A model with interventions, and the target positions of the queries that an attention layer receives, in the thread that
    calls it. In a Transformer, they follow from the shape of the first self-attention's scores; in a BiRNN, which computes its
    alignment for each position in turn, from the number of its calls since `encode`."""

    def __init__(self, model: Seq2Seq, vocabulary: Vocabulary | None) -> None:
        self.model, self.vocabulary, self.points = model, vocabulary, points(model)
        self._reading = threading.local()

    def follow(self) -> Iterator[Undo]:
        """Follows the positions from now on, and yields functions that end this."""
        if isinstance(self.model, Transformer):
            yield self.points["decoder.0.attn.hook_attn_scores"].on(self._read)
        elif "alignment.hook_scores" in self.points:
            yield self.points["encoder.hook_state"].on(self._begin)
            yield self.points["alignment.hook_scores"].on(self._step)

    def _read(self, scores: Tensor) -> None:
        self._reading.length = scores.size(-2)
        self._reading.start = scores.size(-1) - scores.size(-2)

    def _begin(self, _: Tensor) -> None:
        self._reading.start, self._reading.length = -1, 1

    def _step(self, _: Tensor) -> None:
        self._reading.start += 1

    def positions(self, kind: str, rows: int) -> Tensor:
        """Returns the position of each query (rows,) of the attention that is being computed. The queries of a sentence's beams
        follow each other."""
        if kind == "encoder":
            return torch.arange(rows)
        return self._reading.start + torch.arange(rows) % self._reading.length

    def values_at(self, point: Point, src: Tensor, tgt: Tensor) -> list[Tensor]:
        """Returns the tensors at a point, one per call of its module, for src (B, S) and the decoder's input tgt (B, T)."""
        values: list[Tensor] = []
        with observing(self.model) as device, ExitStack() as stack:
            stack.callback(point.on(values.append))
            self.model(src.to(device), tgt.to(device))
        return values

    def pattern(self, place: str, change: Callable[..., Tensor], *arguments: object) -> Undo:
        """Replaces weights (B, H, T, S) with change(weights, reachable, *arguments). reachable: a mask of the same shape, True
        at the keys that each query can reach. H is 1 in a BiRNN."""

        def changed(module: Any, inputs: Any, output: Tensor) -> Tensor:
            values, reachable = (by_heads(x) for x in (output, module.reachable(*inputs)))
            return change(values.clone(), reachable.expand_as(values), *arguments).reshape(output.shape)

        return self.points[f"{place}.hook_pattern"].module.register_forward_hook(changed).remove


def by_heads(values: Tensor) -> Tensor:
    return values if values.dim() == 4 else values.unsqueeze(1)
