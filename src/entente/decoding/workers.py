"""Decoding on a CPU: one worker for each core, each with products of its own, instead of one whose every product is shared
among the cores. The products of a step of search are small, and much stands between them."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Semaphore
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from entente.fast.packed import packed

Result = TypeVar("Result")


class Workers(Generic[Result]):
    """Calls `work` with what is given to `add`, as often at a time as torch has threads for one product. Until `results` are
    fetched or `close` is called, torch has one, and the model's weights stay as they are. On another device than a CPU, and
    under autocast, which other threads would not have, there is one worker: the caller."""

    def __init__(self, work: Callable[..., Result], model: nn.Module) -> None:
        self._work = work
        on_cpu = next(model.parameters()).device.type == "cpu"
        self._n = torch.get_num_threads() if on_cpu and not torch.is_autocast_enabled("cpu") else 1
        self._packed = ExitStack()
        self._packed.enter_context(packed(model))
        self._pool = ThreadPoolExecutor(self._n)
        self._free = Semaphore(self._n)
        self._calls: list[Future[Result]] = []
        self._done: list[Result] = []
        if self._n > 1:
            torch.set_num_threads(1)

    def __enter__(self) -> "Workers[Result]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, *arguments: Any) -> None:
        """Returns when a worker has begun, so that who adds knows how far the work is. What went wrong before is raised."""
        try:
            if self._n > 1:
                self._free.acquire()
                self._collect(lambda call: call.done())
                self._calls.append(self._pool.submit(self._work, *arguments))
                self._calls[-1].add_done_callback(lambda _: self._free.release())
            else:
                self._done.append(self._work(*arguments))
        except BaseException:
            self.close()
            raise

    def results(self) -> list[Result]:
        """Of all that was added, in that order, when the last is done."""
        try:
            self._collect(lambda call: True)
        finally:
            self.close()
        return self._done

    def close(self) -> None:
        """Nothing more is begun; torch and the model are as before."""
        self._pool.shutdown(cancel_futures=True)
        self._packed.close()
        if self._n > 1:
            torch.set_num_threads(self._n)

    def _collect(self, now: Callable[[Future[Result]], bool]) -> None:
        while self._calls and now(self._calls[0]):
            self._done.append(self._calls.pop(0).result())
