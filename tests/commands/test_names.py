"""Tests that no name given on the command line or in a file leads to a path outside the intended folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bad_inputs import put, run
from entente.ablation.runs import read_suite
from entente.config.schema import problems
from entente.errors import InputError
from entente.evaluation import Evaluation, write_translations
from entente.training.settings import PARTS, RunSettings

RUN: dict[str, Any] = {part: {} for part in (*PARTS, "model", "data")}
NAMES = st.text(st.sampled_from("a.-/\\~@ \0\n\x1b\u202eéx"), max_size=9) | st.text(max_size=90) | st.just("é" * 101)


SCORED = Evaluation(["un"], ["one"], ["one"], 1.0)


@settings(deadline=None)  # no time limit for an example, since the machine may be busy
@given(text=NAMES)
def test_an_accepted_name_is_one_file_of_its_folder(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("names")
    refused = problems(RunSettings, "", {**RUN, "name": text})
    try:
        write_translations(folder, {text: SCORED})
    except InputError:
        assert [path for path in folder.rglob("*") if path.is_file()] == []
        assert refused or "/" in text  # the name of a run may contain folders; the name of a split may not
    else:
        assert [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()] == [Path(f"translations/{text}.tsv")]
        assert not refused


@pytest.mark.parametrize("name", ["a", "suite/no_residual-seed1", "lr=1e-3", "été", "a b", "x" * 200, "v1.2@noon"])
def test_ordinary_names_of_runs_are_accepted(name: str) -> None:
    assert problems(RunSettings, "", {**RUN, "name": name}) == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/../b", "/a", "a/", "a//b", "../a", ".a", "x" * 201, "é" * 101, "a\x1bb", "a\nb"]
)
def test_names_that_leave_the_folder_or_fit_no_file_are_refused(name: str) -> None:
    [line] = problems(RunSettings, "", {**RUN, "name": name})
    assert line.startswith("name=") and len(line) < 300


def test_scores_of_a_split_outside_the_suite_are_refused(tmp_path: Path) -> None:
    put(str(tmp_path / "suite.yaml"), "variants: [baseline]\nseeds: [1]\n")()
    put(str(tmp_path / "baseline-seed1" / "metrics.json"), json.dumps({"../../victim": {"bleu": 1.0}}))()
    with pytest.raises(InputError, match=r"metrics\.json: cannot be read"):
        read_suite(tmp_path)


@pytest.mark.parametrize("name", ["a@b.fr", ".hidden"])
def test_own_files_of_any_name_are_scored(folder: Path, name: str) -> None:
    put(str(folder / name), "Le chat voit le chien.\n")()
    put(str(folder / "my.en"), "The cat sees the dog.\n")()
    ended = run(f"evaluate checkpoint=run src={name} tgt=my.en output=scores accelerator=cpu", folder)
    assert (ended.code, ended.err) == (0, ""), ended
    assert [path.name for path in (folder / "scores" / "translations").iterdir()] == ["own.tsv"]
