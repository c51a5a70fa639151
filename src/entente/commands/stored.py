"""Reads the parts of a checkpoint's configuration that do not describe its model: corpus, batches and precision. Commands
that only decode do not import this module, because it imports Lightning, which takes 2 seconds."""

import logging

from entente import checkpoint
from entente.config.schema import problems
from entente.data.corpora import Corpus, describe_sources, read_corpus
from entente.errors import InputError
from entente.training.settings import PARTS, TrainerSettings, add_defaults, data_problems
from entente.training.train import lightning_problems

log = logging.getLogger("entente")


def stored_corpus(run: checkpoint.Run, path: str, trusted: bool, setting: str = "trust_data") -> Corpus:
    """Reads the corpus that a checkpoint names. Raises InputError if the corpus has files or URLs and `trusted` is false, since
    the checkpoint's author chose them. setting: the name of the setting that allows reading them, for the error message."""
    if places := describe_sources(run.config["data"]):
        if not trusted:
            raise InputError(f"checkpoint={path}: add {setting}=true to read the corpus that this checkpoint names: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.config["data"])


def load_run(path: str, accelerator: str) -> checkpoint.Run:
    """Loads a checkpoint and completes its configuration with defaults. Raises InputError if a setting or `accelerator` is
    unusable."""
    run = checkpoint.load(path)
    if missing := ", ".join(part for part in ("data", "search", "trainer") if part not in run.config):
        raise InputError(f"{path}: its configuration lacks {missing}; give a checkpoint that this program wrote")
    wrong = data_problems(run.config["data"])
    for part in ("search", "trainer"):
        wrong += problems(PARTS[part], part, run.config[part])
    if wrong:
        raise InputError(*(f"{path}: in its configuration, {problem}" for problem in wrong))
    run.config.update(add_defaults(run.config))
    refuse_accelerator(accelerator, run.config["trainer"]["precision"])
    return run


def refuse_accelerator(accelerator: str, precision: str | int = "32-true") -> None:
    """Raises InputError unless Lightning can use the accelerator, with this precision, on this machine."""
    if refused := lightning_problems(TrainerSettings(accelerator=accelerator, precision=precision), part=""):
        raise InputError(*refused)
