"""Tests the proof that a variant differs from the baseline, and tests suites of runs."""

import csv
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
import torch
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from bad_inputs import Result, run
from entente import checkpoint
from entente.ablation import suite as suites
from entente.ablation.proof import proof
from entente.ablation.runs import Run, Status
from entente.ablation.runs import read as read_record
from entente.ablation.variants import without_debug_settings
from entente.checkpoint import read
from entente.commands.attention import Attention, picture_attention
from entente.commands.evaluate import Evaluate, evaluate_checkpoint
from entente.config.command_line import run as run_command
from entente.data.module import TranslationData
from entente.errors import InputError
from entente.models.attention import MultiHeadAttention
from entente.training import settings as run_settings
from entente.training.settings import RunSettings, add_defaults
from entente.training.train import prepare_run, train
from tiny import SMALL, configuration, write_corpus

ROOT = Path(__file__).parents[2]
VARIANTS = sorted(path.stem for path in (ROOT / "configs" / "ablation").glob("*.yaml") if path.stem != "baseline")
BIRNN_ONLY = {"no_attention", "dot_score", "one_direction", "lstm", "readout_residual", "readout_context"}
BOTH_MODELS = {"bilinear_score", "no_padding_mask", "softmax_batch", "untied", "no_label_smoothing", "no_dropout", "no_warmup"}
STEPS = 12


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("tiny")
    return [
        *write_corpus(folder),
        "output_dir=outputs",
        "trainer.accelerator=cpu",
        f"trainer.max_steps={STEPS}",
        "trainer.validate_every=6",
        "trainer.log_every=1",
        "optim.warmup=3",
        "checkpoint.every=2",
        "views.attention=false",
        "views.diagnosis=4",
        "search.length_factor=0.5",
    ]


@cache
def composed(*overrides: str) -> dict[str, Any]:
    return add_defaults(configuration("train", overrides))


@pytest.mark.parametrize(("trainer", "kept"), [("debug", ["views.attention_every=1000"]), ("default", None)])
def test_debug_wins_over_the_overrides_of_a_suite(
    trainer: str, kept: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[list[str], list[str]]] = []

    def act(config: dict[str, Any]) -> None:
        given = config["suites"]["quick"]["overrides"]
        found.append((given, without_debug_settings(given)))

    monkeypatch.setattr(sys, "argv", ["ablate.py", f"trainer={trainer}"])
    run_command(act, ROOT / "configs", "ablate")
    [(given, left)] = found
    assert left == (given if kept is None else kept)


# Proof of effect


@pytest.fixture(scope="module")
def prove(base: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Returns a function that proves an ablation's effect. `more` overrides only the variant, and `both` also the baseline."""
    # An override takes precedence over an ablation, so `shared` must not set what an ablation changes.
    shared = [one for one in base if not one.startswith("optim.")] + [f"output_dir={tmp_path_factory.mktemp('cache')}"]
    sizes = {"transformer": ["model.d_model=32", "model.d_ff=48"], "birnn": ["model.d_embedding=24", "model.d_hidden=32"]}
    data: dict[str, TranslationData] = {}

    def compute(model: str, ablation: str, *more: str, both: Sequence[str] = ()) -> dict[str, Any]:
        own = [*shared, f"model={model}", *sizes[model], *both]
        baseline, variant = composed(*own), composed(*own, f"ablation={ablation}", *more)
        read = str((variant["data"], variant["overfit"]))
        if read not in data:
            data[read] = prepare_run(RunSettings.of({**variant, "model": baseline["model"]}))[0]
        return proof(baseline, variant, data[read])

    return compute


CASES = [("transformer", v) for v in VARIANTS if v not in BIRNN_ONLY] + [("birnn", v) for v in sorted(BIRNN_ONLY | BOTH_MODELS)]


@pytest.mark.parametrize(("model", "ablation"), CASES, ids=["-".join(case) for case in CASES])
def test_each_variant_differs_from_the_baseline(model: str, ablation: str, prove: Callable[..., dict[str, Any]]) -> None:
    shown = prove(model, ablation)
    assert shown["variant"] == ablation
    assert set(shown["differs"]) - {"parameters", "modules"} and not set(shown["differs"]) & set(shown["equal"])
    assert set(shown) == {"variant", "differs", "equal", *shown["differs"], *shown["equal"]}
    if ablation in ("no_warmup", "no_label_smoothing", "no_dropout"):
        assert "evaluation output" in shown["equal"]
    else:
        assert "evaluation output" in shown["differs"]


def test_what_differs_is_said(prove: Callable[..., dict[str, Any]]) -> None:
    assert prove("transformer", "no_warmup")["differs"] == ["learning rates"]
    assert set(prove("transformer", "no_label_smoothing")["differs"]) == {"training loss", "gradients"}
    untied = prove("transformer", "untied")
    assert "parameters" in untied["differs"] and "with src_embedding.weight and 1 more" in untied["parameters"]
    assert "without decoder.0.before.cross.weight and" in prove("transformer", "no_cross_attention")["parameters"]
    averaged = prove("transformer", "baseline", "checkpoint.average=2")
    assert averaged["weights evaluated"].endswith(f"or the mean of {STEPS - 2}, {STEPS}")


STEP, WEIGHTS, BATCHES = "optimiser step", "weights evaluated", "batches read"
# The differences that the proof finds when one setting of the baseline is changed.
DIFFERENCES = {
    "optim.lr=0.01": {"learning rates"},
    "optim.schedule=constant": {"learning rates"},
    "optim.warmup=5": {"learning rates"},
    "optim.decay_from=5": {"learning rates"},
    "optim.beta1=0.5": {STEP},
    "optim.beta2=0.9": {STEP},
    "optim.weight_decay=0.1": {STEP},
    "optim.optimizer=muon": {STEP},
    "trainer.gradient_clip=0": {STEP},
    "trainer.gradient_clip=0.5": {STEP},
    "optim.label_smoothing=0": {"training loss", "gradients"},
    "trainer.precision=bf16-mixed": {"precision"},
    "trainer.validate_every=4": {WEIGHTS},
    "trainer.patience=1": {WEIGHTS},
    "checkpoint.average=2": {WEIGHTS},
    "trainer.accumulate=2": {BATCHES},
    "trainer.devices=2": {BATCHES},
    "trainer.num_nodes=2": {BATCHES},
    "trainer.limit_batches=0.5": {BATCHES},
    "trainer.max_steps=15": {"learning rates", WEIGHTS, BATCHES},
    "data.batch.max_tokens=400": {BATCHES},
    "overfit=true": {"evaluation output", "training loss", "gradients", BATCHES},
    "search.beam=3": {"translations"},
    "search.length_offset=3": {"translations"},
}
# Changes to a single setting for which the proof finds no difference.
NO_DIFFERENCE = [
    "optim.lr=3e-3",  # the default value in another notation
    "optim.momentum=0.5",  # a setting of Muon, which the baseline does not use
    "trainer.gradient_clip=1",
    "trainer.precision=32",
    "trainer.limit_batches=101",  # more batches than a split has
    "trainer.patience=2",  # never reached: there are two validations, and the first is an improvement
    "trainer.patience=101",
    "trainer.log_every=7",
    "trainer.suffix=other",
    "trainer.threads=2",
    "trainer.accelerator=auto",
    "trainer.strategy=ddp",
    "checkpoint.keep=5",
    "checkpoint.every=5",  # changes the result only if checkpoints are averaged
    "views.translations=3",
    "search.length_penalty=0.5",  # greedy search has only one hypothesis
    "data.batch.eval_max_tokens=512",
    "also_evaluate=[alone]",
]


@pytest.mark.parametrize("change", DIFFERENCES)
def test_whatever_a_setting_changes_is_shown(change: str, prove: Callable[..., dict[str, Any]]) -> None:
    shown = prove("transformer", "baseline", change, both=["optim.warmup=3", "optim.decay_from=3"])
    assert set(shown["differs"]) == DIFFERENCES[change]


@pytest.mark.parametrize("change", NO_DIFFERENCE)
def test_a_setting_that_changes_nothing_is_no_difference(change: str, prove: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="equal to the baseline"):
        prove("transformer", "baseline", change, both=["optim.warmup=3", "optim.decay_from=3"])


def test_no_setting_is_forgotten() -> None:
    tried = {change.partition("=")[0] for change in [*DIFFERENCES, *NO_DIFFERENCE]}
    for part in ("optim", "trainer", "checkpoint"):
        assert set(composed()[part]) == {key.partition(".")[2] for key in tried if key.startswith(f"{part}.")}


def scale_queries(model: nn.Module) -> None:
    """Scales the queries before the dot product, which makes a model with `scale=none` equivalent to the baseline."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.query.register_forward_hook(lambda *call: call[-1] * (32 / 4) ** -0.5)


def add_unread(model: nn.Module) -> None:
    model.unread = nn.Linear(3, 5)


@pytest.fixture
def apply_form(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[nn.Module], object]], None]:
    """Returns a function that registers a change. Models built later are changed if their configuration has `model.form`."""
    build, check = checkpoint.build, run_settings._problems_by_name

    def use(form: Callable[[nn.Module], object]) -> None:
        def build_form(config: dict[str, Any], vocabulary: Any, seed: int) -> nn.Module:
            model = build({key: value for key, value in config.items() if key != "form"}, vocabulary, seed)
            if "form" in config:
                form(model)
            return model

        def check_form(known: Any, part: str, values: dict[str, Any], given: Any = ()) -> list[str]:
            return check(known, part, {key: value for key, value in values.items() if key != "form"}, given)

        monkeypatch.setattr(checkpoint, "build", build_form)
        monkeypatch.setattr(run_settings, "_problems_by_name", check_form)

    return use


@pytest.mark.parametrize(("form", "change"), [(scale_queries, "model.scale=none"), (add_unread, "model.scale=d_k")])
def test_another_form_of_the_same_model_is_no_difference(
    form: Callable[[nn.Module], None], change: str, prove: Callable[..., dict[str, Any]], apply_form: Callable[..., None]
) -> None:
    apply_form(form)
    with pytest.raises(InputError, match="equal to the baseline"):
        prove("transformer", "baseline", change, "+model.form=other", both=["model.n_heads=4"])


def test_a_parameter_that_starts_at_zero_and_learns_is_a_difference(
    prove: Callable[..., dict[str, Any]], apply_form: Callable[..., None]
) -> None:
    apply_form(lambda model: model.get_submodule("decoder.0.ff.2").register_parameter("bias", None))
    shown = prove("transformer", "baseline", "+model.form=other")
    assert set(shown["differs"]) == {"parameters", "modules", "gradients"}
    assert "most in decoder.0.ff.2.bias" in shown["gradients"]


def test_a_model_that_computes_no_numbers_differs(
    prove: Callable[..., dict[str, Any]], apply_form: Callable[..., None]
) -> None:
    apply_form(lambda model: model.get_submodule("output").register_forward_hook(lambda *call: call[-1] * math.nan))
    shown = prove("transformer", "baseline", "+model.form=other")
    assert {"evaluation output", "training loss", "gradients"} <= set(shown["differs"])


def test_a_variant_that_takes_nothing_away_is_refused(prove: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="ablation no_residual: equal to the baseline"):
        prove("transformer", "no_residual", "model.residual=[self,cross,ff]")


def test_a_variant_of_another_seed_is_refused(prove: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="weight does not start with the baseline's values; leave the seed as it is"):
        prove("transformer", "no_residual", "seed=2")


# Training and evaluating variants


def trained(base: list[str], folder: Path, *overrides: str) -> Path:
    return train(composed(*base, f"output_dir={folder}", *overrides))


def test_a_variant_that_depends_on_its_batch_is_evaluated_in_other_batches_too(base: list[str], tmp_path: Path) -> None:
    small = SMALL["transformer"]
    harmed = trained(base, tmp_path, *small, "ablation=no_padding_mask", "data.batch.eval_max_tokens=90")
    metrics = json.loads((harmed / "metrics.json").read_text())
    assert list(metrics) == ["valid", "test", "test@alone", "test@mixed"]
    assert metrics["test@mixed"]["nll"] != pytest.approx(metrics["test@alone"]["nll"], rel=1e-6)
    sound = trained(base, tmp_path, *small, "also_evaluate=[alone,mixed]", "data.batch.eval_max_tokens=90")
    metrics = json.loads((sound / "metrics.json").read_text())
    for how in ("alone", "mixed"):
        assert metrics[f"test@{how}"]["nll"] == pytest.approx(metrics["test"]["nll"], rel=1e-6)
    again = evaluate_checkpoint(Evaluate(trust_data=True, checkpoint=str(harmed), split=["test@mixed"]))
    assert again["test@mixed"]["bleu"] == json.loads((harmed / "metrics.json").read_text())["test@mixed"]["bleu"]
    with pytest.raises(InputError, match="test@odd: the part after @ must be one of alike, mixed, alone"):
        evaluate_checkpoint(Evaluate(trust_data=True, checkpoint=str(harmed), split="test@odd"))


def test_a_model_without_attention_trains_and_shows_none(base: list[str], tmp_path: Path) -> None:
    for model, ablation, kinds in (("birnn", "no_attention", 0), ("transformer", "no_cross_attention", 2)):
        directory = trained(base, tmp_path, f"model={model}", *SMALL[model], f"ablation={ablation}", "views.attention=true")
        events = EventAccumulator(str(directory), size_guidance={"images": 0, "scalars": 0}).Reload()
        assert len({tag.split("/")[2] for tag in events.Tags()["images"] if tag != "weights/valid heads"}) == kinds
        with pytest.raises(InputError, match="this model has no attention"):
            picture_attention(Attention(checkpoint=str(directory), output=str(tmp_path / "map.png")))


def test_the_diagnosis_is_logged_and_does_not_change_training(base: list[str], tmp_path: Path) -> None:
    """The diagnosis is logged at step 1 and every 4 steps, and the weights equal those of a run without diagnosis."""
    for model in SMALL:
        diagnosed, plain_run = (
            trained(base, tmp_path, f"model={model}", *SMALL[model], f"views.diagnosis={every}", f"name={model}{every}")
            for every in (4, 0)
        )
        history = Run("baseline", 1, diagnosed, Status()).history
        curves = {tag: points for tag, points in history.items() if tag.startswith("why/")}
        assert curves and all([step for step, _ in points] == [1, 4, 8, 12] for points in curves.values())
        places = {tag: points for tag, points in curves.items() if tag.count("/") == 2}
        aspects = {tag.split("/")[1] for tag in places}
        sublayer_aspects = {"update_ratio", "update_cosine", "position_cosine"} if model == "transformer" else set()
        assert aspects == {"gradient_norm", "attention_entropy", "score_variance"} | sublayer_aspects
        shown = EventAccumulator(str(diagnosed)).Reload().Tags()["scalars"]
        assert {tag for tag in shown if tag.startswith("why/")} == curves.keys() - places.keys()
        for aspect in aspects:
            lines = [[value for _, value in points] for tag, points in places.items() if tag.split("/")[1] == aspect]
            for which, of in (("smallest", min), ("largest", max)):
                assert [value for _, value in curves[f"why/{aspect} {which}"]] == [
                    of(values) for values in zip(*lines, strict=True)
                ]
        one, two = (read(directory / "checkpoints" / f"step-{STEPS}.ckpt") for directory in (diagnosed, plain_run))
        assert all(torch.equal(value, two["state_dict"][name]) for name, value in one["state_dict"].items())


# Suites


Ablate = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Returns a folder with two more variants: `same` equals the baseline, and `huge_rate` has a huge learning rate."""
    folder = tmp_path / "own" / "ablation"
    folder.mkdir(parents=True)
    for name, changes in (("same", {"model": {"norm": "pre"}}), ("huge_rate", {"optim": {"lr": 100.0, "warmup": 0}})):
        (folder / f"{name}.yaml").write_text("# @package _global_\n" + yaml.safe_dump({"variant": name, **changes}))
    return tmp_path


def arguments(base: list[str], *overrides: str) -> list[str]:
    """Returns the arguments of a suite's command in `project`, which are the settings shared by all tests and `overrides`."""
    return ["--config-dir", "own", *base, *SMALL["transformer"], "trainer.threads=1", "views.diagnosis=0", *overrides]


@pytest.fixture
def ablate(project: Path, base: list[str], monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """Returns a function that runs a suite and trains its runs one at a time, all in this process. `processes` maps the name of
    a run to an object that replaces the run's process. If `table` is true, the runs are compared at the end."""

    def call(*overrides: str, processes: Mapping[str, object] | None = None, table: bool = False) -> Result:
        def train_here(command: list[str], stdout: IO[bytes], **_: object) -> object:
            for name, process in (processes or {}).items():
                if f"/{name}" in " ".join(command):
                    return process
            suite_state = Singleton.get_state()
            GlobalHydra.instance().clear()
            ended = run(shlex.join(["train", *command[command.index("train") + 1 :]]), project)
            Singleton.set_state(suite_state)
            stdout.write((ended.out + ended.err).encode())
            return SimpleNamespace(poll=lambda: ended.code)

        suites.code_digest.cache_clear()  # because a new process would start with an empty cache
        with monkeypatch.context() as patched:
            patched.setattr(suites, "subprocess", SimpleNamespace(Popen=train_here, DEVNULL=subprocess.DEVNULL))
            patched.setattr(suites, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None))
            if not table:
                patched.setattr(suites, "report", lambda _: None)
            return run(shlex.join(["ablate", *arguments(base, *overrides)]), project)

    return call


def start(project: Path, base: list[str], *overrides: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "entente", "ablate", *arguments(base, *overrides)],
        cwd=project,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # so that a signal to its process group does not reach the tests
    )


def finish(process: "subprocess.Popen[str]", code: int = 0) -> str:
    """Waits for a command, checks its exit code and returns what it printed."""
    said, _ = process.communicate(timeout=400)
    assert process.returncode == code, said
    return said


def states(suite: Path) -> dict[str, str]:
    content = json.loads((suite / "status.json").read_text())
    return {name: entry["state"] for name, entry in content.items()}


def wait_for(condition: Callable[[], bool], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.05)


def pids(project: Path, text: str) -> list[int]:
    """Returns the ids of the processes that train in the folder `project` and have `text` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line, folder = path.read_bytes().decode(errors="replace"), os.readlink(path.parent / "cwd")
        except OSError:
            continue
        if folder == str(project) and "entente\0train" in line and text in line:
            found.append(int(path.parent.name))
    return found


def scores(suite: Path) -> list[list[str]]:
    """Returns the cells of comparison.csv, without the tokens per second, since speeds differ each time."""
    with (suite / "comparison.csv").open(newline="") as table:
        head, *rows = list(csv.reader(table))
    return [[cell for name, cell in zip(head, row, strict=True) if "second" not in name] for row in (head, *rows)]


def test_a_run_that_fails_is_a_row_and_the_others_finish(project: Path, ablate: Ablate) -> None:
    folder = project / "outputs" / "rows"
    chosen, killed = (
        "suite=[baseline,same,huge_rate,no_residual]",
        {"no_residual-seed1": SimpleNamespace(poll=lambda: -signal.SIGKILL)},
    )
    assert ablate(chosen, "name=rows", processes=killed).code == 0
    expected = {"baseline": "finished", "same": "refused", "huge_rate": "diverged", "no_residual": "killed"}
    assert states(folder) == {f"{name}-seed1": state for name, state in expected.items()}
    assert not any(folder.glob("events.out.*"))  # otherwise TensorBoard would show the suite itself as a run called "."
    status = json.loads((folder / "status.json").read_text())
    assert "equal to the baseline" in status["same-seed1"]["message"]
    assert not (folder / "same-seed1").exists()
    assert "the loss is" in status["huge_rate-seed1"]["message"]
    assert json.loads((folder / "baseline-seed1" / "metrics.json").read_text())["test"]["bleu"] >= 0

    # When the suite runs again with fewer variants, it retrains only the runs that may end differently.
    before = (folder / "baseline-seed1" / "metrics.json").stat().st_mtime_ns
    (folder / "huge_rate-seed1" / "train.log").unlink()
    assert ablate("suite=[baseline,huge_rate,no_residual]", "name=rows", table=True).code == 0
    assert states(folder)["no_residual-seed1"] == "finished"
    assert states(folder)["huge_rate-seed1"] == "diverged" and not (folder / "huge_rate-seed1" / "train.log").exists()
    assert states(folder)["same-seed1"] == "refused"  # unchanged, because the second command did not name `same`
    assert (folder / "baseline-seed1" / "metrics.json").stat().st_mtime_ns == before
    shown = json.loads((folder / "no_residual-seed1" / "proof.json").read_text())
    assert "gradients" in shown["differs"]
    assert [row[0] for row in scores(folder)[1:]] == ["baseline", "same", "huge_rate", "no_residual"]

    shutil.rmtree(folder / "huge_rate-seed1")  # a run without a directory is trained again
    assert ablate("suite=[baseline,huge_rate]", "name=rows").code == 0
    assert states(folder)["huge_rate-seed1"] == "diverged" and (folder / "huge_rate-seed1" / "train.log").exists()

    ended = ablate("suite=[baseline,no_residual]", "name=rows", "optim.lr=1e-4")
    assert ended.code == 2 and "holds a suite with other settings" in ended.err
    ended = ablate("suite=[no_residual,same]", "name=rows")
    assert ended.code == 2 and "holds a suite whose baseline is baseline" in ended.err


def test_an_ablation_takes_precedence_over_the_settings_of_its_suite(project: Path, base: list[str], ablate: Ablate) -> None:
    """A suite lets its ablations override its settings, but a single run is refused if its settings contradict its ablation."""
    short = ["trainer.max_steps=1", "trainer.validate_every=1"]
    assert ablate("suite=[baseline,one_head]", 'name="two, six"', "model.n_heads=2", "seeds=[1,1]", *short).code == 0
    configs = {
        v: yaml.safe_load((project / "outputs/two, six" / f"{v}-seed1/config.yaml").read_text())
        for v in ("baseline", "one_head")
    }
    assert {variant: config["model"]["n_heads"] for variant, config in configs.items()} == {"baseline": 2, "one_head": 1}
    assert "experiment=ablation_baseline" in yaml.safe_load((project / "outputs/two, six/suite.yaml").read_text())["overrides"]
    assert yaml.safe_load((project / "outputs/two, six/suite.yaml").read_text())["seeds"] == [1]
    done = run(shlex.join(["train", *base, "ablation=one_head", "model.n_heads=2"]), project)
    assert (done.code, done.err) == (
        2,
        "error: model.n_heads=2: ablation=one_head sets it to 1; leave out one of the two\n",
    )


def test_runs_of_other_code_are_named(project: Path, ablate: Ablate) -> None:
    chosen = ["suite=[huge_rate]", "trainer.max_steps=1", "trainer.validate_every=1"]
    assert ablate(*chosen).code == 0
    assert "other code" not in ablate(*chosen).out
    file = project / "own" / "ablation" / "huge_rate.yaml"
    file.write_text(file.read_text() + "# The result.\n")
    assert "other code" not in ablate(*chosen).out
    file.write_text(file.read_text() + "checkpoint: {keep: 3}\n")
    assert "huge_rate-seed1: was trained with other code" in ablate(*chosen).out
    [run] = (project / "outputs").glob("*/huge_rate-seed1")
    for each in ("metrics.json", "checkpoints/best.ckpt"):
        (run / each).unlink()  # as if this code were to complete a run that the other code began
    assert "huge_rate-seed1: was trained with other code" in ablate(*chosen).out
    assert "huge_rate-seed1: was trained with other code" in ablate(*chosen).out


def test_what_is_in_the_way_of_a_run_is_named(project: Path, ablate: Ablate) -> None:
    (project / "outputs" / "way" / "baseline-seed1").mkdir(parents=True)
    ended = ablate("suite=[baseline]", "name=way")
    assert ended.code == 2 and "baseline-seed1: already exists, but is not" in ended.err
    (project / "outputs" / "file").write_text("")
    ended = ablate("suite=[baseline]", "name=file")
    assert ended.code == 2 and "cannot be written" in ended.err


@pytest.mark.slow
def test_a_suite_that_is_killed_twice_ends_with_the_same_table(project: Path, base: list[str], ablate: Ablate) -> None:
    """A suite that is killed as its runs start, and again during training, ends with the table of one that is never killed."""
    chosen = ["suite=[baseline,no_residual_cross]", "jobs=2"]
    assert ablate(*chosen, "name=whole", table=True).code == 0
    whole, killed = project / "outputs" / "whole", project / "outputs" / "killed"
    for condition in (
        lambda: len(pids(project, "killed/")) == 2,
        lambda: any(killed.glob("*-seed1/checkpoints/step-2.ckpt")),
    ):
        process = start(project, base, *chosen, "name=killed")
        wait_for(condition)
        process.kill()  # the runs continue until they notice that the suite has ended
        process.communicate()
    finish(start(project, base, *chosen, "name=killed"))
    assert sorted(path.name for path in killed.glob("*/")) == sorted(states(whole))  # no run was trained twice
    assert set(states(killed).values()) == {"finished"}
    for name in states(whole):
        assert (killed / name / "metrics.json").read_text() == (whole / name / "metrics.json").read_text(), name
    assert len(scores(killed)) == 3 and scores(killed) == scores(whole)


@pytest.mark.slow
def test_a_run_whose_process_is_killed_is_continued_by_the_same_command(project: Path, base: list[str]) -> None:
    chosen, folder = ["suite=[baseline,no_residual]", "jobs=2", 'name="two, rows"'], project / "outputs" / "two, rows"
    process = start(project, base, *chosen)
    wait_for((folder / "no_residual-seed1" / "config.yaml").is_file)
    os.kill(pids(project, "rows/no_residual-seed1")[0], signal.SIGKILL)
    finish(process)
    assert states(folder) == {"baseline-seed1": "finished", "no_residual-seed1": "killed"}
    finish(start(project, base, *chosen))
    assert set(states(folder).values()) == {"finished"}


def test_an_interrupted_suite_interrupts_the_runs_under_way(project: Path, ablate: Ablate) -> None:
    process = SimpleNamespace(poll=lambda: os.kill(os.getpid(), signal.SIGINT), terminate=lambda: None, wait=lambda: 75)
    ended = ablate("suite=[baseline,unscaled]", "name=stopped", processes={"baseline-seed1": process})
    assert ended.code == 75 and "resume with the same command" in ended.err
    assert states(project / "outputs" / "stopped") == {"baseline-seed1": "interrupted", "unscaled-seed1": "waiting"}


@pytest.mark.slow
def test_a_suite_that_is_interrupted_saves_what_is_under_way(project: Path, base: list[str]) -> None:
    chosen = ["suite=[baseline,unscaled]", "name=stopped", "trainer.max_steps=5000", "trainer.validate_every=5000"]
    process = start(project, base, *chosen)
    suite = project / "outputs" / "stopped"
    wait_for(lambda: any(suite.glob("*/checkpoints/step-*.ckpt")))
    process.send_signal(signal.SIGINT)
    assert "resume with the same command" in finish(process, code=75)
    assert states(suite) == {"baseline-seed1": "interrupted", "unscaled-seed1": "waiting"}


def multirun(base: list[str], launcher: str) -> list[str]:
    chosen = ["ablation=baseline,no_residual", f"hydra/launcher={launcher}", "trainer.threads=1"]
    return ["--multirun", *base, *SMALL["transformer"], *chosen]


def check_multirun(outputs: Path) -> None:
    runs = {path.parent.name for path in outputs.glob("*/metrics.json")}
    assert runs == {f"{name}-transformer-files-seed1" for name in ("baseline", "no_residual")}
    assert (outputs / "no_residual-transformer-files-seed1" / "proof.json").exists()


def test_hydras_own_multirun_trains_the_same_variants(base: list[str], tmp_path: Path) -> None:
    ended = run(shlex.join(["train", *multirun(base, "basic")]), tmp_path)
    assert ended.code == 0, ended.err
    check_multirun(tmp_path / "outputs")


@pytest.mark.slow
def test_each_run_of_a_suite_can_use_several_processes(project: Path, base: list[str]) -> None:
    finish(start(project, base, "suite=[baseline]", "name=two", "trainer.devices=2"))
    assert states(project / "outputs" / "two") == {"baseline-seed1": "finished"}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_hydras_other_launchers_train_the_same_variants(base: list[str], tmp_path: Path, launcher: str) -> None:
    command = [sys.executable, "-P", "-m", "entente", "train", *multirun(base, launcher)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    check_multirun(tmp_path / "outputs")


@pytest.mark.parametrize("content", ["", "[" * 99_999, "[1]", '{"baseline-seed1": []}', '{"baseline-seed1": {"state": 3}}'])
def test_a_damaged_status_file_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(InputError, match=r"status\.json: cannot be read .*; restore it, or remove it and run again"):
        read_record(tmp_path / "status.json", dict[str, Status])
