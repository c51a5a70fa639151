"""Reads the corpus that a checkpoint names, or the user's own files instead."""

from pathlib import Path

from entente.checkpoint import TrainedRun
from entente.commands.settings import ScoringSettings
from entente.console import log
from entente.data.corpora import Corpus, corpus_of, describe_sources, read_corpus
from entente.data.files import read_parallel
from entente.data.module import TranslationData
from entente.errors import InputError
from entente.files import is_split


def stored_corpus(run: TrainedRun, path: str, trusted: bool) -> Corpus:
    """Reads the corpus that a checkpoint names. Raises InputError if it has files or URLs, which the checkpoint's author chose,
    and `trusted` is false."""
    if places := describe_sources(run.settings.data):
        if not trusted:
            rule = "add trust_data=true to read the corpus that this checkpoint names, or give your own text"
            raise InputError(f"checkpoint={path}: {rule}: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.settings.data, Path("outputs/cache"))


def scored_data(settings: ScoringSettings, run: TrainedRun) -> TranslationData:
    """Returns the corpus that the checkpoint names, or one whose only test set holds the files `src` and `tgt`."""
    if settings.src and settings.tgt:
        src, tgt = Path(settings.src), Path(settings.tgt)
        pairs = ((source, target) for _, source, target in read_parallel(src, tgt))
        corpus = corpus_of(pairs, src.name if is_split(src.name) else "own", f"{src} and {tgt}")
    else:
        corpus = stored_corpus(run, settings.checkpoint, settings.trust_data)
    batch = run.settings.data.batch.model_copy(update={"both_directions": 0})
    return TranslationData(corpus, run.vocabulary, batch)
