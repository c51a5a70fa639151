"""Finds the texts of each kind of corpus. No text is read yet, except that files and data sets may be downloaded."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
from datasets import DownloadConfig, DownloadManager

from entente.data.alignments import Gold
from entente.data.cache import name_of
from entente.data.files import Columns, clean, pairs_of, read_pairs, read_parallel, rows_of
from entente.data.pairs import Pair
from entente.errors import InputError
from entente.files import path_of, readable
from entente.settings import FilesSettings, GrammarSettings, Multi30kSettings, OpusBooksSettings, TwoFiles

MULTI30K = "data/task1/raw"  # the folder that contains the text in the public repository multi30k/dataset


@dataclass(frozen=True)
class Source:
    """A text. where: names it in messages. key: changes if the text changes. pairs: can be iterated over only once. weight: how
    many times an epoch contains each pair. gold: the word alignments of all pairs, if they are known."""

    where: str
    key: object
    pairs: Iterable[Pair]
    weight: int = 1
    gold: Iterable[Gold] = ()


Sources = dict[str, list[Source]]  # the texts of each split; only train can have several, of which all but the first are extra


def grammar(settings: GrammarSettings) -> Sources:
    """Returns pairs of the built-in French-English grammar, with gold alignments of all splits but train."""
    package = Path(str(find_spec("entente_grammar").origin)).parent  # type: ignore[union-attr]
    rules = [path.read_bytes() for path in sorted((*package.glob("*.py"), *package.glob("words/*.tsv")))]

    key = name_of(rules), settings.model_dump(exclude={"tokenizer", "batch"})

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
        split: [Source(f"data=grammar, {split}", key, pairs(split), gold=() if split == "train" else gold(split))]
        for split in ("train", "valid", "test", "test_long", "test_compositional")
    }


def files(settings: FilesSettings) -> Sources:
    """Finds the user's UTF-8 files. Each set is either two parallel files (plain or gzip, one sentence per line, in the same
    order) or one file of pairs in a format that `read_pairs` supports. `test` may map names to sets."""
    if not settings.train:
        raise InputError("data.train is not set: give it as data.train=FILE")
    columns = Columns((settings.src, settings.tgt), (settings.columns.src, settings.columns.tgt))
    sets: dict[str, Any] = {**settings.test} if isinstance(settings.test, dict) else {"test": settings.test}
    src, tgt = sets.pop("src", None), sets.pop("tgt", None)
    test = {"test": TwoFiles(src=src, tgt=tgt)} if src and tgt else {}
    texts = {"train": settings.train, "valid": settings.valid, **test, **sets}
    sources = {name: [_source(settings.root, text, columns, settings.weight)] for name, text in texts.items() if text}
    for name, extra in (settings.extra or {}).items():
        if isinstance(extra, str):
            sources["train"].append(_source(settings.root, extra, columns))
        else:
            text = extra.file or TwoFiles(src=str(extra.src), tgt=str(extra.tgt))
            selected = extra.columns or settings.columns
            places = Columns(columns.languages, (selected.src, selected.tgt), f"+data.extra.{name}.columns")
            sources["train"].append(_source(settings.root, text, places, extra.weight))
    return sources


def multi30k(settings: Multi30kSettings) -> Sources:
    """Finds Multi30k in the layout of the public repository multi30k/dataset. `root` is the path or URL (https://...) of
    that repository or its folder data/task1/raw. Downloads are kept in the cache of `datasets`."""
    folder = _folder(settings.root, f"train.{settings.src}.gz")
    sources = {}
    for name, stem in {"train": "train", "valid": "val", **{test: test for test in settings.tests}}.items():
        src, tgt = (_fetch(f"{folder}/{stem}.{language}.gz") for language in (settings.src, settings.tgt))
        sources[name] = [Source(f"{folder}/{stem}", _state(src, tgt), read_parallel(src, tgt))]
    return sources


def opus_books(settings: OpusBooksSettings) -> Sources:
    """Finds a translation data set that has only a training split. `path` is a name on the Hugging Face hub, a Parquet file, or
    a folder that contains Parquet files, itself or in its subfolder `subset`."""
    path, subset = path_of(settings.path), settings.subset
    columns = Columns((settings.src, settings.tgt), setting="")
    if not path.exists():
        return {"train": [Source(settings.path, (subset, columns), _read_hub(settings.path, subset, columns))]}
    folder = path / subset if subset and (path / subset).is_dir() else path
    parts = [path] if path.is_file() else sorted(folder.glob("*.parquet"))
    if not parts:
        raise InputError(f"data.path={settings.path}: there is no Parquet file in {folder}")
    pairs = chain.from_iterable(read_pairs(part, columns) for part in parts)
    return {"train": [Source(settings.path, (_state(*parts), columns), pairs)]}


READERS: dict[type, Callable[[Any], Sources]] = {
    GrammarSettings: grammar,
    FilesSettings: files,
    Multi30kSettings: multi30k,
    OpusBooksSettings: opus_books,
}


def _source(root: str | None, text: TwoFiles | str, columns: Columns, weight: int = 1) -> Source:
    """Returns the text in one file of pairs or in two parallel files."""
    names = [text] if isinstance(text, str) else [text.src, text.tgt]
    paths = [path_of(root or "") / path_of(name) for name in names]
    state = _state(*paths)
    pairs = read_parallel(*paths) if len(paths) == 2 else read_pairs(paths[0], columns)
    return Source(" and ".join(map(str, paths)), (state, columns), pairs, weight)


def _state(*paths: Path) -> list[tuple[str, int, int]]:
    """Returns the absolute path, the size and the time of the last change of files. These change if their content does."""
    states = []
    for path in paths:
        with readable(path):
            states.append((str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns))
    return states


def _folder(root: str, file: str) -> str:
    """Returns the folder that contains Multi30k's `file`: `root` itself, or its subfolder data/task1/raw."""
    reason = ""
    for folder in (root.rstrip("/"), f"{root.rstrip('/')}/{MULTI30K}"):
        try:
            if os.path.isfile(_fetch(f"{folder}/{file}")):  # Path.is_file may raise PermissionError
                return folder
        except InputError as error:
            reason = f" ({error})"
    raise InputError(f"data.root={root}: there is no {file} in it or its subfolder {MULTI30K}{reason}")


def _fetch(address: str) -> Path:
    """Returns the local path of a file. If `address` is a URL, the file is downloaded first, or taken from the cache."""
    if not address.startswith(("http://", "https://")):
        return path_of(address)
    # Published files do not change. use_etag would ask the server for changes; without it, a second run needs no network.
    config = DownloadConfig(use_etag=False, disable_tqdm=True)
    try:
        return Path(DownloadManager(download_config=config).download(address))
    except Exception as error:  # the network, the server and the HTTP client raise errors of many types
        raise InputError(f"{address}: cannot be fetched ({_one_line(error.__cause__ or error)})") from None


def _read_hub(path: str, subset: str | None, columns: Columns) -> Iterator[Pair]:
    datasets.disable_progress_bars()
    try:
        items = datasets.load_dataset(path, subset, split="train")
    except Exception as error:  # the network, the hub and the loader raise errors of many types
        message = f"data.path={path} data.subset={subset}: neither a local path nor available from the hub"
        raise InputError(f"{message} ({_one_line(error)})") from None
    yield from pairs_of(path, rows_of(items), columns)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
