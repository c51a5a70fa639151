"""What leaving out a source word changes in the translation, to compare with attention (Jain & Wallace 2019: attention is not
by itself an explanation).

A word is left out by removing its pieces. Its effect on a target word is how much the probability of that word, given the
target before it, changes.

Shapes: W source words, E target words, S source length, T target length in pieces.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from entente.attention.words import Words
from entente.data.tokenizer import BOS
from entente.models import Seq2Seq
from entente.models.seq2seq import evaluating, pad

WITH_OCCLUSION = ("pearson", "spearman", "same_first")  # how attention agrees with it, see `correlations`
BATCH = 64  # sources read in one pass


def occlusion(model: Seq2Seq, src: Sequence[int], tgt: Sequence[int], source: Words, target: Words) -> Tensor:
    """src with EOS, tgt without BOS and EOS, and their words -> (E, W), 0 to 1: how much the probability of each target word
    changes, up or down, when a source word is left out. The probability of a word is the product of its pieces'."""
    belongs = source.shares.argmax(-1)  # the word of each piece
    without = [
        [piece for piece, word in zip(src, belongs.tolist(), strict=False) if word != w] for w in range(len(source.labels))
    ]
    rows = [list(src), *([*row, src[-1]] for row in without)]
    parts = [_log_probabilities(model, rows[i : i + BATCH], tgt) for i in range(0, len(rows), BATCH)]
    words = (torch.cat(parts) @ (target.shares == target.shares.amax(-1, keepdim=True)).float()).exp()  # (1 + W, E)
    return (words[0] - words[1:]).abs().T


def _log_probabilities(model: Seq2Seq, sources: Sequence[Sequence[int]], tgt: Sequence[int]) -> Tensor:
    """Of each piece of one target after each source, (N, T)."""
    plain: Seq2Seq = getattr(model, "_orig_mod", model)
    device = plain.output.weight.device
    src = pad(sources, plain.pad_id).to(device)
    read = torch.tensor([[BOS, *tgt[:-1]]] * len(sources), device=device)
    with evaluating(plain), torch.no_grad(), torch.autocast(device.type, enabled=False):
        logits = plain.output(plain(src, read)).float()
    produced = torch.tensor(tgt, device=device).expand(len(sources), -1).unsqueeze(-1)
    return logits.log_softmax(-1).gather(-1, produced).squeeze(-1).cpu()


def correlations(attention: Tensor, change: Tensor) -> dict[str, float]:
    """attention (E, W) of one head, change (E, W) -> means over the target words: `pearson` and `spearman` (of ranks, equal
    values sharing theirs) between a row of each, and `same_first`, how often the source word looked at most is the one that
    counts most. NaN where no row of both has values that differ."""
    found: dict[str, list[float]] = {name: [] for name in WITH_OCCLUSION}
    for a, c in zip(attention.double(), change.double(), strict=True):
        if a.numel() > 1 and a.std() > 0 and c.std() > 0:
            found["pearson"].append(_pearson(a, c))
            found["spearman"].append(_pearson(_ranks(a), _ranks(c)))
            found["same_first"].append(float(a.argmax() == c.argmax()))
    return {name: sum(values) / len(values) if values else float("nan") for name, values in found.items()}


def _pearson(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


def _ranks(x: Tensor) -> Tensor:
    """Equal values get the mean of their ranks."""
    below = (x[None, :] < x[:, None]).sum(-1)
    same = (x[None, :] == x[:, None]).sum(-1)
    return below + (same - 1) / 2.0
