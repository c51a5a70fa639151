"""Tests that a model added with a file in models/, a line in models/__init__.py and a YAML file trains and translates."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import write_corpus

ROOT = Path(__file__).parents[2]
BEFORE = "from entente.models.seq2seq import"
LINE = "from entente.models.mean import Mean as Mean\n"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies the project to a folder, adds a model to the copy, and returns the folder."""
    folder = tmp_path_factory.mktemp("checkout")
    for part in ("src", "configs", "scripts"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    models = folder / "src" / "entente" / "models"
    shutil.copy(ROOT / "tests" / "tools" / "mean.py", models / "mean.py")
    known = models / "__init__.py"
    before = known.read_text(encoding="utf-8")
    assert BEFORE in before
    known.write_text(before.replace(BEFORE, LINE + BEFORE), encoding="utf-8")
    (folder / "configs" / "model" / "mean.yaml").write_text("defaults:\n  - _mean\n", encoding="utf-8")
    return folder


# This program writes the table of settings, then trains a run. It writes the table in a forked process, so that the libraries
# are imported only once.
PROGRAM = """
import os, runpy, sys
import datasets, lightning
if not (child := os.fork()):
    runpy.run_path("scripts/schema.py", run_name="__main__")
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
from entente.__main__ import main
main()
"""


@pytest.mark.slow
def test_a_new_model_is_trained_and_translates(checkout: Path) -> None:
    places = {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    settings = ["model=mean", "name=new", "trainer=debug", "trainer.suffix=''", "search.beam=3", *write_corpus(checkout)]
    command = [sys.executable, "-c", PROGRAM, "train", *settings]
    subprocess.run(command, cwd=checkout, env={**os.environ, **places}, check=True)
    table = json.loads((checkout / "src" / "entente" / "config" / "schema.json").read_text(encoding="utf-8"))
    assert table["model/mean"]["d_model"]["default"] == 64
    translations = (checkout / "outputs" / "new" / "translations" / "test.tsv").read_text(encoding="utf-8")
    assert translations.startswith("source\treference\ttranslation\n") and translations.count("\n") > 1
