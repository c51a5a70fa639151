"""The command `entente`, or `python -m entente`, which takes a verb, flags, and settings as KEY=VALUE."""

import gc
import os
import sys

# torch reads these variables when it is imported; the processes that a command starts inherit them.
# THP_MEM_ALLOC_ENABLE requests 2 MB huge pages for large tensors, so that memory accesses cause fewer TLB misses. The Linux
# kernel grants them if transparent huge pages are set to "madvise" or "always".
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# The threads of an operation wait for each other by spinning, by default 300,000 times, which is in vain while another program
# has one of the cores.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "100000")

# What is created before the command runs lives on. Without searches for garbage in it, imports take a tenth less time.
gc.disable()

from entente import cli  # noqa: E402
from entente.console import exit_codes  # noqa: E402


def main() -> None:
    with exit_codes():
        cli.main(sys.argv[1:])


if __name__ == "__main__":
    main()
