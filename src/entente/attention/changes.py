"""The kinds of intervention: what each key of the dictionaries in interventions.py means, and how a model is changed.

Shapes: B sentences, H heads, K width of a head, T queries, S keys.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from entente.attention.hook_points import OUTPUTS, Point, Target, Undo, by_heads
from entente.attention.record import observing, read_sentence
from entente.console import log
from entente.data.files import clean
from entente.data.tokenizer import BOS
from entente.errors import InputError
from entente.models.seq2seq import Seq2Seq
from entente.settings import LISTS, AttentionKind, Count, SearchSettings, Section, Sublayer, setting
from entente.validation import to_text

Side = Literal["encoder", "decoder"]
Part = Literal["state", "word", "context"]
Row = Annotated[int, Field(ge=0)]
Numbers = Annotated[tuple[float, ...], LISTS, Field(min_length=1)]
Weight = Annotated[float, Field(ge=0, le=1)]
# The kinds of attention, as patterns of their places in the names of `points`
PLACES = {
    "encoder": r"encoder\.\d+\.attn",
    "decoder": r"decoder\.\d+\.attn",
    "cross": r"decoder\.\d+\.cross_attn",
    "alignment": "alignment",
}


class Change(Section):
    """The keys and values of one kind of intervention."""

    def apply(self, target: Target) -> Iterator[Undo]:
        """Changes the model, and yields functions that undo it."""
        raise NotImplementedError("subclasses implement apply")

    def effect(self) -> str:
        """Says what is changed, such as "mute cross, layer 2, head 1" or "skip decoder ff"."""
        values = self.model_dump(exclude_defaults=True)
        name = next(name for name in CLASSES if name in values)
        first = f"{name} {values.pop(name)} {values.pop('sublayer', '')}".strip()
        return ", ".join([first, *(f"{key} {to_text(value)}" for key, value in values.items())])

    def note(self, target: Target) -> str:
        """Returns what `effect` leaves open, because it depends on the model."""
        return ""

    def report(self, changed: Sequence[bool], reason: str) -> None:
        """Warns if the model was called, and none of the calls changed anything."""
        if changed and not any(changed):
            log.warning("%s: had no effect: %s", self.effect(), reason)

    def refuse(self, problem: str) -> InputError:
        return InputError(f"{self.effect()}: {problem}")


class OfLayers(Change):
    layer: Count | None = setting(None, "the layer, counted from 1; null: all")

    def among(self, layers: list[Any]) -> list[Any]:
        """Returns all layers, or the intervention's."""
        if self.layer and self.layer > len(layers):
            raise self.refuse(f"layer={self.layer}: choose from 1 to {len(layers)}")
        return [layers[self.layer - 1]] if self.layer else layers

    def places(self, target: Target, kind: str) -> list[str]:
        """Returns the places of a kind of attention in the names of `points`, one per layer."""
        pattern = re.compile(rf"({PLACES[kind]})\.hook_pattern")
        places = [match[1] for name in target.points if (match := pattern.fullmatch(name))]
        if not places:
            raise self.refuse("this model has no such attention")
        return self.among(places)


class OfHeads(OfLayers):
    head: Count | None = setting(None, "the head, counted from 1; null: all")

    def heads(self, target: Target, place: str) -> slice:
        """Returns the heads, as a slice of H."""
        z = target.points.get(f"{place}.hook_z")
        count = z.n_heads if z else 1
        if self.head and self.head > count:
            raise self.refuse(f"head={self.head}: choose from 1 to {count}")
        return slice(self.head - 1, self.head) if self.head else slice(None)

    def outputs(self, target: Target, place: str) -> Point:
        if f"{place}.hook_z" not in target.points:
            raise self.refuse("this model's attention has no separate heads; use to=uniform, or set its weights")
        return target.points[f"{place}.hook_z"]


class Mute(OfHeads):
    """Replaces what a head returns, before the output projection. The readout of a BiRNN has parts instead of heads: the state,
    the word just read, and the context."""

    mute: Literal[AttentionKind, "readout"] = setting(..., "kind of attention, or readout")
    part: Part | None = setting(None, "what the readout no longer receives")
    to: Literal["zero", "uniform", "mean"] | Numbers = setting(
        "zero", "uniform: equal weights on all keys it can reach; mean: its mean output, over a split; or K numbers"
    )

    def conflicts(self) -> Iterator[str]:
        if (self.mute == "readout") != bool(self.part) or (self.part and (self.layer or self.head or self.to != "zero")):
            yield "mute=readout and part go together, and with nothing else"

    def apply(self, target: Target) -> Iterator[Undo]:
        if self.part:
            if f"readout.hook_{self.part}" not in target.points:
                raise self.refuse("this model has no such readout")
            yield target.points[f"readout.hook_{self.part}"].on(torch.zeros_like)
            return
        if self.to == "mean":
            raise self.refuse("to=mean needs sentences; `entente evaluate` has them, and mean_output returns the numbers")
        for place in self.places(target, self.mute):
            heads = self.heads(target, place)
            if self.to == "uniform":
                yield target.pattern(place, partial(_spread, heads))
                continue
            z = self.outputs(target, place)
            linear: Any = z.module
            width = linear.in_features // z.n_heads
            value = torch.zeros(width) if self.to == "zero" else torch.tensor(self.to, dtype=torch.float64)
            if len(value) != width:
                raise self.refuse(f"to: give {width} numbers, or zero or uniform")
            yield z.on(partial(_put_output, heads, value))

    def each(self, target: Target) -> Iterator[tuple[str, int, int]]:
        """Yields the place, the layer and the number of every head that is muted."""
        for i, place in enumerate(self.places(target, self.mute), start=1):
            heads = range(1, self.outputs(target, place).n_heads + 1)[self.heads(target, place)]
            yield from ((place, self.layer or i, head) for head in heads)


def _spread(heads: slice, values: Tensor, reachable: Tensor) -> Tensor:
    uniform = reachable.to(values.dtype) / reachable.sum(-1, keepdim=True).clamp(min=1)
    values[:, heads] = uniform[:, heads]
    return values


def _put_output(heads: slice, value: Tensor, z: Tensor) -> Tensor:
    z = z.clone()  # (B, T, H, K)
    z[:, :, heads] = value.to(z)
    return z


class Scale(OfLayers):
    """Multiplies the scores before the mask and the softmax."""

    scale: AttentionKind = setting(..., "kind of attention")
    factor: float = setting(..., "the factor")

    def apply(self, target: Target) -> Iterator[Undo]:
        for place in self.places(target, self.scale):
            scores = "hook_scores" if place == "alignment" else "hook_attn_scores"
            yield target.points[f"{place}.{scores}"].on(lambda scores: scores * self.factor)


class OfSublayers(OfLayers):
    sublayer: Sublayer | None = setting(None, "self, cross or ff; null: all")

    def sublayers(self, target: Target, sides: Sequence[str]) -> list[Point]:
        """Returns the points between the sublayers and their residual connections."""
        points: list[Point] = []
        for side in sides:
            layers = sorted({int(name.split(".")[1]) for name in target.points if re.match(rf"{side}\.\d", name)})
            outputs = [out for name, out in OUTPUTS.items() if self.sublayer in (None, name)]
            names = [f"{side}.{i}.hook_{out}" for i in (self.among(layers) if layers else ()) for out in outputs]
            points += [target.points[name] for name in names if name in target.points]
        if not points:
            raise self.refuse("this model has no such sublayer")
        return points


class NoResidual(OfSublayers):
    """Leaves out the `x +` around sublayers."""

    no_residual: Side | Literal["both"] = setting(..., "encoder, decoder or both")

    def apply(self, target: Target) -> Iterator[Undo]:
        sides = ("encoder", "decoder") if self.no_residual == "both" else (self.no_residual,)
        residuals: list[Any] = [point.module for point in self.sublayers(target, sides)]
        if not any(residual.keep for residual in residuals):
            raise self.refuse("this model does not have that residual connection (any more)")
        for residual in residuals:
            yield partial(setattr, residual, "keep", residual.keep)
            residual.keep = False


class Skip(OfSublayers):
    """Makes the output of sublayers 0. Their input passes only if they have residual connections."""

    skip: Side = setting(..., "encoder or decoder")

    def apply(self, target: Target) -> Iterator[Undo]:
        for point in self.sublayers(target, (self.skip,)):
            yield point.on(torch.zeros_like)

    def note(self, target: Target) -> str:
        passes = [bool(point.module.keep) for point in self.sublayers(target, (self.skip,))]
        return " (its input passes)" if all(passes) else " (nothing passes: it has no residual connection)"


class Weights(OfHeads):
    """Sets all weights of one query, or a single one, in which case the others are rescaled so that the row sums to 1. A
    sentence whose query cannot reach these keys does not change."""

    weights: AttentionKind = setting(..., "kind of attention")
    row: Row = setting(..., "the query's position, counted from 0")
    values: Annotated[tuple[Weight, ...], LISTS] | None = setting(None, "the weights of the first keys; the others get 0")
    column: Row | None = setting(None, "the key's position, counted from 0")
    value: Weight | None = setting(None, "its weight")

    def conflicts(self) -> Iterator[str]:
        if [self.column is not None, self.value is not None] != [self.values is None] * 2:
            yield "values, or column and value: give one of the two"
        elif self.values is not None and abs(sum(self.values) - 1) > 1e-6:
            yield f"the sum of values is {sum(self.values):.9g}; give weights whose sum is 1"

    def apply(self, target: Target) -> Iterator[Undo]:
        reached: list[bool] = []  # for each call of the attention, whether a sentence changed
        for place in self.places(target, self.weights):
            yield target.pattern(place, partial(self._put, target, self.heads(target, place), reached))
        yield partial(self.report, reached, "no sentence had such a row and keys")

    def _put(self, target: Target, heads: slice, reached: list[bool], pattern: Tensor, reachable: Tensor) -> Tensor:
        queries = target.positions(self.weights, pattern.size(2)) == self.row
        rows, allowed = pattern[:, heads, queries], reachable[:, heads, queries]  # (B, heads, rows, S)
        rows, n_keys = rows.to(torch.promote_types(rows.dtype, torch.float32)), rows.size(-1)
        new_row = torch.zeros(max(n_keys, len(self.values or ()), 1 + (self.column or 0))).to(rows)
        if self.values is not None:
            new_row[: len(self.values)] = rows.new_tensor(self.values)
        elif self.column is not None:
            new_row[self.column] = self.value or 0.0
        if new_row[n_keys:].any() or (self.column or 0) >= n_keys:
            reached.append(False)
            return pattern
        new = new_row[:n_keys].expand_as(rows)
        possible = (allowed | (new == 0)).all(-1, keepdim=True)
        if self.column is not None:
            other_keys = allowed & (torch.arange(n_keys, device=rows.device) != self.column)
            rest = rows.masked_fill(~other_keys, 0)
            has_weight = rest.sum(-1, keepdim=True) > 1e-12  # else this key had all of it, and the others get equal weights
            rest = torch.where(has_weight, rest, other_keys.to(rows))
            new = new + rest * ((1 - new_row.sum()) / rest.sum(-1, keepdim=True).clamp(min=1e-12))
            possible = allowed[..., self.column, None] & (other_keys.any(-1, keepdim=True) | (new_row.sum() == 1))
        reached.append(bool(possible.any()))
        pattern[:, heads, queries] = torch.where(possible, new, rows).to(pattern)
        return pattern


class Unmask(Change):
    """Lifts a mask: that of padding in the source, or that of the future in the decoder, which exists only where all target
    pieces are read at once: in `score`, and in `attention` with a target."""

    unmask: Literal["padding", "future"] = setting(..., "the mask")

    def apply(self, target: Target) -> Iterator[Undo]:
        kinds = ("decoder",) if self.unmask == "future" else ("encoder", "cross", "alignment")
        places = "|".join(PLACES[kind] for kind in kinds)
        points = [point for name, point in target.points.items() if re.fullmatch(rf"({places})\.hook_pattern", name)]
        model: Any = target.model
        if not points or not (getattr(model, "mask_future", True) if self.unmask == "future" else model.mask_padding):
            raise self.refuse("this model has no such mask")
        hides_keys: list[bool] = []  # for each call of an attention, whether its mask hid a key

        def lift(_: Any, inputs: Any) -> Any:
            hides_keys.append(inputs[1] is not None and not bool(inputs[1].all()))
            return inputs[0], None

        for point in points:
            yield point.module.register_forward_pre_hook(lift).remove
        yield partial(self.report, hides_keys, "no key was masked")
        if self.unmask == "future":
            yield partial(setattr, target, "needs_future", target.needs_future)
            target.needs_future = True


class Patch(OfHeads):
    """Replaces a head's weights or output with those from another sentence pair whose source has the same number of pieces, at
    the positions that both pairs have. The other pair is read with the interventions that come before this one."""

    patch: AttentionKind = setting(..., "kind of attention")
    source: str = setting(..., "the other pair's source")
    target: str = setting(..., "the other pair's target")
    of: Literal["output", "weights"] = setting("output", "what to replace")

    def conflicts(self) -> Iterator[str]:
        if not clean(self.source):
            yield "source: the sentence is empty"

    def apply(self, target: Target) -> Iterator[Undo]:
        if not target.vocabulary:
            raise self.refuse("needs a vocabulary")
        src, tgt = read_sentence(target.model, target.vocabulary, self.source, self.target, SearchSettings())
        for place in self.places(target, self.patch):
            heads = self.heads(target, place)
            point = self.outputs(target, place) if self.of == "output" else target.points[f"{place}.hook_pattern"]
            other = self._read(target.model, point, src, tgt)
            if self.of == "output":
                yield point.on(partial(self._put_outputs, target, heads, other[0]))
            else:
                yield target.pattern(place, partial(self._put_weights, target, heads, by_heads(other)[0]))
        yield partial(setattr, target, "n_source", target.n_source)
        target.n_source = len(src)

    def _read(self, model: Seq2Seq, point: Point, src: list[int], tgt: list[int]) -> Tensor:
        values: list[Tensor] = []
        stop = point.on(values.append)
        try:
            with observing(model) as device:
                model(torch.tensor([src], device=device), torch.tensor([[BOS, *tgt]], device=device))
        finally:
            stop()
        return torch.cat(values, dim=-2) if self.of == "weights" else values[0]  # a BiRNN's weights come one by one

    def _put_outputs(self, target: Target, heads: slice, other: Tensor, z: Tensor) -> Tensor:
        position = target.positions(self.patch, z.size(1))  # z (B, T, H, K), other (T', H, K)
        shared, z = position < len(other), z.clone()
        z[:, shared, heads] = other[position[shared]][:, heads].to(z)
        return z

    def _put_weights(self, target: Target, heads: slice, other: Tensor, pattern: Tensor, _: Tensor) -> Tensor:
        position = target.positions(self.patch, pattern.size(2))  # pattern (B, H, T, S), other (H, T', S')
        shared, n_keys = position < other.size(1), min(pattern.size(-1), other.size(-1))
        new = torch.zeros_like(pattern[:, heads, shared])
        new[..., :n_keys] = other[heads][:, position[shared], :n_keys].to(pattern)
        pattern[:, heads, shared] = new
        return pattern


CLASSES: dict[str, type[Change]] = {
    "mute": Mute,
    "scale": Scale,
    "no_residual": NoResidual,
    "skip": Skip,
    "weights": Weights,
    "unmask": Unmask,
    "patch": Patch,
}
