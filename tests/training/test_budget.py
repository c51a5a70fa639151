"""The length of a run in epochs or minutes, shares of it, and what is said at the end about more of it."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from bad_inputs import run as command
from entente.files import read_yaml
from entente.recipe import for_corpus, with_steps
from entente.settings import RunSettings
from entente.training.budget import steps_of_minutes, verdict
from entente.training.train import prepare, train
from entente.training.translator import Translator
from interruptions import differences
from test_signals import run_with_signal
from tiny import SMALL, run_settings, write_corpus


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    run = ["name=run", f"output_dir={tmp_path}", "optim.lr=1e-2", "views.attention=false", "views.heads=0"]
    return [*write_corpus(tmp_path), "model=birnn", *SMALL["birnn"], *run]


def test_a_run_of_some_epochs_reads_each_pair_as_often(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    both_directions, epochs = 2, 3
    seen: dict[int, int] = {}
    original = Translator.training_step

    def training_step(self: Translator, batch: Any, batch_idx: int) -> Any:
        seen.update({row: seen.get(row, 0) + 1 for row in batch.index.tolist()})
        return original(self, batch, batch_idx)

    monkeypatch.setattr(Translator, "training_step", training_step)
    run = train(run_settings([*words, f"trainer.epochs={epochs}", f"data.batch.both_directions={both_directions}"]))
    assert [seen[row] for row in range(211)] == [epochs] * 211
    assert [seen.get(row, 0) for row in range(211, 422)] == [both_directions] * 211
    report = json.loads((run / "training.json").read_text())
    assert read_yaml(run / "config.yaml")["trainer"]["max_steps"] == report["steps"]


def test_shares_of_a_run_become_steps() -> None:
    shares = {"optim": {"warmup": 0.25, "decay_from": 0.5}, "trainer": {"validate_every": 0.1}, "checkpoint": {"every": 0.001}}
    run = with_steps(RunSettings.model_validate({"name": "run", **shares}), 77)
    values = run.optim.warmup, run.optim.decay_from, run.trainer.validate_every, run.checkpoint.every, run.trainer.max_steps
    assert values == (19, 38, 8, 1, 77)


def test_minutes_become_steps_once_and_change_no_bit(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of some minutes that is stopped and resumed equals a run of as many steps, 31 instead of those measured."""
    measured: list[int] = []
    monkeypatch.setattr("entente.training.train.steps_of_minutes", lambda *of: measured.append(steps_of_minutes(*of)) or 31)
    words = ["train", *words, "optim.warmup=0.1", "trainer.validate_every=0.5", "checkpoint.every=7"]
    line = " ".join([*words, "trainer.minutes=9"])
    ended, _ = run_with_signal(line, tmp_path, "entente.training.translator.batch_loss", 70, signal.SIGTERM)
    assert ended.code == 75, ended.err  # 60 batches are for the measurement
    assert read_yaml(tmp_path / "run" / "config.yaml")["trainer"]["max_steps"] == 31
    assert command(f"{line} resume=auto", tmp_path).code == 0 and len(measured) == 1 and measured[0] > 31
    assert command(f"{' '.join(words)} trainer.max_steps=31 name=steps", tmp_path).code == 0
    assert not (tmp_path / "run-2").exists()
    problems = differences(tmp_path / "run", tmp_path / "steps")
    assert all(".config.trainer." in problem for problem in problems), problems


def test_a_run_of_other_epochs_is_not_resumed(words: list[str], tmp_path: Path) -> None:
    for epochs, names in ((1, ["run"]), (1, ["run"]), (2, ["run", "run-2"])):
        assert command(f"train {' '.join(words)} trainer.epochs={epochs} resume=auto", tmp_path).code == 0
        assert [path.name for path in sorted(tmp_path.glob("run*"))] == names


@pytest.mark.parametrize(
    ("pairs", "words", "characters", "pieces", "tokens", "dropout", "epochs"),
    [  # the rows of outputs/published/own_text.md
        (3_000, 6.7, 90, 4000, 1024, 0.4, 80),
        (20_000, 6.7, 100, 8000, 1024, 0.3, 27),
        (164_000, 6.7, 110, 8000, 2048, 0.1, 7.7),
        (29_000, 12.5, 100, 8000, 2048, 0.2, 15),
        (100_000, 27.8, 100, 8000, 2048, 0.1, 4.4),
        (9_999, 20.0, 5_251, 11_000, 1024, 0.3, 21),  # Chinese characters; not in the table
    ],
)
def test_the_recipe_gives_what_its_page_says(
    pairs: int, words: float, characters: int, pieces: int, tokens: int, dropout: float, epochs: float
) -> None:
    assert for_corpus(pairs, words, characters) == {
        "data": {"tokenizer": {"vocab_size": pieces}, "batch": {"max_tokens": tokens}},
        "model": {"dropout": dropout},
        "trainer": {"max_steps": None, "epochs": epochs},
    }
    for wanted, expected in ((8, 0.1), (8.1, 0.2), (16, 0.2), (40, 0.3), (41, 0.4)):
        assert for_corpus(pairs, words, characters, wanted)["model"]["dropout"] == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], for_corpus(211, 5.0, 30)),
        (["trainer.epochs=3"], {"model": {"dropout": 0.1}, "trainer": {"max_steps": None, "epochs": 3}}),
        (
            ["model.dropout=0.45", "trainer.max_steps=5"],
            {"model": {"dropout": 0.45}, "trainer": {"max_steps": 5, "epochs": None}},
        ),
        (["ablation=no_dropout"], {"model": {"dropout": 0.0}}),
        (["experiment=ablation_baseline"], {"model": {"dropout": 0.1}, "trainer": {"max_steps": 1600, "epochs": None}}),
    ],
)
def test_the_recipe_follows_from_the_text_below_everything_else(
    changes: list[str], expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        text for text in write_corpus(tmp_path) if text != "recipe=none" and not text.startswith(("data.tok", "data.batch"))
    ]
    runs: list[RunSettings] = []
    monkeypatch.setattr("entente.commands.train.train_run", runs.append)
    monkeypatch.setattr("entente.commands.train.check_effect", lambda *_: None)
    ended = command(f"train {' '.join([*files, *changes])} output_dir=.", tmp_path)
    assert ended.code == 0, ended.err
    for section, values in expected.items():
        for key, value in values.items():
            node: Any = runs[0].model_dump()[section][key]
            assert node == value or (isinstance(value, dict) and value.items() <= node.items()), key


def test_the_recipe_counts_pairs_as_often_as_an_epoch_has_them_and_words_of_the_whole_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entente.commands.train.SAMPLE", 10)
    for name, count, length in (("short", 101, 1), ("long", 23, 11)):
        lines = [" ".join([f"{name}{i}", *["mot"] * (length - 1)]) for i in range(count)]
        (tmp_path / f"{name}.tsv").write_text("fr\ten\n" + "".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    asked: list[Any] = []
    runs: list[RunSettings] = []
    monkeypatch.setattr("entente.commands.train.for_corpus", lambda *values: asked.append(values) or for_corpus(*values))
    monkeypatch.setattr("entente.commands.train.train_run", runs.append)
    extra = "+data.extra.long.file=long.tsv data.extra.long.weight=7 data.extra.long.tag=bt"
    ended = command(f"train data=files data.train=short.tsv data.valid=long.tsv {extra} output_dir=.", tmp_path)
    assert ended.code == 0, ended.err
    [(pairs, words, characters, _)] = asked
    assert pairs == 101 + 7 * 23 and characters > 10
    read = 8 + 2 * 7  # 8 short pairs, and 2 long ones, each 7 times
    assert words == pytest.approx((8 * 1 + 2 * 7 * 11) / read)
    monkeypatch.chdir(tmp_path)
    words_of_train = {*prepare(runs[0])[1].checkpoint_entry["words"].split("\n")}
    assert words_of_train == {"mot", *(f"short{i}" for i in range(101)), *(f"long{i}" for i in range(23))}, "a tag is no word"


@pytest.mark.parametrize(
    ("expected", "bleu", "nll", "train_nll"),
    [
        ("still rising", (3, 20, 30, 34, 36), (3.0, 2.0, 1.5, 1.4, 1.38), (3.1, 2.1, 1.6, 1.4, 1.3)),
        ("still rising", (3, 20, 30, 34, 34.1), (3.0, 2.0, 1.5, 1.4, 1.3), (3.1, 2.1, 1.6, 1.4, 1.3)),
        ("converged", (3, 30, 36, 36, 36.2), (3.0, 1.5, 1.4, 1.39, 1.38), (3.1, 1.6, 1.4, 1.39, 1.38)),
        ("converged", (3, 30, 36, 36, 36.2), (3.0, 1.5, 1.37, 1.38, 1.4), (3.1, 1.6, 1.4, 1.6, 1.7)),
        ("overfitting", (3, 30, 36, 36, 37), (3.0, 1.5, 1.37, 1.38, 1.4), (3.1, 1.6, 1.4, 1.2, 1.0)),
    ],
)
def test_the_verdict_follows_from_the_curves(expected: str, bleu: Any, nll: Any, train_nll: Any, words: list[str]) -> None:
    """What rises must rise in the last quarter, and what overfits must get better on its training text meanwhile."""
    curves = {"valid/bleu": bleu, "valid/nll": nll, "train/nll": train_nll}
    rows = [{"step": 20 * (i + 1), **{name: curve[i] for name, curve in curves.items()}} for i in range(5)]
    word, *lines = verdict(rows, run_settings(words)) or [""]
    assert word == expected and lines[0].startswith(f"{expected}") and re.search(r"\b(help|try)\b", lines[1])
    assert verdict(rows[:3], run_settings(words)) is None


def test_the_verdict_stands_at_the_end(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entente.training.train.verdict", lambda rows, _: (f"after {len([*rows])}", "It rises.", "Go on."))
    ended = command(" ".join(["train", *words, "trainer.max_steps=2", "trainer.log_every=1"]), tmp_path)
    assert json.loads((tmp_path / "run" / "training.json").read_text())["verdict"] == "after 2", ended.out
    assert "\nIt rises.\nGo on.\n" in ended.out
