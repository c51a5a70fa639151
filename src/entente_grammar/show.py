"""Prints sentences of the corpus with their gold alignments."""

import random

from rich.console import Console
from rich.text import Text

from entente_grammar.corpus import ceiling, splits
from entente_grammar.pairs import Pair


def alignment_matrix(pair: Pair) -> Text:
    """Returns the links as a matrix of French words by numbered English words: ● sure, ○ possible (Och and Ney 2003)."""
    text = Text()
    width = max(len(token.text) for token in pair.fr)
    columns = range(len(pair.en))
    for i, token in enumerate(pair.fr):
        text.append(token.text.rjust(width), style="bold cyan")
        for j in columns:
            mark, style = "·", "dim"
            if (i, j) in pair.possible:
                mark, style = ("●", "bold green") if (i, j) in pair.sure else ("○", "yellow")
            text.append(mark.rjust(3), style=style)
        text.append("\n")
    text.append(" " * width + "".join(f"{j + 1:3}" for j in columns) + "\n")
    for j, token in enumerate(pair.en):
        text.append(f"{j + 1} ", style="dim")
        text.append(token.text + "  ", style="bold magenta")
    return text


def show(n: int, split: str, seed: int) -> None:
    """Prints n random pairs of a split, chosen by `seed`, and the BLEU of the best deterministic translator into French."""
    pairs = splits()[split]
    console = Console()
    for pair in random.Random(seed).sample(pairs, n):
        console.print(f"\n{pair.text('fr')}\n{pair.text('en')}\n", style="bold", highlight=False)
        console.print(alignment_matrix(pair))
    console.print("\n● a sure link, ○ a possible one (Och and Ney 2003)", highlight=False)
    sample = pairs[:1000]
    console.print(
        f"\nMany English sentences have several French translations: the best deterministic translator reaches BLEU "
        f"{ceiling(sample):.1f} on the first {len(sample):,} pairs of {split}.",
        highlight=False,
    )
