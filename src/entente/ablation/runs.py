"""Reads runs, from directories that training wrote or from rows that were published, and groups them into variants.

FOLDER/VARIANT-seedN/       a run's directory
       VARIANT-seedN.log    what the run printed, if `entente ablate` trained it
       runs.jsonl.xz        a JSON object per run that finished or diverged, which replaces its directory, as
                            scripts/publish.py writes them
"""

import hashlib
import json
import logging
import lzma
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from entente.errors import InputError
from entente.files import read_file, read_yaml
from entente.settings import MISSING, RunSettings
from entente.validation import flat

BASELINE, ROWS = "baseline", "runs.jsonl.xz"
# Settings that comparisons ignore: names, output, logging, device and threads. The seed is compared separately.
IGNORED: tuple[str, ...] = ("seed", "name", "output_dir", "variant", "also_evaluate", "views.", "checkpoint.keep")
IGNORED += ("evaluation.metrics", "trainer.suffix", "trainer.accelerator", "trainer.threads", "trainer.log_every")


@dataclass
class Run:
    """A variant trained with one seed. metrics, training: the contents of metrics.json and training.json, or {} if the run has
    not finished. row: the line of runs.jsonl.xz if the run's directory is elsewhere."""

    directory: Path
    config: dict[str, Any]
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    row: dict[str, Any] | None = None
    variant: str = ""

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @cached_property
    def learning(self) -> dict[str, Any]:
        """The settings that affect what the run learns, except the seed, by dotted key."""
        settings = {key: value for key, value in flat(self.config) if not isinstance(value, Mapping)}
        without_mean = settings.get("checkpoint.average") == 1  # then `checkpoint.every` does not change the weights evaluated
        ignored = (*IGNORED, "checkpoint.every") if without_mean else IGNORED
        return {key: value for key, value in settings.items() if not key.startswith(ignored)}

    @property
    def key(self) -> tuple[str, int, str]:
        """Identifies the run's ablation, seed and configuration."""
        return str(self.config.get("variant")), self.seed, json.dumps(self.learning, sort_keys=True)

    @property
    def output(self) -> Path:
        """The file for what the run prints, if it is one of a suite."""
        return self.directory.with_name(f"{self.directory.name}.log")

    @property
    def diverged(self) -> bool:
        if self.row:
            return "diverged" in self.row
        text = self.output.read_text(encoding="utf-8", errors="replace") if self.output.is_file() else ""
        return not self.metrics and text.rstrip().rpartition("\n")[2].startswith("diverged: ")

    def translations(self, split: str) -> dict[str, list[str]]:
        """Returns the columns source, reference and translation of a split, in the order of the corpus."""

        def columns(content: bytes) -> dict[str, list[str]]:
            lines = content.decode().removesuffix("\n").split("\n")  # a lone \r is part of a sentence
            return {name: column for name, *column in zip(*(line.split("\t") for line in lines), strict=True)}

        return read_file(self.directory / "translations" / f"{split}.tsv", columns)

    def counts(self, split: str) -> tuple[list[list[int]], str]:
        """Returns sacreBLEU's counts of each sentence (both lengths, matches and totals of 1- to 4-grams), and a digest of the
        split's sources and references."""
        if self.row:
            if split not in self.row.get("counts", {}):
                raise InputError(f"{self.directory.with_name(ROWS)}: has no counts of {split}; publish the runs again")
            return self.row["counts"][split], self.row["sentences"][split]
        texts = self.translations(split)
        digest = hashlib.sha256(json.dumps([texts["source"], texts["reference"]]).encode()).hexdigest()
        return self.bleu(split)._extract_corpus_statistics(texts["translation"], [texts["reference"]]), digest

    def bleu(self, split: str) -> BLEU:
        """Returns the metric with the tokenizer with which a split was scored."""
        tokenize = re.findall(r"\|tok:(ja-mecab|ko-mecab|[^|]+)", self.metrics[split]["signature"]["bleu"])
        return BLEU(tokenize=tokenize[0], force=True)

    @cached_property
    def history(self) -> dict[str, list[tuple[int, float]]]:
        """Points (step, value) of the run's scalars, and its diagnostics why/ASPECT/PLACE, by tag."""
        if self.row:
            curves = self.row["history"].items()
            return {tag: [(step, math.nan if value is None else value) for step, value in curve] for tag, curve in curves}
        if not any(self.directory.glob("events.out.tfevents.*")):
            return {}
        logging.getLogger("tensorboard").setLevel(logging.ERROR)  # suppress warnings about repeated graph events
        events = EventAccumulator(str(self.directory), size_guidance={"scalars": 0, "images": 1, "tensors": 0}).Reload()
        tags = events.Tags()
        history = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags["scalars"]}
        for tag in tags["tensors"]:
            if tag.startswith("why/"):  # TensorBoard does not purge tensors when a run resumes, so a step's last value counts
                last = {event.step: make_ndarray(event.tensor_proto).item() for event in events.Tensors(tag)}
                history[tag] = [(step, last[step]) for step in sorted(last)]
        return history


@dataclass(frozen=True)
class Suite:
    """Runs to compare. directory: where the comparison is written. variants: their names, the baseline first. runs: sorted by
    variant, then by seed. listed: whether the user listed the runs, which may differ in any way."""

    directory: Path
    name: str
    variants: list[str]
    runs: list[Run]
    listed: bool = False

    def of(self, variant: str) -> list[Run]:
        return [run for run in self.runs if run.variant == variant]

    def base_of(self, run: Run) -> Run:
        """Returns the baseline run to compare `run` with: the one with the same seed, or the first if there is none."""
        runs = self.of(self.variants[0])
        return next((base for base in runs if base.seed == run.seed), runs[0])

    def differences(self) -> dict[str, list[Any]]:
        """Returns what differs between variants, as a list of one value per variant: the commits and, of listed runs and of
        suites with several variants of one ablation, the seeds and the settings, by dotted key. A setting is left out if all
        variants that have it agree; the others have MISSING."""
        columns: list[dict[str, Any]] = []
        ablations = {self.of(variant)[0].config.get("variant") for variant in self.variants}
        with_settings = self.listed or len(ablations) < len(self.variants)
        for group in map(self.of, self.variants):
            commits = (run.training.get("commit") for run in group if run.training)
            # as another clone may abbreviate them: git writes more digits the more objects a clone has
            short = dict.fromkeys(commit and re.sub("^([0-9a-f]{7})[0-9a-f]+", r"\1", commit) for commit in commits)
            settings = {"seed": [run.seed for run in group], **group[0].learning} if with_settings else {}
            columns.append({"commit": [*short] or MISSING, **settings})
        table = {key: [column.get(key, MISSING) for column in columns] for key in dict.fromkeys(chain.from_iterable(columns))}
        return {key: values for key, values in table.items() if len({repr(value) for value in values if value != MISSING}) > 1}


def runs_in(folder: Path) -> list[Run]:
    """Returns the runs of a suite, finished or not: its published rows, then the directories of runs without a row."""
    path = folder / ROWS
    rows = read_file(path, lambda content: [*map(json.loads, lzma.decompress(content).splitlines())]) if path.exists() else []
    runs = []
    for row in rows:
        if "counts" not in row:
            raise InputError(f"{path}: not the runs of a suite, or too old to be compared again; give another folder")
        runs.append(Run(folder / row["directory"], _complete(row["config"]), row["metrics"], row["training"], row))
    keys = {run.key for run in runs}
    directories = sorted(path.parent for path in folder.glob("*/config.yaml"))
    return runs + [run for run in map(read_run, directories) if run.key not in keys]


def read_run(directory: Path) -> Run:
    paths = [directory / name for name in ("metrics.json", "training.json")]
    metrics, training = (read_file(path) if path.exists() else {} for path in paths)
    return Run(directory, _complete(read_yaml(directory / "config.yaml")), metrics, training)


def _complete(config: dict[str, Any]) -> dict[str, Any]:
    """Adds the settings that a stored configuration is too old to have, at their defaults. One with settings that no longer
    exist stays as it is, so that it equals no new run."""
    with suppress(ValueError):
        return {**config, **RunSettings.model_validate(config).stored()}
    return config


def read_suite(directory: Path) -> Suite:
    """Reads the runs of a suite. The baseline is the variant of this name or, if there is none, the first."""
    if not (runs := runs_in(directory)):
        raise InputError(f"{directory}: not the folder of a suite; give one, or at least two finished runs")
    runs.sort(key=lambda run: run.config.get("variant") != BASELINE)
    return Suite(directory, directory.resolve().name, *_group(runs))


def read_runs(directories: Sequence[Path], output: Path) -> Suite:
    """Reads finished runs as a suite, whose directory is a folder in `output`; the first run belongs to the baseline. Raises
    InputError with a line for each run that cannot be compared."""
    paths = list(dict.fromkeys(path.resolve() for path in directories))
    if unfinished := [path for path in paths if not (path / "metrics.json").exists()]:
        raise InputError(*(f"{path}: not a finished run, since it has no metrics.json" for path in unfinished))
    variants, runs = _group([read_run(path) for path in paths])
    digest = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:6]  # of this list of runs
    return Suite(output / f"comparison-{digest}", " and ".join(variants), variants, runs, listed=True)


def _group(runs: Sequence[Run]) -> tuple[list[str], list[Run]]:
    """Groups runs that differ only in the seed as variants; equal runs belong to different ones. Returns the names of the
    variants, which are the paths of their first runs, without the seed if that is unique, and all runs in this order."""
    groups: dict[tuple[str, int], list[Run]] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for run in runs:
        _, seed, learning = run.key
        groups.setdefault((learning, seen[seed, learning]), []).append(run)
        seen[seed, learning] += 1
    firsts = [group[0] for group in groups.values()]
    parent = os.path.commonpath([run.directory.parent for run in firsts])
    paths = [os.path.relpath(run.directory, parent) for run in firsts]
    names = [path.removesuffix(f"-seed{run.seed}") for path, run in zip(paths, firsts, strict=True)]
    names = names if len({*names}) == len(names) else paths
    for name, group in zip(names, groups.values(), strict=True):
        group.sort(key=lambda run: run.seed)
        for run in group:
            run.variant = name
    return names, [*chain.from_iterable(groups.values())]
