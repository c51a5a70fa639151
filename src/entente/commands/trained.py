"""A trained checkpoint, ready for a command: checked, on an accelerator, with the corpus that it names."""

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
from entente.training.settings import PARTS, TrainerSettings, completed, problems_of_data
from entente.training.train import refused_by_lightning

log = logging.getLogger("entente")

TrustData = Annotated[bool, doc("read the files or the address that the checkpoint names as its corpus (data=grammar: none)")]
OutputDir = Annotated[str, doc("folder of the runs")]


def quantized_by_ctranslate2(engine: str, quantization: str | None) -> None:
    """torch computes in the precision that the model has."""
    if quantization and engine != "ctranslate2":
        raise ValueError(f"quantization={quantization} goes with engine=ctranslate2; add it, or leave quantization out")


def known_to_search(search: Mapping[str, Any]) -> None:
    """Raises InputError with all that is wrong in the settings of search that are given."""
    if isinstance(search, Mapping) and (found := problems(Search, "search", _given(search))):
        raise InputError(*found)


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The settings of every command that decodes with a checkpoint. search: null stands for the run's own value."""

    checkpoint: Annotated[str, doc("a file, or a run's directory (its best checkpoint)")]
    output_dir: OutputDir = "outputs"
    accelerator: Annotated[str, doc("as Lightning names them: auto, cpu, gpu, ...")] = "auto"
    threads: Threads = None
    engine: Annotated[
        Literal["torch", "ctranslate2"],
        doc("ctranslate2: a Transformer on the CPU, faster; needs pip install 'entente[engines]'"),
    ] = "torch"
    quantization: Annotated[Literal["int8"] | None, doc("with engine=ctranslate2; null: float32")] = None
    search: Mapping[str, Any] = field(default_factory=dict)

    relations: ClassVar[tuple[Callable[..., None], ...]] = (quantized_by_ctranslate2, known_to_search)


def load_decoder(settings: Decoding) -> tuple[checkpoint.Run, Search, CTranslate2 | None]:
    """The checkpoint, how to decode, and the engine that translates in torch's place, if any."""
    prepare_process(settings.threads)
    run = load_run(settings.checkpoint, settings.accelerator)
    how = fill(Search, "search", {**run.config["search"], **_given(settings.search)})
    return run, how, CTranslate2(run, how, settings.quantization) if settings.engine == "ctranslate2" else None


def _given(search: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in search.items() if value is not None}


def stored_corpus(run: checkpoint.Run, path: str, trusted: bool, setting: str = "trust_data") -> Corpus:
    """The corpus that a checkpoint names. Its author chose the files and addresses, so these are read or fetched only where
    the user says so, by `setting`."""
    if places := describe_sources(run.config["data"]):
        if not trusted:
            raise InputError(f"checkpoint={path}: add {setting}=true to read the corpus that this checkpoint names: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.config["data"])


def load_run(path: str, accelerator: str) -> checkpoint.Run:
    """A checkpoint with a complete configuration, as far as it is asked for here, and on an accelerator that is there."""
    run = checkpoint.load(path)
    if missing := ", ".join(part for part in ("data", "search", "trainer") if part not in run.config):
        raise InputError(f"{path}: its configuration has no part {missing}; give a checkpoint that training wrote here")
    wrong = problems_of_data(run.config["data"])
    for part in ("search", "trainer"):
        wrong += problems(PARTS[part], part, run.config[part])
    if wrong:
        raise InputError(*(f"{path}: in its configuration, {problem}" for problem in wrong))
    run.config.update(completed(run.config))
    if refused := refused_by_lightning(TrainerSettings(**{**run.config["trainer"], "accelerator": accelerator}), part=""):
        raise InputError(*refused)
    return run
