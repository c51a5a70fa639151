"""What commands for checkpoints share: the corpus that a checkpoint names, and the search and engine to translate with."""

from pathlib import Path
from typing import TYPE_CHECKING

from entente.checkpoint import TrainedRun
from entente.commands.settings import DecodingSettings
from entente.console import log
from entente.decoding.ctranslate2 import CTranslate2
from entente.decoding.search import with_changes
from entente.errors import InputError
from entente.settings import SearchSettings

if TYPE_CHECKING:
    from entente.data.corpora import Corpus


def stored_corpus(run: TrainedRun, path: str, trusted: bool) -> "Corpus":
    """Reads the corpus that a checkpoint names. Raises InputError if it has files or URLs, which the checkpoint's author chose,
    and `trusted` is false."""
    from entente.data.corpora import describe_sources, read_corpus  # imports datasets, which takes half a second

    if places := describe_sources(run.settings.data):
        if not trusted:
            raise InputError(f"checkpoint={path}: add trust_data=true to read the corpus that this checkpoint names: {places}")
        log.info("reading the corpus that %s names: %s", path, places)
    return read_corpus(run.settings.data, Path("outputs/cache"))


def search_and_engine(
    run: TrainedRun, settings: DecodingSettings, defaults: SearchSettings
) -> tuple[SearchSettings, CTranslate2 | None]:
    """Returns the search settings for a checkpoint, and the CTranslate2 engine, or None if torch translates. defaults: the
    search settings that the user may change."""
    search = with_changes(defaults, settings.search.model_dump())
    return search, CTranslate2(run, search, settings.quantization) if settings.engine == "ctranslate2" else None
