"""Compares the numbers of a sentence with those of its translation."""

import re
from collections import Counter

DIGIT = re.compile(r"\d")
# Where hours may be counted to 12 or to 24
HOUR = re.compile(r"\d\s?[:h]\s?\d|\d\s?(?:h|heures?|uhr|[ap]\.?m)\b|o'clock|\b(?:at|las) \d", re.IGNORECASE)


def numbers_differ(src: str, tgt: str) -> bool:
    """Whether the sides have as many numbers that the other lacks, at least one. Hours may be counted to 12 or to 24, years by
    two digits, and 5,000 may be written as 5 thousand."""
    if not (DIGIT.search(src) and DIGIT.search(tgt)):
        return False
    sides = _numbers(src), _numbers(tgt)
    left, right = _lacking(*sides), _lacking(*sides[::-1])
    if len(left) != len(right):
        return False
    are_hours = bool(left and HOUR.search(f"{src} {tgt}"))
    for number in left:
        match = next((other for other in right if _alike(number, other, are_hours)), None)
        if match is None:
            return True
        right.remove(match)
    return False


def _numbers(text: str) -> list[str]:
    """Returns the whole numbers in a text, in the digits 0 to 9."""
    digits = DIGIT.sub(lambda digit: str(int(digit[0])), text)
    return re.findall(r"\d+", re.sub(r"(?<=\d)[ ,.](?=\d{3}(?!\d))", "", digits))  # 1,000 is 1 000


def _lacking(numbers: list[str], reference: list[str]) -> list[str]:
    """Returns the numbers that `reference` lacks, or has less often."""
    counts, rest = Counter(number.lstrip("0") for number in reference), []
    for number in numbers:
        key = number.lstrip("0")
        rest += [] if counts[key] > 0 else [number]
        counts[key] -= 1
    return rest


def _alike(first: str, second: str, are_hours: bool) -> bool:
    """Whether two different numbers may mean the same: one is the end of a year or, with `are_hours`, 12 hours later, or some
    zeros, at least two, are written in letters."""
    short, long = sorted((first, second), key=len)
    is_year = (len(short), len(long)) == (2, 4) and long.endswith(short)
    in_letters = len(long) > len(short) + 1 and long.strip("0") == short.strip("0")
    is_hour = are_hours and len(long) <= 2 and abs(int(first) - int(second)) == 12
    return is_year or in_letters or is_hour
