"""Prints English captions of Multi30k without a translation, for back-translation: python scripts/captions.py FOLDER > more.en

FOLDER is the folder `data` of a copy of the public repository multi30k/dataset. The captions are those of task 2's training
images, each once, without those of task 1, which would repeat its training text, or show the model its validation or test text.
Sentences that differ only in case, punctuation and spaces count as the same.
"""

import gzip
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from entente.console import exit_codes
from entente.errors import InputError


def key(sentence: str) -> str:
    return re.sub(r"[\W_]+", "", sentence.casefold())


def captions(folder: Path) -> list[str]:
    excluded = {"", *(key(line) for line in lines(folder, "task1/raw/*.en.gz"))}
    sentences: dict[str, str] = {}
    for line in lines(folder, "task2/raw/train.*.en.gz"):
        if (name := key(line)) not in excluded:
            sentences.setdefault(name, line)
    return [*sentences.values()]


def lines(folder: Path, pattern: str) -> Iterator[str]:
    if not (paths := sorted(folder.glob(pattern))):
        raise InputError(f"{folder}: has no {pattern}; give the folder `data` of multi30k/dataset")
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from (line.strip() for line in file)


if __name__ == "__main__":
    with exit_codes():
        if len(sys.argv) != 2:
            raise InputError("give a folder: python scripts/captions.py FOLDER > more.en")
        print("\n".join(captions(Path(sys.argv[1]))))
