"""Ctrl-C and SIGTERM end every command promptly, with an exit code that says so and nothing half-written."""

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

from bad_inputs import Ended, content, prepare, run
from interruptions import differences

SIGNALS = (signal.SIGINT, signal.SIGTERM)
DECODE = "entente.decoding.search.padding_mask"  # called once a batch
# A real command that has itself sent a signal; last, it says how often the function was called.
DRIVER = """
import sys
from pathlib import Path
import bad_inputs, test_signals
ended, calls = test_signals.signalled(sys.argv[1], Path.cwd(), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
print(ended.err, end="", file=sys.stderr)
print("calls", calls)
sys.exit(ended.code)
"""


def signalled(command: str, folder: Path, function: str, n: int, number: int) -> tuple[Ended, int]:
    """Runs a command that is sent a signal in the n-th call of a function; how it ended, and how often that was called."""
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


def signalled_for_real(command: str, folder: Path, function: str, n: int, number: int) -> tuple[Ended, int]:
    driver = [sys.executable, "-c", DRIVER, command, function, str(n), str(int(number))]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(driver, cwd=folder, env=path, capture_output=True, text=True, check=False)
    return Ended(done.returncode, done.stdout, done.stderr), int(done.stdout.rpartition("calls ")[2] or 0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = prepare(tmp_path_factory.mktemp("signals") / "base")
    for name in ("train.fr", "train.en"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name.replace("train", "my")).write_text(30 * text, encoding="utf-8")  # 6,330 lines: many batches
    return folder


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "folder"))


COMMANDS = {
    "evaluate": "evaluate checkpoint=run src=my.fr tgt=my.en output=scores search.beam=1 threads=2",
    "translate": "translate checkpoint=run input=my.fr output=out.txt search.beam=1 threads=2",
    "attention": "attention checkpoint=run sentence='Le chat' output=maps beam=1",
}


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_ends_a_command_within_a_batch(name: str, number: signal.Signals, folder: Path) -> None:
    before = content(folder)
    n = 1 if name == "attention" else 3
    ended, calls = (signalled_for_real if name == "evaluate" else signalled)(COMMANDS[name], folder, DECODE, n, number)
    assert (ended.code, ended.err) == (128 + number, f"stopped by {number.name}\n")
    assert calls <= n + 2  # what the other worker was at, and had taken
    assert content(folder) == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_there_is_a_run_leaves_none(number: signal.Signals, folder: Path) -> None:
    before = content(folder)
    ended, _ = signalled("train FILES name=new output_dir=.", folder, "entente.training.train.read_corpus", 1, number)
    assert (ended.code, ended.err) == (128 + number, f"stopped by {number.name}\n")
    assert content(folder) == before


@pytest.mark.parametrize(
    ("function", "n"),
    [
        ("entente.training.views.log_settings", 1),  # before the first step
        ("lightning.pytorch.trainer.call._call_teardown_hook", 1),  # after the last step
        (DECODE, -1),  # in the final evaluation
        ("entente.training.train.write_translations", 1),
    ],
)
def test_a_run_can_be_resumed_wherever_a_signal_ends_it(function: str, n: int, folder: Path) -> None:
    train = "train FILES data.test.src=test.fr data.test.tgt=test.en output_dir=. checkpoint.average=2"
    train += " checkpoint.every=1 search.beam=1 data.batch.eval_max_tokens=100"
    whole, calls = signalled(f"{train} name=whole", folder, function, 0, 0)
    assert (whole.code, whole.err) == (0, "")
    n = n if n > 0 else calls
    for number in SIGNALS:
        one = f"{train} name={number.name}"
        ended, again = (signalled_for_real if (function, number) == (DECODE, signal.SIGTERM) else signalled)(
            one, folder, function, n, number
        )
        assert (ended.code, again) == (75, n)
        assert re.fullmatch(
            rf"stopped by {number.name}.*; resume it with: entente train resume={number.name}", ended.err.splitlines()[-1]
        )
        assert not list(folder.glob("*/**/.*.new")) and not (folder / number.name / "metrics.json").exists()
        assert run(f"{one} resume=auto", folder).code == 0
        assert differences(folder / "whole", folder / number.name) == []


def test_a_second_ctrl_c_does_not_wait(folder: Path) -> None:
    """The first one finds a worker that never ends its batch."""
    program = "import os, threading, entente.decoding.search\nwait = threading.Event().wait\n"
    program += "entente.decoding.search.padding_mask = lambda *_: (os.write(1, b'.'), wait())\n" + DRIVER
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    driver = [sys.executable, "-c", program, COMMANDS["translate"], "os.replace", "0", "0"]
    with subprocess.Popen(driver, cwd=folder, env=path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.read(1)
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
        # One more signal may end the interpreter on its way out: to a shell that is 130 too.
        assert process.returncode in (130, -signal.SIGINT) and b"Traceback" not in process.stderr.read()
