"""Generates the sentences of the corpus, each from its own random seed, and divides them into splits."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from entente_grammar.cells import Style
from entente_grammar.choices import LEMMAS
from entente_grammar.draft import Draft
from entente_grammar.pairs import Pair, pair_of
from entente_grammar.sentences import long_sentence, sentence
from entente_grammar.tables import read_table

USUAL = Style()
SHORT, LONG = (2, 20), (21, 50)  # smallest and largest number of French words
# Lexemes and constructions that occur together only in test_compositional; train has each of them separately.
HELD_OUT = {row["construction"]: row["lexemes"].split() for row in read_table("held_out")}
HELD_OUT_FEATURES = frozenset(f"{lexeme}+{name}" for name, lexemes in HELD_OUT.items() for lexeme in lexemes)


def derive_one(number: int, long: bool = False, style: Style | None = None) -> Pair:
    """Returns the sentence pair generated from the random seed `number`. `style`, if given, replaces the style drawn."""
    draft = Draft(random.Random(number))
    parts, mark = (long_sentence if long else sentence)(draft)
    return pair_of(parts, mark, style or draft.style, frozenset(draft.features), (number, long))


def derive(seed: int, long: bool = False) -> Iterator[Pair]:
    """Yields sentence pairs without end, each with 2 to 20 French words (21 to 50 if `long`)."""
    low, high = LONG if long else SHORT
    number = (2 * seed + long) << 40
    while True:
        pair = derive_one(number, long)
        if low <= pair.words <= high:
            yield pair
        number += 1


def splits(seed: int = 1, train: int = 30_000, valid: int = 1_000, test: int = 1_000) -> dict[str, list[Pair]]:
    """Returns the splits, which share no sentence in either language. test_long and test_compositional are as large as test.

    The last 5% of train are reserved for sentences with lemmas that are still rare in train, as long as there are such lemmas.
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


def usual_french(pair: Pair) -> str:
    """Returns the French sentence that expresses the meaning of the pair with the usual choices: tu, est-ce que, masculine."""
    if pair.origin is None:
        return pair.text("fr")
    gender_shown = any(token.text.lower() in ("he", "she", "his", "her") for token in pair.en)
    return derive_one(*pair.origin, replace(USUAL, masculine=not gender_shown)).text("fr")


def ceiling(pairs: Sequence[Pair]) -> float:
    """Returns the BLEU of always making the usual choices in French, which is the maximum for a deterministic translator."""
    from sacrebleu import corpus_bleu

    return corpus_bleu([usual_french(pair) for pair in pairs], [[pair.text("fr") for pair in pairs]]).score
