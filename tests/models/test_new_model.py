"""A model that is added with a file in models/, a class of settings, an entry in build.py and a YAML file can be trained."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import write_corpus

TESTS = Path(__file__).parents[1]
SETTINGS = """class MeanSettings(Section):
    name: Literal["mean"] = "mean"
    d_model: Width = setting(64, "width of every layer")


"""


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.slow
def test_a_new_model_is_trained_and_translates(tmp_path: Path) -> None:
    for part in ("src", "configs"):
        shutil.copytree(TESTS.parent / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    package = tmp_path / "src" / "entente"
    shutil.copy(TESTS / "tools" / "mean.py", package / "models")
    replace(package / "settings.py", "ModelSettings = Annotated[", f"{SETTINGS}ModelSettings = Annotated[MeanSettings | ")
    replace(package / "models" / "build.py", "\nMODELS", "\nfrom entente.models.mean import Mean\nMODELS")
    replace(package / "models" / "build.py", "= {", '= {"mean": Mean, ')
    (tmp_path / "configs" / "model" / "mean.yaml").write_text("defaults:\n  - _mean\n", encoding="utf-8")
    settings = ["model=mean", "name=new", "trainer=debug", "trainer.suffix=''", "search.beam=3", *write_corpus(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}
    program = "import sys, entente; entente.train(sys.argv[1:]).translate('Le chat voit le chien.')"
    subprocess.run([sys.executable, "-c", program, *settings], cwd=tmp_path, env=environment, check=True)
    translations = (tmp_path / "outputs" / "new" / "translations" / "test.tsv").read_text(encoding="utf-8")
    assert translations.startswith("source\treference\ttranslation\n") and translations.count("\n") > 1
