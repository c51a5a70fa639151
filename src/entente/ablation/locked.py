"""Trains while it holds a lock: python -m entente.ablation.locked LOCK [SETTINGS OF train]

The process that trains a run of a suite holds the run's lock itself, so that the lock outlives a suite that is killed.
"""

import runpy
import sys

from filelock import FileLock, Timeout

IN_ANOTHER_PROCESS = 75  # EX_TEMPFAIL, as for an interrupted run

if __name__ == "__main__":
    _, lock, *settings = sys.argv
    sys.argv = ["entente", "train", *settings]
    try:
        held = FileLock(lock).acquire(timeout=0)
    except Timeout:
        sys.exit(IN_ANOTHER_PROCESS)
    with held:
        runpy.run_module("entente", run_name="__main__")
