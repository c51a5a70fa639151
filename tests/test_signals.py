"""Ctrl-C and SIGTERM end every command promptly with the exit code of an interruption, and leave no partly written file."""

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from entente.console.endings import STOPPING, StopSignals, default_signals

from bad_inputs import Result, content, run
from interruptions import differences

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
SIGNALS = (signal.SIGINT, signal.SIGTERM)
TRAIN = "train FILES data.test.src=test.fr data.test.tgt=test.en output_dir=. checkpoint.average=2 checkpoint.every=1"
TRAIN += " search.beam=1 data.batch.eval_max_tokens=100"
DECODE = "entente.decoding.search.padding_mask"  # a function that is called once per batch
# This program calls `run_with_signal`. Its last line of output says how many times the function was called.
DRIVER = """
import sys
from pathlib import Path
import bad_inputs, test_signals
ended, calls = test_signals.run_with_signal(sys.argv[1], Path.cwd(), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
print(ended.err, end="", file=sys.stderr)
print("calls", calls)
sys.exit(ended.code)
"""


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


def run_process_with_signal(command: str, folder: Path, function: str, n: int, number: int) -> tuple[Result, int]:
    """Does the same as `run_with_signal`, but in a separate process."""
    driver = [sys.executable, "-c", DRIVER, command, function, str(n), str(int(number))]
    done = subprocess.run(driver, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr), int(done.stdout.rpartition("calls ")[2] or 0)


@pytest.fixture(scope="module")
def base(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(base, tmp_path_factory.mktemp("signals") / "base"))
    for name in ("train.fr", "train.en"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name.replace("train", "my")).write_text(30 * text, encoding="utf-8")  # 6,330 lines: many batches
    return folder


@pytest.fixture(scope="module")
def whole_calls(base: Path) -> int:
    """Trains the run base/whole without a signal, and returns the number of batches that it decodes."""
    whole, calls = run_with_signal(f"{TRAIN} name=whole", base, DECODE, 0, 0)
    assert (whole.code, whole.err) == (0, "")
    return calls


Run = Callable[[str, Path, str, int, int], tuple[Result, int]]
COMMANDS = {
    "evaluate": "evaluate checkpoint=run src=my.fr tgt=my.en output=scores search.beam=1 threads=2",
    "translate": "translate checkpoint=run input=my.fr output=out.txt search.beam=1 threads=2",
    "attention": "attention checkpoint=run sentence='Le chat' output=maps beam=1",
}


@pytest.mark.parametrize(
    ("name", "number", "how"),
    [
        *((name, number, run_with_signal) for name in COMMANDS for number in SIGNALS),
        pytest.param("evaluate", signal.SIGTERM, run_process_with_signal, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_command_within_a_batch(name: str, number: signal.Signals, how: Run, folder: Path) -> None:
    before = content(folder)
    n = 1 if name == "attention" else 3
    ended, calls = how(COMMANDS[name], folder, DECODE, n, number)
    assert (ended.code, ended.err) == (128 + number, f"stopped by {number.name}\n")
    assert calls <= n + 2  # the other worker may finish its batch and one more that it had already taken
    assert content(folder) == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_there_is_a_run_leaves_none(number: signal.Signals, folder: Path) -> None:
    before = content(folder)
    ended, _ = run_with_signal("train FILES name=new output_dir=.", folder, "entente.training.train.read_corpus", 1, number)
    assert (ended.code, ended.err) == (128 + number, f"stopped by {number.name}\n")
    assert content(folder) == before


@pytest.mark.parametrize(
    ("function", "n", "number", "how"),  # the n-th call of the function sends the signal; n = -1 means its last call
    [
        ("entente.training.views.log_settings", 1, signal.SIGINT, run_with_signal),  # before the first step
        ("lightning.pytorch.trainer.call._call_teardown_hook", 1, signal.SIGTERM, run_with_signal),  # after the last step
        (DECODE, -1, signal.SIGINT, run_with_signal),  # in the final evaluation
        pytest.param(DECODE, -1, signal.SIGTERM, run_process_with_signal, marks=pytest.mark.slow),
        ("entente.training.train.write_translations", 1, signal.SIGTERM, run_with_signal),
    ],
)
def test_a_run_can_be_resumed_wherever_a_signal_ends_it(
    function: str, n: int, number: signal.Signals, how: Run, whole_calls: int, base: Path, folder: Path
) -> None:
    n = n if n > 0 else whole_calls
    one = f"{TRAIN} name={number.name}"
    ended, again = how(one, folder, function, n, number)
    assert (ended.code, again) == (75, n)
    said = ended.err.splitlines()[-1]
    assert re.fullmatch(rf"stopped by {number.name}.*; resume it with: entente train resume={number.name}", said)
    assert not list(folder.glob("*/**/.*.new")) and not (folder / number.name / "metrics.json").exists()
    assert run(f"{one} resume=auto", folder).code == 0
    assert differences(base / "whole", folder / number.name) == []


# After the first Ctrl-C, this program waits for a thread that never ends.
ENDLESS = """
import os, threading, time
from concurrent.futures import ThreadPoolExecutor
from entente.console.endings import StopSignals, endings
with endings(), StopSignals(), ThreadPoolExecutor() as pool:
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


def test_signals_keep_their_handlers_in_a_thread_that_cannot_set_them() -> None:
    def handlers() -> list[object]:
        with default_signals(), StopSignals():
            return [signal.getsignal(number) for number in STOPPING]

    before = [signal.getsignal(number) for number in STOPPING]
    with default_signals():
        assert [signal.getsignal(number) for number in STOPPING] == [signal.SIG_DFL] * len(STOPPING)
    assert [signal.getsignal(number) for number in STOPPING] == before
    with ThreadPoolExecutor() as pool:
        assert pool.submit(handlers).result() == before


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_translation_whose_batch_never_ends(folder: Path) -> None:
    program = "import os, threading, entente.decoding.search\nwait = threading.Event().wait\n"
    program += "entente.decoding.search.padding_mask = lambda *_: (os.write(1, b'.'), wait())\n" + DRIVER
    driver = [sys.executable, "-c", program, COMMANDS["translate"], "os.replace", "0", "0"]
    with subprocess.Popen(driver, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.read(1)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        # A further Ctrl-C may kill the interpreter while it exits; a shell reports a death by SIGINT as 130 too.
        assert process.returncode in (130, -signal.SIGINT) and b"Traceback" not in process.stderr.read()
