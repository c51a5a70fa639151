"""Tests the check that a variant has an effect, the training of variants, and suites of runs."""

import csv
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from bad_inputs import Result, run
from broken_laws import BROKEN
from entente.ablation import effect
from entente.ablation import suite as suites
from entente.ablation.effect import check_effect
from entente.ablation.report import report
from entente.ablation.runs import Run, read_suite
from entente.checkpoint import sizes_of
from entente.cli import compose
from entente.commands import ablate as command
from entente.commands.settings import AblateSettings
from entente.data.module import TranslationData
from entente.errors import InputError
from entente.models.attention import MultiHeadAttention
from entente.models.build import build
from entente.settings import RunSettings
from entente.training.train import prepare, train
from publish import publish
from tiny import SMALL, run_settings, write_corpus

STEPS = 12
OTHER = ("optim.beta1=0.5", "trainer.max_steps=15", "overfit=true", "search.beam=3", "data.batch.max_tokens=400")
# The variants whose effect tests/models/test_variants.py does not show on the model's output, and one that needs padding.
QUICK = {"no_dropout", "no_label_smoothing", "no_warmup", "no_padding_mask"}
EFFECTS = [
    pytest.param(case, marks=() if case[1] in QUICK else pytest.mark.slow) for case in sorted(BROKEN) if case[1] != "baseline"
]
EFFECTS += [pytest.param(("transformer", "baseline", change)) for change in OTHER]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    steps = [f"trainer.max_steps={STEPS}", "trainer.validate_every=6", "trainer.log_every=1", "checkpoint.every=3"]
    other = ["optim.warmup=3", "search.length_factor=0.5", "views.attention=false", "views.diagnosis=0", "views.heads=0"]
    return [*write_corpus(tmp_path_factory.mktemp("tiny")), "output_dir=outputs", *steps, *other]


# The effect of a variant

Check = Callable[..., None]


@pytest.fixture(scope="module")
def data() -> Callable[[RunSettings], TranslationData]:
    cache: dict[str, TranslationData] = {}

    def read_once(settings: RunSettings) -> TranslationData:
        key = f"{settings.data} {settings.overfit}"
        if key not in cache:
            cache[key] = prepare(settings)[0]
        return cache[key]

    return read_once


@pytest.fixture
def check(base: list[str], data: Callable[[RunSettings], TranslationData], monkeypatch: pytest.MonkeyPatch) -> Check:
    """Returns a function that checks the effect of an ablation. `changes` are those of the variant alone.
    `form` changes its model after it is built."""
    # An override takes precedence over an ablation, so `shared` must not set what an ablation changes.
    shared = [override for override in base if not override.startswith("optim.")] + ["optim.decay_from=3"]
    sizes = {"transformer": ["model.d_model=32", "model.d_ff=48"], "birnn": ["model.d_embedding=24", "model.d_hidden=32"]}

    def compute(model: str, ablation: str, *changes: str, form: Callable[[nn.Module], object] | None = None) -> None:
        overrides = [*shared, f"model={model}", *sizes[model]]
        variant = run_settings([*overrides, f"ablation={ablation}", *changes])

        def prepare_once(settings: RunSettings) -> Any:
            corpus = data(settings)
            built = build(settings.model, sizes_of(corpus.vocabulary, settings.seed))
            if settings is variant and form:
                form(built)
            return corpus, SimpleNamespace(model=built)

        monkeypatch.setattr(effect, "prepare", prepare_once)
        check_effect(run_settings(overrides), variant)

    return compute


@pytest.mark.parametrize("settings", EFFECTS, ids="-".join)
def test_each_variant_and_each_setting_outside_the_model_is_an_effect(settings: tuple[str, ...], check: Check) -> None:
    check(*settings)


@pytest.mark.parametrize("change", ["optim.lr=3e-3", "trainer.log_every=7", "views.translations=3", "also_evaluate=[alone]"])
def test_a_setting_that_does_not_affect_learning_is_no_effect(change: str, check: Check) -> None:
    with pytest.raises(InputError, match="equal to the baseline in all settings"):
        check("transformer", "baseline", change)


def scale_queries(model: nn.Module) -> None:
    """Scales the queries before the dot product, which makes a model with `scale=none` equivalent to the baseline."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.query.register_forward_hook(lambda *call: call[-1] * (32 / 4) ** -0.5)


def add_unread(model: nn.Module) -> None:
    model.unread = nn.Linear(3, 5)


def drop_projection(model: nn.Module) -> None:
    model.get_submodule("decoder.0.ff.2").register_parameter("bias", None)


def break_output(model: nn.Module) -> None:
    model.get_submodule("output").register_forward_hook(lambda *call: call[-1] * math.nan)


@pytest.mark.parametrize(
    ("form", "change"),
    [(scale_queries, "model.scale=none"), (add_unread, "data.batch.eval_max_tokens=512"), (id, "model.mask_value=-1e9")],
)
def test_another_form_of_the_same_model_is_no_effect(form: Callable[[nn.Module], None], change: str, check: Check) -> None:
    with pytest.raises(InputError, match="equal to the baseline in evaluation output, training loss and gradient norm"):
        check("transformer", "baseline", change, form=form)


@pytest.mark.parametrize("form", [drop_projection, break_output])
def test_a_missing_parameter_and_logits_of_nan_are_effects(form: Callable[[nn.Module], None], check: Check) -> None:
    check("transformer", "baseline", "data.batch.eval_max_tokens=512", form=form)  # the parameter starts at zero


def test_a_variant_that_takes_nothing_away_is_refused(check: Check) -> None:
    with pytest.raises(InputError, match="ablation no_residual: equal to the baseline"):
        check("transformer", "no_residual", "model.residual=[self,cross,ff]")


# Training and evaluating variants


def trained(base: list[str], folder: Path, *overrides: str) -> Path:
    return train(run_settings([*base, f"output_dir={folder}", *overrides]))


def test_a_variant_that_depends_on_its_batch_is_evaluated_in_other_batches_too(base: list[str], tmp_path: Path) -> None:
    small = [*SMALL["transformer"], "data.batch.eval_max_tokens=90"]
    harmed = trained(base, tmp_path, *small, "ablation=no_padding_mask")
    metrics = json.loads((harmed / "metrics.json").read_text())
    assert list(metrics) == ["valid", "test", "test@alone", "test@mixed"]
    assert metrics["test@mixed"]["nll"] != pytest.approx(metrics["test@alone"]["nll"], rel=1e-6)
    unharmed = trained(base, tmp_path, *small, "also_evaluate=[alone,mixed]")
    scores = json.loads((unharmed / "metrics.json").read_text())
    for grouping in ("alone", "mixed"):
        assert scores[f"test@{grouping}"]["nll"] == pytest.approx(scores["test"]["nll"], rel=1e-6)


def test_a_model_without_attention_trains_and_shows_none(base: list[str], tmp_path: Path) -> None:
    maps = ["views.attention=true", f"trainer.validate_every={STEPS}"]
    for model, ablation, kinds, text in (
        ("birnn", "no_attention", 0, "no attention"),
        ("transformer", "no_cross_attention", 2, "encoder, decoder; choose one of these"),
    ):
        directory = trained(base, tmp_path, f"model={model}", *SMALL[model], f"ablation={ablation}", *maps)
        events = EventAccumulator(str(directory), size_guidance={"images": 0, "scalars": 0}).Reload()
        assert len({tag.split("/")[2] for tag in events.Tags()["images"]}) == kinds
        refused = run(f"attention checkpoint={directory} output={tmp_path / 'map.png'}", tmp_path)
        assert refused.code == 2 and f"this model has {text}" in refused.err


# Suites

Ablate = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Returns a folder with two more variants: `same` equals the baseline, and `huge_rate` has a huge learning rate."""
    folder = tmp_path / "own" / "ablation"
    folder.mkdir(parents=True)
    for name, changes in (("same", {"model": {"norm": "pre"}}), ("huge_rate", {"optim": {"lr": 100.0, "warmup": 0}})):
        (folder / f"{name}.yaml").write_text("# @package _global_\n" + yaml.safe_dump(changes))
    return tmp_path


def arguments(base: list[str], *overrides: str) -> list[str]:
    """Returns the arguments of a suite's command in `project`, which are the settings shared by all tests and `overrides`."""
    return ["--config-dir", "own", *base, *SMALL["transformer"], *overrides]


@pytest.fixture
def ablate(project: Path, base: list[str], monkeypatch: pytest.MonkeyPatch, without_charts: None) -> Ablate:
    """Returns a function that runs a suite and trains its runs one at a time, all in this process. `processes` maps the name of
    a run to an object that replaces the run's process."""

    def call(*overrides: str, processes: Mapping[str, object] | None = None) -> Result:
        def train_here(words: Sequence[str], stdout: IO[bytes], **_: object) -> object:
            for name, process in (processes or {}).items():
                if f"/{name}" in " ".join(words):
                    return process
            ended = run(shlex.join(words[words.index("train") :]), project)
            stdout.write((ended.out + ended.err).encode())
            return SimpleNamespace(wait=lambda: ended.code)

        with monkeypatch.context() as patched:
            patched.setattr(command, "report", lambda suite, folder, samples: report(suite, folder, 200))
            patched.setattr(suites, "subprocess", SimpleNamespace(Popen=train_here, DEVNULL=subprocess.DEVNULL))
            return run(shlex.join(["ablate", *arguments(base, *overrides)]), project)

    return call


def scores(suite: Path) -> list[dict[str, str]]:
    """Returns the rows of comparison.csv, without the tokens per second, since speeds differ each time."""
    with (suite / "comparison.csv").open(newline="") as table:
        return [{key: cell for key, cell in row.items() if "second" not in key} for row in csv.DictReader(table)]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 200  # seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


def test_a_run_that_fails_is_a_row_and_the_others_finish(project: Path, ablate: Ablate) -> None:
    folder = project / "outputs" / "rows"
    crash = {"no_residual-seed1": SimpleNamespace(wait=lambda: 1)}
    ended = ablate("suite=[baseline,same,huge_rate,no_residual]", "name=rows", processes=crash)
    assert ended.code == 0
    for name, text in (("same", "refused"), ("huge_rate", "diverged"), ("no_residual", "crashed")):
        assert f"{name}-seed1: {text}, see outputs/rows/{name}-seed1.log" in ended.out
    verdicts = {row["variant"]: row["verdict"] for row in scores(folder)}
    assert list(verdicts) == ["baseline", "same", "huge_rate", "no_residual"]
    assert [verdicts[name] for name in ("same", "huge_rate", "no_residual")] == ["not finished", "diverged", "not finished"]
    assert "equal to the baseline" in (folder / "same-seed1.log").read_text() and not (folder / "same-seed1").exists()
    assert not any(folder.glob("events.out.*"))  # otherwise TensorBoard would show the suite itself as a run called "."

    # When the suite runs again with fewer variants, it trains only the runs that may end differently.
    assert "the learning rate does not decay in 12 steps" in (folder / "baseline-seed1.log").read_text()
    finished = (folder / "baseline-seed1" / "metrics.json").stat().st_mtime_ns
    (folder / "huge_rate-seed1" / "train.log").unlink()
    assert ablate("suite=[baseline,huge_rate,no_residual]", "name=rows").code == 0
    verdicts = {row["variant"]: row["verdict"] for row in scores(folder)}
    assert verdicts["no_residual"] not in ("not finished", "diverged")
    assert verdicts["huge_rate"] == "diverged" and not (folder / "huge_rate-seed1" / "train.log").exists()
    assert (folder / "baseline-seed1" / "metrics.json").stat().st_mtime_ns == finished


def plan_of(*overrides: str) -> suites.Plan:
    composition = compose("ablate", overrides)
    settings = AblateSettings.model_validate({key: composition.values[key] for key in AblateSettings.model_fields})
    return command.plan(settings, composition, threads=1)


def plan(*overrides: str) -> dict[str, RunSettings]:
    """Returns the settings of the runs of a suite, by name."""
    return {job.run.directory.name: RunSettings.model_validate(job.run.config) for job in plan_of(*overrides).jobs}


def test_of_equal_runs_a_finished_one_belongs_to_the_suite(tmp_path: Path) -> None:
    """`entente train` starts again, under another name, if only trainer.log_every differs, which the comparison ignores."""
    made = plan_of("suite=[baseline]", "name=mine", f"output_dir={tmp_path}")
    for name, changes in (("baseline-seed1", {"log_every": 7}), ("baseline-seed1-2", {})):
        (tmp_path / "mine" / name).mkdir(parents=True)
        config = made.jobs[0].run.config
        content = {**config, "trainer": {**config["trainer"], **changes}}
        (tmp_path / "mine" / name / "config.yaml").write_text(yaml.safe_dump(content))
    assert made.read().runs[0].directory.name == "baseline-seed1"
    (tmp_path / "mine" / "baseline-seed1-2" / "metrics.json").write_text('{"test": {}}')
    assert made.read().runs[0].directory.name == "baseline-seed1-2"


def test_the_time_left_of_a_suite_is_that_of_runs_that_trained() -> None:
    jobs = [suites.Job(Run(Path(name), {}), []) for name in "abcdef"]
    assert suites.progress(jobs, 90) == "0 of 6 runs ended  1:30"
    jobs[0].code, jobs[1].code = 2, 0  # refused at once, and finished
    assert suites.progress(jobs, 90) == "2 of 6 runs ended  1:30, 6:00 left"


def test_a_run_that_diverged_with_other_settings_does_not_belong_to_the_suite(tmp_path: Path) -> None:
    """With a smaller learning rate, as the message advises, the run starts again, under another name."""
    made = plan_of("suite=[baseline]", "name=mine", f"output_dir={tmp_path}")
    folder, config = tmp_path / "mine" / "baseline-seed1", made.jobs[0].run.config
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, "optim": {**config["optim"], "lr": 100.0}}))
    folder.with_name("baseline-seed1.log").write_text("diverged: the loss is nan\n")
    [run] = made.read().runs
    assert run.directory.name == "baseline-seed1-2" and not run.diverged


def test_an_ablation_takes_precedence_over_the_settings_of_its_suite(project: Path, base: list[str]) -> None:
    """A suite lets its ablations override its settings, but a single run is refused if its settings contradict its ablation."""
    runs = plan("suite=[one_head,baseline]", "model.n_heads=2", "seeds=[1,1,3]", "name=two, six")  # the baseline comes first
    assert list(runs) == ["baseline-seed1", "one_head-seed1", "baseline-seed3", "one_head-seed3"]
    more = plan("suite=[baseline,one_head]", "seeds=[3]", "baseline_seeds=[2,3]")
    assert list(more) == ["baseline-seed3", "one_head-seed3", "baseline-seed2"]
    heads = {name: (run.model.model_dump()["n_heads"], run.seed, run.name) for name, run in runs.items()}
    assert heads["one_head-seed3"] == (1, 3, "two, six/one_head-seed3") and heads["baseline-seed1"][0] == 2
    done = run(shlex.join(["train", *base, "ablation=one_head", "model.n_heads=2"]), project)
    assert done.code == 2 and "model.n_heads=2: ablation=one_head sets it to 1; leave out one of the two" in done.err


@pytest.mark.parametrize(("trainer", "steps"), [("debug", 2), ("default", 1000)])
def test_debug_wins_over_the_overrides_of_a_suite(trainer: str, steps: int) -> None:
    runs = plan(f"trainer={trainer}")
    assert {run.trainer.max_steps for run in runs.values()} == {steps} and len(runs) == 7
    assert {run.views.attention_every for run in runs.values()} == {1000}


def test_a_group_may_be_left_out_of_a_suite() -> None:
    assert [*plan("~experiment", "~recipe", "suite=[baseline]", "trainer.max_steps=7")] == ["baseline-seed1"]


def test_an_interrupted_suite_interrupts_the_runs_under_way(project: Path, ablate: Ablate) -> None:
    started, stopped = threading.Barrier(2, timeout=100), list[bool]()

    def wait() -> int:
        if started.wait() == 0:  # in one of the two
            os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: len(stopped) == 2)
        return 75

    process = SimpleNamespace(wait=wait, terminate=lambda: stopped.append(True))
    runs = dict.fromkeys(("baseline-seed1", "unscaled-seed1"), process)
    ended = ablate("suite=[baseline,unscaled,no_residual]", "jobs=2", "name=stopped", processes=runs)
    assert ended.code == 75 and "stopped with 3 of 3 runs left; resume with the same command" in ended.err
    assert not (project / "outputs" / "stopped" / "no_residual-seed1.log").exists()


@pytest.mark.slow
def test_a_suite_goes_on_from_rows_and_interrupted_runs_and_ends_with_the_same_table(
    project: Path, base: list[str], ablate: Ablate
) -> None:
    """One run is only a published row, and Ctrl-C stops the suite while the process of the other is under way."""
    settings = ["suite=[baseline,no_residual_cross]", "trainer.max_steps=20", "trainer.validate_every=20"]
    assert ablate(*settings, "name=all").code == 0
    uninterrupted, half, rest = (project / "outputs" / name for name in ("all", "half", "rest"))
    shutil.copytree(uninterrupted / "baseline-seed1", half / "baseline-seed1")
    publish(read_suite(half), project / "rows")
    rest.mkdir()
    shutil.copy(project / "rows" / "runs.jsonl.xz", rest)
    words = [sys.executable, "-P", "-m", "entente", "ablate", *arguments(base, *settings, "name=rest")]
    process = subprocess.Popen(words, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(lambda: any(rest.glob("*/checkpoints/step-*.ckpt")))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 75 and "stopped with 1 of 2 runs left; resume with the same command" in out, out
    ended = ablate(*settings, "name=rest")
    assert ended.code == 0 and "2 runs, of which 1 have already ended" in ended.out
    assert [path.name for path in rest.glob("*/")] == ["no_residual_cross-seed1"]
    assert len(scores(rest)) == 2 and scores(rest) == scores(uninterrupted)


def test_the_first_variant_that_cannot_be_trained_is_named_before_anything_is_written(project: Path, ablate: Ablate) -> None:
    ended = ablate("suite=[baseline,no_attention]")
    assert ended.code == 2 and ended.err.startswith("error: ablation=no_attention: model.score=none"), ended.err
    ended = ablate("suite=[baseline,no_residual]", "optim.lr=abc")
    assert ended.code == 2 and ended.err == "error: optim.lr=abc: give a number greater than 0\n"  # the baseline has it, too
    taken = project / "own" / "ablation" / "no_residual.yaml"
    taken.write_text("# @package _global_\nmodel: {n_layers: 1}\n")
    ended = ablate("suite=[baseline,no_residual]")
    assert ended.code == 2 and "no_residual.yaml: there is already an ablation of this name" in ended.err
    taken.unlink()
    assert not (project / "outputs").exists()
    (project / "outputs").mkdir()
    (project / "outputs" / "file").write_text("")
    ended = ablate("suite=[baseline]", "name=file")
    assert ended.code == 2 and "outputs/file: File exists" in ended.err
