"""A trained checkpoint, ready for a command: checked, on an accelerator, with the corpus that it names."""

import logging

from entente import checkpoint
from entente.config.schema import defaults, problems
from entente.data.corpora import Corpus, read_corpus, read_from
from entente.errors import InputError
from entente.training.settings import PARTS, problems_of_data
from entente.training.trainer import refused_by_lightning

log = logging.getLogger("entente")


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
    if refused := refused_by_lightning({**run.config["trainer"], "accelerator": accelerator}, part=""):
        raise InputError(*refused)
    return run
