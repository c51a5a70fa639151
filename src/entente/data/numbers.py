"""Compares the numbers of a sentence with those of its translation."""

import re

DIGIT = re.compile(r"\d")
# Where hours may be counted to 12 or to 24, and where a number is written in part in letters
HOUR = re.compile(r"\d\s?[:h]\s?\d|\d\s?(?:h|heures?|[ap]\.?m)\b|o'clock", re.IGNORECASE)
IN_LETTERS = re.compile(r"\b(?:milli(?:on|ard)s?|[bt]r?illions?|mille|thousands?|dozens?|douzaines?)\b", re.IGNORECASE)


def numbers_differ(src: str, tgt: str) -> bool:
    """Whether the sides have as many numbers that the other lacks, at least one. Hours may be counted to 12 or to 24, and years
    by two digits. Numbers that are written in part in letters cannot be compared."""
    text = f"{src} {tgt}"
    if not (DIGIT.search(src) and DIGIT.search(tgt)) or IN_LETTERS.search(text):
        return False
    left, right = _numbers(src), _numbers(tgt)
    for are_equal in (_same, _same_year, *([_same_hour] if HOUR.search(text) else [])):
        for number in left[:]:
            if match := next((other for other in right if are_equal(number, other)), None):
                left.remove(number)
                right.remove(match)
    return 0 < len(left) == len(right)


def _numbers(text: str) -> list[str]:
    """Returns the whole numbers in a text, in the digits 0 to 9."""
    digits = DIGIT.sub(lambda digit: str(int(digit[0])), text)
    return re.findall(r"\d+", re.sub(r"(?<=\d)[ ,.](?=\d{3}(?!\d))", "", digits))  # 1,000 is 1 000


def _same(first: str, second: str) -> bool:
    return first.lstrip("0") == second.lstrip("0")


def _same_year(first: str, second: str) -> bool:
    short, long = sorted((first, second), key=len)
    return (len(short), len(long)) == (2, 4) and long.endswith(short)


def _same_hour(first: str, second: str) -> bool:
    return {len(first), len(second)} <= {1, 2} and abs(int(first) - int(second)) == 12 and max(int(first), int(second)) <= 24
