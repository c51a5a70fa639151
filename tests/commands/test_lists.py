"""Tests the list of ablations, which is printed quickly, since it needs no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from entente.commands import ablations
from entente.commands.settings import AblationsSettings

ABLATIONS = Path(__file__).parents[2] / "configs" / "ablation"


def test_each_ablation_is_listed_with_its_models_and_its_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "import sys\nfrom entente.__main__ import main\nmain()\nassert 'torch' not in sys.modules"
    command = [sys.executable, "-c", program, "ablations"]
    lines = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == sorted(path.stem for path in ABLATIONS.glob("*.yaml"))
    texts = dict(zip(names, (" ".join(line.split()[1:]) for line in lines), strict=True))
    assert texts["no_attention"] == (
        "birnn one vector cannot hold a whole sentence, least of all a long one (Bahdanau et al. 2015, figure 2)."
    )
    assert texts["baseline"] == "transformer, birnn The complete model. All variants are compared with it."
    ablations.main(AblationsSettings(model="birnn"))
    of_birnn = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert of_birnn == {name for name, text in texts.items() if "birnn" in text.split()[:2]} < {*names}
