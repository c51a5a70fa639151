"""One attention, step by step, with its numbers and shapes: from what enters the layer to what leaves it.

One teacher-forced pass in evaluation mode is watched (capture.py), and what was seen is told: for the Transformer in heads.py,
for the BiRNN in alignment.py.

Shapes: B sentences, T queries, S keys.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from entente.attention.trace.alignment import Alignment
from entente.attention.trace.capture import Seen, watching
from entente.attention.trace.heads import Heads
from entente.attention.trace.steps import Kind, Labels, Trace
from entente.errors import InputError
from entente.models import BiRNN, Seq2Seq, Transformer
from entente.models.attention import NoAttention
from entente.models.seq2seq import evaluating
from entente.models.transformer import Block


def kinds(model: Seq2Seq) -> list[Kind]:
    """The attentions that a model has."""
    if isinstance(model, Transformer):
        return ["encoder", "decoder", "cross"] if "cross" in cast(Block, model.decoder[0]).residual else ["encoder", "decoder"]
    return ["alignment"] if isinstance(model, BiRNN) and not isinstance(model.attention, NoAttention) else []


def trace(
    model: Seq2Seq,
    src: Tensor,
    tgt: Tensor,
    labels: Sequence[Labels],
    kind: Kind | None = None,
    layer: int | None = None,
    head: int | None = None,
    step: int | None = None,
) -> Trace:
    """src (B, S) and tgt (B, T), as the decoder reads it: token ids, padded on the right. kind: null is the attention to the
    source. layer, head, step: from 1. Modes, gradients and random numbers stay as they were. InputError where the model has no
    such attention, RuntimeError where one was not seen."""
    plain: Seq2Seq = getattr(model, "_orig_mod", model)  # hooks see nothing inside a compiled module
    there = kinds(plain)
    if not there:
        raise InputError("checkpoint: this model has no attention; give another checkpoint")
    chosen: Kind = kind or ("cross" if isinstance(plain, Transformer) else "alignment")
    if chosen not in there:
        raise InputError(f"kind={chosen}: this model has no such attention; choose from {', '.join(there)}")
    if isinstance(plain, Transformer):
        if step is not None:
            raise InputError(f"step={step}: a Transformer takes all target steps at once; leave it null")
        stack = plain.encoder if chosen == "encoder" else plain.decoder
        most = {"layer": (layer, len(stack)), "head": (head, plain.n_heads)}
    else:
        most = {"layer": (layer, 1), "head": (head, 1), "step": (step, tgt.size(1))}
    for name, (number, last) in most.items():
        if number is not None and not 1 <= number <= last:
            raise InputError(f"{name}={number}: choose from 1 to {last}")
    layer_index, head_index, i = ((number or 1) - 1 for number in (layer, head, step))
    if isinstance(plain, Transformer):
        side = "encoder" if chosen == "encoder" else "decoder"
        sublayer = "cross" if chosen == "cross" else "self"
        block = f"{side}.{layer_index}"
        attention = f"{block}.{sublayer}_attention"
        around = {part: f"{block}.{part}.{sublayer}" for part in ("before", "residual", "after")}
        seen = Seen(attention, 0)
        _pass(plain, src, tgt, [attention, *around.values()], seen)
        return Heads(plain, seen, labels, chosen, layer_index, head_index, around).told()
    seen = Seen("attention", i)
    _pass(plain, src, tgt, ["attention", *(["residual"] if hasattr(plain, "residual") else [])], seen)
    return Alignment(cast(BiRNN, plain), seen, labels, i).told()


def _pass(model: Seq2Seq, src: Tensor, tgt: Tensor, paths: Sequence[str], seen: Seen) -> None:
    device = model.output.weight.device
    with evaluating(model), torch.no_grad(), torch.autocast(device.type, enabled=False), watching(model, paths, seen):
        model(src.to(device), tgt.to(device))
