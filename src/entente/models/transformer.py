"""The encoder-decoder Transformer of Vaswani et al. 2017, with the norm in front of each sublayer.

                encoder block                            decoder block
      x ──┬─> norm ─> self-attention ─> + ─┐    y ──┬─> norm ─> masked self-attention ─> + ─┐
          └───────── residual ──────────┘  │        └──────────── residual ───────────────┘ │
      ┌────────────────────────────────────┘    ┌───────────────────────────────────────────┘
      └──┬─> norm ─> feed-forward ────> +       ├──> norm ─> cross-attention ─────────> +   (+ residual)
         └───────── residual ───────────┘       └──> norm ─> feed-forward ────────────> +   (+ residual)

Where query, key and value come from: in self-attention all three are projections of the same x, in cross-attention the query
is a projection of the decoder's y, keys and values are projections of the encoder's output ("memory").

Shapes: B batch, S source length, T target length, H heads, D model width, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, cast, get_args

import torch
from annotated_types import Interval
from torch import Tensor, nn

from entente.models.attention import KV, MultiHeadAttention, heads_divide
from entente.models.seq2seq import (
    Dropout,
    Seed,
    Seq2Seq,
    TokenId,
    VocabularySize,
    Width,
    causal_mask,
    initialise,
    padding_mask,
)

Sublayer = Literal["self", "cross", "ff"]
Norm = Literal["pre", "post", "none"]
SUBLAYERS: tuple[Sublayer, ...] = get_args(Sublayer)


class Residual(nn.Module):
    """x + dropout(f(x)): the sublayer adds to what came in. Taken away (`keep=False`), only dropout(f(x)) goes on."""

    def __init__(self, keep: bool, dropout: float) -> None:
        super().__init__()
        self.keep = keep
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        update = self.dropout(sublayer_output)
        return x + update if self.keep else update


class Block(nn.Module):
    """Sublayers by name, and what stands around each: `x = after(residual(x, f(before(x))))`."""

    sublayers: tuple[str, ...]

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        dropout: float,
        attention_dropout: float,
        residual: Sequence[str],
        norm: str,
    ) -> None:
        super().__init__()
        names = self.sublayers
        self.before = nn.ModuleDict({n: nn.LayerNorm(d_model) if norm == "pre" else nn.Identity() for n in names})
        self.after = nn.ModuleDict({n: nn.LayerNorm(d_model) if norm == "post" else nn.Identity() for n in names})
        self.residual = nn.ModuleDict({n: Residual(n in residual, dropout) for n in names})
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout=attention_dropout)
        if "cross" in names:
            self.cross_attention = MultiHeadAttention(d_model, n_heads, dropout=attention_dropout)


class EncoderBlock(Block):
    """Self-attention over the source, then the feed-forward network."""

    sublayers = ("self", "ff")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (B, S, D), mask (B, 1, 1, S) -> (B, S, D)."""
        h = self.before["self"](x)
        x = self.after["self"](self.residual["self"](x, self.self_attention(h, self.self_attention.project(h), mask)))
        x = self.after["ff"](self.residual["ff"](x, self.ff(self.before["ff"](x))))
        return x


class DecoderBlock(Block):
    """Masked self-attention over the target so far, cross-attention to the source, then the feed-forward network."""

    sublayers = SUBLAYERS

    def forward(self, x: Tensor, past: KV, memory: KV, causal: Tensor, src_mask: Tensor) -> tuple[Tensor, KV]:
        """x (B, T, D) at the tokens read now, past (B, H, P, K) of those read before -> (B, T, D), and past with them added."""
        h = self.before["self"](x)
        past = past.extend(self.self_attention.project(h))
        x = self.after["self"](self.residual["self"](x, self.self_attention(h, past, causal)))
        x = self.after["cross"](self.residual["cross"](x, self.cross_attention(self.before["cross"](x), memory, src_mask)))
        x = self.after["ff"](self.residual["ff"](x, self.ff(self.before["ff"](x))))
        return x, past


class TransformerState(NamedTuple):
    """Per decoder block: keys and values of the target so far, and of the encoder's output; and the source mask."""

    past: tuple[KV, ...]
    memory: tuple[KV, ...]
    src_mask: Tensor  # (B, 1, 1, S)


def sinusoids(start: int, length: int, d_model: int, like: Tensor) -> Tensor:
    """Positions start .. start + length - 1 as sines and cosines (length, D), section 3.5."""
    position = torch.arange(start, start + length, device=like.device, dtype=like.dtype)
    even = torch.arange(0, d_model, 2, device=like.device, dtype=like.dtype)
    angle = position[:, None] * torch.exp(even * (-math.log(10_000.0) / d_model))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[:, :d_model]


class Transformer(Seq2Seq):
    """residual: the sublayers that have a residual connection, of `self`, `cross`, `ff` (`self` in encoder and decoder).
    norm: in front of a sublayer (`pre`, Xiong et al. 2020), behind the residual (`post`, as published), or `none`.
    tied: the output projection is the target embedding (Press & Wolf 2017), and the source embedding too where both languages
    share one vocabulary."""

    relations = (heads_divide,)

    def __init__(
        self,
        src_vocab: VocabularySize,
        tgt_vocab: VocabularySize,
        shared_vocab: bool,
        pad_id: TokenId,
        seed: Seed,
        d_model: Width = 256,
        n_heads: Annotated[int, Interval(ge=1, le=128)] = 4,
        n_layers: Annotated[int, Interval(ge=1, le=64)] = 3,
        d_ff: Annotated[int, Interval(ge=1, le=65536)] = 1024,
        dropout: Dropout = 0.1,
        attention_dropout: Dropout = 0.0,
        residual: Sequence[Sublayer] = SUBLAYERS,
        norm: Norm = "pre",
        tied: bool = True,
    ) -> None:
        super().__init__()
        if unknown := set(residual) - set(SUBLAYERS):
            raise ValueError(f"residual has unknown sublayers {sorted(unknown)}; allowed are {list(SUBLAYERS)}")
        if norm not in get_args(Norm):
            raise ValueError(f"norm={norm} is not one of {', '.join(get_args(Norm))}")
        self.pad_id = pad_id
        self.d_model = d_model
        self.n_heads = n_heads
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model, padding_idx=pad_id)
        self.src_embedding = self.tgt_embedding if tied and shared_vocab else nn.Embedding(src_vocab, d_model, pad_id)
        self.dropout = nn.Dropout(dropout)
        block = (d_model, n_heads, d_ff, dropout, attention_dropout, residual, norm)
        self.encoder = nn.ModuleList(EncoderBlock(*block) for _ in range(n_layers))
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder = nn.ModuleList(DecoderBlock(*block) for _ in range(n_layers))
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        if tied:
            self.output.weight = self.tgt_embedding.weight
        initialise(self, seed)

    def _embed(self, embedding: nn.Module, ids: Tensor, start: int) -> Tensor:
        x = embedding(ids) * math.sqrt(self.d_model)  # section 3.4
        return self.dropout(x + sinusoids(start, ids.size(1), self.d_model, like=x))

    def encode(self, src: Tensor) -> TransformerState:
        src_mask = padding_mask(src, self.pad_id)[:, None, None, :]
        x = self._embed(self.src_embedding, src, start=0)
        for block in self.encoder:
            x = block(x, src_mask)
        x = self.encoder_norm(x)
        nothing = x.new_empty(src.size(0), self.n_heads, 0, self.d_model // self.n_heads)
        memory = tuple(cast(DecoderBlock, block).cross_attention.project(x) for block in self.decoder)
        return TransformerState(tuple(KV(nothing, nothing) for _ in self.decoder), memory, src_mask)

    def decode(self, tgt: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        read = state.past[0].key.size(-2)
        causal = causal_mask(tgt.size(1), read, tgt.device)
        x = self._embed(self.tgt_embedding, tgt, start=read)
        past = []
        for block, block_past, memory in zip(self.decoder, state.past, state.memory, strict=True):
            x, block_past = block(x, block_past, memory, causal, state.src_mask)
            past.append(block_past)
        return self.decoder_norm(x), state._replace(past=tuple(past))
