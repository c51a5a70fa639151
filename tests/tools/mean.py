"""Defines a model without attention, whose GRU decoder reads the mean of the source embeddings at every step.

Shapes: B batch, S source length, T target length, D width.
"""

import torch
from torch import Tensor, nn

from entente.models.initialise import initialise
from entente.models.seq2seq import Seq2Seq, Sizes, State, padding_mask
from entente.settings import MeanSettings  # type: ignore[attr-defined]  # test_new_model.py adds it to a copy

MeanState = State[Tensor, Tensor]  # the state of the GRU (B, D), and the mean of the source embeddings (B, D)


class Mean(Seq2Seq):
    """A GRU decoder that reads only the mean of the source embeddings, and so ignores the order of the source words."""

    def __init__(self, sizes: Sizes, settings: MeanSettings) -> None:
        super().__init__()
        self.pad_id, d_model = sizes.pad_id, settings.d_model
        self.src_embedding = nn.Embedding(sizes.src_vocab, d_model, padding_idx=self.pad_id)
        self.tgt_embedding = nn.Embedding(sizes.tgt_vocab, d_model, padding_idx=self.pad_id)
        self.cell = nn.GRUCell(2 * d_model, d_model)
        self.output = nn.Linear(d_model, sizes.tgt_vocab, bias=False)
        initialise(self, sizes.seed, embedding_std=0.1)

    def encode(self, src: Tensor) -> MeanState:
        real = padding_mask(src, self.pad_id).unsqueeze(-1)  # (B, S, 1)
        mean = (self.src_embedding(src) * real).sum(1) / real.sum(1)  # (B, D)
        return MeanState(torch.tanh(mean), mean)

    def decode(self, tgt: Tensor, state: MeanState) -> tuple[Tensor, MeanState]:
        hidden, mean = state
        context = mean.repeat_interleave(len(hidden) // len(mean), dim=0)  # one row for each hypothesis of the beam
        states = []
        for embedded in self.tgt_embedding(tgt).unbind(1):  # (B, D)
            hidden = self.cell(torch.cat([embedded, context], dim=-1), hidden)
            states.append(hidden)
        return torch.stack(states, dim=1), MeanState(hidden, mean)
