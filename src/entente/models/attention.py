"""Implements attention: scores, weights, and layers with learned projections.

A *score* compares queries with keys, `AttentionWeights` turns scores into a distribution over the keys, and the output is the
weighted mean of the values. These steps are equation 1 of Vaswani et al. 2017, which has no parameters: the learned projections
W_q, W_k, W_v and W_o belong to the surrounding layer, `MultiHeadAttention` (section 3.2.2). A recurrent decoder's layer is a
`RecurrentAttention`.

Every layer is called in two steps, `kv = layer.project(source)` and `layer(query, kv, mask)`. Self-attention projects its own
input, and cross-attention projects the encoder's output. A mask is boolean, True where a query may attend to a key, and
broadcasts to the shape of the scores.

Shapes: B batch, H heads, T queries, S keys, D model width, K key width of one head. In a recurrent decoder: Q query width,
M source width, A width of the additive score.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entente.settings import Projection, Scale, SoftmaxOver, TransformerSettings

AXIS: dict[SoftmaxOver, int] = {"keys": -1, "queries": -2, "batch": 0}


class KV(NamedTuple):
    """The keys and values (B, ..., S, K) of an attention layer. In a recurrent decoder the values are the source, (B, S, M)."""

    key: Tensor
    value: Tensor

    def extend(self, new: "KV") -> "KV":
        if not self.key.size(-2):  # no earlier keys, as always in training, so no copy is needed
            return new
        return KV(torch.cat([self.key, new.key], dim=-2), torch.cat([self.value, new.value], dim=-2))


def dot_product_scores(query: Tensor, key: Tensor, factor: float | Tensor) -> Tensor:
    """Returns Q K^T * factor, with shape (..., T, S), for query (..., T, K) and key (..., S, K)."""
    return query @ key.transpose(-2, -1) * factor


class DotProductScore(nn.Module):
    """Dot product q . k multiplied by a factor (Vaswani et al. 2017, equation 1). scale: the factor. `d_k` is 1 / sqrt(K),
    because the dot product of vectors with K components of unit variance has variance K, regardless of the number of tokens
    (section 3.2.1, footnote 4). `n_keys`, a common misreading, is 1 / sqrt(number of visible keys). `none` is 1."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the scores (B, H, T, S) of query (B, H, T, K) and key (B, H, S, K)."""
        factor: float | Tensor = key.size(-1) ** -0.5 if self.scale == "d_k" else 1.0
        if self.scale == "n_keys":
            # The mask's sum broadcasts to (B, H, T, 1).
            factor = key.size(-2) ** -0.5 if mask is None else mask.sum(-1, keepdim=True).to(key.dtype).rsqrt()
        return dot_product_scores(query, key, factor)


class BilinearScore(DotProductScore):
    """Scaled bilinear form q^T M k, with one learned matrix M (K, K) per head (Luong et al. 2015, section 3.1, "general")."""

    def __init__(self, n_heads: int, d_k: int, scale: Scale) -> None:
        super().__init__(scale)
        self.weight = nn.Parameter(torch.empty(n_heads, d_k, d_k))

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        return super().forward(query @ self.weight, key, mask)


class CosineScore(DotProductScore):
    """Scaled dot product of query and key, each divided by its root mean square, times a learned factor that starts at 1
    (query-key normalisation, Henry et al. 2020). With scale `d_k` and factor 1, it is sqrt(K) times the cosine of their
    angle."""

    def __init__(self, scale: Scale) -> None:
        super().__init__(scale)
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        width = query.shape[-1:]
        return super().forward(F.rms_norm(query, width) * self.factor, F.rms_norm(key, width), mask)


class AdditiveScore(nn.Module):
    """Additive score v^T tanh(q + k), with one learned vector v (K) per head; q and k are W q and U k of Bahdanau et al. 2015,
    A.1.2. The score is not scaled, because tanh bounds each term."""

    def __init__(self, n_heads: int, d_k: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_heads, d_k))  # one row v per head, initialised as one matrix

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        compared = torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3))  # (B, H, T, S, K)
        return (compared * self.weight[:, None, None, :]).sum(-1)


class AttentionWeights(nn.Module):
    """Masked softmax, from scores (..., T, S) to weights (..., T, S). By default each query's weights sum to 1, and a masked
    score becomes -inf, so its weight is exactly 0; every query sees a key. A forward hook on this module records attention: its
    output is the weights before dropout.

    softmax: the axis to normalise over. Axes other than `keys` are deliberate mistakes, for ablations: the mask may hide all
    scores along them, so masked scores are set to a finite minimum, and their weights to 0 afterwards. mask_value: the value of
    masked scores, at least the minimum of their dtype; None means -inf."""

    def __init__(self, softmax: SoftmaxOver = "keys", mask_value: float | None = None) -> None:
        super().__init__()
        self.softmax = softmax
        self.mask_value = -math.inf if mask_value is None else mask_value

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return scores.softmax(dim=AXIS[self.softmax])
        finite = max(self.mask_value, torch.finfo(scores.dtype).min)
        if self.softmax == "keys":
            masked = finite if math.isfinite(self.mask_value) else self.mask_value
            return scores.masked_fill(~mask, masked).softmax(dim=-1)
        return scores.masked_fill(~mask, finite).softmax(dim=AXIS[self.softmax]).masked_fill(~mask, 0.0)

    def reachable(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Returns a mask (..., T, S) of the keys that each query can reach: those that `mask` allows, or all if `mask_value` is
        so high that a masked key receives some weight next to a key with score 0."""
        everything = torch.ones_like(scores, dtype=torch.bool)
        takes_effect = self.softmax != "keys" or math.exp(self.mask_value) < torch.finfo(scores.dtype).tiny
        return everything if mask is None or not takes_effect else everything & mask


def angles(start: int, length: int, width: int, like: Tensor) -> Tensor:
    """Returns position * 10,000^(-2 i / width), (length, width / 2), for positions start .. start + length - 1 (Vaswani et al.
    2017, section 3.5), in at least float32, since narrower types would round angles too much."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    position = torch.arange(start, start + length, device=like.device, dtype=dtype)
    even = torch.arange(0, width, 2, device=like.device, dtype=dtype)
    return position[:, None] * torch.exp(even * (-math.log(10_000.0) / max(width, 1)))


def rotate(x: Tensor, start: int) -> Tensor:
    """Returns x (..., T, K) with vectors rotated by their positions, start .. start + T - 1, which thus affect a dot product
    only through their difference (Su et al. 2021, section 3.2.2). Components i and i + K / 2 are the coordinates of a point
    that is rotated by the i-th of `angles`. The paper pairs neighbouring components, which is the same but for the order of the
    rows of W_q and W_k. If K is odd, the last component does not change."""
    half = x.size(-1) // 2
    angle = angles(start, x.size(-2), 2 * half, like=x)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)  # (T, K / 2)
    a, b, rest = x.split([half, half, x.size(-1) - 2 * half], dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], dim=-1)


class SlicedLinear(nn.Linear):
    """A linear layer (..., D) -> (..., H K) whose K outputs for a head depend only on the head's D / H inputs. The weight
    (H K, D / H) has the matrices of the heads below each other."""

    def __init__(self, d_model: int, n_heads: int, width: int) -> None:
        super().__init__(d_model // n_heads, n_heads * width)
        self.n_heads = n_heads

    def forward(self, x: Tensor) -> Tensor:
        slices, weights = x.unflatten(-1, (self.n_heads, -1)), self.weight.unflatten(0, (self.n_heads, -1))
        return torch.einsum("...hd,hkd->...hk", slices, weights).flatten(-2) + self.bias


class MultiHeadAttention(nn.Module):
    """Attention with H heads of width K, by default with scaled dot products (Vaswani et al. 2017, sections 3.2.1 and 3.2.2).
    `projections` names those of W_q, W_k and W_v that are learned; the others are the identity, as is W_o without
    `output_projection`. rotary: whether to `rotate` queries and keys, which must then come from the same sentence."""

    def __init__(self, settings: TransformerSettings, rotary: bool = False) -> None:
        super().__init__()
        d_model, n_heads = settings.d_model, settings.n_heads
        self.settings, self.n_heads, self.rotary = settings, n_heads, rotary
        self.d_k = width = d_model // n_heads if settings.d_k is None else settings.d_k  # K

        def projection(name: Projection) -> nn.Module:
            if name not in settings.projections:
                return nn.Identity()
            return SlicedLinear(d_model, n_heads, width) if settings.sliced_heads else nn.Linear(d_model, n_heads * width)

        self.query, self.key, self.value = projection("query"), projection("key"), projection("value")  # W_q, W_k, W_v
        self.score: nn.Module = {
            "dot": lambda: DotProductScore(settings.scale),
            "bilinear": lambda: BilinearScore(n_heads, width, settings.scale),
            "cosine": lambda: CosineScore(settings.scale),
            "additive": lambda: AdditiveScore(n_heads, width),
        }[settings.score]()
        self.weights = AttentionWeights(settings.softmax, settings.mask_value)
        self.dropout = nn.Dropout(settings.attention_dropout)
        self.out = nn.Linear(n_heads * width, d_model) if settings.output_projection else nn.Identity()  # W_o

    def copy_first_head(self) -> None:
        """Gives all heads the weights of the first. Their outputs and gradients are then equal too, in every step, if all heads
        read the same input through learned projections, and attention weights have no dropout."""
        with torch.no_grad():
            for part, axis in ((self.query, 0), (self.key, 0), (self.value, 0), (self.score, 0), (self.out, 1)):
                if isinstance(weight := getattr(part, "weight", None), Tensor):
                    heads = weight.unflatten(axis, (self.n_heads, -1))
                    heads.copy_(heads.narrow(axis, 0, 1).clone())

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B, T, H K) -> (B, H, T, K)

    def project(self, source: Tensor, start: int = 0) -> KV:
        """Projects source (B, S, D) to keys and values (B, H, S, K), contiguous because several matrix products read them. If
        the layer is rotary, rotates the keys to positions start .. start + S - 1."""
        key, value = self._split(self.key(source)), self._split(self.value(source))
        return KV((rotate(key, start) if self.rotary else key).contiguous(), value.contiguous())

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """Returns the output (B, T, D) for query (B, T, D), which attends to `kv`. The mask broadcasts to (B, H, T, S). If the
        layer is rotary, rotates the T queries to the last T of the S positions."""
        q = self._split(self.query(query))  # (B, H, T, K)
        if self.rotary:
            q = rotate(q, start=kv.key.size(-2) - q.size(-2))
        heads = self.attend(q, kv, mask)  # (B, H, T, K)
        return self.out(heads.transpose(1, 2).flatten(-2))

    def attend(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """Returns softmax(scores) V (B, H, T, K) for query (B, H, T, K). With default arguments, this is equation 1."""
        scores = self.score(query, kv.key, mask)  # (B, H, T, S)
        weights = self.dropout(self.weights(scores, mask))  # (B, H, T, S)
        return weights @ kv.value


class RecurrentAttention(nn.Module):
    """Single-head attention for a recurrent decoder. The values are the source itself. Scores are unscaled dot products unless
    a subclass overrides `compare`."""

    key: Callable[[Tensor], Tensor]  # source (B, S, M) -> keys (B, S, Q), or (B, S, A) in AdditiveAttention

    def __init__(self, softmax: SoftmaxOver) -> None:
        super().__init__()
        self.weights = AttentionWeights(softmax)

    def project(self, source: Tensor) -> KV:
        return KV(self.key(source), source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """Returns the contexts (B, T, M) for query (B, T, Q). The mask broadcasts to (B, T, S)."""
        return self.weights(self.compare(query, kv.key), mask) @ kv.value

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return dot_product_scores(query, key, 1.0)


class AdditiveAttention(RecurrentAttention):
    """Additive attention, e_ij = v^T tanh(W q_i + U k_j) (Bahdanau et al. 2015, sections 3.1 and A.1.2)."""

    def __init__(self, query_size: int, source_size: int, d_attention: int, softmax: SoftmaxOver) -> None:
        super().__init__(softmax)
        self.query = nn.Linear(query_size, d_attention, bias=False)  # W_a of the paper
        self.key = nn.Linear(source_size, d_attention, bias=False)  # U_a of the paper
        self.score = nn.Linear(d_attention, 1, bias=False)  # v_a of the paper

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        compared = torch.tanh(self.query(query).unsqueeze(2) + key.unsqueeze(1))  # (B, T, S, A)
        return self.score(compared).squeeze(-1)


class BilinearAttention(RecurrentAttention):
    """Bilinear attention, e_ij = q_i^T W k_j, with one learned matrix W (Luong et al. 2015, section 3.1, "general")."""

    def __init__(self, query_size: int, source_size: int, softmax: SoftmaxOver) -> None:
        super().__init__(softmax)
        self.key = nn.Linear(source_size, query_size, bias=False)


class DotProductAttention(RecurrentAttention):
    """Dot-product attention, e_ij = q_i . k_j (Luong et al. 2015, section 3.1, "dot"). Query and key must have the same width,
    so the keys of a bidirectional source are the sum of its two directions."""

    def __init__(self, query_size: int, softmax: SoftmaxOver) -> None:
        super().__init__(softmax)
        self.query_size = query_size

    def key(self, source: Tensor) -> Tensor:
        return source.unflatten(-1, (-1, self.query_size)).sum(-2)


class NoAttention(nn.Module):
    """Replaces attention in a plain encoder-decoder: every query receives the same source vector (Cho et al. 2014)."""

    def project(self, source: Tensor) -> KV:
        """Returns empty keys (B, 1, 0), which are not used, and source (B, 1, M) as the values."""
        return KV(source[..., :0], source)

    def forward(self, query: Tensor, kv: KV, mask: Tensor | None) -> Tensor:
        """Returns the source vector as the context of every query: query (B, T, Q) -> contexts (B, T, M)."""
        return kv.value.expand(-1, query.size(1), -1)
