"""The directory of a run: made once, found again, written by one process at a time."""

import errno
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from entente.console.log import LogFile
from entente.console.signals import Stopped, StopSignals
from entente.errors import InputError, Interrupted, shortage
from entente.files.reading import path_of, read_yaml
from entente.files.writing import made, scratch, write_text

log = logging.getLogger("entente")

FINISHED = "metrics.json"  # the last file that a run writes


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


def run_to_resume(resume: str | None, root: Path, name: str, config: Mapping[str, Any]) -> Path | None:
    """The directory that `resume` means. auto: the newest unfinished run of this name and configuration, except for output_dir;
    where all have finished, the newest of these. None: a new run begins."""
    if resume is None:
        return None
    if resume != "auto":
        return path_of(resume)
    pattern = re.compile(re.escape(Path(name).name) + r"(?:-(\d+))?")
    numbered = [
        (int(match[1] or 1), path)
        for path in (root / name).parent.glob("*/")
        if (match := pattern.fullmatch(path.name)) and _same(path / "config.yaml", config)
    ]
    runs = [path for _, path in sorted(numbered, reverse=True)]
    if not runs:
        log.info("resume=auto: no run %s of this configuration yet, a new one begins", root / name)
        return None
    return next((path for path in runs if not is_finished(path)), runs[0])


def _same(stored: Path, config: Mapping[str, Any]) -> bool:
    try:
        there = read_yaml(stored)
    except (OSError, ValueError, yaml.YAMLError):
        return False
    here = yaml.safe_load(yaml.safe_dump(dict(config)))
    return isinstance(there, dict) and {**there, "output_dir": None} == {**here, "output_dir": None}


def is_finished(run_dir: Path) -> bool:
    return (run_dir / FINISHED).exists()


def how_to_resume(run_dir: Path) -> str:
    return f"go on: entente train resume={run_dir}"


@contextmanager
def open_run(run_dir: Path) -> Iterator[None]:
    """Keeps other processes from writing the run, whose train.log gets what is logged, and turns what ends it early into a line
    that says how to resume it."""
    try:
        # The lock goes with the process, however that ends.
        with StopSignals(), FileLock(run_dir / ".lock", timeout=0), LogFile(run_dir / "train.log"):
            threading.excepthook = _without_disk_errors
            yield
    except Timeout:
        raise InputError(f"{run_dir}: another process is training this run; wait for it or stop it") from None
    except Stopped as stopped:
        raise Interrupted(f"{stopped}; {how_to_resume(run_dir)}") from None
    except (OSError, MemoryError, RuntimeError, ValueError) as error:
        if isinstance(error, BrokenPipeError) or (line := shortage(error)) is None:
            raise
        raise InputError(f"{run_dir}: {line}; {how_to_resume(run_dir)}") from error


def _without_disk_errors(error: threading.ExceptHookArgs) -> None:
    """TensorBoard's writer is a thread, whose error the main thread raises again at the next write."""
    if not isinstance(error.exc_value, OSError):
        threading.__excepthook__(error)
