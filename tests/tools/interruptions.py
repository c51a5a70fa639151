"""Checks that a run stopped at a random moment and resumed gives exactly the results of a run that is never stopped.

    python tests/tools/interruptions.py            stop each model 10 times with SIGKILL, Ctrl-C and SIGTERM each
    python tests/tools/interruptions.py --model birnn --tries 3    stop only the BiRNN, once with each signal
    python tests/tools/interruptions.py --devices 2    train with two processes; SIGKILL and SIGTERM go to only one of them, and
                                                       Ctrl-C goes to both
    python tests/tools/interruptions.py --suite    stop `entente ablate jobs=2`, a suite of two variants

Each try starts a command, sends a signal at a random moment of training or of the final evaluation, checks that no process is
left, and that Ctrl-C and SIGTERM end the command within 5 s with code 75, and runs the same command again. It compares the
checkpoints, scores and TensorBoard's points with those of a run that was never stopped. Two tries run at a time, with one
thread each. The exit code is 0 if every try gives equal results.
"""

import argparse
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from tensorboard.util.tensor_util import make_ndarray
from torch import Tensor

from entente.checkpoint import read
from tiny import SMALL, write_corpus

# Checkpoints are saved at steps 11, 22, 33 and 40, and the last three are averaged. Validation runs at steps 15, 30 and 40.
SETTINGS = ["trainer.max_steps=40", "trainer.accumulate=2", "trainer.validate_every=15", "trainer.log_every=5"]
SETTINGS += ["trainer.patience=9", "checkpoint.every=11", "checkpoint.average=3", "data.batch.both_directions=1"]
SETTINGS += ["optim.optimizer=muon", "optim.lr=1e-2", "optim.warmup=10"]
SETTINGS += ["views.attention=false"]  # drawing the maps takes as long as training
TRAIN, SUITE = ["train", "resume=auto"], ["ablate", "suite=[baseline,no_dropout]", "jobs=2"]
LIMIT = 5.0  # seconds from a signal to the end of the command
SPEEDS = (".seconds", ".elapsed")
PATHS = (".name", ".output_dir", ".root")
# TensorBoard sorts event files by their names. This number in them makes those of one process sort as they were written.
event_file_writer._global_uid = event_file_writer.AtomicCounter(10_000)


def differences(run: Path, other: Path) -> list[str]:
    """Returns the files, checkpoint entries and TensorBoard tags in which two finished runs differ."""
    names = {path.name for folder in (run, other) for path in (folder / "checkpoints").glob("*.ckpt")}
    lines = [
        f"{name} {key}"
        for name in sorted(names)
        for key in _unequal(*(_content(folder / "checkpoints" / name) for folder in (run, other)))
    ]
    reports = [json.loads((folder / "training.json").read_text())["mean_of_checkpoints"] for folder in (run, other)]
    if reports[0] != reports[1]:
        lines.append(f"training.json mean_of_checkpoints {reports}")
    for name in ("metrics.json", "translations/valid.tsv", "translations/test.tsv"):
        if (run / name).read_bytes() != (other / name).read_bytes():
            lines.append(name)
    return lines + _unequal(points(run), points(other))


def _content(path: Path) -> dict[str, Any]:
    """Returns the values of a checkpoint by their keys, without speeds, paths and provenance, and, since no run resumes from
    best.ckpt, without Lightning's counters in it."""
    if not path.exists():
        return {}
    values = dict(_flat(read(path), ""))
    return {
        key: value
        for key, value in values.items()
        if not key.endswith(SPEEDS + PATHS)
        and "provenance" not in key
        and not (path.stem == "best" and key.startswith(".loops."))
    }


def _flat(value: object, key: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _flat(item, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _flat(item, f"{key}.{i}")
    else:
        yield key, value


def _unequal(values: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in values.keys() | expected.keys() if not _equal(values.get(key), expected.get(key)))


def _equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and a == b


def points(run: Path) -> dict[str, list[tuple[int, Any]]]:
    """Returns the steps and values of every TensorBoard tag of a run. Speeds are replaced by None, since they vary."""
    events = EventAccumulator(str(run), tensor_size_guidance={"scalars": 0, "images": 0, "text": 0}).Reload()
    return {
        tag: [
            (event.step, None if tag.endswith("per_second") else make_ndarray(event.tensor_proto).tolist())
            for event in events.Tensors(tag)
        ]
        for tag in events.Tags()["tensors"]
        if not tag.startswith(("_hparams_", "custom_scalars_"))
    }


def command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "entente", *arguments]


class Ended(NamedTuple):
    """The result of a command."""

    code: int
    output: str
    seconds: float  # from the creation of the event file, just before training, to the end of the command
    stopping: float  # seconds from the signal to the end of the command


def start(
    arguments: list[str], run: Path, number: signal.Signals = signal.SIGKILL, delay: float | None = None, rank: int = 0
) -> Ended:
    """Runs a command until it ends. If `delay` is not None, sends the signal `number` `delay` seconds after a new event file
    appears. Ctrl-C goes to all processes, as in a terminal, and any other signal only to the process of rank `rank`."""
    event_files = set(run.rglob("events.*"))
    with subprocess.Popen(command(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and set(run.rglob("events.*")) == event_files:
            time.sleep(0.01)
        began = sent = time.perf_counter()
        try:
            output, _ = process.communicate(timeout=delay)
        except subprocess.TimeoutExpired:
            targets = [process.pid, *children(process.pid)]
            sent = time.perf_counter()
            for target in targets if number == signal.SIGINT else targets[rank : rank + 1]:
                with suppress(ProcessLookupError):  # the process may have ended in the meantime
                    os.kill(target, number)
            output, _ = process.communicate(timeout=120)  # returns when all processes have closed their output
    ended = time.perf_counter()
    return Ended(process.returncode, output, ended - began, ended - sent)


def processes(run: Path) -> list[str]:
    """Returns the ids of the processes that train a run, or the runs of a suite."""
    lines = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended in the meantime
            lines[path.parent.name] = path.read_bytes().replace(b"\0", b" ")
    return [pid for pid, line in lines.items() if re.search(rf"name={run.name}[ /]".encode(), line)]


def runs_of(folder: Path) -> list[Path]:
    """Returns the directory of a run, or those of the runs of a suite."""
    return [folder] if (folder / "config.yaml").exists() else sorted(folder.glob("*-seed*/"))


def children(parent: int) -> list[int]:
    """Returns the ids of the child processes of `parent`, in the order in which they were started."""
    try:
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:  # the parent has ended
        return []


def compare_stopped_runs(
    model: str,
    folder: Path,
    plan: list[signal.Signals],
    generator: random.Random,
    jobs: int = 1,
    devices: int = 1,
    arguments: list[str] = TRAIN,
) -> Iterator[str]:
    """Yields a line for each try, which begins with "equal", or with "DIFFERENT" if results, exit codes or output are wrong, or
    if a process is left. arguments: the verb, and settings that only it has."""
    base = [*arguments, *write_corpus(folder), f"output_dir={folder}", f"model={model}", *SMALL[model], *SETTINGS]
    base += [f"trainer.devices={devices}"] if devices > 1 else []
    reference = start([*base, "name=reference"], folder / "reference")
    if reference.code:
        raise RuntimeError(reference.output)

    def attempt(i: int, number: signal.Signals, moments: random.Random) -> str:
        run, delay = folder / f"try{i}", reference.seconds
        while True:
            delay, rank = moments.uniform(0, delay), moments.randrange(devices)
            stopped = start([*base, f"name={run.name}"], run, number, delay, rank)
            too_late = stopped.code == -number != -signal.SIGKILL and (run / "metrics.json").exists()  # while Python exits
            if stopped.code and not too_late:
                break
            shutil.rmtree(run)  # the signal came too late; try an earlier moment
        survivors = processes(run)
        resumed = start([*base, f"name={run.name}"], run)
        problems = ["a traceback"] if "Traceback" in stopped.output + resumed.output else []
        problems += ["processes are left"] if survivors and number != signal.SIGKILL else []
        if number != signal.SIGKILL:
            problems += [f"exit code {stopped.code} instead of 75"] if stopped.code != 75 else []
            problems += [f"ended only after {stopped.stopping:.1f} s"] if stopped.stopping > LIMIT else []
        if resumed.code:
            problems.append(f"exit codes {stopped.code} and then {resumed.code}")
        else:
            for reference_run in runs_of(folder / "reference"):
                problems += differences(reference_run, run / reference_run.relative_to(folder / "reference"))
        verdict = f"DIFFERENT: {', '.join(problems[:5])}" if problems else "equal"
        place = re.search("resuming at.*", resumed.output)
        target = f" to process {rank} of {devices}" if devices > 1 and number != signal.SIGINT else ""
        return (
            f"{verdict}  {model} {number.name}{target} {delay:.1f} s after the start, exit code {stopped.code} after "
            f"{stopped.stopping:.1f} s; {place[0] if place else 'starting at step 0'}"
        )

    moments = [random.Random(generator.random()) for _ in plan]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(attempt, range(len(plan)), plan, moments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=sorted(SMALL), default=sorted(SMALL))
    parser.add_argument("--tries", type=int, default=30, help="number of tries for each model")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--devices", type=int, default=1, help="number of processes of each run")
    parser.add_argument("--suite", action="store_true", help="stop suites, whose processes get SIGTERM and Ctrl-C, not SIGKILL")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # TensorBoard warns about each point that a resumed run rewrote
    signals = [signal.SIGINT, signal.SIGTERM] if arguments.suite else [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]
    plan, words = list(islice(cycle(signals), arguments.tries)), SUITE if arguments.suite else TRAIN
    generator = random.Random(arguments.seed)
    results = {}
    for model in arguments.model:
        with tempfile.TemporaryDirectory() as folder:
            results[model] = 0
            jobs, devices = arguments.jobs, arguments.devices
            for line in compare_stopped_runs(model, Path(folder), plan, generator, jobs, devices, words):
                print(line, flush=True)
                results[model] += line.startswith("equal")
    for model, equal in results.items():
        print(f"{model}: {equal} of {len(plan)} equal")
    return int(any(equal < len(plan) for equal in results.values()))


if __name__ == "__main__":
    sys.exit(main())
