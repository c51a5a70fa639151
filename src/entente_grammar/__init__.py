"""The embedded corpus: a synchronous grammar that derives French and English together, with gold word alignments.

sentences.py draws a meaning from a seeded source of random numbers; its tree writes itself in both languages (nominals.py,
clause.py). The French determines the English; where English leaves French a choice (tu or vous, est-ce que or inversion, the
gender of "I"), a Style makes it.
"""

from entente_grammar.corpus import HELD_OUT, HELD_OUT_FEATURES, USUAL, ceiling, derive, fixed_sentences, splits, usual_french
from entente_grammar.pairs import Pair, Side, pair_of

__all__ = [
    "HELD_OUT",
    "HELD_OUT_FEATURES",
    "USUAL",
    "Pair",
    "Side",
    "ceiling",
    "derive",
    "fixed_sentences",
    "pair_of",
    "splits",
    "usual_french",
]
