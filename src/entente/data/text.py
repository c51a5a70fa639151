"""Cleans lines, and divides them into sentences and words. In languages written without spaces, each character is a word.

This file needs only the standard library, because the folder of an exported model gets a copy of it.
"""

import re
import unicodedata
from collections.abc import Iterable

SPACES = re.compile("[\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")  # the tab, and all spaces (category Zs) but U+0020
# Format characters. The joiners U+200C and U+200D stay between letters of scripts that spell with them (Arabic to Mongolian).
INVISIBLE = re.compile(
    "[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]"
    "|(?<![\u0600-\u18af])[\u200c\u200d]|[\u200c\u200d](?![\u0600-\u18af])"
)
# Tab ends a field of our files; the others end a line for Python's splitlines. In a translation they become a space.
SEPARATORS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
APOSTROPHES = str.maketrans("\u2018\u2019\u02bc", "'''")
MARK_SPACES = re.compile(" +(?=[?!;:])")  # in "l’été ?", which people type as "l'été?"
LETTER, LONG_WORDS = re.compile(r"[^\W\d_]"), re.compile(r"[^\W\d_]{2,}")
MAX_WORDS, MAX_SENTENCES = 60, 2  # of a line, above which its sentences are translated one by one
# The end of a sentence, before the letter or digit with which the next begins
END = re.compile(r"""[.!?…؟।](?:\s?[»”"')]){0,3}\s+(?=[-–—«“"¿¡(\s]{0,4}([^\W_]))""")
# Words whose full stop ends no sentence
TITLES = {*"mm mme mlle mr mrs ms dr st ste prof sen gov gen lt capt rev cf chap sept inc co".split()}
NUMBER = re.compile(r"\W*(?:\d+|[^\W\d_])")  # at the beginning of a sentence: that of an item in a list
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


def clean(line: str) -> str:
    """Drops INVISIBLE characters, replaces SPACES with ordinary ones, converts a line to NFC, and strips leading and trailing
    white space. All text is cleaned in this way before it is tokenized, in training and in translation."""
    return unicodedata.normalize("NFC", SPACES.sub(" ", INVISIBLE.sub("", line))).strip()


def as_typed(text: str) -> str:
    """Returns a text with the punctuation that people type: "l'été?" instead of "l’été ?"."""
    return MARK_SPACES.sub("", text.translate(APOSTROPHES))


def sources_of(line: str, is_plain: bool = True) -> list[str]:
    """Returns what is translated for a line: the cleaned line, or if `is_plain`, its sentences if it is long or has several,
    in lower case if it is in capitals, since models are bad at lines that are unlike their training text."""
    sentences = sentences_of(clean(line)) if is_plain else [clean(line)]
    return [_quiet(sentence) for sentence in sentences] if is_plain and is_in_capitals(line) else sentences


def is_in_capitals(line: str) -> bool:
    """Whether all letters are capitals, and more than those of a name of at most three letters, such as the UN."""
    return line.isupper() and len("".join(LONG_WORDS.findall(line))) > 3


def _quiet(sentence: str) -> str:
    return LETTER.sub(lambda letter: letter[0].upper(), sentence.lower(), 1)


def sentences_of(line: str) -> list[str]:
    """Returns the sentences of a line of more than MAX_WORDS or MAX_SENTENCES, or the line itself."""
    places, in_lower_case = [0], line.islower()
    for match in END.finditer(line):
        word = re.split(r"\W", line[max(0, match.start() - 5) : match.start()])[-1]
        is_abbreviation = match[0][0] == "." and (
            word.casefold() in TITLES
            or (len(word) < 4 and (in_lower_case or match[1].isdigit()))  # "i.e. this", "art. 3"
            or (len(word) == 1 and not word.islower() and not word.isdigit())  # "J. Smith"
            or NUMBER.fullmatch(line, places[-1], match.start())
        )
        if not is_abbreviation and (in_lower_case or not match[1].islower()):
            places.append(match.end())
    if len(places) <= MAX_SENTENCES and count_words(line) <= MAX_WORDS:
        return [line]
    return [line[start:end].strip() for start, end in zip(places, [*places[1:], len(line)], strict=True)]


def count_words(text: str) -> int:
    """Returns the number of words, which may include punctuation, between spaces or characters in a script without spaces."""
    return len(TOKEN.findall(text))


def distinct_words(text: str) -> list[str]:
    """Returns the distinct words of a text, case-folded, in order of first occurrence. "L'Afrique" gives l and afrique."""
    return list(dict.fromkeys(WORD.findall(text.casefold())))


def known_words(texts: Iterable[str]) -> str:
    """Returns the distinct words of all texts, sorted, one per line, or an empty string if there are more than MOST. A
    checkpoint stores those of the training sources, so that translation can list words that the model has not seen."""
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
