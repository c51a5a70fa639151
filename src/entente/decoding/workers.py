"""Decoding on a CPU: one worker for each core, each computing its own products on one thread, instead of one worker whose
products are split among the cores. The products of a search step are small, and much happens between them."""

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
    """Calls `work` with what is given to `add`, on `torch.get_num_threads()` workers, one thread each.

    Until `results` or `close` is called, torch has one thread, and the model's weights must not change. On another device than
    a CPU, and under autocast, which other threads would not have, the caller is the only worker.
    """

    def __init__(self, work: Callable[..., Result], model: nn.Module) -> None:
        self._work = work
        on_cpu = next(model.parameters()).device.type == "cpu"
        self._n = torch.get_num_threads() if on_cpu and not torch.is_autocast_enabled("cpu") else 1
        self._packed = ExitStack()
        self._packed.enter_context(packed(model))
        self._pool = ThreadPoolExecutor(self._n)
        self._free = Semaphore(self._n)
        self._calls: list[Future[Result]] = []
        if self._n > 1:
            torch.set_num_threads(1)

    def __enter__(self) -> "Workers[Result]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, *arguments: Any) -> None:
        """Returns when a worker has begun, so that the caller can report progress. Raises what an earlier call has raised."""
        try:
            if self._n == 1:
                self._calls.append(Future())
                self._calls[-1].set_result(self._work(*arguments))
                return
            self._free.acquire()
            for call in self._calls:
                if call.done():
                    call.result()
            self._calls.append(self._pool.submit(self._work, *arguments))
            self._calls[-1].add_done_callback(lambda _: self._free.release())
        except BaseException:
            self.close()
            raise

    def results(self) -> list[Result]:
        """Waits for all calls and returns their results, in the order of `add`."""
        try:
            return [call.result() for call in self._calls]
        finally:
            self.close()

    def close(self) -> None:
        """Starts no further call and restores torch and the model."""
        self._pool.shutdown(cancel_futures=True)
        self._packed.close()
        if self._n > 1:
            torch.set_num_threads(self._n)
