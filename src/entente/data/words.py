"""The words of the training text, which a checkpoint keeps, so that the prompt can name the words that are new to the model."""

import re
from collections.abc import Iterable

MOST = 200_000  # maximum number of words; if there are more, none are kept, so that checkpoints stay small
# A run of letters and digits; a Chinese or Japanese character is a word of its own, since these languages do not use spaces.
WORD = re.compile(r"[\u2e80-\u9fff]|[^\W\u2e80-\u9fff]+")


def distinct_words(text: str) -> list[str]:
    """Returns the words of a text without regard to case, in order and without repetition: "L'Afrique" has l and afrique."""
    return list(dict.fromkeys(WORD.findall(text.casefold())))


def known_words(texts: Iterable[str]) -> str:
    """Returns the words of all texts, sorted, one per line; an empty string if there are more than MOST."""
    known: set[str] = set()
    for text in texts:
        known.update(WORD.findall(" ".join({*text.casefold().split()})))  # each token once, since a text may be 10,000 lines
        if len(known) > MOST:
            return ""
    return "\n".join(sorted(known))
