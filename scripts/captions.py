"""Prints English captions of Multi30k without a translation, for back-translation: python scripts/captions.py FOLDER > more.en

FOLDER is the folder `data` of a copy of the public repository multi30k/dataset. The captions are those of task 2's training
images, each once, without those of task 1, which would repeat its training text, or show the model its validation or test text.
Sentences that differ only in case, punctuation, spaces and repeated words count as the same.
"""

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from entente.console import exit_codes
from entente.data.files import read_lines
from entente.data.text import distinct_words
from entente.errors import InputError


def captions(folder: Path) -> list[str]:
    excluded = {(), *(tuple(distinct_words(line)) for line in lines(folder, "task1/raw/*.en.gz"))}
    sentences: dict[tuple[str, ...], str] = {}
    for line in lines(folder, "task2/raw/train.*.en.gz"):
        if (words := tuple(distinct_words(line))) not in excluded:
            sentences.setdefault(words, line)
    return [*sentences.values()]


def lines(folder: Path, pattern: str) -> Iterator[str]:
    if not (paths := sorted(folder.glob(pattern))):
        raise InputError(f"{folder}: has no {pattern}; give the folder `data` of multi30k/dataset")
    return chain.from_iterable(map(read_lines, paths))


if __name__ == "__main__":
    with exit_codes():
        if len(sys.argv) != 2:
            raise InputError("give a folder: python scripts/captions.py FOLDER > more.en")
        print("\n".join(captions(Path(sys.argv[1]))))
