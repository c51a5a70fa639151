"""Reads runs, from directories that training wrote or from rows that were published, and groups them into variants.

FOLDER/VARIANT-seedN/       a run's directory
       VARIANT-seedN.log    what the run printed, if `entente ablate` trained it
       runs.jsonl.gz        a JSON object per finished run, which stands for its directory, as scripts/publish.py writes them
"""

import gzip
import hashlib
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from entente import files
from entente.errors import InputError, reason
from entente.settings import MISSING
from entente.validation import flat

Curves = dict[str, list[tuple[int, float]]]

BASELINE, ROWS = "baseline", "runs.jsonl.gz"
DIGITS = 6  # significant digits of a curve's values, which TensorBoard events store as float32
# Measurements that may explain a failure, logged as tensors why/ASPECT/PLACE. Those in LOGARITHMIC are drawn on a log axis.
DIAGNOSTICS = ("gradient_norm", "update_ratio", "update_cosine", "position_cosine", "attention_entropy", "score_variance")
LOGARITHMIC = ("gradient_norm", "score_variance")
# Settings that comparisons ignore: names, output, logging and hardware. The seed is compared separately.
IGNORED: tuple[str, ...] = ("seed", "name", "output_dir", "variant", "also_evaluate", "views.")
IGNORED += ("checkpoint.every", "checkpoint.keep")
IGNORED += ("trainer.suffix", "trainer.accelerator", "trainer.threads", "trainer.log_every")


@dataclass
class Run:
    """A variant trained with one seed. metrics, training: the contents of metrics.json and training.json, or {} if the run has
    not finished. row: the line of runs.jsonl.gz if the run's directory is elsewhere."""

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
        return learning_settings(self.config)

    @property
    def key(self) -> tuple[str, int, str]:
        """Identifies the run's ablation, seed and configuration."""
        return str(self.config.get("variant")), self.seed, json.dumps(self.learning, sort_keys=True)

    @property
    def test_splits(self) -> list[str]:
        return [split for split in self.metrics if split != "valid" and "@" not in split]

    @property
    def diverged(self) -> bool:
        """Whether the run, which is one of a suite, ended because its loss was no longer finite."""
        output = self.directory.with_name(f"{self.config.get('variant')}-seed{self.seed}.log")
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines() if output.is_file() else []
        return not self.metrics and any(line.startswith("diverged: ") for line in lines[-1:])

    def translations(self, split: str) -> dict[str, list[str]]:
        """Returns the columns of translations/SPLIT.tsv: source, reference and translation, in the order of the corpus."""
        columns: dict[str, list[str]] = _read(self.directory / "translations" / f"{split}.tsv")
        if not columns:
            raise InputError(f"{self.directory}: has no translations of {split}; restore them, or train the run again")
        return columns

    def counts(self, split: str) -> tuple[list[list[int]], str]:
        """Returns sacreBLEU's counts of each sentence (both lengths, matches and totals of 1- to 4-grams), and a digest of the
        split's sources and references."""
        if self.row:
            if split not in self.row.get("counts", {}):
                raise InputError(f"{self.directory.with_name(ROWS)}: has no counts of {split}; publish the runs again")
            return self.row["counts"][split], self.row["sentences"][split]
        texts = self.translations(split)
        digest = hashlib.sha256(json.dumps([texts["source"], texts["reference"]]).encode()).hexdigest()
        return BLEU(force=True)._extract_corpus_statistics(texts["translation"], [texts["reference"]]), digest

    @cached_property
    def history(self) -> Curves:
        """The run's scalars and diagnostics by tag, as lists of (step, value). Values that are not finite become NaN."""
        if self.row:
            curves = self.row["history"].items()
            return {tag: [(step, math.nan if value is None else value) for step, value in curve] for tag, curve in curves}
        if not any(self.directory.glob("events.out.tfevents.*")):
            return {}
        logging.getLogger("tensorboard").setLevel(logging.ERROR)  # suppress warnings about repeated graph events
        events = EventAccumulator(str(self.directory), size_guidance={"scalars": 0, "images": 1, "tensors": 0}).Reload()
        tags = events.Tags()
        history = {tag: [(event.step, _rounded(event.value)) for event in events.Scalars(tag)] for tag in tags["scalars"]}
        for tag in tags["tensors"]:
            if tag.startswith("why/"):  # TensorBoard does not purge tensors when a run resumes, so a step's last value counts
                last = {event.step: make_ndarray(event.tensor_proto).item() for event in events.Tensors(tag)}
                history[tag] = [(step, _rounded(last[step])) for step in sorted(last)]
        return history

    def by_minutes(self, tag: str) -> list[tuple[float, float]]:
        """Returns a curve against minutes of training at the run's mean speed, or [] if the run has not finished."""
        minutes = self.training["seconds"] / self.training["steps"] / 60 if self.training.get("steps") else None
        return [(step * minutes, value) for step, value in self.history.get(tag, []) if minutes]

    def measured(self, aspect: str) -> Curves:
        """Returns the curves of `aspect`, one of DIAGNOSTICS, by part of the model. Values that cannot be drawn are left out,
        and so are parts without any other values."""
        lowest = 0.0 if aspect in LOGARITHMIC else -math.inf
        curves = {tag.split("/")[2]: points for tag, points in self.history.items() if tag.startswith(f"why/{aspect}/")}
        finite = {place: [(step, v) for step, v in points if lowest < v < math.inf] for place, points in curves.items()}
        return {place: points for place, points in finite.items() if points}


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
        """Returns the settings that differ between listed variants: a list of one value per variant, by dotted key. The value
        is MISSING if the variant has no such setting. A setting is left out if all variants that have it agree."""
        groups = [self.of(variant) for variant in self.variants if self.listed]
        seeds = [[run.seed for run in group] for group in groups]
        table = {"seed": [values[0] if len(values) == 1 else values for values in seeds]}
        for key in dict.fromkeys(chain.from_iterable(group[0].learning for group in groups)):
            table[key] = [group[0].learning.get(key, MISSING) for group in groups]
        present = {key: [value for value in values if value != MISSING] for key, values in table.items()}
        return {key: values for key, values in table.items() if any(value != present[key][0] for value in present[key])}

    def warnings(self) -> Iterator[str]:
        """Yields a line for each listed variant that differs from the baseline in several settings, and one if the commits of
        the runs differ."""
        for i, variant in enumerate(self.variants):
            pairs = {key: (values[0], values[i]) for key, values in self.differences().items()}
            keys = [key for key, (base, value) in pairs.items() if base != value and MISSING not in (base, value)]
            if len(keys) > 1:
                text = f"{variant} differs from {self.variants[0]} in {len(keys)} settings ({', '.join(keys)})"
                yield f"{text}; its scores show the effect of all of them together"
        commits: dict[str, Run] = {}
        for run in self.runs:
            if commit := run.training.get("commit"):
                commits.setdefault(commit, run)
        if len(commits) > 1:
            examples = ", ".join(f"{commit[:10]} ({run.variant}, seed {run.seed})" for commit, run in commits.items())
            yield f"the runs were trained at different commits, such as {examples}; differences may be due to the code"


def learning_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that affect what a run learns, by dotted key. The seed is left out."""
    return {key: value for key, value in flat(config) if not (isinstance(value, Mapping) or key.startswith(IGNORED))}


def runs_in(folder: Path) -> list[Run]:
    """Returns the runs of a suite, finished or not: its published rows, then the directories of runs that no row stands for."""
    rows = _read(folder / ROWS) or []
    names = [f"{row['variant']}-seed{row['seed']}" for row in rows]
    runs = [Run(folder / name, r["config"], r["metrics"], r["training"], r) for name, r in zip(names, rows, strict=True)]
    keys = {run.key for run in runs}
    directories = sorted(path.parent for path in folder.glob("*/config.yaml"))
    return runs + [run for run in map(read_run, directories) if run.key not in keys]


def read_run(directory: Path) -> Run:
    config, metrics, training = (_read(directory / name) for name in ("config.yaml", "metrics.json", "training.json"))
    return Run(directory, config, metrics or {}, training or {})


def read_suite(directory: Path) -> Suite:
    """Reads the runs of a suite. The baseline is the variant of this name or, if there is none, the first."""
    if not (runs := runs_in(directory)):
        raise InputError(f"{directory}: has no runs; give a suite's folder, or at least two finished runs")
    runs.sort(key=lambda run: run.config.get("variant") != BASELINE)
    return Suite(directory, directory.resolve().name, *_group(runs))


def read_runs(directories: Sequence[Path], output: Path) -> Suite:
    """Reads finished runs as a suite, whose directory is a folder in `output`; the first run belongs to the baseline. Raises
    InputError with a line for each run that cannot be compared."""
    runs: list[Run] = []
    problems = []
    for directory in dict.fromkeys(path.resolve() for path in directories):
        if not (directory / "config.yaml").exists():
            problems.append(f"{directory}: not a run, since it has no config.yaml; give the directory of a finished run")
        elif not (directory / "metrics.json").exists():
            problems.append(f"{directory}: not finished, since it has no metrics.json; resume it with train resume={directory}")
        else:
            runs.append(read_run(directory))
            if not {*runs[0].test_splits[:1]} & {*runs[-1].test_splits}:
                split = next(iter(runs[0].test_splits), "a test set")
                problems.append(f"{directory}: not evaluated on {split}; compare runs on the same corpus")
    if problems:
        raise InputError(*problems)
    variants, runs = _group(runs)
    name = " and ".join([variants[0], *([f"{len(variants) - 1} others"] if len(variants) > 2 else variants[1:])])
    paths = "\n".join(str(path.resolve()) for path in directories)  # hashed, so that each set of runs has its own folder
    folder = f"comparison-{re.sub('[ /]', '-', name)[-50:]}-{hashlib.sha256(paths.encode()).hexdigest()[:6]}"
    return Suite(output / folder, name, variants, runs, listed=True)


def _group(runs: Sequence[Run]) -> tuple[list[str], list[Run]]:
    """Groups runs that differ only in the seed as variants, and returns the names of the variants, and all runs by variant and
    seed. Runs with equal settings and equal seeds belong to different variants."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        repeats = sum(run.key[1:] == other.key[1:] for group in groups.values() for other in group)
        groups.setdefault((run.key[2], repeats), []).append(run)
    firsts = [group[0] for group in groups.values()]
    candidates = [  # the first list of names that tell the variants apart is used
        [str(run.config.get("variant")) for run in firsts],
        [re.sub(r"-seed\d+(-\d+)?$", "", run.directory.name) for run in firsts],
        [run.directory.name for run in firsts],
        [str(run.directory.resolve()) for run in firsts],
    ]
    names = next(names for names in candidates if len({*names}) == len(names))
    for name, group in zip(names, groups.values(), strict=True):
        group.sort(key=lambda run: run.seed)
        for run in group:
            run.variant = name
    return names, [*chain.from_iterable(groups.values())]


def _read(path: Path) -> Any:
    """Returns the content of a YAML, JSON, JSONL.GZ or TSV file, or None if there is no file. Raises InputError if it is not
    valid."""
    if not path.exists():
        return None
    if path.suffix == ".yaml":
        return files.read_yaml(path)
    try:
        if path.suffix == ".gz":
            return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        if path.suffix == ".json":
            return json.loads(path.read_bytes())
        lines = path.read_bytes().decode().removesuffix("\n").split("\n")  # a lone \r is part of a sentence
        return {name: column for name, *column in zip(*(line.split("\t") for line in lines), strict=True)}
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({reason(error)}); restore it, or remove it and run again") from error


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else math.nan
