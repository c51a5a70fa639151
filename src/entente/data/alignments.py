"""Reads and formats word alignments in the Pharaoh format. An alignment links source words to their translations.

Each line lists the links of one sentence pair. A sure link between source word i and target word j, both counted from 0, is
written `i-j`. A possible link, which a system may but need not make (Och & Ney 2003), is written `i?j` or `ipj`.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from entente.data.files import read_lines
from entente.errors import InputError

Span = tuple[int, int]  # start and end (exclusive) of a word, as character offsets in its sentence
Link = tuple[int, int]  # index of the source word, index of the target word

LINK = re.compile(r"(\d{1,6})([-?p])(\d{1,6})")


class Gold(NamedTuple):
    """The gold alignment of a sentence pair: the spans of its words, and the links between them. `possible` includes `sure`."""

    src: list[Span]
    tgt: list[Span]
    sure: frozenset[Link]
    possible: frozenset[Link]

    def to_lists(self) -> list[list[int]]:
        """Returns the fields as flat lists of numbers, for JSON."""
        return [[*chain.from_iterable(pairs)] for pairs in self]

    @classmethod
    def from_lists(cls, lists: list[list[int]]) -> "Gold":
        src, tgt, sure, possible = ([*zip(numbers[::2], numbers[1::2], strict=True)] for numbers in lists)
        return cls(src, tgt, frozenset(sure), frozenset(possible))

    def swap_sides(self) -> "Gold":
        """Returns the same alignment with source and target exchanged."""
        sure, possible = (frozenset((j, i) for i, j in links) for links in (self.sure, self.possible))
        return Gold(self.tgt, self.src, sure, possible)


def read_pharaoh(path: Path, sources: Sequence[str], targets: Sequence[str]) -> list[Gold]:
    """Returns each pair's alignment; words are split at spaces. Raises InputError if the file is invalid or does not
    match the pairs."""
    lines = [*islice(read_lines(path), len(sources) + 1)]
    if len(lines) != len(sources):
        n = min(len(lines), len(sources))
        raise InputError(
            f"{path}: {'more than ' * (len(lines) > n)}{n} line{'s' * (n != 1)} of links for "
            f"{len(sources)} pairs of sentences; give one line for each pair that has text on both sides"
        )
    return [
        _gold(line, pair, f"{path}, line {number}")
        for number, (line, *pair) in enumerate(zip(lines, sources, targets, strict=True), start=1)
    ]


def _gold(line: str, pair: Sequence[str], where: str) -> Gold:
    src, tgt = ([match.span() for match in re.finditer(r"[^ ]+", text)] for text in pair)
    links: dict[Link, bool] = {}  # link -> whether it is sure
    for token in line.split():
        if not (match := LINK.fullmatch(token)):
            raise InputError(
                f"{where}: {token[:40]!r} is not a link; write i-j for a sure one, i?j for a possible one, "
                "counting words from 0"
            )
        i, j = int(match[1]), int(match[3])
        if i >= len(src) or j >= len(tgt):
            raise InputError(
                f"{where}: {token} links words that do not exist; the sentences have {len(src)} and {len(tgt)} words, "
                "numbered from 0"
            )
        links[i, j] = match[2] == "-" or links.get((i, j), False)
    return Gold(src, tgt, frozenset(link for link, sure in links.items() if sure), frozenset(links))


def pharaoh(sentences: Iterable[Collection[Link]]) -> str:
    """Returns links in the Pharaoh format, with one line per sentence pair."""
    return "".join(" ".join(f"{i}-{j}" for i, j in sorted(links)) + "\n" for links in sentences)
