"""The protocol between a contestant and the process that measures it: one line of JSON per message.

The first line that a contestant reads contains its settings. It answers once when it is set up, then once per request. Anything
else that it prints goes to standard error. Imports only the standard library, because other programs import this module too.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

Answer = dict[str, Any]


class Wire:
    """The contestant's end of the connection."""

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
        """Answers each request with the result of `burst`, until there are no more requests."""
        for request in self.requests():
            self.answer(**burst(request))


def peak_kb() -> float:
    """Returns this process's peak resident memory in KiB. On Linux, ru_maxrss would include the peak of the parent process."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            return float(next(line for line in file if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
