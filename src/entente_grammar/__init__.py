"""The embedded corpus: a synchronous grammar that derives French and English together, with gold word alignments.

sentences.py draws a meaning tree from seeded random numbers; the tree's nodes (nominals.py, clause.py) write both sentences.
The French determines the English. Choices that English leaves open (tu or vous, est-ce que or inversion, the gender of "I") are
made by a Style.
"""

from entente_grammar.corpus import HELD_OUT, HELD_OUT_FEATURES, USUAL, ceiling, derive, splits, usual_french
from entente_grammar.pairs import Pair, Side, pair_of

__all__ = [
    "HELD_OUT",
    "HELD_OUT_FEATURES",
    "USUAL",
    "Pair",
    "Side",
    "ceiling",
    "derive",
    "pair_of",
    "splits",
    "usual_french",
]
