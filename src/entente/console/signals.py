"""What Ctrl-C (SIGINT) and SIGTERM do, in every command.

Either one raises `Stopped` wherever the main thread is, so that a command ends within a batch and its context managers clean
up. While a run takes its steps, the signal is only kept, until the step is complete and saved. A second Ctrl-C quits at once.
"""

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any


class Stopped(BaseException):
    """A signal asks the command to end. It is no Exception, which libraries handle, and no KeyboardInterrupt, on which
    Lightning exits by itself."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.number = number


class StopSignals:
    """While installed, SIGINT and SIGTERM raise `Stopped`; with `keep`, they only set `received` and print the line `keep`."""

    def __init__(self, keep: str = "") -> None:
        self.received: signal.Signals | None = None
        self._keep = keep
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)

    def remove(self) -> None:
        while self._before:
            number, before = self._before.popitem()
            if signal.getsignal(number) == self._receive:  # else someone has installed another since
                signal.signal(number, before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            os._exit(128 + signal.SIGINT)
        self.received = signal.Signals(number)
        if not self._keep:
            raise Stopped(self.received)
        with contextlib.suppress(OSError):  # standard error may be closed
            os.write(2, f"\n{self._keep}\n".encode())  # not by print, which may be the very call that the signal interrupted
