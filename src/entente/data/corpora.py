"""Finds the texts of each kind of corpus, and reads them as sentence pairs for training, validation and testing.

A corpus that has been read is stored in SPLIT.arrow and corpus.json, so that the next run only opens these files."""

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain, compress
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple

import datasets
import numpy as np
from datasets import Dataset, DownloadConfig, DownloadManager
from datasets.table import MemoryMappedTable

from entente.console import Task, log
from entente.data.alignments import Gold
from entente.data.files import Columns, pairs_of, read_pairs, read_parallel, rows_of
from entente.data.pairs import NumberedPair, Pair, Pairs, hold_out, match_key
from entente.data.text import clean, count_words
from entente.data.tokenizer import SPECIAL
from entente.errors import InputError, reason
from entente.files import build_once, name_of
from entente.settings import DataSettings, FilesSettings, GrammarSettings, Multi30kSettings, OpusBooksSettings, TwoFiles
from entente.validation import flat, to_text

VERSION = 6  # of the stored corpora; raise it whenever the same settings and files would give other pairs
SOURCE_KEYS = {"name", "root", "path", "subset", "train", "extra", "valid", "test", "tests"}  # settings that select the text
MULTI30K = "data/task1/raw"  # the folder that contains the text in the public repository multi30k/dataset
URL = ("http://", "https://")
FULL_STOP = re.compile(r"(?<=[^\s.!?…؟।。！？])\s*[.!?…؟।。！？]+$")  # after a word
NO_PAIR = "{}: no sentence pair is left after dropping empty, over-long and uneven ones"


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
    tags: tuple[str, ...] = ()  # pieces that begin the sources of extra texts
    varied: int = 0  # number of the last training pairs, which repeat others with a varied source

    @property
    def splits(self) -> dict[str, Dataset]:
        return {"train": self.train, "valid": self.valid, **self.tests}

    def without_tag(self, source: str) -> str:
        """Returns a source as it was in its text."""
        tag, _, rest = source.partition(" ")
        return rest if tag in self.tags else source

    def split(self, name: str) -> Dataset:
        if name not in self.splits:
            raise InputError(f"split={name}: this corpus has {', '.join(self.splits)}; choose one of these")
        return self.splits[name]

    def digest(self) -> str:
        """Returns a SHA-256 digest of the training pairs, their weights and the validation pairs. These must not change when a
        run resumes, since its validation scores are compared with earlier ones. Test sets may: they are scored at the end."""
        text = self.train._fingerprint + self.valid._fingerprint  # digests of their text (see _open)
        return hashlib.sha256(text.encode() + (b"" if self.weights is None else self.weights.tobytes())).hexdigest()


class Source(NamedTuple):
    """A text. where: names it in messages. pairs: not yet cleaned; can be iterated over only once."""

    where: str
    pairs: Iterable[NumberedPair]
    files: Sequence[Path] = ()  # those that determine the pairs, together with the settings
    weight: int = 1  # how many times an epoch contains each pair
    tag: str | None = None  # the piece that begins each source
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

    def pairs(split: str) -> Iterator[NumberedPair]:
        for number, pair in enumerate(derive()[split], start=1):
            yield number, pair.text(settings.src), pair.text(settings.tgt)

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

    def source(text: TwoFiles | str, columns: Columns = usual, weight: int = settings.weight, tag: str | None = None) -> Source:
        names = [text] if isinstance(text, str) else [text.src, text.tgt]
        paths = [Path(settings.root or "") / name for name in names]
        pairs = read_parallel(*paths) if len(paths) == 2 else read_pairs(paths[0], columns)
        return Source(" and ".join(map(str, paths)), pairs, paths, weight, tag and f"<{tag}>")

    tests: dict[str, Any] = {**settings.test} if isinstance(settings.test, dict) else {"test": settings.test}
    if src := tests.pop("src", None):
        tests = {"test": TwoFiles(src=src, tgt=tests.pop("tgt")), **tests}
    texts: dict[str, Any] = {"train": settings.train, "valid": settings.valid, **tests}
    sources = {name: [source(text)] for name, text in texts.items() if text}
    for extra in (settings.extra or {}).values():
        if isinstance(extra, str):
            sources["train"].append(source(extra, weight=1))
        elif extra.tag and settings.batch.both_directions:
            rule = "with data.batch.both_directions, it would also begin targets; leave out one of the two"
            raise InputError(f"tag={extra.tag} in data.extra: {rule}")
        elif extra.tag and f"<{extra.tag}>" in SPECIAL:
            raise InputError(f"tag={extra.tag} in data.extra: <{extra.tag}> is a piece of every tokenizer; choose another name")
        else:
            text = extra.file or TwoFiles(src=str(extra.src), tgt=str(extra.tgt))
            columns = Columns(usual.languages, (extra.columns.src, extra.columns.tgt)) if extra.columns else usual
            sources["train"].append(source(text, columns, extra.weight, extra.tag))
    return sources


def multi30k(settings: Multi30kSettings) -> Sources:
    """Finds Multi30k in a copy of the public repository multi30k/dataset, or in its folder data/task1/raw."""
    folder = settings.root.rstrip("/")
    is_raw = folder.endswith(MULTI30K) if folder.startswith(URL) else not Path(f"{folder}/{MULTI30K}").is_dir()
    folder = folder if is_raw else f"{folder}/{MULTI30K}"
    sources = {}
    for name, stem in {"train": "train", "valid": "val", **{test: test for test in settings.tests}}.items():
        src, tgt = (_fetch(f"{folder}/{stem}.{language}.gz") for language in (settings.src, settings.tgt))
        sources[name] = [Source(f"{folder}/{stem}", read_parallel(src, tgt), [src, tgt])]
    return sources


def opus_books(settings: OpusBooksSettings) -> Sources:
    """Finds a translation data set that has only a training split."""
    path, columns = Path(settings.path), Columns((settings.src, settings.tgt))
    if not path.exists():
        return {"train": [Source(settings.path, _read_hub(settings.path, settings.subset, columns))]}
    parts = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    if not parts:
        raise InputError(f"data.path={settings.path}: there is no Parquet file in this folder")
    return {"train": [Source(settings.path, chain.from_iterable(read_pairs(part, columns) for part in parts), parts)]}


READERS: dict[str, Callable[[Any], Sources]] = {read.__name__: read for read in (grammar, files, multi30k, opus_books)}


def _fetch(address: str) -> Path:
    """Returns the local path of a file. One at a URL is downloaded first, or taken from the cache of `datasets`."""
    if not address.startswith(URL):
        return Path(address)
    # Published files do not change. use_etag would ask the server for changes; without it, a second run needs no network.
    config = DownloadConfig(use_etag=False, disable_tqdm=True)
    try:
        return Path(DownloadManager(download_config=config).download(address))
    except Exception as error:  # the network, the server and the HTTP client raise errors of many types
        raise InputError(f"{address}: cannot be fetched ({reason(error.__cause__ or error)})") from None


def _read_hub(path: str, subset: str | None, columns: Columns) -> Iterator[NumberedPair]:
    datasets.disable_progress_bars()
    try:
        items = datasets.load_dataset(path, subset, split="train")
    except Exception as error:  # the network, the hub and the loader raise errors of many types
        message = f"data.path={path} data.subset={subset}: neither a local path nor available from the hub"
        raise InputError(f"{message} ({reason(error)})") from None
    yield from pairs_of(path, rows_of(items), columns)


def read_corpus(settings: DataSettings, cache_dir: Path | None = None) -> Corpus:
    """Reads the corpus that the settings select, or opens it if it is stored in `cache_dir`/corpus."""
    log.info("reading the corpus: %s", settings.name)
    with Task("reading the corpus"), TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        sources = READERS[settings.name](settings)
        paths = (path for texts in sources.values() for text in texts for path in text.files)
        states = [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
        name = name_of(VERSION, settings.model_dump(exclude={"tokenizer", "batch"}), states)
        folder = (cache_dir or Path(scratch)) / "corpus" / name
        build_once(folder / "corpus.json", partial(_store, settings, sources, folder, Path(scratch)))
        return _open(folder)


def corpus_of(pairs: Iterable[Pair], name: str, where: str) -> Corpus:
    """Returns a corpus for evaluation only, in which every split has the same pairs. name: that of the test set."""
    read = [(clean(src), clean(tgt)) for src, tgt in pairs]
    usable = [pair for pair in read if all(pair)]
    if not usable:
        raise InputError(NO_PAIR.format(where))
    if len(usable) < len(read):
        log.info("dropped %d pairs: empty", len(read) - len(usable))
    dataset = Dataset.from_dict(dict(zip(("src", "tgt"), zip(*usable, strict=True), strict=True)))
    return Corpus(dataset, dataset, {name: dataset})


def describe_sources(settings: DataSettings) -> str:
    """Returns the settings that select the corpus, on one line, or an empty string for the grammar."""
    values = flat(settings.model_dump(mode="json", include=SOURCE_KEYS) if settings.name != "grammar" else {})
    return ", ".join(f"data.{key}={value}" for key, value in values if value and not isinstance(value, Mapping))


def _store(settings: DataSettings, sources: Sources, folder: Path, scratch: Path, file: BinaryIO) -> None:
    """Stores the corpus in a folder, with its numbers in `file`. Long and uneven pairs are dropped from train only, since a
    score covers all sentences of its split. Without a validation set, pairs of the first text are held out, and extra pairs
    that contain a held-out sentence dropped. Varied sources come last, and none is that of a pair to evaluate."""
    read, dropped = Counter[str](), Counter[str]()
    max_words, max_ratio = getattr(settings, "max_words", inf), getattr(settings, "max_ratio", None) or inf

    def usable(split: str, text: Source) -> Iterator[Pair]:
        for _, src, tgt in text.pairs:
            pair = clean(src), clean(tgt)
            read[split] += 1
            shorter, longer = sorted(map(count_words, pair)) if split == "train" else (0, 0)
            if longer > max_words:
                dropped["train: over-long"] += 1
            elif shorter and longer > max_ratio * shorter:
                dropped["train: uneven"] += 1
            elif not all(pair):
                dropped[f"{split}: empty"] += 1
            else:
                yield pair

    texts = [Pairs(usable("train", text), scratch / str(i), text.where) for i, text in enumerate(sources["train"])]
    evaluated = {name: text for name, (text, *_) in sources.items() if name != "train"}
    parts = {name: Pairs(usable(name, text), folder / f"{name}.arrow", text.where) for name, text in evaluated.items()}
    masks = [np.ones(len(text), bool) for text in texts]  # which pairs to train on
    if "valid" not in parts and len(texts[0]):
        rows = _held_out_rows(texts[0], settings, with_test="test" not in parts)
        masks[0] = rows.pop("train")
        parts |= {name: Pairs(compress(texts[0], mask), folder / f"{name}.arrow", name) for name, mask in rows.items()}
        held_out = {match_key(side) for name in rows for pair in parts[name] for side in pair}
        for i, text in enumerate(texts[1:], start=1):
            masks[i] = np.array([held_out.isdisjoint(map(match_key, pair)) for pair in text], bool)
            dropped["train: held-out sentence"] += len(text) - int(masks[i].sum())
    for part, size in [*zip(texts, map(np.sum, masks), strict=True), *((part, len(part)) for part in parts.values())]:
        if not size:
            raise InputError(NO_PAIR.format(part.where))
    tags = [f"{text.tag} " if text.tag else "" for text in sources["train"]]
    weights, varied = [text.weight for text in sources["train"]], 0
    if share := getattr(settings, "varied", 0.0):
        keys = {match_key(src) for part in parts.values() for src, _ in part}
        additions = (pair for pair in vary(compress(texts[0], masks[0]), share) if match_key(pair[0]) not in keys)
        texts.append(Pairs(additions, scratch / "varied", "varied sources"))
        varied = len(texts[-1])
        masks, tags, weights = [*masks, np.ones(varied, bool)], [*tags, ""], [*weights, 1]
    kept = ((tag + src, tgt) for text, mask, tag in zip(texts, masks, tags, strict=True) for src, tgt in compress(text, mask))
    parts["train"] = Pairs(kept, folder / "train.arrow", "train")
    content = {
        "digests": {name: part.digest for name, part in parts.items()},
        "read": read,
        "dropped": +dropped,
        "weights": weights,
        "varied": varied,
        "tags": sorted({text.tag for text in sources["train"] if text.tag}),
        "sizes": [int(mask.sum()) for mask in masks],
        "gold": {name: [[*map(list, links)] for links in text.gold] for name, text in evaluated.items() if text.gold},
    }
    file.write(json.dumps(content).encode())


def vary(pairs: Iterable[Pair], share: float) -> Iterator[Pair]:
    """Yields a share of the pairs, chosen at random, with sources in lower case, without the full stop, or both. A model that
    has read such pairs loses less BLEU on input of this kind (outputs/published/own_text.md)."""
    generator = random.Random(1)
    for src, tgt in pairs:
        if generator.random() < share:
            kind = generator.randrange(3)
            text = FULL_STOP.sub("", src) if kind != 1 else src
            text = text.lower() if kind else text
            if text != src:
                yield text, tgt


def _held_out_rows(pairs: Pairs, settings: Any, with_test: bool) -> dict[str, np.ndarray]:
    """Returns a mask of the pairs to train on, of those held out for valid and, if `with_test`, of those for test."""
    split = settings.split  # all kinds of corpora without a validation set have it
    n = len(pairs)
    usual = min(0.05, 1000 / n)
    shares = {"valid": usual if split.valid is None else split.valid}
    if with_test and split.test != 0:
        shares["test"] = usual if split.test is None else split.test
    sizes = {part: max(1, round(share * n)) if isinstance(share, float) else share for part, share in shares.items()}
    masks = hold_out(pairs, sizes, split.seed)
    log.info("%d pairs, split at random: %s", n, ", ".join(f"{part} {mask.sum()}" for part, mask in masks.items()))
    if empty := [part for part, mask in masks.items() if not mask.any()]:
        problem = f"of {n} pair{'s' * (n != 1)}, none is left for {empty[0]}; pairs that share a sentence stay together"
        raise InputError(f"data.split.valid={to_text(split.valid)} data.split.test={to_text(split.test)}: {problem}")
    return masks


def _open(folder: Path) -> Corpus:
    """Opens a stored corpus. The fingerprint of each split is the digest of its text, so `datasets` need not compute one."""
    content = json.loads((folder / "corpus.json").read_bytes())
    splits = {
        name: Dataset(MemoryMappedTable.from_file(str(folder / f"{name}.arrow")), fingerprint=digest)
        for name, digest in content["digests"].items()
    }
    weights = np.repeat(np.array(content["weights"], np.int16), content["sizes"])
    gold = {name: [*map(Gold.from_lists, links)] for name, links in content["gold"].items()}
    train, valid = splits.pop("train"), splits.pop("valid")
    weighted = weights if weights.max() > 1 else None
    tags, varied = tuple(content["tags"]), content["varied"]
    return Corpus(train, valid, splits, content["dropped"], content["read"], gold, weighted, tags, varied)
