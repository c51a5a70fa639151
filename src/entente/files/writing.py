"""Writes files that are there whole or not at all.

They are prepared next to their place, as a file or folder named `.entente-*.new`. Its writer holds the lock `.entente-*.lock`,
which ends with the process, so the next writer in the same folder can tell what a dead one left behind, and removes it.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from entente.errors import InputError


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that takes the name `path` when it is complete and on the disk; until then, and after a failure, `path` is
    what it was. An OSError where it cannot be written."""
    with _new(path.parent) as new:
        with new.open("wb") as file:
            yield file
        _flush(new, os.O_RDWR)
        os.replace(new, path)
    if os.name == "posix":  # the new name, too; Windows cannot open a folder
        _flush(path.parent, os.O_RDONLY)


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Makes a folder in `folder`, in which to prepare what is then renamed; at the end it is removed."""
    with _new(folder) as new:
        new.mkdir()
        yield new


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Makes a folder and its parents; at the end, those that are new and still empty are removed again."""
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for one in new:
            with suppress(OSError):
                one.rmdir()


def clear(*folders: Path, pattern: str = ".entente-*") -> None:
    """Removes what dead writers left behind in the folders."""
    for path in (path for folder in folders for path in folder.glob(pattern)):
        lock = path.with_suffix(".lock")
        with suppress(OSError):  # a live writer's (filelock.Timeout is an OSError), another user's, or gone already
            with FileLock(lock, timeout=0):
                _remove(path.with_suffix(".new"))
            lock.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with made(path.parent), whole(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def _new(folder: Path) -> Iterator[Path]:
    """Reserves a name in the folder by a lock; what has the name at the end is removed."""
    os.stat(folder / ".")  # FileLock would make the folder; an OSError where there is none
    clear(folder)
    new = folder / f".entente-{secrets.token_hex(8)}.new"
    lock = new.with_suffix(".lock")
    try:
        with FileLock(lock):
            try:
                yield new
            finally:
                _remove(new)
    finally:
        lock.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path, mode: int) -> None:
    """Waits until what was written is on the disk."""
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writable(what: str, instead: str = "place") -> Iterator[None]:
    """Turns what keeps a file from being written into an InputError of one line."""
    try:
        yield
    except BrokenPipeError:
        raise  # a reader that has enough is no error
    except OSError as error:
        raise InputError(f"{what}: cannot be written ({error.strerror or error}); give another {instead}") from error


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """As `whole`, with errors as InputError. What is no file (/dev/null, a pipe) is written to as it is."""
    with writable(f"output={path}"):
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        with whole(Path(os.path.realpath(path))) as file:  # a link stays one
            yield file
