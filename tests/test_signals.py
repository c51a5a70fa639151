"""Ctrl-C and SIGTERM end every command promptly with the exit code of an interruption, and leave no partly written file."""

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bad_inputs import Result, content, run
from interruptions import differences

TRAIN = "train FILES data.test.src=test.fr data.test.tgt=test.en output_dir=. checkpoint.average=2 checkpoint.every=1"
TRAIN += " search.beam=1 data.batch.eval_max_tokens=100"
DECODE = "entente.decoding.search.padding_mask"  # a function that is called once per batch


def run_with_signal(command: str, folder: Path, function: str, n: int, number: int) -> tuple[Result, int]:
    """Runs a command, sends the signal `number` at the n-th call of a function (never if n is 0), and returns the result and
    the number of calls."""
    module, _, name = function.rpartition(".")
    owner = importlib.import_module(module)
    original, calls = getattr(owner, name), []

    def called(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == n:
            os.kill(os.getpid(), number)
        return original(*arguments)

    with patch.object(owner, name, called):
        return run(command, folder), len(calls)


@pytest.fixture(scope="module")
def base(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(base, tmp_path_factory.mktemp("signals") / "base"))
    for name in ("train.fr", "train.en"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name.replace("train", "my")).write_text(12 * text, encoding="utf-8")  # 2,532 lines: many batches
    return folder


@pytest.fixture(scope="module")
def batches(base: Path) -> int:
    """Trains the run base/uninterrupted without a signal, and returns the number of batches that it decodes."""
    ended, calls = run_with_signal(f"{TRAIN} name=uninterrupted", base, DECODE, 0, 0)
    assert (ended.code, ended.err) == (0, "")
    return calls


@pytest.mark.parametrize(
    ("command", "n", "number"),
    [
        ("evaluate checkpoint=run src=my.fr tgt=my.en output=scores search.beam=1 threads=2", 3, signal.SIGINT),
        ("translate checkpoint=run input=my.fr output=out.txt search.beam=1 threads=2", 3, signal.SIGTERM),
        ("attention checkpoint=run sentence='Le chat' output=maps", 1, signal.SIGINT),
    ],
)
def test_a_signal_ends_a_command_within_a_batch(command: str, n: int, number: signal.Signals, folder: Path) -> None:
    files = content(folder)
    ended, calls = run_with_signal(command, folder, DECODE, n, number)
    assert (ended.code, ended.err) == (128 + number, f"stopped by {number.name}\n")
    assert calls <= n + 2  # the other worker may finish its batch and one more that it had already taken
    files.pop("scores", None), (now := content(folder)).pop("scores", None)  # an empty folder
    assert now == files


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_there_is_a_run_leaves_none(number: signal.Signals, folder: Path) -> None:
    files = content(folder)
    ended, _ = run_with_signal("train FILES name=new output_dir=.", folder, "entente.training.train.read_corpus", 1, number)
    assert (ended.code, ended.err) == (128 + number, f"stopped by {number.name}\n")
    assert content(folder) == files


@pytest.mark.parametrize(
    ("function", "n", "number"),  # the n-th call of the function sends the signal; n = -1 means its last call
    [
        ("entente.training.views.log_settings", 1, signal.SIGINT),  # before the first step
        (DECODE, 2, signal.SIGTERM),  # in the first validation
        (DECODE, -1, signal.SIGINT),  # in the final evaluation
        ("entente.training.train.write_translations", 1, signal.SIGTERM),
    ],
)
def test_a_run_can_be_resumed_wherever_a_signal_ends_it(
    function: str, n: int, number: signal.Signals, batches: int, base: Path, folder: Path
) -> None:
    n = n if n > 0 else batches
    command = f"{TRAIN} name={number.name}"
    ended, calls = run_with_signal(command, folder, function, n, number)
    assert (ended.code, calls) == (75, n)
    line = ended.err.splitlines()[-1]
    assert re.fullmatch(rf"stopped by {number.name}.*; resume it with: entente train resume={number.name}", line)
    assert not list(folder.glob("*/**/.*.new")) and not (folder / number.name / "metrics.json").exists()
    assert run(f"{command} resume=auto", folder).code == 0
    assert differences(base / "uninterrupted", folder / number.name) == []


# After the first Ctrl-C, this program waits for a thread that never ends.
ENDLESS = """
import os, threading, time
from concurrent.futures import ThreadPoolExecutor
from entente.console import exit_codes
with exit_codes(), ThreadPoolExecutor() as pool:
    pool.submit(threading.Event().wait)
    try:
        os.write(1, b".")
        time.sleep(600)
    finally:
        os.write(1, b".")
"""


def test_a_second_ctrl_c_ends_a_program_that_waits_for_a_thread() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE) as process:
        try:
            for _ in range(2):
                assert process.stdout and process.stdout.read(1) == b"."
                process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
