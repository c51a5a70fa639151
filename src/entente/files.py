"""Checks names that become part of a path, reads untrusted files, and writes files atomically.

The names of runs, suites, variants, test sets and languages come from the command line or from untrusted files.

A new file is first written to a folder `.entente-*.new` next to its destination. The process that writes it holds the lock
`.entente-*.lock`, which the system releases if the process dies. The next writer removes every such folder whose lock is free.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import yaml
from filelock import FileLock
from pydantic import AfterValidator, Field

from entente.errors import InputError

LONGEST_NAME = 200  # bytes: file systems allow 255, and we append suffixes such as "-seed4294967295" or "@alone.pharaoh.new"
RULE = f"1 to {LONGEST_NAME} bytes, without /, \\ or control characters, without a leading dot"
NAME = f"a name ({RULE})"
SPLIT = f"a name ({RULE}, without @)"  # "test@alone" is the split test with its sentences grouped differently
FOLDER = f"the name of a folder under output_dir (each part {RULE}; parts are separated by /)"
FORBIDDEN = re.compile(r"[/\\]|\A\.|\A\Z")
MAX_FILE_BYTES = 10_000_000  # limit for a configuration or results file; ours have a few thousand bytes
MAX_YAML_VALUES = 100_000  # with aliases, a few lines of YAML can expand to billions of values


def is_name(text: str) -> bool:
    """Returns whether a text can be the name of a file or folder, even after one of our suffixes has been appended."""
    return not FORBIDDEN.search(text) and text.isprintable() and len(text.encode(errors="replace")) <= LONGEST_NAME


def is_split(text: str) -> bool:
    return is_name(text) and "@" not in text


def _require(is_allowed: Callable[[str], bool], words: str, text: str) -> str:
    if not is_allowed(text):
        raise ValueError(f"not {words}")
    return text


Name = Annotated[str, AfterValidator(partial(_require, is_name, NAME)), Field(description=NAME)]
Split = Annotated[str, AfterValidator(partial(_require, is_split, SPLIT)), Field(description=SPLIT)]
Folder = Annotated[
    str, AfterValidator(partial(_require, lambda text: all(map(is_name, text.split("/"))), FOLDER)), Field(description=FOLDER)
]


def file_in(folder: Path, name: str, suffix: str) -> Path:
    """Returns the path of the file `name` + `suffix` in a folder. Raises InputError if `name` is not a valid file name."""
    if not is_name(name):
        raise InputError(f"{name}: a file cannot have this name; give a name of {RULE}")
    return folder / f"{name}{suffix}"


def path_of(text: str) -> Path:
    """Converts text to a path, and expands `~` and `~user`. Raises InputError if the text is not a valid path."""
    if "\0" in text:
        raise InputError(f"{ascii(text)}: a path cannot contain a NUL character; remove it")
    try:
        path = Path(text).expanduser()
        os.fsencode(path)
    except RuntimeError:
        raise InputError(f"{text}: no such user; write out the path, or use ~/ for your own home folder") from None
    except UnicodeEncodeError:
        raise InputError(f"{ascii(text)}: not a path on this system; rename the file") from None
    return path


@contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Turns an OSError while reading a file into a one-line InputError."""
    try:
        yield
    except OSError as error:
        other = f"cannot be read ({error.strerror or ' '.join(str(error).split())})"
        known = {FileNotFoundError: "no such file", IsADirectoryError: "this is a folder; give a file"}
        raise InputError(f"{path}: {known.get(type(error), other)}") from None


def is_stream(path: Path) -> bool:
    """Returns whether a path is a pipe or a device, which may not give the same content when read again."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def read_small_file(path: Path) -> bytes:
    """Returns the content of a configuration or results file. Raises ValueError with the reason if it cannot be read."""
    if is_stream(path):
        raise ValueError("a pipe or a device, not a file")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES:,} bytes")
    return content


def read_yaml(path: Path) -> Any:
    """Returns the settings in a YAML file. Raises ValueError with the reason if they cannot be read."""
    try:
        settings = yaml.safe_load(read_small_file(path).decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"line {mark.line + 1}: {error.problem}" if mark else " ".join(str(error).split())) from error
    left, count = [settings], 0
    while left:
        count += 1
        if count > MAX_YAML_VALUES:
            raise ValueError(f"more than {MAX_YAML_VALUES:,} values")
        value = left.pop()
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return settings


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Opens a new file, which replaces `path` once it is complete and on disk. Until then, and after an error, `path` remains
    unchanged. Raises OSError if the file cannot be written."""
    path = Path(os.path.realpath(path))  # so that a symbolic link stays a link
    with scratch(path.parent) as folder:
        new = folder / path.name
        with new.open("wb") as file:
            yield file
        with new.open("rb+") as file:  # reopened, since the caller may have closed it
            os.fsync(file.fileno())
        new.replace(path)
    if os.name == "posix":  # puts the rename on disk too; Windows cannot open a folder
        folder_descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder_descriptor)
        finally:
            os.close(folder_descriptor)


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Creates a temporary folder in `folder`, where files can be prepared before they are moved, and removes it at the end.
    Also creates `folder` and its missing parents, and removes those that it created if they are empty at the end."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    new = folder / f".entente-{secrets.token_hex(8)}.new"
    lock = new.with_suffix(".lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        with FileLock(lock):
            new.mkdir()
            yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)
        for remove in (lock.unlink, *(one.rmdir for one in made)):
            with suppress(OSError):  # the lock or folder was never created, or the folder is not empty
                remove()


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary folders and locks that processes left in a folder when they died."""
    for path in folder.glob(".entente-*"):
        lock = path.with_suffix(".lock")
        with suppress(OSError):  # the lock is held (filelock.Timeout is an OSError), is another user's, or is gone
            with FileLock(lock, timeout=0):
                shutil.rmtree(path.with_suffix(".new"), ignore_errors=True)
            lock.unlink(missing_ok=True)


def cached(folder: Path, key: object, suffix: str, write: Callable[[BinaryIO], object]) -> Path:
    """Returns the path of a cached file, which `write` creates if it is missing, damaged or unreadable. key: everything that
    the content depends on. The file's name contains digests of `key` and of the content. Processes that create the file at the
    same time overwrite it with the same content. Raises OSError if the file cannot be written."""
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]

    def place(path: Path) -> Path:
        with path.open("rb") as file:
            return folder / f"{name}-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}{suffix}"

    for path in sorted(folder.glob(f"{name}-*{suffix}")):
        with suppress(OSError):  # the file may belong to another user
            if path == place(path):
                return path
    with scratch(folder) as new:
        with (new / name).open("wb") as file:
            write(file)
        return (new / name).replace(place(new / name))


def write_text(path: Path, text: str) -> None:
    with open_atomic(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def writable(what: str, instead: str = "path") -> Iterator[None]:
    """Turns an OSError while writing `what` into a one-line InputError. instead: what the message asks the user to change."""
    try:
        yield
    except BrokenPipeError:
        raise  # not an error: the reader closed the pipe early
    except OSError as error:
        raise InputError(f"{what}: cannot be written ({error.strerror or error}); give another {instead}") from error


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """Opens the file named by the setting `output`, with `open_atomic` unless it is a pipe or a device such as /dev/null. The
    folder of `path` must exist. Turns an OSError into an InputError."""
    with writable(f"output={path}"):
        os.stat(path.parent)
        with path.open("wb") if path.exists() and not path.is_file() else open_atomic(path) as file:
            yield file
