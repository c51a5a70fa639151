"""Attention: scores, weights, and the layers that learn what to compare.

A *score* compares queries with keys; `AttentionWeights` turns scores into a distribution over the keys; the weights average the
values. Equation 1 of Vaswani et al. 2017 is exactly this and has no parameters. The learned projections W_q, W_k, W_v, W_o
belong to the layer around it (their section 3.2.2). `MultiHeadAttention`, of the Transformer, has a DotProductScore,
BilinearScore or AdditiveScore. The layer of a recurrent decoder is a DotProductAttention, BilinearAttention or
AdditiveAttention. `dot_product_scores` computes the scores of the first two in each list.

Every layer is called in two steps, `kv = layer.project(source)` and `layer(query, kv, mask)`. Self-attention projects its own
input, cross-attention the encoder's output, and a cache is the `kv` of the tokens read so far: it is always the same layer.
Masks are boolean, True = may attend, broadcastable to the scores.

Shapes: B batch, H heads, T queries, S keys, D model width, K key width of one head; Q width of the query, M width of the
source and A width of the additive score where the decoder is recurrent.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from entente.models.initialise import refuse_unknown

Score = Literal["dot", "additive", "bilinear"]
Scale = Literal["d_k", "none", "n_keys"]
Projection = Literal["query", "key", "value"]
PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
SoftmaxOver = Literal["keys", "queries", "batch"]
AXIS: dict[SoftmaxOver, int] = {"keys": -1, "queries": -2, "batch": 0}


class KV(NamedTuple):
    """Keys and values (B, ..., S, K): what a query can look up. A recurrent decoder's values are the source, (B, S, M)."""

    key: Tensor
    value: Tensor

    def extend(self, new: "KV") -> "KV":
        """These keys and values followed by `new` ones, along S."""
        if not self.key.size(-2):  # saves a copy in training
            return new
        return KV(torch.cat([self.key, new.key], dim=-2), torch.cat([self.value, new.value], dim=-2))


def dot_product_scores(query: Tensor, key: Tensor, factor: float | Tensor) -> Tensor:
    """Q K^T * factor, of all sentences and heads at once: query (..., T, K), key (..., S, K) -> scores (..., T, S)."""
    return query @ key.transpose(-2, -1) * factor


class DotProductScore(nn.Module):
    """q . k, times a factor: no parameters of its own (Vaswani et al. 2017, equation 1).

    scale: `d_k` is a factor 1 / sqrt(K), since a dot product of K components of unit variance has variance K, however many the
    tokens (section 3.2.1, footnote 4); `n_keys`, a common misreading, is 1 / sqrt(keys that the query may see); `none` is 1.
    """

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        refuse_unknown(scale=(scale, Scale))
        self.scale: Scale = scale

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """query (B, H, T, K), key (B, H, S, K) -> scores (B, H, T, S)."""
        factor: float | Tensor = key.size(-1) ** -0.5 if self.scale == "d_k" else 1.0
        if self.scale == "n_keys":
            visible = key.new_tensor(key.size(-2)) if mask is None else mask.sum(-1, keepdim=True)  # broadcasts to (B, H, T, 1)
            factor = visible.to(key.dtype).rsqrt()
        return dot_product_scores(query, key, factor)


class BilinearScore(DotProductScore):
    """q^T M k, times the factor, with a matrix M (K, K) per head (Luong et al. 2015, section 3.1, "general")."""

    def __init__(self, n_heads: int, d_k: int, scale: Scale) -> None:
        super().__init__(scale)
        self.weight = nn.Parameter(torch.empty(n_heads, d_k, d_k))

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        return super().forward(query @ self.weight, key, mask)


class AdditiveScore(nn.Module):
    """v^T tanh(q + k), with a vector v (K) per head; q and k are projected already, as W q and U k are in Bahdanau et al. 2015,
    A.1.2. There is nothing to scale: tanh bounds each term."""

    def __init__(self, n_heads: int, d_k: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_heads, d_k))  # v of each head; initialised as one matrix

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        compared = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # (B, H, T, S, K)
        return (compared * self.weight[:, None, None, :]).sum(-1)


class AttentionWeights(nn.Module):
    """Scores (..., T, S) to weights (..., T, S): softmax over the keys, so each query's row sums to 1. By default a masked
    score is -inf, hence its weight is exactly 0. Callers see to it that every row allows a key: no sentence is empty, a token
    sees itself. Attention maps are recorded by a forward hook on this module: its output is the weights before dropout.

    softmax: the axis. Any other than `keys` is a mistake to study. There the mask may hide a whole column, so masked scores
    become a finite minimum, and their weights are set to 0 afterwards. mask_value: what a masked score becomes, None is -inf; a
    finite value below the range of the scores' type becomes the lowest of that range.
    """

    def __init__(self, softmax: SoftmaxOver = "keys", mask_value: float | None = None) -> None:
        super().__init__()
        refuse_unknown(softmax=(softmax, SoftmaxOver))
        self.softmax: SoftmaxOver = softmax
        self.axis = AXIS[softmax]
        self.mask_value = -math.inf if mask_value is None else mask_value

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return scores.softmax(dim=self.axis)
        finite = max(self.mask_value, torch.finfo(scores.dtype).min)
        if self.softmax == "keys":
            masked = finite if math.isfinite(self.mask_value) else self.mask_value
            return scores.masked_fill(~mask, masked).softmax(dim=-1)
        return scores.masked_fill(~mask, finite).softmax(dim=self.axis).masked_fill(~mask, 0.0)

    def reachable(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Which keys a query could give weight to, (..., T, S): those that the mask allows, or all if `mask_value` is too high
        to hide any next to a score of 0. A reachable key may have the weight 0, since a saturated softmax underflows. For those
        who record attention."""
        everything = torch.ones_like(scores, dtype=torch.bool)
        takes_effect = self.softmax != "keys" or math.exp(self.mask_value) < torch.finfo(scores.dtype).tiny
        return everything if mask is None or not takes_effect else everything & mask


def heads_divide(d_model: int, n_heads: int) -> None:
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}")


def unprojected_width(d_k: int | None, projections: Sequence[Projection]) -> None:
    """A width K other than D / H needs all three projections: what is not projected keeps D / H per head."""
    if d_k is not None and set(projections) != set(PROJECTIONS):
        raise ValueError(f"d_k={d_k} needs all three projections; leave d_k null, or learn all three")


class MultiHeadAttention(nn.Module):
    """Attention in H heads of width K, by default with scaled dot products (Vaswani et al. 2017, sections 3.2.1 and 3.2.2).

    d_k: K, of queries, keys and values; None is D / H. score, scale: how query and key are compared; `additive` has no scale.
    projections: which of W_q, W_k, W_v are learned; the others are the identity. softmax, mask_value: see AttentionWeights.
    """

    # Functions of arguments, by name, that raise ValueError where these do not go together; config/schema.py calls them too.
    relations = (heads_divide, unprojected_width)

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
        super().__init__()
        heads_divide(d_model, n_heads)
        unprojected_width(d_k, projections)
        refuse_unknown(score=(score, Score), projections=(projections, Projection))
        self.n_heads = n_heads
        self.d_k = width = d_model // n_heads if d_k is None else d_k  # K
        self.query, self.key, self.value = (  # W_q, W_k, W_v
            nn.Linear(d_model, n_heads * width) if name in projections else nn.Identity() for name in PROJECTIONS
        )
        self.score: nn.Module = {
            "dot": lambda: DotProductScore(scale),
            "bilinear": lambda: BilinearScore(n_heads, width, scale),
            "additive": lambda: AdditiveScore(n_heads, width),
        }[score]()
        self.weights = AttentionWeights(softmax=softmax, mask_value=mask_value)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(n_heads * width, d_model)  # W_o

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B, T, H K) -> (B, H, T, K)

    def project(self, source: Tensor) -> KV:
        """source (B, S, D) -> keys and values (B, H, S, K), contiguous since many products read them."""
        return KV(self._split(self.key(source)).contiguous(), self._split(self.value(source)).contiguous())

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, D), mask broadcastable to (B, H, T, S) -> (B, T, D)."""
        heads = self.attend(self._split(self.query(query)), kv, mask)  # (B, H, T, K)
        return self.out(heads.transpose(1, 2).flatten(-2))

    def attend(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """softmax(scores) V of all heads at once, by default equation 1: query (B, H, T, K) -> (B, H, T, K)."""
        scores = self.score(query, kv.key, mask)  # (B, H, T, S)
        weights = self.dropout(self.weights(scores, mask))  # (B, H, T, S)
        return weights @ kv.value


class RecurrentAttention(nn.Module):
    """The attention of a recurrent decoder: one head, whose values are the source itself and whose keys are computed once per
    sentence. Queries and keys are compared by dot products that are not scaled, or as a subclass says."""

    key: Callable[[Tensor], Tensor]  # source (B, S, M) -> keys (B, S, Q), or of another width that `compare` takes

    def __init__(self, softmax: SoftmaxOver) -> None:
        super().__init__()
        self.weights = AttentionWeights(softmax)

    def project(self, source: Tensor) -> KV:
        """source (B, S, M) -> keys, and values (B, S, M)."""
        return KV(self.key(source), source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, Q), mask broadcastable to (B, T, S) -> contexts (B, T, M)."""
        return self.weights(self.compare(query, kv.key), mask) @ kv.value

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """query (B, T, Q) and keys -> scores (B, T, S)."""
        return dot_product_scores(query, key, 1.0)


class AdditiveAttention(RecurrentAttention):
    """Bahdanau et al. 2015, section 3.1 and A.1.2: e_ij = v^T tanh(W q_i + U k_j), a small network, so that the widths of query
    and key may differ; a dot product needs them equal."""

    def __init__(self, query_size: int, source_size: int, d_attention: int, softmax: SoftmaxOver = "keys") -> None:
        super().__init__(softmax)
        self.query = nn.Linear(query_size, d_attention, bias=False)  # their W_a
        self.key: nn.Linear = nn.Linear(source_size, d_attention, bias=False)  # their U_a
        self.score = nn.Linear(d_attention, 1, bias=False)  # their v_a

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        compared = torch.tanh(self.query(query).unsqueeze(2) + key.unsqueeze(1))  # (B, T, S, A)
        return self.score(compared).squeeze(-1)


class BilinearAttention(RecurrentAttention):
    """Luong et al. 2015, section 3.1, "general": e_ij = q_i^T W k_j, one matrix W between query and source."""

    def __init__(self, query_size: int, source_size: int, softmax: SoftmaxOver = "keys") -> None:
        super().__init__(softmax)
        self.key = nn.Linear(source_size, query_size, bias=False)


class DotProductAttention(RecurrentAttention):
    """Luong et al. 2015, section 3.1, "dot": e_ij = q_i . k_j. The key of a source that was read in both directions is the sum
    of the two, since query and key must have the same width."""

    def __init__(self, query_size: int, source_size: int, softmax: SoftmaxOver = "keys") -> None:
        super().__init__(softmax)
        self.query_size = query_size

    def key(self, source: Tensor) -> Tensor:
        return source.unflatten(-1, (-1, self.query_size)).sum(-2)


class NoAttention(nn.Module):
    """The source is one vector, which every query gets (Cho et al. 2014: the plain encoder-decoder)."""

    def project(self, source: Tensor) -> KV:
        """source (B, 1, M) -> keys (B, 1, 0), which are not used, and values (B, 1, M)."""
        return KV(source[..., :0], source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """query (B, T, Q) -> contexts (B, T, M)."""
        return kv.value.expand(-1, query.size(1), -1)
