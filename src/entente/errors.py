"""The exceptions a user is meant to read."""


class InputError(Exception):
    """What the user gave cannot be used: a line for each problem, saying what, where and what to do.

    Scripts print them and exit with code 2.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class Diverged(Exception):
    """Training has left the range of numbers in which it could find back: one line saying where.

    Scripts print it and exit with code 3.
    """


class Interrupted(Exception):
    """A signal ended the command after it had saved what is needed to go on: one line saying how.

    Scripts print it and exit with code 75, which schedulers read as "try again" (sysexits.h, EX_TEMPFAIL).
    """
