"""How a measured program talks with the process that measures it: one line of JSON per message.

The first line it reads holds its settings. It answers once when it is set up, then once per request. Whatever it or a library
prints goes to standard error. Standard library only, because the interpreters of other programs import this too.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

Answer = dict[str, Any]


class Wire:
    """The measured program's end."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.settings: Answer = json.loads(sys.stdin.readline())

    def requests(self) -> Iterator[Answer]:
        for line in sys.stdin:
            yield json.loads(line)

    def answer(self, **values: Any) -> None:
        print(json.dumps({**values, "peak_mb": round(peak_kb() / 1024, 1)}), file=self._out, flush=True)

    def serve(self, burst: Callable[[Answer], Answer]) -> None:
        """Answers each request with what `burst` returns for it, until there are no more."""
        for request in self.requests():
            self.answer(**burst(request))


def peak_kb() -> float:
    """Peak resident memory of this process in KiB. On Linux, ru_maxrss would include the peak of the parent process."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            return float(next(line for line in file if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
