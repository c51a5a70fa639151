"""Builds tables from the lexicon: the words that a derivation can draw, and which words go together. Reordering the entries
changes the corpus."""

from collections.abc import Sequence
from typing import TypeVar

from entente_grammar.cells import HE, ME, THEY, WE, YOU
from entente_grammar.lexicon import (
    ADJECTIVE_LIST,
    ADJECTIVES_OF,
    CITIES,
    COUNTRIES,
    DAYS,
    FIRST_NAMES,
    GROUPS,
    MONTHS,
    NOUN,
    NUMBERS,
    PHRASES,
    TAGGED,
    VERB,
    Adjective,
    Noun,
    Verb,
    expand,
    read_pairings,
)

T = TypeVar("T")


def _verbs(group: str) -> list[Verb]:
    return [VERB[name] for name in GROUPS[group]]


def _names(group: str) -> frozenset[str]:
    return frozenset(GROUPS[group])


# Fixed phrases, and words that go together ---------------------------------------------------------------------------

FREQUENCY, HABITS, PAST, FUTURE, NOW, WEATHER, BAD_WEATHER = (
    PHRASES[kind] for kind in ("frequency", "habits", "past", "future", "now", "weather", "bad_weather")
)
(RAIN,), (SUN,) = PHRASES["rain_tomorrow"], PHRASES["sun_tomorrow"]
WEATHER_VERBS = {"pleu": "pleuvoir", "plu": "pleuvoir", "neig": "neiger"}
PLACES = {name: expand(places) for names, places in read_pairings("place") for name in names}
REASONS = [(VERB[name], sorted(states)) for names, states in read_pairings("reason") for name in names]
FODDER = {animal: food for (animal,), food in read_pairings("food")}
EXISTING = [(expand(things), expand(places)) for things, places in read_pairings("found")]  # things, and where they can be

# Persons and tenses ----------------------------------------------------------------------------------------------------

PERSONS = ((ME, "m"), (YOU, "m"), (HE, "m"), (HE, "f"), (WE, "m"), (THEY, "m"), (HE, "m"), (HE, "f"))
SPEAKERS = ((ME, "m"), (YOU, "m"), (WE, "m"))  # I, you and we, which need no antecedent
TENSES = {
    "action": ((0.38, "present"), (0.27, "pc"), (0.12, "imparfait"), (0.13, "futur"), (0.10, "proche")),
    "punctual": ((0.18, "present"), (0.52, "pc"), (0.18, "futur"), (0.12, "proche")),
    "state": ((0.62, "present"), (0.28, "imparfait"), (0.10, "futur")),
}
MODES = {"past": "pc", "present": "present", "future": "futur", "background": "imparfait", "would": "conditionnel"}

# Verbs ---------------------------------------------------------------------------------------------------------------

ETRE = Verb("être", "be", "be", "state", "copula")
AGE = Verb("avoir", "be", "be", "state", "age")
POUVOIR = Verb("pouvoir", "can", "could", "state", "can")
FRAMES: dict[str, list[Verb]] = {}
for _verb in VERB.values():
    FRAMES.setdefault(_verb.frame, []).append(_verb)
VERBS_OF: dict[str, list[Verb]] = {}
for _verb in FRAMES["obj"]:
    for _noun in _verb.objects:
        VERBS_OF.setdefault(_noun.fr, []).append(_verb)
SPECIAL = _names("special")  # frames whose verbs occur only in special kinds of sentences
LEXICAL = [verb for verb in VERB.values() if verb.frame not in SPECIAL]
PEOPLE_VERBS = [verb for verb in VERB.values() if verb.people or verb.frame == "person"]
DEEDS = [verb for verb in LEXICAL + FRAMES["obj"] if verb.aspect != "state" and verb.frame not in ("intr", "rise", "person")]
DATED = [
    verb for verb in LEXICAL if verb.aspect != "state" and verb.frame in ("obj", "goes", "arrive", "move", "return", "person")
]
SKILLS, PLANS, PLEASURES, TRADES, ACTIVITIES, EVENTS, INDOORS, OUTDOORS, JOURNEYS = map(
    _verbs, ("skills", "plans", "pleasures", "trades", "activities", "events", "indoors", "outdoors", "journeys")
)
INFINITIVES = {"savoir": SKILLS, "apprendre à": SKILLS, "commencer à": ACTIVITIES, "continuer à": ACTIVITIES}
# Verbs for questions with "what", "where", "how" and "how many", and for statements with "rien".
WHAT, WHERE, HOW, COUNTED, EMPTY_HANDED = map(_verbs, ("what", "where", "how", "counted", "empty_handed"))
LUXURIES = tuple(expand(GROUPS["luxuries"]))
WEALTHY = [VERB["acheter"]._replace(objects=LUXURIES), *_verbs("rich")]

COMPANY = _names("company")  # verbs for what people do together
CITY_LIFE = _names("city_life")  # verbs for what people do in a city
ENDURING = _names("enduring")  # state verbs that may be in the future tense
MISHAPS = _names("mishaps")  # verbs for unplanned events, which seldom suit the future tense
DEFINITE = _names("definite")  # verbs that take only a definite object
INDEFINITE = _names("indefinite")  # verbs that take only an indefinite object
SINGLE = _names("single")  # verbs that take one object at a time
NOT_OWN = _names("not_own")  # verbs whose object does not belong to the subject
TRADE = _names("trade")  # verbs that need a plural object if the action is repeated
RELATABLE = _names("relatable")  # verbs of relative clauses with que: la lettre que j'ai écrite
MONTHLY = _names("monthly")  # verbs that can take a month or a day of the month: en septembre, le 3 mai
DAILY = _names("daily")  # verbs of habits: every day, in the morning, on Mondays
TALK = _names("talk")  # verbs whose topic can be a person instead of a thing

# Nouns and adjectives ------------------------------------------------------------------------------------------------

FAMILY = frozenset(noun.fr for noun in TAGGED["family"])  # people of whom one may have several, such as brothers and friends
ALWAYS_PLURAL, ALWAYS_SINGULAR, YOUNG, OLD = map(_names, ("always_plural", "always_singular", "young", "old"))
OWNED = frozenset(noun.fr for noun in expand(GROUPS["owned"])) - _names("not_owned")
ATTRIBUTIVE, UNCOMPARED = _names("attributive"), _names("uncompared")
ABSOLUTE = ATTRIBUTIVE | UNCOMPARED | _names("absolute")
PROFESSIONS = expand(GROUPS["professions"])
PREDICATES_OF = {noun: [a for a in adjectives if a.fr not in ATTRIBUTIVE] for noun, adjectives in ADJECTIVES_OF.items()}
DESCRIBABLE = [
    noun
    for noun in NOUN.values()
    if not noun.person and noun.section not in ("wild", "sport", "language", "subject") and len(PREDICATES_OF[noun.fr]) > 1
]
PREDICABLE: list[tuple[Adjective, list[Noun]]] = [
    (adjective, nouns)
    for adjective in ADJECTIVE_LIST
    if (nouns := [noun for noun in DESCRIBABLE if adjective in PREDICATES_OF[noun.fr]])
]
COMPARABLE = [
    (adjective, several)
    for adjective, nouns in PREDICABLE
    if adjective.fr not in ABSOLUTE and (several := [noun for noun in nouns if noun.countable and noun.fr not in ALWAYS_PLURAL])
]
# Repeats bon, so that meilleur is drawn more often.
COMPARABLE += 4 * [(adjective, several) for adjective, several in COMPARABLE if adjective.fr == "bon"]
RICH = next(adjective for adjective in ADJECTIVE_LIST if adjective.fr == "riche")

LEMMAS = tuple(
    [f"noun:{noun}" for noun in NOUN]
    + [f"verb:{verb}" for verb in (*VERB, "être", "pouvoir", "devoir")]
    + [f"adjective:{fr}" for fr in dict.fromkeys(adjective.fr for adjective in ADJECTIVE_LIST)]
    + [f"name:{name}" for names in FIRST_NAMES.values() for name in names]
    + [f"place:{place.fr}" for place in COUNTRIES + CITIES]
    + [f"number:{number.fr}" for number in NUMBERS]
    + [f"month:{month.fr}" for month in MONTHS]
    + [f"day:{day.fr}" for day in DAYS]
)


def _crowding(groups: Sequence[Sequence[T]]) -> dict[T, float]:
    """Returns how often each item is drawn, relative to the mean, if a group and then one of its items are drawn uniformly."""
    share: dict[T, float] = {}
    for group in groups:
        for item in group:
            share[item] = share.get(item, 0.0) + 1.0 / len(group)
    mean = sum(share.values()) / len(share)
    return {item: value / mean for item, value in share.items()}


NOUN_CROWDING = _crowding(
    [
        *(verb.objects for verb in FRAMES["obj"] + FRAMES["give"] + FRAMES["put"]),
        DESCRIBABLE,
        *(things for things, _ in EXISTING),
    ]
)
ADJECTIVE_CROWDING = _crowding([[a for a in adjectives if a.place != "pred"] for adjectives in ADJECTIVES_OF.values()])
