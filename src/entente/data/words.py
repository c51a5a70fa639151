"""Defines words, also for languages written without spaces, in which each character counts as a word.

A checkpoint stores the source words of the training text, so that translation can list words that the model has not seen.
"""

import re
import unicodedata
from collections.abc import Iterable

MOST = 200_000  # maximum number of words to store; a larger set is not stored at all, so that checkpoints stay small
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Tai, Chinese, Japanese, Yi. Korean has spaces.
UNSPACED = "\u0e00-\u109f\u1780-\u17ff\u1950-\u19df\u2e80-\u2fff\u3001-\ua4cf\ua9e0-\ua9ff\uaa60-\uaa7f"
UNSPACED += "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
# sacreBLEU's tokenizers that need no other package, by language: that for Chinese, and characters
TOKENIZERS = dict.fromkeys("zh zho chi cmn yue wuu hak nan lzh".split(), "zh")
TOKENIZERS |= dict.fromkeys("ja jpn ko kor th tha lo lao km khm my mya bur bo bod tib dz dzo shn ii".split(), "char")
MARKS = "".join(mark for mark in map(chr, range(0x0E00, 0x1800)) if unicodedata.category(mark)[0] == "M")
CHARACTER = f"[{UNSPACED}][{MARKS}]*"  # with its vowel signs and tone marks
TOKEN = re.compile(rf"{CHARACTER}|[^\s{UNSPACED}]+")  # in other scripts, what is between spaces
WORD = re.compile(rf"(?=\w){CHARACTER}|[^\W{UNSPACED}]+")  # in other scripts, a run of letters and digits


def count_words(text: str) -> int:
    """Returns the number of words, which may include punctuation, between spaces or characters in a script without spaces."""
    return len(TOKEN.findall(text))


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


def unseen(words: Iterable[str], limit: int = 10) -> str:
    """Describes words that were never seen in training, of which it names the first, or returns an empty string."""
    names = [*dict.fromkeys(words)]
    text = ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
    return f"{len(names)} word{'s' * (len(names) > 1)} not seen in training: {text}" if names else ""
