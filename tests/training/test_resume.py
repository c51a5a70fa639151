"""Tests that a run stopped at any point and resumed ends with the same bits as an uninterrupted run."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from sacrebleu.metrics.bleu import BLEUScore

from entente.ablation.runs import Run as History
from entente.ablation.runs import Status
from entente.checkpoint import read
from entente.errors import InputError, Interrupted
from entente.training.random_states import random_state, restore_random_state
from entente.training.run_directory import CheckpointSettings, find_resume_point, steps
from entente.training.train import train
from entente.training.translator import Translator
from interruptions import command, compare_stopped_runs, differences, points
from tiny import SMALL, configuration, write_corpus

STEPS = 17
VIEWS_OFF = ["views.attention=false", "views.heads=0", "views.diagnosis=0"]


Run = Callable[..., Path]
AtBatch = Callable[[int, Callable[[], None]], None]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the overrides of a run of 17 steps, with a validation every 5 steps and a checkpoint every 3 steps."""
    return [
        *write_corpus(tmp_path_factory.mktemp("corpus")),
        "trainer.accelerator=cpu",
        f"trainer.max_steps={STEPS}",
        "trainer.validate_every=5",
        "trainer.log_every=1",
        "optim.warmup=2",
        "checkpoint.every=3",
        "search.length_factor=0.5",
        *VIEWS_OFF,
    ]


@cache
def composed(*overrides: str) -> dict[str, Any]:
    return configuration("train", overrides)


def train_run(settings: list[str], folder: Path, model: str, name: str, *more: str, resume: str | None = None) -> Path:
    config = composed(*settings, f"model={model}", *SMALL[model], *more)
    return train({**deepcopy(config), "output_dir": str(folder), "name": name, "resume": resume})


@pytest.fixture
def run(settings: list[str], tmp_path: Path) -> Run:
    """Returns a function that trains a run in `tmp_path`, given its model, name and further overrides."""
    return partial(train_run, settings, tmp_path)


@pytest.fixture(scope="module")
def uninterrupted_run(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns a function that trains a run without interruption, given its model and overrides. Runs are cached, so a second
    call with the same arguments does not train again."""
    folder = tmp_path_factory.mktemp("whole")
    return cache(lambda model, *more: train_run(settings, folder, model, "whole", *more))


@pytest.fixture
def own_corpus(tmp_path: Path) -> str:
    """Writes a copy of the corpus, which the test may change, to `tmp_path`. Returns the override that selects the copy."""
    write_corpus(tmp_path)
    return f"data.root={tmp_path}"


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


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def send(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


class Killed(BaseException):
    """Simulates SIGKILL: nothing in the program catches this exception."""


def die() -> None:
    raise Killed


@pytest.fixture
def interrupt(run: Run, at_batch: AtBatch) -> Callable[..., None]:
    """Returns a function that, given n and the arguments of `run`, trains a run and interrupts it with SIGTERM in batch n."""

    def interrupt_run(n: int, *arguments: str, **named: str) -> None:
        at_batch(n, send(signal.SIGTERM))
        with pytest.raises(Interrupted):
            run(*arguments, **named)
        at_batch(0, die)

    return interrupt_run


@pytest.mark.parametrize(
    ("model", "accumulate"),
    [
        ("transformer", 1),
        ("birnn", 2),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("transformer", 2), ("birnn", 1))),
    ],
)
def test_a_run_stopped_by_signals_ends_with_the_same_bits(
    run: Run, uninterrupted_run: Run, model: str, accumulate: int, at_batch: AtBatch, capsys: Capture, tmp_path: Path
) -> None:
    more = [f"trainer.accumulate={accumulate}", f"data.batch.bpe_dropout={0.1 * (accumulate - 1)}", f"data.weight={accumulate}"]
    more += ["optim.optimizer=muon", "optim.schedule=linear", "data.batch.both_directions=1"] * (accumulate - 1)
    whole = uninterrupted_run(model, *more)
    # Runs stop at a validation, one step later, between checkpoints, after the last regular checkpoint, and at the last step.
    stops = {5: signal.SIGTERM, 6: signal.SIGINT, 11: signal.SIGUSR2, 16: signal.SIGINT, STEPS: signal.SIGINT}
    for step, number in [*stops.items()][::accumulate]:
        at_batch(step * accumulate - accumulate + 1, send(number))
        name = f"stopped{step}"
        with pytest.raises(Interrupted, match=f"{number.name} after step {step}, which is saved"):
            run(model, name, *more)
        assert find_resume_point(tmp_path / name, CheckpointSettings()).step == step
        at_batch(0, die)
        stopped = run(model, name, *more, resume="auto")
        assert stopped.name == name
        assert differences(whole, stopped) == []
        said = f"resuming at step {step} of {STEPS}" if step < STEPS else f"complete after {STEPS} steps"
        assert said in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(SMALL))
def test_a_run_that_died_loses_no_more_than_since_its_last_checkpoint(
    run: Run, uninterrupted_run: Run, model: str, at_batch: AtBatch, tmp_path: Path
) -> None:
    views = ("views.heads=32", "views.diagnosis=2")
    whole = uninterrupted_run(model, *views)
    for batch, step in ((2, 0), (4, 3), (12, 9), (17, 15)):
        at_batch(batch, die)
        with pytest.raises(Killed):
            run(model, f"died{batch}", *views)
        assert find_resume_point(tmp_path / f"died{batch}", CheckpointSettings()).step == step
        at_batch(0, die)
        assert differences(whole, run(model, f"died{batch}", *views, resume="auto")) == []


def test_tensorboard_shows_every_point_once(run: Run, at_batch: AtBatch, tmp_path: Path) -> None:
    views = ["views.attention=true", "views.attention_every=0", "views.diagnosis=1"]
    at_batch(12, die)
    with pytest.raises(Killed):
        run("birnn", "died", *views)
    assert [step for step, _ in points(tmp_path / "died")["train/loss"]][-2:] == [10, 11]
    at_batch(0, die)
    shown = points(run("birnn", "died", *views, resume="auto"))
    assert [step for step, _ in shown["train/loss"]] == list(range(1, STEPS + 1))
    assert {tag: [step for step, _ in shown[tag]] for tag in shown if "valid/" in tag} == {
        tag: [5, 10, 15, STEPS] for tag in ("valid/bleu", "valid/chrf", "valid/nll", "translations/valid/text_summary")
    }
    images = [tag for tag in shown if tag.startswith("weights/valid 1/")]
    assert images and all([step for step, _ in shown[tag]] == [5, 10, 15, STEPS] for tag in images)
    diagnoses = {
        tag: curve for tag, curve in History("", 1, tmp_path / "died", Status()).history.items() if tag.startswith("why/")
    }
    assert diagnoses and all([step for step, _ in curve] == list(range(1, STEPS + 1)) for curve in diagnoses.values())


def test_the_proof_of_an_ablation_does_not_change_training(settings: list[str], uninterrupted_run: Run, tmp_path: Path) -> None:
    """A proof that draws random numbers does not change training. If it did, a run stopped before its first checkpoint would
    train differently after being resumed, since resuming does not repeat the proof."""

    def prove(*_: object) -> dict[str, Any]:
        return {"drawn": [torch.rand(7).sum().item(), np.random.rand(), random.random()]}

    config = composed(*settings, "model=birnn", *SMALL["birnn"])
    proved = train({**deepcopy(config), "output_dir": str(tmp_path), "name": "proved"}, prove)
    (proved / "proof.json").unlink()
    assert differences(uninterrupted_run("birnn"), proved) == []


def test_patience_comes_back(run: Run, uninterrupted_run: Run, interrupt: Run, tmp_path: Path) -> None:
    more = ["optim.lr=1e-9", "trainer.patience=2", "trainer.max_steps=101"]  # BLEU never improves, so training stops at step 15
    whole = uninterrupted_run("birnn", *more)
    assert find_resume_point(whole, CheckpointSettings()).step == 15
    interrupt(12, "birnn", "stopped", *more)
    assert differences(whole, run("birnn", "stopped", *more, resume="auto")) == []
    (tmp_path / "stopped" / "metrics.json").unlink()  # as if the run had been killed between its early stop and its evaluation
    assert differences(whole, run("birnn", "stopped", *more, resume="auto")) == []


def test_an_interrupt_before_the_first_step_says_so(run: Run, uninterrupted_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, original = uninterrupted_run("birnn"), Translator.on_train_start
    with monkeypatch.context() as patched:
        patched.setattr(Translator, "on_train_start", lambda self: (original(self), send(signal.SIGINT)()))
        with pytest.raises(Interrupted, match="^stopped by SIGINT before the first step; resume it with: "):
            run("birnn", "stopped")
    assert differences(whole, run("birnn", "stopped", resume="auto")) == []


def test_the_speed_is_that_of_the_whole_training(run: Run, uninterrupted_run: Run, interrupt: Run) -> None:
    """The reported speed covers all steps, including unlogged steps and steps before an interrupt. Resuming a finished run does
    not change it."""
    rarely = "trainer.log_every=100"
    whole = uninterrupted_run("birnn", rarely)
    interrupt(9, "birnn", "stopped", rarely)
    stopped = run("birnn", "stopped", rarely, resume="auto")
    trained = [read(path / "checkpoints" / f"step-{STEPS}.ckpt")["trained"] for path in (whole, stopped)]
    assert trained[0]["tokens"] == trained[1]["tokens"] > 100 * STEPS
    (stopped / "metrics.json").unlink()
    run("birnn", "stopped", rarely, resume="auto")
    speed = json.loads((stopped / "training.json").read_text())["tokens_per_second"]
    assert speed == pytest.approx(trained[1]["tokens"] / trained[1]["seconds"], abs=0.1)


def test_resume_auto_takes_the_newest_unfinished_run(run: Run, interrupt: Run, tmp_path: Path, capsys: Capture) -> None:
    def stop(*more: str) -> None:
        interrupt(4, "birnn", "a", *more)

    assert run("birnn", "a", resume="auto") == tmp_path / "a"  # there is no run yet, so a new one begins
    assert "no run" in capsys.readouterr().out
    assert run("birnn", "a", resume="auto") == tmp_path / "a"
    assert "this run has finished; nothing is left to do" in capsys.readouterr().out
    stop()
    stop()
    assert sorted(path.name for path in tmp_path.glob("a*")) == ["a", "a-2", "a-3"]
    assert run("birnn", "a", "seed=2", resume="auto") == tmp_path / "a-4"  # a new run, since the configuration differs
    assert run("birnn", "a", resume="auto") == tmp_path / "a-3"
    assert run("birnn", "a", resume="auto") == tmp_path / "a-2"
    assert run("birnn", "a", resume="auto") in {tmp_path / "a-3", tmp_path / "a"}  # all runs have finished
    stop()
    with FileLock(tmp_path / "a-5" / ".lock"), pytest.raises(InputError, match="another process"):
        run("birnn", "a", resume="auto")
    assert run("birnn", "a", "trainer.threads=2", resume="auto") == tmp_path / "a-5"  # perhaps on another machine


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    run: Run, uninterrupted_run: Run, interrupt: Run, tmp_path: Path, capsys: Capture
) -> None:
    whole = uninterrupted_run("birnn")
    interrupt(11, "birnn", "stopped")
    saved = [*steps(tmp_path / "stopped" / "checkpoints").values()]
    assert [path.name for path in saved] == ["step-6.ckpt", "step-9.ckpt", "step-11.ckpt"]
    damage(saved[-1])
    resumed = run("birnn", "stopped", resume="auto")
    out = capsys.readouterr().out
    assert "step-11.ckpt: damaged" in out and "resuming at step 9" in out
    assert differences(whole, resumed) == []


def test_the_mean_of_checkpoints_becomes_the_model_if_it_is_better(run: Run, tmp_path: Path) -> None:
    more = ["checkpoint.average=3", "trainer.max_steps=90", "trainer.validate_every=30", "checkpoint.every=5", "optim.lr=2e-2"]
    averaged = run("birnn", "averaged", *more)
    paths = [*steps(averaged / "checkpoints").values()]
    assert [path.name for path in paths] == ["step-80.ckpt", "step-85.ckpt", "step-90.ckpt"]
    states = [read(path)["state_dict"] for path in paths]
    mean = {name: sum(state[name] for state in states) / 3 for name in states[0]}
    best = read(averaged / "checkpoints" / "best.ckpt")["state_dict"]
    report = json.loads((averaged / "training.json").read_text())["mean_of_checkpoints"]
    assert report["of"] == ["step-80", "step-85", "step-90"]
    assert report["chosen"] == (report["bleu"] >= report["best_single_bleu"])
    assert report["chosen"] == all(torch.allclose(best[name], mean[name], atol=1e-6) for name in mean)
    bleu = json.loads((averaged / "metrics.json").read_text())["valid"]["bleu"]
    assert bleu == pytest.approx(max(report["bleu"], report["best_single_bleu"]), rel=1e-6)
    (averaged / "metrics.json").unlink()
    before = read(averaged / "checkpoints" / "best.ckpt")["state_dict"]
    again = read(run("birnn", "averaged", *more, resume="auto") / "checkpoints" / "best.ckpt")["state_dict"]
    assert all(torch.equal(before[name], again[name]) for name in before)


AVERAGED = ["checkpoint.average=3", "checkpoint.every=4", "trainer.max_steps=30"]
MEAN = CheckpointSettings(every=4, average=3)


@pytest.mark.parametrize("model", sorted(SMALL))
def test_the_mean_does_not_depend_on_where_a_run_was_stopped(
    run: Run, uninterrupted_run: Run, model: str, interrupt: Run, tmp_path: Path
) -> None:
    """A run stopped at steps 25 and 26 averages checkpoints 24, 28 and 30, like a run that was never stopped."""
    whole = uninterrupted_run(model, *AVERAGED)
    assert [path.name for path in steps(whole / "checkpoints").values()] == ["step-24.ckpt", "step-28.ckpt", "step-30.ckpt"]
    for batch, step in ((25, 25), (1, 26)):
        interrupt(batch, model, "stopped", *AVERAGED, resume="auto")
        assert find_resume_point(tmp_path / "stopped", CheckpointSettings()).step == step
    assert differences(whole, run(model, "stopped", *AVERAGED, resume="auto")) == []


def test_steps_whose_checkpoints_are_lost_are_trained_again(
    run: Run, uninterrupted_run: Run, at_batch: AtBatch, tmp_path: Path, capsys: Capture
) -> None:
    """A run that lost a checkpoint ends with the same bits and the same TensorBoard points as a run that lost none, even if
    the process dies in a repeated step."""
    whole = uninterrupted_run("birnn", *AVERAGED)
    for name, spoil, said in (
        ("step-24.ckpt", damage, "step-24.ckpt: damaged.*: going back.* starting again at step 0"),
        ("step-28.ckpt", Path.unlink, "step-28.ckpt: .*: going back.* resuming at step 24"),
        ("step-30.ckpt", damage, "step-30.ckpt: damaged.*: going back.* resuming at step 28"),
        ("best.ckpt", damage, "best.ckpt: damaged.*: going back.* (resuming|starting again) at step"),
    ):
        spoilt = tmp_path / f"spoilt-{name}"
        shutil.copytree(whole, spoilt)
        (spoilt / "metrics.json").unlink()
        spoil(spoilt / "checkpoints" / name)
        capsys.readouterr()
        at_batch(2, die)
        with pytest.raises(Killed):
            run("birnn", "whole", *AVERAGED, resume=str(spoilt))
        assert re.search(said, capsys.readouterr().out, re.DOTALL)
        at_batch(0, die)
        assert differences(whole, run("birnn", "whole", *AVERAGED, resume=str(spoilt))) == []


def test_only_the_checkpoints_of_the_mean_are_required(run: Run, interrupt: Run, tmp_path: Path) -> None:
    """A run of 30 steps that was stopped at step 26 needs checkpoint 24 for its mean. If early stopping may end the run at step
    27, checkpoint 20 is needed too."""
    interrupt(26, "birnn", "a", *AVERAGED)
    saved = [*steps(tmp_path / "a" / "checkpoints").values()]
    assert [path.stem for path in saved] == ["step-16", "step-20", "step-24", "step-26"]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    damage(tmp_path / "a" / "checkpoints" / "step-20.ckpt")
    assert find_resume_point(tmp_path / "a", MEAN, last=30).step == 26
    assert find_resume_point(tmp_path / "a", MEAN).step == 0
    damage(tmp_path / "b" / "checkpoints" / "step-24.ckpt")
    assert find_resume_point(tmp_path / "b", MEAN, last=30).step == find_resume_point(tmp_path / "b", MEAN).step == 20


@pytest.mark.slow
def test_the_end_is_always_validated(run: Run, uninterrupted_run: Run, interrupt: Run) -> None:
    """Validation runs exactly once after the last step, whatever validate_every and accumulate are, and even if the run is
    stopped in the last step."""
    for name, validate_every, expected, more in (
        ("never", 1000, [STEPS], []),
        ("once", STEPS, [STEPS], []),
        ("between", 7, [7, 14, STEPS], ["trainer.accumulate=2", "trainer.patience=10", "views.attention=true"]),
    ):
        settings = [f"trainer.validate_every={validate_every}", "views.heads=32", "views.attention_every=100", *more]
        whole = uninterrupted_run("birnn", *settings)
        shown = points(whole)
        images = [tag for tag in shown if tag.startswith("weights/") and tag.endswith("/alignment")]
        for tag in ("valid/bleu", "translations/valid/text_summary", "weights/valid entropy alignment"):
            assert [step for step, _ in shown[tag]] == expected
        assert bool(images) == bool(more) and all([step for step, _ in shown[tag]] == [7, STEPS] for tag in images)
        scores = [value for _, value in shown["valid/bleu"]]
        best = json.loads((whole / "metrics.json").read_text())["valid"]["bleu"]
        assert best == pytest.approx(max(scores)) and read(whole / "checkpoints" / "best.ckpt")["global_step"] in expected
        interrupt(STEPS * (2 if more else 1), "birnn", f"{name}-stopped", *settings)
        assert differences(whole, run("birnn", f"{name}-stopped", *settings, resume="auto")) == []


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_run_resumes_only_with_the_text_it_began_with(
    run: Run, uninterrupted_run: Run, own_corpus: str, split: str, interrupt: Run, tmp_path: Path
) -> None:
    whole = uninterrupted_run("birnn")
    interrupt(4, "birnn", "a", own_corpus)
    text = (tmp_path / f"{split}.fr").read_text()
    (tmp_path / f"{split}.fr").write_text(text.replace("chat", "matou"))
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.suffix in (".ckpt", ".yaml")}
    for resume in ("auto", str(tmp_path / "a")):
        with pytest.raises(InputError, match=r"step-4\.ckpt: .*text has changed") as refusal:
            run("birnn", "a", own_corpus, resume=resume)
        assert "\n" not in str(refusal.value)
    assert {path: path.read_bytes() for path in before} == before and not (tmp_path / "a-2").exists()
    (tmp_path / f"{split}.fr").write_text(text)
    assert differences(whole, run("birnn", "a", own_corpus, resume="auto")) == []


def test_a_changed_test_set_changes_only_its_own_score(
    run: Run, uninterrupted_run: Run, own_corpus: str, interrupt: Run, tmp_path: Path
) -> None:
    whole = uninterrupted_run("birnn")
    interrupt(4, "birnn", "a", own_corpus)
    (tmp_path / "test.en").write_text((tmp_path / "test.en").read_text().replace("dog", "hound"))
    assert {line.split("/")[0] for line in differences(whole, run("birnn", "a", own_corpus, resume="auto"))} <= {
        "metrics.json",
        "translations",
        "scores",
        "when finished",
    }


def test_a_mean_as_good_as_the_best_is_the_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean of checkpoints that scores the same as the best one is chosen, whether float32 rounds the score up or down."""
    for score in (12.3, 12.7):
        monkeypatch.setattr(BLEUScore, "score", property(lambda self, score=score: score, lambda self, _: None), raising=False)
        averaged = run("birnn", "averaged", "checkpoint.average=2")
        report = json.loads((averaged / "training.json").read_text())["mean_of_checkpoints"]
        assert (report["bleu"], report["best_single_bleu"], report["chosen"]) == (score, score, True)


def test_a_clock_set_back_changes_nothing_that_tensorboard_shows(
    run: Run,
    uninterrupted_run: Run,
    own_corpus: str,
    at_batch: AtBatch,
    interrupt: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """TensorBoard shows every point even if the clock is set back during a run, before each of two resumes, and before a
    repeated evaluation."""
    whole, now = uninterrupted_run("birnn"), time.time

    def set_back(days: int) -> None:
        monkeypatch.setattr(time, "time", lambda: now() - days * 86_400)

    at_batch(15, lambda: set_back(1))
    assert points(run("birnn", "within", own_corpus)) == points(whole)
    for days in (2, 3):
        interrupt(4, "birnn", "stopped", own_corpus, resume="auto")
        set_back(days)
    assert differences(whole, run("birnn", "stopped", own_corpus, resume="auto")) == []
    set_back(4)
    (tmp_path / "stopped" / "metrics.json").unlink()
    (tmp_path / "test.en").write_text((tmp_path / "test.en").read_text().replace("The", "A"))
    metrics = json.loads((run("birnn", "stopped", own_corpus, resume="auto") / "metrics.json").read_text())
    shown = points(tmp_path / "stopped")
    assert shown["when finished/test bleu"] == [(STEPS + 1, pytest.approx(metrics["test"]["bleu"]))]
    [(step, [scores])] = shown["scores/when finished/text_summary"]
    assert step == STEPS + 1 and f"| {metrics['test']['ter']:.2f} |" in scores.decode()
    assert shown["train/loss"] == points(whole)["train/loss"]


def test_random_states_are_restored() -> None:
    random.seed(5), np.random.seed(7), torch.manual_seed(11)
    random.gauss(0, 1), np.random.standard_normal()  # both cache a second number for the next call
    state = random_state()

    def draw() -> list[float]:
        numbers = [random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.random(), torch.rand(1).item()]
        return [float(number) for number in numbers]

    expected = [draw() for _ in range(3)]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    restore_random_state(state)
    assert [draw() for _ in range(3)] == expected


def test_a_random_state_that_this_machine_cannot_restore_is_named(caplog: pytest.LogCaptureFixture) -> None:
    state = random_state()
    assert not (torch.cuda.is_available() or torch.backends.mps.is_available() or state["cuda"] or state["mps"])
    restore_random_state({**state, "cuda": [state["torch"]]})
    restore_random_state(state)
    assert caplog.messages == ["the random state of cuda cannot be restored, so dropout will draw different random numbers"]


@pytest.mark.slow
def test_a_second_interrupt_quits_at_once(tmp_path: Path) -> None:
    slow = ["model.d_model=1024", "model.d_ff=4096", "data.batch.max_tokens=3000"]  # each step takes seconds
    overrides = [*write_corpus(tmp_path), f"output_dir={tmp_path}", "name=a", "trainer.accelerator=cpu", *slow]
    with subprocess.Popen(command(overrides), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr
        while not list(tmp_path.glob("a/events*")):
            time.sleep(0.1)
        while process.poll() is None:  # the first interrupt stops training after the step; the second quits at once
            time.sleep(1)
            process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
    assert (process.returncode, said.count("again to quit"), "Traceback" in said) == (128 + signal.SIGINT, 1, False)
    assert not list(tmp_path.glob("a/checkpoints/step-*"))


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(SMALL))
def test_real_commands_stopped_at_random_moments(model: str, tmp_path: Path) -> None:
    """Resumed runs with accumulation and averaging equal uninterrupted ones. `make soak` stops 30 runs of each model."""
    numbers = [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]
    lines = list(compare_stopped_runs(model, tmp_path, numbers, random.Random(os.urandom(8))))
    assert all(line.startswith("equal") for line in lines), "\n".join(lines)
