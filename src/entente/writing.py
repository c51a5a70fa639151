"""Files that are there whole or not at all."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its name when it is complete and on the disk: till then, and after a failure, whatever was
    there is there. An OSError where it cannot be written."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("wb") as file:
            yield file
        _flush(beside)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _flush(path.parent)  # the new name, too


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _flush(path: Path) -> None:
    """To the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
