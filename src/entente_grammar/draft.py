"""The state of one sentence being derived, which the functions that draw its parts share."""

import random
from collections.abc import Sequence
from typing import TypeVar

from entente_grammar.cells import STEP, Chunk, Style
from entente_grammar.lexicon import Term

T = TypeVar("T")


class Draft:
    """Random choices, the style they give, unused link numbers, and the features that the sentence has so far.

    The order of the random choices decides the corpus: a function that draws in another order gives other sentences.
    """

    def __init__(self, source: random.Random) -> None:
        self._random = source.random
        self._key = 0
        self.features: set[str] = set()
        self.style = Style(
            me=self.pick("mf"), you=self.pick(("tu", "tu", "vous", "plural")), your=self.pick("mf"), us=self.pick("mmf"),
            they=self.pick("mmf"), inversion=self.chance(0.4),
        )  # fmt: skip
        self.things_only = False  # objects are things, even of verbs that take people too
        self.indoors = False  # the weather keeps people inside
        self.related = True  # objects may carry a relative clause
        self.mode = ""  # past, present, future ...: the one time of a sentence of several clauses

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def below(self, n: int) -> int:
        """An integer from 0 to n - 1."""
        return int(self._random() * n)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def pick_evenly(self, items: Sequence[T], crowding: dict[T, float]) -> T:
        """One of the items, preferably a rare one: what is drawn from many lists is drawn again more often."""
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
        """The first link number of a new node."""
        self._key += STEP
        return self._key

    def use(self, lexeme: str, *constructions: str) -> None:
        """Note a lexeme and the constructions it occurs in here, each and together."""
        self.features.add(lexeme)
        for name in constructions:
            self.features.add("construction:" + name)
            self.features.add(f"{lexeme}+{name}")

    def note(self, *constructions: str) -> None:
        """Note constructions."""
        self.features.update("construction:" + name for name in constructions)

    def chunk(self, text: str) -> Chunk:
        """A fixed phrase, noted."""
        self.features.add("phrase:" + text)
        return Chunk(self.key(), text)

    def conjunction(self, text: str) -> Chunk:
        """A fixed phrase that joins two clauses."""
        self.note("clauses")
        return self.chunk(text)

    def comma(self) -> Chunk:
        return Chunk(self.key(), ",:1 | ,:1")
