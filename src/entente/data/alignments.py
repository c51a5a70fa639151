"""Reads and formats word alignments in the Pharaoh format: on each line the links of one sentence pair, with words counted
from 0. A sure link is written `i-j`; a possible one, which a system need not make (Och & Ney 2003), `i?j` or `ipj`."""

import re
from collections.abc import Collection, Iterable, Sequence
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

    @classmethod
    def from_lists(cls, lists: list[list[list[int]]]) -> "Gold":
        src, tgt, sure, possible = ([(i, j) for i, j in pairs] for pairs in lists)
        return cls(src, tgt, frozenset(sure), frozenset(possible))

    def swap_sides(self) -> "Gold":
        sure, possible = (frozenset((j, i) for i, j in links) for links in (self.sure, self.possible))
        return Gold(self.tgt, self.src, sure, possible)


def read_pharaoh(path: Path, sources: Sequence[str], targets: Sequence[str]) -> list[Gold]:
    """Returns each pair's alignment; words are split at spaces. Raises InputError if the file does not match the pairs."""
    lines, alignments = [*read_lines(path)], []
    if len(lines) != len(sources):
        raise InputError(f"{path}: {len(lines)} lines for {len(sources)} pairs that have text on both sides; give one for each")
    for number, (line, *pair) in enumerate(zip(lines, sources, targets, strict=True), start=1):
        src, tgt = ([match.span() for match in re.finditer(r"[^ ]+", text)] for text in pair)
        links: dict[str, set[Link]] = {"-": set(), "?": set(), "p": set()}
        for token in line.split():
            match = LINK.fullmatch(token)
            if not match or int(match[1]) >= len(src) or int(match[3]) >= len(tgt):
                rule = f"write i-j for a sure one, i?j for a possible one; i is below {len(src)}, and j below {len(tgt)}"
                raise InputError(f"{path}, line {number}: {token[:40]!r} is not a link; {rule}")
            links[match[2]].add((int(match[1]), int(match[3])))
        alignments.append(Gold(src, tgt, frozenset(links["-"]), frozenset().union(*links.values())))
    return alignments


def pharaoh(sentences: Iterable[Collection[Link]]) -> str:
    """Returns links in the Pharaoh format, with one line per sentence pair."""
    return "".join(" ".join(f"{i}-{j}" for i, j in sorted(links)) + "\n" for links in sentences)
