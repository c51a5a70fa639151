"""The exceptions a user is meant to read."""

import errno
import re

DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
# torch raises RuntimeErrors of its own: on a CPU, on a GPU, and from C++.
OUT_OF_MEMORY = re.compile("not enough memory|can't allocate memory|out of memory|bad_alloc")


class InputError(Exception):
    """What the user gave cannot be used: a line for each problem, saying what, where and what to do. The exit code is 2."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


def reason(error: BaseException) -> str:
    """Why something failed, in one line: the system's words for an error of its own, else the first line of the text."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(text).splitlines()[0]


def shortage(error: BaseException) -> str | None:
    """What the machine denies a command (memory, or a file or its space), in a line; None for an error of another kind."""
    if cause := disk_error(error):
        return f"{cause.filename or 'output'}: cannot be read or written ({reason(cause)})"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))):
        return "out of memory; free some, or lower data.batch.max_tokens, the model's widths or search.beam"
    return None


def disk_error(error: BaseException) -> OSError | None:
    """The OSError that an error is, or that a library's error hides: torch, datasets and Lightning raise others when a write
    fails."""
    if isinstance(error, OSError):
        return error
    below = disk_error(error.__context__) if error.__context__ else None
    return below if below and below.errno in DISK else None


class Diverged(Exception):
    """The loss, the weights or the predictions are no longer finite: one line saying where. The exit code is 3."""


class Interrupted(Exception):
    """A signal ended the command after it had saved what is needed to go on: one line saying how. The exit code is 75, which
    schedulers read as "try again" (sysexits.h, EX_TEMPFAIL)."""
