"""Compares digests of the embedded corpus with recorded ones, because published results were measured on this corpus.

python tests/tools/corpus_digests.py            prints each difference from corpus_digests.tsv, and exits with 1 if there is one
python tests/tools/corpus_digests.py --record   rewrites corpus_digests.tsv
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from entente.data.corpora import read_corpus
from entente.settings import GrammarSettings

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "tests" / "tools" / "corpus_digests.tsv"
SEEDS = (1, 2, 3)

Digests = dict[tuple[int, str], tuple[str, str]]  # (seed, split) -> SHA-256 of the text and of the alignments


def sha256(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def corpus_digests(seed: int) -> Digests:
    """Returns two digests for each split of the default corpus. The second is "-" if the split has no alignments."""
    corpus = read_corpus(GrammarSettings(seed=seed))
    digests = {}
    for name, pairs in {"train": corpus.train, "valid": corpus.valid, **corpus.tests}.items():
        text = sha256(f"{pair['src']}\t{pair['tgt']}" for pair in pairs)
        links = [[gold.src, gold.tgt, sorted(gold.sure), sorted(gold.possible)] for gold in corpus.gold.get(name, [])]
        digests[seed, name] = text, sha256(map(json.dumps, links)) if links else "-"
    return digests


def current_digests() -> Digests:
    """Returns the digests of the corpora for all SEEDS."""
    return {key: value for seed in SEEDS for key, value in corpus_digests(seed).items()}


def recorded_digests() -> Digests:
    rows = [line.split("\t") for line in RECORD.read_text(encoding="utf-8").splitlines()[1:]]
    return {(int(seed), split): (text, alignments) for seed, split, text, alignments in rows}


def write_record(digests: Digests) -> None:
    rows = [("seed", "split", "text", "alignments"), *((str(seed), split, *both) for (seed, split), both in digests.items())]
    RECORD.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def differences(current: Digests, recorded: Digests) -> list[str]:
    """Returns one line for each digest that differs from the recorded one."""
    missing = ("missing", "missing")
    return [
        f"seed {seed}, {split}, {what}: {now}, recorded {then}"
        for seed, split in recorded | current
        for what, now, then in zip(
            ("text", "alignments"), current.get((seed, split), missing), recorded.get((seed, split), missing), strict=True
        )
        if now != then
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares the embedded corpus with the recorded digests")
    parser.add_argument("--record", action="store_true", help="record the current digests")
    if parser.parse_args().record:
        write_record(current_digests())
        return 0
    found = differences(current_digests(), recorded_digests())
    print("\n".join(found) or "The embedded corpus has the recorded digests.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
