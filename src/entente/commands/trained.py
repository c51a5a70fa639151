"""A trained checkpoint, ready for a command: checked, on an accelerator, with the corpus that it names."""

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import doc

from entente import checkpoint
from entente.config.schema import defaults, fill, problems
from entente.data.corpora import Corpus, read_corpus, read_from
from entente.decoding.search import Search
from entente.errors import InputError
from entente.training.settings import PARTS, TrainerSettings, problems_of_data
from entente.training.train import refused_by_lightning

log = logging.getLogger("entente")

Checkpoint = Annotated[str, doc("a file, or a run's directory (its best checkpoint)")]
TrustData = Annotated[
    bool, doc("read the files, or fetch from the address, that the checkpoint names as its corpus (data=grammar has none)")
]
OutputDir = Annotated[str, doc("folder of the runs")]
Accelerator = Annotated[str, doc("as Lightning names them: auto, cpu, gpu, ...")]
EngineName = Annotated[
    Literal["torch", "ctranslate2"], doc("ctranslate2: a Transformer on the CPU, faster; needs pip install 'entente[engines]'")
]
Quantization = Annotated[Literal["int8"] | None, doc("with engine=ctranslate2; null: float32")]


def quantized_by_ctranslate2(engine: str, quantization: str | None) -> None:
    """torch computes in the precision that the model has."""
    if quantization and engine != "ctranslate2":
        raise ValueError(f"quantization={quantization} goes with engine=ctranslate2; add it, or leave quantization out")


def problems_of(kind: type, config: Mapping[str, Any]) -> list[str]:
    """Of the settings of a command that decodes with a checkpoint; of `search`, a null stands for what the run has."""
    found = problems(kind, "", config)
    return found + problems(Search, "search", _given(config["search"])) if isinstance(config.get("search"), Mapping) else found


def search_of(run: checkpoint.Run, search: Mapping[str, Any]) -> Search:
    """How to decode: as the run did, except for what `search` says."""
    return fill(Search, "search", {**run.config["search"], **_given(search)})


def _given(search: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in search.items() if value is not None}


def stored_corpus(run: checkpoint.Run, path: str, trusted: bool, setting: str = "trust_data") -> Corpus:
    """The corpus that a checkpoint names. Its author chose the files and addresses, so these are read or fetched only where
    the user says so, by `setting`."""
    if places := read_from(run.config["data"]):
        if not trusted:
            raise InputError(f"checkpoint={path}: add {setting}=true to read the corpus that this checkpoint names: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.config["data"])


def load_run(path: str, accelerator: str) -> checkpoint.Run:
    """A checkpoint whose configuration says all that is asked of it here, on an accelerator that is there."""
    run = checkpoint.load(path)
    if missing := ", ".join(part for part in ("data", "search", "trainer") if part not in run.config):
        raise InputError(f"{path}: its configuration has no part {missing}; give a checkpoint that training wrote here")
    used = {part: PARTS[part] for part in ("search", "trainer")}
    wrong = problems_of_data(run.config["data"])
    wrong += [problem for part, kind in used.items() for problem in problems(kind, part, run.config[part])]
    if wrong:
        raise InputError(*(f"{path}: in its configuration, {problem}" for problem in wrong))
    run.config.update({part: {**defaults(kind), **run.config[part]} for part, kind in used.items()})
    trainer = fill(TrainerSettings, "trainer", {**run.config["trainer"], "accelerator": accelerator})
    if refused := refused_by_lightning(trainer, part=""):
        raise InputError(*refused)
    return run
