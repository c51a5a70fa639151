"""Tests that files are written completely or not at all."""

import os
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


def test_a_file_gets_its_name_when_it_is_whole_and_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"old")
    synchronised: list[tuple[int, bytes]] = []

    def fsync(number: int) -> None:
        synchronised.append((os.fstat(number).st_size, (tmp_path / "file").read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    with open_atomic(tmp_path / "file") as file:
        file.write(bytes(10_007))  # more than a buffer holds
    assert synchronised == [(10_007, b"old")] and (tmp_path / "file").read_bytes() == bytes(10_007)


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


def test_a_pipe_is_written_and_not_replaced() -> None:
    read, write = os.pipe()
    with open_atomic(Path(f"/dev/fd/{write}")) as file:
        file.write(b"one\n")
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"one\n"
