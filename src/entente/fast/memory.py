"""Freed memory stays with the process.

A training step takes and gives back some hundred megabytes, in blocks of the same sizes as the step before. By default the C
library hands each large block back to the system at once, and the system fills it with zeros, page by page, when it is asked
for again: on a CPU that costs a third of the time (140,000 page faults a step of 4,096 tokens).
"""

import ctypes

# Of mallopt, from glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
NEVER = 2**31 - 1  # bytes free at the heap's end before they are given back
SERVED_BY_THE_SYSTEM = 0  # blocks at a time
SHARED_BY_THREADS = 1  # heap of all; one of a thread's own is given back with what is freed in it


def keep_freed_memory() -> bool:
    """From now on the C library keeps what is freed for the next one who asks. Returns whether it could be told: glibc can,
    other C libraries have ways of their own and are left alone. Resident memory stays at its highest."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; on Windows there is none of this name
        return False
    settings = {MMAP_MAX: SERVED_BY_THE_SYSTEM, TRIM_THRESHOLD: NEVER, ARENA_MAX: SHARED_BY_THREADS}
    return all([mallopt(parameter, value) for parameter, value in settings.items()])
