"""How commands end: errors as lines on standard error, exit codes, and standard streams that are closed.

Exit codes: 0 done; 1 the reader of standard output went away; 2 something to correct, a line `error: ...` for each problem;
3 training diverged; 75 interrupted, can be resumed; 130 Ctrl-C and 143 SIGTERM where there is nothing to resume.
"""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from entente.console import escape
from entente.console.signals import Stopped
from entente.errors import Diverged, InputError, Interrupted, shortage


def occupy_standard_streams() -> None:
    """Where standard input, output or error is closed, the next file opened would become it. The output is one that cannot be
    written, so that losing what is printed is an error."""
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # the lowest that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without the letters of a translation


@contextmanager
def endings() -> Iterator[None]:
    """The exceptions a user is meant to read, as lines and exit codes."""
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
        _quit_on_ctrl_c()
        _end(128 + stopped.number, str(stopped))
    except KeyboardInterrupt:
        _end(130)
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        _end(1)
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        if (line := shortage(error)) is None:
            raise
        _end(2, f"error: {line}")


def _drop_output() -> None:
    """Where standard output cannot be written, what it still holds is not written at exit either."""
    with suppress(OSError):
        if sys.stdout:
            sys.stdout.flush()
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _quit_on_ctrl_c() -> None:
    """One more Ctrl-C ends the process at once, where Python would print a traceback of its own shutdown."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))


def _end(code: int, *lines: str) -> None:
    for line in lines:
        print(escape.line(" ".join(line.split())), file=sys.stderr)
    _drop_output()
    sys.exit(code)
