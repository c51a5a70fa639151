"""What a suite of runs left behind, read back and published.

SUITE/suite.yaml       variants (the first is the baseline), seeds, and how the suite was made
      status.json      the state of each run
      VARIANT-seedN/   a run's directory as training writes it; of a run that did not finish, less, or nothing

A published suite has no weights and no events: history.json holds the scalars of the events, and SUITE/translations/ the
sources and references, once for all runs.
"""

import json
import logging
import math
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from annotated_types import MinLen
from pydantic import BaseModel, TypeAdapter, ValidationError

from entente import files
from entente.errors import InputError, reason
from entente.files import Name

T = TypeVar("T")
Curves = dict[str, list[tuple[int, float]]]

KEPT = ("config.yaml", "metrics.json", "training.json", "proof.json")  # files of a run that are published
DIGITS = 6  # significant digits of a curve's values, which events hold in 32 bits
# Scalars why/ASPECT/PLACE, which may explain a failure, and those whose axis is logarithmic.
ASPECTS = ("gradient_norm", "update_ratio", "update_cosine", "position_cosine", "attention_entropy", "score_variance")
LOGARITHMIC = ("gradient_norm", "score_variance")


class Bucket(BaseModel):
    words: str  # of the source: "6-10" or "51+"
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
    unigram_nll: float | None = None  # nats per target token of a model that knows only how often each piece occurs


class Proof(BaseModel, extra="allow"):
    differs: list[str] = []  # aspects, each of which is also a key whose value says how


class Status(BaseModel):
    """An entry of status.json."""

    state: str = "waiting"
    message: str | None = None
    code: str = ""  # a digest of the code that trained the run


class Settings(BaseModel):
    """suite.yaml"""

    variants: Annotated[list[Name], MinLen(1)]
    seeds: Annotated[list[int], MinLen(1)]
    name: str = ""
    overrides: list[str] = []  # of all runs
    about: dict[str, str] = {}  # the header of each ablation's file
    commands: list[str] = []  # as typed


@dataclass(frozen=True)
class Run:
    """One variant and seed. metrics: by split, empty until it finished. proof: how it differs from the baseline, by aspect."""

    variant: str
    seed: int
    directory: Path
    status: Status
    config: dict[str, Any]
    metrics: dict[str, Scores]
    training: Training | None
    proof: dict[str, str]

    @cached_property
    def curves(self) -> Curves:
        return history(self.directory)

    def translations(self, split: str) -> dict[str, list[str]]:
        """Returns source, reference and translation of a split, each in the corpus' order."""
        path = self.directory / "translations" / f"{split}.tsv"
        try:
            columns = _columns(path)
            if "reference" not in columns:  # published
                path = self.directory.parent / "translations" / f"{split}.tsv"
                columns = {**_columns(path), **columns}
            found = {name: columns[name] for name in ("source", "reference", "translation")}
            if len(lengths := {len(column) for column in found.values()}) > 1:
                raise ValueError(f"columns of {lengths} lines")
        except (OSError, ValueError, KeyError) as error:
            remedy = f"restore it, or train {self.directory} again"
            raise InputError(f"{path}: cannot be read ({_reason(error)}); {remedy}") from error
        return found


@dataclass(frozen=True)
class Suite:
    """runs: by variant, then seed, in the order of the settings."""

    directory: Path
    settings: Settings
    runs: list[Run]

    def of(self, variant: str) -> list[Run]:
        return [run for run in self.runs if run.variant == variant]


def read_suite(directory: Path) -> Suite:
    """Raises InputError where there is no suite, or a file of it cannot be read. A run without files is waiting."""
    settings = read(directory / "suite.yaml", Settings)
    if settings is None:
        raise InputError(f"{directory}: no suite, it has no suite.yaml; give the directory of one")
    status = read(directory / "status.json", dict[str, Status]) or {}
    runs = []
    for variant, seed in ((variant, seed) for variant in settings.variants for seed in settings.seeds):
        folder = directory / f"{variant}-seed{seed}"
        metrics = read(folder / "metrics.json", dict[Name, Scores]) or {}
        config = read(folder / "config.yaml", dict[str, Any]) or {}
        training = read(folder / "training.json", Training)
        proof = read(folder / "proof.json", Proof) or Proof()
        differs = {aspect: str((proof.model_extra or {}).get(aspect, "")) for aspect in proof.differs}
        runs.append(Run(variant, seed, folder, status.get(folder.name, Status()), config, metrics, training, differs))
    settings.name = settings.name or directory.resolve().name
    return Suite(directory, settings, runs)


def history(directory: Path) -> Curves:
    """Returns the scalars of a run by tag, (step, value): from its events, else from history.json; NaN for all not finite."""
    stored: dict[str, list[tuple[int, float | None]]] | None
    if events_files := [*directory.glob("events.out.tfevents.*")]:
        if odd := next((path for path in events_files if not path.is_file()), None):
            raise InputError(f"{odd}: no file, and named like one of events; remove it")
        # Imported here, since it takes a second and published suites do without.
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it logs how many graphs it finds
        events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "images": 1, "tensors": 1}).Reload()
        stored = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    else:
        stored = read(directory / "history.json", dict[str, list[tuple[int, float | None]]])
    return {tag: [(step, _rounded(value)) for step, value in points] for tag, points in (stored or {}).items()}


def publish(suite: Suite, folder: Path) -> None:
    """Copies what is worth keeping: settings, metrics, translations and curves; no weights, no events."""
    if folder.resolve() == suite.directory.resolve():
        raise InputError(f"publish={folder}: this is the suite itself; give another folder")
    with files.writable(f"publish={folder}", "folder"):
        shutil.rmtree(folder / "translations", ignore_errors=True)  # of an earlier publication
        for run in suite.runs:
            target = folder / run.directory.name
            shutil.rmtree(target / "translations", ignore_errors=True)
            for name in (*KEPT, "history.json"):
                _copy(run.directory / name, target / name)
            for path in sorted((run.directory / "translations").glob("*.tsv")):
                columns = run.translations(path.stem)
                own = {"translation": columns.pop("translation")}
                shared = folder / "translations" / path.name
                if not shared.exists():
                    _write_columns(shared, columns)
                _write_columns(target / "translations" / path.name, own if _columns(shared) == columns else columns | own)
            if run.curves:
                finite = {tag: [(step, v if math.isfinite(v) else None) for step, v in run.curves[tag]] for tag in run.curves}
                files.write_text(target / "history.json", json.dumps(finite) + "\n")
        _copy(suite.directory / "status.json", folder / "status.json")
        settings = yaml.safe_load((suite.directory / "suite.yaml").read_text(encoding="utf-8"))
        named = yaml.safe_dump({"name": suite.settings.name, **settings}, sort_keys=False, allow_unicode=True)
        files.write_text(folder / "suite.yaml", named)  # last: a folder that has it is a suite


def _copy(source: Path, target: Path) -> None:
    """Copies a file; if there is none, removes the target, which is of an earlier publication."""
    if source.exists():
        files.write_text(target, source.read_text(encoding="utf-8"))
    else:
        target.unlink(missing_ok=True)


def _columns(path: Path) -> dict[str, list[str]]:
    """Returns the columns of a file by their headings; ValueError where a line does not have one cell for each."""
    if files.is_stream(path):
        raise ValueError("a pipe or a device, no file")
    lines = path.read_bytes().decode().removesuffix("\n").split("\n")  # a lone \r is part of a sentence
    rows = [line.split("\t") for line in lines]
    if odd := next((number for number, row in enumerate(rows, start=1) if len(row) != len(rows[0])), None):
        raise ValueError(f"line {odd} has not {len(rows[0])} columns")
    return {name: column for name, *column in zip(*rows, strict=True)}


def _write_columns(path: Path, columns: dict[str, list[str]]) -> None:
    rows = zip(*columns.values(), strict=True)
    files.write_text(path, "\n".join(["\t".join(columns), *map("\t".join, rows)]) + "\n")


def read(path: Path, kind: type[T]) -> T | None:
    """Returns the content of a JSON or YAML file as `kind`; None where there is none, InputError where it is another."""
    try:
        if path.suffix == ".yaml":
            return TypeAdapter(kind).validate_python(files.read_yaml(path))
        return TypeAdapter(kind).validate_json(files.small_file(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read ({_reason(error)}); restore it, or remove it and run again") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
    return reason(error)


def _rounded(value: float | None) -> float:
    return float(f"{value:.{DIGITS}g}") if value is not None and math.isfinite(value) else math.nan
