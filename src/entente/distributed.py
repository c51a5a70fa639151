"""Exchanges values between the processes of a run, in CPU memory. training/processes.py starts one process per device.

A run with a single process does not use torch.distributed: `rank` is 0, `world_size` is 1, and the other functions exchange
nothing. All processes must call `share`, `gather` and `largest` in the same order, since each call waits for every process."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import distributed

T = TypeVar("T")
FOREVER = timedelta(days=7)  # a timeout, long because training/processes.py detects processes that have ended


def rank() -> int:
    """Returns the index of this process, counted from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    """Returns the number of processes of the run."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


@cache
def _group() -> Any:
    """Returns a gloo group of all processes, which communicates in CPU memory."""
    return distributed.new_group(backend="gloo", timeout=FOREVER)


def share(make: Callable[[], T]) -> T:
    """Calls `make` in the first process only, and returns its result in all processes."""
    if world_size() == 1:
        return make()
    values = [make() if rank() == 0 else None]
    distributed.broadcast_object_list(values, group=_group())
    return values[0]  # type: ignore[return-value]


def gather(value: T) -> list[T]:
    """Returns the values of all processes, in the order of their ranks."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    distributed.all_gather_object(values, value, group=_group())
    return values


def seed(*numbers: int) -> int:
    """Returns a seed for this process, derived from `numbers` and the process's rank."""
    return int(np.random.SeedSequence([*numbers, rank()]).generate_state(1)[0])


def wait_for_first() -> None:
    """Makes the other processes wait until the first has left; if one left earlier, the first would report a failure."""
    if rank():
        with suppress(RuntimeError):  # the barrier fails when the first process leaves
            distributed.barrier(group=_group())


def leave() -> None:
    """Ends the communication with the other processes, if there are any."""
    _group.cache_clear()
    if distributed.is_initialized():
        distributed.destroy_process_group()


def largest(number: int) -> int:
    """Returns the largest of the numbers of all processes."""
    if world_size() == 1:
        return number
    found = torch.tensor(number)
    distributed.all_reduce(found, distributed.ReduceOp.MAX, group=_group())
    return int(found)
