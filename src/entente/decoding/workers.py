"""Decoding on a CPU: one worker for each core, each computing its own products on one thread, instead of one worker whose
products are split among the cores. The products of a search step are small, and much happens between them."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import nn

from entente.fast.attach import packed

Item = TypeVar("Item")
Result = TypeVar("Result")


def work_through(items: Iterable[Item], work: Callable[[Item], Result], model: nn.Module) -> list[Result]:
    """What `work` returns for each item, in order, computed on `torch.get_num_threads()` workers of one thread each.

    Each item is asked for once the one before has begun, so that the iterable can report progress. Until the end torch has one
    thread, and the model's weights must not change. On another device than a CPU, and under autocast, which other threads would
    not have, the caller is the only worker. Raises what a call has raised.
    """
    threads = torch.get_num_threads()
    on_cpu = next(model.parameters()).device.type == "cpu"
    with packed(model):
        if threads == 1 or not on_cpu or torch.is_autocast_enabled("cpu"):
            return [work(item) for item in items]
        calls: list[Future[Result]] = []
        running: set[Future[Result]] = set()
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(threads) as pool:
                for item in items:
                    if len(running) == threads:
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        for call in done:
                            call.result()
                    calls.append(pool.submit(work, item))
                    running.add(calls[-1])
                return [call.result() for call in calls]
        finally:
            torch.set_num_threads(threads)
