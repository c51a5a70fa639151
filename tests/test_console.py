"""Tests the log, the tasks in progress, so that a running program is never silent for long, and the exit codes."""

import io
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rich.console

from entente import console
from entente.console import Display, Task, clock, exit_codes, show_progress, show_share
from entente.errors import Diverged, InputError, Interrupted


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Display]:
    """Returns a display that tasks and the log use."""
    display = Display()
    monkeypatch.setattr(console, "display", display)
    monkeypatch.setattr(console.log, "handlers", [display])
    monkeypatch.setattr(console.log, "propagate", False)
    level = console.log.level
    console.log.setLevel(logging.INFO)
    yield display
    console.log.setLevel(level)


def test_the_innermost_task_is_logged_after_each_silence(
    shown: Display, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the loop of the thread with a clock on which only its sleep takes time."""
    now = time.monotonic()
    end = now + 100

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > end:
            raise InterruptedError

    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    monkeypatch.setattr(console.time, "sleep", sleep)
    with Task("evaluating"), Task("decoding"), pytest.raises(InterruptedError):
        show_progress("batch 2 of 3")
        shown.log_when_silent()
    assert capsys.readouterr().out.splitlines() == [f"decoding  batch 2 of 3  {time}" for time in ("0:30", "1:00", "1:30")]
    assert shown.tasks == []


def test_a_terminal_shows_tasks_below_the_log(shown: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(
        rich.console,
        "Console",
        lambda make=rich.console.Console, stderr=False, **options: make(
            file=terminal, force_terminal=True, force_interactive=True, width=40, color_system=None, **options
        ),
    )
    line = "a line of the log that is longer than the terminal is wide [bold]"
    with Task("outer"), Task(lambda: "inner"):
        shown.live.refresh()
        console.log.info(line)
    written = terminal.getvalue()
    assert f"{line}\n" in written, "the line must be neither wrapped nor read as markup"
    assert "outer  0:00" in written and "inner" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1


@pytest.mark.parametrize("stderr", [False, True])
def test_the_log_goes_to_one_stream(stderr: bool, shown: Display, capsys: pytest.CaptureFixture[str]) -> None:
    shown.stderr = stderr
    console.log.info("%s: going on", "run")
    text, empty = reversed(capsys.readouterr()) if stderr else capsys.readouterr()
    assert (text, empty) == ("run: going on\n", "")


def test_the_share_that_is_done_and_the_time_left_are_shown(shown: Display) -> None:
    with Task("decoding") as task:
        lines = [task.progress for _ in show_share("abcd", 4, of="batches")]
    assert lines[0] == task.progress == "" and re.fullmatch(r"75% of batches, 0:\d\d left", lines[-1])


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (130, "2:10"), (3600 + 130, "1:02:10")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(9)


def raise_error(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "code", "lines"),
    [
        (raise_error(InputError("a file: is\nnot there", "nor this")), 2, ["error: a file: is not there", "error: nor this"]),
        (raise_error(InputError("\x1b]0;owned\x07" + "x" * 10**6)), 2, [r"error: \\x1b\]0;owned\\x07x.*"]),
        (lambda: Path("nowhere/file").read_text(), 2, ["error: nowhere/file: No such file or directory"]),
        (raise_error(RuntimeError("CUDA out of memory")), 2, ["error: out of memory; .+"]),
        (raise_error(RuntimeError("DefaultCPUAllocator: can't allocate memory: 12")), 2, ["error: out of memory; .+"]),
        (raise_error(Diverged("at step 3")), 3, ["diverged: at step 3"]),
        (raise_error(Interrupted("saved at step 3; continue with\nresume=x")), 75, ["saved at step 3; continue with resume=x"]),
        (press_ctrl_c, 130, ["stopped by SIGINT"]),
    ],
    ids=["two problems", "escapes", "no file", "no GPU memory", "no memory", "diverged", "interrupted", "Ctrl-C"],
)
def test_a_command_ends_with_lines_and_a_code(
    act: Callable[[], None], code: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, exit_codes():
        act()
    written = capsys.readouterr().err.splitlines()
    assert ended.value.code == code and len(written) == len(lines) and max(map(len, written)) < 5000
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(lines, written, strict=True)), written


@pytest.mark.parametrize("error", [ValueError("a bug"), RuntimeError("CUDA error: an illegal memory access was encountered")])
def test_a_fault_of_the_program_is_not_taken_for_one_of_the_user(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), exit_codes():
        raise error
