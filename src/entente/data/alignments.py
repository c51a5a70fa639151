"""Gold word alignments: which words of a pair say the same, and the Pharaoh format that others write them in.

A line of Pharaoh has a sentence's links, `i-j` with i a word of the source and j one of the target, both from 0. A sure link
is written so; a possible one, which a system may make and need not (Och & Ney 2003), `i?j` or `ipj`.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from entente.data.files import read_lines
from entente.errors import InputError

Span = tuple[int, int]  # characters of a sentence: first, and one behind the last
Link = tuple[int, int]  # a word of the source, a word of the target

LINK = re.compile(r"(\d{1,6})([-?p])(\d{1,6})")


class Gold(NamedTuple):
    """Of one pair: where its words stand in both sentences, and its links; possible contains sure."""

    src: list[Span]
    tgt: list[Span]
    sure: frozenset[Link]
    possible: frozenset[Link]

    def turned(self) -> "Gold":
        """The same with source and target exchanged."""
        sure, possible = (frozenset((j, i) for i, j in links) for links in (self.sure, self.possible))
        return Gold(self.tgt, self.src, sure, possible)


def read_pharaoh(path: Path, sources: Sequence[str], targets: Sequence[str]) -> list[Gold]:
    """The links of each pair of sentences; their words are what white space parts. InputError for a file that does not fit."""
    lines = [*islice(read_lines(path), len(sources) + 1)]
    if len(lines) != len(sources):
        raise InputError(
            f"{path}: {'more than ' * (len(lines) > len(sources))}{min(len(lines), len(sources))} lines of links for "
            f"{len(sources)} pairs of sentences; give one for each pair that has text on both sides"
        )
    return [
        _gold(line, pair, f"{path}, line {number}")
        for number, (line, *pair) in enumerate(zip(lines, sources, targets, strict=True), start=1)
    ]


def _gold(line: str, pair: Sequence[str], where: str) -> Gold:
    src, tgt = ([match.span() for match in re.finditer(r"[^ ]+", text)] for text in pair)
    links: dict[Link, bool] = {}  # whether it is sure
    for token in line.split():
        if not (match := LINK.fullmatch(token)):
            raise InputError(f"{where}: {token[:40]!r} is no link; write i-j for a sure one, i?j for a possible one, from 0")
        i, j = int(match[1]), int(match[3])
        if i >= len(src) or j >= len(tgt):
            raise InputError(
                f"{where}: {token} links words that are not there; the sentences have {len(src)} and {len(tgt)}, counted from 0"
            )
        links[i, j] = match[2] == "-" or links.get((i, j), False)
    return Gold(src, tgt, frozenset(link for link, sure in links.items() if sure), frozenset(links))


def pharaoh(sentences: Iterable[Collection[Link]]) -> str:
    """A line for each sentence's links."""
    return "".join(" ".join(f"{i}-{j}" for i, j in sorted(links)) + "\n" for links in sentences)
