"""Show sentences of the embedded corpus with their gold alignments. A filled dot is a sure link, a circle is a possible link.

entente corpus n=5 split=test
entente corpus split=test_long
entente corpus n=20 seed=2
"""

from entente.commands.settings import CorpusSettings
from entente_grammar.show import show


def main(settings: CorpusSettings) -> None:
    show(settings.n, settings.split, settings.seed)
