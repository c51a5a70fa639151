"""Corpora: sentence pairs for training, validation and tests, as `datasets.Dataset` with the string columns src and tgt.

Every corpus is one function of plain values, listed in `CORPORA` under the name that the config group `data` gives it. Its
annotations say what the configuration may hold.
"""

import hashlib
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import datasets
import numpy as np
from annotated_types import Ge, Interval, doc
from datasets import Dataset, DownloadConfig, DownloadManager
from typing_extensions import TypedDict

from entente.data.alignments import Gold
from entente.data.files import Columns, clean, read_pairs, read_parallel, table_pairs
from entente.data.pairs import Pair, Pairs, digest
from entente.data.split import hold_out, shared
from entente.errors import InputError
from entente.files import Name, is_stream, path_of
from entente.files import Split as SplitName

log = logging.getLogger("entente")

MISSING = (None, "", "???")  # "???" is what an unfilled mandatory config value looks like
MULTI30K = "data/task1/raw"  # where the files lie in the public repository multi30k/dataset

Language = Name
Seed = Annotated[int, Interval(ge=0, lt=2**32)]
AtLeastOne = Annotated[int, Ge(1)]
Sentences = Annotated[int, Interval(ge=1, le=1_000_000)]  # the grammar has more, but makes few thousand a second
Share = Annotated[float, Interval(gt=0, lt=1)]
Ratio = Annotated[float, Ge(1)]


class TwoFiles(TypedDict):
    """Two parallel files."""

    src: str | None
    tgt: str | None


class Places(TypedDict):
    """Where the two sides stand in one file of pairs: see `files.Columns`."""

    src: str | AtLeastOne | None
    tgt: str | AtLeastOne | None


class Split(TypedDict):
    """What is held out of the training pairs where there is no validation set: a number of pairs, or a share of them."""

    valid: Annotated[AtLeastOne | Share, doc("a share of the pairs, or how many")]
    test: Annotated[Annotated[int, Ge(0)] | Share, doc("used where test is not given either; 0: none")]
    seed: Annotated[Seed, doc("of the split, not of the training: runs with other seeds read the same pairs")]


class Part(NamedTuple):
    """What was read for one split."""

    where: str
    pairs: Pairs


@dataclass(frozen=True)
class Corpus:
    """Pairs for training, validation and tests; each split has the columns src and tgt, no side empty."""

    name: str
    train: Dataset
    valid: Dataset
    tests: dict[str, Dataset]
    dropped: dict[str, int] = field(default_factory=dict)  # "train: over-long" -> how many pairs; no zeros
    read: dict[str, int] = field(default_factory=dict)  # "train" -> how many pairs; in all, those of the splits and the dropped
    gold: dict[str, list[Gold]] = field(default_factory=dict)  # of the splits whose word alignments are known

    def split(self, name: str) -> Dataset:
        known = {"train": self.train, "valid": self.valid, **self.tests}
        if name not in known:
            raise InputError(f"split={name}: this corpus has {', '.join(known)}; choose of these")
        return known[name]

    def digest(self) -> str:
        """SHA-256 of the pairs that training depends on, in their order: those of train, and those of validation, whose scores
        from before and after a resume are compared. A test set is only scored at the end."""
        return hashlib.sha256((digest(self.train, "src", "tgt") + digest(self.valid, "src", "tgt")).encode()).hexdigest()


def grammar(
    src: Annotated[Language, doc("source language")] = "fr",
    tgt: Annotated[Language, doc("target language")] = "en",
    seed: Annotated[Seed, doc("of the corpus, not of the training: runs with other seeds read the same pairs")] = 1,
    train: Annotated[Sentences, doc("number of training pairs")] = 30_000,
    valid: Annotated[Sentences, doc("number of validation pairs")] = 1000,
    test: Annotated[Sentences, doc("number of test pairs, in each test split")] = 1000,
) -> Corpus:
    """The embedded French-English grammar; `train`, `valid` and `test` are numbers of pairs."""
    if {src, tgt} != {"fr", "en"}:
        raise InputError(f"data.src={src} data.tgt={tgt}: the grammar has fr and en, one as source and one as target")
    from entente_grammar import Pair as Derived  # here, so that other corpora do not build its lexicon
    from entente_grammar import splits

    def gold(pair: Derived) -> Gold:
        fr, en = pair.spans("fr"), pair.spans("en")
        return Gold(fr, en, pair.sure, pair.possible) if src == "fr" else Gold(en, fr, pair.sure, pair.possible).turned()

    def both(pair: Derived) -> dict[str, str]:
        return {"fr": clean(pair.text("fr")), "en": clean(pair.text("en"))}

    derived = splits(seed, train, valid, test)
    parts = {
        name: _dataset(f"data=grammar, {name}", Pairs.of((text[src], text[tgt]) for text in map(both, pairs)))
        for name, pairs in derived.items()
    }
    golds = {name: [gold(pair) for pair in pairs] for name, pairs in derived.items() if name != "train"}
    read = {name: len(part) for name, part in parts.items()}
    return Corpus("grammar", parts.pop("train"), parts.pop("valid"), tests=parts, gold=golds, read=read)


def files(
    *,
    src: Annotated[Language, doc("source language")] = "fr",
    tgt: Annotated[Language, doc("target language")] = "en",
    root: Annotated[str | None, doc("folder that relative paths start from; null: the current one")] = None,
    train: Annotated[TwoFiles | str, doc("two parallel files, src and tgt, or one file of pairs")],
    valid: Annotated[TwoFiles | str | None, doc("the same; null: held out of train, see split")] = None,
    test: Annotated[
        Mapping[SplitName, TwoFiles | str | None] | str | None, doc("the same, or several test sets by name; may stay empty")
    ] = None,
    max_words: Annotated[AtLeastOne, doc("training pairs with more words on a side are dropped, with a count")] = 100,
    max_ratio: Annotated[
        Ratio | None, doc("words of the longer side by the shorter: training pairs above it are dropped, with a count")
    ] = None,
    columns: Annotated[Places | None, doc("of one file of pairs: a column's name, its number from 1, or null")] = None,
    split: Annotated[Split | None, doc("what is held out of train where valid is not given")] = None,
) -> Corpus:
    """The user's own text, UTF-8: two parallel files, one sentence a line, plain or gzip, line N of one side translating line N
    of the other; or one file of pairs, in a form that `files.read_pairs` knows.

    `root` is the folder that relative paths start from (None: the current one). `test` is two files or one, or several such by
    name. Without `valid`, what validates is held out of train as `split` says.
    """
    places = Columns(_languages(src, tgt), *(columns["src"], columns["tgt"]) if columns else ())
    given: list[tuple[str, str, object]] = [("train", "data.train", train)]
    if isinstance(valid, Mapping) and any(path not in MISSING for path in valid.values()) or isinstance(valid, str):
        given.append(("valid", "data.valid", valid))
    parts = {name: _read(root, paths, key, places) for name, key, paths in given + _tests(test)}
    return _corpus(f"files-{src}-{tgt}", parts, max_words, max_ratio, split)


def multi30k(
    *,
    src: Annotated[Language, doc("source language")] = "fr",
    tgt: Annotated[Language, doc("target language")] = "en",
    root: Annotated[str, doc("a copy of the repository or of its folder data/task1/raw, or an address")],
    tests: Annotated[
        Sequence[SplitName], doc("also test_2017_flickr, test_2017_mscoco, ... as far as the two languages have them")
    ] = ("test_2016_flickr",),
    max_words: Annotated[AtLeastOne, doc("training pairs with more words on a side are dropped, with a count")] = 100,
    max_ratio: Annotated[
        Ratio | None, doc("words of the longer side by the shorter: training pairs above it are dropped, with a count")
    ] = None,
) -> Corpus:
    """Multi30k as the public repository multi30k/dataset holds it. `root` is that repository or its folder data/task1/raw, on
    this machine or an address (https://...); what is fetched from an address is kept in the cache of `datasets`."""
    languages = _languages(src, tgt)
    if clash := {"train", "valid"} & {*tests}:
        raise InputError(f"data.tests: {clash.pop()} is the name of another split")
    folder = _folder(root, f"train.{src}.gz")
    parts = {}
    for name, stem in {"train": "train", "valid": "val", **{test: test for test in tests}}.items():
        one, other = (_fetched(f"{folder}/{stem}.{language}.gz") for language in languages)
        parts[name] = Part(f"{folder}/{stem}", Pairs.of(read_parallel(one, other), f"{folder}/{stem}"))
    return _corpus(f"multi30k-{src}-{tgt}", parts, max_words, max_ratio, None)


def opus_books(
    *,
    src: Annotated[Language, doc("source language")] = "fr",
    tgt: Annotated[Language, doc("target language")] = "en",
    path: Annotated[str, doc("a set of the hub, a Parquet file, or a folder of some")] = "Helsinki-NLP/opus_books",
    subset: Annotated[str | None, doc("of the set: a pair of languages")] = "en-fr",
    split: Annotated[Split, doc("what is held out of the training pairs")],
    max_words: Annotated[AtLeastOne, doc("training pairs with more words on a side are dropped, with a count")] = 100,
    max_ratio: Annotated[
        Ratio | None, doc("words of the longer side by the shorter: training pairs above it are dropped, with a count")
    ] = None,
) -> Corpus:
    """A translation set of the Hugging Face hub that has a training split only, of which validation and test are held out.
    `path` is its name there, or a Parquet file or a folder of some (within it, those of the folder `subset`)."""
    places = Columns(_languages(src, tgt))
    here = path_of(path)
    if os.path.exists(here):
        pairs = Pairs.of((pair for file in _parquet_files(here, subset) for pair in read_pairs(file, places)), path)
    else:
        try:
            table = datasets.load_dataset(path, subset, split="train").with_format("arrow")[:]
        except Exception as error:  # of the network, of the hub, of the loader: many types
            why = " ".join(str(error).split())
            message = f"data.path={path} data.subset={subset}: neither here nor to be had from the hub ({why})"
            raise InputError(message) from None
        pairs = Pairs.of(table_pairs(path, table.schema, lambda _: table.to_batches(), places), path)
    return _corpus(f"opus_books-{src}-{tgt}", {"train": Part(path, pairs)}, max_words, max_ratio, split)


CORPORA: dict[str, Callable[..., Corpus]] = {corpus.__name__: corpus for corpus in (grammar, files, multi30k, opus_books)}


def read_from(data: Mapping[str, Any]) -> str:
    """The files and addresses that a configuration's `data` part has read, in words; empty for the grammar, which has none."""
    if data["name"] == "grammar":
        return ""
    if data["name"] == "files":
        given = [data["train"], data.get("valid"), *(paths for _, _, paths in _tests(data["test"]))]
        paths = [path for one in given for path in (one.values() if isinstance(one, Mapping) else [one])]
        return ", ".join(str(_path(data["root"], path)) for path in paths if path not in MISSING)
    if data["name"] == "multi30k":
        return f"{data['root']}, of {', '.join(['train', 'val', *data['tests']])} in {data['src']} and {data['tgt']}"
    return f"{data['path']}, {data['subset']}, here or on the Hugging Face hub"


def with_text(where: str, pairs: Pairs) -> Dataset:
    """The pairs that have text on both sides; the others are dropped from `pairs` too."""
    dropped: Counter[str] = Counter()
    _drop(pairs, "", dropped)
    for why, count in dropped.items():
        log.info("dropped %d pairs: %s", count, why)
    return _dataset(where, pairs)


def _languages(src: str, tgt: str) -> tuple[str, str]:
    if src == tgt:
        raise InputError(f"data.src={src} data.tgt={tgt}: source and target language are the same")
    return src, tgt


def _corpus(name: str, parts: Mapping[str, Part], max_words: int, max_ratio: float | None, split: Split | None) -> Corpus:
    """Returns the corpus of what was read, without unusable pairs, and with held-out pairs where no validation set was given.
    Long and uneven pairs are dropped from train alone, since a score is over all sentences."""
    dropped: Counter[str] = Counter()
    read = {part: len(pairs) for part, (_, pairs) in parts.items()}
    for part, (_, pairs) in parts.items():
        _drop(pairs, f"{part}: ", dropped)
    train = parts["train"].pairs
    made = {} if "valid" in parts else _held_out(train, split, with_test=len(parts) == 1)
    given = {part: pairs for part, (_, pairs) in parts.items() if part != "train"}
    _drop(train, "train: ", dropped, max_words, max_ratio)
    for part, count in shared(train, given).items():
        log.info("%s: %d of %d pairs have a sentence that train has too", part, count, len(given[part]))
    splits = {
        part: _dataset(parts[part].where if part in parts else f"{parts['train'].where}, {part}", pairs)
        for part, pairs in {"train": train, **made, **given}.items()
    }
    return Corpus(name, splits.pop("train"), splits.pop("valid"), splits, dict(dropped), read)


def _held_out(pairs: Pairs, split: Split | None, with_test: bool) -> dict[str, Pairs]:
    """Removes valid, and test if asked for, from the pairs, and returns them."""
    if not split:
        raise InputError("data.valid is not set: give the files, data.valid.src=FILE data.valid.tgt=FILE")
    asked = {"valid": split["valid"], "test": split["test"] if with_test else 0}
    sizes = {part: max(1, round(n * len(pairs))) if isinstance(n, float) else n for part, n in asked.items()}
    whole = f"{len(pairs)} pair{'s' * (len(pairs) != 1)}"
    rows = hold_out(pairs, {part: size for part, size in sizes.items() if size or part == "valid"}, split["seed"])
    for part, mask in rows.items():
        if not mask.any():
            raise InputError(
                f"data.split.valid={split['valid']} data.split.test={split['test']}: of {whole} none is left "
                f"for {part}; pairs that share a sentence stay together"
            )
    log.info("of %d pairs, by chance: %s", len(pairs), ", ".join(f"{part} {mask.sum()}" for part, mask in rows.items()))
    train = rows.pop("train")
    made = {part: pairs.chosen(mask) for part, mask in rows.items()}
    pairs.keep(train)
    return made


def _drop(
    pairs: Pairs, label: str, dropped: Counter[str], max_words: int | None = None, max_ratio: float | None = None
) -> None:
    """Removes unusable pairs; adds how many, by reason, to `dropped`."""
    why_not = [_fault(pair, max_words, max_ratio) for pair in pairs]
    dropped.update(label + why for why in why_not if why)
    pairs.keep(np.array([not why for why in why_not], bool))


def _fault(pair: Pair, max_words: int | None, max_ratio: float | None) -> str | None:
    if not all(pair):
        return "empty"
    fewer, more = sorted(len(side.split()) for side in pair)
    if max_words is not None and more > max_words:
        return "over-long"
    if max_ratio is not None and more > max_ratio * fewer:
        return "uneven"
    return None


def _dataset(where: str, pairs: Pairs) -> Dataset:
    if not pairs:
        raise InputError(f"{where}: no sentence pair left after dropping empty and over-long ones")
    return pairs.dataset()


def _read(root: str | None, given: object, key: str, places: Columns) -> Part:
    if isinstance(given, str) and given not in MISSING:
        path = _path(root, given)
        return Part(str(path), Pairs.of(read_pairs(path, places), str(path)))
    sides: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    if missing := next((side for side in ("src", "tgt") if sides.get(side) in MISSING), None):
        raise InputError(f"{key}.{missing} is not set: give the file, {key}.{missing}=FILE")
    src, tgt = (_path(root, str(sides[side])) for side in ("src", "tgt"))
    where = f"{src} and {tgt}"
    return Part(where, Pairs.of(read_parallel(src, tgt), where))


def _path(root: str | None, path: str) -> Path:
    place = path_of(root or "") / path_of(path)
    if is_stream(place):
        raise InputError(f"{place}: can be read only once, and a run that goes on reads its data again; give a file")
    return place


def _tests(test: Mapping[str, TwoFiles | str | None] | str | None) -> list[tuple[str, str, object]]:
    """(name, config key, files) of every test set given: `test` is one file, holds src and tgt, or holds named ones of both."""
    if not isinstance(test, Mapping):
        return [] if test in MISSING else [("test", "data.test", test)]
    given = {name: value for name, value in test.items() if value not in MISSING}
    named = {name: value for name, value in given.items() if name not in ("src", "tgt")}
    if clash := named.keys() & {"train", "valid"}:
        raise InputError(f"data.test.{clash.pop()}: a test set needs a name of its own")
    one = [("test", "data.test", given)] if given.keys() - named.keys() else []
    return one + [(name, f"data.test.{name}", value) for name, value in named.items()]


def _folder(root: str, first: str) -> str:
    """Where Multi30k's files lie: in `root`, or in the repository's folder below it."""
    why = ""
    for folder in (root.rstrip("/"), f"{root.rstrip('/')}/{MULTI30K}"):
        try:
            if os.path.isfile(_fetched(f"{folder}/{first}")):  # unlike Path.is_file, False where we may not look
                return folder
        except InputError as error:
            why = f" ({error})"
    raise InputError(f"data.root={root}: there is no {first} in it, nor in {MULTI30K} below it{why}")


def _fetched(address: str) -> Path:
    """The file at a path or an address, on this machine."""
    if not address.startswith(("http://", "https://")):
        return path_of(address)
    # Without asking whether it has changed (use_etag): what is published stays, and a second run needs no network.
    config = DownloadConfig(use_etag=False, disable_tqdm=not sys.stderr.isatty())
    try:
        return Path(DownloadManager(download_config=config).download(address))
    except Exception as error:  # of the network, of the server, of the HTTP client: many types
        why = " ".join(str(error.__cause__ or error).split())
        raise InputError(f"{address}: cannot be fetched ({why})") from None


def _parquet_files(path: Path, subset: str | None) -> list[Path]:
    if path.is_file():
        return [path]
    folder = path / subset if subset and (path / subset).is_dir() else path
    if not (found := sorted(folder.glob("*.parquet"))):
        raise InputError(f"data.path={path}: there is no Parquet file in {folder}")
    return found


def read_corpus(data: Mapping[str, Any]) -> Corpus:
    """Returns the corpus that a configuration's `data` part names; its tokenizer and batch settings are not the reader's."""
    arguments = {key: value for key, value in data.items() if key not in ("name", "tokenizer", "batch")}
    if data["name"] not in CORPORA:
        raise InputError(f"data.name={data['name']}: choose one of {', '.join(CORPORA)}")
    try:
        return CORPORA[data["name"]](**arguments)
    except TypeError as error:
        raise InputError(f"data={data['name']}: {error}") from error
