"""Defines the types that all phrases of a meaning tree share, and written words with the link numbers that align them.

Each node of a meaning tree owns STEP link numbers, starting with its key. A written word is a Cell with sure and weak link
numbers. A French word and an English word have a sure link if they share a number that is sure in both, and a possible link if
they share any number (Och and Ney 2003).
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol

from entente_grammar.french import ELIDING, starts_with_vowel

STEP = 16  # link numbers per node
ME, YOU, HE, WE, THEY = 0, 1, 2, 3, 5  # grammatical persons; 4 (vous) occurs only in French


class Cell(NamedTuple):
    """A written word and its link numbers. `article` marks a definite article, which may contract with à or de (au, du)."""

    text: str
    sure: tuple[int, ...] = ()
    weak: tuple[int, ...] = ()
    article: bool = False


Cells = list[Cell]
Spaced = list[tuple[Cell, bool]]  # each word, and whether a space precedes it


@dataclass(frozen=True, slots=True)
class Style:
    """What French must choose and English leaves open: the gender of I, you, we and they, tu or vous, the form of questions."""

    me: str = "m"
    you: str = "tu"  # tu, vous (to one person) or plural (vous to several)
    your: str = "m"
    us: str = "m"
    they: str = "m"
    masculine: bool = False  # write the masculine noun (ami) even if the feminine (amie) was drawn
    inversion: bool = False


class Agreement(NamedTuple):
    """The person (0 to 5: je to ils), gender and number with which a French verb, participle or adjective agrees."""

    person: int
    gender: str
    plural: bool


IMPERSONAL = Agreement(2, "m", False)


def agreement(person: int, gender: str, style: Style) -> Agreement:
    """Returns the French agreement of a pronoun. `person` is ME to THEY; `gender` is used only for HE (he or she)."""
    if person == ME:
        return Agreement(0, style.me, False)
    if person == YOU:
        return Agreement(1 if style.you == "tu" else 4, style.your, style.you == "plural")
    if person == WE:
        return Agreement(3, style.us, True)
    if person == THEY:
        return Agreement(5, style.they, True)
    return Agreement(2, gender, False)


class Node(Protocol):
    """The interface of a phrase of the meaning tree. In French, a predicate adjective in the phrase agrees with `subject`."""

    def french(self, style: Style, subject: Agreement) -> Cells: ...

    def english(self) -> Cells: ...


@cache
def _read_chunk(text: str) -> tuple[Cells, Cells]:
    """Parses both sides of a phrase like "le~1 lundi:1 | on~1 Mondays:1". A link number is sure after ":", weak after "~"."""

    def cell(word: str) -> Cell:
        sure = ":" in word
        form, number = word.rsplit(":" if sure else "~", 1)
        return Cell(form, (int(number),)) if sure else Cell(form, (), (int(number),))

    french, english = ([cell(word) for word in side.split()] for side in text.split(" | "))
    return french, english


@dataclass(slots=True)
class Chunk:
    """A fixed phrase, such as an adverb, a conjunction or a date, or the subject "who" or "this"."""

    key: int
    text: str
    plural: bool = False
    gender: str = "m"

    @property
    def person(self) -> int:
        return THEY if self.plural else HE

    def agreement(self, style: Style) -> Agreement:
        return Agreement(self.person, "m", self.plural)

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
        return self._cells(_read_chunk(self.text)[0])

    def english(self) -> Cells:
        return self._cells(_read_chunk(self.text)[1])

    def _cells(self, cells: Cells) -> Cells:
        key = self.key
        return [Cell(text, tuple(key + n for n in sure), tuple(key + n for n in weak)) for text, sure, weak, _ in cells]


def elide(cells: Cells) -> Spaced:
    """Returns French words after elision (le arbre becomes l'arbre), and for each whether a space precedes it."""
    out: Spaced = []
    glued = True
    followers = [*(cell.text for cell in cells[1:]), "."]
    for cell, follower in zip(cells, followers, strict=True):
        text = cell.text
        if text in ELIDING and starts_with_vowel(follower) or text == "si" and follower in ("il", "ils"):
            out.append((cell._replace(text=text[:-1] + "'"), not glued))
            glued = True
        else:
            out.append((cell, not glued and text[0] not in "-,."))
            glued = text.endswith("'")
    return out


def english_spacing(cells: Cells) -> Spaced:
    """Pairs each English word with whether a space precedes it."""
    return [(cell, i > 0 and cell.text[0] not in "',.?!") for i, cell in enumerate(cells)]
