"""glibc keeps freed memory instead of returning it to the kernel.

A training step allocates and frees some hundred megabytes, in blocks of the same sizes as the step before. By default glibc
returns each large block to the kernel at once, and the kernel fills it with zeros, page by page, when it is allocated again: on
a CPU that takes a third of the time (140,000 page faults per step of 4,096 tokens).
"""

import ctypes

# Parameters of mallopt, from glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
NEVER = 2**31 - 1  # bytes free at the end of the heap before they are returned
SERVED_BY_THE_SYSTEM = 0  # blocks allocated by mmap at a time
SHARED_BY_THREADS = 1  # heap for all threads; a thread's own heap is returned with what is freed in it


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory from now on, and returns whether it could. Other C libraries are left alone. Resident
    memory stays at its highest."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; Windows has none of this name
        return False
    settings = {MMAP_MAX: SERVED_BY_THE_SYSTEM, TRIM_THRESHOLD: NEVER, ARENA_MAX: SHARED_BY_THREADS}
    return all([mallopt(parameter, value) for parameter, value in settings.items()])
