"""Holds the state of a derivation, which the functions that draw the parts of a sentence share."""

import random
from collections.abc import Sequence
from typing import TypeVar

from entente_grammar.cells import STEP, Chunk, Style
from entente_grammar.lexicon import Term

T = TypeVar("T")


class Draft:
    """A sentence that is being drawn: its source of random numbers, style, link numbers and features so far.

    The order of the random choices determines the corpus: changing it changes the sentences.
    """

    def __init__(self, source: random.Random) -> None:
        self._random = source.random
        self._key = 0
        self.features: set[str] = set()
        self.style = Style(
            me=self.pick("mf"), you=self.pick(("tu", "tu", "vous", "plural")), your=self.pick("mf"), us=self.pick("mmf"),
            they=self.pick("mmf"), inversion=self.chance(0.4),
        )  # fmt: skip
        self.things_only = False  # do not draw people as objects
        self.indoors = False  # draw only places that are indoors
        self.related = True  # objects may have relative clauses
        self.mode = ""  # the tense and mood shared by all clauses (a key of MODES), empty if they share none

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def below(self, n: int) -> int:
        """Draws an integer from 0 to n - 1."""
        return int(self._random() * n)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def pick_evenly(self, items: Sequence[T], crowding: dict[T, float]) -> T:
        """Picks an item at random. crowding: the relative frequency of each item; if that of the item picked is above 1, picks
        again with probability 1 - 1 / crowding, at most three times, so that items are drawn about equally often."""
        item = self.pick(items)
        for _ in range(3):
            if self._random() * crowding.get(item, 0.0) < 1.0:
                break
            item = self.pick(items)
        return item

    def weighted(self, table: Sequence[tuple[float, T]]) -> T:
        point = self._random()
        for weight, item in table:
            point -= weight
            if point < 0:
                return item
        return table[-1][1]

    def number(self, numbers: Sequence[Term]) -> Term:
        number = self.pick(numbers)
        self.use("number:" + number.fr)
        return number

    def key(self) -> int:
        """Reserves the link numbers of a new node and returns the first."""
        self._key += STEP
        return self._key

    def use(self, lexeme: str, *constructions: str) -> None:
        """Adds to the features the lexeme, each construction, and each combination of the lexeme with a construction."""
        self.features.add(lexeme)
        for name in constructions:
            self.features.add("construction:" + name)
            self.features.add(f"{lexeme}+{name}")

    def note(self, *constructions: str) -> None:
        """Adds constructions to the features."""
        self.features.update("construction:" + name for name in constructions)

    def chunk(self, text: str) -> Chunk:
        """Returns a fixed phrase and adds it to the features."""
        self.features.add("phrase:" + text)
        return Chunk(self.key(), text)

    def conjunction(self, text: str) -> Chunk:
        """Returns a fixed phrase that joins two clauses, and adds it to the features."""
        self.note("clauses")
        return self.chunk(text)

    def comma(self) -> Chunk:
        return Chunk(self.key(), ",:1 | ,:1")
