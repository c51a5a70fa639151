"""The attentional BiRNN of Bahdanau, Cho & Bengio 2015: a bidirectional GRU reads, a GRU with additive attention writes.

At step i, with s the decoder's state, y the token read and h the encoder's outputs:

    c_i = attention(query = s_{i-1}, keys = values = h)          section 3.1
    s_i = GRU([y_{i-1}; c_i], s_{i-1})                           A.2.2
    t_i = maxout(W [s_i; y_{i-1}; c_i])                          A.2.2, with s_i as in equation 4

What does not depend on the step before (keys, the embeddings' share of the gates, readout) is computed outside the loop.

Shapes: B batch, S source length, T target length, E embedding width, D state width, M width of the encoder's output: 2 D, or D
where it reads in one direction.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from entente.models.attention import (
    KV,
    AdditiveAttention,
    AttentionWeights,
    BilinearAttention,
    DotProductAttention,
    NoAttention,
    SoftmaxOver,
)
from entente.models.seq2seq import (
    Dropout,
    Residual,
    Seed,
    Seq2Seq,
    TokenId,
    VocabularySize,
    Width,
    initialise,
    padding_mask,
)

Cell = Literal["gru", "lstm"]
RecurrentScore = Literal["additive", "dot", "bilinear", "none"]
Readout = Literal["maxout", "residual", "context"]
Recurrent = tuple[Tensor, ...]  # (h,) of a GRU, (h, c) of an LSTM, each (B, D)


class BiRNNState(NamedTuple):
    """The decoder's recurrent state, the source's keys and values, and the source mask."""

    recurrent: Recurrent
    memory: KV  # keys (B, S, A), values (B, S, M)
    src_mask: Tensor  # (B, 1, S)


def gru_step(input_gates: Tensor, state: Recurrent, weight_hh: Tensor, bias_hh: Tensor) -> Recurrent:
    """One step of torch's GRUCell whose input products (B, 3 D) are there already."""
    (hidden,) = state
    input_r, input_z, input_n = input_gates.chunk(3, dim=-1)
    hidden_r, hidden_z, hidden_n = F.linear(hidden, weight_hh, bias_hh).chunk(3, dim=-1)
    reset = torch.sigmoid(input_r + hidden_r)
    update = torch.sigmoid(input_z + hidden_z)
    return (torch.lerp(torch.tanh(input_n + reset * hidden_n), hidden, update),)


def lstm_step(input_gates: Tensor, state: Recurrent, weight_hh: Tensor, bias_hh: Tensor) -> Recurrent:
    """One step of torch's LSTMCell whose input products (B, 4 D) are there already."""
    hidden, cell = state
    let_in, forget, new, out = (input_gates + F.linear(hidden, weight_hh, bias_hh)).chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(let_in) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(cell), cell


Step = Callable[[Tensor, Recurrent, Tensor, Tensor], Recurrent]
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
        d_embedding: Width = 256,
        d_hidden: Width = 256,
        d_attention: Width = 256,
        dropout: Dropout = 0.1,
        tied: bool = True,
        score: RecurrentScore = "additive",
        cell: Cell = "gru",
        bidirectional: bool = True,
        readout: Readout = "maxout",
        mask_padding: bool = True,
        softmax: SoftmaxOver = "keys",
    ) -> None:
        super().__init__()
        d_source = 2 * d_hidden if bidirectional else d_hidden  # M
        self.pad_id = pad_id
        self.mask_padding = mask_padding
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_embedding, padding_idx=pad_id)
        self.src_embedding = self.tgt_embedding if tied and shared_vocab else nn.Embedding(src_vocab, d_embedding, pad_id)
        self.dropout = nn.Dropout(dropout)
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
        embedded = self.dropout(self.src_embedding(src))
        # Packed, so that the backward direction starts at the last real token, not in the padding.
        packed = pack_padded_sequence(embedded, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.encoder(packed)
        last = last[0] if isinstance(last, tuple) else last  # (directions, B, D); of an LSTM, h and not c
        memory, _ = pad_packed_sequence(outputs, batch_first=True, total_length=src.size(1))  # (B, S, M)
        hidden = torch.tanh(self.first_hidden(last[-1]))  # of the backward direction at the first token
        recurrent = (hidden,) if self.step is gru_step else (hidden, torch.zeros_like(hidden))
        if isinstance(self.attention, NoAttention):
            memory, mask = last.transpose(0, 1).flatten(1).unsqueeze(1), mask[:, :1]
        if not self.mask_padding:
            mask = torch.ones_like(mask)
        return BiRNNState(recurrent, self.attention.project(self.dropout(memory)), mask[:, None, :])

    def decode(self, tgt: Tensor, state: BiRNNState) -> tuple[Tensor, BiRNNState]:
        embedded = self.dropout(self.tgt_embedding(tgt))  # (B, T, E)
        weight_embedded, weight_context = self.cell.weight_ih.split([embedded.size(-1), state.memory.value.size(-1)], dim=1)
        gates = F.linear(embedded, weight_embedded, self.cell.bias_ih)  # (B, T, 3 D), of an LSTM 4 D
        recurrent, hiddens, contexts = state.recurrent, [], []
        for input_gates in gates.unbind(1):
            context = self.attention(recurrent[0].unsqueeze(1), state.memory, state.src_mask).squeeze(1)  # (B, M)
            input_gates = input_gates + F.linear(context, weight_context)
            recurrent = self.step(input_gates, recurrent, self.cell.weight_hh, self.cell.bias_hh)
            hiddens.append(recurrent[0])
            contexts.append(context)
        read_out = self._read_out(torch.stack(hiddens, 1), embedded, torch.stack(contexts, 1))
        return self.dropout(read_out), state._replace(recurrent=recurrent)

    def _read_out(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """hidden (B, T, D), embedded (B, T, E), context (B, T, M) -> (B, T, E)."""
        if self.maxout:
            both = self.readout(torch.cat([hidden, embedded, context], dim=-1))
            return both.unflatten(-1, (-1, 2)).amax(-1)  # Goodfellow et al. 2013
        return self.readout(self.residual(hidden, self.context(context)))
