"""Prints the log and shows the tasks in progress.

On a terminal, each task in progress is a live line below the log. Elsewhere (a pipe, a CI log), the line of the innermost task
is logged whenever nothing else has been printed for some seconds, so that a slow program can be told apart from one that hangs.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Event, Thread
from typing import TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from entente.console import escape

T = TypeVar("T")

log = logging.getLogger("entente")

QUIET = 3.5  # seconds without output after which a task is logged
LONG = 600.0  # after this many seconds of work, LONG_QUIET replaces QUIET, to keep long logs readable
LONG_QUIET = 60.0
PAUSE = 1.0  # tasks that follow one another within this many seconds count as one piece of work


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
        self._ticker: Thread | None = None
        self._ended = Event()
        self._printed = self._began = self._idle = 0.0  # time.monotonic() of the last output, and of the work's start and end

    def emit(self, record: logging.LogRecord) -> None:
        self._printed = time.monotonic()
        line = self.format(record)
        with suppress(OSError):  # a closed pipe does not stop the work; printing the result raises the error again
            if self._live:
                self._live.console.print(Text(line), soft_wrap=True)
            else:  # to the current `sys.stdout`, since tests replace it
                print(line, file=sys.stderr if self.stderr else sys.stdout, flush=True)

    def add(self, task: "Task") -> None:
        if self.hidden:
            return
        self.tasks.append(task)
        if len(self.tasks) == 1:
            if task.began - self._idle > PAUSE:
                self._began = task.began
            console = Console(stderr=self.stderr)
            if console.is_interactive:
                self._live = Live(console=console, get_renderable=self._lines, refresh_per_second=4, transient=True)
                self._live.start(refresh=True)
            else:
                self._ended.clear()
                self._ticker = Thread(target=self._tick, daemon=True)
                self._ticker.start()
        elif self._live:
            self._live.refresh()

    def remove(self, task: "Task") -> None:
        if task in self.tasks:
            self.tasks.remove(task)
        self._idle = time.monotonic()
        if not self.tasks and self._live:
            self._live.stop()
            self._live = None
        if not self.tasks and self._ticker:
            self._ended.set()
            self._ticker.join()
            self._ticker = None

    def _lines(self) -> Group:
        return Group(*(Text(task.line(), no_wrap=True, overflow="ellipsis") for task in self.tasks))

    def _tick(self) -> None:
        """Logs the innermost task whenever nothing has been printed for a while, until there are no more tasks."""
        while not self._ended.wait(0.5):
            if self.is_due(time.monotonic()) and (innermost := self.tasks[-1:]):
                log.info(innermost[0].line())

    def is_due(self, now: float) -> bool:
        """Returns whether a task should be logged, since nothing has been printed for a while. now: time.monotonic()"""
        return now - max(self._printed, self._began) >= (LONG_QUIET if now - self._began > LONG else QUIET)


display = Display()


def start_log(to_stderr: bool = False) -> None:
    """Sends the log to standard output, or to standard error if standard output carries the command's result. Calling it again
    does not duplicate messages."""
    log.setLevel(logging.INFO)
    log.propagate = False
    display.stderr = to_stderr
    log.addHandler(display)


def hide_log() -> None:
    """Hides this process's log and tasks, since another process shows the same ones. Errors are still printed."""
    log.setLevel(logging.ERROR)
    display.hidden = True


class Task:
    """Work in progress, shown while its `with` block runs. said: the task's name, or a function that returns its whole line."""

    def __init__(self, said: str | Callable[[], str]) -> None:
        self.said, self.progress, self.began = said, "", 0.0

    def line(self) -> str:
        if callable(self.said):
            return self.said()
        return "  ".join(filter(None, (self.said, self.progress, clock(time.monotonic() - self.began))))

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


def show_share(items: Iterable[T], total: int, of: str) -> Iterator[T]:
    """Yields items, and shows the percentage of `total` that is done and the time left. of: describes the items, for example
    "the source sentences"."""
    began = time.monotonic()
    for done, item in enumerate(items):
        if done:
            show_progress(f"{done / total:.0%} of {of}, {clock((time.monotonic() - began) / done * (total - done))} left")
        yield item
    show_progress("")
