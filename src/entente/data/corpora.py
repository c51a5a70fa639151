"""Reads corpora, i.e. sentence pairs for training, validation and testing. Each option of the config group `data` is read by
the function of the same name in `CORPORA`. The annotations of the function's parameters define the settings."""

import hashlib
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, compress
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar

import datasets
import numpy as np
from annotated_types import Ge, Interval, doc
from datasets import Dataset, DownloadConfig, DownloadManager, concatenate_datasets
from typing_extensions import TypedDict

from entente.config.schema import MISSING, flat, to_text
from entente.console.log import Task
from entente.data.alignments import Gold
from entente.data.files import Columns, clean, pairs_of, read_pairs, read_parallel, rows_of
from entente.data.pairs import Pair, Pairs, count_overlap, hold_out, match_key
from entente.data.tokenizer import digest
from entente.errors import InputError
from entente.files import Name, is_stream, path_of
from entente.files import Split as SplitName
from entente.models.initialise import Seed

log = logging.getLogger("entente")

SOURCE_KEYS = ("root", "path", "subset", "train", "extra", "valid", "test", "tests")  # settings that select the text to read
NOT_SET = (None, "", MISSING)
MULTI30K = "data/task1/raw"  # the folder that contains the text in the public repository multi30k/dataset

AtLeastOne = Annotated[int, Ge(1)]
Sentences = Annotated[int, Interval(ge=1, le=1_000_000)]  # the grammar can derive more, but only a few thousand per second
Share = Annotated[float, Interval(gt=0, lt=1)]
Weight = Annotated[int, Interval(ge=1, le=1000)]
Src = Annotated[Name, doc("source language")]
Tgt = Annotated[Name, doc("target language")]
MaxWords = Annotated[AtLeastOne, doc("maximum number of words per side; training pairs above it are dropped and counted")]
MaxRatio = Annotated[
    Annotated[float, Ge(1)] | None,
    doc("maximum ratio of word counts, longer side to shorter side; training pairs above it are dropped and counted"),
]


class TwoFiles(TypedDict):
    """The paths of two parallel files."""

    src: str | None
    tgt: str | None


class Places(TypedDict):
    """The source and target columns of a file of pairs (see `files.Columns`)."""

    src: str | AtLeastOne | None
    tgt: str | AtLeastOne | None


def check_extra(file: str | None, src: str | None, tgt: str | None) -> None:
    """Raises ValueError unless the settings name either one file of pairs or two parallel files."""
    if (bool(file), bool(src), bool(tgt)) not in {(True, False, False), (False, True, True)}:
        given = " ".join(f"{key}={to_text(path)}" for key, path in (("file", file), ("src", src), ("tgt", tgt)) if path)
        raise ValueError(f"{given or 'file='}: give either file=FILE, or both src=FILE and tgt=FILE")


@dataclass(frozen=True)
class Extra:
    """Additional training text in one file of pairs or in two parallel files."""

    file: str | None = None
    src: str | None = None
    tgt: str | None = None
    columns: Annotated[Places | None, doc("the columns of this file, or null to use data.columns")] = None
    weight: Annotated[Weight, doc("how many times an epoch contains each pair")] = 1

    relations: ClassVar[tuple[Callable[..., None], ...]] = (check_extra,)


class Split(TypedDict):
    """How many training pairs to hold out if there is no validation set, and the seed that selects them."""

    valid: Annotated[AtLeastOne | Share, doc("number or share of pairs to hold out for validation")]
    test: Annotated[
        Annotated[int, Ge(0)] | Share, doc("like valid, but for testing; 0 holds out none; unused if a set named test is given")
    ]
    seed: Annotated[Seed, doc("seed of the split; the training seed does not change which pairs are held out")]


Given = TwoFiles | str | None  # two parallel files, one file of pairs, or None if the set is not given


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs for training, validation and testing. Each split has the columns src and tgt and no empty sentences."""

    train: Dataset
    valid: Dataset
    tests: dict[str, Dataset]
    dropped: dict[str, int] = field(default_factory=dict)  # nonzero numbers of dropped pairs by "split: reason"
    read: dict[str, int] = field(default_factory=dict)  # number of pairs read, by split, before any were held out or dropped
    gold: dict[str, list[Gold]] = field(default_factory=dict)  # only for splits with known word alignments
    weights: np.ndarray | None = None  # (N,) how many times an epoch contains each training pair; None if all are 1

    @property
    def splits(self) -> dict[str, Dataset]:
        return {"train": self.train, "valid": self.valid, **self.tests}

    def split(self, name: str) -> Dataset:
        """Returns the split called `name`. Raises InputError if there is none."""
        if name not in self.splits:
            raise InputError(f"split={name}: this corpus has {', '.join(self.splits)}; choose one of these")
        return self.splits[name]

    def digest(self) -> str:
        """Returns a SHA-256 digest of the training pairs, their weights and the validation pairs. These must not change when a
        run resumes, since its validation scores are compared with earlier ones. Test sets may: they are scored at the end."""
        text = digest(self.train, "src", "tgt") + digest(self.valid, "src", "tgt")
        return hashlib.sha256(text.encode() + (b"" if self.weights is None else self.weights.tobytes())).hexdigest()


def grammar(
    src: Src = "fr",
    tgt: Tgt = "en",
    seed: Annotated[Seed, doc("seed of the corpus; the training seed does not change the pairs")] = 1,
    train: Annotated[Sentences, doc("number of training pairs")] = 30_000,
    valid: Annotated[Sentences, doc("number of validation pairs")] = 1000,
    test: Annotated[Sentences, doc("number of pairs in each test split")] = 1000,
) -> Corpus:
    """Generates pairs from the built-in French-English grammar; `train`, `valid` and `test` are numbers of pairs."""
    if {src, tgt} != {"fr", "en"}:
        raise InputError(f"data.src={src} data.tgt={tgt}: the grammar is for fr and en; use one as source, the other as target")
    from entente_grammar import Side, splits  # imported here, so that other corpora do not build the lexicon

    sides: tuple[Side, Side] = ("fr", "en") if src == "fr" else ("en", "fr")
    parts, gold = {}, {}
    for name, derived in splits(seed, train, valid, test).items():
        texts = ((clean(pair.text(sides[0])), clean(pair.text(sides[1]))) for pair in derived)
        parts[name] = Pairs(texts, f"data=grammar, {name}").dataset()
        if name != "train":
            golds = (Gold(pair.spans("fr"), pair.spans("en"), pair.sure, pair.possible) for pair in derived)
            gold[name] = [one if src == "fr" else one.swap_sides() for one in golds]
    read = {name: len(part) for name, part in parts.items()}
    return Corpus(parts.pop("train"), parts.pop("valid"), parts, gold=gold, read=read)


def files(
    *,
    src: Src = "fr",
    tgt: Tgt = "en",
    root: Annotated[str | None, doc("folder that relative paths start from, or null for the current one")] = None,
    train: Annotated[TwoFiles | str, doc("two parallel files, src and tgt, or one file of pairs")],
    weight: Annotated[Weight, doc("how many times an epoch contains each pair of train")] = 1,
    extra: Annotated[Mapping[SplitName, Extra | str] | None, doc("additional training text, keyed by name; optional")] = None,
    valid: Annotated[Given, doc("files as for train, or null to hold out pairs from train (see split)")] = None,
    test: Annotated[
        Mapping[SplitName, Given] | str | None, doc("files as for train, or several test sets keyed by name; optional")
    ] = None,
    max_words: MaxWords = 100,
    max_ratio: MaxRatio = None,
    columns: Annotated[
        Places | None, doc("each side's column: its name, its number from 1, or null if it is named after the language or side")
    ] = None,
    split: Annotated[Split | None, doc("how many pairs to hold out from train, never from extra, if valid is not set")] = None,
) -> Corpus:
    """Reads sentence pairs from the user's UTF-8 files. Each set is either two parallel files (plain or gzip, one sentence per
    line, in the same order) or one file of pairs in a format that `read_pairs` supports. `test` may map names to sets."""
    places = Columns(_languages(src, tgt), *(columns["src"], columns["tgt"]) if columns else ())
    sets: dict[str, Any] = {**test} if isinstance(test, Mapping) else {}
    one: Any = {side: sets.pop(side, None) for side in ("src", "tgt")} if isinstance(test, Mapping) else test
    unnamed = isinstance(one, Mapping) and any(file not in NOT_SET for file in one.values())
    if clash := {"train", "valid", *["test"] * unnamed} & sets.keys():
        raise InputError(f"data.test.{clash.pop()}: this name is taken by another split; rename the test set")
    parts = {}
    for name, given in {"train": train, "valid": valid, "test": one, **sets}.items():
        key = f"data.test.{name}" if name in sets else f"data.{name}"
        if (pairs := _read(root, key, given, places)) is not None:
            parts[name] = pairs
    if "train" not in parts:
        key = "data.train.src" if isinstance(train, Mapping) else "data.train"
        raise InputError(f"{key} is not set: give it as {key}=FILE")
    further = []
    entries: Mapping[str, Any] = extra or {}
    for name, entry in entries.items():
        more = Extra(file=entry) if isinstance(entry, str) else Extra(**entry)
        chosen = (more.columns["src"], more.columns["tgt"]) if more.columns else places.given
        own = places if isinstance(entry, str) else Columns(places.languages, *chosen, f"+data.extra.{name}.columns")
        if (pairs := _read(root, f"data.extra.{name}", more.file or TwoFiles(src=more.src, tgt=more.tgt), own)) is None:
            raise InputError(f"data.extra.{name} is not set: give it as data.extra.{name}=FILE")
        further.append((pairs, more.weight))
    return _corpus(parts, max_words, max_ratio, split, weight, further)


def multi30k(
    *,
    src: Src = "fr",
    tgt: Tgt = "en",
    root: Annotated[str, doc("path or URL of the repository multi30k/dataset, or of its folder data/task1/raw")],
    tests: Annotated[Sequence[SplitName], doc("names of test sets that both languages have, such as test_2017_mscoco")] = (
        "test_2016_flickr",
    ),
    max_words: MaxWords = 100,
    max_ratio: MaxRatio = None,
) -> Corpus:
    """Reads Multi30k in the layout of the public repository multi30k/dataset. `root` is the path or URL (https://...) of
    that repository or its folder data/task1/raw. Downloads are kept in the cache of `datasets`."""
    languages = _languages(src, tgt)
    if clash := {"train", "valid"} & {*tests}:
        raise InputError(f"data.tests: {clash.pop()} is the name of another split")
    folder = _folder(root, f"train.{src}.gz")
    parts = {}
    for name, stem in {"train": "train", "valid": "val", **{test: test for test in tests}}.items():
        where = f"{folder}/{stem}"
        one, other = (_fetch(f"{where}.{language}.gz") for language in languages)
        parts[name] = Pairs(read_parallel(one, other), where)
    return _corpus(parts, max_words, max_ratio, None)


def opus_books(
    *,
    src: Src = "fr",
    tgt: Tgt = "en",
    path: Annotated[str, doc("data set on the hub, Parquet file, or folder of Parquet files")] = "Helsinki-NLP/opus_books",
    subset: Annotated[str | None, doc("subset of the data set, named after its languages")] = "en-fr",
    split: Annotated[Split, doc("how many pairs to hold out for validation and testing")],
    max_words: MaxWords = 100,
    max_ratio: MaxRatio = None,
) -> Corpus:
    """Reads a translation data set that has only a training split, and holds out validation and test pairs. `path` is a name on
    the Hugging Face hub, a Parquet file, or a folder that contains Parquet files, itself or in its subfolder `subset`."""
    places = Columns(_languages(src, tgt), setting="")
    here = path_of(path)
    if os.path.exists(here):
        folder = here / subset if subset and os.path.isdir(here / subset) else here
        if not (found := [here] if os.path.isfile(here) else sorted(folder.glob("*.parquet"))):
            raise InputError(f"data.path={path}: there is no Parquet file in {folder}")
        pairs = Pairs((pair for file in found for pair in read_pairs(file, places)), path)
    else:
        try:
            items = datasets.load_dataset(path, subset, split="train")
        except Exception as error:  # the network, the hub and the loader raise errors of many types
            why = " ".join(str(error).split())
            message = f"data.path={path} data.subset={subset}: neither a local path nor available from the hub ({why})"
            raise InputError(message) from None
        pairs = Pairs(pairs_of(path, rows_of(items), places), path)
    return _corpus({"train": pairs}, max_words, max_ratio, split)


CORPORA: dict[str, Callable[..., Corpus]] = {corpus.__name__: corpus for corpus in (grammar, files, multi30k, opus_books)}


def read_corpus(data: Mapping[str, Any]) -> Corpus:
    """Reads the corpus that a configuration's `data` section selects. Ignores the section's tokenizer and batch settings."""
    log.info("reading the corpus: %s", data["name"])
    with Task("reading the corpus"):
        return CORPORA[data["name"]](**{key: value for key, value in data.items() if key not in ("name", "tokenizer", "batch")})


def describe_sources(data: Mapping[str, Any]) -> str:
    """Returns the settings in a `data` section that select the corpus, on one line, or an empty string for the grammar."""
    if data["name"] == "grammar":
        return ""
    places = flat({key: data[key] for key in ("name", *SOURCE_KEYS) if key in data})
    return ", ".join(f"data.{k}={v}" for k, v in places if v not in NOT_SET and not isinstance(v, Mapping))


def _corpus(
    parts: dict[str, Pairs],
    max_words: int,
    max_ratio: float | None,
    split: Split | None,
    weight: int = 1,
    extra: Sequence[tuple[Pairs, int]] = (),
) -> Corpus:
    """Builds the corpus from the pairs that were read: drops unusable pairs, and holds some out if there is no validation set.
    Long and uneven pairs are dropped from train only, since a score must cover all sentences of its split. `extra` does not
    affect which pairs are held out; its pairs that contain a held-out sentence are dropped."""
    sources, given = [parts["train"], *(pairs for pairs, _ in extra)], {p: pairs for p, pairs in parts.items() if p != "train"}
    read, empty, faults = Counter[str](), Counter[str](), Counter[str]()
    for part, pairs in chain(parts.items(), (("train", pairs) for pairs, _ in extra)):
        read[part] += pairs.read
        empty[f"{part}: empty"] += pairs.empty
    made = {} if "valid" in parts else _take_held_out(parts["train"], split, with_test="test" not in parts)
    held = {match_key(side) for part in made.values() for pair in part for side in pair} if extra else set()
    for pairs in sources:
        usable = np.ones(len(pairs), bool)
        for row, pair in enumerate(pairs):
            if fault := _fault(pair, max_words, max_ratio or inf, held):
                usable[row] = False
                faults[f"train: {fault}"] += 1
        pairs.keep(usable)
    for part, count in count_overlap(chain.from_iterable(sources), given).items():
        log.info("%s: %d of %d pairs have a sentence that is also in train", part, count, len(given[part]))
    train = [pairs.dataset() for pairs in sources]
    weights = np.repeat(np.array([weight, *(times for _, times in extra)], np.int16), [*map(len, train)])
    splits = {part: pairs.dataset() for part, pairs in {**given, **made}.items()}
    return Corpus(
        concatenate_datasets(train) if extra else train[0],  # without a copy
        splits.pop("valid"),
        splits,
        dict(empty + faults),  # adding Counters removes zeros
        dict(read),
        weights=weights if (weights > 1).any() else None,
    )


def _take_held_out(pairs: Pairs, split: Split | None, with_test: bool) -> dict[str, Pairs]:
    """Moves pairs from `pairs` to a new valid split and, if `with_test`, a test split. Returns the new splits by name."""
    if not split:
        raise InputError("data.valid is not set: give it as data.valid.src=FILE data.valid.tgt=FILE")
    asked = {"valid": split["valid"], **({"test": split["test"]} if with_test and split["test"] else {})}
    sizes = {part: max(1, round(n * len(pairs))) if isinstance(n, float) else n for part, n in asked.items()}
    rows = hold_out(pairs, sizes, split["seed"])
    if empty := next((part for part, mask in rows.items() if not mask.any()), None):
        raise InputError(
            f"data.split.valid={split['valid']} data.split.test={split['test']}: of {len(pairs)} "
            f"pair{'s' * (len(pairs) != 1)}, none is left for {empty}; pairs that share a sentence stay together"
        )
    log.info("%d pairs, split at random: %s", len(pairs), ", ".join(f"{part} {mask.sum()}" for part, mask in rows.items()))
    train = rows.pop("train")
    made = {part: Pairs(compress(pairs, mask), f"{pairs.where}, {part}") for part, mask in rows.items()}
    pairs.keep(train)
    return made


def _fault(pair: Pair, max_words: float, max_ratio: float, held: Set[str]) -> str:
    """Returns why a training pair must be dropped, or an empty string. held: the `match_key` of each held-out sentence."""
    fewer, more = sorted(len(side.split()) for side in pair)
    if more > max_words:
        return "over-long"
    if more > max_ratio * fewer:
        return "uneven"
    return "held-out sentence" if held and any(match_key(side) in held for side in pair) else ""


def _languages(src: str, tgt: str) -> tuple[str, str]:
    if src == tgt:
        raise InputError(f"data.src={src} data.tgt={tgt}: source and target are the same language")
    return src, tgt


def _read(root: str | None, key: str, given: Given, places: Columns) -> Pairs | None:
    """Reads pairs from one file of pairs or from two parallel files. Returns None if no file is set."""
    named = {f"{key}.{side}": given.get(side) for side in ("src", "tgt")} if isinstance(given, Mapping) else {key: given}
    paths = [path_of(root or "") / path_of(str(path)) for path in named.values() if path not in NOT_SET]
    if not paths:
        return None
    if missing := next((name for name, path in named.items() if path in NOT_SET), None):
        raise InputError(f"{missing} is not set: give it as {missing}=FILE")
    if odd := next(filter(is_stream, paths), None):
        raise InputError(f"{odd}: can be read only once, and a resumed run reads its data again; give a file")
    pairs = read_parallel(*paths) if len(paths) == 2 else read_pairs(paths[0], places)
    return Pairs(pairs, " and ".join(map(str, paths)))


def _folder(root: str, first: str) -> str:
    """Returns the folder that contains Multi30k's file `first`: `root` itself, or its subfolder data/task1/raw."""
    why = ""
    for folder in (root.rstrip("/"), f"{root.rstrip('/')}/{MULTI30K}"):
        try:
            if os.path.isfile(_fetch(f"{folder}/{first}")):  # Path.is_file may raise PermissionError
                return folder
        except InputError as error:
            why = f" ({error})"
    raise InputError(f"data.root={root}: there is no {first} in it or its subfolder {MULTI30K}{why}")


def _fetch(address: str) -> Path:
    """Returns the local path of a file. If `address` is a URL, the file is downloaded first, or taken from the cache."""
    if not address.startswith(("http://", "https://")):
        return path_of(address)
    # Published files do not change. use_etag would ask the server for changes; without it, a second run needs no network.
    config = DownloadConfig(use_etag=False, disable_tqdm=not sys.stderr.isatty())
    try:
        return Path(DownloadManager(download_config=config).download(address))
    except Exception as error:  # the network, the server and the HTTP client raise errors of many types
        why = " ".join(str(error.__cause__ or error).split())
        raise InputError(f"{address}: cannot be fetched ({why})") from None
