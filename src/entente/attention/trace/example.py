"""The smallest sizes that show it all: toy models, and the traces of their attentions."""

from dataclasses import replace

import torch
from torch import Tensor

from entente.attention.trace import kinds, trace
from entente.attention.trace.steps import Kind, Labels, Trace
from entente.models import BiRNN, Seq2Seq, Transformer


def example(name: str) -> tuple[Seq2Seq, Tensor, Tensor, list[Labels]]:
    """A model whose parameters are round and not small, and two sentences, the second padded: 3 source tokens, 5 target tokens,
    width 4."""
    source = ["<pad>", "le", "chat", "il", "dort"]
    target = ["<pad>", "<s>", "</s>", "the", "cat", "he", "is", "sleeping", "sleeps"]
    labels = [
        Labels(["le", "chat", "dort"], ["<s>", "the", "cat", "is", "sleeping"], ["the", "cat", "is", "sleeping", "</s>"]),
        Labels(["il", "dort", "<pad>"], ["<s>", "he", "sleeps", "<pad>", "<pad>"], ["he", "sleeps", "</s>", "<pad>", "<pad>"]),
    ]
    common = {"src_vocab": len(source), "tgt_vocab": len(target), "shared_vocab": False, "pad_id": 0, "seed": 1, "dropout": 0.0}
    model: Seq2Seq
    if name == "transformer":
        model = Transformer(**common, d_model=4, n_heads=1, n_layers=1, d_ff=7)  # type: ignore[arg-type]
    else:
        model = BiRNN(**common, d_embedding=4, d_hidden=4, d_attention=3)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(199)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "before" in path or "norm" in path:
                continue  # a gain of 1 and a bias of 0 can be followed by hand
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator)).mul_(10).round_().div_(10)
        for embedding in (model.src_embedding, model.tgt_embedding):
            embedding.weight[0] = 0  # as training leaves it
    ids = torch.tensor([[source.index(token) for token in label.source] for label in labels])
    read = torch.tensor([[target.index(token) for token in label.read] for label in labels])
    return model.eval(), ids, read, labels


def examples(
    name: str, kind: Kind | None = None, layer: int | None = None, head: int | None = None, step: int | None = None
) -> list[Trace]:
    """Of the example, that kind of attention; null: all, and what was said once is not said again."""
    model, src, tgt, labels = example(name)
    traces = [trace(model, src, tgt, labels, one, layer, head, step) for one in ([kind] if kind else kinds(model))]
    said: set[str] = set()
    found = []
    for one in traces:
        steps = [replace(s, sentences=[text for text in s.sentences if text not in said]) for s in one.steps]
        preface = [text for text in one.preface if text not in said]
        found.append(replace(one, steps=steps, preface=preface))
        said |= {text for s in one.steps for text in s.sentences} | {*one.preface}
    return found
