"""The BiRNN of Bahdanau, Cho & Bengio 2015: a bidirectional GRU encoder, and a GRU decoder with additive attention.

At step i, with decoder state s, embedded target token y and encoder outputs h:

    c_i = attention(query = s_{i-1}, keys = U h, values = h)     section 3.1
    s_i = GRU([y_{i-1}; c_i], s_{i-1})                           A.2.2
    t_i = maxout(W [s_i; y_{i-1}; c_i])                          equation 4; A.2.2 has s_{i-1} in place of s_i

The GRU is torch's. Its candidate state is tanh(W x + r * (U s)), with the reset gate r applied after the recurrent product. The
paper applies r before the product, tanh(W x + U (r * s)) (A.1.1; Cho et al. 2014).

Shapes: B batch, S source length, T target length, E width of embeddings and of the decoder's output (D in seq2seq.py), D state
width, R number of encoder directions, M = R D width of the encoder's output, A width of the additive score and its keys.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from entente.models.attention import KV, AdditiveAttention, BilinearAttention, DotProductAttention, NoAttention
from entente.models.initialise import initialise
from entente.models.seq2seq import Residual, Seq2Seq, Sizes, Source, State, padding_mask
from entente.settings import BiRNNSettings

Recurrent = tuple[Tensor, ...]  # (h,) for a GRU, (h, c) for an LSTM; h and c are (B, D)
BiRNNState = State[Recurrent, KV]  # `source.kv` has keys (B, S, A) or (B, S, D), and values (B, S, M)


class BiRNN(Seq2Seq):
    """Recurrent encoder-decoder. tied: see Press & Wolf 2017. score: with `none`, every decoder step receives the encoder's
    last state in each direction (Cho et al. 2014). readout: `maxout` is as published, `residual` is W (s_i + P c_i), and
    `context` is W P c_i, which does not depend on the token just read. mask_padding: whether attention ignores padding; the
    encoder always does. softmax: outside beam search, each step has one query, so normalising over `queries` makes all weights
    1."""

    def __init__(self, sizes: Sizes, settings: BiRNNSettings) -> None:
        super().__init__()
        d_embedding, d_hidden, softmax, pad_id = settings.d_embedding, settings.d_hidden, settings.softmax, sizes.pad_id
        d_source = 2 * d_hidden if settings.bidirectional else d_hidden  # M
        self.pad_id, self.mask_padding = pad_id, settings.mask_padding
        shares_embedding = settings.tied and sizes.shared_vocab
        self.tgt_embedding = nn.Embedding(sizes.tgt_vocab, d_embedding, padding_idx=pad_id)
        self.src_embedding = self.tgt_embedding if shares_embedding else nn.Embedding(sizes.src_vocab, d_embedding, pad_id)
        self.dropout = nn.Dropout(settings.dropout)
        network, step = (nn.LSTM, nn.LSTMCell) if settings.cell == "lstm" else (nn.GRU, nn.GRUCell)
        self.encoder = network(d_embedding, d_hidden, batch_first=True, bidirectional=settings.bidirectional)
        self.first_hidden = nn.Linear(d_hidden, d_hidden)  # W_s of the paper
        self.attention: Any = {
            "additive": lambda: AdditiveAttention(d_hidden, d_source, settings.d_attention, softmax),
            "bilinear": lambda: BilinearAttention(d_hidden, d_source, softmax),
            "dot": lambda: DotProductAttention(d_hidden, softmax),
            "none": lambda: NoAttention(),
        }[settings.score]()
        self.cell = step(d_embedding + d_source, d_hidden)
        # Hooks on these two see, and may replace, the encoder's outputs and the states s_i.
        self.memory, self.state = nn.Identity(), nn.Identity()
        self.maxout = settings.readout == "maxout"
        if self.maxout:
            self.readout = nn.Linear(d_hidden + d_embedding + d_source, 2 * d_embedding)
        else:
            self.context = nn.Linear(d_source, d_hidden)
            self.residual = Residual(keep=settings.readout == "residual", dropout=0.0)
            self.readout = nn.Linear(d_hidden, d_embedding)
        self.output = nn.Linear(d_embedding, sizes.tgt_vocab, bias=False)
        if settings.tied:
            self.output.weight = self.tgt_embedding.weight
        initialise(self, sizes.seed, embedding_std=0.02, forget_bias=settings.forget_bias)

    def encode(self, src: Tensor) -> BiRNNState:
        mask = padding_mask(src, self.pad_id)
        memory, last = self.read(self.dropout(self.src_embedding(src)), mask)  # (B, S, M), (R, B, D)
        # last[-1] is the backward state at the first token (A.2.2), or a unidirectional encoder's state at the last token.
        hidden = torch.tanh(self.first_hidden(last[-1]))
        recurrent = (hidden,) if isinstance(self.cell, nn.GRUCell) else (hidden, torch.zeros_like(hidden))
        if isinstance(self.attention, NoAttention):  # the decoder sees only the last state of each direction
            memory, mask = last.transpose(0, 1).flatten(1).unsqueeze(1), mask[:, :1]  # (B, 1, M), (B, 1) of True
        if not self.mask_padding:
            mask = torch.ones_like(mask)
        return State(recurrent, Source(self.attention.project(self.dropout(self.memory(memory))), mask[:, None, :]))

    def read(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Runs the encoder on embedded (B, S, E) with mask (B, S). Returns outputs (B, S, M), which are 0 at padding, and the
        last state of each direction (R, B, D). Packing makes the backward direction start at each row's last real token."""
        packed = pack_padded_sequence(embedded, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.encoder(packed)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=mask.size(1))
        return outputs, last[0] if isinstance(self.encoder, nn.LSTM) else last

    def decode(self, tgt: Tensor, state: BiRNNState) -> tuple[Tensor, BiRNNState]:
        embedded = self.dropout(self.tgt_embedding(tgt))  # (B, T, E)
        states, contexts, recurrent = self.write(embedded, state)
        if self.maxout:
            pairs = self.readout(torch.cat([states, embedded, contexts], dim=-1))  # (B, T, 2 E)
            read_out = pairs.unflatten(-1, (-1, 2)).amax(-1)  # (B, T, E), Goodfellow et al. 2013
        else:
            read_out = self.readout(self.residual(states, self.context(contexts)))
        return self.dropout(read_out), State(recurrent, state.source)

    def write(self, embedded: Tensor, state: BiRNNState) -> tuple[Tensor, Tensor, Recurrent]:
        """Runs the decoder on embedded (B, T, E). Returns the states s_i (B, T, D), the contexts c_i (B, T, M) and the final
        recurrent state. The beams of a sentence attend to its source as separate queries."""
        kv, mask = state.source
        recurrent, hiddens, contexts = state.written, [], []
        for y in embedded.unbind(1):  # (B, E)
            query = recurrent[0].unflatten(0, (len(kv.value), -1))  # s_{i-1}: (sentences, beams, D)
            context = self.attention(query, kv, mask).flatten(0, 1)  # (B, M)
            x = torch.cat([y, context], dim=-1)
            # An LSTMCell takes and returns a pair (h, c), a GRUCell only h.
            recurrent = self.cell(x, recurrent) if isinstance(self.cell, nn.LSTMCell) else (self.cell(x, *recurrent),)
            recurrent = (self.state(recurrent[0]), *recurrent[1:])
            hiddens.append(recurrent[0])
            contexts.append(context)
        return torch.stack(hiddens, 1), torch.stack(contexts, 1), recurrent
