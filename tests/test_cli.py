"""Tests command lines as a user types them. All mistakes are reported at once, on one line each, with exit code 2."""

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bad_inputs import run
from entente import cli
from entente.cli import VERBS, compose, compose_checked, defaults
from entente.commands.train import resumed_settings
from entente.errors import Diverged, InputError
from entente.settings import RunSettings
from entente.validation import flat, validate


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("--help", 0, "corpus     Show sentences"),
        ("--version", 0, "entente 0."),
        ("help train model=birnn", 0, r"model.d_hidden=256 +state width of the decoder"),
        ("data --help data=files", 0, r"data.train=VALUE +required; two parallel files"),
        ("trace help", 0, "  entente trace example=true\n"),
        ("train --cfg job model=birnn seed=2 name=007", 0, r"(?s)seed: 2\n.+  name: birnn\n"),
    ],
    ids=str,
)
def test_the_first_word_is_a_verb_or_asks_for_help(command: str, code: int, words: str, tmp_path: Path) -> None:
    ended = run(command, tmp_path)
    assert (ended.code, ended.err) == (code, "") and re.search(words, ended.out), ended.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_80_columns_and_explains_each_setting(verb: str, tmp_path: Path) -> None:
    text = run(f"{verb} --help", tmp_path).out
    assert max(map(len, text.splitlines())) <= 80
    assert len(re.findall(rf"^  .*entente {verb} ", text, re.MULTILINE)) == 3  # examples
    values = compose(verb, []).values if verb in cli.COMPOSED else defaults(VERBS[verb])
    keys = {key for key, value in flat(values) if not isinstance(value, dict)} | {*VERBS[verb].model_fields}
    entries = re.findall(r"^  ([\w.]+)=", text, re.MULTILINE)
    assert len(entries) == len(set(entries)) and keys - {"data", "model", *values} <= set(entries)
    assert {key.partition(".")[0] for key in keys} >= {key.partition(".")[0] for key in entries}


def test_help_a_listing_and_errors_import_no_slow_package(tmp_path: Path) -> None:
    program = """if True:
        import sys
        from contextlib import suppress
        from entente.__main__ import main

        for line in ("train --help", "translate --help", "ablations", "train modle=birnn seed=x search.n_best=3"):
            sys.argv[1:] = line.split()
            with suppress(SystemExit):
                main()
        print({"torch", "lightning", "datasets", "rich"} & {*sys.modules})
    """
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout.endswith("\nset()\n") and "did you mean model?" in ended.stderr, ended


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[RunSettings]:
    """Replaces the command `train` by one that diverges if the seed is 2. Returns the settings that it is called with."""
    calls: list[RunSettings] = []

    def main(settings: RunSettings, composition: cli.Composition) -> None:
        calls.append(settings)
        if settings.seed == 2:
            raise Diverged("at step 1")

    monkeypatch.setattr(cli, "import_module", lambda name: SimpleNamespace(main=main))
    return calls


@pytest.mark.parametrize(("streams", "code", "lines"), [("| head -1", 128 + signal.SIGPIPE, 1), ("<&- >&-", 0, 0)])
def test_a_reader_that_wants_no_more_and_closed_streams_are_no_errors(
    streams: str, code: int, lines: int, tmp_path: Path
) -> None:
    command = f"set -o pipefail; {sys.executable} -P -m entente ablations {streams}"
    ended = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr, ended.stdout.count("\n")) == (code, "", lines)


def test_a_file_that_adds_a_second_length_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "experiment" / "mine.yaml"
    file.parent.mkdir()
    file.write_text("# @package _global_\ntrainer: {epochs: 3}\n")
    with pytest.raises(InputError, match="trainer.max_steps=.+ and trainer.epochs=3: set one of them to null in your file"):
        cli.compose("train", ["experiment=mine"], str(tmp_path))
    file.write_text("# @package _global_\ntrainer: {epochs: 3, max_steps: null}\n")
    assert cli.compose("train", ["experiment=mine"], str(tmp_path)).values["trainer"]["epochs"] == 3


def test_a_length_of_null_is_no_length() -> None:
    usual = cli.compose("train", []).values["trainer"]["max_steps"]
    assert usual and cli.compose("train", ["trainer.minutes=null"]).values["trainer"]["max_steps"] == usual
    assert cli.compose("train", ["trainer.max_steps=null", "trainer.epochs=3"]).values["trainer"]["epochs"] == 3


def test_a_sweep_goes_on_after_a_run_that_fails(trained: list[RunSettings], tmp_path: Path) -> None:
    ended = run("train -m model=birnn,transformer seed=1,2,3 optim.lr=3e-4", tmp_path)
    assert (ended.code, ended.err.splitlines()) == (3, ["diverged: at step 1"] * 2)
    assert [(settings.model.name, settings.seed, settings.optim.lr) for settings in trained] == [
        (model, seed, 3e-4) for model in ("birnn", "transformer") for seed in (1, 2, 3)
    ]


def test_each_run_of_a_sweep_reports_its_mistakes(trained: list[RunSettings], tmp_path: Path) -> None:
    ended = run("train -m seed=1,x trainer.max_steps=3,y", tmp_path)
    assert (ended.code, len(trained)) == (2, 1)
    assert [re.findall(r"([\w.]+=\w+):", line) for line in ended.err.splitlines()] == [
        ["trainer.max_steps=y"], ["seed=x"], ["seed=x"], ["trainer.max_steps=y"]
    ]  # fmt: skip


def test_text_in_a_sweep_is_what_was_typed(trained: list[RunSettings], tmp_path: Path) -> None:
    run("train -m name=2024_01_15 trainer.suffix=1e3 model.mask_value=null seed=1,2", tmp_path)
    assert [(settings.seed, settings.name, settings.trainer.suffix) for settings in trained] == [
        (seed, "2024_01_15", "1e3") for seed in (1, 2)
    ]


TEXTS = ["Il n'est pas", "Oui, non : (a) = b ?", '"Bonjour", dit-il', r"\"oui\" \\", "${x}", "no", "3", "null", "[a] {b", ""]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_taken_as_it_is_typed(text: str) -> None:
    words = [f"sentence={text}", f"target={text}", "checkpoint=[a,b]", "output=007", "layer=2", "words=true", "kind=null"]
    settings = validate(VERBS["attention"], compose("attention", words).values).model_dump()
    assert settings == settings | {
        **{"sentence": text, "target": None if text == "null" else text, "checkpoint": ("a", "b"), "output": "007"},
        **{"layer": 2, "words": True, "kind": None},
    }


def test_a_text_is_composed_as_it_is_typed() -> None:
    words = [
        f"data.extra.{key}{i}.{side}={text}" for i, text in enumerate(TEXTS) for key, side in (("f", "file"), ("s", "src"))
    ]
    values = compose("train", ["data=files", "name=2024_01_15", "resume=${x}", *words, "data.columns.src=2"]).values
    assert (values["name"], values["resume"], values["data"]["columns"]["src"]) == ("2024_01_15", "${x}", 2)
    for i, text in enumerate(TEXTS):
        optional = None if text == "null" else text
        assert (values["data"]["extra"][f"f{i}"], values["data"]["extra"][f"s{i}"]) == ({"file": optional}, {"src": optional})


def test_runs_to_compare_are_words() -> None:
    for words in (["a", "b c", "samples=3"], ["runs=[a,b c]", "samples=3"]):
        values = compose_checked("compare", words, None)[0].values
        assert (values["runs"], values["samples"]) == (["a", "b c"], 3)


@pytest.mark.parametrize(
    ("overrides", "values"),
    [
        (["optim.lr=3e-4", "name=it's", "resume=a:b c"], {"optim.lr": 3e-4, "name": "it's", "resume": "a:b c"}),
        (["experiment=ablation_baseline"], {"optim.optimizer": "adam", "model.n_layers": 3}),
        (["ablation=one_head", "+model.n_layers=1"], {"variant": "one_head", "model.n_heads": 1, "model.n_layers": 1}),
        (["recipe=none", "~views.heads"], {"optim.optimizer": "adam", "views.heads": 32}),
        (["trainer=debug"], {"trainer.max_steps": 2}),
        (["trainer=debug", "data=files", "data.train=x.tsv"], {"trainer.max_steps": 2, "trainer.epochs": None}),
        (["data=files", "data.train=x.tsv"], {"data.train": "x.tsv", "data.valid": None, "data.test": None}),
        (["data=files", "data.train.src=x", "data.train.tgt=y"], {"data.train.src": "x", "data.train.tgt": "y"}),
    ],
    ids=str,
)
def test_settings_have_the_composed_values(overrides: list[str], values: dict[str, Any]) -> None:
    stored = dict(flat(validate(RunSettings, compose("train", overrides).values).model_dump()))
    assert {key: stored[key] for key in values} == values


def resumed(*overrides: str) -> RunSettings:
    composition = compose("train", ["resume=run", *overrides])
    return resumed_settings(validate(RunSettings, composition.values), composition)


def test_a_run_is_resumed_with_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = validate(RunSettings, compose("train", ["seed=9", "trainer.threads=4", "trainer.max_steps=5"]).values)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(stored.stored()), encoding="utf-8")
    assert resumed() == stored.model_copy(update={"resume": "run"})
    changed = resumed("trainer.threads=2", "output_dir=here")
    assert (changed.seed, changed.trainer.threads, changed.trainer.max_steps, changed.output_dir) == (9, 2, 5, "here")
    with pytest.raises(InputError) as refused:
        resumed("model.n_heads=2", "trainer.threads=2", "seed=9")
    assert [line.rpartition(" ")[2] for line in refused.value.problems] == ["model.n_heads=2", "seed=9"]
    assert "init=run starts a new run" in refused.value.problems[0]


@pytest.mark.parametrize(("load", "policy", "expected"), [(0.2, None, None), (3.0, None, "PASSIVE"), (3.0, "ACTIVE", "ACTIVE")])
def test_threads_sleep_while_they_wait_if_other_programs_use_the_cores(
    load: float, policy: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"OMP_WAIT_POLICY": policy} if policy else {})
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    importlib.reload(importlib.import_module("entente.__main__"))
    assert os.environ.get("OMP_WAIT_POLICY") == expected
