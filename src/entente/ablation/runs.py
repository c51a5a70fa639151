"""Reads the files of a suite of runs.

SUITE/suite.yaml       variants (the first is the baseline), seeds, and how the suite was made
      status.json      the state of each run
      VARIANT-seedN/   a run's directory as training writes it; incomplete or absent if the run did not finish
"""

import logging
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import MinLen
from pydantic import BaseModel, TypeAdapter, ValidationError
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from entente import files
from entente.errors import InputError, reason
from entente.files import Name

T = TypeVar("T")
Curves = dict[str, list[tuple[int, float]]]

DIGITS = 6  # significant digits kept in a curve's values, because events store them as float32
# The aspects logged as tensors why/ASPECT/PLACE, which may explain a failure; those in LOGARITHMIC have a logarithmic axis.
DIAGNOSTICS = ("gradient_norm", "update_ratio", "update_cosine", "position_cosine", "attention_entropy", "score_variance")
LOGARITHMIC = ("gradient_norm", "score_variance")


class Bucket(BaseModel):
    words: str  # range of source lengths: "6-10" or "51+"
    bleu: float


class Scores(BaseModel):
    """The scores of one split."""

    bleu: float
    chrf: float | None = None
    nll: float | None = None  # nats per reference token
    signature: dict[str, str] = {}
    bleu_by_source_length: list[Bucket] = []


class Training(BaseModel):
    parameters: int
    tokens_per_second: float
    unigram_nll: float | None = None  # nats per target token of a unigram model, which predicts pieces by frequency


class Proof(BaseModel, extra="allow"):
    differs: list[str] = []  # the aspects that differ; a further field for each aspect describes the difference in words


class Translations(BaseModel):
    """The columns of translations/SPLIT.tsv, in the order of the corpus."""

    source: list[str]
    reference: list[str]
    translation: list[str]


FILES: dict[str, Any] = {  # the files of a run and their types
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
    overrides: list[str] = []  # applied to all runs
    about: dict[str, str] = {}  # the header comment of each ablation's file
    commands: list[str] = []  # the command lines, as typed


@dataclass
class Run:
    """A run: one variant trained from one seed. metrics: the scores of each split; empty until the run has finished."""

    variant: str
    seed: int
    directory: Path
    status: Status
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Scores] = field(default_factory=dict)
    training: Training | None = None
    proof: Proof = field(default_factory=Proof)

    @cached_property
    def history(self) -> Curves:
        """The scalars and diagnoses of the run's events by tag, as (step, value); values that are not finite become NaN."""
        found = [*self.directory.glob("events.out.tfevents.*")]
        if odd := next((path for path in found if not path.is_file()), None):
            raise InputError(f"{odd}: not a file, but named like one of TensorBoard's; remove it")
        if not found:
            return {}
        logging.getLogger("tensorboard").setLevel(logging.ERROR)  # TensorBoard would log the number of graphs
        events = EventAccumulator(str(self.directory), size_guidance={"scalars": 0, "images": 1, "tensors": 0}).Reload()
        tags = events.Tags()
        curves = {tag: [(event.step, _rounded(event.value)) for event in events.Scalars(tag)] for tag in tags["scalars"]}
        for tag in tags["tensors"]:
            if tag.startswith("why/"):
                curves[tag] = [(event.step, _rounded(make_ndarray(event.tensor_proto).item())) for event in events.Tensors(tag)]
        return curves


@dataclass(frozen=True)
class Suite:
    """A suite as read from disk. runs: sorted by variant, then seed, both in the order of the settings."""

    directory: Path
    settings: Settings
    runs: list[Run]

    def of(self, variant: str) -> list[Run]:
        return [run for run in self.runs if run.variant == variant]

    def translations(self, split: str, seed: int) -> dict[str, Translations]:
        """Returns each variant's translations of a split, for one seed. Raises InputError if references differ."""
        runs = [run for run in self.runs if run.seed == seed and split in run.metrics]
        found: dict[str, Translations] = {}
        for run in runs:
            path = run.directory / "translations" / f"{split}.tsv"
            if (own := read(path, Translations)) is None:
                raise InputError(f"{path}: no such file; restore it, or remove {run.directory} and run again")
            found[run.variant] = own
            if own.reference != found[runs[0].variant].reference:
                raise InputError(f"{run.directory}: {split} is not the one in {runs[0].directory}; compare runs on one corpus")
        return found


def read_suite(directory: Path) -> Suite:
    """Reads a suite; a run without files counts as waiting. Raises InputError if suite.yaml is missing or a file is invalid."""
    settings = read(directory / "suite.yaml", Settings)
    if settings is None:
        raise InputError(f"{directory}: not a suite, since it has no suite.yaml; give the directory of a suite")
    status = read(directory / "status.json", dict[str, Status]) or {}
    runs = []
    for variant, seed in product(settings.variants, settings.seeds):
        folder = directory / f"{variant}-seed{seed}"
        found: Any = {Path(name).stem: content for name, kind in FILES.items() if (content := read(folder / name, kind))}
        runs.append(Run(variant=variant, seed=seed, directory=folder, status=status.get(folder.name, Status()), **found))
    return Suite(directory, settings, runs)


def _read_columns(path: Path) -> dict[str, list[str]]:
    """Returns the columns of a TSV file by heading. Raises ValueError if a line has more or fewer cells than headings."""
    if files.is_stream(path):
        raise ValueError("a pipe or a device, not a file")
    lines = path.read_bytes().decode().removesuffix("\n").split("\n")  # a lone \r is part of a sentence
    rows = [line.split("\t") for line in lines]
    if odd := next((number for number, row in enumerate(rows, start=1) if len(row) != len(rows[0])), None):
        raise ValueError(f"line {odd} does not have {len(rows[0])} columns")
    return {name: column for name, *column in zip(*rows, strict=True)}


def read(path: Path, kind: type[T]) -> T | None:
    """Returns the content of a JSON, YAML or TSV file as `kind`, or None if there is no file. Raises InputError if invalid."""
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
