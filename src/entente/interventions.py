"""Changes a trained model while it runs: mutes heads, scales scores, leaves out residuals or sublayers, sets weights, lifts
masks. Nothing of a change remains in the model when its context ends.

An intervention is a dictionary such as {"mute": "cross", "layer": 2, "head": 1}; the functions below make them. All of them are
hooks on modules, so they hold for greedy and beam search with the cache, for teacher forcing and for recorded attention. Layers
and heads are counted from 1, and target positions from 0, at the first piece that is produced.

Shapes: B sentences, H heads, K width of a head, T queries, S keys, D model width.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from entente.errors import InputError
from entente.models.attention import MultiHeadAttention
from entente.models.birnn import BiRNN
from entente.models.seq2seq import Residual, Seq2Seq
from entente.models.transformer import Transformer

Intervention = Mapping[str, Any]


def mute(kind: str, layer: int | None = None, head: int | None = None, to: str | Sequence[float] = "zero") -> Intervention:
    """Replaces what a head adds to its layer. to: `zero`; `uniform`, equal weights on all keys it may attend to; or K numbers,
    such as its mean."""
    return {"mute": kind, "layer": layer, "head": head, "to": to}


def scale(kind: str, factor: float, layer: int | None = None) -> Intervention:
    """Multiplies the scores by a factor, before the mask and the softmax."""
    return {"scale": kind, "factor": factor, "layer": layer}


def no_residual(side: str = "both", sublayer: str | None = None, layer: int | None = None) -> Intervention:
    """Leaves out the `x +` around a sublayer, or around all of them. side: encoder, decoder or both."""
    return {"no_residual": side, "sublayer": sublayer, "layer": layer}


def skip(side: str, sublayer: str, layer: int | None = None) -> Intervention:
    """Makes the output of a sublayer 0; x passes, unless its residual connection is missing too."""
    return {"skip": side, "sublayer": sublayer, "layer": layer}


def weights(kind: str, row: int, values: Sequence[float], layer: int | None = None, head: int | None = None) -> Intervention:
    """Sets the weights of one query on all keys. row: its position; values: their sum is 1; keys beyond them get 0."""
    return {"weights": kind, "row": row, "values": list(values), "layer": layer, "head": head}


def cell(kind: str, row: int, column: int, value: float, layer: int | None = None, head: int | None = None) -> Intervention:
    """Sets one weight, and rescales the others of its row so that they sum to 1 - value."""
    return {"weights": kind, "row": row, "column": column, "value": value, "layer": layer, "head": head}


def unmask(what: str) -> Intervention:
    """Lifts a mask. what: padding (of the source), or future, which exists only where all target pieces are given at once."""
    return {"unmask": what}


Undo = Callable[[], None]
Apply = Callable[[Seq2Seq, Intervention, "Positions"], list[Undo]]


@contextmanager
def intervene(model: Seq2Seq, interventions: Sequence[Intervention]) -> Iterator[None]:
    """Applies interventions inside the context. Raises InputError for one that cannot have an effect on this model."""
    with ExitStack() as stack:
        positions = stack.enter_context(Positions(model))
        for each in interventions:
            kind = next((kind for kind in KINDS if kind in each), None)
            if not kind:
                raise InputError(f"{shown(each)}: give one of {', '.join(KINDS)}")
            for undo in KINDS[kind](model, each, positions):
                stack.callback(undo)
        yield


def shown(intervention: Intervention) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in intervention.items() if value is not None) + "}"


class Positions:
    """Knows the target positions of the queries of an attention layer, in the thread that calls it. They are counted from the
    decoder's state: a Transformer's has the keys of all earlier pieces; a BiRNN's calls are counted since the last `encode`."""

    def __init__(self, model: Seq2Seq) -> None:
        self._model, self._here = model, threading.local()

    def __enter__(self) -> "Positions":
        self._methods = {name: vars(self._model).get(name) for name in ("encode", "decode")}
        encode, decode, here = self._model.encode, self._model.decode, self._here

        def begin(src: Tensor) -> Any:
            here.next = 0
            return encode(src)

        def continued(tgt: Tensor, state: Any) -> Any:
            if isinstance(self._model, Transformer):
                here.next = state.written[0].key.size(-2)
            here.start, here.length, here.step = here.next, tgt.size(1), 0
            here.next += here.length
            return decode(tgt, state)

        self._model.encode, self._model.decode = begin, continued  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._methods.items():
            delattr(self._model, name) if method is None else setattr(self._model, name, method)

    def of(self, kind: str, rows: int) -> Tensor:
        """Returns the position of each query (rows,) in the running call of a layer. The beams of a sentence are one after the
        other; a BiRNN calls its attention for each position in turn."""
        if kind == "encoder":
            return torch.arange(rows)
        if kind == "alignment":
            self._here.step += 1
            return torch.full((rows,), self._here.start + self._here.step - 1)
        return self._here.start + torch.arange(rows) % self._here.length


def layers_of(model: Seq2Seq, intervention: Intervention, kind: str) -> list[Any]:
    """Returns the attention layers of a kind, or the one of the intervention's `layer`."""
    if isinstance(model, BiRNN):
        found = [model.attention] if kind == "alignment" and hasattr(model.attention, "weights") else []
    else:
        blocks: Any = model.encoder if kind == "encoder" else model.decoder
        name = "cross_attention" if kind == "cross" else "self_attention"
        found = [getattr(block, name, None) for block in blocks] if kind in ("encoder", "decoder", "cross") else []
    found = [layer for layer in found if layer is not None]
    if not found:
        raise InputError(f"{shown(intervention)}: this model has no such attention")
    return chosen(intervention, found)


def chosen(intervention: Intervention, layers: list[Any]) -> list[Any]:
    layer = intervention.get("layer")
    if layer is None:
        return layers
    if layer not in range(1, len(layers) + 1):
        raise InputError(f"{shown(intervention)}: layer={layer}: choose from 1 to {len(layers)}")
    return [layers[layer - 1]]


def heads_of(layer: Any, intervention: Intervention) -> slice:
    """Returns the heads of an intervention, as a slice of H; without `head`, all."""
    head, count = intervention.get("head"), getattr(layer, "n_heads", 1)
    if head is None:
        return slice(None)
    if head not in range(1, count + 1):
        raise InputError(f"{shown(intervention)}: head={head}: choose from 1 to {count}")
    return slice(head - 1, head)


def by_heads(values: Tensor) -> Tensor:
    """Returns weights or scores (B, H, T, S); those of a BiRNN, (B, T, S), have one head."""
    return values if values.dim() == 4 else values.unsqueeze(1)


def _mute(model: Seq2Seq, intervention: Intervention, _: Positions) -> list[Undo]:
    kind, to, undo = intervention["mute"], intervention.get("to", "zero"), list[Undo]()
    for layer in layers_of(model, intervention, kind):
        heads = heads_of(layer, intervention)
        if to == "uniform":

            def spread(module: Any, inputs: Any, output: Tensor, heads: slice = heads) -> Tensor:
                allowed = by_heads(module.reachable(*inputs).to(output.dtype))
                changed = by_heads(output).clone()
                changed[:, heads] = (allowed / allowed.sum(-1, keepdim=True)).expand_as(changed)[:, heads]
                return changed.view_as(output)

            undo.append(layer.weights.register_forward_hook(spread).remove)
            continue
        if not isinstance(layer, MultiHeadAttention):
            raise InputError(f"{shown(intervention)}: this layer has no heads to replace; give to=uniform")
        width = layer.out.in_features // layer.n_heads
        value = torch.zeros(width) if to == "zero" else torch.as_tensor(to)
        if value.shape != (width,):
            raise InputError(f"{shown(intervention)}: to: give zero, uniform, or {width} numbers")

        def replace(module: Any, inputs: Any, heads: slice = heads, width: int = width, value: Tensor = value) -> Any:
            z = inputs[0].unflatten(-1, (-1, width)).clone()  # (B, T, H, K)
            z[:, :, heads] = value.to(z)
            return (z.flatten(-2),)

        undo.append(layer.out.register_forward_pre_hook(replace).remove)
    return undo


def _scale(model: Seq2Seq, intervention: Intervention, _: Positions) -> list[Undo]:
    factor = intervention["factor"]
    return [
        layer.weights.register_forward_pre_hook(lambda _, inputs: (inputs[0] * factor, *inputs[1:])).remove
        for layer in layers_of(model, intervention, intervention["scale"])
    ]


def residuals_of(model: Seq2Seq, intervention: Intervention, side: str) -> list[Residual]:
    """Returns the residual connections around the sublayers that an intervention names. Raises InputError if there is none."""
    name, found = intervention.get("sublayer"), list[Residual]()
    for part, blocks in (("encoder", model.encoder), ("decoder", model.decoder)) if isinstance(model, Transformer) else ():
        if side in (part, "both"):
            for block in chosen(intervention, list(blocks)):
                found += [residual for key, residual in block.residual.items() if name in (None, key)]
    if not found:
        raise InputError(f"{shown(intervention)}: this model has no such sublayer")
    return found


def _no_residual(model: Seq2Seq, intervention: Intervention, _: Positions) -> list[Undo]:
    kept = [residual for residual in residuals_of(model, intervention, intervention["no_residual"]) if residual.keep]
    if not kept:
        raise InputError(f"{shown(intervention)}: the model was trained without this residual connection")
    for residual in kept:
        residual.keep = False
    return [lambda residual=residual: setattr(residual, "keep", True) for residual in kept]  # type: ignore[misc]


def _skip(model: Seq2Seq, intervention: Intervention, _: Positions) -> list[Undo]:
    residuals = residuals_of(model, intervention, intervention["skip"])
    return [
        residual.register_forward_pre_hook(lambda _, inputs: (inputs[0], torch.zeros_like(inputs[1]))).remove
        for residual in residuals
    ]


def _weights(model: Seq2Seq, intervention: Intervention, positions: Positions) -> list[Undo]:
    kind, row, undo = intervention["weights"], intervention["row"], list[Undo]()
    values = intervention.get("values")
    if values is not None and abs(sum(values) - 1) > 1e-6:
        raise InputError(f"{shown(intervention)}: values: their sum must be 1")
    for layer in layers_of(model, intervention, kind):
        heads = heads_of(layer, intervention)

        def put(module: Any, inputs: Any, output: Tensor, heads: slice = heads) -> Tensor:
            changed = by_heads(output).clone()  # (B, H, T, S)
            here, size = positions.of(kind, changed.size(2)) == row, changed.size(3)
            rows = changed[:, heads][:, :, here]  # (B, heads, queries at `row`, S)
            if values is not None:
                new = torch.zeros(size, dtype=rows.dtype)
                new[: len(values)] = torch.as_tensor(values[:size], dtype=rows.dtype)
                rows = new.to(rows).expand_as(rows)
            elif intervention["column"] < size:
                column, value = intervention["column"], intervention["value"]
                others = rows.clone()
                others[..., column] = 0
                rows = others * ((1 - value) / others.sum(-1, keepdim=True).clamp(min=1e-12))
                rows[..., column] = value
            part = changed[:, heads]
            part[:, :, here] = rows
            return changed.view_as(output)

        undo.append(layer.weights.register_forward_hook(put).remove)
    return undo


def _unmask(model: Seq2Seq, intervention: Intervention, _: Positions) -> list[Undo]:
    what = intervention["unmask"]
    if what not in ("padding", "future"):
        raise InputError(f"{shown(intervention)}: give padding or future")
    if isinstance(model, BiRNN):
        layers = layers_of(model, intervention, "alignment") if what == "padding" else []
    else:
        kinds = ("encoder", "cross") if what == "padding" else ("decoder",)
        layers = [layer for kind in kinds for layer in layers_of(model, intervention, kind)]
    if not layers:
        raise InputError(f"{shown(intervention)}: this model has no such mask")
    return [layer.register_forward_pre_hook(lambda _, inputs: (*inputs[:2], None)).remove for layer in layers]


KINDS: dict[str, Apply] = {
    "mute": _mute,
    "scale": _scale,
    "no_residual": _no_residual,
    "skip": _skip,
    "weights": _weights,
    "unmask": _unmask,
}
