"""Defines a model without attention, whose GRU decoder reads the mean of the source embeddings at every step.

Shapes: B batch, S source length, T target length, D width.
"""

from typing import Annotated

import torch
from annotated_types import doc
from torch import Tensor, nn

from entente.models.initialise import Seed, TokenId, VocabularySize, Width, initialise
from entente.models.seq2seq import Seq2Seq, State, padding_mask

MeanState = State[Tensor, Tensor]  # the state of the GRU (B, D), and the mean of the source embeddings (B, D)


class Mean(Seq2Seq):
    """A GRU decoder that reads only the mean of the source embeddings, and so ignores the order of the source words."""

    def __init__(
        self,
        src_vocab: VocabularySize,
        tgt_vocab: VocabularySize,
        shared_vocab: bool,
        pad_id: TokenId,
        seed: Seed,
        d_model: Annotated[Width, doc("width of every layer")] = 64,
    ) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.src_embedding = nn.Embedding(src_vocab, d_model, padding_idx=pad_id)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model, padding_idx=pad_id)
        self.cell = nn.GRUCell(2 * d_model, d_model)
        self.output = nn.Linear(d_model, tgt_vocab, bias=False)
        initialise(self, seed, embedding_std=0.1)

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
