"""The notebook that shows what can be done with the published model."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_tour_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads((ROOT / "scripts" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    monkeypatch.chdir(ROOT / "scripts")
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    unchanged, changed = re.findall(r"^(?:unchanged|no residual around cross-attention) +(.+)$", capsys.readouterr().out, re.M)
    assert unchanged != changed
