"""Reads corpora, i.e. sentence pairs for training, validation and testing, from the texts that entente.data.sources finds.

A corpus that has been read is stored in SPLIT.arrow and corpus.json, so that the next run only opens these files."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from datasets import Dataset
from datasets.table import MemoryMappedTable

from entente.console import Task
from entente.data.alignments import Gold
from entente.data.cache import build_once, name_of
from entente.data.pairs import Pair, Pairs, hold_out, match_key
from entente.data.sources import READERS, Sources
from entente.errors import InputError
from entente.files import readable, write_text
from entente.settings import DataSettings, SplitSettings
from entente.validation import flat

log = logging.getLogger("entente")

VERSION = 2  # of the stored corpora; raise it whenever the same settings and files would give other pairs
SOURCE_KEYS = {"name", "root", "path", "subset", "train", "extra", "valid", "test", "tests"}  # settings that select the text


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
        if name not in self.splits:
            raise InputError(f"split={name}: this corpus has {', '.join(self.splits)}; choose one of these")
        return self.splits[name]

    def digest(self) -> str:
        """Returns a SHA-256 digest of the training pairs, their weights and the validation pairs. These must not change when a
        run resumes, since its validation scores are compared with earlier ones. Test sets may: they are scored at the end."""
        text = self.train._fingerprint + self.valid._fingerprint  # digests of their text (see _open)
        return hashlib.sha256(text.encode() + (b"" if self.weights is None else self.weights.tobytes())).hexdigest()


def read_corpus(settings: DataSettings, cache_dir: Path | None = None) -> Corpus:
    """Reads the corpus that the settings select, or opens it if it is stored in `cache_dir`/corpus."""
    log.info("reading the corpus: %s", settings.name)
    with Task("reading the corpus"), TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        sources = READERS[settings.name](settings)
        states = []  # change if a file does
        for path in (path for texts in sources.values() for text in texts for path in text.files):
            with readable(path):
                states.append((str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns))
        name = name_of(VERSION, settings.model_dump(exclude={"tokenizer", "batch"}), states)
        folder = (cache_dir or Path(scratch)) / "corpus" / name
        build_once(folder / "corpus.json", partial(_store, settings, sources, folder, Path(scratch)))
        return _open(folder)


def corpus_of(pairs: Iterable[Pair], name: str, where: str) -> Corpus:
    """Returns a corpus for evaluation only, in which every split has the same pairs. name: that of the test set."""
    read = [*pairs]
    usable = [pair for pair in read if all(pair)]
    _refuse_empty(len(usable), where)
    if len(usable) < len(read):
        log.info("dropped %d pairs: empty", len(read) - len(usable))
    dataset = Dataset.from_dict(dict(zip(("src", "tgt"), zip(*usable, strict=True), strict=True)))
    return Corpus(dataset, dataset, {name: dataset})


def describe_sources(settings: DataSettings) -> str:
    """Returns the settings that select the corpus, on one line, or an empty string for the grammar."""
    values = flat(settings.model_dump(mode="json", include=SOURCE_KEYS) if settings.name != "grammar" else {})
    return ", ".join(f"data.{key}={value}" for key, value in values if value and not isinstance(value, Mapping))


def _store(settings: DataSettings, sources: Sources, folder: Path, scratch: Path) -> None:
    """Stores the corpus. Long and uneven pairs are dropped from train only, since a score covers all sentences of its split.
    Without a validation set, pairs of the first text are held out, and extra pairs that contain a held-out sentence dropped."""
    texts = [Pairs(text.pairs, scratch / str(i), text.where) for i, text in enumerate(sources["train"])]
    parts = {
        name: Pairs(text.pairs, folder / f"{name}.arrow", text.where) for name, (text, *_) in sources.items() if name != "train"
    }
    read, dropped = Counter[str](), Counter[str]()
    for name, part in [*(("train", text) for text in texts), *parts.items()]:
        read[name] += part.read
        dropped[f"{name}: empty"] += part.read - len(part)
    masks, held_out = [np.ones(len(text), bool) for text in texts], set[str]()  # masks of the pairs that are not held out
    if "valid" not in parts:
        split: Any = getattr(settings, "split", None)  # all kinds of corpora without a validation set have it
        rows = _held_out_rows(texts[0], split, with_test="test" not in parts)
        masks[0] = rows.pop("train")
        for name, mask in rows.items():
            parts[name] = Pairs(compress(texts[0], mask), folder / f"{name}.arrow", texts[0].where)
            if len(texts) > 1:
                held_out.update(match_key(side) for pair in parts[name] for side in pair)
    max_words, max_ratio = getattr(settings, "max_words", inf), getattr(settings, "max_ratio", None) or inf
    sizes: list[int] = []  # of each text in train

    def usable() -> Iterator[Pair]:
        for text, mask in zip(texts, masks, strict=True):
            sizes.append(0)
            for pair in compress(text, mask):
                shorter, longer = sorted(len(side.split()) for side in pair)
                if longer > max_words:
                    dropped["train: over-long"] += 1
                elif longer > max_ratio * shorter:
                    dropped["train: uneven"] += 1
                elif held_out and any(match_key(side) in held_out for side in pair):
                    dropped["train: held-out sentence"] += 1
                else:
                    sizes[-1] += 1
                    yield pair
            _refuse_empty(sizes[-1], text.where)

    parts["train"] = Pairs(usable(), folder / "train.arrow", "train")
    for part in parts.values():
        _refuse_empty(len(part), part.where)
    content = {
        "digests": {name: part.digest for name, part in parts.items()},
        "read": read,
        "dropped": +dropped,
        "weights": [text.weight for text in sources["train"]],
        "sizes": sizes,
        "gold": {name: [[*map(list, links)] for links in text.gold] for name, (text, *_) in sources.items() if text.gold},
    }
    write_text(folder / "corpus.json", json.dumps(content))


def _held_out_rows(pairs: Pairs, split: SplitSettings, with_test: bool) -> dict[str, np.ndarray]:
    """Returns a mask of the pairs to train on, of those held out for valid and, if `with_test`, of those for test."""
    shares = {"valid": split.valid, **({"test": split.test} if with_test and split.test else {})}
    n = len(pairs)
    sizes = {part: max(1, round(share * n)) if isinstance(share, float) else share for part, share in shares.items()}
    masks = hold_out(pairs, sizes, split.seed)
    log.info("%d pairs, split at random: %s", n, ", ".join(f"{part} {mask.sum()}" for part, mask in masks.items()))
    if empty := [part for part, mask in masks.items() if not mask.any()]:
        problem = f"of {n} pair{'s' * (n != 1)}, none is left for {empty[0]}; pairs that share a sentence stay together"
        raise InputError(f"data.split.valid={split.valid} data.split.test={split.test}: {problem}")
    return masks


def _refuse_empty(n: int, where: str) -> None:
    if not n:
        raise InputError(f"{where}: no sentence pair is left after dropping empty, over-long and uneven ones")


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
    return Corpus(train, valid, splits, content["dropped"], content["read"], gold, weights if weights.max() > 1 else None)
