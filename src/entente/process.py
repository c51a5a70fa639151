"""Prepares the process: threads, memory, and the log.

Without `keep_freed_memory`, glibc returns each large block to the kernel as soon as it is freed, and the kernel zeroes it
again, page by page, at the next allocation. On a CPU, this takes a third of a training step's time.
"""

import ctypes
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from entente.console import start_log

MALLOC = {  # parameters of mallopt, numbered as in glibc's malloc.h
    -4: 0,  # M_MMAP_MAX: never allocate a block with mmap
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: return memory only when the end of the heap has more free bytes than this
    -8: 1,  # M_ARENA_MAX: one heap for all threads, because glibc would return memory freed in a per-thread heap
}


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory from now on."""
    with suppress(AttributeError, OSError, TypeError):  # another C library, without mallopt; or Windows
        for parameter, value in MALLOC.items():
            ctypes.CDLL(None).mallopt(parameter, value)


def return_freed_memory() -> None:
    """Makes glibc return its free memory to the kernel, after work that needed more memory than later work will."""
    with suppress(AttributeError, OSError, TypeError):  # see `keep_freed_memory`
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Makes torch use one thread inside the context."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def prepare_process(threads: int | None, log_to_stderr: bool = False) -> None:
    """Sets the number of threads, unless it is None, and starts the log (see `start_log`)."""
    keep_freed_memory()
    if threads:
        torch.set_num_threads(threads)
    start_log(log_to_stderr)
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Lightning 2.6 makes a call that torch 2.13 has deprecated; users can do nothing about this warning.
    warnings.filterwarnings("ignore", message=r"`isinstance.treespec, LeafSpec.` is deprecated", category=FutureWarning)
