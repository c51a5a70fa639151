"""What a suite of runs left behind, read back.

SUITE/suite.yaml       variants (the first is what others are compared with), seeds, and how it was made
      status.json      what became of each run
      VARIANT-seedN/   a run's directory as training writes it; of a run that did not finish, less, or nothing

A published suite is one without weights and events: history.json holds what the events did, and sources and references, the
same for all runs, stand once in SUITE/translations/.
"""

import json
import logging
import math
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from annotated_types import MinLen
from pydantic import BaseModel, TypeAdapter, ValidationError

from entente.errors import InputError
from entente.files import Name, is_stream, read_yaml, small_file, writable, write_text

T = TypeVar("T")
Curves = dict[str, list[tuple[int, float]]]

KEPT = ("config.yaml", "metrics.json", "training.json", "proof.json")  # of a run that is published
DIGITS = 6  # significant, of the values of a curve; events hold 32 bit numbers, which have no more that mean anything
ASPECTS = {  # of why/ASPECT/PLACE, which may explain a failure: whether its axis is logarithmic
    "gradient_norm": True,
    "update_ratio": False,
    "update_cosine": False,
    "position_cosine": False,
    "attention_entropy": False,
    "score_variance": True,
}


@dataclass(frozen=True)
class Bucket:
    """The sentences of one source length; words: "6-10" or "51+"."""

    words: str
    sentences: int
    bleu: float


@dataclass(frozen=True)
class Scores:
    """Of one split. nll: nats per reference token."""

    bleu: float
    chrf: float | None = None
    nll: float | None = None
    signature: dict[str, str] = field(default_factory=dict)
    bleu_by_source_length: list[Bucket] = field(default_factory=list)


@dataclass(frozen=True)
class Training:
    """unigram_nll: nats per target token of a model that knows only how often each piece occurs."""

    parameters: int
    tokens_per_second: float
    unigram_nll: float | None = None


@dataclass(frozen=True)
class Status:
    state: str = "waiting"
    message: str | None = None


class Proof(BaseModel, extra="allow"):
    """proof.json. differs: aspects, each of which is a key too, and says how."""

    differs: list[str] = []


@dataclass(frozen=True)
class Run:
    """One variant trained from one seed. metrics: by split; None for a run that did not finish. proof: of each aspect in which
    it differs from the baseline before training, how."""

    variant: str
    seed: int
    directory: Path
    state: str
    message: str
    config: dict[str, Any]
    metrics: dict[str, Scores] | None
    training: Training | None
    proof: dict[str, str]

    @cached_property
    def curves(self) -> Curves:
        return history(self.directory)

    def scores(self, split: str) -> Scores | None:
        return (self.metrics or {}).get(split)

    def translations(self, split: str) -> dict[str, list[str]]:
        """source, reference and translation of a split, each in the corpus' order."""
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
            reason = f"{path}: cannot be read ({_reason(error)}); restore it, or train {self.directory} again"
            raise InputError(reason) from error
        return found


@dataclass(frozen=True)
class Settings:
    """suite.yaml. overrides: that all runs have; about: what each ablation's file says of itself; commands: as typed."""

    variants: Annotated[list[Name], MinLen(1)]
    seeds: Annotated[list[int], MinLen(1)]
    name: str = ""
    overrides: list[str] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Suite:
    """runs: by variant, then seed, in the order of suite.yaml. command: how it was made, as it was typed."""

    name: str
    directory: Path
    variants: list[str]
    seeds: list[int]
    runs: list[Run]
    about: dict[str, str]
    command: str

    def of(self, variant: str) -> list[Run]:
        return [run for run in self.runs if run.variant == variant]


def read_suite(directory: Path) -> Suite:
    """An InputError where it is none, or a file of it cannot be read. A run of which nothing is there is one that waits."""
    settings = settings_of(directory)
    if settings is None:
        raise InputError(f"{directory}: no suite, it has no suite.yaml; give the directory of one")
    states = _read(directory / "status.json", dict[str, Status]) or {}
    runs = []
    for name, variant, seed in ((f"{v}-seed{s}", v, s) for v in settings.variants for s in settings.seeds):
        folder = directory / name
        status = states.get(name, Status())
        metrics = _read(folder / "metrics.json", dict[Name, Scores])
        config = _read(folder / "config.yaml", dict[str, Any]) or {}
        training = _read(folder / "training.json", Training)
        said = _read(folder / "proof.json", Proof)
        proof = {aspect: str((said.model_extra or {}).get(aspect, "")) for aspect in said.differs} if said else {}
        runs.append(Run(variant, seed, folder, status.state, status.message or "", config, metrics, training, proof))
    name, command = settings.name or directory.resolve().name, "; ".join(settings.commands)
    return Suite(name, directory, settings.variants, settings.seeds, runs, settings.about, command)


def settings_of(directory: Path) -> Settings | None:
    """None where it has no suite.yaml; an InputError where that cannot be read."""
    return _read(directory / "suite.yaml", Settings)


def history(directory: Path) -> Curves:
    """The scalars of a run by tag, each a list of (step, value): from its events, or from history.json where they were not
    kept; none where there is neither. Values are the same from both; one that is no finite number is NaN."""
    events_files = [*directory.glob("events.out.tfevents.*")]
    if odd := next((path for path in events_files if not path.is_file()), None):
        raise InputError(f"{odd}: no file, and named like one of events; remove it")
    if events_files:
        # Here, since it takes a second and published suites do without.
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it counts graphs aloud
        events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "images": 1, "tensors": 1}).Reload()
        return {tag: [(e.step, _rounded(e.value)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    stored = _read(directory / "history.json", dict[str, list[tuple[int, float | None]]]) or {}
    return {tag: [(step, _rounded(value)) for step, value in points] for tag, points in stored.items()}


def publish(suite: Suite, folder: Path) -> None:
    """Copies what is worth keeping: settings, metrics, translations and curves; no weights, no events."""
    if folder.resolve() == suite.directory.resolve():
        raise InputError(f"publish={folder}: this is the suite itself; give another folder")
    with writable(f"publish={folder}", "folder"):
        shutil.rmtree(folder / "translations", ignore_errors=True)  # of an earlier publication
        for run in suite.runs:
            _publish_run(run, folder / run.directory.name)
        _copy("status.json", suite.directory, folder)
        settings = yaml.safe_load((suite.directory / "suite.yaml").read_text(encoding="utf-8"))
        named = yaml.safe_dump({"name": suite.name, **settings}, sort_keys=False, allow_unicode=True)
        write_text(folder / "suite.yaml", named)  # last: a folder that has it is a suite


def _publish_run(run: Run, target: Path) -> None:
    shutil.rmtree(target / "translations", ignore_errors=True)
    for name in (*KEPT, "history.json"):
        (target / name).unlink(missing_ok=True)  # of an earlier publication
        _copy(name, run.directory, target)
    for path in sorted((run.directory / "translations").glob("*.tsv")):
        columns = run.translations(path.stem)
        shared, common = target.parent / "translations" / path.name, {name: columns[name] for name in ("source", "reference")}
        if not shared.exists():
            _write_columns(shared, common)
        if _columns(shared) == common:
            columns = {"translation": columns["translation"]}
        _write_columns(target / "translations" / path.name, columns)
    if run.curves:
        curves = {tag: [(step, v if math.isfinite(v) else None) for step, v in points] for tag, points in run.curves.items()}
        write_text(target / "history.json", json.dumps(curves) + "\n")


def _copy(name: str, source: Path, target: Path) -> None:
    """Copies a file that need not exist."""
    if (source / name).exists():
        write_text(target / name, (source / name).read_text(encoding="utf-8"))


def _columns(path: Path) -> dict[str, list[str]]:
    """A file of columns under their headings; ValueError where a line has not one for each."""
    if is_stream(path):
        raise ValueError("a pipe or a device, no file")
    head, *lines = path.read_bytes().decode().removesuffix("\n").split("\n")  # a lone \r is part of a sentence
    names = head.split("\t")
    rows = [line.split("\t") for line in lines]
    if odd := next((i for i, row in enumerate(rows, start=2) if len(row) != len(names)), None):
        raise ValueError(f"line {odd} has not {len(names)} columns")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _write_columns(path: Path, columns: dict[str, list[str]]) -> None:
    rows = zip(*columns.values(), strict=True)
    write_text(path, "\n".join(["\t".join(columns), *map("\t".join, rows)]) + "\n")


def _read(path: Path, kind: type[T]) -> T | None:
    """The content of a JSON or YAML file, judged; None where there is no such file."""
    try:
        if path.suffix == ".yaml":
            return TypeAdapter(kind).validate_python(read_yaml(path))
        return TypeAdapter(kind).validate_json(small_file(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read ({_reason(error)}); restore it, or remove it and run again") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
    return getattr(error, "strerror", None) or (str(error).strip() or type(error).__name__).splitlines()[0]


def _rounded(value: float | None) -> float:
    return float(f"{value:.{DIGITS}g}") if value is not None and math.isfinite(value) else math.nan
