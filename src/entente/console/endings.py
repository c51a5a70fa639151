"""Ends commands: handles Ctrl-C (SIGINT), SIGTERM, SIGUSR2 (which submitit sends before a SLURM job reaches its time limit) and
closed standard streams, prints errors as lines, and sets exit codes.

A signal raises `Stopped` in the main thread, so that the command stops within one batch and its context managers clean up.
During a training step, the signal is only recorded until the step is complete and a checkpoint is saved. A second Ctrl-C quits
at once.

Exit codes: 0: success. 1: the reader of standard output closed it. 2: invalid input, a file error or lack of memory, with a
line `error: ...` for each problem. 3: training diverged. 75: interrupted, but the run can be resumed. 130, 140 or 143:
interrupted by Ctrl-C, SIGUSR2 or SIGTERM, and there is nothing to resume.
"""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from entente.console import escape
from entente.errors import Diverged, InputError, Interrupted, shortage

# Windows has no SIGUSR2.
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR2") if hasattr(signal, name)]


class Stopped(BaseException):
    """Raised when a signal asks the command to end. It is neither an Exception, which libraries catch, nor
    a KeyboardInterrupt, which makes Lightning exit by itself."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.number = number


class StopSignals:
    """Makes the signals in STOPPING raise `Stopped`. If `keep` is given, they only set `received` and print the line `keep`."""

    def __init__(self, keep: str = "") -> None:
        self.received: signal.Signals | None = None
        self._keep = keep
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        self.install()

    def __exit__(self, *_: object) -> None:
        self.remove()

    def install(self) -> None:
        self._before = _handle(self._receive)

    def remove(self) -> None:
        while self._before:
            number, before = self._before.popitem()
            if signal.getsignal(number) == self._receive:  # otherwise another handler has replaced ours
                signal.signal(number, before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            os._exit(128 + signal.SIGINT)
        self.received = signal.Signals(number)
        if not self._keep:
            raise Stopped(self.received)
        with suppress(OSError):  # standard error may be closed
            os.write(2, f"\n{self._keep}\n".encode())  # not print(): the signal may have interrupted another print()


def _handle(handler: Any) -> dict[int, Any]:
    """Sets the handler of the signals in STOPPING, and returns the earlier ones. Python allows it only in the main thread."""
    main = threading.current_thread() is threading.main_thread()
    return {number: signal.signal(number, handler) for number in STOPPING} if main else {}


@contextmanager
def default_signals() -> Iterator[None]:
    """Lets signals end this process at once, while it waits in a library that Python's handlers cannot interrupt."""
    before = _handle(signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def occupy_standard_streams() -> None:
    """Opens /dev/null in place of a closed standard input, output or error, since otherwise the next file opened would take the
    stream's file descriptor. Input is opened write-only and output read-only, so that reading or printing raises an error."""
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # returns the lowest free descriptor, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for terminals that cannot encode a translation


@contextmanager
def endings() -> Iterator[None]:
    """Prints exceptions meant for the user on standard error, one line per problem, and exits with the matching code."""
    try:
        yield
        if sys.stdout:
            sys.stdout.flush()
    except InputError as error:
        _end(2, *(f"error: {problem}" for problem in error.problems))
    except Diverged as divergence:
        _end(3, f"diverged: {divergence}")
    except Interrupted as interruption:
        _end(75, str(interruption))
    except Stopped as stopped:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))  # else a second Ctrl-C prints a traceback
        _end(128 + stopped.number, str(stopped))
    except KeyboardInterrupt:
        _end(130)
    except BrokenPipeError:  # the reader of our output (head, less) has exited
        _end(1)
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        if (line := shortage(error)) is None:
            raise
        _end(2, f"error: {line}")


def _end(code: int, *lines: str) -> None:
    for line in lines:
        print(escape.line(" ".join(line.split())), file=sys.stderr)
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python does not try to flush again at exit
    sys.exit(code)
