"""The proof that a variant is another model than the baseline, and suites of real runs."""

import csv
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra import compose, initialize_config_dir
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from entente import checkpoint
from entente.ablation.proof import proof
from entente.ablation.runs import Status
from entente.ablation.runs import read as read_record
from entente.checkpoint import read
from entente.commands.attention import Attention, picture_attention
from entente.commands.evaluate import Evaluate, evaluate_checkpoint
from entente.config.command_line import plain
from entente.data.module import TranslationData
from entente.errors import InputError
from entente.models.attention import MultiHeadAttention
from entente.training import settings as run_settings
from entente.training.settings import RunSettings, add_defaults
from entente.training.train import prepare_run, train
from tiny import SMALL, write_corpus
from variants_table import line_that_reads, settings

ROOT = Path(__file__).parents[1]
VARIANTS = sorted(path.stem for path in (ROOT / "configs" / "ablation").glob("*.yaml") if path.stem != "baseline")
OF_BIRNN = {"no_attention", "dot_score", "one_direction", "lstm", "readout_residual", "readout_context"}
OF_BOTH = {"bilinear_score", "no_padding_mask", "softmax_batch", "untied", "no_label_smoothing", "no_dropout", "no_warmup"}
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


def composed(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        return add_defaults(plain(compose("train", list(overrides)))[0])


# Proof of effect


@pytest.fixture(scope="module")
def prove(base: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """The proof of an ablation with further overrides of the variant alone."""
    # An override of the command line is stronger than an ablation, so that none may name what one sets.
    shared = [one for one in base if not one.startswith("optim.")] + [f"output_dir={tmp_path_factory.mktemp('cache')}"]
    sizes = {"transformer": ["model.d_model=32", "model.d_ff=48"], "birnn": ["model.d_embedding=24", "model.d_hidden=32"]}
    data: dict[str, TranslationData] = {}

    def of(model: str, ablation: str, *more: str, both: Sequence[str] = ()) -> dict[str, Any]:
        own = [*shared, f"model={model}", *sizes[model], *both]
        baseline, variant = composed(*own), composed(*own, f"ablation={ablation}", *more)
        read = str((variant["data"], variant["overfit"]))
        if read not in data:
            data[read] = prepare_run(RunSettings.of({**variant, "model": baseline["model"]}))[0]
        return proof(baseline, variant, data[read])

    return of


CASES = [("transformer", v) for v in VARIANTS if v not in OF_BIRNN] + [("birnn", v) for v in sorted(OF_BIRNN | OF_BOTH)]


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
SHOWN = {
    "optim.lr=0.01": {"learning rates"},
    "optim.schedule=constant": {"learning rates"},
    "optim.warmup=5": {"learning rates"},
    "optim.decay_from=5": {"learning rates"},
    "optim.beta1=0.5": {STEP},
    "optim.beta2=0.9": {STEP},
    "optim.weight_decay=0.1": {STEP},
    "trainer.gradient_clip=0": {STEP},
    "trainer.gradient_clip=0.5": {STEP},
    "optim.label_smoothing=0": {"training loss", "gradients"},
    "trainer.precision=bf16-mixed": {"precision"},
    "trainer.validate_every=4": {WEIGHTS},
    "trainer.patience=1": {WEIGHTS},
    "checkpoint.average=2": {WEIGHTS},
    "trainer.accumulate=2": {BATCHES},
    "trainer.limit_batches=0.5": {BATCHES},
    "trainer.max_steps=15": {"learning rates", WEIGHTS, BATCHES},
    "data.batch.max_tokens=400": {BATCHES},
    "overfit=true": {"evaluation output", "training loss", "gradients", BATCHES},
    "search.beam=3": {"translations"},
    "search.length_offset=3": {"translations"},
}
NOTHING = [
    "optim.lr=3e-3",  # the same in other words
    "trainer.gradient_clip=1",
    "trainer.precision=32",
    "trainer.limit_batches=101",  # more than there are
    "trainer.patience=2",  # as many as there are validations, of which the first is the best so far
    "trainer.patience=101",
    "trainer.log_every=7",
    "trainer.suffix=other",
    "trainer.threads=2",
    "trainer.accelerator=auto",
    "checkpoint.keep=5",
    "checkpoint.every=5",  # of which none is averaged
    "views.translations=3",
    "search.length_penalty=0.5",  # of one hypothesis
    "data.batch.eval_max_tokens=512",
    "also_evaluate=[alone]",
]


@pytest.mark.parametrize("change", SHOWN)
def test_whatever_a_setting_changes_is_shown(change: str, prove: Callable[..., dict[str, Any]]) -> None:
    assert (
        set(prove("transformer", "baseline", change, both=["optim.warmup=3", "optim.decay_from=3"])["differs"]) == SHOWN[change]
    )


@pytest.mark.parametrize("change", NOTHING)
def test_a_setting_that_changes_nothing_is_no_difference(change: str, prove: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="equal to the baseline"):
        prove("transformer", "baseline", change, both=["optim.warmup=3", "optim.decay_from=3"])


def test_no_setting_is_forgotten() -> None:
    tried = {change.partition("=")[0] for change in [*SHOWN, *NOTHING]}
    for part in ("optim", "trainer", "checkpoint"):
        assert set(composed()[part]) == {key.partition(".")[2] for key in tried if key.startswith(f"{part}.")}


def scale_queries(model: nn.Module) -> None:
    """Before the product and not after it: with `scale=none`, another way to write the baseline."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.query.register_forward_hook(lambda *call: call[-1] * (32 / 4) ** -0.5)


def add_unread(model: nn.Module) -> None:
    model.unread = nn.Linear(3, 5)


@pytest.fixture
def apply_form(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[nn.Module], object]], None]:
    """Has a function change each model whose configuration says `model.form`."""
    build, check = checkpoint.build, run_settings._problems_by_name

    def use(form: Callable[[nn.Module], object]) -> None:
        def built(config: dict[str, Any], vocabulary: Any, seed: int) -> nn.Module:
            model = build({key: value for key, value in config.items() if key != "form"}, vocabulary, seed)
            if "form" in config:
                form(model)
            return model

        def checked(known: Any, part: str, values: dict[str, Any], given: Any = ()) -> list[str]:
            return check(known, part, {key: value for key, value in values.items() if key != "form"}, given)

        monkeypatch.setattr(checkpoint, "build", built)
        monkeypatch.setattr(run_settings, "_problems_by_name", checked)

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


def test_each_setting_of_an_ablation_is_read_by_one_line() -> None:
    for model, ablation in CASES:
        assert all(re.fullmatch(r"[a-z/_]+\.py:\d+", line_that_reads(model, key)) for key in settings(ablation))


# What variants need of the rest


def run(base: list[str], folder: Path, *overrides: str) -> Path:
    return train(composed(*base, f"output_dir={folder}", *overrides, "views.attention=true"))


def test_a_variant_whose_harm_hides_is_decoded_in_other_batches_too(base: list[str], tmp_path: Path) -> None:
    small = SMALL["transformer"]
    harmed = run(base, tmp_path, *small, "ablation=no_padding_mask", "data.batch.eval_max_tokens=90")
    metrics = json.loads((harmed / "metrics.json").read_text())
    assert list(metrics) == ["valid", "test", "test@alone", "test@mixed"]
    assert metrics["test@mixed"]["nll"] != pytest.approx(metrics["test@alone"]["nll"], rel=1e-6)
    sound = run(base, tmp_path, *small, "also_evaluate=[alone,mixed]", "data.batch.eval_max_tokens=90")
    metrics = json.loads((sound / "metrics.json").read_text())
    for how in ("alone", "mixed"):
        assert metrics[f"test@{how}"]["nll"] == pytest.approx(metrics["test"]["nll"], rel=1e-6)
    again = evaluate_checkpoint(Evaluate(trust_data=True, checkpoint=str(harmed), split=["test@mixed"]))
    assert again["test@mixed"]["bleu"] == json.loads((harmed / "metrics.json").read_text())["test@mixed"]["bleu"]
    with pytest.raises(InputError, match="test@odd: the part after @ must be one of alike, mixed, alone"):
        evaluate_checkpoint(Evaluate(trust_data=True, checkpoint=str(harmed), split="test@odd"))


def test_a_model_without_attention_trains_and_shows_none(base: list[str], tmp_path: Path) -> None:
    for model, ablation, kinds in (("birnn", "no_attention", 0), ("transformer", "no_cross_attention", 2)):
        directory = run(base, tmp_path, f"model={model}", *SMALL[model], f"ablation={ablation}")
        events = EventAccumulator(str(directory), size_guidance={"images": 0, "scalars": 0}).Reload()
        assert len({tag.split("/")[1] for tag in events.Tags()["images"]}) == kinds
        with pytest.raises(InputError, match="this model has no attention"):
            picture_attention(Attention(checkpoint=str(directory), output=str(tmp_path / "map.png")))


def test_what_may_explain_a_failure_is_logged_and_changes_nothing(base: list[str], tmp_path: Path) -> None:
    """Every 4 steps and at the first; the weights are those of a run that never looked."""
    for model in SMALL:
        looked, not_looked = (
            run(base, tmp_path, f"model={model}", *SMALL[model], f"views.diagnosis={every}", f"name={model}{every}")
            for every in (4, 0)
        )
        events = EventAccumulator(str(looked), size_guidance={"scalars": 0}).Reload()
        steps = {tag: [e.step for e in events.Scalars(tag)] for tag in events.Tags()["scalars"] if tag.startswith("why/")}
        assert steps and all(at == [1, 4, 8, 12] for at in steps.values())
        aspects = {tag.split("/")[1] for tag in steps}
        of_sublayers = {"update_ratio", "update_cosine", "position_cosine"} if model == "transformer" else set()
        assert aspects == {"gradient_norm", "attention_entropy", "score_variance"} | of_sublayers
        one, two = (read(directory / "checkpoints" / f"step-{STEPS}.ckpt") for directory in (looked, not_looked))
        assert all(torch.equal(value, two["state_dict"][name]) for name, value in one["state_dict"].items())


# Suites


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The scripts and configurations with two variants more: one equal to the baseline, one whose rate is far too large."""
    for folder in ("scripts", "configs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for name, changes in (("same", {"model": {"norm": "pre"}}), ("huge_rate", {"optim": {"lr": 100.0, "warmup": 0}})):
        text = "# @package _global_\n" + yaml.safe_dump({"variant": name, **changes})
        (tmp_path / "configs" / "ablation" / f"{name}.yaml").write_text(text)
    return tmp_path


def start(project: Path, base: list[str], *overrides: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "scripts/ablate.py", *base, *SMALL["transformer"], *overrides]
    return subprocess.Popen(
        command,
        cwd=project,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # a signal to it must not reach the tests
    )


def ablate(project: Path, base: list[str], *overrides: str, code: int = 0) -> str:
    process = start(project, base, *overrides)
    said, _ = process.communicate(timeout=400)
    assert process.returncode == code, said
    return said


def states(suite: Path) -> dict[str, str]:
    content = json.loads((suite / "status.json").read_text())
    return {name: entry["state"] for name, entry in content.items()}


def wait_for(condition: Callable[[], bool], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def pids(project: Path, text: str) -> list[int]:
    """Processes that train a run in this folder, by what their command lines contain."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line, folder = path.read_bytes().decode(errors="replace"), os.readlink(path.parent / "cwd")
        except OSError:
            continue
        if folder == str(project) and "entente\0train" in line and text in line:
            found.append(int(path.parent.name))
    return found


def test_a_run_that_fails_is_a_row_and_the_others_finish(project: Path, base: list[str]) -> None:
    suite = project / "outputs" / "rows"
    process = start(project, base, "suite=[baseline,same,huge_rate,no_residual]", "jobs=2", "name=rows")
    mine = "rows/no_residual-seed1"
    wait_for(lambda: bool(pids(project, mine)))
    os.kill(pids(project, mine)[0], signal.SIGKILL)
    said, _ = process.communicate(timeout=400)
    assert process.returncode == 0, said
    expected = {"baseline": "finished", "same": "refused", "huge_rate": "diverged", "no_residual": "killed"}
    assert states(suite) == {f"{name}-seed1": state for name, state in expected.items()}
    status = json.loads((suite / "status.json").read_text())
    assert "equal to the baseline" in status["same-seed1"]["message"]
    assert not (suite / "same-seed1").exists()
    assert "the loss is" in status["huge_rate-seed1"]["message"]
    assert json.loads((suite / "baseline-seed1" / "metrics.json").read_text())["test"]["bleu"] >= 0

    # Started again, for a part: what had failed for a reason of its own stays, the killed run goes on.
    before = (suite / "baseline-seed1" / "metrics.json").stat().st_mtime_ns
    shutil.rmtree(suite / "huge_rate-seed1")  # so that it is trained again
    ablate(project, base, "suite=[baseline,huge_rate,no_residual]", "jobs=2", "name=rows")
    assert states(suite)["no_residual-seed1"] == "finished"
    assert states(suite)["huge_rate-seed1"] == "diverged" and (suite / "huge_rate-seed1").is_dir()
    assert states(suite)["same-seed1"] == "refused"  # of which this command said nothing
    assert (suite / "baseline-seed1" / "metrics.json").stat().st_mtime_ns == before
    shown = json.loads((suite / "no_residual-seed1" / "proof.json").read_text())
    assert "gradients" in shown["differs"]

    said = ablate(project, base, "suite=[baseline,no_residual]", "name=rows", "optim.lr=1e-4", code=2)
    assert "holds a suite with other settings" in said
    said = ablate(project, base, "suite=[no_residual,same]", "name=rows", code=2)
    assert "holds a suite compared with baseline" in said


def test_an_ablation_is_the_last_word(project: Path, base: list[str]) -> None:
    """Of a suite every run is what its name says; a single run that contradicts itself is refused."""
    ablate(project, base, "suite=[baseline,one_head]", "name=heads", "model.n_heads=2", "seeds=[1,1]")
    configs = {
        v: yaml.safe_load((project / "outputs/heads" / f"{v}-seed1/config.yaml").read_text()) for v in ("baseline", "one_head")
    }
    assert {variant: config["model"]["n_heads"] for variant, config in configs.items()} == {"baseline": 2, "one_head": 1}
    assert yaml.safe_load((project / "outputs/heads/suite.yaml").read_text())["seeds"] == [1]
    command = [sys.executable, "scripts/train.py", *base, "ablation=one_head", "model.n_heads=2"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (
        2,
        "error: model.n_heads=2: ablation=one_head sets it to 1; leave out one of the two\n",
    )


def test_a_suite_killed_while_its_runs_begin_trains_none_twice(project: Path, base: list[str]) -> None:
    process = start(project, base, "suite=[baseline,unscaled]", "jobs=2", "name=early")
    wait_for(lambda: len(pids(project, "early/")) == 2)
    process.kill()
    process.communicate()
    assert not list((project / "outputs" / "early").glob("*/"))  # no run has a directory yet
    ablate(project, base, "suite=[baseline,unscaled]", "jobs=2", "name=early")
    found = sorted(path.name for path in (project / "outputs" / "early").glob("*/"))
    assert found == ["baseline-seed1", "unscaled-seed1"]
    assert set(states(project / "outputs" / "early").values()) == {"finished"}


def test_runs_of_other_code_are_said(project: Path, base: list[str]) -> None:
    ablate(project, base, "suite=[baseline]")
    assert "other code" not in ablate(project, base, "suite=[baseline]")
    file = project / "configs" / "ablation" / "baseline.yaml"
    file.write_text(file.read_text() + "# What came of it.\n")
    assert "other code" not in ablate(project, base, "suite=[baseline]")
    file.write_text(file.read_text() + "checkpoint: {keep: 3}\n")
    assert "baseline-seed1: was trained with other code" in ablate(project, base, "suite=[baseline]")


def test_what_is_in_the_way_of_a_run_is_named(project: Path, base: list[str]) -> None:
    (project / "outputs" / "way" / "baseline-seed1").mkdir(parents=True)
    said = ablate(project, base, "suite=[baseline]", "name=way", code=2)
    assert "baseline-seed1: in the way, but not a run" in said
    (project / "outputs" / "file").write_text("")
    assert "cannot be written" in ablate(project, base, "suite=[baseline]", "name=file", code=2)


def test_a_suite_that_is_killed_goes_on_to_the_same_table(project: Path, base: list[str]) -> None:
    chosen = ["suite=[baseline,no_residual_cross]", "seeds=[1,2]", "jobs=2"]
    ablate(project, base, *chosen, "name=whole")
    process = start(project, base, *chosen, "name=killed")
    killed = project / "outputs" / "killed"
    wait_for(lambda: any(killed.glob("*-seed1/checkpoints/step-2.ckpt")))
    process.kill()  # its runs are left behind, and train on
    process.communicate()
    ablate(project, base, *chosen, "name=killed")
    whole = project / "outputs" / "whole"
    for run in states(whole):
        assert (killed / run / "metrics.json").read_text() == (whole / run / "metrics.json").read_text(), run
    assert (killed / "comparison.csv").read_text().count("\n") == 3
    assert scores(killed) == scores(whole)


def scores(suite: Path) -> list[list[str]]:
    """The comparison's table, tokens per second apart, which no two runs have alike."""
    with (suite / "comparison.csv").open(newline="") as table:
        head, *rows = list(csv.reader(table))
    return [[cell for name, cell in zip(head, row, strict=True) if "second" not in name] for row in (head, *rows)]


def test_a_suite_that_is_interrupted_saves_what_is_under_way(project: Path, base: list[str]) -> None:
    chosen = ["suite=[baseline,unscaled]", "name=stopped", "trainer.max_steps=5000", "trainer.validate_every=5000"]
    process = start(project, base, *chosen)
    suite = project / "outputs" / "stopped"
    wait_for(lambda: any(suite.glob("*/checkpoints/step-*.ckpt")))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 75 and "goes on" in said
    assert states(suite) == {"baseline-seed1": "interrupted", "unscaled-seed1": "waiting"}


@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_hydras_own_multirun_trains_the_same_variants(project: Path, base: list[str], launcher: str) -> None:
    chosen = ["ablation=baseline,no_residual", f"hydra/launcher={launcher}", "trainer.threads=1"]
    command = [sys.executable, "scripts/train.py", "--multirun", *base, *SMALL["transformer"], *chosen]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    runs = {path.parent.name for path in (project / "outputs").glob("*/metrics.json")}
    assert runs == {f"files-transformer-{name}-seed1" for name in ("baseline", "no_residual")}
    assert (project / "outputs" / "files-transformer-no_residual-seed1" / "proof.json").exists()


@pytest.mark.parametrize("content", ["", "[" * 99_999, "[1]", '{"baseline-seed1": []}', '{"baseline-seed1": {"state": 3}}'])
def test_a_status_that_cannot_be_one_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(InputError, match=r"status\.json: cannot be read .*; restore it, or remove it and run again"):
        read_record(tmp_path / "status.json", dict[str, Status])
