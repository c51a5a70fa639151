"""The console: the log, the tasks in progress, signals, and exit codes.

On a terminal, each task in progress is a live line below the log. Elsewhere (a pipe, a CI log), the line of the innermost task
is logged whenever nothing has been printed for half a minute, so that a slow program can be told apart from one that hangs.
The exit codes are those of the exceptions in entente.errors, and 2 after a file error or for lack of memory.
"""

import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from entente import escape
from entente.errors import Diverged, InputError, Interrupted, Stopped, raise_stopped, reason

Item = TypeVar("Item")
log = logging.getLogger("entente")
SILENCE = 30.0  # seconds without output after which the innermost task is logged
# SIGINT is Ctrl-C. submitit sends SIGUSR2 before a SLURM job reaches its time limit. Windows has no SIGUSR2.
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR2") if hasattr(signal, name)]


def clock(seconds: float) -> str:
    """Formats a duration as minutes and seconds, with hours only if there are any: 2:10, 1:02:10."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:").removeprefix("0")


class Display(logging.Handler):
    """Prints the log and shows the tasks in progress, on standard output, or on standard error if `stderr` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.stderr = False
        self.tasks: list[Task] = []  # the outermost first
        self.live: Any = None  # rich's display on a terminal
        self._printed = time.monotonic()  # time of the last output

    def emit(self, record: logging.LogRecord) -> None:
        self._printed = time.monotonic()
        if self.live:
            self.live.console.out(self.format(record), highlight=False)
        else:  # to the current `sys.stdout`, since tests replace it
            print(self.format(record), file=sys.stderr if self.stderr else sys.stdout, flush=True)

    def show_tasks(self) -> None:
        from rich.console import Console  # slow to import, and not needed for help and for mistakes
        from rich.live import Live

        console = Console(stderr=self.stderr, markup=False, emoji=False, highlight=False)
        if console.is_interactive:
            self.live = Live(console=console, get_renderable=lambda: "\n".join(map(Task.line, self.tasks)), transient=True)
            self.live.start(refresh=True)

    def log_when_silent(self) -> None:
        """Logs the innermost task after each SILENCE. Runs as long as the log, in a thread of its own."""
        while self in log.handlers:
            time.sleep(1)
            if self.live or not self.tasks:  # nothing is silent
                self._printed = time.monotonic()
            for task in self.tasks[-1:] if time.monotonic() >= self._printed + SILENCE else []:
                log.info(task.line())


display = Display()


def start_log(to_stderr: bool = False) -> None:
    """Sends the log to standard output, or to standard error if standard output carries the command's result."""
    log.propagate = False
    display.stderr = to_stderr
    if display not in log.handlers:
        log.setLevel(logging.INFO)  # only once, so that a process of several keeps its own level
        log.addHandler(display)
        threading.Thread(target=display.log_when_silent, daemon=True).start()


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
        display.tasks.append(self)
        if len(display.tasks) == 1 and log.isEnabledFor(logging.INFO):
            display.show_tasks()
        return self

    def __exit__(self, *_: object) -> None:
        if display.live and display.tasks == [self]:  # the display shows the last state of the task, and ends
            display.live = display.live.stop()
        if self in display.tasks:
            display.tasks.remove(self)


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


@contextmanager
def stop_signals(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Calls `on_signal` with each signal in STOPPING that arrives within the context. A second Ctrl-C quits at once."""

    def receive(number: int, frame: object) -> None:
        if number == signal.SIGINT:
            signal.signal(number, lambda *_: os._exit(128 + number))
        on_signal(number)

    is_main = threading.current_thread() is threading.main_thread()  # Python calls handlers only there
    with ExitStack() as stack:
        for number in STOPPING if is_main else ():
            stack.callback(signal.signal, number, signal.signal(number, receive))
        yield


def report(error: BaseException) -> int | None:
    """Prints an error meant for the user on standard error, a line per problem. Returns its exit code, or None for others."""
    match error:
        case InputError():
            code, lines = 2, [f"error: {problem}" for problem in error.problems]
        case Diverged():
            code, lines = 3, [f"diverged: {error}"]
        case Interrupted():
            code, lines = 75, [str(error)]
        case Stopped():
            code, lines = 128 + error.number, [str(error)]
        case BrokenPipeError() if error.filename is None:  # the reader, such as `head`, wants no more
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would report it again when it flushes
            return 128 + signal.SIGPIPE
        case OSError():
            code, lines = 2, [f"error: {error.filename or 'input or output'}: {reason(error)}"]
        case MemoryError() | RuntimeError() if re.search("MemoryError|(out of|allocate|not enough) memory", repr(error)):
            code, lines = 2, ["error: out of memory; lower data.batch.max_tokens, the model's widths or search.beam"]
        case _:
            return None
    print(*(escape.line(" ".join(line.split())) for line in lines), sep="\n", file=sys.stderr)
    return code


def print_table(lines: Sequence[Sequence[str]], title: str | None = None, caption: str | None = None) -> None:
    """Prints a table, whose first line is the headings and whose first column is text. A pipe gets lines that do not wrap."""
    from rich.console import Console
    from rich.table import Column, Table

    headings, *rows = [[escape.line(cell) for cell in line] for line in lines]
    columns = [Column(heading, justify="right" if i else "left") for i, heading in enumerate(headings)]
    table = Table(*columns, title=title and escape.line(title), caption=caption and escape.line(caption))
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 10_000, markup=False, emoji=False).print(table)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Reports an error meant for the user, and exits with its code."""
    try:
        with stop_signals(raise_stopped):
            yield
    except BaseException as error:
        if (code := report(error)) is None:
            raise
        sys.exit(code)
