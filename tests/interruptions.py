"""Training stopped at random moments ends with the same bits as training that never stopped.

    python tests/interruptions.py                       10 times SIGKILL, 5 Ctrl-C, 5 SIGTERM, for each model
    python tests/interruptions.py --model birnn --kill 2 --interrupt 1 --terminate 1

Each round starts the real command with resume=auto, sends a signal at a random moment and starts it again until it has
finished; then weights, optimiser, random states, best checkpoint, scores and TensorBoard's points are compared with the
reference run's. The exit code is 0 if all are equal.
"""

import argparse
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
from torch import Tensor

from entente.checkpoint import read
from entente.resume import is_finished
from tiny import SMALL, write_corpus

ROOT = Path(__file__).parents[1]
STOPPED = 75  # the exit code of a run that a signal stopped and that can go on


def differences(one: Path, other: Path) -> list[str]:
    """What of two finished runs is not the same."""
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
        if not key.endswith((".seconds", ".name", ".output_dir")) and "provenance" not in key
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
    """What TensorBoard shows of a run, by the reader it uses itself: step and value of everything (of speed, only steps)."""
    events = EventAccumulator(str(run), tensor_size_guidance={"scalars": 0, "images": 0, "text": 0}).Reload()
    return {
        tag: [
            (event.step, None if tag.endswith("per_second") else make_ndarray(event.tensor_proto).tolist())
            for event in events.Tensors(tag)
        ]
        for tag in events.Tags()["tensors"]
        if not tag.startswith("_hparams_")
    }


def command(overrides: list[str]) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "train.py"), *overrides]


def finish(overrides: list[str]) -> str:
    """Runs the command to its end; what it printed."""
    done = subprocess.run(command(overrides), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def stop(overrides: list[str], run: Path, number: signal.Signals, after: float) -> int:
    """Starts the command and sends the signal `after` seconds from when training begins; its exit code."""
    with subprocess.Popen(command(overrides), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not list(run.glob("events.*")):
            time.sleep(0.01)
        try:
            output, _ = process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            output, _ = process.communicate()
    if "Traceback" in output:
        raise RuntimeError(output)
    return process.returncode


def rounds(model: str, folder: Path, plan: list[signal.Signals], generator: random.Random, more: list[str]) -> Iterator[str]:
    """A line a round; those that differ from the reference begin with DIFFERENT."""
    base = [*write_corpus(folder), f"output_dir={folder}", f"model={model}", *SMALL[model], "trainer.accelerator=cpu"]
    base += ["trainer.threads=1", "trainer.log_every=5", "optim.warmup=20", "checkpoint.every=17", *more, "resume=auto"]
    reference = folder / "reference"
    finish([*base, "name=reference"])
    seconds = json.loads((reference / "training.json").read_text())["seconds"]
    for i, number in enumerate(plan):
        run = folder / f"round{i}"
        while True:
            after = generator.uniform(0, 1.1) * seconds
            code = stop([*base, f"name={run.name}"], run, number, after)
            if not is_finished(run):
                break
            shutil.rmtree(run)  # the signal came too late: another moment
        again = finish([*base, f"name={run.name}"])
        went_on = re.search("goes on from.*|has trained.*|has no checkpoint.*", again)
        wrong = differences(reference, run)
        verdict = f"DIFFERENT: {', '.join(wrong[:5])}" if wrong else "equal"
        where = went_on[0] if went_on else "?"
        yield f"{verdict}  {model} {number.name} {after:.1f} s into training, exit code {code}; {where}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=sorted(SMALL), default=sorted(SMALL))
    parser.add_argument("--kill", type=int, default=10)
    parser.add_argument("--interrupt", type=int, default=5)
    parser.add_argument("--terminate", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    plan = [signal.SIGKILL] * arguments.kill + [signal.SIGINT] * arguments.interrupt + [signal.SIGTERM] * arguments.terminate
    generator = random.Random(arguments.seed)
    lines = []
    for model in arguments.model:
        with tempfile.TemporaryDirectory() as folder:
            for line in rounds(model, Path(folder), plan, generator, ["trainer.max_steps=400", "trainer.validate_every=40"]):
                print(line, flush=True)
                lines.append(line)
    equal = sum(line.startswith("equal") for line in lines)
    print(json.dumps({"rounds": len(lines), "equal": equal}))
    return int(equal != len(lines))


if __name__ == "__main__":
    sys.exit(main())
