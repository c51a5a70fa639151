"""Attention: scores, weights, and the layers that learn what to compare.

The three steps stand apart. A *score* function compares queries with keys; `AttentionWeights` turns scores into a
distribution over the keys; the weights average the values. Equation 1 of Vaswani et al. 2017 is exactly that and has no
parameters; the learned projections W_q, W_k, W_v, W_o belong to the layer around it (their section 3.2.2).

Every layer is called in two steps, `kv = layer.project(source)` and `layer(query, kv, mask)`. Self-attention projects its own
input, cross-attention the encoder's output, a cache what it has seen so far: the layer cannot tell and need not know.

Shapes: B batch, H heads, T queries, S keys, D model width, K key width of one head, A width of Bahdanau's additive score.
Masks are boolean, True = may attend, broadcastable to the scores.
"""

import inspect
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, assert_never

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from entente.models.dropout import Dropout

Score = Literal["dot", "additive", "bilinear"]
Scale = Literal["d_k", "none", "n_keys"]
Projection = Literal["query", "key", "value"]
SoftmaxOver = Literal["keys", "queries", "batch"]
AXIS: dict[SoftmaxOver, int] = {"keys": -1, "queries": -2, "batch": 0}
PROJECTIONS: tuple[Projection, ...] = ("query", "key", "value")
FUSED = {"d_model", "n_heads", "dropout"}  # arguments of MultiHeadAttention with which the fused kernel computes the same
STEP_BY_STEP = {"cpu"}  # devices on which torch's fused attention is the slower one, at sentences' lengths


class KV(NamedTuple):
    """Projected keys (B, ..., S, K) and values (B, ..., S, K): what a query can look up."""

    key: Tensor
    value: Tensor

    def extend(self, new: "KV") -> "KV":
        """These keys and values followed by `new` ones, along S."""
        if not self.key.size(-2):
            return new
        return KV(torch.cat([self.key, new.key], dim=-2), torch.cat([self.value, new.value], dim=-2))


def dot_product_scores(query: Tensor, key: Tensor, scale: float | Tensor) -> Tensor:
    """Q K^T * scale: query (..., T, K) and key (..., S, K) give scores (..., T, S). One matrix product per sentence and head,
    all of them in one call: nothing loops over the batch."""
    return query @ key.transpose(-2, -1) * scale


def factor(scale: Scale, query: Tensor, key: Tensor, mask: Tensor | None) -> float | Tensor:
    """What dot products are multiplied by. `d_k`: 1 / sqrt(K). Components of unit variance make a dot product of variance K
    (Vaswani et al. 2017, footnote 4), whatever the number of tokens. `n_keys`: 1 / sqrt(keys the query may see), (..., T, 1),
    the misreading "number of tokens". `none`: 1."""
    if scale == "d_k":
        return query.size(-1) ** -0.5
    if scale == "none":
        return 1.0
    if scale == "n_keys":
        seen = key.new_tensor(key.size(-2)) if mask is None else mask.sum(-1, keepdim=True)
        return seen.to(key.dtype).rsqrt()
    assert_never(scale)  # a value that nothing reads must not pass for another


class DotProductScore(nn.Module):
    """q . k, times the scale: no parameters of its own (Vaswani et al. 2017, equation 1)."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.scale: Scale = scale

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """query (B, H, T, K), key (B, H, S, K) -> (B, H, T, S)."""
        return dot_product_scores(query, key, factor(self.scale, query, key, mask))


class BilinearScore(nn.Module):
    """q^T M k, times the scale, with a matrix M (K, K) per head (Luong et al. 2015, "general")."""

    def __init__(self, n_heads: int, d_k: int, scale: Scale) -> None:
        super().__init__()
        self.scale: Scale = scale
        self.weight = nn.Parameter(torch.empty(n_heads, d_k, d_k))

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """As DotProductScore."""
        return dot_product_scores(query @ self.weight, key, factor(self.scale, query, key, mask))


class AdditiveScore(nn.Module):
    """v^T tanh(q + k), with a vector v (K) per head; q and k are projected already, as Bahdanau's W q and U k are. Nothing to
    scale: tanh bounds each term."""

    def __init__(self, n_heads: int, d_k: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_heads, d_k))

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """As DotProductScore, by way of (B, H, T, S, K)."""
        compared = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))
        return (compared * self.weight[:, None, None, :]).sum(-1)


def score_module(score: Score, n_heads: int, d_k: int, scale: Scale) -> nn.Module:
    if score == "dot":
        return DotProductScore(scale)
    if score == "bilinear":
        return BilinearScore(n_heads, d_k, scale)
    if score == "additive":
        return AdditiveScore(n_heads, d_k)
    assert_never(score)


class AttentionWeights(nn.Module):
    """Scores (..., T, S) to weights (..., T, S): softmax over the keys, so each query's row sums to 1.

    Parameter-free on purpose: attention maps are recorded by a forward hook on this module, and its output is what the
    layer used, before dropout. A masked score is -inf, hence its weight exactly 0; every row must allow at least one key.

    softmax: what the softmax runs over; other than `keys` it is a mistake to study. There a column can be masked whole, so
    the mask is a finite minimum before and zero after. mask_value: what a masked score becomes, None is -inf; a finite value
    below the range of the scores' type becomes the lowest of that range.
    """

    def __init__(self, softmax: SoftmaxOver = "keys", mask_value: float | None = None) -> None:
        super().__init__()
        self.softmax: SoftmaxOver = softmax
        self.mask_value = -math.inf if mask_value is None else mask_value

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return scores.softmax(dim=AXIS[self.softmax])
        lowest = max(self.mask_value, torch.finfo(scores.dtype).min)
        if self.softmax == "keys":
            hidden = lowest if math.isfinite(self.mask_value) else self.mask_value
            return scores.masked_fill(~mask, hidden).softmax(dim=-1)
        return scores.masked_fill(~mask, lowest).softmax(dim=AXIS[self.softmax]).masked_fill(~mask, 0.0)

    def reachable(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Which keys a query could give weight to, (..., T, S): those that the mask allows, or all if `mask_value` is too high
        to hide any. A reachable key may have the weight 0, since a saturated softmax underflows."""
        everything = torch.ones_like(scores, dtype=torch.bool)
        hides = self.softmax != "keys" or math.exp(self.mask_value) < torch.finfo(scores.dtype).tiny
        return everything if mask is None or not hides else everything & mask


def heads_divide(d_model: int, n_heads: int) -> None:
    """Every head has an equal share of the width."""
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}")


def unprojected_width(d_k: int | None, projections: Sequence[Projection]) -> None:
    """What is not projected has the width it has: D / H a head."""
    if d_k is not None and set(projections) != set(PROJECTIONS):
        raise ValueError(f"d_k={d_k} needs all three projections; leave d_k null, or projections whole")


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in H heads of width K (Vaswani et al. 2017, sections 3.2.1 and 3.2.2).

    d_k: K, of queries, keys and values; None is D / H. score, scale: how a query is compared with a key. projections: which of
    W_q, W_k, W_v are learned; the others are the identity. softmax, mask_value: see AttentionWeights.

    In training on a GPU, torch's fused kernel computes the heads, if every argument but those in FUSED has its default.
    Everywhere else the steps are separate, so that weights can be recorded; on a CPU that is also faster. A test ties the two.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        d_k: int | None = None,
        score: Score = "dot",
        scale: Scale = "d_k",
        projections: Sequence[Projection] = PROJECTIONS,
        softmax: SoftmaxOver = "keys",
        mask_value: float | None = None,
    ) -> None:
        arguments = {**locals(), "projections": tuple(projections)}
        super().__init__()
        heads_divide(d_model, n_heads)
        unprojected_width(d_k, projections)
        others = [p for p in inspect.signature(MultiHeadAttention).parameters.values() if p.name not in FUSED]
        self.is_standard = all(arguments[p.name] == p.default for p in others)
        self.n_heads = n_heads
        self.d_k = d_model // n_heads if d_k is None else d_k

        def projection(name: Projection) -> nn.Module:
            return nn.Linear(d_model, n_heads * self.d_k) if name in projections else nn.Identity()

        self.query, self.key, self.value = projection("query"), projection("key"), projection("value")
        self.score = score_module(score, n_heads, self.d_k, scale)
        self.weights = AttentionWeights(softmax, mask_value)
        self.dropout = Dropout(dropout)
        self.out = nn.Linear(n_heads * self.d_k, d_model)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B, T, H K) -> (B, H, T, K)

    def project(self, source: Tensor) -> KV:
        """source (B, S, D) -> keys and values (B, H, S, K), in the order in which every product with them reads."""
        return KV(self._split(self.key(source)).contiguous(), self._split(self.value(source)).contiguous())

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, D), mask broadcastable to (B, H, T, S) -> (B, T, D)."""
        query = self._split(self.query(query))
        if self.training and self.is_standard and query.device.type not in STEP_BY_STEP:
            heads = scaled_dot_product_attention(query, kv.key, kv.value, mask, dropout_p=self.dropout.p)  # (B, H, T, K)
        else:
            scores = self.score(query, kv.key, mask)  # (B, H, T, S)
            weights = self.dropout(self.weights(scores, mask))
            heads = weights @ kv.value
        return self.out(heads.transpose(1, 2).flatten(-2))


class AdditiveAttention(nn.Module):
    """Bahdanau et al. 2015, section 3.1 and A.1.2: e_ij = v^T tanh(W q_i + U k_j). A small network compares query and key, so
    their widths may differ; the dot product needs them equal and has no parameters of its own. The values are the source
    itself: `project` computes U k once per sentence, W q is computed at each step."""

    def __init__(self, query_size: int, source_size: int, d_attention: int, weights: AttentionWeights | None = None) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, d_attention, bias=False)  # their W_a
        self.key = nn.Linear(source_size, d_attention, bias=False)  # their U_a
        self.score = nn.Linear(d_attention, 1, bias=False)  # their v_a
        self.weights = weights or AttentionWeights()

    def project(self, source: Tensor) -> KV:
        """source (B, S, M) -> keys (B, S, A) and values (B, S, M)."""
        return KV(self.key(source), source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, Q), mask broadcastable to (B, T, S) -> contexts (B, T, M)."""
        compared = torch.tanh(self.query(query).unsqueeze(2) + kv.key.unsqueeze(1))  # (B, T, S, A)
        return self.weights(self.score(compared).squeeze(-1), mask) @ kv.value


class BilinearAttention(nn.Module):
    """Luong et al. 2015, "general": e_ij = q_i^T W k_j, one matrix between query and source, not scaled. As the additive one:
    `project` computes W k once per sentence, and the values are the source itself."""

    def __init__(self, query_size: int, source_size: int, weights: AttentionWeights | None = None) -> None:
        super().__init__()
        self.key = nn.Linear(source_size, query_size, bias=False)
        self.weights = weights or AttentionWeights()

    def project(self, source: Tensor) -> KV:
        """source (B, S, M) -> keys (B, S, Q) and values (B, S, M)."""
        return KV(self.key(source), source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, Q), mask broadcastable to (B, T, S) -> contexts (B, T, M)."""
        return self.weights(dot_product_scores(query, kv.key, 1.0), mask) @ kv.value


class DotProductAttention(nn.Module):
    """Luong et al. 2015, "dot": e_ij = q_i . k_j, no parameters and not scaled. Query and key must be of one width, so the key
    of a source that was read in both directions is the sum of the two."""

    def __init__(self, query_size: int, source_size: int, weights: AttentionWeights | None = None) -> None:
        super().__init__()
        if source_size % query_size:
            raise ValueError(f"a source of width {source_size} is no sum of parts as wide as the query, {query_size}")
        self.query_size = query_size
        self.weights = weights or AttentionWeights()

    def project(self, source: Tensor) -> KV:
        """source (B, S, M) -> keys (B, S, Q) and values (B, S, M)."""
        return KV(source.unflatten(-1, (-1, self.query_size)).sum(-2), source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, Q), mask broadcastable to (B, T, S) -> contexts (B, T, M)."""
        return self.weights(dot_product_scores(query, kv.key, 1.0), mask) @ kv.value


class NoAttention(nn.Module):
    """The source is one vector, and every query gets it (Cho et al. 2014: the plain encoder-decoder)."""

    def project(self, source: Tensor) -> KV:
        """source (B, 1, M) -> keys (B, 1, 0), which nobody asks, and values (B, 1, M)."""
        return KV(source[..., :0], source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, Q) -> contexts (B, T, M)."""
        return kv.value.expand(-1, query.size(1), -1)
