"""What the configuration of a run may say. What is allowed stands in the signatures of what its parts configure: the models,
the readers of corpora, `Optim`, `Search`, and the few dataclasses here."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval

from entente.checkpoint import RUNTIME
from entente.config.schema import defaults, problems
from entente.data.corpora import CORPORA
from entente.data.module import TranslationData
from entente.data.tokenizer import Vocabulary
from entente.decoding.search import Search
from entente.files.names import Folder
from entente.models import MODELS
from entente.training.optim import Optim

AtLeastOne = Annotated[int, Ge(1)]
Threads = Annotated[int, Interval(ge=1, le=4096)] | None
Engine = Literal["torch", "ctranslate2"]
Quantization = Literal["int8"] | None


@dataclass(frozen=True)
class Run:
    """The settings of a run that belong to no part."""

    seed: Annotated[int, Interval(ge=0, lt=2**32)]
    name: Folder
    output_dir: str
    overfit: bool
    variant: str
    resume: str | None  # auto, or a run's directory
    also_evaluate: Sequence[Literal["alone", "mixed"]] = ()


@dataclass(frozen=True)
class TrainerSettings:
    """What Lightning's Trainer is given; how many steps, and on what."""

    max_steps: AtLeastOne
    validate_every: AtLeastOne
    suffix: str = ""
    patience: AtLeastOne | None = None
    gradient_clip: Annotated[float, Ge(0)] = 1.0
    accumulate: AtLeastOne = 1
    precision: str | int = "32-true"
    accelerator: str = "auto"
    threads: Threads = None
    log_every: AtLeastOne = 20
    limit_batches: AtLeastOne | Annotated[float, Interval(gt=0, le=1)] = 1.0


@dataclass(frozen=True)
class CheckpointSettings:
    every: AtLeastOne = 200
    keep: AtLeastOne = 2
    average: AtLeastOne = 1


@dataclass(frozen=True)
class Views:
    attention: bool = True
    attention_every: Annotated[int, Ge(0)] = 1000
    heads: Annotated[int, Ge(0)] = 32
    translations: Annotated[int, Ge(0)] = 10
    diagnosis: Annotated[int, Ge(0)] = 50


PARTS: dict[str, type] = {
    "optim": Optim,
    "trainer": TrainerSettings,
    "checkpoint": CheckpointSettings,
    "search": Search,
    "views": Views,
}


def links_need_files(src: str | None, alignments: str | None) -> None:
    """Links are of a user's own files; the grammar knows its own."""
    if alignments and not src:
        raise ValueError(f"alignments={alignments} goes with src=FILE and tgt=FILE; give these too, or leave it out")


def measured_with_attention(attention: bool, alignments: str | None, occlusion: int) -> None:
    """What is only measured with the rest of the attention."""
    if not attention and (alignments or occlusion):
        raise ValueError(f"alignments={alignments} occlusion={occlusion} need attention=true; add it, or leave them out")


def quantized_by_ctranslate2(engine: str, quantization: str | None) -> None:
    """torch computes in the precision that the model has."""
    if quantization and engine != "ctranslate2":
        raise ValueError(f"quantization={quantization} goes with engine=ctranslate2; add it, or leave quantization out")


@dataclass(frozen=True)
class Evaluate:
    """configs/evaluate.yaml; a part `search` stands beside it, as with the next."""

    checkpoint: str
    split: str | Sequence[str]
    src: str | None
    tgt: str | None
    attention: bool
    alignments: str | None
    occlusion: Annotated[int, Ge(0)]
    trust_data: bool
    output: str | None
    output_dir: str
    accelerator: str
    threads: Threads
    engine: Engine
    quantization: Quantization

    relations = (links_need_files, measured_with_attention, quantized_by_ctranslate2)


@dataclass(frozen=True)
class Translate:
    checkpoint: str
    input: str | None
    output: str | None
    output_dir: str
    accelerator: str
    threads: Threads
    engine: Engine
    quantization: Quantization

    relations = (quantized_by_ctranslate2,)


@dataclass(frozen=True)
class Attention:
    checkpoint: str | Sequence[str]
    sentence: str
    target: str | None
    beam: Annotated[int, Interval(ge=1, le=1000)]
    pair: str | None
    trust_data: bool
    kind: Literal["encoder", "decoder", "cross", "alignment"] | None
    words: bool
    layer: AtLeastOne | None
    head: AtLeastOne | None
    occlusion: bool
    output: str
    output_dir: str
    threads: Threads


@dataclass(frozen=True)
class Trace:
    checkpoint: str | None
    sentence: str
    target: str | None
    kind: Literal["encoder", "decoder", "cross", "alignment"] | None
    layer: AtLeastOne | None
    head: AtLeastOne | None
    step: AtLeastOne | None
    example: bool | Literal["transformer", "birnn"]
    output: str | None
    columns: AtLeastOne | None
    output_dir: str
    threads: Threads


def problems_of(kind: type, config: Mapping[str, Any]) -> list[str]:
    """Of the configuration of a command that uses a checkpoint. A null in `search` stands for what the run has."""
    own = {key: value for key, value in config.items() if key != "search"}
    if kind not in (Attention, Trace) and "search" not in config:
        return ["search: no such part in the configuration; leave it in"]
    search = config.get("search", {})
    if isinstance(search, Mapping):
        search = {key: value for key, value in search.items() if value is not None}
    return problems(kind, "", own) + problems(Search, "search", search)


def problems_of_run(config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with it, one line each."""
    if missing := [part for part in (*PARTS, "model", "data") if part not in config]:
        return [f"{', '.join(missing)}: no such part in the configuration; leave it in"]
    own = {key: value for key, value in config.items() if key not in {*PARTS, "model", "data"}}
    found = problems(Run, "", own)
    for part, kind in PARTS.items():
        found += problems(kind, part, config.get(part, {}))
    found += _named(MODELS, "model", config["model"], RUNTIME)
    return found + problems_of_data(config["data"])


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """With the defaults of what is left out, at the top and in its parts."""
    parts = {part: {**defaults(kind), **config[part]} for part, kind in PARTS.items() if part in config}
    return {**defaults(Run), **config, **parts}


def problems_of_data(data: object) -> list[str]:
    """Of the part that names a corpus and says how it is cut into pieces and batches."""
    found = _named(CORPORA, "data", data, beside=("tokenizer", "batch"))
    if not isinstance(data, Mapping):
        return found
    found += problems(Vocabulary.train, "data.tokenizer", data.get("tokenizer", {}), {"corpus_train", "cache_dir"})
    given = {"corpus", "vocabulary", "seed", "overfit", "cache_dir", "limit_batches"}
    found += problems(TranslationData, "data.batch", data.get("batch", {}), given)
    return found


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
