"""The configuration of a run: one typed object, checked once. Each part is described by the signature that it configures."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval, doc

from entente.checkpoint import RUNTIME
from entente.config.schema import defaults, fill, problems
from entente.data.corpora import CORPORA
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.decoding.search import Search
from entente.files import Folder
from entente.models import MODELS
from entente.training.optim import Optim
from entente.training.saving import CheckpointSettings
from entente.training.trainer import TrainerSettings
from entente.training.views import Views

TOKENIZER_GIVEN = {"corpus_train", "cache_dir"}  # arguments that the program supplies
BATCH_GIVEN = {"corpus", "vocabulary", "seed", "overfit", "cache_dir", "limit_batches"}
# What a setting meant before configurations were stored with it, where that is not its default.
MEANT = {"optim": {"decay_from": 0}}


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
        """The settings that a configuration gives, with the defaults of what it leaves out; an InputError with all that is
        wrong. `problems_of_run` also checks what is in model and data."""
        return fill(cls, "", completed(config))

    def stored(self) -> dict[str, Any]:
        """The configuration of the run, complete, as config.yaml and checkpoints hold it."""
        return {key: value for key, value in asdict(self).items() if key != "resume"}


PARTS: dict[str, Any] = {field.name: field.type for field in fields(RunSettings) if is_dataclass(field.type)}


def problems_of_run(config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with it, one line each."""
    if missing := [part for part in (*PARTS, "model", "data") if part not in config]:
        return [f"{', '.join(missing)}: no such part in the configuration; leave it in"]
    found = problems(RunSettings, "", {**config, "model": {}, "data": {}})
    return found + _named(MODELS, "model", config["model"], RUNTIME) + problems_of_data(config["data"])


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the defaults of what it leaves out. A run that goes on keeps what a missing setting meant when its
    configuration was stored."""
    meant = MEANT if config.get("resume") not in (None, "auto") else {}
    parts = {part: {**defaults(kind), **meant.get(part, {}), **config[part]} for part, kind in PARTS.items() if part in config}
    return {**defaults(RunSettings), **config, **parts}


def problems_of_data(data: object) -> list[str]:
    """Of the part that names a corpus and says how it is cut into pieces and batches."""
    found = _named(CORPORA, "data", data, beside=("tokenizer", "batch"))
    if not isinstance(data, Mapping):
        return found
    found += problems(Vocabulary.train, "data.tokenizer", data.get("tokenizer", {}), TOKENIZER_GIVEN)
    return found + problems(TranslationData, "data.batch", data.get("batch", {}), BATCH_GIVEN)


def _named(
    known: Mapping[str, Callable[..., Any]],
    part: str,
    values: object,
    given: Collection[str] = (),
    beside: Collection[str] = (),
) -> list[str]:
    """Of a part whose `name` says what the other keys are arguments of, those in `beside` apart."""
    if not isinstance(values, Mapping):
        return problems(dict, part, values)
    name = str(values.get("name"))
    if name not in known:
        return [f"{part}.name={name}: choose one of {', '.join(known)}"]
    return problems(known[name], part, {key: value for key, value in values.items() if key not in ("name", *beside)}, given)
