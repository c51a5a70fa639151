"""glibc keeps freed memory instead of returning it to the kernel.

A training step allocates and frees some hundred megabytes, in blocks of the same sizes as the step before. By default glibc
returns each large block to the kernel at once, which fills it with zeros, page by page, when it is allocated again: on a CPU
that takes a third of the time (140,000 page faults per step of 4,096 tokens).
"""

import ctypes

SETTINGS = {  # parameters of mallopt, by their numbers in glibc's malloc.h
    -4: 0,  # M_MMAP_MAX: no block is allocated by mmap
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: bytes free at the end of the heap before they are returned
    -8: 1,  # M_ARENA_MAX: one heap for all threads, since a thread's own heap is returned with what is freed in it
}


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory from now on, and returns whether it could. Resident memory stays at its highest."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, which is left alone; Windows has none of this name
        return False
    return all([mallopt(parameter, value) for parameter, value in SETTINGS.items()])
