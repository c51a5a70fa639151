"""Files made once: the name of a cached file holds a digest of what it was made from and of its content."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from entente.errors import InputError, disk_error
from entente.files import made, scratch


def cached(folder: Path, key: object, suffix: str, make: Callable[[Path], object], what: str) -> Path:
    """Returns the file in `folder` that `make` writes to a path for this key (its `repr` counts). It is made again where it is
    missing, damaged or unreadable. An InputError where `what` cannot be kept there."""
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    for path in sorted(folder.glob(f"{name}-*{suffix}")):
        with suppress(OSError):  # another user's, for example
            if path.name == _file_name(name, path, suffix):
                return path
    try:
        with made(folder), scratch(folder) as new:
            content = new / f"content{suffix}"
            make(content)
            path = folder / _file_name(name, content, suffix)
            os.replace(content, path)
        return path
    except (OSError, ValueError) as error:
        if (reason := disk_error(error)) is None:
            raise
        why = reason.strerror or reason
        raise InputError(f"{folder}: the {what} cannot be kept here ({why}); choose another output_dir") from None


def _file_name(name: str, path: Path, suffix: str) -> str:
    with path.open("rb") as file:
        return f"{name}-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}{suffix}"
