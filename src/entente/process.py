"""A process of ours, prepared: threads, memory and the log."""

import logging
import warnings
from typing import Annotated

import torch
from annotated_types import Interval, doc

from entente.console.escape import LineFormatter
from entente.console.log import PrintHandler
from entente.fast.memory import keep_freed_memory

log = logging.getLogger("entente")

Threads = Annotated[Annotated[int, Interval(ge=1, le=4096)] | None, doc("of the CPU; null: one per core")]


def prepare_process(threads: int | None) -> None:
    """Threads for matrix products (None: all cores), memory that is kept, a console for our log, and quiet for the libraries'
    chatter."""
    keep_freed_memory()
    if threads:
        torch.set_num_threads(threads)
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        handler = PrintHandler()
        handler.setFormatter(LineFormatter())
        log.addHandler(handler)
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Lightning 2.6 asks torch 2.13 in a form that torch is giving up; nothing a user could do about it.
    warnings.filterwarnings("ignore", message=r"`isinstance.treespec, LeafSpec.` is deprecated", category=FutureWarning)
