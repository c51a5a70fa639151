"""The console: the log, the tasks in progress, signals, and exit codes.

On a terminal, each task in progress is a live line below the log. Elsewhere (a pipe, a CI log), the line of the innermost task
is logged whenever nothing has been printed for half a minute, so that a slow program can be told apart from one that hangs.

Exit codes: 0: success. 2: invalid input, a file error or lack of memory, with a line `error: ...` for each problem. 3: training
diverged. 75: interrupted, but resumable. 128 + N: ended by signal N, with nothing to resume.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from entente import escape
from entente.errors import Diverged, InputError, Interrupted, reason

Item = TypeVar("Item")
log = logging.getLogger("entente")
SILENCE = 30.0  # seconds without output after which the innermost task is logged
# SIGINT is Ctrl-C. submitit sends SIGUSR2 before a SLURM job reaches its time limit. Windows has no SIGUSR2.
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR2") if hasattr(signal, name)]


def clock(seconds: float) -> str:
    """Formats a duration as minutes and seconds, with hours only if there are any: 2:10, 1:02:10."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class LineFormatter(logging.Formatter):
    """Formats each record as one line, using `escape.line`."""

    def format(self, record: logging.LogRecord) -> str:
        return escape.line(super().format(record))


class Display(logging.Handler):
    """Prints the log and shows the tasks in progress, on standard output, or on standard error if `stderr` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())
        self.stderr, self.hidden = False, False
        self.tasks: list[Task] = []  # the outermost first
        self._live: Live | None = None
        self._ended = threading.Event()
        self._printed = 0.0  # time.monotonic() of the last output

    def emit(self, record: logging.LogRecord) -> None:
        self._printed = time.monotonic()
        if self._live:
            self._live.console.print(Text(self.format(record)), soft_wrap=True)
        else:  # to the current `sys.stdout`, since tests replace it
            print(self.format(record), file=sys.stderr if self.stderr else sys.stdout, flush=True)

    def add(self, task: "Task") -> None:
        if self.hidden:
            return
        self.tasks.append(task)
        if len(self.tasks) > 1:
            return
        console = Console(stderr=self.stderr)
        if console.is_interactive:
            self._live = Live(console=console, get_renderable=self._lines, refresh_per_second=4, transient=True)
            self._live.start(refresh=True)
        else:
            self._ended.clear()
            self._printed = max(self._printed, task.began)
            threading.Thread(target=self._log_when_silent, daemon=True).start()

    def remove(self, task: "Task") -> None:
        if task in self.tasks:
            self.tasks.remove(task)
        if not self.tasks:
            self._ended.set()
            if self._live:
                self._live.stop()
            self._live = None

    def _lines(self) -> Group:
        return Group(*(Text(task.line(), no_wrap=True, overflow="ellipsis") for task in self.tasks))

    def _log_when_silent(self) -> None:
        while not self._ended.wait(max(0.0, self._printed + SILENCE - time.monotonic())):
            if self.tasks and time.monotonic() >= self._printed + SILENCE:
                log.info(self.tasks[-1].line())


display = Display()


def start_log(to_stderr: bool = False) -> None:
    """Sends the log to standard output, or to standard error if standard output carries the command's result."""
    log.setLevel(logging.ERROR if display.hidden else logging.INFO)
    log.propagate = False
    display.stderr = to_stderr
    log.addHandler(display)


def hide_log() -> None:
    """Hides this process's log and tasks, since another process shows the same ones. Errors are still printed."""
    log.setLevel(logging.ERROR)
    display.hidden = True


class Task:
    """Work in progress, shown while its `with` block runs. label: its name, or a function that returns its whole line."""

    def __init__(self, label: str | Callable[[], str]) -> None:
        self.label, self.progress, self.began = label, "", 0.0

    def line(self) -> str:
        if callable(self.label):
            return self.label()
        return "  ".join(filter(None, (self.label, self.progress, clock(time.monotonic() - self.began))))

    def __enter__(self) -> "Task":
        self.began = time.monotonic()
        display.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        display.remove(self)


def show_progress(text: str) -> None:
    """Shows `text` as the progress of the innermost task, if there is one."""
    if display.tasks:
        display.tasks[-1].progress = text


def show_share(items: Iterable[Item], total: int, of: str) -> Iterator[Item]:
    """Yields items, and shows the percentage of `total` that is done and the time left. of: describes the items."""
    began = time.monotonic()
    for done, item in enumerate(items):
        if done:
            show_progress(f"{done / total:.0%} of {of}, {clock((time.monotonic() - began) / done * (total - done))} left")
        yield item
    show_progress("")


class Stopped(BaseException):
    """Raised when a signal asks the command to end. It is neither an Exception, which libraries catch, nor
    a KeyboardInterrupt, which makes Lightning exit by itself."""

    def __init__(self, number: int) -> None:
        self.number = signal.Signals(number)
        super().__init__(f"stopped by {self.number.name}")


@contextmanager
def stop_signals(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Calls `on_signal` with each signal in STOPPING that arrives within the context. A second Ctrl-C quits at once."""
    interrupts = 0

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1:
            os._exit(128 + number)
        on_signal(number)

    main = threading.current_thread() is threading.main_thread()  # Python sets handlers only there
    handlers: dict[int, Any] = {number: signal.signal(number, receive) for number in STOPPING} if main else {}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def raise_stopped(number: int) -> None:
    raise Stopped(number)


def lines_of(error: BaseException) -> tuple[int, list[str]] | None:
    """Returns the exit code for an error meant for the user and the lines to print, or None for any other error."""
    match error:
        case InputError():
            return 2, [f"error: {problem}" for problem in error.problems]
        case Diverged():
            return 3, [f"diverged: {error}"]
        case Interrupted():
            return 75, [str(error)]
        case Stopped():
            return 128 + error.number, [str(error)]
        case OSError() if not isinstance(error, BrokenPipeError):
            return 2, [f"error: {error.filename or 'input or output'}: {reason(error)}"]
        case MemoryError() | RuntimeError() if isinstance(error, MemoryError) or "memory" in str(error):
            return 2, ["error: out of memory; free some, or lower data.batch.max_tokens, the model's widths or search.beam"]
    return None


def print_error(code: int, lines: Iterable[str]) -> int:
    """Prints lines on standard error, and returns the exit code."""
    for line in lines:
        print(escape.line(" ".join(line.split())), file=sys.stderr)
    return code


@contextmanager
def exit_codes() -> Iterator[None]:
    """Prints an error meant for the user on standard error, one line per problem, and exits with the matching code."""
    try:
        with stop_signals(raise_stopped):
            yield
    except BaseException as error:
        if (ending := lines_of(error)) is None:
            raise
        sys.exit(print_error(*ending))
