"""The interface of a translation model: `encode`, `decode` and an output projection. Training calls `decode` on all target
tokens at once, search on one token at a time, with the state returned by the previous call. Both give the same results if the
mask is causal, masked scores are -inf and each softmax is over the keys.

Shapes: B batch, S source length, T target length, D width of the decoder's output, V vocabulary, N non-padding target tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Written = TypeVar("Written")
Keys = TypeVar("Keys")


class Sizes(NamedTuple):
    src_vocab: int
    tgt_vocab: int
    shared_vocab: bool  # whether source and target share one vocabulary
    pad_id: int
    seed: int  # of the initial values


class Source(NamedTuple, Generic[Keys]):
    """The keys and values that the decoder attends to, and the source mask."""

    kv: Keys
    mask: Tensor


class State(NamedTuple, Generic[Written, Keys]):
    """The decoder's state, passed into and returned by `decode`. Callers treat both parts as opaque tuples of tensors with rows
    in dim 0. Each row of `source` belongs to the same number of consecutive rows of `written`, such as the beams of a
    sentence."""

    written: Written  # computed by `decode` from the target tokens read so far: one row per hypothesis
    source: Source[Keys]  # computed from the source only: one row per sentence


class Loss(NamedTuple):
    """The mean cross-entropy over the target tokens, in nats."""

    smoothed: Tensor  # with label smoothing (Szegedy et al. 2016, section 7)
    nll: Tensor  # without label smoothing; has no gradient


class Seq2Seq(nn.Module):
    pad_id: int
    output: nn.Linear  # D -> V; applied by the callers, who choose which positions to project

    def encode(self, src: Tensor) -> State[Any, Any]:
        """Returns the state before the first target token. src: token ids (B, S), padded on the right, with no empty row."""
        raise NotImplementedError("subclasses implement encode")

    def decode(self, tgt: Tensor, state: State[Any, Any]) -> tuple[Tensor, State[Any, Any]]:
        """Reads token ids tgt (B, T), T >= 1. Returns hidden (B, T, D) and the state after these tokens. B is the number of
        rows of `state.written`."""
        raise NotImplementedError("subclasses implement decode")

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Returns hidden (B, T, D) for tgt (B, T) by teacher forcing. The caller shifts the target and removes padding."""
        return self.decode(tgt, self.encode(src))[0]

    def loss(self, hidden: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Loss:
        """Projects hidden (N, D) to logits and returns their cross-entropy with the token ids target (N,)."""
        logits = self.output(hidden)  # (N, V)
        smoothed = F.cross_entropy(logits, target, label_smoothing=label_smoothing)
        return Loss(smoothed, F.cross_entropy(logits.detach(), target))


class Residual(nn.Module):
    """Residual connection x + dropout(sublayer(x)) (Vaswani et al. 2017, sections 3.1 and 5.4), without the `x +` if not
    `keep`."""

    def __init__(self, keep: bool, dropout: float) -> None:
        super().__init__()
        self.keep = keep
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        update = self.dropout(sublayer_output)
        return x + update if self.keep else update


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    return ids != pad_id


def causal_mask(new: int, past: int, device: torch.device) -> Tensor:
    """Returns a mask (new, past + new) that lets the token at position past + i attend to positions 0 .. past + i."""
    return torch.ones(new, past + new, dtype=torch.bool, device=device).tril(past)


def select(state: Any, rows: Tensor) -> Any:
    """Selects rows of a model's state, or of part of it. rows: a 1-D tensor of indices, which may reorder, repeat or drop
    rows."""
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    parts = [select(part, rows) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Puts the model in evaluation mode inside the context, and afterwards restores the mode of each module."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def parameter_count(model: nn.Module) -> int:
    """Returns the number of learned values, counting tied parameters once."""
    return sum(p.numel() for p in model.parameters())


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    """Pads lists of token ids on the right and returns them as one tensor (B, longest)."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)
