"""One attention, step by step, with its numbers and shapes: from what enters the layer to what leaves it.

The calls and operations of one teacher-forced pass are captured; the templates transformer.j2 and birnn.j2 show them in tables,
with the sentences that explain them (steps.py).

Shapes: B sentences, S source tokens, T target tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from entente.attention.record import KIND_NAMES, capture, has_attention
from entente.attention.trace.steps import Trace, View
from entente.errors import InputError
from entente.models import MODELS, Seq2Seq, Transformer

PLACES = {"encoder": ("encoder", "self"), "decoder": ("decoder", "self"), "cross": ("decoder", "cross")}  # side, sublayer
SIZES = {  # of the examples
    "transformer": {"d_model": 4, "n_heads": 1, "n_layers": 1, "d_ff": 7},
    "birnn": {"d_embedding": 4, "d_hidden": 4, "d_attention": 3},
}


class Labels(NamedTuple):
    """The tokens of one sentence, padding included: those of the source (S), those that the decoder reads (T), and what it has
    to produce at each (T)."""

    source: list[str]
    read: list[str]
    produced: list[str]


def kinds(model: Seq2Seq) -> list[str]:
    """The attentions that a model has."""
    if isinstance(model, Transformer):
        return [kind for kind, (side, sublayer) in PLACES.items() if sublayer in getattr(model, side)[0].residual]
    return ["alignment"] if has_attention(model) else []


def trace(
    model: Seq2Seq,
    src: Tensor,
    tgt: Tensor,
    labels: Sequence[Labels],
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    step: int | None = None,
) -> Trace:
    """src (B, S) and tgt (B, T), as the decoder reads it: token ids, padded on the right. kind: null is the attention to the
    source. layer, head, step: from 1. Modes, gradients and random numbers stay as they were. InputError where the model has no
    such attention, RuntimeError where one was not seen."""
    model = getattr(model, "_orig_mod", model)  # hooks see nothing inside a compiled module
    there = kinds(model)
    if not there:
        raise InputError("checkpoint: this model has no attention; give another checkpoint")
    if isinstance(model, Transformer):
        if step is not None:
            raise InputError(f"step={step}: a Transformer takes all target steps at once; leave it null")
        kind, most = kind or "cross", (len(model.encoder), model.n_heads, 1)
    else:
        kind, most = kind or "alignment", (1, 1, tgt.size(1))
    if kind not in there:
        raise InputError(f"kind={kind}: this model has no such attention; choose from {', '.join(there)}")
    for name, number, last in zip(("layer", "head", "step"), (layer, head, step), most, strict=True):
        if number is not None and not 1 <= number <= last:
            raise InputError(f"{name}={number}: choose from 1 to {last}")
    layer, head, step = layer or 1, head or 1, step or 1
    if kind == "alignment":
        path, around = "attention", ["residual"]  # there is no residual connection if the readout is maxout
        queries = [[f"s_{step - 1} → {label.produced[step - 1]}"] for label in labels]
    else:
        side, sublayer = PLACES[kind]
        path = f"{side}.{layer - 1}.{sublayer}_attention"
        around = [f"{side}.{layer - 1}.{part}.{sublayer}" for part in ("before", "residual", "after")]
        queries = [[f"{read} → {made}" for read, made in zip(label.read, label.produced, strict=True)] for label in labels]
    if kind == "encoder":
        queries = [label.source for label in labels]
    keys = [label.read if kind == "decoder" else label.source for label in labels]
    inside = tuple(f"{one}." for one in (path, *around))
    calls = capture(model, src, tgt, lambda place, module: f"{place}.".startswith(inside), operations=True)
    facts = {"model": model, "label": labels[0], "kind": kind, "title": KIND_NAMES[kind].capitalize(), "layer": layer}
    facts["around"] = [calls[one][0] for one in around if one in calls]
    template = "birnn.j2" if kind == "alignment" else "transformer.j2"
    return View(calls, path, queries, keys, head - 1, step - 1).fill(template, facts)


def examples(name: str, kind: str | None = None, *place: int | None) -> list[Trace]:
    """That kind of attention in the smallest model that shows it all, on two sentences, the second padded: 3 source tokens, 5
    target tokens, width 4. Its parameters are round and not small. kind: null is all of them, and what was said once is not
    said again. place: layer, head and step."""
    source = ["<pad>", "le", "chat", "il", "dort"]
    target = ["<pad>", "<s>", "</s>", "the", "cat", "he", "is", "sleeping", "sleeps"]
    labels = [
        Labels(["le", "chat", "dort"], ["<s>", "the", "cat", "is", "sleeping"], ["the", "cat", "is", "sleeping", "</s>"]),
        Labels(["il", "dort", "<pad>"], ["<s>", "he", "sleeps", "<pad>", "<pad>"], ["he", "sleeps", "</s>", "<pad>", "<pad>"]),
    ]
    model = MODELS[name](len(source), len(target), shared_vocab=False, pad_id=0, seed=1, **SIZES[name])
    generator = torch.Generator().manual_seed(199)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "before" in path or "norm" in path:
                continue  # a gain of 1 and a bias of 0 can be followed by hand
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator)).mul_(10).round_().div_(10)
            if "embedding" in path:
                parameter[0] = 0  # padding, as training leaves it
    src = torch.tensor([[source.index(token) for token in label.source] for label in labels])
    tgt = torch.tensor([[target.index(token) for token in label.read] for label in labels])
    traces = [trace(model, src, tgt, labels, one, *place) for one in ([kind] if kind else kinds(model))]
    said: set[str] = set()
    for one in traces:
        for sentences in (one.preface, *(step.sentences for step in one.steps)):
            sentences[:] = [text for text in sentences if text not in said]
            said.update(sentences)
    return traces
