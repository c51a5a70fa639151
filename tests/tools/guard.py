"""Checks that training and translation still give the recorded results, bit for bit. `make guard` takes about 4 minutes.

    python tests/tools/guard.py                  compare with guard.json; print the differences, if any, and exit with 1
    python tests/tools/guard.py --record         write tests/tools/guard.json, after a change that is meant to change training
    python tests/tools/guard.py --checkout DIR   check the checkout in DIR, for instance of an earlier commit
    python tests/tools/guard.py --run DIR        use a finished run of `make train` instead of a new one

It compares digests of the embedded corpus of this checkout and its alignments, and the first 100 training losses of both
models, trained with the settings of the ablations' baseline. It also compares the final scores of `make train`, and the
translations of that run's checkpoint with greedy search and with a beam of 5. All but the corpus are recorded for each
version of torch and instruction set of the processor, since floating-point sums depend on them.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entente.data.corpora import read_corpus
from entente.settings import GrammarSettings

HERE = Path(__file__).resolve().parents[2]
RECORDED = HERE / "tests" / "tools" / "guard.json"
STEPS = 100  # within the warm-up, so that the learning rates do not depend on the length of the run
SENTENCES = 200


class Commands:
    """Runs the commands of a checkout, with `folder` as the working directory."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.folder, self.environment = folder, {**os.environ, "PYTHONPATH": str(checkout / "src")}

    def run(self, verb: str, *arguments: str) -> None:
        command = [sys.executable, "-P", "-m", "entente", verb, *arguments]
        print(f"  entente {verb} {' '.join(arguments)}", flush=True)
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"error: entente {verb} ended with code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def losses(self, model: str) -> list[str]:
        """Trains a model for STEPS steps, and returns the losses as hexadecimal floating-point numbers."""
        steps = [f"trainer.{key}={value}" for key, value in (("max_steps", STEPS), ("validate_every", STEPS), ("log_every", 1))]
        views = [f"views.{name}=0" for name in ("attention_every", "heads", "translations", "diagnosis")]
        chosen = [f"model={model}", "experiment=ablation_baseline", f"name={model}", "trainer.threads=2"]
        self.run("train", *chosen, *steps, *views, "views.attention=false")
        events = EventAccumulator(str(self.folder / "outputs" / model), size_guidance={"scalars": 0})
        events.Reload()
        losses = [float(event.value).hex() for event in events.Scalars("train/loss")]
        assert len(losses) == STEPS, f"{len(losses)} losses"
        return losses

    def train(self) -> Path:
        self.run("train", "name=main", "trainer.threads=2")
        return self.folder / "outputs" / "main"

    def translations(self, run: Path) -> dict[str, str]:
        """Translates the first sentences of the test split with beams of 1 and 5. Returns the SHA-256 digest of each output."""
        with (run / "translations" / "test.tsv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        source, digests = self.folder / "source.txt", {}
        source.write_text("".join(f"{row['source']}\n" for row in rows[:SENTENCES]), encoding="utf-8")
        for beam in (1, 5):
            output = self.folder / f"beam-{beam}.txt"
            where = [f"checkpoint={run}", f"input={source}", f"output={output}"]
            self.run("translate", *where, f"search.beam={beam}", "search.n_best=1", "threads=2")
            digests[f"beam {beam}"] = hashlib.sha256(output.read_bytes()).hexdigest()
        return digests


def corpora() -> dict[str, dict[str, str]]:
    """Returns a SHA-256 digest of each split of the embedded corpus, pairs and alignments, by seed."""
    digests: dict[str, dict[str, str]] = {}
    for seed in (1, 2, 3):
        corpus = read_corpus(GrammarSettings(seed=seed))
        digests[f"seed {seed}"] = {
            split: hashlib.sha256(json.dumps([list(pairs), corpus.gold.get(split)], default=sorted).encode()).hexdigest()
            for split, pairs in {"train": corpus.train, "valid": corpus.valid, **corpus.tests}.items()
        }
    return digests


def machine() -> str:
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"


def measure(commands: Commands, run: Path | None) -> dict[str, Any]:
    results: dict[str, Any] = {}
    results["losses"] = {model: commands.losses(model) for model in ("transformer", "birnn")}
    run = run or commands.train()
    table = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    results["table"] = {split: {name: row[name] for name in ("bleu", "chrf", "ter", "nll")} for split, row in table.items()}
    results["translations"] = commands.translations(run)
    return results


def differences(recorded: Any, found: Any, place: str = "") -> list[str]:
    """Returns one line for each value that differs. For lists of equal length, only the first difference is returned."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        keys = dict.fromkeys([*recorded, *found])
        return [line for key in keys for line in differences(recorded.get(key), found.get(key), f"{place}  {key}")]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        first = next((i for i, pair in enumerate(zip(recorded, found, strict=True)) if pair[0] != pair[1]), None)
        return [] if first is None else [f"{place}: from step {first + 1} on: {recorded[first]}, now {found[first]}"]
    return [] if recorded == found else [f"{place}: {recorded}, now {found}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--checkout", type=Path, default=HERE)
    parser.add_argument("--run", type=Path)
    flags = parser.parse_args()
    records = json.loads(RECORDED.read_text(encoding="utf-8"))
    if not flags.record and machine() not in records:
        sys.exit(f"error: nothing is recorded for {machine()}; run with --record at a commit whose results are right")
    print("measuring, about 4 minutes:", flush=True)
    corpus = corpora()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Commands(flags.checkout.resolve(), Path(folder)), flags.run and flags.run.resolve())
    if flags.record:
        RECORDED.write_text(json.dumps(records | {"corpus": corpus, machine(): results}, indent=1) + "\n", encoding="utf-8")
        print(f"recorded in {RECORDED.relative_to(HERE)}")
        return 0
    recorded = records[machine()]
    lines = differences(records["corpus"], corpus) + differences(recorded, {part: results[part] for part in recorded})
    print("\n".join(lines) or "equal: the corpus, and on this machine " + ", ".join(recorded))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
