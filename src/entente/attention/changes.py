"""The kinds of intervention: what each key of the dictionaries in interventions.py means, and how a model is changed.

Shapes: B sentences, H heads, K width of a head, T queries, S keys.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from entente.attention.hook_points import OUTPUTS, Point, Target, Undo, by_heads
from entente.attention.record import kind_of, read_pair
from entente.data.tokenizer import BOS
from entente.errors import InputError
from entente.models.transformer import Transformer
from entente.settings import LISTS, AttentionKind, Count, Section, Sublayer, setting
from entente.validation import to_text

Side = Literal["encoder", "decoder"]
Part = Literal["state", "word", "context"]
Row = Annotated[int, Field(ge=0)]
Numbers = Annotated[tuple[float, ...], LISTS, Field(min_length=1)]
Weight = Annotated[float, Field(ge=0, le=1)]
PATTERN_SUFFIX = ".hook_pattern"  # ends the names of attention weights


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
        names = (name for name in target.points if name.endswith(PATTERN_SUFFIX) and kind_of(name) == kind)
        places = [name.removesuffix(PATTERN_SUFFIX) for name in names]
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
                yield target.pattern(place, _spread, heads)
                continue
            z = self.outputs(target, place)
            value = torch.tensor((0.0,) * z.width if self.to == "zero" else self.to, dtype=torch.float64)
            if len(value) != z.width:
                raise self.refuse(f"to: give {z.width} numbers, or zero or uniform")
            yield z.on(_put_output, heads, value)


def _spread(values: Tensor, reachable: Tensor, heads: slice) -> Tensor:
    uniform = reachable.to(values.dtype) / reachable.sum(-1, keepdim=True).clamp(min=1)
    values[:, heads] = uniform[:, heads]
    return values


def _put_output(z: Tensor, heads: slice, value: Tensor) -> Tensor:
    z = z.clone()  # (B, T, H, K)
    z[:, :, heads] = value.to(z)
    return z


class Scale(OfLayers):
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
        outputs = [OUTPUTS[self.sublayer]] if self.sublayer else OUTPUTS.values()
        names: list[str] = []
        for side in sides if isinstance(target.model, Transformer) else ():
            layers = self.among([*range(len(getattr(target.model, side)))])
            names += [f"{side}.{i}.hook_{output}" for i in layers for output in outputs]
        points = [target.points[name] for name in names if name in target.points]
        if not points:
            raise self.refuse("this model has no such sublayer")
        return points


class NoResidual(OfSublayers):
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
        for place in self.places(target, self.weights):
            yield target.pattern(place, self._put, target, self.heads(target, place))

    def _put(self, pattern: Tensor, reachable: Tensor, target: Target, heads: slice) -> Tensor:
        queries = target.positions(self.weights, pattern.size(2)) == self.row
        rows, allowed = pattern[:, heads, queries], reachable[:, heads, queries]  # (B, heads, rows, S)
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        if self.values is not None:
            new, possible = _whole_rows(rows, allowed, self.values)
        else:
            new, possible = _one_cell(rows, allowed, self.column or 0, self.value or 0.0)
        pattern[:, heads, queries] = torch.where(possible, new, rows).to(pattern)
        return pattern


def _whole_rows(rows: Tensor, allowed: Tensor, values: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Returns rows (B, heads, rows, S) with all weights set, those beyond `values` to 0, and which rows can see these keys."""
    n_keys = rows.size(-1)
    new = torch.cat([rows.new_tensor(values), rows.new_zeros(n_keys)])
    possible = (allowed | (new[:n_keys] == 0)).all(-1, keepdim=True) & ~new[n_keys:].any()
    return new[:n_keys].expand_as(rows), possible


def _one_cell(rows: Tensor, allowed: Tensor, column: int, value: float) -> tuple[Tensor, Tensor]:
    """Returns rows (B, heads, rows, S) with one weight set and the others scaled to the rest, or equal if they had none, and
    which rows can see this key."""
    is_column = torch.arange(rows.size(-1), device=rows.device) == column
    others, sees = allowed & ~is_column, (allowed & is_column).any(-1, keepdim=True)
    rest = rows.where(others, 0)
    rest = rest.where(rest.sum(-1, keepdim=True) > 1e-12, others.to(rows))
    new = rest * ((1 - value) / rest.sum(-1, keepdim=True).clamp(min=1e-12))
    return new.masked_fill(is_column, value), sees & (others.any(-1, keepdim=True) | (value == 1))


class Unmask(Change):
    """Lifts a mask: that of padding in the source, or that of the future in the decoder. A step of a search has no later
    pieces, so the latter changes only what reads a whole target: scores, and attention with a target."""

    unmask: Literal["padding", "future"] = setting(..., "the mask")

    def apply(self, target: Target) -> Iterator[Undo]:
        name = f"mask_{self.unmask}"
        has_attention = any(point.endswith(PATTERN_SUFFIX) for point in target.points)  # a BiRNN may have none
        if not has_attention or not getattr(target.model, name, False):
            raise self.refuse("this model has no such mask (any more)")
        yield partial(setattr, target.model, name, True)
        setattr(target.model, name, False)


class Patch(OfHeads):
    """Replaces a head's weights or output with those from another sentence pair, at the positions that both pairs have. Unless
    the attention is the decoder's to itself, both sources have the same number of pieces. The other pair is read with the
    interventions that come before this one."""

    patch: AttentionKind = setting(..., "kind of attention")
    source: str = setting(..., "the other pair's source")
    target: str = setting(..., "the other pair's target")
    of: Literal["output", "weights"] = setting("output", "what to replace")

    def apply(self, target: Target) -> Iterator[Undo]:
        assert target.vocabulary
        src, tgt = read_pair(target.vocabulary, self.source, self.target)
        inputs = torch.tensor([src]), torch.tensor([[BOS, *tgt]])
        for place in self.places(target, self.patch):
            heads, weights = self.heads(target, place), target.points[place + PATTERN_SUFFIX]
            if self.of == "output":
                z = self.outputs(target, place)
                yield z.on(self._put, target, heads, target.values_at(z, *inputs)[0][0])
            else:  # a BiRNN computes each row in a call of its own
                other = by_heads(torch.cat(target.values_at(weights, *inputs), dim=-2))[0].transpose(0, 1)
                yield target.pattern(place, self._put_weights, target, heads, other)
            if self.patch != "decoder":
                yield weights.module.register_forward_pre_hook(partial(self._compare, len(src))).remove

    def _compare(self, n: int, _: object, inputs: Any) -> None:
        """Raises InputError if a source has another length than n, the other pair's. inputs: scores (B, H, T, S) and a mask."""
        scores, mask = inputs
        lengths = torch.tensor([scores.size(-1)]) if mask is None else mask.sum(-1)
        if (lengths != n).any():
            problem = f"the sources have {int(lengths[lengths != n][0])} and {n} pieces"
            raise InputError(f"patch: {problem}; give a pair whose source has as many")

    def _put(self, values: Tensor, target: Target, heads: slice, other: Tensor) -> Tensor:
        """Puts outputs or weights (T', H, K or S') of another pair in place of `values` (B, T, H, K or S)."""
        position = target.positions(self.patch, values.size(1))
        shared, width = position < len(other), min(values.size(-1), other.size(-1))
        new = torch.zeros_like(values[:, shared, heads])
        new[..., :width] = other[position[shared]][:, heads, :width].to(new)
        values = values.clone()
        values[:, shared, heads] = new
        return values

    def _put_weights(self, pattern: Tensor, _: Tensor, *arguments: Any) -> Tensor:
        return self._put(pattern.transpose(1, 2), *arguments).transpose(1, 2)


CLASSES: dict[str, type[Change]] = dict(
    mute=Mute, scale=Scale, no_residual=NoResidual, skip=Skip, weights=Weights, unmask=Unmask, patch=Patch
)
