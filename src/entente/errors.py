"""Exceptions that end a command with a message for the user, and helpers that describe other errors."""

import errno
import re

DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
# The messages of the RuntimeErrors that torch raises when memory runs out: on a CPU, on a GPU, and from C++.
OUT_OF_MEMORY = re.compile("not enough memory|can't allocate memory|out of memory|bad_alloc")


class InputError(Exception):
    """Raised for invalid input. Each problem is one line that says what is wrong, where, and what to do. The exit code is 2."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


def reason(error: BaseException) -> str:
    """Returns the reason for an error as one line: the system's message (`strerror`), or else the first line of its text."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(text).splitlines()[0]


def shortage(error: BaseException) -> str | None:
    """Returns a one-line message if memory ran out or a file cannot be read or written, and None for any other error."""
    if cause := disk_error(error):
        return f"{cause.filename or 'output'}: cannot be read or written ({reason(cause)})"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))):
        return "out of memory; free some, or lower data.batch.max_tokens, the model's widths or search.beam"
    return None


def disk_error(error: BaseException) -> OSError | None:
    """Returns the error itself if it is an OSError, else the disk error that caused it, or None. Causes are searched
    because torch, datasets and Lightning raise errors of their own when a write fails."""
    if isinstance(error, OSError):
        return error
    below = disk_error(error.__context__) if error.__context__ else None
    return below if below and below.errno in DISK_ERRORS else None


class Diverged(Exception):
    """Raised when loss, weights or predictions are no longer finite. Its one-line message says where. The exit code is 3."""


class Interrupted(Exception):
    """Raised when a signal ends a command that has saved its progress. Its one-line message says how to continue. The exit
    code is 75 (EX_TEMPFAIL in sysexits.h), which tells a scheduler to try again."""
