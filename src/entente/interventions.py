"""Changes a trained model while it runs: mutes heads, scales scores, leaves out residuals or sublayers, sets weights, lifts
masks. Nothing of a change remains in the model when its context ends.

An intervention is a dictionary such as {"mute": "cross", "layer": 2, "head": 1}; the functions below make them. All of them are
hooks on modules, so they hold for greedy and beam search with the cache, for teacher forcing and for recorded attention. Layers
and heads are counted from 1, and target positions from 0, at the first piece that is produced.

Shapes: B sentences, H heads, K width of a head, T queries, S keys, D model width.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from entente.errors import InputError
from entente.hook_points import AFTER, Point, points
from entente.models.seq2seq import Seq2Seq
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
Apply = Callable[[Seq2Seq, Intervention, "Positions"], Iterator[Undo]]
# The kinds of attention, as patterns of their places in the names of `hook_points`
PLACES = {
    "encoder": r"encoder\.\d+\.attn",
    "decoder": r"decoder\.\d+\.attn",
    "cross": r"decoder\.\d+\.cross_attn",
    "alignment": "alignment",
}


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


def places_of(names: Mapping[str, Point], intervention: Intervention, kind: str) -> list[str]:
    """Returns the places of a kind of attention, as in `hook_points`: one per layer, or that of `layer`."""
    wanted = re.compile(rf"({PLACES.get(kind, '(?!)')})\.hook_pattern")
    found = [name.removesuffix(".hook_pattern") for name in names if wanted.fullmatch(name)]
    if not found:
        raise InputError(f"{shown(intervention)}: this model has no such attention")
    return chosen(intervention, found)


def chosen(intervention: Intervention, layers: list[Any]) -> list[Any]:
    """Returns all layers, or the intervention's one."""
    layer = intervention.get("layer")
    if layer is None:
        return layers
    if layer not in range(1, len(layers) + 1):
        raise InputError(f"{shown(intervention)}: layer={layer}: choose from 1 to {len(layers)}")
    return [layers[layer - 1]]


def heads_of(names: Mapping[str, Point], place: str, intervention: Intervention) -> slice:
    """Returns the heads of an intervention, as a slice of H; without `head`, all."""
    head, count = intervention.get("head"), names[f"{place}.hook_z"].n_heads if f"{place}.hook_z" in names else 1
    if head is None:
        return slice(None)
    if head not in range(1, count + 1):
        raise InputError(f"{shown(intervention)}: head={head}: choose from 1 to {count}")
    return slice(head - 1, head)


def by_heads(values: Tensor) -> Tensor:
    """Returns weights or scores (B, H, T, S); those of a BiRNN, (B, T, S), have one head."""
    return values if values.dim() == 4 else values.unsqueeze(1)


def _mute(model: Seq2Seq, intervention: Intervention, _: Positions) -> Iterator[Undo]:
    to, names = intervention.get("to", "zero"), points(model)
    for place in places_of(names, intervention, intervention["mute"]):
        heads, z = heads_of(names, place, intervention), names.get(f"{place}.hook_z")
        if to == "uniform":

            def spread(module: Any, inputs: Any, output: Tensor, heads: slice = heads) -> Tensor:
                allowed = by_heads(module.reachable(*inputs).to(output.dtype))
                changed = by_heads(output).clone()
                changed[:, heads] = (allowed / allowed.sum(-1, keepdim=True)).expand_as(changed)[:, heads]
                return changed.view_as(output)

            yield names[f"{place}.hook_pattern"].module.register_forward_hook(spread).remove
            continue
        if not z:
            raise InputError(f"{shown(intervention)}: this model has no heads; give to=uniform")
        linear: Any = z.module
        width = linear.in_features // z.n_heads
        value = torch.zeros(width) if to == "zero" else torch.as_tensor(to)
        if value.shape != (width,):
            raise InputError(f"{shown(intervention)}: to: give zero, uniform, or {width} numbers")

        def replace(z: Tensor, heads: slice = heads, value: Tensor = value) -> Tensor:
            z = z.clone()  # (B, T, H, K)
            z[:, :, heads] = value.to(z)
            return z

        yield z.on(replace)


def _scale(model: Seq2Seq, intervention: Intervention, _: Positions) -> Iterator[Undo]:
    names = points(model)
    for place in places_of(names, intervention, intervention["scale"]):
        scores = "hook_scores" if place == "alignment" else "hook_attn_scores"
        yield names[f"{place}.{scores}"].on(lambda scores: scores * intervention["factor"])


def sublayers_of(model: Seq2Seq, intervention: Intervention, side: str) -> list[Point]:
    """Returns the points between sublayers and their residual connections. Raises InputError if there is none."""
    names, name, found = points(model), intervention.get("sublayer"), list[Point]()
    for part in ("encoder", "decoder") if side == "both" else (side,):
        layers = sorted({int(key.split(".")[1]) for key in names if key.startswith(f"{part}.")})
        for i in chosen(intervention, layers) if layers else ():
            outputs = [f"{part}.{i}.hook_{out}" for each, (out, _) in AFTER.items() if name in (None, each)]
            found += [names[key] for key in outputs if key in names]
    if not found:
        raise InputError(f"{shown(intervention)}: this model has no such sublayer")
    return found


def _no_residual(model: Seq2Seq, intervention: Intervention, _: Positions) -> Iterator[Undo]:
    residuals: list[Any] = [point.module for point in sublayers_of(model, intervention, intervention["no_residual"])]
    if not any(residual.keep for residual in residuals):
        raise InputError(f"{shown(intervention)}: the model was trained without this residual connection")
    for residual in residuals:
        yield partial(setattr, residual, "keep", residual.keep)
        residual.keep = False


def _skip(model: Seq2Seq, intervention: Intervention, _: Positions) -> Iterator[Undo]:
    for point in sublayers_of(model, intervention, intervention["skip"]):
        yield point.on(torch.zeros_like)


def _weights(model: Seq2Seq, intervention: Intervention, positions: Positions) -> Iterator[Undo]:
    kind, names, values = intervention["weights"], points(model), intervention.get("values")
    if values is not None and abs(sum(values) - 1) > 1e-6:
        raise InputError(f"{shown(intervention)}: values: their sum must be 1")
    for place in places_of(names, intervention, kind):
        heads = heads_of(names, place, intervention)

        def put(pattern: Tensor, heads: slice = heads) -> Tensor:
            changed = by_heads(pattern).clone()  # (B, H, T, S)
            here, part = positions.of(kind, changed.size(2)) == intervention["row"], changed[:, heads]
            part[:, :, here] = _row(part[:, :, here], intervention)
            return changed

        yield names[f"{place}.hook_pattern"].on(put)


def _row(rows: Tensor, intervention: Intervention) -> Tensor:
    """Returns what replaces the weights (..., S) of a query."""
    rows, size = rows.clone(), rows.size(-1)
    if values := intervention.get("values"):
        rows[:] = 0
        rows[..., : len(values)] = torch.as_tensor(values[:size]).to(rows)
    elif (column := intervention["column"]) < size:
        rows[..., column] = 0
        rows *= (1 - intervention["value"]) / rows.sum(-1, keepdim=True).clamp(min=1e-12)
        rows[..., column] = intervention["value"]
    return rows


def _unmask(model: Seq2Seq, intervention: Intervention, _: Positions) -> Iterator[Undo]:
    what, names = intervention["unmask"], points(model)
    kinds = {"padding": ("encoder", "cross", "alignment"), "future": ("decoder",)}.get(what)
    if not kinds:
        raise InputError(f"{shown(intervention)}: give padding or future")
    wanted = re.compile(rf"({'|'.join(PLACES[kind] for kind in kinds)})\.hook_pattern")
    found = [point for name, point in names.items() if wanted.fullmatch(name)]
    if not found:
        raise InputError(f"{shown(intervention)}: this model has no such mask")
    for point in found:
        yield point.module.register_forward_pre_hook(lambda _, inputs: (inputs[0], None)).remove


KINDS: dict[str, Apply] = {
    "mute": _mute,
    "scale": _scale,
    "no_residual": _no_residual,
    "skip": _skip,
    "weights": _weights,
    "unmask": _unmask,
}
