"""Checks and makes names of files, reads small files, writes files atomically, and keeps results that take long to compute."""

import csv
import hashlib
import io
import json
import lzma
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from entente.errors import InputError, reason

MAX_NAME = 200  # bytes: file systems allow 255, and we append suffixes such as "-seed4294967295" or "@alone.pharaoh"
NAME_RULE = f"1 to {MAX_NAME} bytes, without /, \\ or control characters, without a leading dot"


def is_name(text: str) -> bool:
    """Returns whether a text can be the name of a file or folder, even with one of our suffixes."""
    size = len(text.encode(errors="replace"))
    return 0 < size <= MAX_NAME and text.isprintable() and text[0] != "." and not {"/", "\\"} & {*text}


def numbered(path: Path) -> Iterator[Path]:
    """Yields the paths PATH, PATH-2, PATH-3 and so on, of which a new run takes the first that does not exist."""
    yield path
    yield from (path.with_name(f"{path.name}-{number}") for number in count(2))


def is_split(text: str) -> bool:
    """Returns whether a text can name a split. "test@alone" is the split test with its sentences grouped differently."""
    return is_name(text) and "@" not in text


def read_yaml(path: Path) -> Any:
    """Returns the content of a YAML file. Raises InputError if it is not YAML."""
    try:
        return yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else path
        raise InputError(f"{where}: not valid YAML ({getattr(error, 'problem', None) or reason(error)})") from None


def read_file(path: Path, parse: Callable[[bytes], Any] = json.loads) -> Any:
    """Returns the content of a file, by default of JSON. Raises InputError if it cannot be read or is not valid."""
    try:
        return parse(path.read_bytes())
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise InputError(f"{path}: cannot be read ({reason(error)}); restore it, or remove it and run again") from error


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns rows as CSV, with a column for each key that any row has."""
    writer = csv.DictWriter(text := io.StringIO(), dict.fromkeys(chain.from_iterable(rows)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Opens a new file next to `path`, and renames it to `path` once it is complete and on the disk."""
    if path.exists() and not path.is_file():  # a device such as /dev/null, which must not be replaced
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))  # so that a symbolic link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        with new.open("wb") as file:
            yield file
        with new.open("rb+") as file:  # reopened, since the caller may have closed it
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def name_of(*key: object) -> str:
    """Returns a file name that differs for different keys. key: values whose `repr` determines the content."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:32]


def build_once(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Calls `write` with the new file `path`, unless it exists. Processes that need the same file wait for the first."""
    from filelock import FileLock  # slow to import, and not needed for help and for mistakes

    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        if not path.exists():
            with open_atomic(path) as file:
                write(file)


def write_text(path: Path, text: str) -> None:
    with open_atomic(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
