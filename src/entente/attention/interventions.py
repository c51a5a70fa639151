"""Changes a trained model while it runs: mutes heads, scales scores, leaves out residual connections or sublayers, sets
weights, lifts masks, or replaces what a head gives with what it gives for another sentence pair. Nothing of a change remains
when its context ends.

An intervention is a dictionary such as {"mute": "cross", "layer": 2, "head": 1}; the functions below write them, and
changes.py says what each key means. Interventions are hooks on modules, so they hold for greedy and beam search with the
cache, for teacher forcing and for recorded attention. Layers and heads are counted from 1, and if they are left out, all are
meant; rows and columns are counted from 0. A target row is the step that produces the piece of this number.

Shapes: B sentences, H heads, K width of a head, S source length, T target length.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entente.attention.changes import CLASSES, Change, Mute, Target
from entente.data.batches import Batch
from entente.data.tokenizer import Vocabulary
from entente.errors import InputError
from entente.models.seq2seq import Seq2Seq, padding_mask
from entente.validation import to_text, validate

Intervention = Mapping[str, Any]


def mute(kind: str, layer: int | None = None, head: int | None = None, to: str | Sequence[float] = "zero") -> Intervention:
    """Replaces what heads return with zero, with the output of `uniform` weights, or with K numbers, such as their mean."""
    return _plain(mute=kind, layer=layer, head=head, to=to)


def mute_part(part: str) -> Intervention:
    """Takes the state, the word just read or the context away from the readout of a BiRNN."""
    return _plain(mute="readout", part=part)


def scale(kind: str, factor: float, layer: int | None = None) -> Intervention:
    """Multiplies scores before the mask and the softmax."""
    return _plain(scale=kind, factor=factor, layer=layer)


def no_residual(side: str | None = None, sublayer: str | None = None, layer: int | None = None) -> Intervention:
    """Leaves out the `x +` around a sublayer, by default around all sublayers of both sides."""
    return _plain(no_residual=side or "both", sublayer=sublayer, layer=layer)


def skip(side: str, sublayer: str | None = None, layer: int | None = None) -> Intervention:
    """Makes the output of a sublayer 0, by default of all sublayers of a side."""
    return _plain(skip=side, sublayer=sublayer, layer=layer)


def weights(kind: str, row: int, values: Sequence[float], layer: int | None = None, head: int | None = None) -> Intervention:
    """Sets the weights of one query; keys beyond `values`, whose sum is 1, get 0."""
    return _plain(weights=kind, row=row, values=list(values), layer=layer, head=head)


def cell(kind: str, row: int, column: int, value: float, layer: int | None = None, head: int | None = None) -> Intervention:
    """Sets one weight, and scales the others of its row to the rest."""
    return _plain(weights=kind, row=row, column=column, value=value, layer=layer, head=head)


def unmask(what: str) -> Intervention:
    """Lifts the mask of `padding`, or that of the `future`."""
    return _plain(unmask=what)


def patch(
    kind: str, source: str, target: str, of: str = "output", layer: int | None = None, head: int | None = None
) -> Intervention:
    """Replaces the `output` or the `weights` of heads with those for another sentence pair."""
    return _plain(patch=kind, source=source, target=target, of=of, layer=layer, head=head)


def _plain(**values: Any) -> Intervention:
    """Leaves out what is None. Numbers of NumPy and torch, such as those of argmax, become Python's."""
    scalars = {key: value.item() for key, value in values.items() if isinstance(value, np.generic | Tensor) and not value.ndim}
    return {key: value for key, value in (values | scalars).items() if value is not None}


@contextmanager
def intervene(model: Seq2Seq, interventions: Sequence[Intervention], vocabulary: Vocabulary | None = None) -> Iterator[None]:
    """Applies interventions, in this order, inside the context. vocabulary: only needed by `patch`. Raises InputError for an
    intervention that this model cannot have, so that a mistyped layer does not look like one without effect."""
    target = Target(model, vocabulary)
    changes = [parse(intervention) for intervention in interventions]
    with ExitStack() as stack:
        for undo in chain(target.follow(), *(change.apply(target) for change in changes)):
            stack.callback(undo)
        yield


def parse(intervention: Intervention) -> Change:
    """Returns an intervention as an object of its class. Raises InputError if a key or a value is not valid."""
    name = next((name for name in CLASSES if isinstance(intervention, Mapping) and name in intervention), None)
    if not name:
        raise InputError(f"{to_text(intervention)}: give an intervention, a dictionary with one of {', '.join(CLASSES)}")
    return validate(CLASSES[name], intervention, where=f"{to_text(intervention)}: ")


def with_means(
    model: Seq2Seq, interventions: Sequence[Intervention], batches: Callable[[], Iterable[Batch]]
) -> list[Intervention]:
    """Returns the interventions with each `to: mean` replaced with numbers, the mean output of a head over all pieces of the
    batches under teacher forcing, without other interventions; there is then one intervention per head."""
    target, resolved = Target(model, None), list[Intervention]()
    for intervention in interventions:
        change = parse(intervention)
        if not isinstance(change, Mute) or change.to != "mean":
            resolved.append(intervention)
            continue
        for i, place in enumerate(change.places(target, change.mute), start=1):
            heads = range(1, change.outputs(target, place).n_heads + 1)[change.heads(target, place)]
            total, n = torch.zeros((), dtype=torch.float64), 0  # the sum over n pieces, (H, K)
            for batch in batches():
                [outputs] = target.values_at(change.outputs(target, place), batch.src, batch.tgt[:, :-1])
                pieces = batch.tgt[:, 1:] if place.startswith("decoder") else batch.src
                z = outputs.cpu()[padding_mask(pieces, model.pad_id)].double()  # (pieces, H, K)
                total, n = total + z.sum(0), n + len(z)
            resolved += [mute(change.mute, change.layer or i, head, to=(total / n)[head - 1].tolist()) for head in heads]
    return resolved
