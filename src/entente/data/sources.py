"""Finds the texts of each kind of corpus. No text is read yet, except that files and data sets may be downloaded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import datasets
from datasets import DownloadConfig, DownloadManager

from entente.data.alignments import Gold
from entente.data.files import Columns, clean, pairs_of, read_pairs, read_parallel, rows_of
from entente.data.pairs import Pair
from entente.errors import InputError, reason
from entente.files import path_of
from entente.settings import ExtraSettings, FilesSettings, GrammarSettings, Multi30kSettings, OpusBooksSettings, TwoFiles

MULTI30K = "data/task1/raw"  # the folder that contains the text in the public repository multi30k/dataset
URL = ("http://", "https://")


class Source(NamedTuple):
    """A text. where: names it in messages. pairs: can be iterated over only once."""

    where: str
    pairs: Iterable[Pair]
    files: Sequence[Path] = ()  # those that determine the pairs, together with the settings
    weight: int = 1  # how many times an epoch contains each pair
    gold: Iterable[Gold] = ()  # the word alignments of all pairs, if they are known


Sources = dict[str, list[Source]]  # the texts of each split; only train can have several, of which all but the first are extra


def grammar(settings: GrammarSettings) -> Sources:
    """Returns pairs of the built-in French-English grammar, with gold alignments of all splits but train."""
    package = Path(str(find_spec("entente_grammar").origin)).parent  # type: ignore[union-attr]
    rules = sorted((*package.glob("*.py"), *package.glob("words/*.tsv")))

    @cache
    def derive() -> dict[str, Any]:
        from entente_grammar import splits  # imported here, since it builds the lexicon

        return splits(settings.seed, settings.train, settings.valid, settings.test)

    def pairs(split: str) -> Iterator[Pair]:
        for pair in derive()[split]:
            yield clean(pair.text(settings.src)), clean(pair.text(settings.tgt))

    def gold(split: str) -> Iterator[Gold]:
        for pair in derive()[split]:
            links = Gold(pair.spans("fr"), pair.spans("en"), pair.sure, pair.possible)
            yield links if settings.src == "fr" else links.swap_sides()

    return {
        split: [Source(f"data=grammar, {split}", pairs(split), rules, gold=() if split == "train" else gold(split))]
        for split in ("train", "valid", "test", "test_long", "test_compositional")
    }


def files(settings: FilesSettings) -> Sources:
    """Finds the user's files. Each set is two parallel files or one file of pairs. `test` may map names to sets."""
    if not settings.train:
        raise InputError("data.train is not set: give it as data.train=FILE")
    usual = Columns((settings.src, settings.tgt), (settings.columns.src, settings.columns.tgt))

    def source(text: TwoFiles | str, columns: Columns = usual, weight: int = settings.weight) -> Source:
        names = [text] if isinstance(text, str) else [text.src, text.tgt]
        paths = [path_of(settings.root or "") / path_of(name) for name in names]
        pairs = read_parallel(*paths) if len(paths) == 2 else read_pairs(paths[0], columns)
        return Source(" and ".join(map(str, paths)), pairs, paths, weight)

    tests: dict[str, Any] = {**settings.test} if isinstance(settings.test, dict) else {"test": settings.test}
    if src := tests.pop("src", None):
        tests = {"test": TwoFiles(src=src, tgt=tests.pop("tgt")), **tests}
    sources = {
        name: [source(text)] for name, text in {"train": settings.train, "valid": settings.valid, **tests}.items() if text
    }
    for extra in (settings.extra or {}).values():
        extra = ExtraSettings(file=extra) if isinstance(extra, str) else extra
        text = extra.file or TwoFiles(src=str(extra.src), tgt=str(extra.tgt))
        columns = Columns(usual.languages, (extra.columns.src, extra.columns.tgt)) if extra.columns else usual
        sources["train"].append(source(text, columns, extra.weight))
    return sources


def multi30k(settings: Multi30kSettings) -> Sources:
    """Finds Multi30k in a copy of the public repository multi30k/dataset, or in its folder data/task1/raw. Downloads are kept
    in the cache of `datasets`."""
    folder = settings.root.rstrip("/")
    is_raw = folder.endswith(MULTI30K) if folder.startswith(URL) else not path_of(f"{folder}/{MULTI30K}").is_dir()
    folder = folder if is_raw else f"{folder}/{MULTI30K}"
    sources = {}
    for name, stem in {"train": "train", "valid": "val", **{test: test for test in settings.tests}}.items():
        src, tgt = (_fetch(f"{folder}/{stem}.{language}.gz") for language in (settings.src, settings.tgt))
        sources[name] = [Source(f"{folder}/{stem}", read_parallel(src, tgt), [src, tgt])]
    return sources


def opus_books(settings: OpusBooksSettings) -> Sources:
    """Finds a translation data set that has only a training split. `path` is a name on the Hugging Face hub, a Parquet file, or
    a folder of Parquet files."""
    path, columns = path_of(settings.path), Columns((settings.src, settings.tgt))
    if not path.exists():
        return {"train": [Source(settings.path, _read_hub(settings.path, settings.subset, columns))]}
    parts = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    if not parts:
        raise InputError(f"data.path={settings.path}: there is no Parquet file in this folder")
    return {"train": [Source(settings.path, chain.from_iterable(read_pairs(part, columns) for part in parts), parts)]}


READERS: dict[str, Callable[[Any], Sources]] = {
    "grammar": grammar,
    "files": files,
    "multi30k": multi30k,
    "opus_books": opus_books,
}


def _fetch(address: str) -> Path:
    """Returns the local path of a file. If `address` is a URL, the file is downloaded first, or taken from the cache."""
    if not address.startswith(URL):
        return path_of(address)
    # Published files do not change. use_etag would ask the server for changes; without it, a second run needs no network.
    config = DownloadConfig(use_etag=False, disable_tqdm=True)
    try:
        return Path(DownloadManager(download_config=config).download(address))
    except Exception as error:  # the network, the server and the HTTP client raise errors of many types
        raise InputError(f"{address}: cannot be fetched ({reason(error.__cause__ or error)})") from None


def _read_hub(path: str, subset: str | None, columns: Columns) -> Iterator[Pair]:
    datasets.disable_progress_bars()
    try:
        items = datasets.load_dataset(path, subset, split="train")
    except Exception as error:  # the network, the hub and the loader raise errors of many types
        message = f"data.path={path} data.subset={subset}: neither a local path nor available from the hub"
        raise InputError(f"{message} ({reason(error)})") from None
    yield from pairs_of(path, rows_of(items), columns)
