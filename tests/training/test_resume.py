"""Tests that a run stopped at any point and resumed ends with the same bits as an uninterrupted run."""

import csv
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from entente.checkpoint import read
from entente.errors import InputError, Interrupted, Stopped
from entente.training import run_directory
from entente.training import views as views_of_training
from entente.training.run_directory import steps
from entente.training.train import train
from entente.training.translator import Translator
from interruptions import differences, points
from tiny import SMALL, run_settings, write_corpus

STEPS = 17
Run = Callable[..., Path]
AtBatch = Callable[[int, Callable[[], None]], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def overrides(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the overrides of a run of 17 steps, with a validation every 5 steps and a checkpoint every 3 steps."""
    steps = [f"trainer.max_steps={STEPS}", "trainer.validate_every=5", "trainer.log_every=1", "checkpoint.every=3"]
    other = ["optim.warmup=2", "search.length_factor=0.5", "views.attention=false", "views.heads=0", "views.diagnosis=0"]
    return [*write_corpus(tmp_path_factory.mktemp("corpus")), *steps, *other]


def train_run(overrides: list[str], folder: Path, model: str, name: str, *changes: str, resume: str | None = None) -> Path:
    arguments = [*overrides, f"model={model}", *SMALL[model], *changes]
    return train(run_settings(arguments, output_dir=str(folder), name=name, resume=resume))


@pytest.fixture
def run(overrides: list[str], tmp_path: Path) -> Run:
    """Returns a function that trains a run in `tmp_path`, given its model, name and further overrides."""
    return partial(train_run, overrides, tmp_path)


@pytest.fixture(scope="module")
def uninterrupted_run(overrides: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns a function that trains a run without interruption, given its model and overrides. Runs are cached, so a second
    call with the same arguments does not train again."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return cache(lambda model, *changes: train_run(overrides, folder, model, "uninterrupted", *changes))


@pytest.fixture
def at_batch(monkeypatch: pytest.MonkeyPatch) -> AtBatch:
    """Returns a function that, given n and `act`, makes training call `act` once, just before the n-th of the batches that
    follow. If n is 0, `act` is never called."""
    original = Translator.training_step

    def arrange(n: int, act: Callable[[], None]) -> None:
        count = 0

        def training_step(self: Translator, batch: Any, batch_idx: int) -> torch.Tensor:
            nonlocal count
            count += 1
            if count == n:
                act()
            return original(self, batch, batch_idx)

        monkeypatch.setattr(Translator, "training_step", training_step)

    return arrange


def send(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


class Killed(BaseException):
    """Simulates SIGKILL: nothing in the program catches this exception."""


def die() -> None:
    raise Killed


@pytest.fixture
def interrupt(run: Run, at_batch: AtBatch) -> Callable[..., None]:
    """Returns a function that, given n and the arguments of `run`, trains a run and interrupts it with SIGTERM in batch n."""

    def interrupt_run(n: int, *arguments: str, **options: str) -> None:
        at_batch(n, send(signal.SIGTERM))
        with pytest.raises(Interrupted):
            run(*arguments, **options)
        at_batch(0, die)

    return interrupt_run


def saved(run: Path) -> list[int]:
    """Returns the steps whose checkpoints a run keeps."""
    return [*steps(run / "checkpoints")]


# Everything that has a state, or changes the order of batches.
EVERYTHING = ["trainer.accumulate=2", "trainer.patience=9", "data.weight=2", "data.batch.both_directions=1", "views.heads=5"]
EVERYTHING += ["optim.optimizer=muon", "optim.schedule=linear", "optim.decay_from=3", "checkpoint.average=3"]
EVERYTHING += ["views.diagnosis=2"]


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("transformer", EVERYTHING),
        ("birnn", ["trainer.precision=64-true"]),
        pytest.param("birnn", EVERYTHING, marks=pytest.mark.slow),
    ],
)
def test_a_run_stopped_by_signals_or_killed_ends_with_the_same_bits(
    run: Run, uninterrupted_run: Run, model: str, changes: list[str], at_batch: AtBatch, capsys: Capture, tmp_path: Path
) -> None:
    uninterrupted, batches = uninterrupted_run(model, *changes), 2 if changes == EVERYTHING else 1
    # Runs stop between checkpoints, and before two validations, for which a signal does not wait. One is killed in a batch.
    for step, last, number in ((11, 11, signal.SIGUSR2), (5, 3, signal.SIGTERM), (STEPS, 15, signal.SIGINT)):
        at_batch((step - 1) * batches + 1, send(number))
        name = f"a 'b' {step}"
        when = f" after step {step}, which is saved" if last == step else ""
        with pytest.raises(Interrupted, match=f"{number.name}{when}; resume it") as stop:
            run(model, name, *changes)
        assert shlex.split(str(stop.value).partition(": ")[2])[-1] == f"resume={tmp_path / name}"
        assert saved(tmp_path / name)[-1] == last
        at_batch(0, die)
        assert differences(uninterrupted, run(model, name, *changes, resume="auto")) == []
        assert f"resuming at step {last} of {STEPS}" in capsys.readouterr().out
    at_batch(13 * batches, die)
    with pytest.raises(Killed):
        run(model, "killed", *changes)
    assert saved(tmp_path / "killed")[-1] == 12
    at_batch(0, die)
    assert differences(uninterrupted, run(model, "killed", *changes, resume="auto")) == []


def test_tensorboard_shows_every_point_once(
    run: Run, at_batch: AtBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_of_training, "FIXED_SENTENCES", {})
    views = ["views.attention=true", "views.attention_every=0", "views.diagnosis=1"]
    at_batch(12, die)
    with pytest.raises(Killed):
        run("birnn", "killed", *views)
    assert [step for step, _ in points(tmp_path / "killed")["train/loss"]][-2:] == [10, 11]
    at_batch(0, die)
    tags = points(run("birnn", "killed", *views, resume="auto"))
    steps_of = {tag: [step for step, _ in curve] for tag, curve in tags.items()}
    assert steps_of["train/loss"] == list(range(1, STEPS + 1))
    validations = [tag for tag in tags if tag.startswith(("valid/", "translations/", "weights/valid 1/"))]
    assert {"valid/bleu", "weights/valid 1/alignment"} <= {*validations}
    assert all(steps_of[tag] == [5, 10, 15, STEPS] for tag in validations)
    rows = [*csv.DictReader((tmp_path / "killed/metrics.csv").read_text().splitlines())]
    assert [int(row["step"]) for row in rows] == steps_of["train/loss"]
    for tag in ("train/loss", "valid/bleu"):
        assert [pytest.approx(float(row[tag]), rel=1e-6) for row in rows if row[tag]] == [value for _, value in tags[tag]]
    diagnoses = [tag for tag in tags if tag.startswith("why/")]
    assert diagnoses and all(steps_of[tag] == list(range(1, STEPS + 1)) for tag in diagnoses)


def test_patience_comes_back_and_a_run_that_only_lacks_its_evaluation_is_not_trained(
    run: Run, uninterrupted_run: Run, interrupt: Run, at_batch: AtBatch, tmp_path: Path
) -> None:
    changes = ["optim.lr=1e-30", "trainer.patience=2", "trainer.max_steps=101"]  # nothing improves, so step 15 is the last
    uninterrupted = uninterrupted_run("birnn", *changes)
    assert saved(uninterrupted)[-1] == 15
    interrupt(12, "birnn", "stopped", *changes)
    assert differences(uninterrupted, run("birnn", "stopped", *changes, resume="auto")) == []
    (tmp_path / "stopped" / "metrics.json").unlink()  # as if the run had been killed between its early stop and its evaluation
    max((tmp_path / "stopped").glob("events.*"), key=lambda path: path.stat().st_mtime_ns).unlink()  # has the final scores
    at_batch(1, die)
    assert differences(uninterrupted, run("birnn", "stopped", *changes, resume="auto")) == []


def test_a_run_that_was_moved_resumes_and_keeps_its_best_score(
    run: Run, uninterrupted_run: Run, interrupt: Run, tmp_path: Path
) -> None:
    """The learning rate of this run is so high that its first validation stays the best one."""
    wildly = "optim.lr=0.2"
    uninterrupted = uninterrupted_run("birnn", wildly)
    interrupt(11, "birnn", "stopped", wildly)
    (tmp_path / "elsewhere").mkdir()
    moved = (tmp_path / "stopped").rename(tmp_path / "elsewhere" / "moved")
    assert run("birnn", "stopped", wildly, resume=str(moved)) == moved
    assert not (tmp_path / "stopped").exists()
    assert read(moved / "checkpoints" / "best.ckpt")["global_step"] == 5
    assert differences(uninterrupted, moved) == []


def test_resume_auto_takes_the_newest_unfinished_run_which_only_one_process_may_train(
    run: Run, interrupt: Run, tmp_path: Path, capsys: Capture
) -> None:
    short = "trainer.max_steps=6"
    assert run("birnn", "a", short, resume="auto") == tmp_path / "a"  # there is no run yet, so a new one begins
    assert "no run" in capsys.readouterr().out
    assert run("birnn", "a", short, resume="auto") == tmp_path / "a"
    assert "this run has finished; nothing is left to do" in capsys.readouterr().out
    for name in ("a-2", "a-3"):
        interrupt(4, "birnn", "a", short)
        assert (tmp_path / name).exists()
    (tmp_path / "a-3").rename(tmp_path / "a-10")  # newer than a-2, though it comes before a-2 in an alphabet
    assert run("birnn", "a", short, "seed=2", resume="auto") == tmp_path / "a-3"  # a new run, since the configuration differs
    with (
        FileLock(tmp_path / "a-10" / ".lock"),
        pytest.raises(InputError, match="another process is training this run") as refusal,
    ):
        run("birnn", "a", short, resume="auto")
    assert len(refusal.value.problems) == 1
    assert run("birnn", "a", short, "trainer.threads=2", resume="auto") == tmp_path / "a-10"  # perhaps on another machine
    assert run("birnn", "a", short, resume="auto") == tmp_path / "a-2"


def test_a_run_that_another_process_has_trained_meanwhile_is_not_overwritten(
    run: Run, interrupt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(5, "birnn", "a", "trainer.max_steps=6", "checkpoint.every=1")
    older, newer = steps(tmp_path / "a" / "checkpoints").values()
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir() if path.is_file()}
    monkeypatch.setattr("entente.training.train.find_run", lambda _: run_directory.RunDirectory(tmp_path / "a", older))
    with pytest.raises(InputError, match=r"^.*/a: another process has trained this run meanwhile; run the command again$"):
        run("birnn", "a", "trainer.max_steps=6", "checkpoint.every=1", resume="auto")
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir() if path.is_file()} == before


def test_a_run_stopped_while_its_directory_is_made_begins_again_under_its_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stopped(signal.SIGTERM)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(run_directory, "write_text", stop)
        run("birnn", "a", "trainer.max_steps=6", resume="auto")
    assert run("birnn", "a", "trainer.max_steps=6", resume="auto") == tmp_path / "a"
    assert [path.name for path in tmp_path.glob("a*")] == ["a"] and not [*tmp_path.glob(".*")]


def test_a_damaged_checkpoint_is_named_and_without_it_the_run_resumes_from_the_one_before(
    run: Run, uninterrupted_run: Run, interrupt: Run, tmp_path: Path
) -> None:
    uninterrupted = uninterrupted_run("birnn")
    interrupt(11, "birnn", "stopped")
    assert saved(tmp_path / "stopped") == [6, 9, 11]
    newest = tmp_path / "stopped" / "checkpoints" / "step-11.ckpt"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.raises(InputError, match=r"step-11\.ckpt: not a checkpoint of this program, or a damaged one") as refusal:
        run("birnn", "stopped", resume="auto")
    assert len(refusal.value.problems) == 1 and newest.read_bytes() == content
    newest.unlink()
    assert differences(uninterrupted, run("birnn", "stopped", resume="auto")) == []


def test_the_mean_does_not_depend_on_where_a_run_was_stopped(
    run: Run, uninterrupted_run: Run, interrupt: Run, tmp_path: Path
) -> None:
    """A run stopped at steps 26 and 27 averages checkpoints 24, 28 and 30, like a run that was never stopped."""
    changes = ["checkpoint.average=3", "checkpoint.every=4", "trainer.max_steps=30"]
    uninterrupted = uninterrupted_run("birnn", *changes)
    assert saved(uninterrupted) == [24, 28, 30]
    for batch, step in ((26, 26), (1, 27)):
        interrupt(batch, "birnn", "stopped", *changes, resume="auto")
        assert saved(tmp_path / "stopped") == [16, 20, 24, step]
    assert differences(uninterrupted, run("birnn", "stopped", *changes, resume="auto")) == []


def test_the_end_is_always_validated_once(run: Run, uninterrupted_run: Run, interrupt: Run) -> None:
    """Holds if no validation is due before the end, and even if the run is stopped in the last step."""
    changes = ["trainer.validate_every=1000", "views.heads=32"]
    uninterrupted = uninterrupted_run("birnn", *changes)
    tags = points(uninterrupted)
    for tag in ("valid/bleu", "translations/valid/text_summary", "weights/valid entropy alignment"):
        assert [step for step, _ in tags[tag]] == [STEPS]
    interrupt(STEPS, "birnn", "stopped", *changes)
    assert differences(uninterrupted, run("birnn", "stopped", *changes, resume="auto")) == []


def test_a_run_resumes_only_with_the_text_it_began_with(run: Run, interrupt: Run, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    corpus = f"data.root={tmp_path}"
    interrupt(4, "birnn", "a", corpus)
    files = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.suffix in (".ckpt", ".yaml")}
    for split in ("train", "valid"):
        text = (tmp_path / f"{split}.fr").read_text()
        (tmp_path / f"{split}.fr").write_text(text.replace("chat", "matou"))
        for resume in ("auto", str(tmp_path / "a")):
            with pytest.raises(InputError, match=r"step-4\.ckpt: .*text has changed") as refusal:
                run("birnn", "a", corpus, resume=resume)
            assert len(refusal.value.problems) == 1
        assert {path: path.read_bytes() for path in files} == files and not (tmp_path / "a-2").exists()
        (tmp_path / f"{split}.fr").write_text(text)
    shutil.copy(tmp_path / "train.en", tmp_path / "test.en")
    shutil.copy(tmp_path / "train.fr", tmp_path / "test.fr")
    assert run("birnn", "a", corpus, resume="auto") == tmp_path / "a"  # a test set may change
