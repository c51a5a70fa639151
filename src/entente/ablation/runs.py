"""Reads a suite of runs, or any finished runs so that they can be compared like the variants of a suite.

SUITE/suite.yaml       variants (the first is the baseline), seeds, overrides, and the commands as typed
      status.json      the state of each run
      VARIANT-seedN/   a run's directory as training writes it; incomplete or absent if the run did not finish
"""

import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import MinLen
from pydantic import BaseModel, TypeAdapter, ValidationError
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from entente import files
from entente.config.schema import MISSING, flat
from entente.errors import InputError, reason
from entente.files import LONGEST_NAME, Name

T = TypeVar("T")
Curves = dict[str, list[tuple[int, float]]]

DIGITS = 6  # significant digits of a curve's values, which TensorBoard events store as float32
# Measurements that may explain a failure, logged as tensors why/ASPECT/PLACE. Those in LOGARITHMIC are drawn on a log axis.
DIAGNOSTICS = ("gradient_norm", "update_ratio", "update_cosine", "position_cosine", "attention_entropy", "score_variance")
LOGARITHMIC = ("gradient_norm", "score_variance")
# Settings that comparisons ignore: names, output, logging and hardware. The seed is compared separately.
IGNORED: tuple[str, ...] = ("seed", "name", "output_dir", "variant", "also_evaluate", "views.")
IGNORED += ("checkpoint.every", "checkpoint.keep")
IGNORED += ("trainer.suffix", "trainer.accelerator", "trainer.threads", "trainer.log_every")


class Bucket(BaseModel):
    words: str  # range of source lengths in words, such as "6-10" or "51+"
    bleu: float


class Scores(BaseModel):
    """The scores of one split."""

    bleu: float
    chrf: float | None = None
    nll: float | None = None  # nats per reference token
    signature: dict[str, str] = {}
    bleu_by_source_length: list[Bucket] = []


class Training(BaseModel):
    steps: int = 0
    seconds: float = 0.0
    parameters: int
    tokens_per_second: float
    unigram_nll: float | None = None  # validation loss of a unigram model, in nats per target token


class Proof(BaseModel, extra="allow"):
    differs: list[str] = []  # aspects that differ; an extra field for each aspect describes the difference in words


class Translations(BaseModel):
    """The columns of translations/SPLIT.tsv, in the order of the corpus."""

    source: list[str]
    reference: list[str]
    translation: list[str]


FILES: dict[str, Any] = {  # the files of a run, and the types of their contents
    "config.yaml": dict[str, Any],
    "metrics.json": dict[Name, Scores],
    "training.json": Training,
    "proof.json": Proof,
}


class Status(BaseModel):
    """An entry of status.json."""

    state: str = "waiting"
    message: str = ""
    code: str = ""  # a digest of the code that trained the run


class Settings(BaseModel):
    """The content of suite.yaml."""

    variants: Annotated[list[Name], MinLen(1)]
    seeds: Annotated[list[int], MinLen(1)]
    overrides: list[str] = []  # Hydra overrides for all runs
    about: dict[str, str] = {}  # the header comment of each variant's ablation file
    commands: list[str] = []  # the command lines that trained the suite, as typed


@dataclass
class Run:
    """One variant trained with one seed. metrics: the scores of each split, or {} if the run has not finished."""

    variant: str
    seed: int
    directory: Path
    status: Status
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Scores] = field(default_factory=dict)
    training: Training | None = None
    proof: Proof = field(default_factory=Proof)

    @property
    def test_splits(self) -> list[str]:
        return [split for split in self.metrics if split != "valid" and "@" not in split]

    @cached_property
    def history(self) -> Curves:
        """The run's scalars and diagnostics by tag, as lists of (step, value). Values that are not finite become NaN."""
        found = [*self.directory.glob("events.out.tfevents.*")]
        if odd := next((path for path in found if not path.is_file()), None):
            raise InputError(f"{odd}: named like a TensorBoard event file, but not a file; remove it")
        if not found:
            return {}
        logging.getLogger("tensorboard").setLevel(logging.ERROR)  # suppress warnings about repeated graph events
        events = EventAccumulator(str(self.directory), size_guidance={"scalars": 0, "images": 1, "tensors": 0}).Reload()
        tags = events.Tags()
        curves = {tag: [(event.step, _rounded(event.value)) for event in events.Scalars(tag)] for tag in tags["scalars"]}
        for tag in tags["tensors"]:
            if tag.startswith("why/"):  # TensorBoard does not purge tensors when a run resumes, so a step's last value counts
                last = {event.step: make_ndarray(event.tensor_proto).item() for event in events.Tensors(tag)}
                curves[tag] = [(step, _rounded(last[step])) for step in sorted(last)]
        return curves

    def by_minutes(self, tag: str) -> list[tuple[float, float]]:
        """Returns a curve of `history` with steps converted to minutes at mean speed, or [] if the run has not finished."""
        if self.training is None or not self.training.steps:
            return []
        minutes = self.training.seconds / self.training.steps / 60
        return [(step * minutes, value) for step, value in self.history.get(tag, [])]

    def measured(self, aspect: str) -> Curves:
        """Returns the curves of `aspect`, one of DIAGNOSTICS, by part of the model. Values that cannot be drawn are left out,
        and so are parts without any other values."""
        lowest = 0.0 if aspect in LOGARITHMIC else -math.inf
        curves = {tag.split("/")[2]: points for tag, points in self.history.items() if tag.startswith(f"why/{aspect}/")}
        found = {place: [(step, v) for step, v in points if lowest < v < math.inf] for place, points in curves.items()}
        return {place: points for place, points in found.items() if points}


@dataclass(frozen=True)
class Suite:
    """A suite read from disk, or finished runs that are compared like a suite. runs: sorted by variant, then by seed, both in
    the order of `settings`. given: "" for a suite, or a name for finished runs, whose settings may differ in any way."""

    directory: Path
    settings: Settings
    runs: list[Run]
    given: str = ""

    @property
    def name(self) -> str:
        return self.given or self.directory.resolve().name

    def of(self, variant: str) -> list[Run]:
        return [run for run in self.runs if run.variant == variant]

    def base_of(self, run: Run) -> Run:
        """Returns the baseline run to compare `run` with: the one with the same seed, or the first if there is none."""
        runs = self.of(self.settings.variants[0])
        return next((base for base in runs if base.seed == run.seed), runs[0])

    def translations(self, split: str, runs: Sequence[Run]) -> list[Translations]:
        """Returns each run's translations of a split. Raises InputError if a file is missing or two runs' sentences differ."""
        found: list[Translations] = []
        for run in runs:
            path = run.directory / "translations" / f"{split}.tsv"
            if (own := read(path, Translations)) is None:
                raise InputError(f"{path}: no such file; restore it, or remove {run.directory} and train the run again")
            found.append(own)
            if (own.source, own.reference) != (found[0].source, found[0].reference):
                raise InputError(
                    f"{run.directory}: its {split} sentences are not those of {runs[0].directory}; "
                    "compare runs on the same corpus"
                )
        return found

    def differences(self) -> dict[str, list[Any]]:
        """Returns the settings that differ between variants: a list of one value per variant, by dotted key. The value is
        MISSING if the variant has no such setting. A setting is left out if all variants that have it agree."""
        each = [_learning_settings(self.of(variant)[0]) for variant in self.settings.variants]
        seeds = [[run.seed for run in self.of(variant)] for variant in self.settings.variants]
        found = {key: [own.get(key, MISSING) for own in each] for key in dict.fromkeys(chain.from_iterable(each))}
        found = {"seed": [own[0] if len(own) == 1 else own for own in seeds], **found}
        known = {key: [value for value in values if value != MISSING] for key, values in found.items()}
        return {key: values for key, values in found.items() if any(value != known[key][0] for value in known[key])}

    def warnings(self) -> list[str]:
        """Returns a line for each variant that differs from the baseline in more than one setting."""
        lines, found = [], self.differences()
        for i, variant in enumerate(self.settings.variants):
            keys = [k for k, values in found.items() if values[i] != values[0] and MISSING not in (values[i], values[0])]
            if len(keys) > 1:
                differs = f"{variant} differs from {self.settings.variants[0]} in {len(keys)} settings ({', '.join(keys)})"
                lines.append(f"{differs}; its scores show the effect of all of them together")
        return lines


def read_suite(directory: Path) -> Suite:
    """Reads a suite. A run not in status.json is waiting. Raises InputError if suite.yaml is missing or a file is invalid."""
    settings = read(directory / "suite.yaml", Settings)
    if settings is None:
        raise InputError(f"{directory}: not a suite, since it has no suite.yaml; give a suite, or at least two finished runs")
    status = read(directory / "status.json", dict[str, Status]) or {}
    folders = {
        (variant, seed): directory / f"{variant}-seed{seed}" for variant, seed in product(settings.variants, settings.seeds)
    }
    runs = [_read_run(folder, *key, status.get(folder.name, Status())) for key, folder in folders.items()]
    return Suite(directory, settings, runs)


def read_runs(directories: Sequence[Path], output: Path) -> Suite:
    """Reads finished runs as a suite; the first run belongs to the baseline. Runs that differ only in the seed form a variant.
    The suite's directory is a folder in `output`. Raises InputError with a line for each run that cannot be compared."""
    found: list[Run] = []
    problems = []
    for directory in directories:
        if os.path.exists(directory / "suite.yaml"):
            problems.append(f"{directory}: is a suite; give it alone, or give the directories of its runs")
        elif not os.path.exists(directory / "config.yaml"):
            problems.append(f"{directory}: not a run, since it has no config.yaml; give the directory of a finished run")
        elif not os.path.exists(directory / "metrics.json"):
            problems.append(f"{directory}: not finished, since it has no metrics.json; resume it with train resume={directory}")
        elif any(directory.samefile(run.directory) for run in found):
            problems.append(f"{directory}: given twice; leave one out")
        else:
            run = _read_run(directory, "", -1, Status(state="finished"))
            found.append(run)
            if not isinstance(run.config.get("seed"), int):
                problems.append(f"{directory / 'config.yaml'}: its seed is not a number; restore the file")
                continue
            run.seed = run.config["seed"]
            base, splits = found[0].directory, found[0].test_splits
            if not splits and run is found[0]:
                problems.append(f"{directory}: has no scores on a test set; give a run whose corpus has a test set")
            elif splits and splits[0] not in run.metrics:
                problems.append(f"{directory}: not evaluated on {splits[0]}, unlike {base}; compare runs on the same corpus")
    if problems:
        raise InputError(*problems)
    rows: dict[tuple[str, int], list[Run]] = {}  # a row per variant; runs with equal settings and seeds go to different rows
    for run in found:
        learning = json.dumps(_learning_settings(run), sort_keys=True, default=str)
        again = sum(run.seed == other.seed for (same, _), row in rows.items() for other in row if same == learning)
        rows.setdefault((learning, again), []).append(run)
    names = _names([row[0].directory for row in rows.values()])
    for name, row in zip(names, rows.values(), strict=True):
        row.sort(key=lambda run: run.seed)
        for run in row:
            run.variant = name
    settings = Settings.model_construct(variants=names, seeds=sorted({run.seed for run in found}))
    name = " and ".join([names[0], *([f"{len(names) - 1} others"] if len(names) > 2 else names[1:])])
    given = "\n".join(str(directory.resolve()) for directory in directories)  # hashed, so each set of runs has its own folder
    folder = f"comparison-{name.replace(' ', '-')}"[: LONGEST_NAME // 4] + f"-{hashlib.sha256(given.encode()).hexdigest()[:6]}"
    return Suite(output / folder, settings, [*chain.from_iterable(rows.values())], given=name)


def _read_run(directory: Path, variant: str, seed: int, status: Status) -> Run:
    found: Any = {Path(name).stem: content for name, kind in FILES.items() if (content := read(directory / name, kind))}
    return Run(variant=variant, seed=seed, directory=directory, status=status, **found)


def _learning_settings(run: Run) -> dict[str, Any]:
    """Returns the settings that affect what a run learns, by dotted key. The seed is left out."""
    return {key: value for key, value in flat(run.config) if not (isinstance(value, Mapping) or key.startswith(IGNORED))}


def _names(directories: Sequence[Path]) -> list[str]:
    """Returns a short name for each directory: its path without the common prefix, and without the seed if the names stay
    distinct."""
    whole = [str(directory.resolve()) for directory in directories]
    short = [re.sub(r"-seed\d+(-\d+)?$", "", path) for path in whole]
    paths = [re.split(r"[/\\-]", path) for path in (short if len(set(short)) == len(short) else whole)]
    common = min(len(os.path.commonprefix(paths)), *(len(path) - 1 for path in paths))
    names = ["-".join(path[common:]) for path in paths]
    return names if len(set(names)) == len(names) else whole


def _read_columns(path: Path) -> dict[str, list[str]]:
    """Returns the columns of a TSV file by heading. Raises ValueError if a line has more or fewer cells than the first."""
    if files.is_stream(path):
        raise ValueError("a pipe or a device, not a file")
    lines = path.read_bytes().decode().removesuffix("\n").split("\n")  # a lone \r is part of a sentence
    rows = [line.split("\t") for line in lines]
    if odd := next((number for number, row in enumerate(rows, start=1) if len(row) != len(rows[0])), None):
        raise ValueError(f"line {odd} does not have {len(rows[0])} columns")
    return {name: column for name, *column in zip(*rows, strict=True)}


def read(path: Path, kind: type[T]) -> T | None:
    """Reads a JSON, YAML or TSV file as a `kind`. Returns None if there is no file, and raises InputError if it is invalid."""
    if not os.path.exists(path):
        return None
    try:
        if path.suffix == ".json":
            return TypeAdapter(kind).validate_json(files.read_small_file(path))
        return TypeAdapter(kind).validate_python(files.read_yaml(path) if path.suffix == ".yaml" else _read_columns(path))
    except (OSError, ValueError) as error:
        why = reason(error)
        if isinstance(error, ValidationError):  # the first line of the error's text only counts the errors
            first = error.errors()[0]
            why = ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
        raise InputError(f"{path}: cannot be read ({why}); restore it, or remove it and run again") from error


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else math.nan
