"""The attentional BiRNN of Bahdanau, Cho & Bengio 2015: a bidirectional GRU reads, a GRU with additive attention writes.

At step i, with s the decoder's state, y the token read and h the encoder's outputs:

    c_i = attention(query = s_{i-1}, keys = values = h)          section 3.1
    s_i = GRU([y_{i-1}; c_i], s_{i-1})                           A.2.2
    t_i = maxout(W [s_i; y_{i-1}; c_i])                          A.2.2, with s_i as in equation 4

What does not depend on the step before (keys, the embeddings' share of the gates, readout) is computed outside the loop.

Shapes: B batch, S source length, T target length, E embedding width, D state width, M = 2 D width of the encoder's output.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from entente.models.attention import KV, AdditiveAttention
from entente.models.seq2seq import Dropout, Seed, Seq2Seq, TokenId, VocabularySize, Width, initialise, padding_mask


class BiRNNState(NamedTuple):
    """The decoder's hidden state, the source's keys and values, and the source mask."""

    hidden: Tensor  # (B, D)
    memory: KV  # keys (B, S, A), values (B, S, M)
    src_mask: Tensor  # (B, 1, S)


def gru_step(input_gates: Tensor, hidden: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> Tensor:
    """One step of torch's GRUCell whose input products (B, 3 D) are there already. hidden (B, D) -> (B, D)."""
    input_r, input_z, input_n = input_gates.chunk(3, dim=-1)
    hidden_r, hidden_z, hidden_n = F.linear(hidden, weight_hh, bias_hh).chunk(3, dim=-1)
    reset = torch.sigmoid(input_r + hidden_r)
    update = torch.sigmoid(input_z + hidden_z)
    return torch.lerp(torch.tanh(input_n + reset * hidden_n), hidden, update)


class BiRNN(Seq2Seq):
    """tied: the output projection is the target embedding (Press & Wolf 2017), and the source embedding too where both
    languages share one vocabulary."""

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
    ) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_embedding, padding_idx=pad_id)
        self.src_embedding = self.tgt_embedding if tied and shared_vocab else nn.Embedding(src_vocab, d_embedding, pad_id)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.GRU(d_embedding, d_hidden, batch_first=True, bidirectional=True)
        self.first_hidden = nn.Linear(d_hidden, d_hidden)  # their W_s
        self.attention = AdditiveAttention(d_hidden, 2 * d_hidden, d_attention)
        self.cell = nn.GRUCell(d_embedding + 2 * d_hidden, d_hidden)
        self.readout = nn.Linear(d_hidden + d_embedding + 2 * d_hidden, 2 * d_embedding)
        self.output = nn.Linear(d_embedding, tgt_vocab, bias=False)
        if tied:
            self.output.weight = self.tgt_embedding.weight
        initialise(self, seed)

    def encode(self, src: Tensor) -> BiRNNState:
        mask = padding_mask(src, self.pad_id)
        embedded = self.dropout(self.src_embedding(src))
        # Packed, so that the backward direction starts at the last real token, not in the padding.
        packed = pack_padded_sequence(embedded, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.encoder(packed)
        memory, _ = pad_packed_sequence(outputs, batch_first=True, total_length=src.size(1))  # (B, S, M)
        hidden = torch.tanh(self.first_hidden(last[1]))  # the backward direction's state at the first token
        return BiRNNState(hidden, self.attention.project(self.dropout(memory)), mask[:, None, :])

    def decode(self, tgt: Tensor, state: BiRNNState) -> tuple[Tensor, BiRNNState]:
        embedded = self.dropout(self.tgt_embedding(tgt))  # (B, T, E)
        weight_embedded, weight_context = self.cell.weight_ih.split([embedded.size(-1), state.memory.value.size(-1)], dim=1)
        gates = F.linear(embedded, weight_embedded, self.cell.bias_ih)  # (B, T, 3 D)
        hidden, hiddens, contexts = state.hidden, [], []
        for step in gates.unbind(1):
            context = self.attention(hidden.unsqueeze(1), state.memory, state.src_mask).squeeze(1)  # (B, M)
            step = step + F.linear(context, weight_context)
            hidden = gru_step(step, hidden, self.cell.weight_hh, self.cell.bias_hh)
            hiddens.append(hidden)
            contexts.append(context)
        readout = self.readout(torch.cat([torch.stack(hiddens, 1), embedded, torch.stack(contexts, 1)], dim=-1))
        maxout = readout.unflatten(-1, (-1, 2)).amax(-1)  # (B, T, E), Goodfellow et al. 2013
        return self.dropout(maxout), state._replace(hidden=hidden)
