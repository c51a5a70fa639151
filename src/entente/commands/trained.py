"""Defines the settings that commands for trained checkpoints share, and creates the search and the engine that they select."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import doc

from entente import checkpoint
from entente.config.schema import fill, problems
from entente.decoding.ctranslate2 import CTranslate2
from entente.decoding.search import Search
from entente.errors import InputError
from entente.process import Threads

TrustData = Annotated[bool, doc("allow reading the corpus files or URLs named in the checkpoint; not needed for data=grammar")]
OutputDir = Annotated[str, doc("folder of the runs")]


def check_quantization_engine(engine: str, quantization: str | None) -> None:
    """Raises ValueError if quantization is set for the engine torch, which computes in the model's own precision."""
    if quantization and engine != "ctranslate2":
        raise ValueError(f"quantization={quantization} needs engine=ctranslate2; add it, or leave quantization out")


def check_search(search: Mapping[str, Any]) -> None:
    """Checks the search settings that are not null. Raises InputError with every problem found."""
    if isinstance(search, Mapping) and (found := problems(Search, "search", _given(search))):  # if left out, it is not
        raise InputError(*found)


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The settings of every command that decodes with a checkpoint. In `search`, null means the value in the run's
    configuration."""

    checkpoint: Annotated[str, doc("checkpoint file, or a run's directory, whose best checkpoint is used")]
    accelerator: Annotated[str, doc("device to run on, as named by Lightning: auto, cpu, gpu, ...")] = "auto"
    threads: Threads = None
    engine: Annotated[
        Literal["torch", "ctranslate2"],
        doc("ctranslate2 is faster, but supports only Transformers on a CPU, and needs pip install 'entente[engines]'"),
    ] = "torch"
    quantization: Annotated[Literal["int8"] | None, doc("type of the weights with engine=ctranslate2; null: float32")] = None
    search: Mapping[str, Any] = field(default_factory=dict)

    relations: ClassVar[tuple[Callable[..., None], ...]] = (check_quantization_engine, check_search)


def search_and_engine(run: checkpoint.Run, settings: Decoding) -> tuple[Search, CTranslate2 | None]:
    """Returns the search settings for a checkpoint, and the CTranslate2 engine, or None if torch translates."""
    how = fill(Search, "search", {**run.config.get("search", {}), **_given(settings.search)})
    return how, CTranslate2(run, how, settings.quantization) if settings.engine == "ctranslate2" else None


def _given(search: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in search.items() if value is not None}
