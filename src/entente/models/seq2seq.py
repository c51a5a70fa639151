"""What every translation model here is: `encode`, `decode`, and an output projection.

Training calls `decode` on all target tokens at once, search on one token with the state of the step before. It is one road, so
what is cached cannot drift from what was trained. Search, loss and recording know this interface and no model.

Shapes: B batch, S source length, T target length, D width of the decoder's output, V vocabulary.
"""

import hashlib
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


# Recurrent cells stack the matrices of their gates along dim 0; each is initialised by itself.
STACKED = {nn.GRU: 3, nn.GRUCell: 3, nn.LSTM: 4, nn.LSTMCell: 4}
FORGET_GATE = 1  # among an LSTM's: input, forget, cell, output


def initialise(model: nn.Module, seed: int, embedding_std: float) -> None:
    """Fills every parameter from a generator seeded by hash(seed, its name): matrices Xavier-uniform (Glorot & Bengio 2010),
    recurrent ones orthogonal (Bahdanau et al. 2015, B.1), embeddings normal, biases 0; the two of an LSTM's forget gate
    sum to 1 (Jozefowicz et al. 2015). Norms keep ones and zeros. Embeddings are small enough that a tied output starts near
    uniform: the loss at step 0 is close to ln V.

    A part taken away takes its own names away and leaves every other initial value as it was.
    """
    owners = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        owner = owners[name.rpartition(".")[0]]
        if isinstance(owner, nn.LayerNorm) or parameter.is_meta:  # a meta tensor has a shape and no values
            continue
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
        values = torch.empty(parameter.shape, dtype=torch.float32)  # on the CPU: the same start on every device
        _fill(values, name.rpartition(".")[2], owner, generator, embedding_std)
        with torch.no_grad():
            parameter.copy_(values)


def _fill(values: Tensor, leaf: str, owner: nn.Module, generator: torch.Generator, embedding_std: float) -> None:
    if values.dim() < 2:
        nn.init.zeros_(values)
        if isinstance(owner, nn.LSTM | nn.LSTMCell) and leaf.startswith("bias_ih"):  # torch adds bias_hh to it
            nn.init.ones_(values.chunk(STACKED[type(owner)])[FORGET_GATE])
    elif isinstance(owner, nn.Embedding):
        nn.init.normal_(values, std=embedding_std, generator=generator)
    else:
        for block in values.unbind() if values.dim() == 3 else values.chunk(STACKED.get(type(owner), 1)):
            if leaf.startswith("weight_hh"):
                nn.init.orthogonal_(block, generator=generator)
            else:
                nn.init.xavier_uniform_(block, generator=generator)


def parameter_count(model: nn.Module) -> int:
    """Learned numbers, tied ones counted once."""
    return sum(p.numel() for p in model.parameters())


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    """Lists of token ids -> (B, longest), padded on the right."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)
