"""Exchanges values between the processes of a run, which Lightning has started. A run of one process exchanges nothing.

All processes must call `share` and `gather` in the same order, since each call waits for every process."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import distributed

Value = TypeVar("Value")


def rank() -> int:
    """Returns the index of this process, counted from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1


def share(make: Callable[[], Value]) -> Value:
    """Calls `make` in the first process only, and returns its result in all processes."""
    values: list[Any] = gather(make() if rank() == 0 else None)
    return values[0]


def gather(value: Value) -> list[Value]:
    """Returns the values of all processes, in the order of their ranks."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    distributed.all_gather_object(values, value)
    return values
