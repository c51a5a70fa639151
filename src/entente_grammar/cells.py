"""Written words with their link numbers, and what a phrase needs to know to write itself.

A node of a meaning tree owns STEP link numbers from its key on. A written word is a Cell with its sure and weak numbers: two
words that share a sure number are a sure link, two that share a number at all are a possible one (Och and Ney 2003).
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol

from entente_grammar.french import ELIDING, starts_with_vowel

STEP = 16  # link numbers of one node
ME, YOU, HE, WE, THEY = 0, 1, 2, 3, 5  # grammatical persons; 4, the plural you, is French only


class Cell(NamedTuple):
    """One written word and its link numbers; an article contracts with à and de, a pronoun of the same form does not."""

    text: str
    sure: tuple[int, ...] = ()
    weak: tuple[int, ...] = ()
    article: bool = False


Cells = list[Cell]
Spaced = list[tuple[Cell, bool]]  # words, each with whether a space precedes it


@dataclass(frozen=True, slots=True)
class Style:
    """What French must choose and English leaves open: the genders of I, you, we, they; tu or vous; the form of a question."""

    me: str = "m"
    you: str = "tu"  # tu, vous, plural
    your: str = "m"
    us: str = "m"
    they: str = "m"
    masculine: bool = False  # un ami for a friend whose gender English does not show
    inversion: bool = False


class Agreement(NamedTuple):
    """What a verb and its participle or adjective agree with: French person 0-5, gender, number."""

    person: int
    gender: str
    plural: bool


IMPERSONAL = Agreement(2, "m", False)


def agreement(person: int, gender: str, style: Style) -> Agreement:
    """The agreement of a pronoun."""
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
    """A phrase that may follow a verb; an adjective in it agrees with the subject."""

    def french(self, style: Style, subject: Agreement) -> Cells: ...

    def english(self) -> Cells: ...


@cache
def _read_chunk(text: str) -> tuple[Cells, Cells]:
    """Both sides of a fixed phrase "word:1 word~1 | word:1"; a colon makes the link number sure, a tilde weak."""

    def cell(word: str) -> Cell:
        sure = ":" in word
        form, number = word.rsplit(":" if sure else "~", 1)
        return Cell(form, (int(number),)) if sure else Cell(form, (), (int(number),))

    french, english = ([cell(word) for word in side.split()] for side in text.split(" | "))
    return french, english


@dataclass(slots=True)
class Chunk:
    """A fixed phrase: an adverb, a conjunction, a date; also who, what and this as subjects."""

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
    """French words as written."""
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
    """English words as written."""
    return [(cell, i > 0 and cell.text[0] not in "',.?!") for i, cell in enumerate(cells)]
