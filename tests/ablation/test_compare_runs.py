"""Tests the comparison of runs outside a suite: their differing settings, their grouping by seed, and the error analysis."""

import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_comparison import write_run

from bad_inputs import run as command
from entente.ablation.comparison import compare
from entente.ablation.report import contrasts, page, show, words_of_one
from entente.ablation.runs import read_runs
from entente.settings import RunSettings
from speedrun import draw

BASE: dict[str, Any] = {
    "seed": 1,
    "name": "base",
    "variant": "baseline",
    "model": {"name": "transformer", "dropout": 0.1, "residual": ["self", "cross"], "n_heads": 4},
    "optim": {"lr": 0.003},
    "trainer": {"max_steps": 300, "threads": None},
    "data": {"name": "grammar", "train": 30, "tokenizer": {"vocab_size": 4000}},
}


def write(folder: Path, name: str, damage: float = 0.1, **changes: Any) -> Path:
    """Writes a finished run and returns its directory. `changes` (KEY=... or PART__KEY=...) replace settings of BASE."""
    config = yaml.safe_load(yaml.safe_dump(BASE)) | {"name": name, "output_dir": str(folder / "outputs")}
    for key, value in changes.items():
        part, _, last = key.rpartition("__")
        (config[part] if part else config)[last] = value
    write_run(folder / name, config["seed"], damage)
    (folder / name / "config.yaml").write_text(yaml.safe_dump(config))
    return folder / name


def read(folder: Path, *runs: Path) -> Any:
    return read_runs(runs, folder / "out")


def test_runs_that_differ_only_in_the_seed_are_one_row(tmp_path: Path) -> None:
    bases = [write(tmp_path, f"x-base-seed{seed}", 0.1 + seed / 100, seed=seed, trainer__threads=seed) for seed in (2, 1)]
    variants = [write(tmp_path, f"x-wide-seed{seed}", 0.5, seed=seed, model__n_heads=8) for seed in (1, 2)]
    suite = read(tmp_path, *bases, *variants)
    expected = [("x-base", 1), ("x-base", 2), ("x-wide", 1), ("x-wide", 2)]
    assert [(run.variant, run.seed) for run in suite.runs] == expected
    assert suite.differences() == {"model.n_heads": [4, 8]}
    rows = compare(suite, 200).rows
    assert [(row["variant"], row["finished"], row["runs"], row["verdict"]) for row in rows] == [
        ("x-base", 2, 2, "baseline"),
        ("x-wide", 2, 2, "worse"),
    ]
    alone = compare(read(tmp_path, *bases), 200)
    assert [row["verdict"] for row in alone.rows] == ["baseline"] and alone.rows[0]["test bleu_sd"] > 0
    assert "There is nothing to compare it with." in page(alone, read(tmp_path, *bases))


def test_a_setting_that_a_run_is_too_old_to_have_is_no_difference(tmp_path: Path) -> None:
    runs = [write(tmp_path, f"x-seed{seed}", 0.1, seed=seed) for seed in (1, 2)]
    for path, removed in zip(runs, ((), ("sliced_heads", "n_heads")), strict=True):
        config = RunSettings.model_validate(yaml.safe_load((path / "config.yaml").read_text())).stored()
        for name in removed:
            del config["model"][name]
        (path / "config.yaml").write_text(yaml.safe_dump(config))
    assert read(tmp_path, *runs).variants == ["x"]


def test_settings_that_differ_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write(tmp_path, "a-transformer")
    cut = write(tmp_path, "a-cut", model__residual=[], variant="no_residual")
    model = {"name": "birnn", "dropout": 0.1, "d_hidden": 7}
    other = write(tmp_path, "a-birnn", model=model, seed=3, optim__lr=0.1)
    suite = read(tmp_path, base, cut, other)
    assert suite.variants == ["a-transformer", "a-cut", "a-birnn"]
    assert suite.differences() == {
        "seed": [[1], [1], [3]],
        "model.name": ["transformer", "transformer", "birnn"],
        "model.residual": [["self", "cross"], [], "???"],
        "model.score": ["dot", "dot", "additive"],
        "optim.lr": [0.003, 0.003, 0.1],
    }  # n_heads and d_hidden are not listed: each has the same value in all runs that have it
    show(compare(suite, 200), suite)
    assert "[self, cross]" in capsys.readouterr().out


@pytest.mark.parametrize("average", [1, 3])
def test_when_checkpoints_are_written_matters_only_if_several_are_averaged(tmp_path: Path, average: int) -> None:
    runs = [write(tmp_path, f"every{n}", seed=n, checkpoint={"every": 100 * n, "keep": n, "average": average}) for n in (1, 2)]
    assert len(read(tmp_path, *runs).variants) == (1 if average == 1 else 2)


@pytest.mark.usefixtures("without_charts")
def test_a_run_without_a_baseline_of_its_seed_is_compared_with_the_first(tmp_path: Path) -> None:
    base, other = write(tmp_path, "base", 0.1), write(tmp_path, "other", 0.6, seed=2, optim__lr=0.1)
    suite = read(tmp_path, base, other)
    comparison = compare(suite, 200)
    result = comparison.rows[1]
    assert result["verdict"] == "worse (1 seed)" and result["test difference"] < -20
    text = page(comparison, suite)
    assert "Why it is worse" in text and "One seed compares two runs" in text and "seeds ±" not in text


@pytest.mark.parametrize("folders", [("quick", "."), (".", ".")])
def test_equal_names_are_told_apart_by_their_paths(tmp_path: Path, folders: tuple[str, str]) -> None:
    """Equal settings and equal seeds are two rows, and so are other settings with another seed in the same folder."""
    (tmp_path / "quick").mkdir()
    first = write(tmp_path / folders[0], "base-seed1")
    is_same = folders[0] == folders[1]
    second = write(tmp_path, "base-seed2", 0.2, seed=2, optim__lr=0.1) if is_same else write(tmp_path, "base-seed1", 0.2)
    suite = read(tmp_path, first, second)
    assert suite.variants == (["base-seed1", "base-seed2"] if is_same else ["quick/base", "base"])


def test_a_picture_shows_bleu_against_time_with_a_panel_for_each_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = [write(tmp_path, f"x-base-seed{seed}", seed=seed) for seed in (1, 2)]
    other, recurrent = write(tmp_path, "x-other-seed1", optim__lr=0.1), write(tmp_path, "birnn", model__name="birnn")
    panels = draw([read(tmp_path, *base, other), read(tmp_path, recurrent)]).axes
    assert [axes.get_title() for axes in panels] == ["Transformer", "BiRNN"]
    assert [line.get_color() for line in panels[0].lines] == ["C0", "C0", "C1"]
    assert [text.get_text() for text in panels[0].get_legend().get_texts()] == ["x-base", "x-other"]
    assert panels[1].lines[0].get_xdata()[-1] == pytest.approx(9.5 / 60)  # the run's training took 9.5 seconds
    script = Path(__file__).parents[2] / "scripts" / "speedrun.py"
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "new.png"), *map(str, base), "/", str(recurrent)])
    runpy.run_path(str(script), run_name="__main__")
    assert (tmp_path / "new.png").read_bytes().startswith(b"\x89PNG")


def test_sentences_show_every_kind_of_error_and_the_largest_difference_first() -> None:
    references = ["one two three", "four five six", "seven eight nine"]
    base, other = ["one two three", "four", "seven"], ["one two", "four five six", "seven"]
    rows = contrasts([*zip("abc", references, base, other, strict=True)])
    assert [row[0] for row in rows] == ["b", "a"]  # the two translations of c are equal, so c is left out
    references = [f"the cat sees dog {i}" for i in range(20)]
    failed = [*[""] * 10, *(f"the the the {i}" for i in range(10))]
    texts = [row[3] for row in contrasts([*zip(references, references, references, failed, strict=True)])]
    assert texts[0] == "" and len(texts) == len({*texts}) == 11  # the lowest chrF is that of the empty ones


@pytest.mark.usefixtures("without_charts")
def test_the_errors_of_two_runs_are_analysed(tmp_path: Path) -> None:
    suite = read(tmp_path, write(tmp_path, "base", 0.05), write(tmp_path, "other", 0.5))
    base, other = (run.translations("test") for run in suite.runs)
    words = words_of_one(suite, "test")
    assert list(words) == ["base", "other"] and words["base"][0][1] > words["other"][0][1]
    word, n = words["base"][0]
    lines = zip(base["reference"], base["translation"], other["translation"], strict=True)
    counts = [[line.split().count(word) for line in texts] for texts in lines]
    assert n == sum(max(0, min(right, first) - min(right, second)) for right, first, second in counts)


@pytest.mark.usefixtures("without_charts")
def test_the_command_compares_runs_and_leaves_them_as_they_are(tmp_path: Path) -> None:
    runs = [write(tmp_path, "a base, 1"), write(tmp_path, "no_residual", 0.5, model__residual=[])]
    contents = {path: path.read_bytes() for run in runs for path in run.rglob("*") if path.is_file()}
    done = command(shlex.join(["compare", *(run.name for run in runs), "samples=50"]), tmp_path)
    [folder] = (tmp_path / "outputs").glob("comparison-*")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == str((folder / "comparison.html").relative_to(tmp_path))
    assert "model.residual" in done.out
    assert sorted(path.name for path in folder.iterdir()) == ["comparison.csv", "comparison.html", "comparison.md"]
    html = (folder / "comparison.html").read_text()
    assert all(
        text in html for text in ("What differs", "that only one of the runs has right", "whose translations differ most")
    )
    assert {path: path.read_bytes() for run in runs for path in run.rglob("*") if path.is_file()} == contents
