"""Attention: scores, weights, and the layers that learn what to compare.

The three steps stand apart. A *score* function compares queries with keys; `AttentionWeights` turns scores into a
distribution over the keys; the weights average the values. Equation 1 of Vaswani et al. 2017 is exactly that and has no
parameters; the learned projections W_q, W_k, W_v, W_o belong to the layer around it (their section 3.2.2).

Every layer is called in two steps, `kv = layer.project(source)` and `layer(query, kv, mask)`. Self-attention projects its own
input, cross-attention the encoder's output, a cache what it has seen so far: the layer cannot tell and need not know.

Shapes: B batch, H heads, T queries, S keys, D model width, K key width of one head, A width of the additive score.
Masks are boolean, True = may attend, broadcastable to the scores.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn


class KV(NamedTuple):
    """Projected keys (B, ..., S, K) and values (B, ..., S, K): what a query can look up."""

    key: Tensor
    value: Tensor

    def extend(self, new: "KV") -> "KV":
        """These keys and values followed by `new` ones, along S."""
        return KV(torch.cat([self.key, new.key], dim=-2), torch.cat([self.value, new.value], dim=-2))


def dot_product_scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Q K^T * scale: query (..., T, K) and key (..., S, K) give scores (..., T, S). One matrix product per sentence and head,
    all of them in one call: nothing loops over the batch."""
    return query @ key.transpose(-2, -1) * scale


class AttentionWeights(nn.Module):
    """Scores (..., T, S) to weights (..., T, S): softmax over the keys, so each query's row sums to 1.

    Parameter-free on purpose: attention maps are recorded by a forward hook on this module, and its output is what the
    layer used, before dropout. A masked score is -inf, hence its weight exactly 0; every row must allow at least one key.
    """

    def __init__(self, softmax_axis: int = -1) -> None:
        super().__init__()
        self.softmax_axis = softmax_axis

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        return scores.softmax(dim=self.softmax_axis)


def heads_divide(d_model: int, n_heads: int) -> None:
    """Every head has an equal share of the width."""
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}")


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in H heads of width K = D / H (Vaswani et al. 2017, sections 3.2.1 and 3.2.2).

    scale: what Q K^T is multiplied by; None is 1 / sqrt(K). Components of unit variance make a dot product of variance K
    (their footnote 4), whatever the number of tokens: that is why it is the key width and not the sentence length.
    """

    def __init__(self, d_model: int, n_heads: int, scale: float | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        heads_divide(d_model, n_heads)
        self.n_heads = n_heads
        self.scale = (d_model // n_heads) ** -0.5 if scale is None else scale
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.weights = AttentionWeights()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, d_model)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B, T, D) -> (B, H, T, K)

    def project(self, source: Tensor) -> KV:
        """source (B, S, D) -> keys and values (B, H, S, K)."""
        return KV(self._split(self.key(source)), self._split(self.value(source)))

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, D), mask broadcastable to (B, H, T, S) -> (B, T, D)."""
        scores = dot_product_scores(self._split(self.query(query)), kv.key, self.scale)  # (B, H, T, S)
        weights = self.dropout(self.weights(scores, mask))
        heads = weights @ kv.value  # (B, H, T, K)
        return self.out(heads.transpose(1, 2).flatten(-2))


class AdditiveAttention(nn.Module):
    """Bahdanau et al. 2015, section 3.1 and A.1.2: e_ij = v^T tanh(W q_i + U k_j). A small network compares query and key, so
    their widths may differ; the dot product needs them equal and has no parameters of its own. The values are the source
    itself: `project` computes U k once per sentence, W q is computed at each step."""

    def __init__(self, query_size: int, source_size: int, d_attention: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, d_attention, bias=False)  # their W_a
        self.key = nn.Linear(source_size, d_attention, bias=False)  # their U_a
        self.score = nn.Linear(d_attention, 1, bias=False)  # their v_a
        self.weights = AttentionWeights()

    def project(self, source: Tensor) -> KV:
        """source (B, S, M) -> keys (B, S, A) and values (B, S, M)."""
        return KV(self.key(source), source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, Q), mask broadcastable to (B, T, S) -> contexts (B, T, M)."""
        compared = torch.tanh(self.query(query).unsqueeze(2) + kv.key.unsqueeze(1))  # (B, T, S, A)
        return self.weights(self.score(compared).squeeze(-1), mask) @ kv.value
