"""The encoder-decoder Transformer of Vaswani et al. 2017, with layer normalisation before each sublayer (pre-norm).

    x: embedded source                             y: embedded target
    ├──> norm ──> self-attention ──┐               ├──> norm ──> masked self-attention ──┐
    + <────────────────────────────┘               + <───────────────────────────────────┘
    ├──> norm ──> feed-forward ────┐               ├──> norm ──> cross-attention ────────┐
    + <────────────────────────────┘               + <───────────────────────────────────┘
    │                                              ├──> norm ──> feed-forward ───────────┐
    │                                              + <───────────────────────────────────┘
    norm ──> memory                                norm ──> hidden, which `output` projects

Each side shows one of its `n_layers` blocks and the final norm; each + is a residual connection. In self-attention, query, key
and value are projections of the same input. In cross-attention, the query is a projection of the decoder's y; key and value are
projections of the encoder's output ("memory"). The source mask hides padding, and the causal mask all later target tokens.
Padding is on the right, so the causal mask also hides it from real tokens, and the target needs no other mask.

Shapes: B batch, S source length, T target length, P number of earlier target tokens, H heads, D model width, K key width of a
head, V vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entente.models.attention import KV, MultiHeadAttention, angles
from entente.models.initialise import initialise
from entente.models.seq2seq import Residual, Seq2Seq, Sizes, Source, State, causal_mask, padding_mask
from entente.settings import Norm, Sublayer, TransformerSettings

Side = Literal["src", "tgt"]
NORM_EPSILON = 1e-6  # added to the mean square by RMSNorm
LEARNED_POSITIONS = 512  # number of learned positions; all later positions share the last one


def norm_before(norm: Norm, d_model: int) -> nn.Module:
    """Returns the norm before each sublayer and after the last block, for `post` and `none` the identity."""
    if norm == "pre":
        return nn.LayerNorm(d_model)
    return nn.RMSNorm(d_model, eps=NORM_EPSILON) if norm == "rms" else nn.Identity()


class SwiGLU(nn.Module):
    """Returns (..., F), the first half of x (..., 2 F) times the SiLU of the second half (Shazeer 2020, equation 6). One linear
    layer computes both halves, so Muon treats its weight as one matrix, as published recipes do."""

    def forward(self, x: Tensor) -> Tensor:
        linear, gate = x.chunk(2, dim=-1)
        return linear * F.silu(gate)


class Block(nn.Module):
    """Base class of encoder and decoder blocks. They apply a sublayer f as `x = after(residual(x, f(before(x))))`."""

    names: tuple[Sublayer, ...]

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        norm, d_model, dropout = settings.norm, settings.d_model, settings.dropout
        self.present = tuple(name for name in self.names if name in settings.sublayers)
        self.before = nn.ModuleDict({n: norm_before(norm, d_model) for n in self.present})
        self.after = nn.ModuleDict({n: nn.LayerNorm(d_model) if norm == "post" else nn.Identity() for n in self.present})
        self.residual = nn.ModuleDict({n: Residual(keep=n in settings.residual, dropout=dropout) for n in self.present})
        if "ff" in self.present:
            gated = settings.activation == "swiglu"
            width = round(2 * settings.d_ff / 3) if gated else settings.d_ff  # so that both have about as many weights
            first = nn.Linear(d_model, 2 * width if gated else width)
            self.ff = nn.Sequential(first, SwiGLU() if gated else nn.ReLU(), nn.Linear(width, d_model))  # section 3.3
        if "self" in self.present:
            self.self_attention = MultiHeadAttention(settings, rotary=settings.positions == "rotary")
        if "cross" in self.present:
            self.cross_attention = MultiHeadAttention(settings)

    def last_layers(self) -> list[Any]:
        return [self.ff[-1] if name == "ff" else getattr(self, f"{name}_attention").out for name in self.present]

    def sublayer(self, name: Sublayer, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        """Applies sublayer f to x (B, T, D), or returns x if the block lacks this sublayer."""
        if name not in self.present:
            return x
        return self.after[name](self.residual[name](x, f(self.before[name](x))))


class EncoderBlock(Block):
    """Self-attention over the source, then the feed-forward network."""

    names = ("self", "ff")

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.sublayer("self", x, lambda h: self.self_attention(h, self.self_attention.project(h), mask))
        return self.sublayer("ff", x, lambda h: self.ff(h))


class DecoderBlock(Block):
    """Masked self-attention over the target so far, cross-attention to the source, then the feed-forward network."""

    names = ("self", "cross", "ff")

    def project(self, memory: Tensor) -> KV:
        """Returns the keys and values (B, H, S, K) of memory (B, S, D); without cross-attention, empty tensors with B rows."""
        return self.cross_attention.project(memory) if "cross" in self.present else KV(memory[:, :0], memory[:, :0])

    def forward(self, x: Tensor, past: KV, source: KV, causal: Tensor | None, src_mask: Tensor | None) -> tuple[Tensor, KV]:
        """Returns the output (B, T, D) for new tokens x (B, T, D), and `past` (B, H, P, K) extended by their KV. source: what
        `project` returned."""
        h = self.before["self"](x)  # `sublayer` cannot be used, because the keys and values of h are returned too
        extended = past.extend(self.self_attention.project(h, start=past.key.size(-2)))  # (B, H, P + T, K)
        x = self.after["self"](self.residual["self"](x, self.self_attention(h, extended, causal)))
        x = self.sublayer("cross", x, lambda h: self.look_up(h, source, src_mask))
        return self.sublayer("ff", x, lambda h: self.ff(h)), extended

    def look_up(self, h: Tensor, source: KV, src_mask: Tensor | None) -> Tensor:
        """Applies cross-attention to h (B, T, D). The beams of a sentence attend to its source as separate queries."""
        together = h.reshape(len(source.key), -1, h.size(-1))  # (sentences, beams * T, D)
        return self.cross_attention(together, source, src_mask).view_as(h)


# Both tuples have one KV per decoder block: (B, H, P, K) in `written`, the target cache, and (B, H, S, K) in `source.kv`.
TransformerState = State[tuple[KV, ...], tuple[KV, ...]]


def sinusoids(start: int, length: int, d_model: int, like: Tensor) -> Tensor:
    """Returns the sines and cosines (length, D) of the angles of positions start .. start + length - 1 (section 3.5)."""
    angle = angles(start, length, d_model, like)  # (length, D / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[:, :d_model].to(like.dtype)  # drops a cosine if D is odd


class Transformer(Seq2Seq):
    """Encoder-decoder Transformer. In `residual` and `sublayers`, `self` means encoder and decoder self-attention. norm: `pre`
    is before each sublayer (Xiong et al. 2020), `post` after each residual connection (Vaswani et al. 2017), and `rms` is
    RMSNorm before each sublayer (Zhang & Sennrich 2019). zero_init: at first, sublayers return 0 and pre-norm blocks are the
    identity (Goyal et al. 2017, section 5.1). tied: see Press & Wolf 2017. positions: `sinusoidal` and `learned` are added to
    the embeddings (Vaswani et al. 2017, section 3.5); `rotary` rotates the queries and keys of self-attention (Su et al.
    2021). embedding_scale: `d_model` multiplies embeddings by sqrt(D), and `initial` lets them start as large instead.
    equal_heads: all heads of a layer start with the weights of its first."""

    def __init__(self, sizes: Sizes, settings: TransformerSettings) -> None:
        super().__init__()
        d_model, pad_id = settings.d_model, sizes.pad_id
        self.pad_id, self.d_model, self.n_heads, self.positions = pad_id, d_model, settings.n_heads, settings.positions
        self.mask_padding, self.mask_future = settings.mask_padding, settings.mask_future
        shares_embedding = settings.tied and sizes.shared_vocab
        self.tgt_embedding = nn.Embedding(sizes.tgt_vocab, d_model, padding_idx=pad_id)
        self.src_embedding = self.tgt_embedding if shares_embedding else nn.Embedding(sizes.src_vocab, d_model, pad_id)
        if settings.positions == "learned":
            self.src_position = nn.Embedding(LEARNED_POSITIONS, d_model)
            self.tgt_position = nn.Embedding(LEARNED_POSITIONS, d_model)
        self.dropout = nn.Dropout(settings.dropout)
        self.encoder = nn.ModuleList(EncoderBlock(settings) for _ in range(settings.n_layers))
        self.encoder_norm = norm_before(settings.norm, d_model)
        self.decoder = nn.ModuleList(DecoderBlock(settings) for _ in range(settings.n_layers))
        self.decoder_norm = norm_before(settings.norm, d_model)
        self.output = nn.Linear(d_model, sizes.tgt_vocab, bias=False)
        if settings.tied:
            self.output.weight = self.tgt_embedding.weight
        # Multiplied by sqrt(D) (section 3.4), embeddings have variance 1/2, like the sinusoids, and neither dominates the sum.
        self.embedding_factor = math.sqrt(d_model) if settings.embedding_scale == "d_model" else 1.0
        initialise(self, sizes.seed, embedding_std=(2 if settings.embedding_scale == "initial" else 2 * d_model) ** -0.5)
        if settings.equal_heads:
            for module in self.modules():
                if isinstance(module, MultiHeadAttention):
                    module.copy_first_head()
        if settings.zero_init:
            for block in [*self.encoder, *self.decoder]:
                for layer in cast(Block, block).last_layers():
                    nn.init.zeros_(layer.weight)

    def _embed(self, side: Side, ids: Tensor, start: int) -> Tensor:
        """Returns the embeddings (B, T, D) of ids (B, T) at positions start .. start + T - 1."""
        embedding = self.src_embedding if side == "src" else self.tgt_embedding
        x = embedding(ids) * self.embedding_factor
        if self.positions in ("sinusoidal", "learned"):
            x = x + self.position_vectors(side, start, ids.size(1))
        return self.dropout(x)

    def position_vectors(self, side: Side, start: int, length: int) -> Tensor:
        """Returns the vectors (length, D) that are added to the embeddings at positions start .. start + length - 1."""
        if self.positions in ("rotary", "none"):
            return torch.zeros(length, self.d_model)
        if self.positions == "sinusoidal":
            return sinusoids(start, length, self.d_model, like=self.tgt_embedding.weight)
        rows = torch.arange(start, start + length, device=self.tgt_embedding.weight.device).clamp(max=LEARNED_POSITIONS - 1)
        table = self.src_position if side == "src" else self.tgt_position
        return table(rows) * self.embedding_factor

    def encode(self, src: Tensor) -> TransformerState:
        real = padding_mask(src, self.pad_id)[:, None, None, :]  # (B, 1, 1, S)
        src_mask = real if self.mask_padding else torch.ones_like(real)
        x = self._embed("src", src, start=0)  # (B, S, D)
        for block in self.encoder:
            x = block(x, src_mask)
        x = self.encoder_norm(x)
        blocks = [cast(DecoderBlock, block) for block in self.decoder]
        empty = x.new_empty(src.size(0), self.n_heads, 0, blocks[0].self_attention.d_k)  # (B, H, 0, K)
        source = Source(tuple(block.project(x) for block in blocks), src_mask)
        return State(tuple(KV(empty, empty) for _ in blocks), source)

    def decode(self, tgt: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        n_read = state.written[0].key.size(-2)  # P
        needs_mask = self.mask_future and tgt.size(1) > 1  # a single token has no later tokens to hide
        causal = causal_mask(tgt.size(1), n_read, tgt.device) if needs_mask else None  # (T, P + T)
        x = self._embed("tgt", tgt, start=n_read)  # (B, T, D)
        written = []
        for block, past, source in zip(self.decoder, state.written, state.source.kv, strict=True):
            x, extended = block(x, past, source, causal, state.source.mask)
            written.append(extended)
        return self.decoder_norm(x), State(tuple(written), state.source)
