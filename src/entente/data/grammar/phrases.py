"""People, things, places and times by chance: the phrases a clause is made of."""

import random
from collections.abc import Sequence

from entente.data.grammar import lexicon
from entente.data.grammar.lexicon import ADJECTIVES_OF, NOUN, TAGGED, Adjective, Noun, Verb
from entente.data.grammar.morphology import starts_with_vowel
from entente.data.grammar.selection import (
    ADJECTIVE_CROWDING,
    ALWAYS_PLURAL,
    ALWAYS_SINGULAR,
    CITIES,
    COUNTRIES,
    DAILY,
    DAYS,
    DEFINITE,
    DETERMINERS,
    ENDURING,
    FAMILY,
    FREQUENCY,
    FUTURE,
    HABITS,
    INDEFINITE,
    MISHAPS,
    MODES,
    MONTHLY,
    MONTHS,
    NOT_OWN,
    NOUN_CROWDING,
    NOW,
    NUMBERS,
    OWNED,
    PAST,
    PERSONS,
    SINGLE,
    SPEAKERS,
    TENSES,
    T,
)
from entente.data.grammar.syntax import (
    HE,
    ME,
    STEP,
    THEY,
    WE,
    YOU,
    Both,
    Chunk,
    Clause,
    Clitic,
    Name,
    Nominal,
    NounPhrase,
    Prepositional,
    Pronoun,
    Style,
)


class Phrases:
    """One sentence being derived: its chance, its style, its fresh link numbers, the features it has used."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance.random
        self._key = 0
        self.features: set[str] = set()
        self.style = Style(
            me=self.pick("mf"), you=self.pick(("tu", "tu", "vous", "plural")), your=self.pick("mf"), us=self.pick("mmf"),
            they=self.pick("mmf"), inversion=self.chance(0.4),
        )  # fmt: skip
        self.things_only = False  # objects are things, even of verbs that take people too
        self.indoors = False  # the weather keeps people inside
        self.related = True  # objects may carry a relative clause
        self.mode = ""  # past, present, future ...: the one time of a sentence of several clauses

    # chance ----------------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self._random() * len(items))]

    def even(self, items: Sequence[T], crowding: dict[T, float]) -> T:
        """One of the items, rather a rare one: an item drawn is kept as seldom as it crowds."""
        item = self.pick(items)
        for _ in range(3):
            if self._random() * crowding.get(item, 0.0) < 1.0:
                break
            item = self.pick(items)
        return item

    def weighted(self, table: Sequence[tuple[float, T]]) -> T:
        point = self._random()
        for weight, item in table:
            point -= weight
            if point < 0:
                return item
        return table[-1][1]

    def key(self) -> int:
        self._key += STEP
        return self._key

    def use(self, lexeme: str, *constructions: str) -> None:
        """Note a lexeme and the constructions it stands in here, each and together."""
        self.features.add(lexeme)
        for name in constructions:
            self.features.add("construction:" + name)
            self.features.add(f"{lexeme}+{name}")

    def chunk(self, text: str) -> Chunk:
        self.features.add("phrase:" + text)
        return Chunk(self.key(), text)

    # people ----------------------------------------------------------------------------------------------------------

    def pronoun(self) -> Pronoun:
        person, gender = self.pick(PERSONS)
        self.features.add("construction:subject_pronoun")
        return Pronoun(self.key(), person, gender)

    def name(self) -> Name:
        return self.name_of(self.pick("mf"))

    def name_of(self, gender: str) -> Name:
        name = self.pick(lexicon.NAMES[gender])
        while "name:" + name in self.features:  # nobody is named twice
            name = self.pick(lexicon.NAMES[gender])
        self.use("name:" + name)
        return Name(self.key(), name, name, gender)

    def phrase(
        self, noun: Noun, det: str = "def", plural: bool = False, adjective: float = 0.0, owner: tuple[int, str] = (HE, "m")
    ) -> NounPhrase:
        """A noun phrase, with an adjective by chance."""
        adjectives: tuple[Adjective, ...] = ()
        if self.chance(adjective):
            choices = [a for a in ADJECTIVES_OF[noun.fr] if a.place != "pred"]
            if choices:
                chosen = self.even(choices, ADJECTIVE_CROWDING)
                self.use("adjective:" + chosen.fr, "adjective_before" if chosen.place == "pre" else "adjective_after")
                adjectives = (chosen,)
        self.use("noun:" + noun.fr)
        if plural:
            self.use("noun:" + noun.fr, "plural")
        self.features.add(f"construction:{DETERMINERS[det]}")
        number = ""
        if det == "number":
            number = self.pick(NUMBERS[:11])
            self.use("number:" + number.split("/")[1])
        return NounPhrase(self.key(), noun, det, plural, adjectives, owner, number)

    def kin(self, subject: Nominal | None, family: Sequence[Noun] = ()) -> NounPhrase:
        """My sister, her uncle: bound to the subject, or mine, yours and ours."""
        owner = self.owner(subject) if subject is not None else self.pick(SPEAKERS)
        noun = self.pick(family or TAGGED["kin"])
        plural = noun.fr in FAMILY and self.chance(0.12)
        return self.phrase(noun, "my", plural, 0.0, owner)

    def owner(self, subject: Nominal) -> tuple[int, str]:
        if isinstance(subject, Chunk):  # who? his own would need a gender
            return self.pick((ME, YOU, WE)), "m"
        return subject.person, subject.gender

    def role(self, adjective: float = 0.0) -> NounPhrase:
        noun = self.pick(TAGGED["role"])
        plural = self.chance(0.2) and noun.fr not in ("roi", "reine", "maire")
        return self.phrase(noun, self.weighted(((0.85, "def"), (0.15, "this"))), plural, adjective)

    def person(self, subject: Nominal | None = None) -> Nominal:
        """Someone as object or companion of the subject."""
        kind = self.weighted(((0.35, "name"), (0.4, "kin"), (0.25, "role")))
        if kind == "name":
            return self.name()
        if kind == "kin" or subject is None:
            return self.kin(subject)
        return self.role()

    def companion(self, subject: Nominal) -> Nominal:
        """Someone near the subject."""
        return self.name() if self.chance(0.45) else self.kin(subject)

    def other(self, subject: Nominal) -> Nominal:
        """Someone else who acts: he, she or they only beside another pronoun."""
        chosen = self.subject()
        while isinstance(chosen, Pronoun) and (
            chosen.person == subject.person
            or {chosen.person, subject.person} == {ME, WE}
            or not isinstance(subject, Pronoun)
            and chosen.person in (HE, THEY)
        ):
            chosen = self.subject()
        return chosen

    def subject(self) -> Nominal:
        """Someone who acts."""
        kind = self.weighted(((0.45, "pronoun"), (0.2, "name"), (0.12, "kin"), (0.18, "role"), (0.05, "both")))
        if kind == "pronoun":
            return self.pronoun()
        if kind == "name":
            return self.name()
        if kind == "kin":
            return self.kin(None)
        if kind == "role":
            return self.role(0.25)
        self.features.add("construction:coordination")
        return Both(self.key(), self.name(), self.familiar())

    def familiar(self) -> Nominal:
        """Someone by name, or a relative of ours."""
        return self.name() if self.chance(0.5) else self.kin(None)

    def clitic(self, verb: Verb, tense: str, modal: str, subject: Nominal, direct: bool = True) -> Clitic:
        """An object pronoun; l' only where the participle shows the gender, no lui."""
        choices = [p for p in PERSONS if p[0] != subject.person and not (p[0] == ME and subject.person == WE)]
        choices = [p for p in choices if not (p[0] == WE and subject.person == ME)]
        hidden = not direct or (starts_with_vowel(verb.fr) and (tense != "pc" or bool(modal)))
        if hidden:
            choices = [p for p in choices if p[0] != HE]
        person, gender = self.pick(choices)
        self.use("verb:" + verb.fr, "clitic_object" if direct else "clitic_indirect")
        return Clitic(person, gender, direct)

    # things ----------------------------------------------------------------------------------------------------------

    def thing(self, verb: Verb, subject: Nominal, negated: bool = False) -> NounPhrase:
        """An object of the verb: definite, indefinite, partitive, possessed, shown or counted."""
        noun = self.even(verb.objects, NOUN_CROWDING)
        if noun.section == "clothes" and noun.fr in ("robe", "jupe") and subject.gender != "f":
            noun = NOUN["chemise"]
        if not noun.countable:
            part = "any" if negated else "some"
            return self.phrase(noun, part if self.chance(0.7) and verb.fr not in DEFINITE else "def", False, 0.2)
        det = self.determiner(noun, verb, negated)
        plural = det in ("any", "number", "some") or verb.fr != "visiter" and det != "indef" and self.chance(0.1)
        if noun.fr in ALWAYS_PLURAL:
            plural, det = True, "some" if det == "indef" else det
        if noun.fr in ALWAYS_SINGULAR:
            plural, det = False, det if det in ("my", "this") else "def"
        phrase = self.phrase(noun, det, plural, 0.3, self.owner(subject))
        if det == "def" and not plural and not phrase.adjectives and noun.fr in OWNED and self.chance(0.12):
            phrase.owner = self.familiar()
            self.features.add("construction:genitive")
        return phrase

    def determiner(self, noun: Noun, verb: Verb, negated: bool) -> str:
        """One that suits the noun and what is done to it."""
        det = self.weighted(((0.3, "def"), (0.33, "indef"), (0.2, "my"), (0.07, "this"), (0.04, "number"), (0.06, "some")))
        if det == "my" and (noun.fr not in OWNED or verb.fr in NOT_OWN):
            det = "def"
        if verb.fr in INDEFINITE and det in ("def", "my", "this"):
            det = "indef"
        if verb.fr in SINGLE and det in ("number", "some"):
            det = "indef"
        if verb.fr in DEFINITE and det not in ("my", "this"):
            det = "def"
        if negated and det in ("indef", "number", "some"):
            det = "any" if self.chance(0.4) else "def"
        return det

    def place(self, noun: Noun) -> Prepositional:
        """dans le jardin / in the garden, dans le train / on the train."""
        self.features.add("construction:prepositional_phrase")
        en = "on" if noun.section == "vehicle" and noun.fr not in ("voiture", "taxi") else "in"
        return Prepositional(self.key(), "dans", en, self.phrase(noun, "def", False, 0.0))

    def city(self, en: str) -> Prepositional:
        fr, english = self.pick(CITIES)
        self.use("place:" + fr, "places")
        return Prepositional(self.key(), "à", en, Name(self.key(), fr, english))

    def country(self, en: str) -> Prepositional:
        fr, gender, english = self.pick(COUNTRIES)
        self.use("place:" + fr, "places")
        if gender == "f" or starts_with_vowel(fr):
            return Prepositional(self.key(), "en", en, Name(self.key(), fr, english))
        return Prepositional(self.key(), "à", en, Name(self.key(), fr, english, article="le"))

    def country_name(self) -> Name:
        fr, gender, english = self.pick(COUNTRIES)
        self.use("place:" + fr, "places")
        return Name(self.key(), fr, english, gender, "le" if gender == "m" else "la")

    def city_name(self) -> Name:
        fr, english = self.pick(CITIES)
        self.use("place:" + fr, "places")
        return Name(self.key(), fr, english)

    def landmark(self, en: str, tag: str) -> Prepositional:
        """à la gare / at the station, au marché / to the market."""
        self.features.add("construction:prepositional_phrase")
        return Prepositional(self.key(), "à", en, self.phrase(self.even(TAGGED[tag], NOUN_CROWDING)))

    # time ------------------------------------------------------------------------------------------------------------

    def date(self, monthly: bool = True) -> Chunk:
        """In September, on May 3, on Monday, at eight o'clock."""
        months = 0.6 if monthly else 0.0
        kind = self.weighted(((months / 2, "month"), (months / 2, "day"), (0.25, "weekday"), (0.15, "hour"), (1.0, "weekday")))
        self.features.add("construction:date")
        if kind == "weekday":
            fr, en = self.pick(DAYS)
            self.use("day:" + fr)
            return Chunk(self.key(), f"{fr}:1 | on~1 {en}:1")
        if kind == "hour":
            return self.hour()
        if kind == "month":
            return self.month()
        fr, en = self.pick(MONTHS)
        self.use("month:" + fr)
        day = 2 + int(self._random() * 27)
        return Chunk(self.key(), f"le:1 {day}:3 {fr}:2 | on:1 {en}:2 {day}:3")

    def month(self) -> Chunk:
        fr, en = self.pick(MONTHS)
        self.use("month:" + fr, "date")
        return Chunk(self.key(), f"en:1 {fr}:2 | in:1 {en}:2")

    def hour(self) -> Chunk:
        _, fr, en = self.pick(NUMBERS[:10]).split("/")
        self.use("number:" + fr)
        return Chunk(self.key(), f"à:1 {fr}:2 heures:3 | at:1 {en}:2 o'clock:3")

    def ago(self) -> Chunk:
        _, fr, en = self.pick(NUMBERS[:9]).split("/")
        self.use("number:" + fr)
        unit, english = self.pick((("jours", "days"), ("semaines", "weeks"), ("mois", "months")))
        return Chunk(self.key(), f"il~1 y~1 a~1 {fr}:2 {unit}:3 | {en}:2 {english}:3 ago:1")

    def weekly(self) -> Chunk:
        fr, en = self.pick(DAYS)
        self.use("day:" + fr)
        return Chunk(self.key(), f"le~1 {fr}:1 | on~1 {en}s:1")

    def time(self, clause: Clause, sparse: bool = False) -> None:
        """Give the clause a tense and, by chance, an adverb or date that fits it."""
        aspect = clause.verb.aspect
        tense = self.tense(clause.verb.fr, aspect)
        if clause.verb.frame == "arrive" and tense == "present":
            tense = "pc"
        clause.tense = tense
        if tense == "present" and aspect == "action" and clause.negation == "pas" and not self.mode and self.chance(0.7):
            tense = clause.tense = "pc"
        self.features.add("construction:" + tense)
        adjunct: Chunk | None = None
        monthly = clause.verb.fr in MONTHLY
        if tense == "present" and aspect != "state":
            if monthly and aspect == "action" and not self.mode and not clause.negation and self.chance(0.25):
                adjunct = self.month()
            elif aspect == "action" and not self.mode and self.chance(0.25):
                clause.progressive = True
                self.features.add("construction:progressive")
                adjunct = self.chunk(self.pick(NOW))
            elif (self.chance(0.3) or clause.verb.fr not in DAILY) and clause.manner is None:
                # "toujours" beside apprendre would be "still"
                clause.adverb = self.chunk(self.pick(FREQUENCY[:1] if clause.verb.fr == "apprendre" else FREQUENCY))
            elif self.chance(0.75) and clause.verb.fr in DAILY:
                adjunct = self.weekly() if self.chance(0.3) else self.chunk(self.pick(HABITS))
        elif tense == "pc" and self.chance(0.75):
            kind = self.weighted(((0.4, "date"), (0.2, "ago"), (0.4, "yesterday")))
            if kind == "date":
                adjunct = self.date(monthly)
            else:
                far = monthly and kind == "ago" and not clause.negation
                adjunct = self.ago() if far else self.yesterday(monthly)
        elif tense in ("futur", "proche") and aspect != "state" and self.chance(0.75):
            adjunct = self.date(monthly) if self.chance(0.45) else self.tomorrow(monthly)
        elif tense == "imparfait" and aspect == "action" and not monthly and self.chance(0.5):
            adjunct = self.yesterday()
        if adjunct is None or sparse and not clause.progressive:
            return
        relative = any(isinstance(node, NounPhrase) and node.relative is not None for node in clause.rest)
        if (relative or self.chance(0.2)) and not clause.progressive:
            clause.front = adjunct
        else:
            clause.rest.append(adjunct)

    def tense(self, verb: str, aspect: str) -> str:
        if aspect == "state" and self.mode == "future" and verb not in ENDURING:
            return "present"
        if self.mode == "past" and aspect == "state":
            return "imparfait"
        if self.mode == "background" and aspect == "punctual":
            return "pc"
        tense = MODES[self.mode] if self.mode else self.weighted(TENSES[aspect])
        if verb in MISHAPS and not self.mode and tense in ("futur", "proche"):
            return "pc"
        return "present" if tense == "futur" and aspect == "state" and verb not in ENDURING else tense

    def yesterday(self, far: bool = False) -> Chunk:
        """A past day; far: or week, month, year."""
        return self.chunk(self.pick(PAST[3:] if far else PAST[:3]))

    def tomorrow(self, far: bool = False) -> Chunk:
        return self.chunk(self.pick(FUTURE[3:] if far else FUTURE[:3]))
