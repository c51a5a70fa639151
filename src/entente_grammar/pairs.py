"""Builds sentence pairs with gold word alignments. Both sides of a pair are written from the same meaning tree."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from entente_grammar.cells import IMPERSONAL, Cell, Cells, Node, Spaced, Style, elide, english_spacing

Side = Literal["fr", "en"]
Links = frozenset[tuple[int, int]]  # (index of a French token, index of an English token)

PUNCTUATION = frozenset(".,?!")


class Token(NamedTuple):
    text: str
    space: bool  # whether a space precedes the token in the sentence


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, with features and gold links. Possible links include the sure ones (Och and Ney 2003)."""

    fr: tuple[Token, ...]
    en: tuple[Token, ...]
    sure: Links
    possible: Links
    features: frozenset[str]
    origin: tuple[int, bool] | None = None  # the arguments `number` and `long` of derive_one

    def tokens(self, side: Side) -> tuple[Token, ...]:
        return self.fr if side == "fr" else self.en

    def text(self, side: Side) -> str:
        return "".join(" " + text if space else text for text, space in self.tokens(side))

    def spans(self, side: Side) -> list[tuple[int, int]]:
        """Returns the character span of each token in text(side)."""
        spans = []
        position = 0
        for text, space in self.tokens(side):
            start = position + space
            position = start + len(text)
            spans.append((start, position))
        return spans

    @property
    def words(self) -> int:
        """The number of French words, without punctuation. An elided word, such as l', counts."""
        return sum(1 for token in self.fr if token.text not in PUNCTUATION)


def write_side(cells: Cells, mark: str, spacing: Callable[[Cells], Spaced]) -> Spaced:
    """Returns one side of a sentence pair, with spacing, the end mark and an initial capital."""
    (first, space), *rest = spacing([*cells, Cell(mark, (-1,))])
    return [(first._replace(text=first.text[0].upper() + first.text[1:]), space), *rest]


def align(fr: Spaced, en: Spaced) -> tuple[Links, Links]:
    """Returns the sure links (the words share a sure number) and the possible links (the words share any number)."""
    sure, possible = set(), set()
    where: dict[int, list[tuple[int, bool]]] = {}
    for j, (cell, _) in enumerate(en):
        for number in cell.sure + cell.weak:
            where.setdefault(number, []).append((j, number in cell.sure))
    for i, (cell, _) in enumerate(fr):
        for number in cell.sure + cell.weak:
            for j, certain in where.get(number, ()):
                possible.add((i, j))
                if certain and number in cell.sure:
                    sure.add((i, j))
    return frozenset(sure), frozenset(possible)


def pair_of(
    parts: Sequence[Node], mark: str, style: Style, features: frozenset[str], origin: tuple[int, bool] | None = None
) -> Pair:
    """Writes the parts of a sentence in both languages and returns the pair with its links."""
    fr = write_side([cell for part in parts for cell in part.french(style, IMPERSONAL)], mark, elide)
    if mark == "?":
        fr[-1] = (fr[-1][0], True)
    en = write_side([cell for part in parts for cell in part.english()], mark, english_spacing)
    french, english = (tuple(Token(cell.text, space) for cell, space in side) for side in (fr, en))
    return Pair(french, english, *align(fr, en), features, origin)
