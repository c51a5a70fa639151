"""The attentional BiRNN of Bahdanau, Cho & Bengio 2015: a bidirectional GRU reads, a GRU with additive attention writes.

At step i, with s the decoder's state, y the token read and h the encoder's outputs:

    c_i = attention(query = s_{i-1}, keys = values = h)          section 3.1
    s_i = GRU([y_{i-1}; c_i], s_{i-1})                           A.2.2
    t_i = maxout(W [s_i; y_{i-1}; c_i])                          A.2.2, with s_i as in equation 4

The GRU is torch's, which applies the reset gate r after the recurrent product, tanh(W x + r * (U s)); theirs applies it before,
tanh(W x + U (r * s)) (A.1.1; Cho et al. 2014).

What does not depend on the step before (keys, the embeddings' share of the gates, readout) is computed outside the loop.

Shapes: B batch, S source length, T target length, E embedding width, D state width, R directions the encoder reads in, M = R D
width of its output, G gates of a cell: 3 of a GRU, 4 of an LSTM.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple, assert_never

import torch
from annotated_types import doc
from torch import Tensor, nn
from torch.nn import functional as F

from entente.models.attention import (
    KV,
    AdditiveAttention,
    AttentionWeights,
    BilinearAttention,
    DotProductAttention,
    NoAttention,
    SoftmaxOver,
)
from entente.models.dropout import Dropout
from entente.models.initialise import initialise
from entente.models.seq2seq import DropoutRate, Residual, Seed, Seq2Seq, State, TokenId, VocabularySize, Width, padding_mask

Cell = Literal["gru", "lstm"]
RecurrentScore = Literal["additive", "dot", "bilinear", "none"]
Readout = Literal["maxout", "residual", "context"]
Recurrent = tuple[Tensor, ...]  # (h,) of a GRU, (h, c) of an LSTM, each (B, D); in the encoder (R, B, D)


class Source(NamedTuple):
    """Keys and values of the encoder's outputs, and the source mask."""

    memory: KV  # keys (B, S, A), values (B, S, M)
    mask: Tensor  # (B, 1, S)


BiRNNState = State[Recurrent, Source]  # written: the decoder's recurrent state


def gru_step(input_gates: Tensor, hidden_gates: Tensor, state: Recurrent) -> Recurrent:
    """One step of torch's GRUCell whose products (..., 3 D) with input and state are there already; the reset gate multiplies
    the product with the state, not the state."""
    (hidden,) = state
    input_r, input_z, input_n = input_gates.chunk(3, dim=-1)
    hidden_r, hidden_z, hidden_n = hidden_gates.chunk(3, dim=-1)
    reset = torch.sigmoid(input_r + hidden_r)
    update = torch.sigmoid(input_z + hidden_z)
    return (torch.lerp(torch.tanh(input_n + reset * hidden_n), hidden, update),)


def lstm_step(input_gates: Tensor, hidden_gates: Tensor, state: Recurrent) -> Recurrent:
    """One step of torch's LSTMCell whose products (..., 4 D) with input and state are there already."""
    hidden, cell = state
    let_in, forget, new, out = (input_gates + hidden_gates).chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(let_in) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(cell), cell


Step = Callable[[Tensor, Tensor, Recurrent], Recurrent]
CELLS: dict[Cell, tuple[type[nn.GRU | nn.LSTM], type[nn.GRUCell | nn.LSTMCell], Step]] = {
    "gru": (nn.GRU, nn.GRUCell, gru_step),
    "lstm": (nn.LSTM, nn.LSTMCell, lstm_step),
}


class BiRNN(Seq2Seq):
    """tied: the output projection is the target embedding (Press & Wolf 2017), and the source embedding too where both
    languages share one vocabulary. score: how the decoder's state is compared with the source; `none` is no attention, every
    step gets the last state of each direction (Cho et al. 2014). cell: of encoder and decoder. readout: `maxout` as published;
    `residual` is W (s_i + U c_i), the state added to what attention brought, `context` the same without the state, W U c_i.
    mask_padding: hide the source's padding from attention; the encoder never reads it. softmax: see AttentionWeights."""

    step: Step

    def __init__(
        self,
        src_vocab: VocabularySize,
        tgt_vocab: VocabularySize,
        shared_vocab: bool,
        pad_id: TokenId,
        seed: Seed,
        d_embedding: Annotated[Width, doc("width of the embeddings")] = 256,
        d_hidden: Annotated[Width, doc("width of each direction of the encoder, and of the decoder")] = 256,
        d_attention: Annotated[Width, doc("width of the additive score")] = 256,
        dropout: Annotated[DropoutRate, doc("of embeddings, memory and readout")] = 0.2,
        tied: Annotated[bool, doc("output projection = target embedding (= source embedding with a joint vocabulary)")] = True,
        score: Annotated[RecurrentScore, doc("none: no attention, the source is its last state")] = "additive",
        cell: Annotated[Cell, doc("recurrent cell of encoder and decoder")] = "gru",
        bidirectional: Annotated[bool, doc("the encoder reads from both ends")] = True,
        readout: Annotated[Readout, doc("residual: state + context; context: the context alone")] = "maxout",
        mask_padding: Annotated[bool, doc("hide the padding of the source from attention")] = True,
        softmax: Annotated[SoftmaxOver, doc("axis that the softmax normalises; keys: over the keys of a query")] = "keys",
    ) -> None:
        super().__init__()
        d_source = 2 * d_hidden if bidirectional else d_hidden  # M
        self.pad_id = pad_id
        self.mask_padding = mask_padding
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_embedding, padding_idx=pad_id)
        self.src_embedding = self.tgt_embedding if tied and shared_vocab else nn.Embedding(src_vocab, d_embedding, pad_id)
        self.dropout = Dropout(dropout)
        network, step_network, self.step = CELLS[cell]
        self.encoder = network(d_embedding, d_hidden, batch_first=True, bidirectional=bidirectional)
        self.first_hidden = nn.Linear(d_hidden, d_hidden)  # their W_s
        weights = AttentionWeights(softmax)
        self.attention: AdditiveAttention | BilinearAttention | DotProductAttention | NoAttention
        if score == "additive":
            self.attention = AdditiveAttention(d_hidden, d_source, d_attention, weights)
        elif score == "bilinear":
            self.attention = BilinearAttention(d_hidden, d_source, weights)
        elif score == "dot":
            self.attention = DotProductAttention(d_hidden, d_source, weights)
        elif score == "none":
            self.attention = NoAttention()
        else:
            assert_never(score)
        self.cell = step_network(d_embedding + d_source, d_hidden)
        self.maxout = readout == "maxout"
        if readout == "maxout":
            self.readout = nn.Linear(d_hidden + d_embedding + d_source, 2 * d_embedding)
        elif readout == "residual" or readout == "context":
            self.context = nn.Linear(d_source, d_hidden)
            self.residual = Residual(readout == "residual", dropout=0.0)
            self.readout = nn.Linear(d_hidden, d_embedding)
        else:
            assert_never(readout)
        self.output = nn.Linear(d_embedding, tgt_vocab, bias=False)
        if tied:
            self.output.weight = self.tgt_embedding.weight
        initialise(self, seed, embedding_std=0.02)

    def encode(self, src: Tensor) -> BiRNNState:
        mask = padding_mask(src, self.pad_id)
        memory, last = self._read(self.dropout(self.src_embedding(src)), mask)
        hidden = torch.tanh(self.first_hidden(last[-1]))  # of the backward direction at the first token
        recurrent = (hidden,) if self.step is gru_step else (hidden, torch.zeros_like(hidden))
        if isinstance(self.attention, NoAttention):
            memory, mask = last.transpose(0, 1).flatten(1).unsqueeze(1), mask[:, :1]
        if not self.mask_padding:
            mask = torch.ones_like(mask)
        return BiRNNState(recurrent, Source(self.attention.project(self.dropout(memory)), mask[:, None, :]))

    def _read(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """embedded (B, S, E), mask (B, S) -> outputs (B, S, M), and the last state of each direction (R, B, D): what torch's
        network gives for packed sentences. Here all directions take a step in one product, and gradients cost what the sentence
        is long; of torch's loop on a CPU they cost its square."""
        suffixes = ("", "_reverse") if self.encoder.bidirectional else ("",)
        names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        w_ih, b_ih, w_hh, b_hh = ([getattr(self.encoder, f"{name}_l0{suffix}") for suffix in suffixes] for name in names)
        gates = [F.linear(embedded, w, b).unbind(1) for w, b in zip(w_ih, b_ih, strict=True)]  # R x S x (B, G D)
        there = mask.unsqueeze(-1).unbind(1)  # S x (B, 1)
        if len(suffixes) == 2:  # the backward direction takes its steps from the end
            gates[1], from_there = gates[1][::-1], [torch.stack(pair) for pair in zip(there, there[::-1], strict=True)]
        else:
            from_there = [real.unsqueeze(0) for real in there]
        w_hidden, b_hidden = torch.stack(w_hh).transpose(1, 2), torch.stack(b_hh).unsqueeze(1)  # (R, D, G D), (R, 1, G D)
        nothing = gates[0][0].new_zeros(len(suffixes), len(embedded), self.encoder.hidden_size)
        state: Recurrent = (nothing,) if self.step is gru_step else (nothing, nothing)
        outputs = []
        for *input_gates, real in zip(*gates, from_there, strict=True):
            new = self.step(torch.stack(input_gates), torch.baddbmm(b_hidden, state[0], w_hidden), state)
            state = tuple(torch.where(real, a, b) for a, b in zip(new, state, strict=True))  # padding changes nothing
            outputs.append(state[0])
        read = torch.stack(outputs, dim=2)  # (R, B, S, D), each direction in its own order
        in_order = [read[0], read[1].flip(1)] if len(suffixes) == 2 else [read[0]]
        return torch.cat(in_order, dim=-1) * mask.unsqueeze(-1), state[0]

    def decode(self, tgt: Tensor, state: BiRNNState) -> tuple[Tensor, BiRNNState]:
        embedded = self.dropout(self.tgt_embedding(tgt))  # (B, T, E)
        memory, mask = state.source
        weight_embedded, weight_context = self.cell.weight_ih.split([embedded.size(-1), memory.value.size(-1)], dim=1)
        gates = F.linear(embedded, weight_embedded, self.cell.bias_ih)  # (B, T, 3 D), of an LSTM 4 D
        recurrent, hiddens, contexts = state.written, [], []
        for input_gates in gates.unbind(1):
            together = recurrent[0].unflatten(0, (len(memory.value), -1))  # rows that share a source ask it together
            context = self.attention(together, memory, mask).flatten(0, 1)  # (B, M)
            input_gates = input_gates + F.linear(context, weight_context)
            recurrent = self.step(input_gates, F.linear(recurrent[0], self.cell.weight_hh, self.cell.bias_hh), recurrent)
            hiddens.append(recurrent[0])
            contexts.append(context)
        read_out = self._read_out(torch.stack(hiddens, 1), embedded, torch.stack(contexts, 1))
        return self.dropout(read_out), BiRNNState(recurrent, state.source)

    def _read_out(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """hidden (B, T, D), embedded (B, T, E), context (B, T, M) -> (B, T, E)."""
        if self.maxout:
            both = self.readout(torch.cat([hidden, embedded, context], dim=-1))
            return both.unflatten(-1, (-1, 2)).amax(-1)  # Goodfellow et al. 2013
        return self.readout(self.residual(hidden, self.context(context)))
