"""Reads the corpus that a checkpoint names."""

from pathlib import Path

from entente.checkpoint import TrainedRun
from entente.console import log
from entente.data.corpora import Corpus, describe_sources, read_corpus
from entente.errors import InputError


def stored_corpus(run: TrainedRun, path: str, trusted: bool) -> Corpus:
    """Reads the corpus that a checkpoint names. Raises InputError if it has files or URLs, which the checkpoint's author chose,
    and `trusted` is false."""
    if places := describe_sources(run.settings.data):
        if not trusted:
            raise InputError(f"checkpoint={path}: add trust_data=true to read the corpus that this checkpoint names: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.settings.data, Path("outputs/cache"))
