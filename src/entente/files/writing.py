"""Files that are there whole or not at all.

They are prepared next to their place, in a file or folder named `.entente-*.new` that its writer holds a lock on. A lock ends
with its process, so the next writer in the same folder knows what a dead one left behind, and removes it.
"""

import fcntl
import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from entente.errors import InputError

log = logging.getLogger("entente")


NEW = ".entente-{}.new"


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its name when it is complete and on the disk; until then, and after a failure, whatever was
    there is there. An OSError where it cannot be written."""
    with _beside(path.parent, Path.touch) as new:
        with new.open("wb") as file:
            yield file
        _flush(new)
        os.replace(new, path)
    _flush(path.parent)  # the new name, too


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A new folder in `folder`, in which to prepare what is then renamed; at the end it is removed."""
    with _beside(folder, Path.mkdir) as new:
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


def clear(*folders: Path, pattern: str = NEW.format("*")) -> None:
    """Removes what writers that are dead left behind in the folders."""
    for path in (path for folder in folders for path in folder.glob(pattern)):
        with suppress(OSError):  # a live writer's, another user's, or gone already
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    with made(path.parent), whole(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def _beside(folder: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """A name in the folder, made and locked; what is still there at the end is removed."""
    clear(folder)
    while True:
        path = folder / NEW.format(secrets.token_hex(8))
        make(path)
        descriptor = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks; there `clear` removes nothing
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            break
        os.close(descriptor)  # another process cleared it before it was locked
    try:
        yield path
    finally:
        _remove(path)
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """To the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writable(what: str) -> Iterator[None]:
    """What keeps a file from being written, in a line."""
    try:
        yield
    except BrokenPipeError:
        raise  # a reader that has enough is no error
    except OSError as error:
        raise InputError(f"{what}: cannot be written ({error.strerror or error}); give another place") from error


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its name when it is complete: till then, and after a failure, whatever was there is there.
    What is no file (/dev/null, a pipe) is written to as it is."""
    with writable(f"output={path}"):
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        with whole(Path(os.path.realpath(path))) as file:  # a link stays one
            yield file
