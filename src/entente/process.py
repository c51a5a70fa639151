"""Prepares our process: threads, memory, and the log on standard output.

glibc keeps freed memory instead of returning it to the kernel. A training step allocates and frees some hundred megabytes, in
blocks of the same sizes as the step before. By default glibc returns each large block to the kernel at once, which fills it
with zeros, page by page, when it is allocated again: on a CPU that takes a third of the time (140,000 page faults per step of
4,096 tokens).
"""

import ctypes
import logging
import os
import signal
import sys
import time
import warnings
from contextlib import suppress
from typing import Annotated

import torch
from annotated_types import Interval, doc

from entente.console import escape

log = logging.getLogger("entente")

Threads = Annotated[Annotated[int, Interval(ge=1, le=4096)] | None, doc("of the CPU; null: one per core")]
PARENT = "ENTENTE_PARENT"  # an environment variable with the number of the process that trains a suite
MALLOC = {  # parameters of mallopt, by their numbers in glibc's malloc.h
    -4: 0,  # M_MMAP_MAX: no block is allocated by mmap
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: bytes free at the end of the heap before they are returned
    -8: 1,  # M_ARENA_MAX: one heap for all threads, since a thread's own heap is returned with what is freed in it
}


class LineFormatter(logging.Formatter):
    """Each record is one line, see `escape.line`."""

    def format(self, record: logging.LogRecord) -> str:
        return escape.line(super().format(record))


class _PrintHandler(logging.Handler):
    """Prints to whatever standard output is now, so that a live progress display can step aside."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # work goes on without a reader; what is printed at its end raises again
            print(self.format(record), flush=True)


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory from now on, and returns whether it could. Resident memory stays at its highest."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, which is left alone; Windows has none of this name
        return False
    return all([mallopt(parameter, value) for parameter, value in MALLOC.items()])


def stop_with(parent: int) -> None:
    """Has this process stop, as SIGTERM stops it, once `parent` is no longer its parent."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def memory() -> int:
    """Returns the bytes of memory that this machine has; where Python cannot tell (Windows), more than any has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else sys.maxsize


def prepare_process(threads: int | None) -> None:
    """Threads for matrix products (None: all cores), memory that is kept, a console for our log, and quiet for the libraries'
    chatter."""
    keep_freed_memory()
    if threads:
        torch.set_num_threads(threads)
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        handler = _PrintHandler()
        handler.setFormatter(LineFormatter())
        log.addHandler(handler)
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Lightning 2.6 asks torch 2.13 in a form that torch is giving up; nothing a user could do about it.
    warnings.filterwarnings("ignore", message=r"`isinstance.treespec, LeafSpec.` is deprecated", category=FutureWarning)
