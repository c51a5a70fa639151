"""Makes the texts of outputs/published/own_text.md: python scripts/own_text.py FILE FOLDER

FILE is the English-French file of www.manythings.org/anki (fra.txt, or gzipped). FOLDER gets valid.tsv and test.tsv with 1,000
pairs each, and train-3000.tsv, train-20000.tsv and train-all.tsv, of which each contains the one before. Pairs that share a
sentence, ignoring case and punctuation, are never in two of valid, test and train.
"""

import gzip
import random
import re
import sys
from collections import defaultdict
from pathlib import Path

HELD_OUT, LARGEST = 1000, 20  # pairs in valid and in test; a larger group of pairs that share sentences stays in train


def key(sentence: str) -> str:
    return re.sub(r"\W+", " ", sentence.lower()).strip()


def groups(pairs: list[list[str]]) -> list[list[list[str]]]:
    """Returns the pairs in groups that share no sentence, in random order. (`hold_out` of entente.data.pairs keeps a group
    together; here valid and test get one pair of each of their groups, so that all their sentences are different.)"""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = name = parent[parent[name]]
        return name

    for english, french in pairs:
        parent[root("e" + key(english))] = root("f" + key(french))
    members = defaultdict(list)
    for pair in pairs:
        members[root("e" + key(pair[0]))].append(pair)
    names = sorted(members)
    random.Random(1).shuffle(names)
    return [members[name] for name in names]


def main(file: Path, folder: Path) -> None:
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        parts = groups([line.rstrip("\n").split("\t")[:2] for line in lines])
    small = [n for n, part in enumerate(parts) if len(part) <= LARGEST][: 2 * HELD_OUT]
    picks = [random.Random(n % HELD_OUT).choice(parts[place]) for n, place in enumerate(small)]
    held = {*small}
    train = [pair for n, part in enumerate(parts) if n not in held for pair in part]
    random.Random(2).shuffle(train)
    texts = {"valid": picks[:HELD_OUT], "test": picks[HELD_OUT:], "train-3000": train[:3000], "train-20000": train[:20000]}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**texts, "train-all": train}.items():
        (folder / f"{name}.tsv").write_text("".join("\t".join(pair) + "\n" for pair in text), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
