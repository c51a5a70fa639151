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
and value are projections of the same input. In cross-attention, the query is a projection of the decoder's y; key and value
are projections of the encoder's output ("memory"). The cache contains the keys and values of the target tokens read so far,
one pair per decoder block. The source mask hides padding. The causal mask hides all later tokens from each target token.
Because padding is on the right, the causal mask also hides it from real tokens, so the target needs no other mask.

Shapes: B batch, S source length, T target length, P number of earlier target tokens, H heads, D model width, K key width of a
head, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, cast, get_args

import torch
from annotated_types import Interval, Le, doc
from torch import Tensor, nn
from torch.nn import functional as F

from entente.models.attention import KV, PROJECTIONS, MultiHeadAttention, Projection, Scale, Score, SoftmaxOver, angles
from entente.models.initialise import DropoutRate, Seed, TokenId, VocabularySize, Width, initialise, refuse_unknown
from entente.models.seq2seq import Residual, Seq2Seq, Source, State, causal_mask, padding_mask

Sublayer = Literal["self", "cross", "ff"]
SUBLAYERS: tuple[Sublayer, ...] = get_args(Sublayer)
Norm = Literal["pre", "post", "rms", "none"]
Positions = Literal["sinusoidal", "learned", "rotary", "none"]
Activation = Literal["relu", "swiglu"]
Side = Literal["src", "tgt"]
NORM_EPSILON = 1e-6  # added to the mean square by RMSNorm
LEARNED_POSITIONS = 512  # number of learned positions; all later positions share the last one


def norm_before(norm: Norm, d_model: int) -> nn.Module:
    """Returns the norm to apply before each sublayer and after the last block. For `post` and `none`, it is the identity."""
    if norm == "pre":
        return nn.LayerNorm(d_model)
    return nn.RMSNorm(d_model, eps=NORM_EPSILON) if norm == "rms" else nn.Identity()


class SwiGLU(nn.Module):
    """Returns (..., F), the first half of x (..., 2 F) times the SiLU of the second half (Shazeer 2020, equation 6). One linear
    layer computes both halves."""

    def forward(self, x: Tensor) -> Tensor:
        linear, gate = x.chunk(2, dim=-1)
        return linear * F.silu(gate)


class Block(nn.Module):
    """Base class of encoder and decoder blocks. They apply a sublayer f as `x = after(residual(x, f(before(x))))`. The argument
    `residual` lists the sublayers with a residual connection; the attribute `residual` maps every sublayer to a Residual."""

    names: tuple[Sublayer, ...]

    def __init__(
        self,
        make_attention: Callable[[Sublayer], MultiHeadAttention],
        d_model: int,
        d_ff: int,
        dropout: float,
        residual: Sequence[Sublayer] = SUBLAYERS,
        norm: Norm = "pre",
        sublayers: Sequence[Sublayer] = SUBLAYERS,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        self.present = tuple(name for name in self.names if name in sublayers)
        self.before = nn.ModuleDict({n: norm_before(norm, d_model) for n in self.present})
        self.after = nn.ModuleDict({n: nn.LayerNorm(d_model) if norm == "post" else nn.Identity() for n in self.present})
        self.residual = nn.ModuleDict({n: Residual(keep=n in residual, dropout=dropout) for n in self.present})
        if "ff" in self.present:
            gated = activation == "swiglu"
            width = round(2 * d_ff / 3) if gated else d_ff  # the gated network has about as many weights as the ungated one
            first = nn.Linear(d_model, 2 * width if gated else width)
            self.ff = nn.Sequential(first, SwiGLU() if gated else nn.ReLU(), nn.Linear(width, d_model))  # section 3.3
        if "self" in self.present:
            self.self_attention = make_attention("self")
        if "cross" in self.present:
            self.cross_attention = make_attention("cross")

    def last_layers(self) -> list[Any]:
        """Returns the last linear layer of each sublayer."""
        return [self.ff[-1] if name == "ff" else getattr(self, f"{name}_attention").out for name in self.present]

    def sublayer(self, name: Sublayer, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        """Applies sublayer f to x (B, T, D). If the block lacks this sublayer, returns x and does not call f."""
        if name not in self.present:
            return x
        return self.after[name](self.residual[name](x, f(self.before[name](x))))


class EncoderBlock(Block):
    """Self-attention over the source, then the feed-forward network."""

    names = ("self", "ff")

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the block's output (B, S, D) for x (B, S, D), with mask (B, 1, 1, S)."""
        x = self.sublayer("self", x, lambda h: self.self_attention(h, self.self_attention.project(h), mask))
        return self.sublayer("ff", x, lambda h: self.ff(h))


class DecoderBlock(Block):
    """Masked self-attention over the target so far, cross-attention to the source, then the feed-forward network."""

    names = SUBLAYERS

    def project(self, memory: Tensor) -> KV:
        """Returns the keys and values (B, H, S, K) of memory (B, S, D). Without cross-attention, returns empty tensors
        (B, 0, D), so that `select` still has B rows to index."""
        return self.cross_attention.project(memory) if "cross" in self.present else KV(memory[:, :0], memory[:, :0])

    def forward(self, x: Tensor, past: KV, memory: KV, causal: Tensor | None, src_mask: Tensor | None) -> tuple[Tensor, KV]:
        """Returns the output (B, T, D) for new tokens x (B, T, D), and `past` (B, H, P, K) extended by their KV."""
        h = self.before["self"](x)  # `sublayer` cannot be used, because the keys and values of h are returned too
        extended = past.extend(self.self_attention.project(h))  # (B, H, P + T, K)
        x = self.after["self"](self.residual["self"](x, self.self_attention(h, extended, causal)))
        x = self.sublayer("cross", x, lambda h: self.look_up(h, memory, src_mask))
        return self.sublayer("ff", x, lambda h: self.ff(h)), extended

    def look_up(self, h: Tensor, memory: KV, src_mask: Tensor | None) -> Tensor:
        """Applies cross-attention to h (B, T, D). The beams of a sentence attend to its memory as separate queries."""
        together = h.reshape(len(memory.key), -1, h.size(-1))  # (sentences, beams * T, D)
        return self.cross_attention(together, memory, src_mask).view_as(h)


# Both tuples have one KV per decoder block: (B, H, P, K) in `written`, the target cache, and (B, H, S, K) in `memory`.
TransformerState = State[tuple[KV, ...], tuple[KV, ...]]


def sinusoids(start: int, length: int, d_model: int, like: Tensor) -> Tensor:
    """Returns the sines and cosines (length, D) of the angles of positions start .. start + length - 1, in the dtype of `like`
    (section 3.5)."""
    angle = angles(start, length, d_model, like)  # (length, D / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[:, :d_model].to(like.dtype)  # drops a cosine if D is odd


def check_self_attention(sublayers: Sequence[Sublayer]) -> None:
    """Raises ValueError if `self` is missing: a decoder sees earlier target tokens only through its self-attention."""
    if "self" not in sublayers:
        raise ValueError(f"sublayers={list(sublayers)} must include self; only cross and ff can be left out")


class Transformer(Seq2Seq):
    """Encoder-decoder Transformer. residual, sublayers: `self` means encoder and decoder self-attention. norm: `pre` is before
    each sublayer (Xiong et al. 2020), `post` after each residual connection (Vaswani et al. 2017), and `rms` is RMSNorm before
    each sublayer (Zhang & Sennrich 2019). activation: ReLU (Vaswani et al. 2017, section 3.3), or SwiGLU (Shazeer 2020).
    zero_init: at first, sublayers return 0 and pre-norm blocks are the identity (Goyal et al. 2017, section 5.1). tied: see
    Press & Wolf 2017. positions: `sinusoidal` and `learned` are added to the embeddings (Vaswani et al. 2017, section 3.5);
    `rotary` rotates the queries and keys of self-attention (Su et al. 2021). The last six arguments are passed to
    MultiHeadAttention."""

    relations = (*MultiHeadAttention.relations, check_self_attention)  # read by config/schema.py

    def __init__(
        self,
        src_vocab: VocabularySize,
        tgt_vocab: VocabularySize,
        shared_vocab: bool,  # whether source and target share one vocabulary
        pad_id: TokenId,
        seed: Seed,
        d_model: Annotated[Width, doc("width of every layer")] = 128,
        n_heads: Annotated[int, Interval(ge=1, le=128), doc("attention heads per layer")] = 4,
        n_layers: Annotated[int, Interval(ge=1, le=64), doc("number of layers in the encoder, and in the decoder")] = 3,
        d_ff: Annotated[int, Interval(ge=1, le=65536), doc("hidden width of the feed-forward network; swiglu uses 2/3")] = 512,
        dropout: Annotated[DropoutRate, doc("dropout on embeddings and sublayer outputs")] = 0.1,
        attention_dropout: Annotated[DropoutRate, doc("dropout on attention weights")] = 0.0,
        residual: Annotated[Sequence[Sublayer], doc("sublayers that have a residual connection")] = SUBLAYERS,
        norm: Annotated[Norm, doc("where layer normalisation is applied; rms: like pre, with RMSNorm")] = "pre",
        activation: Annotated[Activation, doc("activation between the two layers of the feed-forward network")] = "relu",
        zero_init: Annotated[bool, doc("initialise the last layer of each sublayer to zero")] = False,
        tied: Annotated[
            bool, doc("use the target embedding as output projection, and as source embedding if the vocabulary is joint")
        ] = True,
        positions: Annotated[Positions, doc("how positions are encoded")] = "sinusoidal",
        sublayers: Annotated[Sequence[Sublayer], doc("sublayers of each layer")] = SUBLAYERS,
        mask_padding: Annotated[bool, doc("hide source padding from attention")] = True,
        mask_future: Annotated[bool, doc("hide later target tokens from each token")] = True,
        score: Annotated[Score, doc("how a query is compared with a key")] = "dot",
        scale: Annotated[
            Scale, doc("divisor of dot products; d_k: sqrt(d_k); n_keys: sqrt(number of visible keys); none: 1")
        ] = "d_k",
        projections: Annotated[Sequence[Projection], doc("projections that are learned")] = PROJECTIONS,
        d_k: Annotated[Width | None, doc("width of a head; null: d_model / n_heads")] = None,
        softmax: Annotated[SoftmaxOver, doc("axis of the softmax; keys: the weights of each query sum to 1")] = "keys",
        mask_value: Annotated[Annotated[float, Le(0)] | None, doc("value of a masked score; null: minus infinity")] = None,
    ) -> None:
        super().__init__()
        refuse_unknown(residual=(residual, Sublayer), sublayers=(sublayers, Sublayer))
        refuse_unknown(norm=(norm, Norm), positions=(positions, Positions), activation=(activation, Activation))
        check_self_attention(sublayers)
        self.pad_id, self.d_model, self.n_heads = pad_id, d_model, n_heads
        self.positions: Positions = positions
        self.mask_padding, self.mask_future = mask_padding, mask_future
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model, padding_idx=pad_id)
        self.src_embedding = self.tgt_embedding if tied and shared_vocab else nn.Embedding(src_vocab, d_model, pad_id)
        if positions == "learned":
            self.src_position = nn.Embedding(LEARNED_POSITIONS, d_model)
            self.tgt_position = nn.Embedding(LEARNED_POSITIONS, d_model)
        self.dropout = nn.Dropout(dropout)

        def make_attention(sublayer: Sublayer) -> MultiHeadAttention:
            heads = partial(MultiHeadAttention, d_model, n_heads, attention_dropout, d_k=d_k, projections=projections)
            rotary = positions == "rotary" and sublayer == "self"
            return heads(score=score, scale=scale, softmax=softmax, mask_value=mask_value, rotary=rotary)

        options: dict[str, Any] = {"residual": residual, "norm": norm, "sublayers": sublayers, "activation": activation}
        self.encoder = nn.ModuleList(EncoderBlock(make_attention, d_model, d_ff, dropout, **options) for _ in range(n_layers))
        self.encoder_norm = norm_before(norm, d_model)
        self.decoder = nn.ModuleList(DecoderBlock(make_attention, d_model, d_ff, dropout, **options) for _ in range(n_layers))
        self.decoder_norm = norm_before(norm, d_model)
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        if tied:
            self.output.weight = self.tgt_embedding.weight
        # `_embed` multiplies by sqrt(D), so embeddings have variance 1/2, like the sinusoids, and neither dominates the sum.
        initialise(self, seed, embedding_std=(2 * d_model) ** -0.5)
        if zero_init:
            for block in [*self.encoder, *self.decoder]:
                for layer in cast(Block, block).last_layers():
                    nn.init.zeros_(layer.weight)

    def _embed(self, side: Side, ids: Tensor, start: int) -> Tensor:
        """Returns the embeddings (B, T, D) of ids (B, T) at positions start .. start + T - 1."""
        embedding = self.src_embedding if side == "src" else self.tgt_embedding
        x = embedding(ids) * math.sqrt(self.d_model)  # section 3.4
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
        return table(rows) * math.sqrt(self.d_model)

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
        for block, past, memory in zip(self.decoder, state.written, state.source.memory, strict=True):
            x, extended = block(x, past, memory, causal, state.source.mask)
            written.append(extended)
        return self.decoder_norm(x), State(tuple(written), state.source)
