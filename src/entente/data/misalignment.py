"""Scores how likely the sides of a pair are not translations of each other, from the words that usually occur together.

The probability of a target word given a source word is learned by IBM Model 1 (Brown et al. 1993), in both directions. A pair
is scored without its own counts, since they let the rare words of any pair explain each other.
Shapes: B batch, S source length, T target length.
"""

import numpy as np
import torch
from torch import Tensor

from entente.console.progress import track
from entente.data.batches import Batch, EvaluationBatches, Rows
from entente.data.tokenizer import PAD

MAX_LEARNED = 40_000  # pairs from which probabilities are learned, spread evenly over train
HELD_OUT, CONTROLS = 10, 2000  # every 10th pair is not learned from; the first 2,000 of these are put together at random
ROUNDS = 5  # of expectation maximisation
PRIOR = 5.0  # weight of a word's overall frequency in its probability given another word, in occurrences
MAX_TOKENS = 2048  # positions of a batch


def misalignment(src: Rows, tgt: Rows, n_train: int) -> np.ndarray:
    """Returns a score for each pair, (N,): 0 for a typical one, 1 for the median of pairs put together at random. All are 0 if
    random pairs cannot be told apart, as in a tiny corpus. The rows hold word types from 1; those of train are first."""
    every, learned = np.arange(len(src)), np.zeros(len(src), bool)
    learned[: n_train : -(-n_train // MAX_LEARNED)] = True
    held_out = every[:n_train][HELD_OUT - 1 :: HELD_OUT][:CONTROLS]
    learned[held_out] = False
    learned = np.append(learned, np.zeros(len(held_out), bool))
    src, tgt = _select(src, np.append(every, held_out)), _select(tgt, np.append(every, np.roll(held_out, 1)))
    score = (_surprise(src, tgt, learned) + _surprise(tgt, src, learned)) / np.sqrt(src.lengths + tgt.lengths)
    typical = float(np.median(score[len(every) :])) if len(held_out) > 1 else 0.0
    return score[: len(every)] / typical if typical > 0 else np.zeros(len(every))


def _surprise(src: Rows, tgt: Rows, learned: np.ndarray) -> np.ndarray:
    """Returns, for each pair, by how many nats its source predicts the words of its target worse than words of these types are
    predicted in the pairs `learned`, a mask (N,)."""
    size = 1 + int(max(src.values.max(), tgt.values.max()))
    rows = np.flatnonzero(learned)
    sample = EvaluationBatches(_select(src, rows), (learned_tgt := _select(tgt, rows)), MAX_TOKENS)
    frequency = torch.tensor(np.bincount(learned_tgt.values, minlength=size) + 1.0, dtype=torch.float32)
    frequency /= frequency.sum()
    table = frequency.expand(size, size).clone()  # the probability of a target word (column) given a source word (row)
    for number in range(ROUNDS):
        table[PAD] = 0
        previous, counts = table, torch.zeros(size, size)
        for batch in track(sample, f"learning translations of words, round {number + 1} of {ROUNDS}, batch", len(sample)):
            cells, links = _links(previous, batch)
            counts.put_(cells, links, accumulate=True)
        totals = counts.sum(1)
        table = (counts + PRIOR * frequency) / (totals[:, None] + PRIOR)
    found = []  # the pair, the type and the gain of each target word: log p(word | source) - log p(word)
    batches = EvaluationBatches(src, tgt, MAX_TOKENS)
    for batch in track(batches, "scoring pairs, batch", len(batches)):
        cells, links = _links(previous, batch)
        # A word may occur several times in a pair, so the links of equal words are added up.
        same_src, same_tgt = ((ids[:, :, None] == ids[:, None]).float() for ids in batch[:2])
        own = same_src @ (links * torch.from_numpy(learned)[batch.index, None, None])
        given = (counts.take(cells) - own @ same_tgt).clamp_(0) + PRIOR * frequency[batch.tgt][:, None]
        given /= ((totals[batch.src] - own.sum(2)).clamp_(0) + PRIOR)[:, :, None]
        source = (batch.src != PAD)[:, :, None]
        gain = ((given * source).sum(1) / source.sum(1) / frequency[batch.tgt]).log()
        pair, at = (batch.tgt != PAD).nonzero(as_tuple=True)
        found.append([part.numpy() for part in (batch.index[pair], batch.tgt[pair, at], gain[pair, at])])
    pairs, words, gains = map(np.concatenate, zip(*found, strict=True))
    usual, n = (np.bincount(words, weights * learned[pairs], size) for weights in (gains, np.ones(len(gains))))
    return np.bincount(pairs, (usual / np.maximum(n, 1))[words] - gains, len(src))


def _links(table: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns the cell of the table for each source and target word, (B, S, T), and the probability that this source word
    produced this target word, 0 for padding."""
    cells = batch.src[:, :, None] * len(table) + batch.tgt[:, None]
    links = table.take(cells) * (batch.tgt != PAD)[:, None]
    return cells, links / links.sum(1, keepdim=True).clamp_min(1e-30)


def _select(rows: Rows, index: np.ndarray) -> Rows:
    return Rows(rows[i].tolist() for i in index)
