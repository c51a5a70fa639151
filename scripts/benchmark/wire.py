"""The connection of a contestant to the process that measures it. Imports only the standard library, because other programs
import this module in their own environments.

A contestant first receives its settings. It answers once when it is set up, then once per request. Messages are dicts of plain
values; batches are pairs of padded lists of token ids, src (B, S) and tgt (B, T).
"""

import re
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PAD = 0
Message = dict[str, Any]
Burst = Callable[[Message], Message]  # answers a request with a timed measurement


class Wire:
    """The contestant's end of the connection."""

    def __init__(self) -> None:
        self._connection = Connection(int(sys.argv[1]))
        self.settings = self.request()

    def request(self) -> Message:
        return self._connection.recv()

    def answer(self, **values: Any) -> None:
        self._connection.send({**values, "peak_mb": peak_mb()})

    def serve(self, burst: Burst, **about: Any) -> None:
        """Answers with a description of the contestant, then each request with the result of `burst`."""
        self.answer(**about)
        while True:
            self.answer(**burst(self.request()))


def peak_mb() -> float:
    """Returns this process's peak resident memory in MiB, or 0 if the system is not Linux. (`ru_maxrss` would include the peak
    of the parent process.)"""
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\s*(\d+)", status.read_text(encoding="utf-8")) if status.exists() else None
    return round(int(peak[1]) / 1024, 1) if peak else 0.0
