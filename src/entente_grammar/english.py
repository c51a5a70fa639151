"""Inflects American English: plurals, verb forms, articles and comparatives. Irregular plurals and all one-word comparatives
are in words/english_forms.tsv."""

from functools import cache

from entente_grammar.tables import read_forms

PLURALS = read_forms("english_forms", "plural")
COMPARATIVES = read_forms("english_forms", "comparative")
DOUBLING = frozenset("swim run get put stop plan sit cut forget begin drop hug rub chat pet prefer".split())


@cache
def english_plural(noun: str) -> str:
    """Returns the plural of an English noun. In a noun of several words, only the last one changes."""
    *front, last = noun.split()
    return " ".join([*front, PLURALS.get(last) or _add_s(last)])


def _add_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


@cache
def third_person(verb: str) -> str:
    """Returns the third person singular: does, goes, has, sees."""
    return "has" if verb == "have" else _add_s(verb)


@cache
def english_past(verb: str) -> str:
    """Returns the simple past of a regular verb."""
    if verb[-1] == "e":
        return verb + "d"
    if verb[-1] == "y" and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + (verb[-1] if verb in DOUBLING else "") + "ed"


@cache
def ing(verb: str) -> str:
    """Returns the -ing form of a verb."""
    if verb in ("lie", "die", "tie"):
        return verb[:-2] + "ying"
    if verb[-1] == "e" and verb[-2] != "e" and verb != "be":
        return verb[:-1] + "ing"
    return verb + (verb[-1] if verb in DOUBLING else "") + "ing"


@cache
def a_or_an(word: str) -> str:
    """Returns "a" or "an", depending on the sound of the word that follows: a European, a uniform, an hour."""
    lower = word.lower()
    if lower.startswith(("uni", "use", "euro", "one")) and not lower.startswith("unin"):
        return "a"
    return "an" if lower[0] in "aeiou" or lower.startswith(("hour", "honest", "heir")) else "a"


def comparative(adjective: str) -> str | None:
    """Returns the one-word comparative (taller, better), or None if the comparative is formed with "more"."""
    return COMPARATIVES.get(adjective)
