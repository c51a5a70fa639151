"""The exceptions a user is meant to read."""

import re

# torch raises RuntimeErrors of its own: on a CPU, on a GPU, and from C++.
OUT_OF_MEMORY = re.compile("not enough memory|can't allocate memory|out of memory|bad_alloc")


class InputError(Exception):
    """What the user gave cannot be used: a line for each problem, saying what, where and what to do.

    Scripts print them and exit with code 2.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


def shortage(error: BaseException) -> str | None:
    """What the machine denies a command (memory, or a file or its space), in a line; None for an error of another kind."""
    if isinstance(error, OSError):
        return f"{error.filename or 'output'}: cannot be read or written ({error.strerror or error})"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))):
        return "out of memory; free some, or lower data.batch.max_tokens, the model's widths or search.beam"
    return None


class Diverged(Exception):
    """Training has left the range of numbers in which it could find back: one line saying where.

    Scripts print it and exit with code 3.
    """


class Interrupted(Exception):
    """A signal ended the command after it had saved what is needed to go on: one line saying how.

    Scripts print it and exit with code 75, which schedulers read as "try again" (sysexits.h, EX_TEMPFAIL).
    """
