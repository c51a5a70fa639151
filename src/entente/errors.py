"""Exceptions that end a command with a message for the user, and the exit codes that go with them (see entente.console)."""

import signal


class InputError(Exception):
    """Raised for invalid input. Each problem is one line that says what is wrong, where, and what to do. The exit code is 2."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class Diverged(Exception):
    """Raised when loss, weights or predictions are no longer finite. Its one-line message says where. The exit code is 3."""


class Interrupted(BaseException):
    """Raised when a signal ends a command that has saved its progress. Its one-line message says how to continue. The exit
    code is 75 (EX_TEMPFAIL in sysexits.h), which tells a scheduler to try again. It is no Exception: libraries let it pass."""


class Stopped(BaseException):
    """Raised when a signal ends a command. The exit code is 128 + its number. It is neither an Exception, which libraries
    catch, nor a KeyboardInterrupt, which makes Lightning exit by itself."""

    def __init__(self, number: int) -> None:
        self.number = signal.Signals(number)
        super().__init__(f"stopped by {self.number.name}")


def raise_stopped(number: int) -> None:
    raise Stopped(number)


def reason(error: BaseException) -> str:
    """Returns the reason for an error as one line: the system's message (`strerror`), or else the first line of its text."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return str(text).splitlines()[0]
