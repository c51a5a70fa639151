"""Tests that training on N processes equals training on one process that accumulates N batches.

When run as a script, this file trains each model and records the gradients, logits and losses of all steps, or trains a run in
which a process fails.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn

from entente import distributed
from entente.__main__ import main
from entente.checkpoint import read
from entente.errors import InputError
from entente.training import processes, train
from entente.training.optimiser import Optim
from entente.training.run_directory import Checkpoints
from entente.training.settings import RunSettings, TrainerSettings
from entente.training.train import build_trainer, prepare_run
from interruptions import children, command, differences
from tiny import SMALL, precise_settings, write_corpus

STEPS = 20
SETTINGS = [
    "seed=2",  # the mean of the last checkpoints is chosen
    "trainer.accelerator=cpu",
    "trainer.threads=1",
    "trainer.max_steps=14",
    "trainer.validate_every=5",
    "checkpoint.every=3",
    "checkpoint.average=3",
    "views.attention=false",
    "views.heads=0",
    "trainer.log_every=1",
    "optim.warmup=2",
    "search.length_factor=0.5",
    "data.batch.eval_max_tokens=101",  # an evaluation has several batches
]


class Steps(L.Callback):
    """Records the gradients and the loss of each step, and the logits for some validation pairs after the step."""

    def __init__(self) -> None:
        self.gradients: list[dict[str, Tensor]] = []
        self.logits: list[Tensor] = []
        self.losses: list[float | None] = []

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: Any, optimizer: Any) -> None:
        model: nn.Module = pl_module.model
        self.gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        self.losses.append(pl_module.last_loss)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
        loader: Any = trainer.train_dataloader
        loader.consume()
        if loader.position % loader.batches_per_step == 0:
            batch = trainer.datamodule.sample(3)  # type: ignore[attr-defined]
            with torch.no_grad():
                self.logits.append(pl_module.model.output(pl_module.model(batch.src, batch.tgt[:, :-1])))


def gradient_descent(self: Optim, model: nn.Module, fused: bool = False) -> torch.optim.Optimizer:
    """Returns SGD, because Adam would take a full-size step for a gradient that is nonzero only because of rounding."""
    return torch.optim.SGD(model.parameters(), 0.5)


def record(folder: Path, devices: int, accumulate: int) -> dict[str, list[list[Any]]]:
    """Trains each model, and returns the gradients, logits and losses that `Steps` recorded."""
    given = folder, f"trainer.max_steps={STEPS}", f"trainer.devices={devices}", f"trainer.accumulate={accumulate}"
    chosen = {model: precise_settings(model, *given) for model in sorted(SMALL)}
    strategy = ["trainer.strategy=ddp_find_unused_parameters_true"] if devices > 1 else []  # as `fit` chooses
    chosen["with unused parameters"] = precise_settings("transformer", *given, "model.sublayers=[self,ff]", *strategy)
    found = {}
    with processes.connect(next(iter(chosen.values())).trainer):
        for model, settings in chosen.items():
            data, translator = prepare_run(settings)
            steps = Steps()
            trainer = build_trainer(settings.trainer, None, [steps])
            trainer.fit(translator, datamodule=data)
            found[model] = [steps.gradients, steps.logits, steps.losses]
            assert [len(part) for part in found[model]] == [STEPS] * 3
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "accumulate"), [(2, 1), (3, 1), (2, 2)])
def test_processes_equal_one_that_accumulates_as_many_batches(
    devices: int, accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Optim, "build", gradient_descent)
    one = record(tmp_path, 1, devices * accumulate)
    given = [sys.executable, __file__, str(tmp_path), str(devices), str(accumulate)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(tmp_path / "recorded.pt"), one, rtol=1e-10, atol=1e-12)


def train_command(folder: Path, name: str, *more: str) -> list[str]:
    """Returns the command that trains a small Transformer as the run `name`, with the additional overrides `more`."""
    return command([*write_corpus(folder), *SMALL["transformer"], *SETTINGS, f"output_dir={folder}", f"name={name}", *more])


def run_to_end(given: list[str], code: int = 0) -> str:
    """Runs a command, checks its exit code, and returns what it printed."""
    done = subprocess.run(given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert done.returncode == code and "Traceback" not in done.stdout, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains an uninterrupted run with two processes, the first of which is slow to write, and returns its directory."""
    folder = tmp_path_factory.mktemp("whole")
    said = run_to_end(hampered("slow to write", train_command(folder, "whole", "trainer.devices=2")))
    assert said.count("2 processes, threads in each: 1") == 1 and said.count("trained 14 steps") == 1  # only one process logs
    assert "It is recommended" not in said  # Lightning's warning
    assert json.loads((folder / "whole" / "training.json").read_text())["mean_of_checkpoints"]["chosen"]
    return folder / "whole"


@pytest.mark.slow
def test_two_processes_give_the_same_bits_again(whole: Path, tmp_path: Path) -> None:
    run_to_end(train_command(tmp_path, "again", "trainer.devices=2"))
    assert not differences(whole, tmp_path / "again")


@pytest.mark.slow
def test_two_processes_evaluate_as_one(whole: Path) -> None:
    shown = ["-m", "entente", "evaluate", f"checkpoint={whole}", "trust_data=true", "split=all"]
    run_to_end([sys.executable, *shown, f"output={whole / 'alone'}", "threads=1"])
    assert json.loads((whole / "alone" / "metrics.json").read_text()) == json.loads((whole / "metrics.json").read_text())


@pytest.mark.slow
def test_processes_draw_different_random_numbers(whole: Path) -> None:
    states = read(whole / "checkpoints" / "step-14.ckpt")["random"]
    assert len(states) == 2 and not torch.equal(states[0]["torch"], states[1]["torch"])


def start_until_checkpoint(given: list[str], run: Path, step: int) -> tuple[subprocess.Popen[str], list[int]]:
    """Starts a command, and waits until it writes the checkpoint of `step` to the directory `run`, or ends. Returns the process
    and the ids of its child processes."""
    process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while process.poll() is None and not (run / "checkpoints" / f"step-{step}.ckpt").exists():
        time.sleep(0.01)
    return process, children(process.pid)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_lost_a_process_or_was_stopped_resumes_to_the_same_bits(
    number: signal.Signals, rank: int, whole: Path, tmp_path: Path
) -> None:
    given = train_command(tmp_path, "stopped", "trainer.devices=2", "resume=auto")
    process, others = start_until_checkpoint(given, tmp_path / "stopped", 3)
    killed = rank == 0 and number == signal.SIGKILL
    began = time.monotonic()
    os.kill([process.pid, *others][rank], number)
    said, _ = process.communicate(timeout=240)
    while any(Path(f"/proc/{pid}").exists() for pid in others):  # the children must end even if their parent was killed
        assert time.monotonic() - began < 60
        time.sleep(0.1)
    assert "Traceback" not in said
    assert process.returncode == (-signal.SIGKILL if killed else 75), said
    how = "stopped by SIGTERM after step" if number == signal.SIGTERM else f"process {rank} (was killed by SIGKILL|has ended)"
    assert len(re.findall(how, said)) == 1, said
    run_to_end(given)
    assert not differences(whole, tmp_path / "stopped")


def hamper(way: str) -> None:
    """Makes some processes of a run fail (see FAILURES), or the first slow to write."""

    def hampered(*_: Any) -> Any:
        if way in ("other seed", "other name"):
            stored, key = genuine(*_), way.split()[1]
            return stored | {key: type(stored[key])(distributed.rank())}
        if way == "slow to write" and distributed.rank() == 0:
            time.sleep(0.5)
        if way == "stopped in the evaluation" and distributed.rank() == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        if way == "killed while preparing" and distributed.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "all refuse" or (way == "one refuses" and distributed.rank() == 1):
            raise InputError("a made-up problem")
        if way == "other disks" and distributed.rank() == 1 and _[0].name == "config.yaml":
            return False
        return genuine(*_)

    places = {
        "slow to write": (Checkpoints, "write_best"),
        "stopped in the evaluation": (train, "finish"),
        "other seed": (RunSettings, "stored_config"),
        "other name": (RunSettings, "stored_config"),
        "other disks": (Path, "exists"),
    }
    place, name = places.get(way, (train, "prepare_run"))
    genuine = getattr(place, name)
    setattr(place, name, hampered)


def hampered(way: str, given: list[str]) -> list[str]:
    """Returns a command that trains as the command `given` does, but with `hamper(way)`."""
    return [sys.executable, __file__, way, *given[given.index("train") :]]


FAILURES = {  # what happens, the exit code, what is said once, and what is not said
    "killed while preparing": (
        75,
        "process 1 was killed by SIGKILL; the run can be resumed with resume=auto",
        "a made-up problem",
    ),
    "one refuses": (2, "error: a made-up problem\nerror: process 1 ended with exit code 2", "killed"),
    "all refuse": (2, "error: a made-up problem", "exit code"),
    "other seed": (2, "error: the processes of the run have different settings", "exit code"),
    "other disks": (2, "error: {run}: not on the disk of all machines; give an output_dir that they share", "exit code"),
    "stopped in the evaluation": (75, "stopped by SIGTERM; resume it with", "killed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", FAILURES)
def test_a_process_that_fails_ends_the_run_with_one_message(way: str, tmp_path: Path) -> None:
    code, once, never = FAILURES[way]
    given = train_command(tmp_path, "failed", "trainer.devices=2", "trainer.max_steps=3", "trainer.validate_every=3")
    said = run_to_end(hampered(way, given), code)
    assert said.count(once.format(run=tmp_path / "failed")) == 1 and never not in said, said
    last = tmp_path / "failed" / "checkpoints" / "step-3.ckpt"
    if code == 75 and last.exists():
        assert time.time() - last.stat().st_mtime < 15
    else:
        assert (tmp_path / "failed").exists() == (way == "other disks")


@pytest.mark.slow
def test_the_name_of_a_run_may_depend_on_the_time(tmp_path: Path) -> None:
    run_to_end(hampered("other name", train_command(tmp_path, "run", "trainer.devices=2", "trainer.max_steps=1")))
    assert (tmp_path / "run" / "metrics.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_waits_for_another_machine_can_be_stopped(number: signal.Signals, tmp_path: Path) -> None:
    given = train_command(tmp_path, "alone", "trainer.devices=1", "trainer.num_nodes=2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    environment = os.environ | {"MASTER_ADDR": address[0], "MASTER_PORT": str(address[1])}
    with subprocess.Popen(given, env=environment, stdout=subprocess.PIPE, text=True) as process, socket.socket() as other:
        while other.connect_ex(address):  # torch does not listen yet
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(number)
        assert process.stdout and "waiting until all 2 processes have started" in process.stdout.read()
        assert process.wait(30) == -number


@pytest.mark.slow
def test_processes_that_cannot_connect_end_with_one_line(tmp_path: Path) -> None:
    given = train_command(tmp_path, "failed", "trainer.devices=2")
    with socket.create_server(("127.0.0.1", 0)) as server:
        environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
        done = subprocess.run(given, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and re.fullmatch(r"error: the processes cannot connect \(.+\)\n", done.stderr), done.stderr


@pytest.mark.slow
def test_a_process_whose_terminal_is_gone_ends_when_another_has_ended() -> None:
    program = "import subprocess, sys; from entente.training import processes; processes.GRACE = 0.1\n"
    program += "processes.Others(None, [subprocess.Popen([sys.executable, '-c', 'raise SystemExit(1)'])]).watch()"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        assert process.stderr
        process.stderr.close()
        assert process.wait(60) == 75


@pytest.mark.slow
@pytest.mark.parametrize("devices", [["trainer.devices=2"], ["trainer.devices=1", "trainer.strategy=ddp"]], ids=str)
def test_a_model_with_unused_parameters_trains_on_several_devices(devices: list[str], tmp_path: Path) -> None:
    run_to_end(train_command(tmp_path, "unused", *devices, "trainer.max_steps=5", "model.sublayers=[self,ff]"))


def test_lightning_still_has_the_methods_that_are_replaced() -> None:
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    assert callable(trainer._signal_connector.register_signal_handlers)
    assert callable(trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor)


@pytest.mark.slow
def test_torchrun_trains_the_same_bits(whole: Path, tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    program, _, *given = train_command(tmp_path, "torchrun", "trainer.devices=2")  # torchrun does not know Python's flag -P
    run_to_end([program, *launcher, *given])
    assert not differences(whole, tmp_path / "torchrun")
    given = [program, *launcher, *train_command(tmp_path, "three", "trainer.devices=3")[2:]]
    said = subprocess.run(given, capture_output=True, text=True, timeout=300).stderr
    assert "error: trainer.devices=3 trainer.num_nodes=1: torchrun has started 2 processes" in said


@pytest.mark.slow
def test_a_run_resumes_on_another_number_of_devices_if_its_steps_take_as_many_batches(tmp_path: Path) -> None:
    given = [*train_command(tmp_path, "moved", "trainer.devices=2", "model.dropout=0"), "resume=auto"]
    run = tmp_path / "moved"
    process, _ = start_until_checkpoint(given, run, 3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    said = run_to_end(command([f"resume={run}", "trainer.devices=3"]), code=2)
    assert f"{run}: each of its steps takes 2 batches" in said and "3 processes with trainer.accumulate=1 take 3;" in said
    said = run_to_end(command([f"resume={run}", "trainer.devices=1", "trainer.accumulate=2"]))
    assert "2 process(es) wrote the checkpoint and 1 will resume from it, so dropout will draw different random numbers" in said
    run_to_end(train_command(tmp_path, "unmoved", "trainer.devices=2", "model.dropout=0"))
    one, other = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("moved", "unmoved"))
    assert one["valid"]["nll"] == pytest.approx(other["valid"]["nll"], rel=1e-4)  # without dropout, only rounding differs


@pytest.mark.slow
def test_a_slurm_job_has_a_task_for_each_device(tmp_path: Path) -> None:
    sent = tmp_path / "sent.sh"
    for name, does in (("sbatch", f'cp "$1" {sent}; echo Submitted batch job 7'), ("srun", "true"), ("sacct", "true")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    given = command(["--multirun", "hydra/launcher=slurm", "trainer.devices=4", "trainer.num_nodes=2", "seed=1"])
    here = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(
        given, cwd=tmp_path, env=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        while not sent.exists() and process.poll() is None:
            time.sleep(0.1)
        process.kill()  # otherwise it would wait for the results of the job
        said = process.communicate()[0]
    asked = dict(re.findall(r"^#SBATCH --(nodes|ntasks-per-node|gpus-per-node|time)=(\d+)$", sent.read_text(), re.M))
    assert asked == {"nodes": "2", "ntasks-per-node": "4", "gpus-per-node": "4", "time": "1440"}, said
    assert "\nexport SLURM_KILL_BAD_EXIT=1" in sent.read_text()


def test_slurm_must_start_one_process_per_device(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")
    for name, value in zip(names, "33000", strict=True):
        monkeypatch.setenv(name, value)
    how = {"accelerator": "cpu", "devices": 2}
    with pytest.raises(InputError, match="trainer.devices=2 trainer.num_nodes=1: SLURM has started 3 processes; start one per"):
        processes.build_fabric(TrainerSettings(**how))
    monkeypatch.setenv("SLURM_NTASKS", "2")
    processes.build_fabric(TrainerSettings(**how))
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(InputError, match="trainer.devices=1 trainer.num_nodes=1: SLURM has started 2 processes; start one per"):
        processes.build_fabric(TrainerSettings(accelerator="cpu"))
    assert train.lightning_problems(TrainerSettings(**how)) == []
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    assert "Use `--ntasks-per-node=2` instead" in train.lightning_problems(TrainerSettings(**how))[0]


if __name__ == "__main__":
    if sys.argv[2] == "train":
        hamper(sys.argv.pop(1))
        main()
    else:
        Optim.build = gradient_descent  # type: ignore[method-assign]
        recorded = record(Path(sys.argv[1]), *map(int, sys.argv[2:]))
        if "LOCAL_RANK" not in os.environ:  # true only in the first process
            torch.save(recorded, Path(sys.argv[1]) / "recorded.pt")
