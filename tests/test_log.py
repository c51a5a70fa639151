"""Tests that tasks in progress are shown, on a terminal and in a log, so that a running program is never silent for long."""

import io
import logging
import re
from collections.abc import Iterator
from queue import SimpleQueue
from threading import active_count

import pytest
from rich.console import Console

from entente.console import log as module
from entente.console.log import LONG, LONG_QUIET, Display, Task, clock, display, show_progress

log = logging.getLogger("entente")


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator["SimpleQueue[str]"]:
    """Yields a queue that receives each line of the log."""
    lines: SimpleQueue[str] = SimpleQueue()
    handler = logging.Handler()
    handler.emit = lambda record: lines.put(record.getMessage())  # type: ignore[method-assign]
    monkeypatch.setattr(log, "level", logging.INFO)
    log.addHandler(handler)
    yield lines
    log.removeHandler(handler)


def test_a_task_that_takes_long_is_logged(logged: "SimpleQueue[str]", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET", 0.0)
    threads = active_count()
    with Task("evaluating"), Task("decoding"):
        show_progress("batch 2 of 3")
        assert re.fullmatch(r"decoding  batch 2 of 3  0:\d\d", logged.get(timeout=60))
    assert display.tasks == [] and active_count() == threads


def test_nothing_is_silent_for_more_than_5_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls `is_due` every half second, as the display's thread does, but with a simulated clock."""
    now = 5000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    monkeypatch.setattr(Display, "_tick", lambda self: None)
    shown, printed = Display(), [now]
    monkeypatch.setattr(module, "display", shown)
    record = logging.LogRecord("entente", logging.INFO, "", 0, "", None, None)
    for number in range(70):  # consecutive tasks of 17 seconds, which together take longer than LONG
        with Task(str(number)):
            for _ in range(34):
                now += 0.5
                if shown.is_due(now):
                    shown.emit(record)
                    printed.append(now)
    gaps = [(b - printed[0], b - a) for a, b in zip(printed, printed[1:], strict=False)]
    assert max(gap for end, gap in gaps if end <= LONG) <= 5
    assert {gap for end, gap in gaps if end > LONG + LONG_QUIET} == {LONG_QUIET}


def test_a_terminal_shows_tasks_below_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=40, color_system=None)
    monkeypatch.setattr(module, "Console", lambda **_: console)
    shown = Display()
    monkeypatch.setattr(module, "display", shown)
    line = "a line of the log that is longer than the terminal is wide [bold]"
    with Task("outer"), Task(lambda: "inner"):
        shown.emit(logging.LogRecord("entente", logging.INFO, "", 0, line, None, None))
    assert isinstance(console.file, io.StringIO)
    written = console.file.getvalue()
    assert f"{line}\n" in written, "the line must be neither wrapped nor read as markup"
    assert "outer  0:00" in written and "inner" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1


@pytest.mark.parametrize("stderr", [False, True])
def test_the_log_goes_to_one_stream(stderr: bool, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Display()
    shown.stderr = stderr
    shown.emit(logging.LogRecord("entente", logging.INFO, "", 0, "line", None, None))
    assert [*capsys.readouterr()] == (["", "line\n"] if stderr else ["line\n", ""])


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (130, "2:10"), (3600 + 130, "1:02:10")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
