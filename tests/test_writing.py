"""A file is there whole or not at all."""

from pathlib import Path

import pytest

from entente.files.writing import whole, write_json


def test_a_file_that_fails_on_the_way_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "metrics.json"
    write_json(path, {"bleu": 11.5, "of": "œuvre"})
    before = path.read_text(encoding="utf-8")
    assert before == '{\n  "bleu": 11.5,\n  "of": "œuvre"\n}\n'
    with pytest.raises(RuntimeError), whole(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_text(encoding="utf-8") == before
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == before
    assert [found.name for found in path.parent.iterdir()] == ["metrics.json"]
