"""The command `entente`, or `python -m entente`, which takes a verb, flags, and settings as KEY=VALUE."""

import gc
import os
import sys

# torch reads these variables when it is imported; the processes that a command starts inherit them.
# THP_MEM_ALLOC_ENABLE requests 2 MB huge pages for large tensors, so that memory accesses cause fewer TLB misses. The Linux
# kernel grants them if transparent huge pages are set to "madvise" or "always".
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# On an idle machine, it is fastest if the threads of an operation spin while they wait for each other. Where other programs use
# the cores, they spin in vain: training is then almost twice as fast if they sleep (scripts/waiting.py).
if hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5:  # programs that wanted a core, as a mean over the last minute
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from entente import cli  # noqa: E402
from entente.console import exit_codes  # noqa: E402


def main() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed before the command started
            setattr(sys, name, open(os.devnull, mode))
    try:
        with exit_codes():
            cli.main(sys.argv[1:])
    finally:
        gc.freeze()  # Python would otherwise search all modules for garbage before it exits, which takes a second with torch


if __name__ == "__main__":
    main()
