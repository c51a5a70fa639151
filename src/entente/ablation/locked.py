"""Runs a Python script while it holds a lock: python -m entente.ablation.locked LOCK SCRIPT [ARGUMENTS]

The process that trains a run of a suite holds the run's lock itself, so that the lock outlives a suite that is killed.
"""

import runpy
import sys

from filelock import FileLock, Timeout

IN_ANOTHER_PROCESS = 75  # EX_TEMPFAIL, as for an interrupted run

if __name__ == "__main__":
    _, lock, *sys.argv = sys.argv
    try:
        held = FileLock(lock).acquire(timeout=0)
    except Timeout:
        sys.exit(IN_ANOTHER_PROCESS)
    with held:
        runpy.run_path(sys.argv[0], run_name="__main__")
