"""Loads a trained checkpoint for a command: checks it and the accelerator, and reads the corpus that it names."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import doc

from entente import checkpoint
from entente.config.schema import fill, problems
from entente.data.corpora import Corpus, describe_sources, read_corpus
from entente.decoding.ctranslate2 import CTranslate2
from entente.decoding.search import Search
from entente.errors import InputError
from entente.process import Threads, prepare_process
from entente.training.settings import PARTS, TrainerSettings, add_defaults, data_problems
from entente.training.train import lightning_problems

log = logging.getLogger("entente")

TrustData = Annotated[bool, doc("read the corpus from the files or address in the checkpoint; not needed for grammar")]
OutputDir = Annotated[str, doc("folder of the runs")]


def check_quantization_engine(engine: str, quantization: str | None) -> None:
    """Raises ValueError if quantization is set for the engine torch, which computes in the model's own precision."""
    if quantization and engine != "ctranslate2":
        raise ValueError(f"quantization={quantization} needs engine=ctranslate2; add it, or leave quantization out")


def check_search(search: Mapping[str, Any]) -> None:
    """Raises InputError with every problem in the search settings that are not null."""
    if isinstance(search, Mapping) and (found := problems(Search, "search", _given(search))):
        raise InputError(*found)


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The settings of every command that decodes with a checkpoint. search: null keeps the run's own value."""

    checkpoint: Annotated[str, doc("a file, or a run's directory (its best checkpoint)")]
    output_dir: OutputDir = "outputs"
    accelerator: Annotated[str, doc("as Lightning names them: auto, cpu, gpu, ...")] = "auto"
    threads: Threads = None
    engine: Annotated[
        Literal["torch", "ctranslate2"],
        doc("ctranslate2: faster, only Transformers on the CPU; needs pip install 'entente[engines]'"),
    ] = "torch"
    quantization: Annotated[Literal["int8"] | None, doc("with engine=ctranslate2; null: float32")] = None
    search: Mapping[str, Any] = field(default_factory=dict)

    relations: ClassVar[tuple[Callable[..., None], ...]] = (check_quantization_engine, check_search)


def load_decoder(settings: Decoding, log_to_stderr: bool = False) -> tuple[checkpoint.Run, Search, CTranslate2 | None]:
    """Returns the checkpoint, the search settings, and the engine that translates instead of torch, or None."""
    prepare_process(settings.threads, log_to_stderr)
    run = load_run(settings.checkpoint, settings.accelerator)
    how = fill(Search, "search", {**run.config["search"], **_given(settings.search)})
    return run, how, CTranslate2(run, how, settings.quantization) if settings.engine == "ctranslate2" else None


def _given(search: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in search.items() if value is not None}


def stored_corpus(run: checkpoint.Run, path: str, trusted: bool, setting: str = "trust_data") -> Corpus:
    """Reads the corpus that a checkpoint names. The checkpoint's author chose its files and addresses, so they are read or
    fetched only if the user allows it (`trusted`). setting: the name of the setting that allows it."""
    if places := describe_sources(run.config["data"]):
        if not trusted:
            raise InputError(f"checkpoint={path}: add {setting}=true to read the corpus that this checkpoint names: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.config["data"])


def load_run(path: str, accelerator: str) -> checkpoint.Run:
    """Loads a checkpoint and completes its configuration. Raises InputError if a setting or the accelerator cannot be used."""
    run = checkpoint.load(path)
    if missing := ", ".join(part for part in ("data", "search", "trainer") if part not in run.config):
        raise InputError(f"{path}: its configuration lacks {missing}; give a checkpoint that this program wrote")
    wrong = data_problems(run.config["data"])
    for part in ("search", "trainer"):
        wrong += problems(PARTS[part], part, run.config[part])
    if wrong:
        raise InputError(*(f"{path}: in its configuration, {problem}" for problem in wrong))
    run.config.update(add_defaults(run.config))
    if refused := lightning_problems(TrainerSettings(**{**run.config["trainer"], "accelerator": accelerator}), part=""):
        raise InputError(*refused)
    return run
