"""Groups sentence pairs of similar length into batches of at most `max_tokens` positions per side, including padding.

The training batches of an epoch are a pure function of (seed, epoch), so a run can resume from the number of batches consumed.
Shapes: B batch, S source length, T target length.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.profiler import record_function

from entente.data.tokenizer import EOS, PAD
from entente.errors import InputError
from entente.settings import Grouping

TAIL_DIVISOR, MIN_TAIL_TOKENS = 4, 1024  # late batches of an evaluation take 1/4 of the remaining tokens, but at least 1,024


class Rows:
    """The token ids of N sentences, concatenated in one array; indexing returns one sentence."""

    def __init__(self, ids: Iterable[Sequence[int]] | Path) -> None:
        """ids: the sentences, or a file that `write` has written, which is memory-mapped, so that processes share it."""
        if isinstance(ids, Path):
            self.values = np.load(ids, mmap_mode="r").view(np.ndarray)  # (all tokens,)
            self.lengths = np.diff(np.flatnonzero(self.values == EOS), prepend=-1).astype(np.int32)  # (N,)
        else:
            values, lengths = array("i"), array("i")
            for row in ids:
                values.extend(row)
                lengths.append(len(row))
            self.values, self.lengths = np.asarray(values), np.asarray(lengths)
        self.ends = self.lengths.cumsum(dtype=np.int64)  # (N,)

    def write(self, file: BinaryIO, pieces: int) -> None:
        """Stores the ids, which are below `pieces`, of sentences that end in EOS."""
        np.save(file, self.values.astype(np.min_scalar_type(pieces - 1)))  # uint16 for up to 65,536 pieces

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> np.ndarray:
        end = self.ends[row]
        return self.values[end - self.lengths[row] : end]


class Batch(NamedTuple):
    src: Tensor  # (B, S) source ids ending in EOS, then PAD
    tgt: Tensor  # (B, T) BOS ... EOS, then PAD
    index: Tensor  # type: ignore[assignment]  # (B,) rows in the split; shadows tuple.index, which is unused
    real: Tensor  # (N,) indices of real tokens in tgt[:, 1:].flatten(); computed on the CPU, since nonzero syncs a GPU
    step_tokens: int | None = None  # number of real target tokens in the training step; None: the step has only this batch
    position: int = 0  # index of the training batch, counted over all steps and processes; it seeds dropout


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Copies a batch to a device. Copies to a GPU are asynchronous, from pinned memory."""
    cuda = device.type == "cuda"
    src, tgt, index, real = ((t.pin_memory() if cuda else t).to(device, non_blocking=cuda) for t in batch[:4])
    return batch._replace(src=src, tgt=tgt, index=index, real=real)


def collate(src: Rows, tgt: Rows, index: Sequence[int]) -> Batch:
    """Returns the pairs at rows `index` as padded int64 tensors."""
    padded = _pad(tgt, index)
    real = (padded[:, 1:] != PAD).flatten().nonzero().squeeze(1)
    return Batch(_pad(src, index), padded, torch.tensor(index, dtype=torch.int64), real)


def _pad(rows: Rows, index: Sequence[int]) -> Tensor:
    lengths = rows.lengths[index]
    out = np.full((len(index), lengths.max()), PAD, dtype=np.int64)
    out[np.arange(out.shape[1]) < lengths[:, None]] = np.concatenate([rows[i] for i in index])
    return torch.from_numpy(out)


def _cut(longest: np.ndarray, room: np.ndarray | int) -> list[slice]:
    """Returns batches as slices of rows. longest: the length of each row, in descending order. A batch that starts at row i has
    at most room[i] positions (or `room`, if it is a number), or consists of row i alone."""
    room = np.broadcast_to(room, len(longest))
    parts, start = [], 0
    while start < len(longest):
        stop = start + max(1, int(room[start]) // int(longest[start]))
        parts.append(slice(start, stop))
        start = stop
    return parts


class TrainingBatches:
    """An endless stream of training batches, epoch after epoch. Drops pairs with more than `max_tokens` tokens on either side.
    An epoch contains pair i `weights[i]` times (default: once). After the first `all_epochs` epochs, only the first `always`
    pairs are used, if it is given; the others are copies with the sides swapped. Batches are dealt to the processes in turn.

    Iteration starts at `position`, the number of batches used, but does not advance it, because Lightning prefetches batches:
    the caller calls `consume` after each batch. An optimiser step takes `accumulate` batches from each process, even if an
    epoch ends in between. A state can be loaded only if it was saved between two steps.
    """

    def __init__(
        self,
        src: Rows,
        tgt: Rows,
        max_tokens: int,
        seed: int,
        *,
        accumulate: int = 1,
        weights: np.ndarray | None = None,
        always: int | None = None,
        all_epochs: int = 0,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self._src, self._tgt, self._max_tokens, self._seed = src, tgt, max_tokens, seed
        self._rank, self._processes, self.batches_per_step = rank, processes, accumulate * processes
        self._longest = np.maximum(src.lengths, tgt.lengths)
        rows = np.flatnonzero(self._longest <= max_tokens).astype(np.int32)  # int32, to save memory
        always = len(src) if always is None else always
        self.dropped = always - int(np.searchsorted(rows, always))  # without the swapped copies, which would count twice
        if self.dropped == always:
            shortest = self._longest[:always].min()
            raise InputError(f"data.batch.max_tokens={max_tokens}: every training pair is longer; give at least {shortest}")
        rows = rows if weights is None else rows.repeat(weights[rows])
        self._all_epochs, self._all_rows, self._rows = all_epochs, rows, rows[: np.searchsorted(rows, always)]
        self._sizes = [len(_cut(np.sort(self._longest[part])[::-1], max_tokens)) for part in (self._all_rows, self._rows)]
        self.position = 0  # counts the batches of all processes

    def epoch(self, n: int) -> list[np.ndarray]:
        """Returns the rows of each batch of epoch n, in random order. They are views of one array, to save memory."""
        rows = self._all_rows if n < self._all_epochs else self._rows
        generator = np.random.default_rng([self._seed, n])
        rows = rows[np.lexsort((generator.random(len(rows)), -self._longest[rows]))]  # shuffles only pairs of equal length
        parts = _cut(self._longest[rows], self._max_tokens)
        return [rows[parts[i]] for i in generator.permutation(len(parts))]

    def until(self, epochs: float) -> float:
        """Returns the number of batches, of all processes, in the first epochs."""
        (all_size, size), with_all = self._sizes, min(epochs, self._all_epochs)
        return with_all * all_size + (epochs - with_all) * size

    def epochs(self) -> float:
        """Returns the number of epochs up to `position`."""
        (all_size, size), left = self._sizes, self.position - self.until(self._all_epochs)
        return self.position / all_size if left < 0 else self._all_epochs + left / size

    def __iter__(self) -> Iterator[Batch]:
        first = int(self.epochs())
        skipped = self.position - int(self.until(first))
        batches = enumerate(islice(chain.from_iterable(map(self.epoch, count(first))), skipped, None), start=self.position)
        while step := [*islice(batches, self.batches_per_step)]:
            tokens = sum(int(self._tgt.lengths[rows].sum()) - len(rows) for _, rows in step)  # without BOS
            for position, rows in step:
                if position % self._processes == self._rank:
                    with record_function("TrainingBatches.batch"):  # names this work in profiles, as torch's DataLoader does
                        batch = collate(self._src, self._tgt, rows.tolist())
                    yield batch._replace(step_tokens=tokens, position=position)

    def consume(self) -> None:
        self.position += self._processes

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class EvaluationBatches:
    """Batches that contain every pair once. Pairs of similar length are grouped, longest first, unless a grouping is given:
    `mixed` groups pairs in a fixed random order; `alone` gives each pair its own batch."""

    def __init__(self, src: Rows, tgt: Rows, max_tokens: int, grouping: Grouping | None = None) -> None:
        self._src, self._tgt = src, tgt
        longest = np.maximum(src.lengths, tgt.lengths)
        if grouping:
            order = np.random.default_rng(0).permutation(len(longest))
            size = 1 if grouping == "alone" else max(1, max_tokens // int(longest.max()))
            parts = [slice(start, start + size) for start in range(0, len(order), size)]
        else:
            order = np.lexsort((-src.lengths, -longest))
            left = longest[order][::-1].cumsum()[::-1]
            # The last batches shrink, so that parallel workers finish together.
            parts = _cut(longest[order], np.minimum(max_tokens, np.maximum(left // TAIL_DIVISOR, MIN_TAIL_TOKENS)))
        self._batches = [order[part].tolist() for part in parts]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return self[:]

    def __getitem__(self, which: slice) -> Iterator[Batch]:
        return (collate(self._src, self._tgt, rows) for rows in self._batches[which])


def split_of(name: str) -> str:
    """Returns the name of a split without the grouping: "test" for "test@alone"."""
    return name.partition("@")[0]


@dataclass(frozen=True)
class EvaluationSplit:
    """A split to evaluate. The `index` of a batch points into `sources` and `references`."""

    name: str
    batches: EvaluationBatches
    sources: list[str]
    references: list[str]
    limit: int | float = 1.0  # the number (int) or fraction (float) of batches to use

    def __len__(self) -> int:
        n = len(self.batches)
        return min(n, self.limit) if isinstance(self.limit, int) else max(1, int(self.limit * n))
