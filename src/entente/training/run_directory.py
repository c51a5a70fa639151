"""The directory of a run: made once, found again, written by one process at a time."""

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from entente.errors import InputError
from entente.files import made, path_of, read_yaml, scratch, write_text


@contextmanager
def one_process(run_dir: Path) -> Iterator[None]:
    """Two processes must not write one run; the lock goes with the process, however that ends."""
    try:
        with FileLock(run_dir / ".lock", timeout=0):
            yield
    except Timeout:
        raise InputError(f"{run_dir}: another process is training this run; wait for it or stop it") from None


def new_run_directory(root: Path, name: str, config: Mapping[str, Any]) -> Path:
    """Makes root/name, or root/name-2 and so on where that is taken: a run never writes over another. It appears with its
    configuration in it or not at all."""
    try:
        with made((root / name).parent), scratch(root) as new:
            write_text(new / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
            number = 1
            while True:
                path = root / (name if number == 1 else f"{name}-{number}")
                try:
                    os.rename(new, path)  # fails where there is a file, or a directory with anything in it
                    return path
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        raise InputError(f"name={name}: no directory of this name can be made ({error.strerror})") from error
                    number += 1
    except OSError as error:
        raise InputError(f"output_dir={root} name={name}: cannot be written ({error.strerror or error})") from error


def no_folder(output_dir: str) -> list[str]:
    """Why nothing can be written there, in a line; nothing is made to find out."""
    try:
        path = path_of(output_dir)
    except InputError as error:
        return [f"output_dir={problem}" for problem in error.problems]
    there = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
    if not there.is_dir():
        return [f"output_dir={output_dir}: {there} is a file; give a folder"]
    if not os.access(there, os.W_OK | os.X_OK):
        return [f"output_dir={output_dir}: you may not write in {there}; give another folder"]
    return []


FINISHED = "metrics.json"  # the last file a run writes


def unfinished(root: Path, name: str, config: Mapping[str, Any]) -> Path | None:
    """The newest unfinished run of this name and configuration (where it lies does not matter), None if there is none; if all
    there are have finished, the newest of these."""
    pattern = re.compile(re.escape(Path(name).name) + r"(?:-(\d+))?")
    numbered = [
        (int(match[1] or 1), path)
        for path in (root / name).parent.glob("*/")
        if (match := pattern.fullmatch(path.name)) and _same(path / "config.yaml", config)
    ]
    runs = [path for _, path in sorted(numbered, reverse=True)]
    return next((path for path in runs if not is_finished(path)), runs[0] if runs else None)


def is_finished(run_dir: Path) -> bool:
    return (run_dir / FINISHED).exists()


def _same(stored: Path, config: Mapping[str, Any]) -> bool:
    try:
        there = read_yaml(stored)
    except (OSError, ValueError, yaml.YAMLError):
        return False
    here = yaml.safe_load(yaml.safe_dump(dict(config)))
    return isinstance(there, dict) and {**there, "output_dir": None} == {**here, "output_dir": None}


def steps_of_mean(last: int, every: int, n: int) -> list[int]:
    """The steps whose weights `checkpoint.average=n` averages in a run of `last` steps, oldest first: the regular points before
    the last step, and that. What an interrupt saved is none of them, or the mean would depend on it."""
    regular = (last - 1) // every
    return [*(every * i for i in range(max(1, regular - n + 2), regular + 1)), last]


def step_of(path: Path) -> int:
    return int(path.stem.partition("-")[2])


def steps(folder: Path) -> list[Path]:
    """The checkpoints of steps in a folder, oldest first."""
    return sorted((path for path in folder.glob("step-*.ckpt") if path.stem[5:].isdecimal() and path.is_file()), key=step_of)


def how_to_resume(run_dir: Path) -> str:
    return f"go on: entente train resume={run_dir}"
