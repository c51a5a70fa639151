"""Splits text into distinct words. A checkpoint stores the source words of the training text, so that the translation prompt
can list words that the model has not seen."""

import re
from collections.abc import Iterable

MOST = 200_000  # maximum number of words to store; a larger set is not stored at all, so that checkpoints stay small
# A word is a run of letters and digits, or one Chinese or Japanese character, since these languages do not use spaces.
WORD = re.compile(r"[\u2e80-\u9fff]|[^\W\u2e80-\u9fff]+")


def distinct_words(text: str) -> list[str]:
    """Returns the distinct words of a text, case-folded, in order of first occurrence. "L'Afrique" gives l and afrique."""
    return list(dict.fromkeys(WORD.findall(text.casefold())))


def known_words(texts: Iterable[str]) -> str:
    """Returns the distinct words of all texts, sorted, one per line, or an empty string if there are more than MOST."""
    words: set[str] = set()
    for text in texts:
        words.update(WORD.findall(" ".join({*text.casefold().split()})))  # deduplicates first: a text may have 10,000 lines
        if len(words) > MOST:
            return ""
    return "\n".join(sorted(words))
