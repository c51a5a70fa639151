"""Tests that a full disk causes one error message and leaves no partly written file, and that the resumed run ends with the
same bits as a run without a fault."""

import builtins
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from bad_inputs import run
from entente.checkpoint import read
from interruptions import differences

TRAIN = "train FILES data.test.src=test.fr data.test.tgt=test.en output_dir=out checkpoint.every=1 checkpoint.average=2 name="


@pytest.fixture(scope="module")
def base(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(base, tmp_path_factory.mktemp("faults") / "base"))
    with full_disk(folder, 0) as names:
        ended = run(f"{TRAIN}uninterrupted", folder)
    assert (ended.code, ended.err) == (0, "")
    (folder / "opened.json").write_text(json.dumps(names))
    shutil.rmtree(folder / "out" / "cache")
    return folder


@contextmanager
def full_disk(folder: Path, n: int) -> Iterator[list[str]]:
    """Makes the n-th file that Python opens for writing below `folder`, and all later ones, fail on their first write (none if
    n is 0). Yields the names of these files."""
    names: list[str] = []
    open_file = io.open

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        path = Path("/") if isinstance(file, int) else Path(os.fsdecode(file)).absolute()
        if set(mode) & set("wax") and path.is_relative_to(folder.resolve()):
            names.append(path.name)
            if 0 < n <= len(names):
                path.touch()
                file, mode = "/dev/full", mode.replace("x", "w")
        return open_file(file, mode, *arguments, **options)

    with patch.object(builtins, "open", opened), patch.object(io, "open", opened):
        yield names


def assert_files_are_complete(folder: Path) -> None:
    """Checks that every file is complete and that no temporary file is left."""
    assert not [*folder.rglob("*.new")]
    for path in folder.rglob("*.ckpt"):
        read(path)
    for path in folder.rglob("*.json"):
        assert json.loads(path.read_text())
    for path in folder.rglob("*.yaml"):
        assert yaml.safe_load(path.read_text()) is not None, path
    for path in folder.rglob("*.tsv"):
        assert path.read_text().endswith("\n") and path.read_text().count("\n") in (24, 30)


# The garbage collector closes a file whose buffer cannot be flushed, and TensorBoard writes in a thread of its own.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_training_on_a_full_disk(folder: Path) -> None:
    names = json.loads((folder / "opened.json").read_text())
    n = round(0.97 * len(names))
    with full_disk(folder, n):
        ended = run(f"{TRAIN}a", folder)
    assert ended.code == 2 and len(ended.err.splitlines()) == 1, ended
    assert ended.err.startswith("error: ") and "No space left on device" in ended.err
    assert_files_are_complete(folder / "out")
    resumed = run(f"{TRAIN}a resume=auto", folder)
    assert (resumed.code, resumed.err) == (0, "")
    assert differences(folder / "out" / "uninterrupted", folder / "out" / "a") == [], names[n - 1]
