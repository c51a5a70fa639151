"""Tests that no name given on the command line or in a file leads to a path outside the intended folder."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bad_inputs import put, run
from entente.errors import InputError
from entente.evaluation import Evaluation, write_translations
from entente.settings import RunSettings
from entente.validation import validate

NAMES = st.text(st.sampled_from("a.-/\\~@ \0\n\x1b\u202eéx"), max_size=9) | st.text(max_size=90) | st.just("é" * 101)
SCORED = Evaluation(["un"], ["one"], ["one"], 1.0, cut=0)


def accepted(**values: object) -> bool:
    """Returns whether a run's settings are accepted. If they are not, there is one short line for them."""
    try:
        validate(RunSettings, {"name": "run", **values})
    except InputError as error:
        assert len(error.problems) == 1 and len(error.problems[0]) < 400
        return False
    return True


@settings(max_examples=61, deadline=None)  # no time limit for an example, since the machine may be busy
@given(text=NAMES)
def test_an_accepted_name_is_one_file_of_its_folder(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("names")
    if accepted(data={"name": "files", "train": "x.tsv", "test": {text: "y.tsv"}}):
        write_translations(folder, {text: SCORED})
        assert [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()] == [Path(f"translations/{text}.tsv")]
        assert accepted(name=text)
    if accepted(name=text):
        (folder / text).mkdir(parents=True)
        assert (folder / text).resolve().is_relative_to(folder.resolve()) and (folder / text).resolve() != folder.resolve()


def test_names_that_leave_the_folder_or_fit_no_file_are_refused() -> None:
    ordinary = ["a", "suite/no_residual-seed1", "lr=1e-3", "été", "a b", "x" * 200, "v1.2@noon"]
    refused = ["", ".", "..", "a/../b", "/a", "a/", "a//b", "../a", ".a", "x" * 201, "é" * 101, "a\x1bb", "a\nb"]
    assert [name for name in ordinary + refused if accepted(name=name)] == ordinary


@pytest.mark.parametrize("name", ["a@b.fr", ".hidden"])
def test_own_files_of_any_name_are_scored(folder: Path, name: str) -> None:
    put(str(folder / name), "Le chat voit le chien.\n")()
    put(str(folder / "my.en"), "The cat sees the dog.\n")()
    ended = run(f"evaluate checkpoint=run src={name} tgt=my.en output=scores accelerator=cpu", folder)
    assert (ended.code, ended.err) == (0, ""), ended
    assert [path.name for path in (folder / "scores" / "translations").iterdir()] == ["own.tsv"]
