"""Measures why a model learns or fails to learn: gradient norms, the effect of sublayers, and attention weights.

Shapes: B batch, S source length, T target length, H heads, D model width, V vocabulary.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entente.attention.record import EPSILON, capture, entropy_share, observing, weights_of
from entente.models.attention import AttentionWeights
from entente.models.seq2seq import Residual, Seq2Seq, padding_mask

SOURCES = 4  # sentences on which to measure the effect of the source, which takes two more passes


def display_name(path: str) -> str:
    """Returns a module path in words, with layers counted from 1: "encoder.0.residual.self" becomes "encoder 1 self"."""
    words = [str(int(word) + 1) if word.isdigit() else word for word in path.split(".") if word not in ("residual", "weights")]
    return " ".join(words).replace("_", " ").removesuffix(" attention") or "readout"


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """Returns the gradient norm of each layer in a ModuleList and of each other part of the model, by name."""
    squares: defaultdict[str, list[Tensor]] = defaultdict(list)
    for path, parameter in model.named_parameters():
        if parameter.grad is not None:
            part, _, rest = path.partition(".")
            layer = rest.partition(".")[0]
            squares[f"{part} {int(layer) + 1}" if layer.isdigit() else part].append(parameter.grad.detach().norm().square())
    return {part.replace("_", " "): float(torch.stack(terms).sum().sqrt()) for part, terms in squares.items()}


@torch.no_grad()
def diagnose(model: Seq2Seq, src: Tensor, tgt: Tensor) -> dict[str, float]:
    """Returns measurements of a model in evaluation mode on src (B, S) and the decoder input tgt (B, T): means over tokens
    (without padding) or sentences, with keys "MEASURE/PLACE".

    Every residual connection, even if switched off, has three: `update_ratio` is the norm of the sublayer's output divided by
    that of the connection's input, and `update_cosine` the cosine between the two. `position_cosine` is the mean cosine between
    the states of two positions of a sentence after the connection, 1 if all are equal (Dong et al. 2021, rank collapse). Every
    attention module has two: `attention_entropy`, of a row of weights divided by its maximum (1 if uniform), and
    `score_variance`, of a row of scores over the keys that the row may attend to. `source_effect` is how much the predictions
    change, as the total variation distance, from 0 to 1, if each source is replaced by another sentence's of the batch."""
    calls = capture(model, src, tgt, Residual | AttentionWeights)
    real = {True: padding_mask(src, model.pad_id), False: padding_mask(tgt, model.pad_id)}
    values: dict[str, float] = {}
    for path, calls_of_module in calls.items():
        tokens, place = real[path.startswith("encoder")], display_name(path)
        if isinstance(calls_of_module[0].module, Residual):
            (x, update), output = calls_of_module[0].inputs, calls_of_module[0].output
            values[f"update_ratio/{place}"] = _mean(update.norm(dim=-1) / x.norm(dim=-1).clamp(min=EPSILON), tokens)
            values[f"update_cosine/{place}"] = _mean(F.cosine_similarity(x, update, dim=-1), tokens)
            unit, n = F.normalize(output, dim=-1) * tokens.unsqueeze(-1), tokens.sum(-1)  # (B, T, D), (B)
            cosines = (unit.sum(1).square().sum(-1) - n) / (n * (n - 1)).clamp(min=1)  # (B), means over pairs of positions
            values[f"position_cosine/{place}"] = _mean(cosines, n > 1)
            continue
        weights, reached = weights_of(calls_of_module)
        inputs = (call.inputs for call in calls_of_module)
        pairs = [(x, torch.ones_like(x, dtype=torch.bool) if mask is None else mask.expand_as(x)) for x, mask in inputs]
        scores, allowed = (torch.cat(parts, dim=-2).reshape(weights.shape) for parts in zip(*pairs, strict=True))
        rows = tokens.unsqueeze(1).expand(scores.shape[:-1])
        values[f"attention_entropy/{place}"] = _mean(entropy_share(weights, reached), rows & (reached.sum(-1) > 1))
        choices = allowed.sum(-1)
        mean = scores.where(allowed, 0).sum(-1, keepdim=True) / choices.unsqueeze(-1)
        variance = (scores - mean).where(allowed, 0).square().sum(-1) / choices
        values[f"score_variance/{place}"] = _mean(variance, rows & (choices > 1))  # a single key has variance 0
    with observing(model) as device:
        src, tgt = src[:SOURCES].to(device), tgt[:SOURCES].to(device)
        p, q = (model.output(model(text, tgt)).softmax(-1) for text in (src, src.roll(1, 0)))  # (SOURCES, T, V)
    values["source_effect/output"] = _mean((p - q).abs().sum(-1) / 2, real[False][:SOURCES].to(device))
    return values


def _mean(values: Tensor, where: Tensor) -> float:
    return float(values[where].mean())
