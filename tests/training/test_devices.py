"""Tests that dropout depends only on a batch's position, and that training on N processes equals training on one process that
accumulates N batches.

When run as a script, this file trains each model and records the gradients, logits and losses of all steps.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn

from bad_inputs import run
from entente.models.seq2seq import evaluating
from entente.settings import OptimSettings
from entente.training import translator as module
from entente.training.train import prepare
from entente.training.trainer import build_trainer, launched
from interruptions import children, command, differences
from tiny import SMALL, precise_settings, write_corpus

STEPS = 7
SETTINGS = ["seed=8", "optim.lr=0.02", "optim.schedule=constant"]  # the mean of the last checkpoints is chosen
SETTINGS += ["trainer.max_steps=14", "trainer.validate_every=5", "trainer.log_every=1", "checkpoint.every=3"]
SETTINGS += ["checkpoint.average=3", "optim.warmup=2", "views.attention=false", "views.heads=0"]
SETTINGS += ["search.length_factor=0.5", "data.batch.eval_max_tokens=101"]  # an evaluation has several batches


def dropout_masks(folder: Path, seed: int) -> list[Tensor]:
    """Trains two steps of two batches with the same pairs, and returns where a layer of dropout has set zeros in each batch."""
    overrides = ["overfit=true", "trainer.accumulate=2", "trainer.max_steps=2", f"seed={seed}"]
    settings = precise_settings("transformer", folder, *overrides)
    data, translator = prepare(settings)
    masks: list[Tensor] = []
    layers = [layer for layer in translator.model.modules() if isinstance(layer, nn.Dropout) and layer.p]
    layers[-1].register_forward_hook(lambda layer, inputs, output: masks.append(output == 0))
    trainer = build_trainer(translator, data)
    trainer.callbacks.append(Steps())  # type: ignore[attr-defined]
    trainer.fit(translator, datamodule=data)
    return [mask for mask in masks if mask.any()]  # `Steps` evaluates without dropout


def test_dropout_depends_only_on_the_seed_and_the_position_of_the_batch(tmp_path: Path) -> None:
    masks, repeated, of_seed_4 = (dropout_masks(tmp_path, seed) for seed in (3, 3, 4))
    assert len(masks) == 4 and all(map(torch.equal, masks, repeated))
    distinct = {mask.numpy().tobytes() for mask in [*masks, *of_seed_4]}
    assert len(distinct) == 8


class Steps(L.Callback):
    """Records the gradients and the loss of each step, and the logits for some validation pairs after the step."""

    def __init__(self) -> None:
        self.gradients: list[dict[str, Tensor]] = []
        self.logits: list[Tensor] = []
        self.losses: list[float | None] = []

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        model: nn.Module = pl_module.model
        self.gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        self.losses.append(pl_module.losses[-1])

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
        loader: Any = trainer.train_dataloader
        loader.consume()
        if loader.position % loader.batches_per_step == 0:
            batch = trainer.datamodule.sample(3)  # type: ignore[attr-defined]
            with torch.no_grad(), evaluating(pl_module.model):
                self.logits.append(pl_module.model.output(pl_module.model(batch.src, batch.tgt[:, :-1])))


def gradient_descent(settings: OptimSettings, model: nn.Module, fused: bool = False) -> torch.optim.Optimizer:
    """Returns SGD, because Adam would take a full-size step for a gradient that is nonzero only because of rounding."""
    return torch.optim.SGD(model.parameters(), 0.5)


def record(folder: Path, devices: int, accumulate: int) -> dict[str, list[list[Any]]]:
    """Trains each model, and returns the gradients, logits and losses that `Steps` recorded."""
    overrides = [f"trainer.max_steps={STEPS}", f"trainer.devices={devices}", f"trainer.accumulate={accumulate}"]
    runs = {model: precise_settings(model, folder, *overrides) for model in sorted(SMALL)}
    runs["with unused parameters"] = precise_settings("transformer", folder, *overrides, "model.sublayers=[self,ff]")
    recorded = {}
    with launched(runs["birnn"].trainer):
        for name, settings in runs.items():
            data, translator = prepare(settings)
            steps, trainer = Steps(), build_trainer(translator, data)
            trainer.callbacks.append(steps)  # type: ignore[attr-defined]
            trainer.fit(translator, datamodule=data)
            recorded[name] = [steps.gradients, steps.logits, steps.losses]
            assert [len(part) for part in recorded[name]] == [STEPS] * 3
    return recorded


@pytest.mark.slow
def test_processes_equal_one_that_accumulates_as_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds in float64, with dropout, for gradients, losses and logits, even if a step spans two epochs."""
    monkeypatch.setattr(module, "build_optimiser", gradient_descent)
    expected = record(tmp_path, 1, 3 * 2)
    script = [sys.executable, __file__, str(tmp_path), "3", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    torch.testing.assert_close(torch.load(tmp_path / "recorded.pt"), expected, rtol=1e-10, atol=1e-12)


def train_command(folder: Path, name: str, *changes: str) -> list[str]:
    """Returns the command that trains a small Transformer as the run `name`, with additional overrides."""
    base = ["train", *write_corpus(folder), *SMALL["transformer"], *SETTINGS, f"output_dir={folder}"]
    return command([*base, f"name={name}", *changes])


def run_to_end(words: list[str], code: int = 0) -> str:
    """Runs a command, checks its exit code, and returns what it printed."""
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert ended.returncode == code and "Traceback" not in ended.stdout, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains an uninterrupted run with two processes that torchrun starts, and returns its directory."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    program, _, *words = train_command(folder, "uninterrupted", "trainer.devices=2")  # torchrun does not know Python's flag -P
    output = run_to_end([program, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *words])
    assert output.count("2 processes, threads in each: 1") == output.count("trained 14 steps") == 1  # only one process logs
    assert json.loads((folder / "uninterrupted" / "training.json").read_text())["mean_of_checkpoints"]["chosen"]
    return folder / "uninterrupted"


@pytest.mark.slow
def test_two_processes_evaluate_as_one(uninterrupted: Path) -> None:
    output = uninterrupted / "alone"
    ended = run(f"evaluate checkpoint={uninterrupted} trust_data=true split=all output={output} threads=1", uninterrupted)
    assert (ended.code, ended.err) == (0, "")
    scores = [json.loads((folder / "metrics.json").read_text()) for folder in (uninterrupted, uninterrupted / "alone")]
    assert scores[0] == scores[1]


def stop(words: list[str], run: Path, number: signal.Signals, rank: int) -> tuple[int, str]:
    """Starts or resumes a run with several processes, and sends a signal to one of them after the next checkpoint. Checks that
    all processes end within 30 s. Returns the exit code and the output."""
    checkpoints = set(run.glob("checkpoints/step-*.ckpt"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and set(run.glob("checkpoints/step-*.ckpt")) <= checkpoints:
            time.sleep(0.01)
        targets = [process.pid, *children(process.pid)]
        os.kill(targets[rank], number)
        began = time.monotonic()
        output, _ = process.communicate(timeout=240)  # returns when all processes have closed their output
        while any(Path(f"/proc/{pid}").exists() for pid in targets[1:]):
            time.sleep(0.1)
            assert time.monotonic() - began < 30
    assert time.monotonic() - began < 30 and "Traceback" not in output, output
    return process.returncode, output


@pytest.mark.slow
def test_a_run_that_lost_a_process_twice_ends_with_the_same_bits(uninterrupted: Path, tmp_path: Path) -> None:
    """Our launcher and torchrun give the same bits."""
    words = train_command(tmp_path, "stopped", "trainer.devices=2", "resume=auto")
    for rank, line in ((1, r"\[rank: 1\] Child process .* terminated"), (0, r"resuming at step")):
        code, output = stop(words, tmp_path / "stopped", signal.SIGKILL, rank)
        assert code == -signal.SIGKILL and len(re.findall(line, output)) == 1, output
    assert run_to_end(words).count("trained 14 steps") == 1
    assert differences(uninterrupted, tmp_path / "stopped") == []


ENDLESS = """
import atexit, os, pathlib, signal, threading, time
from entente import distributed
from entente.settings import TrainerSettings
from entente.training.trainer import launched
parent = os.getppid()
with launched(TrainerSettings(accelerator="cpu", devices=2, threads=1)):
    connected = pathlib.Path("connected")
    if distributed.rank() == 0:
        while not connected.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    connected.touch()
    atexit.register(threading.Event().wait)
    while os.getppid() == parent:
        time.sleep(0.01)
    raise RuntimeError("connection closed")
"""


@pytest.mark.slow
def test_a_process_ends_after_the_first_one_has_died_although_its_connections_never_close(tmp_path: Path) -> None:
    """An exit handler that waits for ever imitates a connection that waits for the first process."""
    (tmp_path / "endless.py").write_text(ENDLESS, encoding="utf-8")
    command = [sys.executable, tmp_path / "endless.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL and "Traceback" not in ended.stderr, ended.stderr


@pytest.mark.slow
def test_a_problem_of_all_processes_ends_the_run_with_one_line(tmp_path: Path) -> None:
    changes = ["trainer.devices=2", "trainer.max_steps=999", "optim.lr=1e20"]
    began = time.monotonic()
    output = run_to_end(train_command(tmp_path, "failed", *changes), 3)
    assert output.count("diverged: the loss is ") == 1 and time.monotonic() - began < 60, output


@pytest.mark.slow
def test_a_run_resumes_on_another_number_of_devices_if_its_steps_take_as_many_batches(tmp_path: Path) -> None:
    """Adam amplifies the rounding errors of tiny gradients in proportion to the learning rate, which is therefore low here."""
    changes = ["trainer.precision=64-true", "optim.lr=1e-5"]
    directory = tmp_path / "moved"
    code, output = stop(train_command(tmp_path, "moved", "trainer.devices=2", *changes), directory, signal.SIGTERM, 1)
    assert code == 75 and output.count("stopped by SIGTERM after step") == 1, output
    refused = run(f"train resume={directory} trainer.devices=1", tmp_path)
    assert refused.code == 2 and f"{directory}: each of its steps takes 2 batches" in refused.err
    assert ", not 1;" in refused.err
    words = train_command(tmp_path, "unmoved", "trainer.accumulate=2", *changes)
    unmoved = shlex.join(words[words.index("train") :])
    for line in (f"train resume={directory} trainer.devices=1 trainer.accumulate=2", unmoved):
        ended = run(line, tmp_path)
        assert (ended.code, ended.err) == (0, "")
    scores = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("moved", "unmoved")]
    for split in ("valid", "test"):
        assert scores[0][split]["nll"] == pytest.approx(scores[1][split]["nll"], rel=1e-10)
        assert scores[0][split]["bleu"] == scores[1][split]["bleu"]


def test_lightning_still_has_the_methods_that_are_replaced() -> None:
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    assert callable(trainer._signal_connector.register_signal_handlers)
    assert callable(trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor)


@pytest.mark.slow
def test_a_slurm_job_has_a_task_for_each_device(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    for name, line in (("sbatch", f'cp "$1" {script}; echo Submitted batch job 7'), ("srun", "true"), ("sacct", "true")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    words = command(["train", "--multirun", "hydra/launcher=slurm", "trainer.devices=4", "trainer.num_nodes=2", "seed=1"])
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while not script.exists() and process.poll() is None:
            time.sleep(0.1)
        process.kill()  # otherwise it would wait for the results of the job
        errors = process.communicate()[1]
    assert script.exists(), errors
    options = dict(re.findall(r"^#SBATCH --(nodes|ntasks-per-node|gpus-per-node|time)=(\d+)$", script.read_text(), re.M))
    assert options == {"nodes": "2", "ntasks-per-node": "4", "gpus-per-node": "4", "time": "1440"}
    assert "\nexport SLURM_KILL_BAD_EXIT=1" in script.read_text()


if __name__ == "__main__":
    module.build_optimiser = gradient_descent
    results = record(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    if os.environ.get("LOCAL_RANK", "0") == "0":
        torch.save(results, Path(sys.argv[1]) / "recorded.pt")
