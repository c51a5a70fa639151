"""The distinct words of a text. A checkpoint stores those of its training text, so that the prompt can name words that are new
to the model."""

import re
from collections.abc import Iterable

MOST = 200_000  # maximum number of words; if there are more, none are kept, so that checkpoints stay small
# A run of letters and digits; a Chinese or Japanese character is a word of its own, since these languages do not use spaces.
WORD = re.compile(r"[\u2e80-\u9fff]|[^\W\u2e80-\u9fff]+")


def distinct_words(text: str) -> list[str]:
    """Returns the distinct words of a text, case-folded, in order of first occurrence: l and afrique for "L'Afrique"."""
    return list(dict.fromkeys(WORD.findall(text.casefold())))


def known_words(texts: Iterable[str]) -> str:
    """Returns the distinct words of all texts, sorted, one per line; an empty string if there are more than MOST."""
    known: set[str] = set()
    for text in texts:
        known.update(WORD.findall(" ".join({*text.casefold().split()})))  # distinct tokens, since a text may be 10,000 lines
        if len(known) > MOST:
            return ""
    return "\n".join(sorted(known))
