"""Draws translations at random, each piece from the model's probabilities. What is drawn for a line is a function of the seed
and the line's number, in whatever batch and thread it is translated.

Shapes: B sentences, S source length, N sentences that go on, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from entente.decoding.search import Hypothesis, length_limits, length_penalty, log_probabilities
from entente.errors import Diverged
from entente.models.seq2seq import Seq2Seq, State, padding_mask, select
from entente.settings import SearchSettings


class Sampling(NamedTuple):
    """temperature: divisor of the logits; below 1, likely pieces become likelier. top_k: how many of the likeliest pieces are
    drawn from (Fan et al. 2018), or None for all. seed: of the draws."""

    temperature: float = 1.0
    top_k: int | None = None
    seed: int = 1


@torch.inference_mode()
def sample(
    model: Seq2Seq, src: Tensor, settings: SearchSettings, sampling: Sampling, numbers: Sequence[int], bos: int, eos: int
) -> list[list[Hypothesis]]:
    """Returns one translation of each sentence of src (B, S), as `search` does. numbers: those of their lines. The score is
    that of the pieces drawn, whatever the temperature."""
    limits = length_limits(settings, padding_mask(src, model.pad_id).sum(1)).tolist()
    draws = [
        np.random.Generator(np.random.Philox(key=[sampling.seed, number])).random(limits[i]) for i, number in enumerate(numbers)
    ]
    tokens: list[list[int]] = [[] for _ in limits]
    totals, ended = [0.0] * len(limits), [False] * len(limits)
    rows, state = list(range(len(limits))), model.encode(src)
    token = torch.full((len(limits), 1), bos, device=src.device)
    step = 0
    while rows:
        hidden, state = model.decode(token, state)
        log_p = log_probabilities(model, hidden[:, -1]).cpu().double()  # (N, V)
        if log_p.isnan().any():
            raise Diverged("the model's log-probabilities are NaN; train it again with a smaller optim.lr")
        top = (log_p / sampling.temperature).topk(min(sampling.top_k or log_p.size(1), log_p.size(1)))
        shares = top.values.softmax(-1).cumsum(-1)
        u = torch.tensor([[draws[row][step]] for row in rows], dtype=torch.double)
        places = (shares < u * shares[:, -1:]).sum(-1, keepdim=True).clamp(max=shares.size(1) - 1)
        pieces = top.indices.gather(1, places)
        for i, row in enumerate(rows):
            totals[row] += log_p[i, pieces[i]].item()
            ended[row] = pieces[i].item() == eos
            tokens[row] += [] if ended[row] else [int(pieces[i])]
        step += 1
        index = torch.tensor([i for i, row in enumerate(rows) if not ended[row] and step < limits[row]], dtype=torch.long)
        token, rows = pieces[index].to(src.device), [rows[i] for i in index.tolist()]
        if len(rows) < len(log_p):
            state = State(*(select(part, index.to(src.device)) for part in state))
    lengths = [len(row) + end for row, end in zip(tokens, ended, strict=True)]
    scores = [total / length_penalty(settings, length) for total, length in zip(totals, lengths, strict=True)]
    return [[Hypothesis(*hypothesis)] for hypothesis in zip(tokens, scores, ended, strict=True)]
