"""Checks that a run stopped at a random moment and resumed gives exactly the results of a run that is never stopped.

    python tests/tools/interruptions.py                          stop each model 10 times with each of SIGKILL, Ctrl-C and SIGTERM
    python tests/tools/interruptions.py --model birnn --tries 3  stop only the BiRNN, once with each signal
    python tests/tools/interruptions.py --devices 2              train with two processes; SIGKILL and SIGTERM go to only one of
                                                           them, and Ctrl-C goes to both

Each try starts training with resume=auto, sends a signal at a random moment of training or of the final evaluation, and then
runs the same command again. It compares the weights, the optimiser, the random states, the best checkpoint, the mean of
checkpoints, the scores and TensorBoard's points with those of a run that was never stopped. Two tries run at a time, with one
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
from tensorboard.util.tensor_util import make_ndarray
from torch import Tensor

from entente.checkpoint import read
from entente.training.run_directory import RunDirectory
from tiny import SMALL, write_corpus

# Checkpoints are saved at steps 11, 22, 33 and 40, and the last three are averaged. Validation runs at steps 15, 30 and 40.
SETTINGS = [
    "trainer.max_steps=40",
    "trainer.accumulate=2",
    "trainer.validate_every=15",
    "trainer.log_every=5",
    "trainer.accelerator=cpu",
    "trainer.threads=1",
    "checkpoint.every=11",
    "checkpoint.average=3",
    "optim.lr=1e-2",
    "optim.warmup=10",
    "views.attention=false",  # drawing the maps takes as long as training
    "resume=auto",
]


def differences(one: Path, other: Path) -> list[str]:
    """Returns the files, checkpoint entries and TensorBoard tags in which two finished runs differ."""
    kept = [{path.name for path in (run / "checkpoints").glob("*.ckpt")} for run in (one, other)]
    found = [
        f"{name} {key}"
        for name in sorted(kept[0] | kept[1])
        for key in _unequal(*(_content(run / "checkpoints" / name) for run in (one, other)))
    ]
    reports = [json.loads((run / "training.json").read_text())["mean_of_checkpoints"] for run in (one, other)]
    if reports[0] != reports[1]:
        found.append(f"training.json mean_of_checkpoints {reports}")
    for name in ("metrics.json", "translations/valid.tsv", "translations/test.tsv"):
        if (one / name).read_bytes() != (other / name).read_bytes():
            found.append(name)
    return found + _unequal(points(one), points(other))


def _content(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    flat = dict(_flat(read(path), ""))
    return {
        key: value
        for key, value in flat.items()
        if not key.endswith((".seconds", ".elapsed", ".dirpath", "_path", ".name", ".output_dir", ".root"))
        and "provenance" not in key
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


def _unequal(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in one.keys() | other.keys() if not _equal(one.get(key), other.get(key)))


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


def command(overrides: list[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "entente", "train", *overrides]


class Ended(NamedTuple):
    """The result of a command."""

    code: int
    output: str
    seconds: float  # from the creation of the event file, just before training, to the end of the command


def start(
    overrides: list[str], run: Path, number: signal.Signals = signal.SIGKILL, after: float | None = None, rank: int = 0
) -> Ended:
    """Runs training until it ends. If `after` is not None, sends the signal `number` `after` seconds after a new event file
    appears. Ctrl-C goes to all processes, as in a terminal, and any other signal only to the process of rank `rank`."""
    before = set(run.glob("events.*"))
    with subprocess.Popen(command(overrides), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and set(run.glob("events.*")) == before:
            time.sleep(0.01)
        began = time.perf_counter()
        try:
            output, _ = process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            targets = [process.pid, *children(process.pid)]
            for target in targets if number == signal.SIGINT else targets[rank : rank + 1]:
                with suppress(ProcessLookupError):  # the process may have ended in the meantime
                    os.kill(target, number)
            output, _ = process.communicate(timeout=120)  # returns when all processes have closed their output
    return Ended(process.returncode, output, time.perf_counter() - began)


def children(parent: int) -> list[int]:
    """Returns the ids of the child processes of `parent`, in the order in which they were started."""
    try:
        return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:  # the parent has ended
        return []


def compare_stopped_runs(
    model: str, folder: Path, plan: list[signal.Signals], generator: random.Random, jobs: int = 1, devices: int = 1
) -> Iterator[str]:
    """Yields a line for each try, which begins with "equal", or with "DIFFERENT" if results, exit codes or output are wrong."""
    spread = [f"trainer.devices={devices}"]
    base = [*write_corpus(folder), f"output_dir={folder}", f"model={model}", *SMALL[model], *SETTINGS, *spread]
    reference = start([*base, "name=reference"], folder / "reference")
    if reference.code:
        raise RuntimeError(reference.output)

    def attempt(i: int, number: signal.Signals, moments: random.Random) -> str:
        run = folder / f"try{i}"
        here = [*base, f"name={run.name}"]
        after = reference.seconds
        while True:
            after = moments.uniform(0, after)
            rank = moments.randrange(devices)
            stopped = start(here, run, number, after, rank)
            if not RunDirectory(run).is_finished:
                break
            shutil.rmtree(run)  # the signal came too late; try an earlier moment
        again = start(here, run)
        wrong = ["a traceback"] if "Traceback" in stopped.output + again.output else []
        if again.code or not stopped.code:
            wrong.append(f"exit codes {stopped.code} and then {again.code}")
        else:
            wrong += differences(folder / "reference", run)
        verdict = f"DIFFERENT: {', '.join(wrong[:5])}" if wrong else "equal"
        resumed = re.search("resuming at.*", again.output)
        where = resumed[0] if resumed else "starting at step 0"
        whom = f" to process {rank} of {devices}" if devices > 1 and number != signal.SIGINT else ""
        return f"{verdict}  {model} {number.name}{whom} {after:.1f} s after the start, exit code {stopped.code}; {where}"

    moments = [random.Random(generator.random()) for _ in plan]
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(attempt, range(len(plan)), plan, moments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=sorted(SMALL), default=sorted(SMALL))
    parser.add_argument("--tries", type=int, default=30, help="number of tries for each model")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--devices", type=int, default=1, help="number of processes of each run")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # TensorBoard warns about each point that a resumed run rewrote
    plan = list(islice(cycle([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]), arguments.tries))
    generator = random.Random(arguments.seed)
    results = []
    for model in arguments.model:
        equal = 0
        with tempfile.TemporaryDirectory() as folder:
            for line in compare_stopped_runs(model, Path(folder), plan, generator, arguments.jobs, arguments.devices):
                print(line, flush=True)
                equal += line.startswith("equal")
        results.append(f"{model}: {equal} of {len(plan)} equal")
    print("\n".join(results))
    return int(any(f" {len(plan)} of " not in result for result in results))


if __name__ == "__main__":
    sys.exit(main())
