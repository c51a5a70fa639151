"""What every translation model here is: `encode`, `decode`, and an output projection.

Training calls `decode` on all target tokens at once, search on one token with the state of the step before. It is one road, so
what is cached cannot drift from what was trained. Search, loss and recording know this interface and no model.

Shapes: B batch, S source length, T target length, D width of the decoder's output, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import torch
from annotated_types import Interval
from torch import Tensor, nn

from entente.models.dropout import Dropout

Written = TypeVar("Written")


Source = TypeVar("Source")


class State(NamedTuple, Generic[Written, Source]):
    """What a model knows while it decodes, as a value. Both parts are opaque to everyone else: tensors with rows in dim 0, in
    tuples. Several rows of `written` that follow each other may share one row of `source`, as the beams of a sentence do."""

    written: Written  # depends on the target read so far: a row for each hypothesis
    source: Source  # depends on the source alone: a row for each sentence


# What an argument of a model may be. The upper ends are far beyond use: a configuration may come with a stranger's checkpoint.
VocabularySize = Annotated[int, Interval(ge=1, le=1_000_000)]


TokenId = Annotated[int, Interval(ge=0, lt=1_000_000)]


Seed = Annotated[int, Interval(ge=0, lt=2**32)]


Width = Annotated[int, Interval(ge=1, le=8192)]


DropoutRate = Annotated[float, Interval(ge=0, lt=1)]  # the probability that a value is dropped


class Seq2Seq(nn.Module):
    """An encoder-decoder."""

    pad_id: int
    output: nn.Linear  # D -> V; callers apply it, so that they choose which positions to project

    def encode(self, src: Tensor) -> State[Any, Any]:
        """src (B, S) token ids, padded on the right, no row empty -> the state before the first target token."""
        raise NotImplementedError("an abstract model")

    def decode(self, tgt: Tensor, state: State[Any, Any]) -> tuple[Tensor, State[Any, Any]]:
        """tgt (B, T >= 1) token ids read at this call -> hidden (B, T, D), one per token read, and the state after them. B is
        the number of rows of `state.written`."""
        raise NotImplementedError("an abstract model")

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Teacher forcing: hidden (B, T, D) for tgt (B, T), each position knowing src and the tokens up to itself."""
        return self.decode(tgt, self.encode(src))[0]


class Residual(nn.Module):
    """x + dropout(f(x)): the sublayer adds to what came in. Taken away (`keep=False`), only dropout(f(x)) goes on."""

    def __init__(self, keep: bool, dropout: float) -> None:
        super().__init__()
        self.keep = keep
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        update = self.dropout(sublayer_output)
        return x + update if self.keep else update


def select(state: Any, rows: Tensor) -> Any:
    """The given rows of a state or of a part of one (any model's): reordered, repeated or dropped. rows (N,) indices."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    parts = [select(part, rows) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each module in the mode it had."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """ids (B, S) -> (B, S), True at real tokens."""
    return ids != pad_id


def causal_mask(new: int, past: int, device: torch.device) -> Tensor:
    """(new, past + new): the token at position `past + i` may attend to every position up to itself."""
    return torch.ones(new, past + new, dtype=torch.bool, device=device).tril(past)


def parameter_count(model: nn.Module) -> int:
    """Learned numbers, tied ones counted once."""
    return sum(p.numel() for p in model.parameters())


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    """Lists of token ids -> (B, longest), padded on the right."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)
