"""Why a model learns or does not: what its sublayers and its attention do to what they are given.

Measured by hooks, in evaluation mode, over one teacher-forced pass; nothing stays in the model and no random number is drawn.

Shapes: B batch, S source length, T target length, H heads, D model width.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entente.attention.record import entropy_share
from entente.models import Seq2Seq
from entente.models.attention import AttentionWeights
from entente.models.seq2seq import Residual, evaluating, padding_mask

SMALLEST = 1e-12  # keeps a division by a norm of nothing finite


def place_of(path: str) -> str:
    """A module path in words, layers counted from 1: "encoder.0.residual.self" is "encoder 1 self"."""
    words = [str(int(word) + 1) if word.isdigit() else word for word in path.split(".") if word not in ("residual", "weights")]
    return " ".join(words).replace("_", " ").removesuffix(" attention") or "readout"


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """The norm of the gradient of each layer of a stack, and of each other part, by its name."""
    squares: defaultdict[str, list[Tensor]] = defaultdict(list)
    for path, parameter in model.named_parameters():
        if parameter.grad is not None:
            part, _, rest = path.partition(".")
            layer = rest.partition(".")[0]
            squares[f"{part} {int(layer) + 1}" if layer.isdigit() else part].append(parameter.grad.detach().norm().square())
    return {part.replace("_", " "): float(torch.stack(terms).sum().sqrt()) for part, terms in squares.items()}


@torch.no_grad()
def diagnose(model: Seq2Seq, src: Tensor, tgt: Tensor) -> dict[str, float]:
    """src (B, S), tgt (B, T) as read -> "ASPECT/PLACE": value, means over real positions.

    Of every residual connection, kept or not: `update_ratio`, the norm of what the sublayer says over the norm of what it was
    given; `update_cosine` between the two; `position_cosine`, the mean cosine between the states at two positions of a
    sentence after it: 1 where all positions have become one (Dong et al. 2021, rank collapse).
    Of every attention: `attention_entropy`, of a row of weights, as a share of the most it could be (1: uniform), and
    `score_variance` of a row of scores over the keys that the row may see.
    """
    sublayers: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    attentions: defaultdict[str, list[tuple[Tensor, ...]]] = defaultdict(list)

    def see(path: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            if isinstance(module, Residual):
                sublayers[path] = (*inputs, output)
            elif isinstance(module, AttentionWeights):
                scores, mask = inputs
                allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand(scores.shape)
                attentions[path].append(
                    (scores, allowed, module.reachable(scores, mask), output)
                )  # a recurrent decoder calls once a step

        return hook

    watched = [(path, m) for path, m in model.named_modules() if isinstance(m, Residual | AttentionWeights)]
    handles = [module.register_forward_hook(see(path)) for path, module in watched]
    try:
        with evaluating(model), torch.autocast(src.device.type, enabled=False):
            model(src, tgt)
    finally:
        for handle in handles:
            handle.remove()
    real = {True: padding_mask(src, model.pad_id), False: padding_mask(tgt, model.pad_id)}
    found: dict[str, float] = {}
    for path, (x, update, after) in sublayers.items():
        there, place = real[path.startswith("encoder")], place_of(path)
        found[f"update_ratio/{place}"] = _mean(update.norm(dim=-1) / x.norm(dim=-1).clamp(min=SMALLEST), there)
        found[f"update_cosine/{place}"] = _mean(F.cosine_similarity(x, update, dim=-1), there)
        found[f"position_cosine/{place}"] = _mean(*_cosine_between_positions(after, there))
    for path, calls in attentions.items():
        scores, allowed, reached, weights = (torch.cat(parts, dim=-2) for parts in zip(*calls, strict=True))  # (B, [H,] T, S)
        rows = real[path.startswith("encoder")].view(len(src), *[1] * (scores.dim() - 3), -1).expand(scores.shape[:-1])
        choices = allowed.sum(-1)
        found[f"attention_entropy/{place_of(path)}"] = _mean(entropy_share(weights, reached), rows & (reached.sum(-1) > 1))
        rows = rows & (choices > 1)  # with one key there is nothing to choose
        mean = scores.masked_fill(~allowed, 0.0).sum(-1, keepdim=True) / choices.clamp(min=1).unsqueeze(-1)
        variance = (scores - mean).masked_fill(~allowed, 0.0).square().sum(-1) / choices.clamp(min=1)
        found[f"score_variance/{place_of(path)}"] = _mean(variance, rows)
    return found


def _mean(values: Tensor, where: Tensor) -> float:
    return float(values[where].mean())


def _cosine_between_positions(x: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """x (B, T, D), there (B, T) -> the mean cosine of each sentence's pairs of positions (B,), and which have a pair."""
    unit = F.normalize(x, dim=-1) * there.unsqueeze(-1)
    n = there.sum(-1)
    return (unit.sum(1).square().sum(-1) - n) / (n * (n - 1)).clamp(min=1), n > 1
