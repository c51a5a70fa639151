"""Sentence pairs: text in, `datasets.Dataset` with the string columns src and tgt out.

Every corpus is one function of plain values, listed in `CORPORA` under the name that the config group `data` gives it.
"""

import gzip
import logging
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset

from entente.errors import InputError

log = logging.getLogger("entente")

GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1
UTF8_BOM = b"\xef\xbb\xbf"
MISSING = (None, "", "???")  # "???" is what an unfilled mandatory config value looks like
NO_BREAK = str.maketrans(dict.fromkeys("\u00a0\u2007\u202f", " "))

Side = Mapping[str, str | None]  # {"src": path, "tgt": path}


@dataclass(frozen=True)
class Corpus:
    """Pairs to learn from, to choose by and to report on; each split has the columns src and tgt, no side empty."""

    name: str
    train: Dataset
    valid: Dataset
    tests: dict[str, Dataset]
    dropped: dict[str, int] = field(default_factory=dict)  # "train: over-long" -> how many pairs; no zeros

    def split(self, name: str) -> Dataset:
        known = {"train": self.train, "valid": self.valid, **self.tests}
        if name not in known:
            raise InputError(f"split={name}: this corpus has {', '.join(known)}")
        return known[name]


def clean(line: str) -> str:
    """The form in which every line meets the tokenizer, training text and text to translate alike: NFC, no-break spaces
    (U+00A0, U+2007, U+202F) made ordinary ones, no outer white space."""
    return unicodedata.normalize("NFC", line).translate(NO_BREAK).strip()


def grammar(src: str, tgt: str, seed: int, train: int, valid: int, test: int) -> Corpus:
    """The embedded French-English grammar; `train`, `valid` and `test` are numbers of pairs."""
    if {src, tgt} != {"fr", "en"}:
        raise InputError(f"data.src={src} data.tgt={tgt}: the grammar has fr and en, one as source and one as target")
    from entente.data.grammar import Pair, splits  # here, so that other corpora do not build its lexicon

    def both(pair: Pair) -> dict[str, str]:
        return {"fr": clean(pair.text("fr")), "en": clean(pair.text("en"))}

    parts = {
        name: _dataset(f"data=grammar, {name}", [(text[src], text[tgt]) for text in map(both, pairs)])
        for name, pairs in splits(seed, train, valid, test).items()
    }
    return Corpus("grammar", parts.pop("train"), parts.pop("valid"), tests=parts)


def files(
    src: str,
    tgt: str,
    root: str | None,
    train: Side,
    valid: Side,
    test: Side | Mapping[str, Side] | None,
    max_words: int,
) -> Corpus:
    """Parallel text files, one sentence a line, plain or gzip, UTF-8: line N of one side translates line N of the
    other.

    `root` is the folder that relative paths start from (None: the current one). `test` is one pair of paths, or several
    by name. Pairs with an empty side are dropped, and from train those with more than `max_words` words on a side;
    valid and test keep long ones, since a score is over all sentences.
    """
    if src == tgt:
        raise InputError(f"data.src={src} data.tgt={tgt}: source and target language are the same")
    dropped: dict[str, int] = {}

    def read(name: str, side: object, key: str, limit: int | None) -> Dataset:
        paths = [_path(root, side, key, which) for which in ("src", "tgt")]
        pairs, counts = _filtered(_parallel(*paths), limit)
        dropped.update({f"{name}: {why}": count for why, count in counts.items() if count})
        return _dataset(f"{paths[0]} and {paths[1]}", pairs)

    return Corpus(
        name=f"files-{src}-{tgt}",
        train=read("train", train, "data.train", max_words),
        valid=read("valid", valid, "data.valid", None),
        tests={name: read(name, side, key, None) for name, key, side in _tests(test)},
        dropped=dropped,
    )


CORPORA: dict[str, Callable[..., Corpus]] = {"grammar": grammar, "files": files}


def read_lines(path: Path) -> list[str]:
    r"""The cleaned lines of a UTF-8 file, plain or gzip (told by its first bytes, not by its name).

    A line ends at "\n" and nowhere else: a lone CR, U+2028 or a form feed is text. So every reader counts alike.
    """
    try:
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: this is a folder; give a text file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged or truncated gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    data = data.removeprefix(UTF8_BOM)
    if not data:
        raise InputError(f"{path}: the file is empty")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {number}: not UTF-8 text; convert the file to UTF-8 first") from None
    return [clean(line) for line in text.removesuffix("\n").split("\n")]


def parallel_files(src: Path, tgt: Path) -> Dataset:
    """Every pair of two parallel files that has text on both sides."""
    pairs, counts = _filtered(_parallel(src, tgt), None)
    if counts["empty"]:
        log.info("dropped %d pairs: empty", counts["empty"])
    return _dataset(f"{src} and {tgt}", pairs)


def _parallel(src: Path, tgt: Path) -> list[tuple[str, str]]:
    one, other = read_lines(src), read_lines(tgt)
    if len(one) != len(other):
        raise InputError(f"{src} has {len(one)} lines and {tgt} has {len(other)}: line N must translate line N")
    return list(zip(one, other, strict=True))


def _filtered(pairs: list[tuple[str, str]], max_words: int | None) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """The pairs worth keeping and, by reason, how many are not."""
    full = [pair for pair in pairs if all(pair)]
    kept = [pair for pair in full if max_words is None or max(len(side.split()) for side in pair) <= max_words]
    return kept, {"empty": len(pairs) - len(full), "over-long": len(full) - len(kept)}


def _dataset(where: str, pairs: list[tuple[str, str]]) -> Dataset:
    if not pairs:
        raise InputError(f"{where}: no sentence pair left after dropping empty and over-long ones")
    return Dataset.from_dict({"src": [src for src, _ in pairs], "tgt": [tgt for _, tgt in pairs]})


def _path(root: str | None, side: object, key: str, which: str) -> Path:
    if side not in MISSING and not isinstance(side, Mapping):
        raise InputError(f"{key}={side}: give two files, {key}.src=FILE {key}.tgt=FILE")
    given = side.get(which) if isinstance(side, Mapping) else None
    if given in MISSING:
        raise InputError(f"{key}.{which} is not set: give the file, {key}.{which}=FILE")
    return Path(root or "").expanduser() / Path(str(given)).expanduser()


def _tests(test: Side | Mapping[str, Side] | None) -> list[tuple[str, str, object]]:
    """(name, config key, paths) of every test set given: `test` holds src and tgt itself, or named pairs of them."""
    if test is None:
        return []
    if not isinstance(test, Mapping):
        return [("test", "data.test", test)]  # refused in words where its paths are looked up
    given = {name: value for name, value in test.items() if value not in MISSING}
    named = {name: value for name, value in given.items() if name not in ("src", "tgt")}
    if clash := named.keys() & {"train", "valid"}:
        raise InputError(f"data.test.{clash.pop()}: a test set needs a name of its own")
    one = [("test", "data.test", given)] if given.keys() - named.keys() else []
    return one + [(name, f"data.test.{name}", value) for name, value in named.items()]
