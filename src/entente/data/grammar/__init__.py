"""The embedded corpus: a synchronous grammar that derives French and English together, with gold word alignments.

derivation.py draws a meaning by seeded chance; its tree writes itself in both languages (syntax.py). The French determines the
English; where English leaves French a choice (tu or vous, est-ce que or inversion, the gender of "I"), a Style makes it.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from entente.data.grammar.derivation import Derivation
from entente.data.grammar.lexicon import ADJECTIVE_LIST, NOUN, VERB
from entente.data.grammar.selection import ETRE, LEMMAS
from entente.data.grammar.syntax import (
    HE,
    NOBODY,
    STEP,
    Cell,
    Cells,
    Chunk,
    Clause,
    Name,
    Node,
    NounPhrase,
    Pronoun,
    Quality,
    Style,
    elide,
    english_spacing,
)

Side = Literal["fr", "en"]


class Token(NamedTuple):
    text: str
    space: bool  # a space stands before it in the sentence


@dataclass(frozen=True)
class Pair:
    """A sentence in both languages, its gold links (Och and Ney 2003: possible contains sure) and what it is made of."""

    fr: tuple[Token, ...]
    en: tuple[Token, ...]
    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]
    features: frozenset[str]
    origin: tuple[int, bool] | None = None  # the chance that derives it again, and whether it is a long one

    def tokens(self, side: Side) -> tuple[Token, ...]:
        return self.fr if side == "fr" else self.en

    def text(self, side: Side) -> str:
        return "".join(" " + text if space else text for text, space in self.tokens(side))

    def spans(self, side: Side) -> list[tuple[int, int]]:
        """The character span of every token in text(side)."""
        spans = []
        position = 0
        for text, space in self.tokens(side):
            start = position + space
            position = start + len(text)
            spans.append((start, position))
        return spans

    @property
    def words(self) -> int:
        """French words; punctuation is none, an elided l' is one."""
        return sum(1 for token in self.fr if token.text not in PUNCTUATION)


PUNCTUATION = frozenset(".,?!")
USUAL = Style()
SHORT, LONG = (2, 20), (21, 50)

# Lexemes and constructions that never meet outside test_compositional, though train has each of them.
HELD_OUT = {
    "clitic_object": "verb:remercier verb:inviter verb:féliciter",
    "negated_past": "verb:lire verb:vendre verb:prendre verb:fermer verb:ouvrir verb:sortir verb:nettoyer verb:choisir"
    " verb:envoyer",
    "question": "verb:boire verb:réparer verb:chercher verb:danser verb:chanter verb:oublier verb:porter",
    "comparative": "adjective:intelligent adjective:timide adjective:riche adjective:moderne adjective:vieux"
    " adjective:confortable",
    "plural": "noun:voiture noun:chien noun:tasse noun:musicien noun:robe noun:gâteau noun:arbre noun:clé noun:roman"
    " noun:chemise",
    "relative_object": "noun:lettre noun:maison noun:photo noun:bague noun:film",
}
HELD_OUT_FEATURES = frozenset(f"{lexeme}+{name}" for name, lexemes in HELD_OUT.items() for lexeme in lexemes.split())


def written(parts: Sequence[Node], mark: str, style: Style) -> tuple[list[tuple[Cell, bool]], list[tuple[Cell, bool]]]:
    """Both sides of a sentence as words with their spacing, capital and end mark."""
    end = Cell(mark, (-1,))
    french: Cells = []
    english: Cells = []
    for part in parts:
        french += part.french(style, NOBODY)
        english += part.english()
    sides = elide([*french, end]), english_spacing([*english, end])
    for side in sides:
        first, space = side[0]
        side[0] = (first._replace(text=first.text[0].upper() + first.text[1:]), space)
    if mark == "?":
        sides[0][-1] = (end, True)
    return sides


def align(fr: Cells, en: Cells) -> tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]:
    """Sure and possible links: words that share a sure number, words that share any."""
    where: dict[int, list[tuple[int, bool]]] = {}
    for j, cell in enumerate(en):
        for number in cell.sure:
            where.setdefault(number, []).append((j, True))
        for number in cell.weak:
            where.setdefault(number, []).append((j, False))
    sure = set()
    possible = set()
    for i, cell in enumerate(fr):
        for number in cell.sure:
            for j, certain in where.get(number, ()):
                possible.add((i, j))
                if certain:
                    sure.add((i, j))
        for number in cell.weak:
            for j, _ in where.get(number, ()):
                possible.add((i, j))
    return frozenset(sure), frozenset(possible)


def pair_of(
    parts: Sequence[Node], mark: str, style: Style, features: frozenset[str], origin: tuple[int, bool] | None = None
) -> Pair:
    """A sentence with its links."""
    french, english = written(parts, mark, style)
    sure, possible = align([cell for cell, _ in french], [cell for cell, _ in english])
    fr = tuple(Token(cell.text, space) for cell, space in french)
    en = tuple(Token(cell.text, space) for cell, space in english)
    return Pair(fr, en, sure, possible, features, origin)


def derive_one(number: int, long: bool = False) -> Pair:
    """The sentence of one number: a pure function."""
    derivation = Derivation(random.Random(number))
    parts, mark = derivation.long_sentence() if long else derivation.sentence()
    return pair_of(parts, mark, derivation.style, frozenset(derivation.features), (number, long))


def derive(seed: int, long: bool = False) -> Iterator[Pair]:
    """An endless stream of sentences of 2-20 French words (21-50 if long)."""
    low, high = LONG if long else SHORT
    number = (2 * seed + long) << 40
    while True:
        pair = derive_one(number, long)
        if low <= pair.words <= high:
            yield pair
        number += 1


def splits(seed: int = 1, train: int = 30_000, valid: int = 1_000, test: int = 1_000) -> dict[str, list[Pair]]:
    """Splits that share no sentence of either side; test_long and test_compositional are as many as test.

    The end of train is kept for the lemmas that are still rare in it.
    """
    sizes = {"test": test, "valid": valid, "train": train}
    parts: dict[str, list[Pair]] = {name: [] for name in ("train", "valid", "test", "test_long", "test_compositional")}
    seen: set[str] = set()
    floor = train // 1000 - 5
    rare = dict.fromkeys(LEMMAS, floor) if floor > 0 else {}

    def take(pair: Pair, name: str) -> None:
        fr, en = pair.text("fr"), pair.text("en")
        if fr in seen or en in seen:
            return
        seen.update((fr, en))
        parts[name].append(pair)
        if name == "train":
            for lemma in pair.features & rare.keys():
                rare[lemma] -= 1
                if rare[lemma] <= 0:
                    del rare[lemma]

    for pair in derive(seed):
        if pair.features & HELD_OUT_FEATURES:
            if len(parts["test_compositional"]) < test:
                take(pair, "test_compositional")
            continue
        name = next((name for name, size in sizes.items() if len(parts[name]) < size), None)
        if name is None:
            if len(parts["test_compositional"]) == test:
                break
        elif name != "train" or len(parts["train"]) < 0.95 * train or not rare or pair.features & rare.keys():
            take(pair, name)
    for pair in derive(seed, long=True):
        if len(parts["test_long"]) == test:
            break
        if not pair.features & HELD_OUT_FEATURES:
            take(pair, "test_long")
    return parts


def fixed_sentences() -> tuple[Pair, Pair]:
    """The two sentences of the attention maps."""
    tall = next(adjective for adjective in ADJECTIVE_LIST if adjective.en == "tall")
    father = NounPhrase(3 * STEP, NOUN["père"], "my", possessor=(HE, "m"))
    than_his_father = Quality(2 * STEP, tall, "aussi", father)
    he = Clause(0, Pronoun(STEP, HE), ETRE, negation="pas", rest=[than_his_father])
    africa = Name(2 * STEP, "Afrique", "Africa", "f", "la")
    september = Chunk(3 * STEP, "en:1 septembre:2 | in:1 September:2")
    jane = Clause(0, Name(STEP, "Jane", "Jane", "f"), VERB["visiter"], rest=[africa, september])
    return pair_of([he], ".", USUAL, frozenset()), pair_of([jane], ".", USUAL, frozenset())


def usual_french(pair: Pair) -> str:
    """The French of the same meaning under the usual choices: tu, est-ce que, masculine."""
    if pair.origin is None:
        return pair.text("fr")
    number, long = pair.origin
    derivation = Derivation(random.Random(number))
    parts, mark = derivation.long_sentence() if long else derivation.sentence()
    told = any(token.text.lower() in ("he", "she", "his", "her") for token in pair.en)
    return pair_of(parts, mark, replace(USUAL, masculine=not told), frozenset()).text("fr")


def ceiling(pairs: Sequence[Pair]) -> float:
    """BLEU of the best deterministic answer from English to French: the same meaning, always with the usual choices."""
    from sacrebleu import corpus_bleu

    return corpus_bleu([usual_french(pair) for pair in pairs], [[pair.text("fr") for pair in pairs]]).score


FIXED = fixed_sentences()
