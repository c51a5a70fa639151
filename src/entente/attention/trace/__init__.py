"""One attention, step by step, with its numbers and shapes: from what enters the layer to what leaves it.

The calls and operations of one teacher-forced pass are captured and become tables (tables.py); the templates transformer.j2 and
birnn.j2 hold the sentences around them.

Shapes: B sentences, S source tokens, T target tokens.
"""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from entente.attention.record import Call, capture
from entente.attention.trace.steps import Kind, Labels, Trace
from entente.attention.trace.tables import trace_head, trace_step
from entente.errors import InputError
from entente.models import BiRNN, Seq2Seq, Transformer
from entente.models.attention import NoAttention
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
    layer_index, head_index, step_index = ((number or 1) - 1 for number in (layer, head, step))
    if not isinstance(plain, Transformer):
        calls = _calls(plain, src, tgt, ["attention", "residual"])
        return trace_step(cast(BiRNN, plain), calls, labels, step_index)
    block = f"{'encoder' if chosen == 'encoder' else 'decoder'}.{layer_index}"
    sublayer = "cross" if chosen == "cross" else "self"
    paths = {part: f"{block}.{part}.{sublayer}" for part in ("before", "residual", "after")}
    paths["attention"] = f"{block}.{sublayer}_attention"
    calls = _calls(plain, src, tgt, [*paths.values()])
    return trace_head(plain, calls, labels, chosen, layer_index, head_index, paths)


def _calls(model: Seq2Seq, src: Tensor, tgt: Tensor, paths: Sequence[str]) -> dict[str, list[Call]]:
    """Of the modules at these paths, where there are any, and of all their submodules."""

    def wanted(path: str, module: nn.Module) -> bool:
        return any(f"{path}.".startswith(f"{one}.") for one in paths)

    return capture(model, src, tgt, wanted, operations=True)
