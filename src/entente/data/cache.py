"""Keeps results that take long to compute in files, for other processes and later runs."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def name_of(*key: object) -> str:
    """Returns a file name that differs for different keys. key: values whose `repr` determines the result."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:32]


def build_once(path: Path, build: Callable[[], object]) -> None:
    """Calls `build`, which must create the file `path` as its last step, unless the file exists. Processes that need the same
    file wait until one of them has built it."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        if not path.exists():
            build()
