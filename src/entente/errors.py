"""The one exception a user is meant to read."""


class InputError(Exception):
    """What the user gave cannot be used: one line saying what, where and what to do.

    Scripts print it and exit with code 2.
    """
