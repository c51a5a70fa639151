"""Tests the list of ablations."""

from pathlib import Path

import pytest

from bad_inputs import run
from entente.commands import ablations
from entente.commands.settings import AblationsSettings

ABLATIONS = Path(__file__).parents[2] / "configs" / "ablation"


def test_each_ablation_is_listed_with_its_models_and_its_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run("ablations", tmp_path).out.splitlines()
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
