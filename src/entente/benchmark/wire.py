"""How a contestant talks with whoever measures it: a line of JSON asks, a line of JSON answers.

Standard library only: the peers' scripts, run by interpreters that know nothing of this package, use it too.

A contestant answers once when it is set up, then once for each request. What it, or a library, prints goes to standard error.
A request is one burst: {"steps": 10}; the answer has its `seconds`, its `tokens`, and what else the contestant has to say.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

Answer = dict[str, Any]


class Wire:
    """The contestant's end."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def requests(self) -> Iterator[Answer]:
        for line in sys.stdin:
            yield json.loads(line)

    def answer(self, **values: Any) -> None:
        print(json.dumps({**values, "peak_mb": round(peak_kb() / 1024, 1)}), file=self._out, flush=True)


def peak_kb() -> float:
    """The most memory that this process has held, in KiB. Linux' ru_maxrss also knows what the one that started it held."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            return float(next(line for line in file if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)


def setting_file() -> dict[str, Any]:
    """The contestant's settings: a JSON file that the command line names."""
    with open(sys.argv[1], encoding="utf-8") as file:
        settings: dict[str, Any] = json.load(file)
    return settings


def serve(wire: Wire, burst: Callable[[Answer], Answer]) -> None:
    """Answers each request with what `burst` makes of it, until there are no more."""
    for request in wire.requests():
        wire.answer(**burst(request))
