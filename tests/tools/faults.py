"""Simulates a full disk by making the n-th creation, write, fsync or rename in a folder fail.

The simulation replaces Python's file functions (`open`, `os.replace`, ...), so it also affects libraries that use them.
"""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch


class FullDisk:
    """Makes the n-th operation fail with ENOSPC, and all later ones too if `for_good`. If n is 0, only counts operations."""

    def __init__(self, folder: Path, n: int = 0, for_good: bool = True) -> None:
        self.folder, self.n, self.for_good = folder.resolve(), n, for_good
        self.operations: list[str] = []

    def count(self, what: str, path: Any) -> None:
        """Counts an operation if its path or file descriptor is in `folder`, and raises OSError (ENOSPC) if it must fail."""
        try:
            place = Path(os.fsdecode(path)).absolute()
        except TypeError:
            place = Path(os.readlink(f"/proc/self/fd/{path}"))
        if not place.is_relative_to(self.folder):
            return
        self.operations.append(f"{what} {place.relative_to(self.folder)}")
        number = len(self.operations)
        if number == self.n and what == "rename":
            self.for_good = True  # if only the rename failed, shutil.move would copy the file instead
        if self.n and (number >= self.n if self.for_good else number == self.n):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def mount(self) -> Iterator[None]:
        """Replaces Python's file functions with functions that call `count` first, until the `with` block ends."""
        disk, true_open = self, io.open

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                disk.count("write", self.fileno())
                return super().write(data)

        def opened(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            writes = set(mode) & set("wax+")
            if not writes or isinstance(file, int):
                return true_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
            if not os.path.exists(file):
                disk.count("create", file)
            raw = Raw(file, "".join(set(mode) - set("bt")), closefd, opener)
            binary = raw if buffering == 0 else io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return binary if "b" in mode else io.TextIOWrapper(binary, encoding, errors, newline)  # type: ignore[arg-type,type-var]

        def before(name: str, which: int = 0) -> Callable[..., Any]:
            true = getattr(os, name)

            def called(*arguments: Any, **named: Any) -> Any:
                disk.count(name, arguments[which])
                return true(*arguments, **named)

            return called

        true_os_open = os.open

        def os_open(path: Any, flags: int, *more: Any, **named: Any) -> int:
            if flags & os.O_CREAT and not os.path.exists(path):
                disk.count("create", path)
            return true_os_open(path, flags, *more, **named)

        true_mkdir = os.mkdir

        def mkdir(path: Any, *more: Any, **named: Any) -> None:
            if not os.path.exists(path):
                disk.count("mkdir", path)
            true_mkdir(path, *more, **named)

        with ExitStack() as stack:
            for module in (builtins, io):
                stack.enter_context(patch.object(module, "open", opened))
            stack.enter_context(patch.object(os, "open", os_open))
            stack.enter_context(patch.object(os, "mkdir", mkdir))
            for name in ("fsync", "replace", "rename"):
                stack.enter_context(patch.object(os, name, before(name)))
            yield
