"""What is read of what others may have written: the path that a text means, lines that take no more memory than one may, and
small files of settings and figures.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from entente.errors import InputError

UTF8_BOM = b"\xef\xbb\xbf"
LARGEST_FILE = 10_000_000  # bytes of settings or figures; ours take some thousands
MOST_VALUES = 100_000  # of settings; a few lines of YAML can repeat one another into billions
LONGEST_LINE = 1_000_000  # bytes; a sentence has a thousand pieces at most, and a table's row holds more than the sentences


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
    """Reasons why a file cannot be read, each as one line."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: this is a folder; give a file") from None
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read ({reason})") from None


def text_lines(file: BinaryIO, where: Path | str) -> Iterator[str]:
    r"""The lines of UTF-8 text without their "\n"; reading stops at the first that is too long or not UTF-8."""
    for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            raise too_long(f"{where}, line {number}")
        if number == 1 and not (line := line.removeprefix(UTF8_BOM)):
            return
        try:
            yield line.removesuffix(b"\n").decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{where}, line {number}: not UTF-8 text; convert it to UTF-8 first") from None


def too_long(where: str) -> InputError:
    return InputError(f"{where}: longer than {LONGEST_LINE:,} bytes, the most that is read at a time; break it into sentences")


def is_stream(path: Path) -> bool:
    """Whether a path names something that may not give the same content again: a pipe, a device."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def small_file(path: Path) -> bytes:
    """The content of a file of settings or figures. An OSError where it cannot be read, a ValueError where it is none."""
    if is_stream(path):
        raise ValueError("a pipe or a device, no file")
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"larger than {LARGEST_FILE:,} bytes")
    return content


def read_yaml(path: Path) -> Any:
    """The settings in a file. An OSError, a ValueError or a YAMLError where there are none that can be read."""
    try:
        settings = yaml.safe_load(small_file(path).decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    left, count = [settings], 0
    while left:
        count += 1
        if count > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values")
        value = left.pop()
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return settings
