"""Tests that a fault (no disk space, no memory, unreadable files) causes one error message and leaves no partly written file,
and that the resumed run ends with the same bits as a run without a fault.

ALL_FAULTS=1 makes all candidates of `choose_operations` fail in turn, instead of only some of them.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bad_inputs import ROOT, Result, arguments, run
from entente.checkpoint import read
from entente.files import open_atomic
from entente.training.translator import Translator
from faults import FullDisk
from interruptions import differences

TRAIN = "train FILES data.test.src=test.fr data.test.tgt=test.en output_dir=out checkpoint.every=1 checkpoint.average=2"
TRAIN += " views.translations=0 name="
EVALUATE = "evaluate checkpoint=run src=valid.fr tgt=valid.en output=scores/new accelerator=cpu"
ALL = bool(os.environ.get("ALL_FAULTS"))


@pytest.fixture(scope="module")
def base(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(base, tmp_path_factory.mktemp("faults") / "base"))
    whole = run(f"{TRAIN}whole", folder)
    assert (whole.code, whole.err) == (0, "")
    shutil.rmtree(folder / "out" / "cache")
    return folder


def choose_operations(operations: list[str], every: int) -> list[int]:
    """Returns the numbers of the operations that should fail in turn: every `every`-th candidate, or all if ALL_FAULTS is set.
    In a series of equal operations, such as writes to one file, only the first, the second and the last are candidates."""
    alike = [one == after for one, after in zip(operations, operations[1:], strict=False)]
    repeated = {i + 2 for i in range(1, len(alike) - 1) if alike[i - 1] and alike[i] and alike[i + 1]}
    left = [n for n in range(1, len(operations) + 1) if n not in repeated]
    return left if ALL else left[len(left) % every :: every]


def run_on_a_full_disk(command: str, folder: Path, n: int) -> tuple[Result, list[str]]:
    """Runs a command whose n-th disk operation fails (none if n is 0), checks the error message, and returns the result and the
    disk operations."""
    disk = FullDisk(folder, n, for_good=n % 2 == 1)  # an odd n makes all later operations fail too
    with disk.mount():
        ended = run(command, folder)
    if n:
        assert "Traceback" not in ended.err and ended.code == 2, (disk.operations[n - 1], ended)
        lines = ended.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: ") and "No space left on device" in lines[0], ended.err
    return ended, disk.operations


def assert_files_are_complete(folder: Path) -> None:
    """Checks that every file is complete and that no temporary file is left."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*")]
    assert not [name for name in names if name.endswith(".new") or "/tmp" in name]
    for path in folder.rglob("*.ckpt"):
        read(path)
    for path in folder.rglob("*.json"):
        assert json.loads(path.read_text())
    for path in folder.rglob("*.yaml"):
        assert yaml.safe_load(path.read_text()) is not None, path
    for path in folder.rglob("*.tsv"):
        assert path.read_text().endswith("\n") and path.read_text().count("\n") in (24, 30)


# If the datasets library fails to write a file, it leaves the file open. Garbage collection then closes it with a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", [40, pytest.param(17, marks=pytest.mark.slow)])
def test_training_on_a_full_disk(every: int, base: Path, tmp_path: Path) -> None:
    def fresh(name: str) -> Path:
        return Path(shutil.copytree(base, tmp_path / name))

    _, operations = run_on_a_full_disk(f"{TRAIN}a", fresh("counted"), 0)
    assert len(operations) > 40 and {one.split()[0] for one in operations} >= {"create", "write", "fsync", "replace", "rename"}
    for n in choose_operations(operations, every):
        folder = fresh(str(n))
        run_on_a_full_disk(f"{TRAIN}a", folder, n)
        assert_files_are_complete(folder / "out")
        again = run(f"{TRAIN}a resume=auto", folder)
        assert (again.code, again.err) == (0, ""), operations[n - 1]
        assert differences(folder / "out" / "whole", folder / "out" / "a") == [], operations[n - 1]
        assert_files_are_complete(folder / "out")
        shutil.rmtree(folder)


def test_evaluating_on_a_full_disk(base: Path, tmp_path: Path) -> None:
    _, operations = run_on_a_full_disk(EVALUATE, Path(shutil.copytree(base, tmp_path / "whole")), 0)
    for n in choose_operations(operations, 6):
        folder = Path(shutil.copytree(base, tmp_path / str(n)))
        run_on_a_full_disk(EVALUATE, folder, n)
        assert not (folder / "scores" / "new" / "metrics.json").exists() or n == len(operations)
        if not list(folder.glob("scores/**/*.*")):
            assert not (folder / "scores").exists()
        assert_files_are_complete(folder / "run")
        assert run(EVALUATE, folder).code == 0
        for name in ("metrics.json", "translations/valid.fr.tsv"):
            assert (folder / "scores/new" / name).read_bytes() == (tmp_path / "whole/scores/new" / name).read_bytes()
        shutil.rmtree(folder)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 12")], ids=repr)
def test_a_step_without_memory_leaves_a_run_that_can_be_resumed(
    error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def training_step(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Translator, "training_step", training_step)
        ended = run(f"{TRAIN}a", folder)
    assert ended.code == 2 and ended.err == (
        "error: out/a: out of memory; free some, or lower data.batch.max_tokens, the model's widths or search.beam; "
        "resume it with: entente train resume=out/a\n"
    )
    assert run(f"{TRAIN}a resume=auto", folder).code == 0
    assert differences(folder / "out" / "whole", folder / "out" / "a") == []


def test_odd_files_in_a_run_are_no_checkpoints(folder: Path) -> None:
    run(f"{TRAIN}a", folder)
    checkpoints = folder / "out" / "a" / "checkpoints"
    (folder / "out" / "a" / "metrics.json").unlink()
    for name in ("step-x.ckpt", "step-.ckpt", "step-3.ckpt.bak", "events.out", ".DS_Store"):
        (checkpoints / name).write_text("odd")
    (checkpoints / "step-7.ckpt").mkdir()
    again = run(f"{TRAIN}a resume=auto", folder)
    assert (again.code, again.err) == (0, "")
    for name in ("step-x.ckpt", "step-.ckpt"):
        (checkpoints / name).unlink()
    (checkpoints / "step-7.ckpt").rmdir()
    assert differences(folder / "out" / "whole", folder / "out" / "a") == []


def test_a_cache_that_cannot_be_read_is_a_line(folder: Path) -> None:
    run(f"{TRAIN}a", folder)
    [model] = folder.glob("out/cache/tokenizer/*.model")
    model.unlink()
    model.mkdir()  # not even root can read a directory as a file
    ended = run(f"{TRAIN}b", folder)
    assert ended.code == 2
    assert re.fullmatch(
        "error: the tokenizer in out/cache/tokenizer: cannot be written .+; give another output_dir\n", ended.err
    )


def test_a_start_clears_what_a_dead_writer_left_and_only_that(folder: Path) -> None:
    program = "import os, signal, sys; from pathlib import Path; from entente.files import open_atomic\n"
    program += "with open_atomic(Path('run/checkpoints/step-9.ckpt')) as file, open_atomic(Path('out/x')):\n"
    program += "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", program], cwd=folder, check=False).returncode == -signal.SIGKILL
    left = [*folder.glob("*/.*.new"), *folder.glob("run/checkpoints/.*.new")]
    assert len(left) == 2
    (folder / "run" / "metrics.json").unlink()
    with open_atomic(folder / "run" / "checkpoints" / "step-11.ckpt") as file:  # the writer of this file is still alive
        file.write(b"half")
        assert run("train resume=run", folder).code == 0
        assert run(f"{TRAIN}a", folder).code == 0
        assert len(list(folder.rglob(".*.new"))) == 1


TRANSLATE = "translate checkpoint=run input=in.txt accelerator=cpu"


def shell_command(command: str) -> str:
    name, *overrides = arguments(command)
    return shlex.join([sys.executable, "-P", "-m", "entente", name, *overrides])


def run_in_shell(line: str, folder: Path, **variables: str) -> Result:
    done = subprocess.run(line, shell=True, cwd=folder, env={**os.environ, **variables}, capture_output=True, check=False)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(
    ("command", "redirection", "reason"),
    [
        ("train --help", ">/dev/full", "No space left on device"),
        ("train --help", ">&-", "Bad file descriptor"),
        pytest.param(f"{TRAIN}a", ">/dev/full", "No space left on device", marks=pytest.mark.slow),
        pytest.param(TRANSLATE, ">&-", "Bad file descriptor", marks=pytest.mark.slow),
    ],
)
def test_output_that_cannot_be_printed_is_a_line_and_training_is_not_lost(
    command: str, redirection: str, reason: str, folder: Path
) -> None:
    done = run_in_shell(f"{shell_command(command)} {redirection}", folder)
    assert done.code == 2 and done.err.startswith("error: ") and done.err.count("\n") == 1 and reason in done.err
    if command.startswith(TRAIN):
        assert differences(folder / "out" / "whole", folder / "out" / "a") == []


ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}


def test_letters_that_the_terminal_lacks_are_escaped(tmp_path: Path) -> None:
    program = "from pathlib import Path; from entente.config.command_line import run; "
    program += f"run(lambda config: print('\\xe9t\\xe9'), Path({str(ROOT / 'configs')!r}), 'corpus')"
    done = run_in_shell(shlex.join([sys.executable, "-c", program]), tmp_path, **ASCII)
    assert done == (0, "\\xe9t\\xe9\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "written", "lines"),
    [(f"{TRANSLATE} output=out.txt", "out.txt", 2), (EVALUATE, "scores/new/translations/valid.fr.tsv", 24)],
    ids=["translate", "evaluate"],
)
def test_files_are_in_utf8_on_any_terminal(command: str, written: str, lines: int, folder: Path) -> None:
    done = run_in_shell(shell_command(command), folder, **ASCII)
    assert (done.code, done.err) == (0, "")
    assert (folder / written).read_text(encoding="utf-8").count("\n") == lines


@pytest.mark.slow
def test_the_corpus_is_shown_on_a_terminal_that_lacks_its_letters(tmp_path: Path) -> None:
    done = run_in_shell(shell_command("corpus n=2"), tmp_path, **ASCII)
    assert (done.code, done.err) == (0, "") and done.out


def test_a_deleted_working_directory_is_a_line(tmp_path: Path) -> None:
    done = run_in_shell(f"mkdir gone && cd gone && rmdir ../gone && {shell_command(TRANSLATE)}", tmp_path)
    assert (done.code, done.err) == (2, "error: the working directory has been deleted; change to another one\n")
