"""Decoding on a CPU: one worker for each core, each with products of its own, instead of one whose every product is shared
among the cores. The products of a step of search are small, and much stands between them."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from entente.models.packed import packed

Result = TypeVar("Result")


class Workers(Generic[Result]):
    """Calls `work` with what is given to `add`, as often at a time as torch has threads for one product. Until `results` are
    fetched, torch has one, and the model's weights stay as they are. On another device than a CPU, and under autocast, which
    other threads would not have, there is one worker: the caller."""

    def __init__(self, work: Callable[..., Result], model: nn.Module) -> None:
        self._work = work
        on_cpu = next(model.parameters()).device.type == "cpu"
        self._n = torch.get_num_threads() if on_cpu and not torch.is_autocast_enabled("cpu") else 1
        self._packed = ExitStack()
        self._packed.enter_context(packed(model))
        self._pool = ThreadPoolExecutor(self._n)
        self._calls: list[Future[Result]] = []
        self._done: list[Result] = []
        if self._n > 1:
            torch.set_num_threads(1)

    def add(self, *arguments: Any) -> None:
        """Returns when a worker is free to begin, so that who adds knows how far the work is."""
        if self._n > 1:
            self._calls.append(self._pool.submit(self._work, *arguments))
            self._wait(self._n)
            return
        try:
            self._done.append(self._work(*arguments))
        except BaseException:
            self._close()
            raise

    def results(self) -> list[Result]:
        """Of all that was added, in that order, when the last is done."""
        self._wait(0)
        self._close()
        return self._done

    def _wait(self, left: int) -> None:
        try:
            while len(self._calls) > left:
                self._done.append(self._calls.pop(0).result())
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._packed.close()
        if self._n > 1:
            torch.set_num_threads(self._n)
