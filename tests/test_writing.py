"""Tests that files are written completely or not at all."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from entente.files import open_atomic, write_json


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "metrics.json"
    write_json(path, {"bleu": 11.5, "of": "œuvre"})
    text = path.read_text(encoding="utf-8")
    assert text == '{\n  "bleu": 11.5,\n  "of": "œuvre"\n}\n'
    with pytest.raises(RuntimeError), open_atomic(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_text(encoding="utf-8") == text
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == text
    assert os.listdir(path.parent) == ["metrics.json"]


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


# This program imports every module of the package, but makes the import of Unix-only modules by the package fail. Other
# packages can still import Unix-only modules, since those packages check for Windows themselves.
WITHOUT_UNIX = """
import builtins, importlib, pkgutil
import_module = builtins.__import__

def import_portable(name, globals=None, *arguments, **keywords):
    if name in ("fcntl", "grp", "pwd", "resource", "termios") and str((globals or {}).get("__name__")).startswith("entente"):
        raise ImportError(name + " is missing on Windows")
    return import_module(name, globals, *arguments, **keywords)

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
