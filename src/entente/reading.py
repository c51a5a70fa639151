"""What a user names to be read: the path that a text means, and lines that take no more memory than one may."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from entente.errors import InputError

UTF8_BOM = b"\xef\xbb\xbf"
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
