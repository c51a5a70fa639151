"""Groups sentence pairs of similar length into batches of at most `max_tokens` positions per side, including padding.

The training batches of an epoch are a pure function of (seed, epoch), so a run can resume from the number of batches consumed.
Shapes: B batch, S source length, T target length.
"""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple
from weakref import finalize

import numpy as np
import torch
from torch import Tensor
from torch.profiler import record_function

from entente.data.tokenizer import PAD
from entente.errors import InputError

Grouping = Literal["alike", "mixed", "alone"]

TOKENS_PER_BLOCK = 1 << 20

TAIL_DIVISOR, MIN_TAIL_TOKENS = 4, 1024  # late batches of an evaluation take 1/4 of the remaining tokens, but at least 1,024

log = logging.getLogger("entente")


class StoredIds:
    """The token ids in a file, from byte `start` on. A slice is read each time it is used, so all processes share the system's
    cache of the file. Memory-mapped ids would count as this process's memory; with large pages, soon the whole file would."""

    def __init__(self, path: Path, dtype: np.dtype[Any], start: int) -> None:
        self._file, self.dtype, self._start = path.open("rb", buffering=0), dtype, start
        finalize(self, self._file.close)

    def __getitem__(self, part: slice) -> np.ndarray:
        self._file.seek(self._start + part.start * self.dtype.itemsize)
        return np.frombuffer(self._file.read((part.stop - part.start) * self.dtype.itemsize), self.dtype)


class Rows:
    """The token ids of N sentences, concatenated in one array; indexing returns one sentence, as a read-only array."""

    values: Any  # an array or StoredIds

    def __init__(self, ids: Iterable[Sequence[int]]) -> None:
        values, lengths = array("i"), array("i")
        for row in ids:
            values.extend(row)
            lengths.append(len(row))
        self.values, self.lengths = np.asarray(values), np.asarray(lengths)  # (all tokens,) and (N,), int32
        self.values.flags.writeable = False
        self._ends = self.lengths.cumsum(dtype=np.int64)

    @classmethod
    def stored(cls, path: Path, n: int, dtype: np.dtype[Any]) -> "Rows":
        """Returns the N sentences in a file that `write_rows` wrote. Their ids are read from the file when they are used."""
        rows = cls(())
        rows._ends = np.fromfile(path, np.int64, n)
        rows.values = StoredIds(path, dtype, rows._ends.nbytes)
        rows.lengths = np.diff(rows._ends, prepend=0).astype(np.int32)
        return rows

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> np.ndarray:
        end = self._ends[row]
        return self.values[end - self.lengths[row] : end]

    def counts(self, pieces: int, rows: int) -> np.ndarray:
        """Returns how often each id below `pieces` occurs in the first `rows` sentences. Counts in blocks, since bincount
        copies its input as int64."""
        counts, end = np.zeros(pieces, np.int64), int(self._ends[rows - 1])
        for start in range(0, end, TOKENS_PER_BLOCK):
            counts += np.bincount(self.values[start : min(end, start + TOKENS_PER_BLOCK)], minlength=pieces)
        return counts


def write_rows(file: BinaryIO, blocks: Iterable[Sequence[Sequence[int]]], n: int, dtype: np.dtype[Any]) -> None:
    """Writes N sentences, given as blocks of token ids. The file contains the end offsets of the sentences, as (N,) int64,
    followed by the ids of all sentences."""
    ends, first, tokens = np.empty(n, np.int64), 0, 0
    file.seek(ends.nbytes)
    for block in blocks:
        rows = Rows(block)
        file.write(rows.values.astype(dtype).data)
        ends[first : first + len(rows)] = tokens + rows._ends
        first, tokens = first + len(rows), tokens + len(rows.values)
    file.seek(0)
    file.write(ends.data)


class Batch(NamedTuple):
    src: Tensor  # (B, S) source ids ending in EOS, then PAD
    tgt: Tensor  # (B, T) BOS ... EOS, then PAD
    index: Tensor  # type: ignore[assignment]  # (B,) rows in the split; shadows tuple.index, which is unused
    real: Tensor  # (N,) indices of real tokens in tgt[:, 1:].flatten(); computed on the CPU, since nonzero syncs a GPU
    step_tokens: int | None = None  # number of real target tokens in the training step; None: the step has only this batch


Sample = Callable[[int], tuple[Rows, Rows]]  # epoch -> ids of all sources and targets, split into random pieces


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Copies a batch to a device. Copies to a GPU are asynchronous, from pinned memory."""
    cuda = device.type == "cuda"
    src, tgt, index, real = ((t.pin_memory() if cuda else t).to(device, non_blocking=cuda) for t in batch[:4])
    return Batch(src, tgt, index, real, batch.step_tokens)


def collate(src: Rows, tgt: Rows, index: Sequence[int]) -> Batch:
    """Returns the pairs at rows `index` as padded int64 tensors. Source rows end in EOS; target rows have BOS and EOS."""
    padded = _pad(tgt, index)
    real = (padded[:, 1:] != PAD).flatten().nonzero().squeeze(1)
    return Batch(_pad(src, index), padded, torch.tensor(index, dtype=torch.int64), real)


def _pad(rows: Rows, index: Sequence[int]) -> Tensor:
    lengths = rows.lengths[index]
    out = np.full((len(index), lengths.max()), PAD, dtype=np.int64)
    out[np.arange(out.shape[1]) < lengths[:, None]] = np.concatenate([rows[i] for i in index])
    return torch.from_numpy(out)


def _cut(longest: np.ndarray, room: np.ndarray) -> list[slice]:
    """Returns batches as slices of rows. longest: the length of each row, in descending order. A batch that starts at row i has
    at most room[i] positions, or consists of row i alone."""
    parts, start = [], 0
    while start < len(longest):
        stop = start + max(1, int(room[start]) // int(longest[start]))
        parts.append(slice(start, stop))
        start = stop
    return parts


def rows_within(longest: np.ndarray, max_tokens: int) -> np.ndarray:
    """Returns the indices of the pairs with at most `max_tokens` tokens on each side. longest: the number of tokens on the
    longer side of each pair. Raises InputError if no pair is short enough."""
    rows = np.flatnonzero(longest <= max_tokens).astype(np.int32)
    if not len(rows):
        raise InputError(
            f"data.batch.max_tokens={max_tokens}: every training pair is longer; the shortest has "
            f"{longest.min()} tokens on its longer side, so give at least that many"
        )
    return rows


class Epoch(NamedTuple):
    src: Rows
    tgt: Rows
    batches: list[np.ndarray]  # the rows of each batch


class TrainingBatches:
    """An endless stream of training batches, epoch after epoch. Drops pairs with more than `max_tokens` tokens on either side.
    An epoch contains pair i `weights[i]` times (default: once). `sample` replaces the ids of an epoch, and with them the
    grouping by length. After the first `all_epochs` epochs, only the first `always` pairs are used, if it is given. Distributes
    the batches over processes round-robin, and keeps those of process `rank`.

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
        accumulate: int = 1,
        weights: np.ndarray | None = None,
        sample: Sample | None = None,
        always: int | None = None,
        all_epochs: int = 0,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self._ids: Sample = sample or (lambda epoch: (src, tgt))
        self._max_tokens, self._seed = max_tokens, seed
        self._always, self._all_epochs = len(src) if always is None else always, all_epochs
        self._rank, self._processes, self.batches_per_step = rank, processes, accumulate * processes
        longest = np.maximum(src.lengths, tgt.lengths)
        self._rows = rows_within(longest, max_tokens)  # int32, like all arrays with an entry per pair, to save memory
        # Of the first `always` pairs; after them are their copies with the sides swapped, which would count twice.
        self.dropped = self._always - int(np.searchsorted(self._rows, self._always))
        if self.dropped:
            log.warning("%d training pairs with more than %d tokens were dropped", self.dropped, max_tokens)
        if weights is not None:
            self._rows = self._rows.repeat(weights[self._rows])
        self.position = 0  # counts the batches of all processes
        self._starts = {0: 0}  # the positions at which epochs start, as far as they are known

    def epoch(self, n: int) -> Epoch:
        """Returns the batches of epoch n in random order. Their rows are views of one int32 array, because Python integers
        would take ten times the memory."""
        src, tgt = self._ids(n)
        rows = self._rows if n < self._all_epochs else self._rows[: np.searchsorted(self._rows, self._always)]
        shortness = -np.maximum(src.lengths, tgt.lengths)[rows]
        generator = np.random.default_rng([self._seed, n])
        order = np.lexsort((generator.random(len(rows)), shortness))  # shuffles only pairs of equal length
        parts = _cut(-shortness[order], np.broadcast_to(self._max_tokens, len(order)))
        rows = rows[order]
        return Epoch(src, tgt, [rows[parts[i]] for i in generator.permutation(len(parts))])

    def _batches(self) -> Iterator[tuple[int, Batch | None]]:
        """Yields the number of target tokens of each batch from `position` on, and the batch if it is for this process."""
        first, start = self._epoch_at(self.position)
        yield from self._batches_of(first, self.position - start)
        for n in count(first + 1):
            yield from self._batches_of(n, 0)

    def _batches_of(self, n: int, first: int) -> Iterator[tuple[int, Batch | None]]:
        src, tgt, batches = self.epoch(n)
        self._starts[n + 1] = self._starts[n] + len(batches)
        for i, rows in enumerate(batches[first:], start=self._starts[n] + first):
            tokens, batch = int(tgt.lengths[rows].sum()) - len(rows), None  # without BOS
            if i % self._processes == self._rank:
                with record_function("TrainingBatches.batch"):  # names this work in profiles, as torch's DataLoader does
                    batch = collate(src, tgt, rows.tolist())
            yield tokens, batch

    def _epoch_at(self, position: int) -> tuple[int, int]:
        """Returns the number of the epoch at a position, and the position at which it starts."""
        return max((n, start) for n, start in self._starts.items() if start <= position)

    def __iter__(self) -> Iterator[Batch]:
        batches = self._batches()
        while step := [*islice(batches, self.batches_per_step)]:
            tokens = sum(count for count, _ in step)
            for batch in (batch for _, batch in step if batch):
                yield batch._replace(step_tokens=tokens)

    def consume(self) -> None:
        self.position += self._processes

    def state_dict(self) -> dict[str, int]:
        epoch, start = self._epoch_at(self.position)
        return {"position": self.position, "epoch": epoch, "start": start}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Sets the position at which new iterators begin."""
        self.position, self._starts = state["position"], {state["epoch"]: state["start"]}


class EvaluationBatches:
    """Batches that contain every pair once. grouping: `alike` groups pairs of similar length, longest first (a pair longer than
    `max_tokens` has its own batch); `mixed` groups pairs in a fixed random order; `alone` gives each pair its own batch."""

    def __init__(self, src: Rows, tgt: Rows, max_tokens: int, grouping: Grouping = "alike") -> None:
        self._src, self._tgt = src, tgt
        longest = np.maximum(src.lengths, tgt.lengths)
        if grouping == "alike":
            order = np.lexsort((-src.lengths, -longest))
            left = longest[order][::-1].cumsum()[::-1]
            # The last batches shrink, so that parallel workers finish together.
            room = np.minimum(max_tokens, np.maximum(left // TAIL_DIVISOR, MIN_TAIL_TOKENS))
            self._batches = [order[part].tolist() for part in _cut(longest[order], room)]
        else:
            order = np.random.default_rng(0).permutation(len(longest))
            size = 1 if grouping == "alone" else max(1, max_tokens // int(longest.max()))
            self._batches = [order[start : start + size].tolist() for start in range(0, len(order), size)]

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
    """A split to evaluate. The `index` of a batch points into `sources` and `references`. limit: the number (int) or fraction
    (float) of batches to use."""

    name: str
    batches: EvaluationBatches
    sources: list[str]
    references: list[str]
    limit: int | float = 1.0

    def __len__(self) -> int:
        n = len(self.batches)
        return min(n, self.limit) if isinstance(self.limit, int) else int(self.limit * n)
