"""Inflects French: conjugation, agreement, plurals and elision (Grevisse, Le Bon Usage).

Regular forms follow rules; irregular forms are in words/french_verbs.tsv and words/french_forms.tsv.
"""

from functools import cache
from typing import NamedTuple

from entente_grammar.tables import read_forms, read_table

VOWELS = frozenset("aeiouàâäæéèêëîïôöœùûüAEIOUÀÂÆÉÈÊËÎÏÔŒÙÛ")
ASPIRATED = ("haricot", "hibou", "hérisson", "harpe", "hockey", "homard", "hamster", "haut", "hongrois", "huit")
ELIDING = frozenset({"je", "me", "te", "se", "le", "la", "de", "ne", "que", "ce"})


@cache
def starts_with_vowel(word: str) -> bool:
    """Returns whether words such as je, le and de are elided before `word`. No word is elided before an aspirated h."""
    if word[0] in "hH":
        return not word.lower().startswith(ASPIRATED)
    return word == "y" or word[0] in VOWELS and word != "onze"


# Verbs ---------------------------------------------------------------------------------------------------------------

IRREGULAR = {
    row["infinitive"]: (row["present"].split(), row["participle"], row["future"]) for row in read_table("french_verbs")
}
ER_ENDINGS = ("e", "es", "e", "ons", "ez", "ent")
IR_ENDINGS = ("is", "is", "it", "issons", "issez", "issent")
PAST_ENDINGS = ("ais", "ais", "ait", "ions", "iez", "aient")
FUTURE_ENDINGS = ("ai", "as", "a", "ons", "ez", "ont")


class Conjugation(NamedTuple):
    """The forms of a French verb. Each tense is a tuple of six forms, from je to ils."""

    present: tuple[str, ...]
    imparfait: tuple[str, ...]
    futur: tuple[str, ...]
    conditionnel: tuple[str, ...]
    participle: str


def _er_verb(infinitive: str) -> tuple[list[str], str, str]:
    """Returns the present, participle and future stem of a regular -er verb, including spelling changes (achète, mangeons)."""
    stem = infinitive[:-2]
    strong = stem  # the stem before a silent ending: achète, appelle, préfère, nettoie
    future = infinitive
    if stem[-1] == "y" and stem[-2] in "ou":
        strong = stem[:-1] + "i"
        future = strong + "er"
    elif infinitive in ("appeler", "jeter"):
        strong = stem + stem[-1]
        future = strong + "er"
    elif len(stem) > 2 and stem[-2] == "e" and stem[-1] in "vtlmn":
        strong = stem[:-2] + "è" + stem[-1]
        future = strong + "er"
    elif len(stem) > 2 and stem[-2] == "é" and stem[-1] not in "aeiouéy":
        strong = stem[:-2] + "è" + stem[-1]
    soft = stem[:-1] + "ç" if stem[-1] == "c" else stem + "e" if stem[-1] == "g" else stem
    stems = (strong, strong, strong, soft, stem, strong)
    return [a + b for a, b in zip(stems, ER_ENDINGS, strict=True)], stem + "é", future


@cache
def conjugate(infinitive: str) -> Conjugation:
    """Returns the forms of a French verb that the grammar uses."""
    if infinitive in IRREGULAR:
        present, participle, future = IRREGULAR[infinitive]
    elif infinitive.endswith("er"):
        present, participle, future = _er_verb(infinitive)
    else:
        stem, future = infinitive[:-2], infinitive
        present, participle = [stem + ending for ending in IR_ENDINGS], stem + "i"
    past = "ét" if infinitive == "être" else present[3][:-3]
    # mangeons gives mangeais but mangions; commençons gives commençais but commencions
    soft = {"ge": past[:-1], "nç": past[:-1] + "c"}.get(past[-2:], past)
    return Conjugation(
        tuple(present),
        tuple((soft if ending[0] == "i" else past) + ending for ending in PAST_ENDINGS),
        tuple(future + ending for ending in FUTURE_ENDINGS),
        tuple(future + ending for ending in PAST_ENDINGS),
        participle,
    )


# Nouns and adjectives ------------------------------------------------------------------------------------------------

PLURALS = read_forms("french_forms", "plural")
FEMININES = read_forms("french_forms", "feminine")
BEFORE_VOWEL = read_forms("french_forms", "before_vowel")
FEMININE_ENDINGS = {"eux": "euse", "er": "ère", "if": "ive", "ïf": "ïve", "el": "elle", "en": "enne", "et": "ète", "e": "e"}


@cache
def french_plural(word: str) -> str:
    """Returns the plural of a noun or adjective."""
    if word in PLURALS:
        return PLURALS[word]
    if word.startswith("grand-"):
        return "grands-" + word[6:] + "s"
    if word[-1] in "sxz":
        return word
    if word.endswith("al"):
        return word[:-2] + "aux"
    return word + ("x" if word.endswith(("eau", "eu")) else "s")


@cache
def feminine(word: str) -> str:
    """Returns the feminine of an adjective or participle."""
    if word in FEMININES:
        return FEMININES[word]
    for ending, other in FEMININE_ENDINGS.items():
        if word.endswith(ending):
            return word.removesuffix(ending) + other
    return word + "e"


@cache
def agree(word: str, gender: str, plural: bool) -> str:
    """Returns the form of an adjective or participle in a gender ("m" or "f") and number."""
    form = feminine(word) if gender == "f" else word
    return french_plural(form) if plural else form
