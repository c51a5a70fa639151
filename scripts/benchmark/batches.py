"""Reads and writes batches of token ids, so that all programs get the same batches. Imports only NumPy, because other programs
import this module in their own environments.

Shapes: B sentences, S source and T target tokens.
"""

from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

PAD = 0
Ids = np.ndarray[Any, Any]


def write_batches(path: Path, batches: Iterable[tuple[Ids, Ids]]) -> int:
    """Writes pairs of src (B, S) and tgt (B, T). Returns the largest S or T."""
    arrays, longest = dict[str, Any](), 0
    for i, (src, tgt) in enumerate(batches):
        arrays[f"src{i}"], arrays[f"tgt{i}"] = src, tgt
        longest = max(longest, src.shape[1], tgt.shape[1])
    np.savez(path, **arrays)
    return longest


def read_batches(path: str) -> list[tuple[Ids, Ids]]:
    arrays = np.load(path)
    return [(arrays[f"src{i}"], arrays[f"tgt{i}"]) for i in range(len(arrays.files) // 2)]


def endless_batches(path: str) -> Iterator[tuple[Ids, Ids]]:
    return cycle(read_batches(path))


def target_tokens(tgt: Ids) -> int:
    """Returns the number of tokens to predict: all of `tgt` except padding and the begin symbol."""
    return int((tgt[:, 1:] != PAD).sum())
