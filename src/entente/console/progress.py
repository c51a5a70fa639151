"""Shows the progress of work that may take long."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Yields the items, and prints a line on standard error every 5 seconds."""
    shown = time.monotonic()
    for number, item in enumerate(items):
        if time.monotonic() - shown > 5:
            print(f"{what}: {number:,} of {total:,}", file=sys.stderr, flush=True)
            shown = time.monotonic()
        yield item
