"""Tests that files are written completely or not at all."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from entente.files import cached, open_atomic, remove_leftovers, scratch, write_json


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "metrics.json"
    write_json(path, {"bleu": 11.5, "of": "œuvre"})
    before = path.read_text(encoding="utf-8")
    assert before == '{\n  "bleu": 11.5,\n  "of": "œuvre"\n}\n'
    with pytest.raises(RuntimeError), open_atomic(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_text(encoding="utf-8") == before
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == before
    assert [found.name for found in path.parent.iterdir()] == ["metrics.json"]


def test_the_files_of_a_dead_writer_are_removed_and_those_of_a_live_one_are_not(tmp_path: Path) -> None:
    program = "import os, sys; from pathlib import Path; from entente.files import cached, open_atomic, scratch\n"
    program += "with open_atomic(Path('a')), scratch(Path()): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 4  # a file, a folder, and a lock for each
    with open_atomic(tmp_path / "b"), scratch(tmp_path) as folder:
        remove_leftovers(tmp_path)
        assert folder.is_dir() and len(list(tmp_path.iterdir())) == 4
    assert os.listdir(tmp_path) == ["b"]


def test_several_threads_can_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "file"
    contents = [bytes([letter]) * 10_007 for letter in range(11)]

    def write(content: bytes) -> bytes:
        with open_atomic(path) as file:
            for start in range(0, len(content), 1009):
                file.write(content[start : start + 1009])
        return path.read_bytes()

    with ThreadPoolExecutor(5) as pool:
        assert set(pool.map(write, contents)) <= set(contents)
    assert os.listdir(path.parent) == ["file"]


def test_folders_made_for_a_failed_write_are_removed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    with pytest.raises(RuntimeError), open_atomic(tmp_path / "kept" / "new" / "newer" / "file"):
        raise RuntimeError
    assert [*tmp_path.rglob("*")] == [tmp_path / "kept"]


# This program imports every module of the package, but makes the import of Unix-only modules by the package fail. Other
# packages can still import Unix-only modules, since those packages check for Windows themselves.
WITHOUT_UNIX = """
import builtins, importlib, pkgutil
import_module = builtins.__import__

def import_portable(name, globals=None, *more, **named):
    if name in ("fcntl", "grp", "pwd", "resource", "termios") and str((globals or {}).get("__name__")).startswith("entente"):
        raise ImportError(name + " is missing on Windows")
    return import_module(name, globals, *more, **named)

builtins.__import__ = import_portable
import entente
names = [module.name for module in pkgutil.walk_packages(entente.__path__, "entente.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.slow
def test_the_package_imports_without_modules_that_only_unix_has() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_UNIX], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and int(done.stdout) > 50, done.stderr


def test_a_cached_file_is_made_once_for_each_key(tmp_path: Path) -> None:
    made = []

    def cache(key: object, content: bytes) -> bytes:
        return cached(tmp_path / "cache", key, ".x", lambda file: (made.append(key), file.write(content))).read_bytes()

    assert [cache("one", b"1"), cache("one", b"2"), cache(("one", 1), b"3"), cache("one", b"")] == [b"1", b"1", b"3", b"1"]
    assert made == ["one", ("one", 1)]
    with pytest.raises(RuntimeError):
        cached(tmp_path / "cache", "two", ".x", fail_after_writing)
    assert len(os.listdir(tmp_path / "cache")) == 2 and cache("two", b"4") == b"4"


def fail_after_writing(file: BinaryIO) -> None:
    file.write(b"half")
    raise RuntimeError
