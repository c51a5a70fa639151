"""Draws the phrases of a clause: people, things and places."""

from entente_grammar import choices
from entente_grammar.cells import HE, ME, THEY, WE, YOU, Chunk
from entente_grammar.clause import Clitic
from entente_grammar.draft import Draft
from entente_grammar.french import starts_with_vowel
from entente_grammar.lexicon import ADJECTIVES_OF, CITIES, COUNTRIES, FIRST_NAMES, NOUN, NUMBERS, TAGGED, Adjective, Noun, Verb
from entente_grammar.nominals import Both, Name, Nominal, NounPhrase, Prepositional, Pronoun

# People --------------------------------------------------------------------------------------------------------------


def draw_pronoun(draft: Draft) -> Pronoun:
    person, gender = draft.pick(choices.PERSONS)
    draft.note("subject_pronoun")
    return Pronoun(draft.key(), person, gender)


def draw_speaker(draft: Draft) -> Pronoun:
    """Draws the pronoun I, you or we."""
    return Pronoun(draft.key(), *draft.pick(choices.SPEAKERS))


def draw_name(draft: Draft, gender: str = "") -> Name:
    """Draws a first name that the sentence does not contain yet."""
    gender = gender or draft.pick("mf")
    name = draft.pick(FIRST_NAMES[gender])
    while "name:" + name in draft.features:
        name = draft.pick(FIRST_NAMES[gender])
    draft.use("name:" + name)
    return Name(draft.key(), name, name, gender)


def draw_kin(draft: Draft, subject: Nominal | None = None) -> NounPhrase:
    """Draws a relative or friend of the subject (her uncle). If `subject` is None, the possessive is "my", "your" or "our"."""
    owner = owner_of(draft, subject) if subject is not None else draft.pick(choices.SPEAKERS)
    noun = draft.pick(TAGGED["kin"])
    plural = noun.fr in choices.FAMILY and draft.chance(0.12)
    return noun_phrase(draft, noun, "my", plural, owner=owner)


def owner_of(draft: Draft, subject: Nominal) -> tuple[int, str]:
    """Returns the person and gender of a possessive that refers to the subject."""
    if isinstance(subject, Chunk):  # "who" has no gender to decide between "his" and "her"
        return draft.pick((ME, YOU, WE)), "m"
    return subject.person, subject.gender


def draw_role(draft: Draft, adjective: float = 0.0) -> NounPhrase:
    """Draws one or more people, described by occupation or role: the baker, these pupils."""
    noun = draft.pick(TAGGED["role"])
    plural = draft.chance(0.2) and noun.fr not in ("roi", "reine", "maire")
    return noun_phrase(draft, noun, draft.weighted(((0.85, "def"), (0.15, "this"))), plural, adjective)


def draw_person(draft: Draft, subject: Nominal | None = None) -> Nominal:
    """Draws a person for an object or a comparison: a first name, a relative or friend, or a role."""
    kind = draft.weighted(((0.35, "name"), (0.4, "kin"), (0.25, "role")))
    if kind == "name":
        return draw_name(draft)
    if kind == "kin" or subject is None:
        return draw_kin(draft, subject)
    return draw_role(draft)


def draw_familiar(draft: Draft, subject: Nominal | None = None, names: float = 0.5) -> Nominal:
    """Draws a first name, with probability `names`, or else a relative or friend (see `draw_kin`)."""
    return draw_name(draft) if draft.chance(names) else draw_kin(draft, subject)


def draw_subject(draft: Draft) -> Nominal:
    """Draws the subject of a clause: one or more people."""
    kind = draft.weighted(((0.45, "pronoun"), (0.2, "name"), (0.12, "kin"), (0.18, "role"), (0.05, "both")))
    if kind == "pronoun":
        return draw_pronoun(draft)
    if kind == "name":
        return draw_name(draft)
    if kind == "kin":
        return draw_kin(draft)
    if kind == "role":
        return draw_role(draft, 0.25)
    draft.note("coordination")
    return Both(draft.key(), draw_name(draft), draw_familiar(draft))


def draw_other(draft: Draft, subject: Nominal) -> Nominal:
    """Draws a different subject for a second clause. It is he, she or they only if the first subject is a pronoun too."""
    chosen = draw_subject(draft)
    while isinstance(chosen, Pronoun) and (
        chosen.person == subject.person
        or {chosen.person, subject.person} == {ME, WE}
        or not isinstance(subject, Pronoun)
        and chosen.person in (HE, THEY)
    ):
        chosen = draw_subject(draft)
    return chosen


def draw_clitic(draft: Draft, verb: Verb, subject: Nominal, hidden: bool = False, direct: bool = True) -> Clitic:
    """Draws an object pronoun. Excludes lui, which hides the gender, and l' where no participle shows the gender (`hidden`)."""
    persons = [p for p in choices.PERSONS if p[0] != subject.person and {p[0], subject.person} != {ME, WE}]
    if not direct or hidden and starts_with_vowel(verb.fr):
        persons = [p for p in persons if p[0] != HE]
    person, gender = draft.pick(persons)
    draft.use("verb:" + verb.fr, "clitic_object" if direct else "clitic_indirect")
    return Clitic(person, gender, direct)


# Things --------------------------------------------------------------------------------------------------------------


def noun_phrase(
    draft: Draft,
    noun: Noun,
    det: str = "def",
    plural: bool = False,
    adjective: float = 0.0,
    owner: tuple[int, str] = (HE, "m"),
) -> NounPhrase:
    """Returns a noun phrase and adds its words to the features. `adjective` is the probability of an adjective."""
    adjectives: tuple[Adjective, ...] = ()
    if draft.chance(adjective):
        attributive = [a for a in ADJECTIVES_OF[noun.fr] if a.place != "pred"]
        if attributive:
            chosen = draft.pick_evenly(attributive, choices.ADJECTIVE_CROWDING)
            draft.use("adjective:" + chosen.fr, "adjective_before" if chosen.place == "pre" else "adjective_after")
            adjectives = (chosen,)
    draft.use("noun:" + noun.fr, *["plural"] * plural)
    draft.note(det)
    number = draft.number(NUMBERS[:11]) if det == "number" else None
    return NounPhrase(draft.key(), noun, det, plural, adjectives, owner, number)


def draw_thing(draft: Draft, verb: Verb, subject: Nominal, negated: bool = False) -> NounPhrase:
    """Draws a thing as the object of the verb. Its noun phrase is definite, indefinite, partitive, possessive, demonstrative or
    counted."""
    noun = draft.pick_evenly(verb.objects, choices.NOUN_CROWDING)
    if noun.fr in ("robe", "jupe") and subject.gender != "f":
        noun = NOUN["chemise"]
    if not noun.countable:
        part = "any" if negated else "some"
        return noun_phrase(draft, noun, part if draft.chance(0.7) and verb.fr not in choices.DEFINITE else "def", False, 0.2)
    det = draw_determiner(draft, noun, verb, negated)
    plural = det in ("any", "number", "some") or verb.fr != "visiter" and det != "indef" and draft.chance(0.1)
    if noun.fr in choices.ALWAYS_PLURAL:
        plural, det = True, "some" if det == "indef" else det
    if noun.fr in choices.ALWAYS_SINGULAR:
        plural, det = False, det if det in ("my", "this") else "def"
    phrase = noun_phrase(draft, noun, det, plural, 0.3, owner_of(draft, subject))
    if det == "def" and not plural and not phrase.adjectives and noun.fr in choices.OWNED and draft.chance(0.12):
        add_owner(draft, phrase)
    return phrase


def draw_plural(draft: Draft, noun: Noun, probability: float) -> bool:
    """Decides at random whether a noun is plural. Some nouns are always plural, and some never."""
    return noun.fr in choices.ALWAYS_PLURAL or noun.fr not in choices.ALWAYS_SINGULAR and draft.chance(probability)


def add_owner(draft: Draft, phrase: NounPhrase) -> None:
    """Adds an owner: la voiture de Paul / Paul's car."""
    phrase.owner = draw_familiar(draft)
    draft.note("genitive")


def draw_determiner(draft: Draft, noun: Noun, verb: Verb, negated: bool) -> str:
    """Draws a determiner that suits the noun and the verb."""
    det = draft.weighted(((0.3, "def"), (0.33, "indef"), (0.2, "my"), (0.07, "this"), (0.04, "number"), (0.06, "some")))
    if det == "my" and (noun.fr not in choices.OWNED or verb.fr in choices.NOT_OWN):
        det = "def"
    if verb.fr in choices.INDEFINITE and det in ("def", "my", "this"):
        det = "indef"
    if verb.fr in choices.SINGLE and det in ("number", "some"):
        det = "indef"
    if verb.fr in choices.DEFINITE and det not in ("my", "this"):
        det = "def"
    if negated and det in ("indef", "number", "some"):
        det = "any" if draft.chance(0.4) else "def"
    return det


# Places --------------------------------------------------------------------------------------------------------------


def city_name(draft: Draft) -> Name:
    city = draft.pick(CITIES)
    draft.use("place:" + city.fr, "places")
    return Name(draft.key(), city.fr, city.en)


def country_name(draft: Draft) -> Name:
    country = draft.pick(COUNTRIES)
    draft.use("place:" + country.fr, "places")
    return Name(draft.key(), country.fr, country.en, country.gender, "le" if country.gender == "m" else "la")


def city(draft: Draft, en: str, fr: str = "à") -> Prepositional:
    """Draws a city and puts a preposition before it: à Rome / in Rome or to Rome."""
    return Prepositional(draft.key(), fr, en, city_name(draft))


def country(draft: Draft, en: str) -> Prepositional:
    """Draws a country and puts a preposition before it: en Italie, au Japon / in Italy, to Japan."""
    name = country_name(draft)
    fr = "en" if name.gender == "f" or starts_with_vowel(name.fr) else "à"
    if fr == "en":
        name.article = ""
    return Prepositional(draft.key(), fr, en, name)


def landmark(draft: Draft, en: str, tag: str) -> Prepositional:
    """Draws a public place and puts a preposition before it: à la gare / at the station, au marché / to the market."""
    draft.note("prepositional_phrase")
    return Prepositional(draft.key(), "à", en, noun_phrase(draft, draft.pick_evenly(TAGGED[tag], choices.NOUN_CROWDING)))


def inside(draft: Draft, noun: Noun) -> Prepositional:
    """Returns the noun with a preposition before it: dans le jardin / in the garden, dans le train / on the train."""
    draft.note("prepositional_phrase")
    en = "on" if noun.section == "vehicle" and noun.fr not in ("voiture", "taxi") else "in"
    return Prepositional(draft.key(), "dans", en, noun_phrase(draft, noun))


def near_furniture(draft: Draft, subject: Nominal) -> Prepositional:
    """Draws a place for a thing: sur la table, dans mon sac, sous la table, à côté de la lampe."""
    surface, container, table, lamp = TAGGED["surface"], TAGGED["container"], [NOUN["table"]], [NOUN["lampe"]]
    fr, en, nouns = draft.pick(
        (("sur", "on", surface), ("dans", "in", container), ("sous", "under", table), ("à côté de", "next to", lamp))
    )
    noun = nouns[0] if len(nouns) == 1 else draft.pick(nouns)
    draft.note("prepositional_phrase")
    draft.use("preposition:" + fr)
    det = "def" if not draft.chance(0.25) else "my"
    return Prepositional(draft.key(), fr, en, noun_phrase(draft, noun, det, False, 0.1, owner_of(draft, subject)))
