"""The interface of a translation model: `encode`, `decode`, and an output projection. Search, loss and the recording of
attention know this interface and no particular model.

Training calls `decode` on all target tokens at once. Search calls it on one token at a time, with the state returned by the
previous call. Both run the same code, so where the mask is causal, masked scores are -inf and the softmax is over the keys
they compute the same.

Shapes: B batch, S source length, T target length, D width of the decoder's output, V vocabulary, N targets without padding.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Written = TypeVar("Written")
Memory = TypeVar("Memory")


class Source(NamedTuple, Generic[Memory]):
    """What a decoder attends to: keys and values of the encoder's output, and the source mask."""

    memory: Memory
    mask: Tensor


class State(NamedTuple, Generic[Written, Memory]):
    """What a model knows while it decodes. `decode` returns a new state and never modifies its argument. To callers both parts
    are opaque tuples of tensors with rows in dim 0. Each row of `source` may serve several consecutive rows of `written`, the
    same number for all, as a sentence does for its beams."""

    written: Written  # by `decode`, from the target tokens it has read so far: one row per hypothesis
    source: Source[Memory]  # depends on the source alone: one row per sentence


class Loss(NamedTuple):
    """Means over the target tokens, in nats."""

    smoothed: Tensor  # with label smoothing (Szegedy et al. 2016, section 7)
    nll: Tensor  # without, and without gradients


class Seq2Seq(nn.Module):
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
        """Teacher forcing: hidden (B, T, D) for tgt (B, T). Each position knows src and the tokens up to itself, and predicts
        the next token. The caller shifts the target and drops padding."""
        return self.decode(tgt, self.encode(src))[0]

    def loss(self, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Loss:
        """hidden (N, D), target (N,) token ids -> the cross-entropy of the projected hidden states."""
        logits = self.output(hidden)  # (N, V)
        smoothed = F.cross_entropy(logits, target, label_smoothing=label_smoothing)
        return Loss(smoothed, F.cross_entropy(logits.detach(), target))


class Residual(nn.Module):
    """x + dropout(update), where the update is what a sublayer made of x (Vaswani et al. 2017, sections 3.1 and 5.4). With
    `keep=False` x is not added, and the result is dropout(update)."""

    def __init__(self, keep: bool, dropout: float) -> None:
        super().__init__()
        self.keep = keep
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        update = self.dropout(sublayer_output)
        return x + update if self.keep else update


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    """ids (B, S) -> (B, S), True at real tokens."""
    return ids != pad_id


def causal_mask(new: int, past: int, device: torch.device) -> Tensor:
    """(new, past + new): the token at position `past + i` may attend to every position up to itself."""
    return torch.ones(new, past + new, dtype=torch.bool, device=device).tril(past)


def select(state: Any, rows: Tensor) -> Any:
    """The given rows (N,) of a part of any model's state: reordered, repeated or dropped. Of a whole state only while each
    sentence has one hypothesis, since its two parts have different rows otherwise."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    parts = [select(part, rows) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each module is in the mode it had."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def parameter_count(model: nn.Module) -> int:
    """The number of learned values, tied ones counted once."""
    return sum(p.numel() for p in model.parameters())


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    """Lists of token ids -> (B, longest), padded on the right."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)
