"""Measures what changes of the source cost in BLEU:  python scripts/robustness.py CHECKPOINT PAIRS ...

CHECKPOINT is a checkpoint or a run, and PAIRS a file with lines of source TAB target. Each change is made to all pairs that it
can change, and SENTENCES of them are joined to a line; the table has the BLEU of these pairs before and after. Greedy search.
Random choices are the same each time.
"""

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

from sacrebleu.metrics import BLEU

from entente.console import Task, exit_codes, start_log
from entente.data.corpora import FULL_STOP
from entente.data.files import Columns, read_pairs
from entente.data.text import MAX_SENTENCES, as_typed, clean
from entente.errors import InputError
from entente.trained import load

Pair = tuple[str, str]
NUMBER = re.compile(r"(?<![\d.,])[1-9]\d*(?![\d.,])")
TYPO_EVERY = 8  # words


def typos(pair: Pair, generator: random.Random) -> Pair:
    """Swaps two letters within one of every TYPO_EVERY words, at least one, of at least four letters."""
    words = pair[0].split(" ")
    places = [i for i, word in enumerate(words) if re.fullmatch(r"[^\W\d_]{4,}", word)]
    for i in generator.sample(places, min(len(places), max(1, len(words) // TYPO_EVERY))):
        j = generator.randrange(1, len(words[i]) - 2)
        letters = [*words[i]]
        letters[j], letters[j + 1] = letters[j + 1], letters[j]
        words[i] = "".join(letters)
    return " ".join(words), pair[1]


def numbers(pair: Pair, generator: random.Random) -> Pair:
    """Replaces each number that is on both sides by another of as many digits."""
    src, tgt = pair
    others = {}
    for number in dict.fromkeys(NUMBER.findall(src)):
        first, count = 10 ** (len(number) - 1), 9 * 10 ** (len(number) - 1)  # numbers with as many digits
        if number in NUMBER.findall(tgt):
            others[number] = str(first + (int(number) - first + generator.randrange(1, count)) % count)
    src, tgt = (NUMBER.sub(lambda match: others.get(match[0], match[0]), text) for text in pair)
    return src, tgt


def capitals(pair: Pair, _: random.Random) -> Pair:
    return pair[0].upper(), pair[1].upper()


RAW = "CAPITALS, translated as they are"  # Entente translates a line in capitals as if it were in lower case
SENTENCES = MAX_SENTENCES + 1
AS_ONE = f"{SENTENCES} sentences in a line, translated as they are"  # Entente translates them one by one
CHANGES: dict[str, Callable[[Pair, random.Random], Pair]] = {
    RAW: capitals,
    "CAPITALS": capitals,
    "punctuation as people type it": lambda pair, _: (as_typed(pair[0]), pair[1]),
    "lower case": lambda pair, _: (pair[0].lower(), pair[1]),
    "no full stop": lambda pair, _: (FULL_STOP.sub("", pair[0]), pair[1]),
    "letters swapped": typos,
    "other numbers": numbers,
}


def read(file: str) -> list[Pair]:
    rows = read_pairs(Path(file), Columns(("fr", "en"), (1, 2)))
    return [(clean(src), clean(tgt)) for _, src, tgt in rows if src and tgt]


def measure(checkpoint: str, files: list[str]) -> None:
    """Prints the table."""
    model = load(checkpoint)
    print("| text | change | pairs | BLEU before | BLEU after | difference |\n|---|---|---|---|---|---|")
    for file in files:
        pairs = read(file)
        with Task(f"translating {file}"):
            plain = dict(zip(pairs, model.translate([src for src, _ in pairs], beam=1), strict=True))
        rows: dict[str, list[tuple[list[Pair], Pair]]] = {}  # pairs, and what becomes of them
        for name, change in CHANGES.items():
            generator = random.Random(1)
            rows[name] = [([pair], other) for pair in pairs if (other := change(pair, generator)) != pair]
        whole = [pair for pair in pairs if FULL_STOP.search(pair[0])]
        groups = [whole[i : i + SENTENCES] for i in range(0, len(whole) - SENTENCES + 1, SENTENCES)]
        rows[AS_ONE] = rows[f"{SENTENCES} sentences in a line"] = [(group, join_pairs(group)) for group in groups]
        for name, changes in rows.items():
            if not changes:
                continue
            with Task(f"translating {file}: {name}"):
                sources = [src for _, (src, _) in changes]
                after = model.translate(sources, beam=1, prefix=[""] * len(sources) if name in (RAW, AS_ONE) else None)
            before = [" ".join(plain[pair] for pair in group) for group, _ in changes]
            score_before = BLEU().corpus_score(before, [[join_pairs(group)[1] for group, _ in changes]]).score
            score_after = BLEU().corpus_score(after, [[tgt for _, (_, tgt) in changes]]).score
            difference = f"{score_after - score_before:+.1f}".replace("-", "−")
            scores = f"{score_before:.1f} | {score_after:.1f} | {difference}"
            print(f"| {Path(file).stem} | {name} | {len(changes):,} | {scores} |", flush=True)


def join_pairs(pairs: list[Pair]) -> Pair:
    src, tgt = map(" ".join, zip(*pairs, strict=True))
    return src, tgt


if __name__ == "__main__":
    with exit_codes():
        start_log(to_stderr=True)
        if len(sys.argv) < 3:
            raise InputError("give CHECKPOINT PAIRS ...")
        measure(sys.argv[1], sys.argv[2:])
