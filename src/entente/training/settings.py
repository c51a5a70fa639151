"""The configuration of a run as a typed object; `model` and `data` stay mappings. Each part is described by the signature
that it configures."""

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
from entente.process import Threads
from entente.training.run_directory import CheckpointSettings
from entente.training.translator import Optim
from entente.training.views import Views

TOKENIZER_GIVEN = {"corpus_train", "cache_dir"}  # arguments that the program supplies
BATCH_GIVEN = {"corpus", "vocabulary", "seed", "overfit", "limit_batches"}
# What a setting meant before configurations were stored with it, where that is not its default.
OLD_DEFAULTS = {"optim": {"decay_from": 0}}


@dataclass(frozen=True)
class TrainerSettings:
    """What Lightning's Trainer is given; how many steps, and on what."""

    suffix: Annotated[str, doc("of the run's name")] = ""
    max_steps: Annotated[AtLeastOne, doc("optimiser steps")] = 1600
    validate_every: Annotated[AtLeastOne, doc("steps")] = 400
    patience: Annotated[AtLeastOne | None, doc("validations without a better BLEU before training stops; null: never")] = None
    gradient_clip: Annotated[float, Ge(0), doc("norm of the whole gradient; 0: never")] = 1.0
    accumulate: Annotated[AtLeastOne, doc("batches per step")] = 1
    precision: Annotated[str | int, doc("as Lightning names them: bf16-mixed, 16-mixed, 64-true, ...")] = "32-true"
    accelerator: Annotated[str, doc("as Lightning names them: auto, cpu, gpu, ...")] = "auto"
    threads: Threads = None
    log_every: Annotated[AtLeastOne, doc("steps")] = 20
    limit_batches: Annotated[
        AtLeastOne | Annotated[float, Interval(gt=0, le=1)], doc("of validation and tests: a share, or a number of batches")
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """model and data: `name` chooses the signature that describes the other settings."""

    seed: Annotated[int, Interval(ge=0, lt=2**32), doc("of the initial weights, the order of batches and dropout")] = 1
    name: Annotated[Folder, doc("directory of the run; -overfit is added where that is so")]
    output_dir: Annotated[str, doc("folder of the runs")] = "outputs"
    overfit: Annotated[bool, doc("learn one batch by heart: a first check that a model can learn at all")] = False
    variant: Annotated[str, doc("set by each file of configs/ablation")] = "baseline"
    resume: Annotated[
        str | None, doc("auto: the newest unfinished run of this name and configuration; or a run's directory")
    ] = None
    also_evaluate: Annotated[
        Sequence[Literal["alone", "mixed"]],
        doc("decode the first test split again: one sentence per batch (alone), in batches of any lengths (mixed)"),
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
        """The settings in a configuration, with the defaults of what it leaves out. An InputError with all that is wrong."""
        if missing := [part for part in (*PARTS, "model", "data") if part not in config]:
            raise InputError(f"{', '.join(missing)}: no such part in the configuration; leave it in")
        found = problems(cls, "", {**config, "model": {}, "data": {}})
        if found := found + _problems_by_name(MODELS, "model", config["model"], RUNTIME) + data_problems(config["data"]):
            raise InputError(*found)
        values = add_defaults(config)
        return cls(**{**values, **{part: kind(**values[part]) for part, kind in PARTS.items()}})

    def stored_config(self) -> dict[str, Any]:
        """The complete configuration of the run, as config.yaml and checkpoints hold it."""
        return {key: value for key, value in asdict(self).items() if key != "resume"}


PARTS: dict[str, Any] = {field.name: field.type for field in fields(RunSettings) if is_dataclass(field.type)}


def add_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with defaults for what it leaves out; those of a resumed run are what they were when it was stored."""
    meant = OLD_DEFAULTS if config.get("resume") not in (None, "auto") else {}
    parts = {part: {**defaults(kind), **meant.get(part, {}), **config[part]} for part, kind in PARTS.items() if part in config}
    if (data := config.get("data")) is not None:
        parts["data"] = {**defaults(CORPORA[data["name"]]), "tokenizer": {}, "batch": {}, **data}
    return {**defaults(RunSettings), **config, **parts}


def data_problems(data: object) -> list[str]:
    """Of the part that names a corpus and says how it is cut into pieces and batches."""
    if not isinstance(data, Mapping):
        return problems(dict, "data", data)
    corpus = {key: value for key, value in data.items() if key not in ("tokenizer", "batch")}
    return [
        *_problems_by_name(CORPORA, "data", corpus),
        *problems(Vocabulary.train, "data.tokenizer", data.get("tokenizer", {}), TOKENIZER_GIVEN),
        *problems(TranslationData, "data.batch", data.get("batch", {}), BATCH_GIVEN),
    ]


def _problems_by_name(known: Mapping[str, Any], part: str, values: object, given: Collection[str] = ()) -> list[str]:
    """Of a part whose `name` chooses the signature that describes its other settings."""
    if not isinstance(values, Mapping):
        return problems(dict, part, values)
    if (name := str(values.get("name"))) not in known:
        return [f"{part}.name={name}: choose one of {', '.join(known)}"]
    return problems(known[name], part, {key: value for key, value in values.items() if key != "name"}, given)
