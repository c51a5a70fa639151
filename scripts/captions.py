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


def key(sentence: str) -> str:
    return re.sub(r"[\W_]+", "", sentence.casefold())


def captions(folder: Path) -> list[str]:
    known = {key(line) for line in lines(folder, "task1/raw/*.en.gz")}
    kept: dict[str, str] = {}
    for line in lines(folder, "task2/raw/train.*.en.gz"):
        if (name := key(line)) not in known:
            kept.setdefault(name, line)
    return [*kept.values()]


def lines(folder: Path, pattern: str) -> Iterator[str]:
    for path in sorted(folder.glob(pattern)):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from (line.strip() for line in file)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(captions(Path(sys.argv[1]))))
