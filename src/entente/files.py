"""Names that may become part of a path, files that others may have written, and files that are complete or not there at all.

A name of a run, a suite, a variant, a test set or a language comes from a command line or from a file of someone else.

A file is prepared next to its place, in a folder named `.entente-*.new`. Its writer holds the lock `.entente-*.lock`, which
ends with the process, so the next writer in the same place can tell what a dead one left behind, and removes it.
"""

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

LONGEST_NAME = 200  # bytes: file systems take 255, and suffixes such as "-seed4294967295" or "@alone.pharaoh.new" are added
RULE = f"1 to {LONGEST_NAME} bytes, without / or \\ or control characters, and no dot at the beginning"
NAME = f"a name ({RULE})"
SPLIT = f"a name ({RULE}, and no @)"  # "test@alone" is another reading of test
FOLDER = f"the name of a folder under output_dir (each part {RULE}; parts are separated by /)"
ODD = re.compile(r"[/\\]|\A\.|\A\Z")
LARGEST_FILE = 10_000_000  # bytes of settings or figures; ours take some thousands
MOST_VALUES = 100_000  # of settings; a few lines of YAML can repeat one another into billions


def is_name(text: str) -> bool:
    """Whether a file or folder can be called so, on its own and with one of our suffixes."""
    return not ODD.search(text) and text.isprintable() and len(text.encode(errors="replace")) <= LONGEST_NAME


def is_split(text: str) -> bool:
    return is_name(text) and "@" not in text


def _only(is_allowed: Callable[[str], bool], words: str, text: str) -> str:
    if not is_allowed(text):
        raise ValueError(f"not {words}")
    return text


Name = Annotated[str, AfterValidator(partial(_only, is_name, NAME)), Field(description=NAME)]
Split = Annotated[str, AfterValidator(partial(_only, is_split, SPLIT)), Field(description=SPLIT)]
Folder = Annotated[
    str, AfterValidator(partial(_only, lambda text: all(map(is_name, text.split("/"))), FOLDER)), Field(description=FOLDER)
]


def file_in(folder: Path, name: str, suffix: str) -> Path:
    """The path of the file `name` + `suffix` in a folder; an InputError where it would lie anywhere else."""
    if not is_name(name):
        raise InputError(f"{name}: no file can have this name; rename it to one of {RULE}")
    return folder / f"{name}{suffix}"


def path_of(text: str) -> Path:
    """The path that a text means, `~` and `~user` included; an InputError where it means none."""
    if "\0" in text:
        raise InputError(f"{ascii(text)}: a path has no NUL character; correct it")
    try:
        path = Path(text).expanduser()
        os.fsencode(path)
    except RuntimeError:
        raise InputError(f"{text}: no user has this home folder; write the path out, or with ~/ for your own") from None
    except UnicodeEncodeError:
        raise InputError(f"{ascii(text)}: not a path on this system; rename the file") from None
    return path


@contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Turns what keeps a file from being read into an InputError of one line."""
    try:
        yield
    except OSError as error:
        other = f"cannot be read ({error.strerror or ' '.join(str(error).split())})"
        known = {FileNotFoundError: "no such file", IsADirectoryError: "this is a folder; give a file"}
        raise InputError(f"{path}: {known.get(type(error), other)}") from None


def is_stream(path: Path) -> bool:
    """Whether a path names something that may not give the same content again: a pipe, a device."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def small_file(path: Path) -> bytes:
    """The content of a file of settings or figures; a ValueError with the reason where it cannot be read."""
    if is_stream(path):
        raise ValueError("a pipe or a device, no file")
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if len(content) > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE:,} bytes")
    return content


def read_yaml(path: Path) -> Any:
    """The settings in a file; a ValueError with the reason where there are none that can be read."""
    try:
        settings = yaml.safe_load(small_file(path).decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"line {mark.line + 1}: {error.problem}" if mark else " ".join(str(error).split())) from error
    left, count = [settings], 0
    while left:
        count += 1
        if count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")
        value = left.pop()
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return settings


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that takes the name `path` when it is complete and on the disk; until then, and after a failure, `path` is
    what it was. An OSError where it cannot be written."""
    path = Path(os.path.realpath(path))  # a link stays one
    with scratch(path.parent) as folder:
        new = folder / path.name
        with new.open("wb") as file:
            yield file
        with new.open("rb+") as file:  # again, since the caller may have closed it
            os.fsync(file.fileno())
        new.replace(path)


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Makes a folder in `folder`, in which to prepare what is then renamed; at the end it is removed. `folder` and its parents
    are made too; of these, the new ones that are still empty are removed again."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    new = folder / f".entente-{secrets.token_hex(8)}.new"
    lock = new.with_suffix(".lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear(folder)
        with FileLock(lock):
            new.mkdir()
            yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)
        for remove in (lock.unlink, *(one.rmdir for one in made)):
            with suppress(OSError):  # it was never made, or there are files in it
                remove()


def clear(folder: Path) -> None:
    """Removes what dead writers left behind in a folder."""
    for path in folder.glob(".entente-*"):
        lock = path.with_suffix(".lock")
        with suppress(OSError):  # a live writer's (filelock.Timeout is an OSError), another user's, or gone already
            with FileLock(lock, timeout=0):
                shutil.rmtree(path.with_suffix(".new"), ignore_errors=True)
            lock.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with whole(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


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
    """Opens the file that the setting `output` names: `whole`, in a folder that is there, with errors as InputError. What is
    no file (/dev/null, a pipe) is written to as it is."""
    with writable(f"output={path}"):
        os.stat(path.parent)
        with path.open("wb") if path.exists() and not path.is_file() else whole(path) as file:
            yield file
