"""The configuration of a run as typed objects; only `model` and `data` remain plain mappings. Each part is described by
the signature of the class or function that it configures."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval, doc

from entente.checkpoint import RUNTIME
from entente.config.schema import defaults, problems
from entente.data.corpora import CORPORA, AtLeastOne
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.decoding.search import Search
from entente.errors import InputError
from entente.files import Folder
from entente.models import MODELS
from entente.models.initialise import Seed
from entente.process import Threads
from entente.training.optimiser import Optim
from entente.training.run_directory import CheckpointSettings
from entente.training.views import Views

TOKENIZER_GIVEN = {"corpus_train", "cache_dir"}  # arguments supplied by the program, not by the configuration
BATCH_GIVEN = {"corpus", "vocabulary", "seed", "overfit", "limit_batches", "cache_dir"}


@dataclass(frozen=True)
class TrainerSettings:
    """Settings of Lightning's Trainer: how long to train, how often to validate, and on which device."""

    suffix: Annotated[str, doc("appended to the run's name")] = ""
    max_steps: Annotated[AtLeastOne, doc("optimiser steps to train for")] = 1600
    validate_every: Annotated[AtLeastOne, doc("steps between validations")] = 400
    patience: Annotated[AtLeastOne | None, doc("stop after this many validations without a better BLEU; null: never")] = None
    gradient_clip: Annotated[float, Ge(0), doc("maximum global gradient norm; 0: no clipping")] = 1.0
    accumulate: Annotated[AtLeastOne, doc("batches per optimiser step")] = 1
    precision: Annotated[str | int, doc("precision, as named by Lightning: bf16-mixed, 16-mixed, 64-true, ...")] = "32-true"
    accelerator: Annotated[str, doc("device to train on, as named by Lightning: auto, cpu, gpu, ...")] = "auto"
    devices: Annotated[AtLeastOne | Literal["auto"], doc("processes per machine, one per device; auto: all GPUs")] = 1
    num_nodes: Annotated[AtLeastOne, doc("number of machines; `devices` applies to each of them")] = 1
    strategy: Annotated[str, doc("auto or ddp; Lightning's other strategies are untested")] = "auto"
    threads: Threads = None
    log_every: Annotated[AtLeastOne, doc("steps between logged values")] = 20
    limit_batches: Annotated[
        AtLeastOne | Annotated[float, Interval(gt=0, le=1)], doc("share of each split to evaluate, or a number of batches")
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a run. `model.name` and `data.name` select the class or function that their other settings configure."""

    seed: Annotated[Seed, doc("seed for the initial weights, the order of batches and dropout")] = 1
    name: Annotated[Folder, doc("directory of the run; -overfit is appended if `overfit` is set")]
    output_dir: Annotated[str, doc("folder of the runs")] = "outputs"
    overfit: Annotated[bool, doc("memorise one batch, as a first check that a model can learn at all")] = False
    variant: Annotated[str, doc("name of the ablation, set by its file in configs/ablation")] = "baseline"
    resume: Annotated[
        str | None, doc("a run's directory, or auto: the newest unfinished run with this name and configuration")
    ] = None
    also_evaluate: Annotated[
        Sequence[Literal["alone", "mixed"]],
        doc("also decode the first test split with one sentence per batch (alone) or mixed lengths per batch (mixed)"),
    ] = ()
    optim: Optim
    trainer: TrainerSettings
    checkpoint: CheckpointSettings
    search: Search
    views: Views
    model: Mapping[str, Any]
    data: Mapping[str, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "RunSettings":
        """Returns the settings of a configuration, with defaults added. Raises InputError with the problems found."""
        if missing := [part for part in (*PARTS, "model", "data") if part not in config]:
            raise InputError(f"{', '.join(missing)}: required, but missing from the configuration")
        found = problems(cls, "", {**config, "model": {}, "data": {}})
        if found := found + _problems_by_name(MODELS, "model", config["model"], RUNTIME) + data_problems(config["data"]):
            raise InputError(*found)
        values = add_defaults(config)
        return cls(**{**values, **{part: kind(**values[part]) for part, kind in PARTS.items()}})

    def stored_config(self) -> dict[str, Any]:
        """Returns the complete configuration of the run, as stored in config.yaml and in checkpoints."""
        return {key: value for key, value in asdict(self).items() if key != "resume"}


PARTS: dict[str, Any] = {field.name: field.type for field in fields(RunSettings) if is_dataclass(field.type)}


def add_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration with defaults added."""
    parts = {part: {**defaults(kind), **config[part]} for part, kind in PARTS.items() if part in config}
    if (data := config.get("data")) is not None:
        parts["data"] = {**defaults(CORPORA[data["name"]]), "tokenizer": {}, "batch": {}, **data}
    return {**defaults(RunSettings), **config, **parts}


def data_problems(data: object) -> list[str]:
    """Returns the problems in the `data` part of a configuration, which sets the corpus, its tokenizer and its batches."""
    if not isinstance(data, Mapping):
        return problems(dict, "data", data)
    corpus = {key: value for key, value in data.items() if key not in ("tokenizer", "batch")}
    tokenizer, batch = data.get("tokenizer", {}), data.get("batch", {})
    found = [
        *_problems_by_name(CORPORA, "data", corpus),
        *problems(Vocabulary.train, "data.tokenizer", tokenizer, TOKENIZER_GIVEN),
        *problems(TranslationData, "data.batch", batch, BATCH_GIVEN),
    ]
    if not found and batch.get("bpe_dropout") and tokenizer.get("type", "bpe") != "bpe":
        setting = f"data.batch.bpe_dropout={batch['bpe_dropout']} and data.tokenizer.type={tokenizer['type']}"
        found.append(f"{setting}: only type=bpe merges pieces; leave out one of the two")
    if not found and batch.get("both_directions") and not tokenizer.get("joint", True):
        setting = f"data.batch.both_directions={batch['both_directions']} and data.tokenizer.joint=false"
        found.append(f"{setting}: both directions need one vocabulary; leave out one of the two")
    return found


def _problems_by_name(known: Mapping[str, Any], part: str, values: object, given: Collection[str] = ()) -> list[str]:
    """Returns the problems in a part whose `name` selects the class or function in `known` that the rest configures."""
    if not isinstance(values, Mapping):
        return problems(dict, part, values)
    if (name := str(values.get("name"))) not in known:
        return [f"{part}.name={name}: choose one of {', '.join(known)}"]
    return problems(known[name], part, {key: value for key, value in values.items() if key != "name"}, given)
