"""Draws statements of one clause: actions, and descriptions of people and things."""

from collections.abc import Callable, Sequence

from entente_grammar import choices, phrases
from entente_grammar.actions import action, add_adjuncts, add_relative, note_negation, reconcile
from entente_grammar.cells import HE, ME, WE, Chunk, Node
from entente_grammar.clause import Clause, Existence
from entente_grammar.draft import Draft
from entente_grammar.english import comparative
from entente_grammar.lexicon import ADJECTIVES_OF, CITIES, COUNTRIES, NOUN, NUMBERS, TAGGED, VERB, Adjective, Noun, Term, Verb
from entente_grammar.nominals import Nominal, NounPhrase, Prepositional, Pronoun, Quality
from entente_grammar.times import add_time, draw_date, draw_future_day, draw_past_day, set_time

# Descriptions --------------------------------------------------------------------------------------------------------


def copula(draft: Draft, subject: Nominal, *rest: Node, tense: str = "") -> Clause:
    tense = tense or draft.weighted(((0.7, "present"), (0.3, "imparfait")))
    draft.use("verb:être", tense)
    return Clause(draft.key(), subject, choices.ETRE, tense, rest=list(rest))


def negate(draft: Draft, clause: Clause, probability: float = 0.2) -> Clause:
    if draft.chance(probability):
        clause.negation = "pas"
        draft.note("negation_pas")
    return clause


def quality(draft: Draft, adjective: Adjective, degree: str = "", than: Nominal | None = None) -> Quality:
    draft.use("adjective:" + adjective.fr, "comparative" if degree else "predicate")
    return Quality(draft.key(), adjective, degree, than)


def described_subject(draft: Draft, subject: Nominal) -> Clause:
    """Draws a clause that describes the subject, a person, with an adjective."""
    noun = subject.noun if isinstance(subject, NounPhrase) else NOUN["cousin"]
    return copula(draft, subject, quality(draft, draft.pick(ADJECTIVES_OF[noun.fr])))


def described_person(draft: Draft) -> Clause:
    return negate(draft, described_subject(draft, phrases.draw_subject(draft)))


def described_thing(draft: Draft) -> Clause:
    adjective, nouns = draft.pick(choices.PREDICABLE)
    thing = described_phrase(draft, draft.pick_evenly(nouns, choices.NOUN_CROWDING))
    return negate(draft, copula(draft, thing, quality(draft, adjective)))


def described_phrase(draft: Draft, noun: Noun) -> NounPhrase:
    """Draws a noun phrase for the subject of a description."""
    owned = noun.fr in choices.OWNED
    det = draft.weighted(((0.5, "def"), (0.3, "my" if owned else "this"), (0.2, "this")))
    plural = noun.countable and phrases.draw_plural(draft, noun, 0.15)
    phrase = phrases.noun_phrase(draft, noun, det, plural, owner=draft.pick(choices.SPEAKERS))
    if det == "def" and not plural and owned and draft.chance(0.4):
        phrases.add_owner(draft, phrase)
    elif det == "def" and noun.countable and draft.chance(0.3):
        add_relative(draft, phrase)
    return phrase


def draw_degree(draft: Draft, adjective: Adjective, clause: Clause) -> str:
    """Draws plus, aussi or moins, but not moins if English has a one-word comparative. May negate a clause with aussi."""
    degree = draft.weighted(((0.55, "plus"), (0.3, "aussi"), (0.15, "moins")))
    if degree == "moins" and comparative(adjective.en):
        degree = "aussi"
    if degree == "aussi" and draft.chance(0.6):
        clause.negation = "pas"
    return degree


def compared_people(draft: Draft) -> Clause:
    subject = phrases.draw_subject(draft)
    adjective = draft.pick([a for a in ADJECTIVES_OF["cousin"] if a.fr not in choices.UNCOMPARED])
    clause = copula(draft, subject, tense=draft.weighted(((0.8, "present"), (0.2, "imparfait"))))
    than: Nominal
    if draft.chance(0.25):
        person, gender = draft.pick([p for p in choices.PERSONS if p[0] not in (subject.person, WE, ME)])
        than = Pronoun(draft.key(), person, gender, strong=True)
    else:
        than = phrases.draw_person(draft, subject)
    clause.rest.append(quality(draft, adjective, draw_degree(draft, adjective, clause), than))
    return clause


def compared_things(draft: Draft) -> Clause:
    adjective, nouns = draft.pick(choices.COMPARABLE)
    first = draft.pick(nouns)
    second = draft.pick([noun for noun in nouns if noun.section == first.section])
    clause = copula(draft, phrases.noun_phrase(draft, first, "this"), tense="present")
    if first is not second:
        than = phrases.noun_phrase(draft, second, draft.pick(("this", "def")))
    else:
        det = "my" if second.fr in choices.OWNED else "def"
        than = phrases.noun_phrase(draft, second, det, owner=draft.pick(choices.SPEAKERS))
        if det == "def":
            clause.rest.append(quality(draft, adjective))
            return clause
    clause.rest.append(quality(draft, adjective, draw_degree(draft, adjective, clause), than))
    return clause


def profession(draft: Draft) -> Clause:
    """Draws a statement about a profession: Il est médecin / He is a doctor; il est devenu médecin."""
    noun = draft.pick(choices.PROFESSIONS)
    subject = phrases.draw_name(draft, noun.gender) if draft.chance(0.5) else Pronoun(draft.key(), HE, noun.gender)
    draft.use("noun:" + noun.fr, "profession")
    phrase = NounPhrase(draft.key(), noun, "bare", profession=True)
    if draft.chance(0.4):
        draft.use("verb:devenir")
        clause = Clause(draft.key(), subject, VERB["devenir"], draft.pick(("pc", "pc", "futur")), rest=[phrase])
        add_time(draft, clause)
        return clause
    return negate(draft, copula(draft, subject, phrase))


def location(draft: Draft) -> Clause:
    """Draws a statement about where someone or something is."""
    if draft.chance(0.6):
        subject = phrases.draw_subject(draft)
        clause = copula(draft, subject, draw_whereabouts(draft))
        if clause.tense == "present" and draft.chance(0.4):
            clause.rest.append(draft.chunk(choices.NOW[0]))
        return negate(draft, clause)
    thing = phrases.draw_thing(draft, VERB["laisser"], phrases.draw_speaker(draft))
    return negate(draft, copula(draft, thing, phrases.near_furniture(draft, Pronoun(0, ME))))


def draw_whereabouts(draft: Draft) -> Prepositional:
    """Draws a phrase that says where a person is: in Rome, in Japan, at the station."""
    kind = draft.pick(("city", "country", "landmark"))
    if kind == "landmark":
        return phrases.landmark(draft, "at", "station")
    return phrases.city(draft, "in") if kind == "city" else phrases.country(draft, "in")


def existence(draft: Draft) -> Existence:
    """Draws a statement with il y a: Il y a un chat dans le jardin; il n'y a pas de pain sur la table."""
    negated = draft.chance(0.25)
    tense = draft.weighted(((0.75, "present"), (0.25, "imparfait")))
    nouns, places = draft.pick(choices.EXISTING)
    noun, place = draft.pick_evenly(nouns, choices.NOUN_CROWDING), draft.pick(places)
    if not noun.countable:
        thing = phrases.noun_phrase(draft, noun, "any" if negated else "some", False, 0.15)
    else:
        det = "any" if negated else draft.weighted(((0.5, "indef"), (0.3, "number"), (0.2, "some")))
        thing = phrases.noun_phrase(draft, noun, det, det != "indef", 0.25)
    fr, en = ("sur", "on") if place.section == "furniture" and place.fr not in ("armoire", "tiroir") else ("dans", "in")
    draft.note("il_y_a", tense, *["negation_pas"] * negated)
    return Existence(draft.key(), thing, Prepositional(draft.key(), fr, en, phrases.noun_phrase(draft, place)), tense, negated)


def presentation(draft: Draft) -> Clause:
    """Draws a statement with c'est: C'est ma sœur; c'est une bonne idée; ce sont mes clés."""
    if draft.chance(0.35):
        phrase = phrases.draw_kin(draft)
    else:
        noun = draft.pick_evenly([noun for noun in choices.DESCRIBABLE if noun.countable], choices.NOUN_CROWDING)
        plural = noun.fr in choices.ALWAYS_PLURAL or noun.fr in choices.OWNED and phrases.draw_plural(draft, noun, 0.4)
        det, adjective = ("my", 0.3) if plural else ("indef", 0.8)
        phrase = phrases.noun_phrase(draft, noun, det, plural, adjective, draft.pick(choices.SPEAKERS))
    draft.note("cest")
    this = "ce:1 | these:1" if phrase.plural else "ce:1 | this:1"
    return copula(draft, Chunk(draft.key(), this, phrase.plural), phrase, tense="present")


# Weather, time, prices and ages --------------------------------------------------------------------------------------


def note_weather(draft: Draft, text: str) -> str:
    """Adds the verb and the construction of a phrase about the weather to the features, and returns the phrase."""
    draft.note("impersonal")
    for stem, verb in choices.WEATHER_VERBS.items():
        if f":1 {stem}" in text or f"2 {stem}" in text:
            draft.use("verb:" + verb)
    return text


def weather(draft: Draft) -> Chunk:
    """Draws a statement about the weather in a city or country: Il pleut souvent à Londres."""
    fr, en = note_weather(draft, draft.pick(choices.WEATHER)).split(" | ")
    place = draft.pick(CITIES if draft.chance(0.4) else COUNTRIES)
    draft.use("place:" + place.fr, "places")
    to = {"": "à", "f": "en", "m": "au"}[place.gender]
    return Chunk(draft.key(), f"{fr} {to}:8 {place.fr}:9 | {en} in:8 {place.en}:9")


def clock(draft: Draft) -> Chunk:
    hour = draft.number(NUMBERS[:10])
    return Chunk(draft.key(), f"il:1 est:2 {hour.fr}:3 heures:4 | it:1 is:2 {hour.en}:3 o'clock:4")


def price(draft: Draft) -> Clause:
    subject = described_phrase(draft, draft.pick(TAGGED["priced"]))
    draft.use("verb:coûter")
    draft.note("price")
    tense = draft.pick(("present", "present", "imparfait"))
    return Clause(draft.key(), subject, VERB["coûter"], tense, rest=[count(draft, NUMBERS[8:], "euros:2 | euros:2")])


def count(draft: Draft, numbers: Sequence[Term], unit: str) -> Chunk:
    """Draws a number followed by `unit`, a fixed phrase such as "ans:2 | years:2 old:2"."""
    number = draft.number(numbers)
    fr, en = unit.split(" | ")
    return Chunk(draft.key(), f"{number.fr}:1 {fr} | {number.en}:1 {en}")


def age(draft: Draft) -> Clause:
    draft.note("age")
    subject = phrases.draw_subject(draft)
    clause = Clause(draft.key(), subject, choices.AGE, draft.pick(("present", "present", "imparfait", "futur")))
    clause.rest.append(draw_years(draft, subject))
    if clause.tense == "futur":
        clause.rest.append(Chunk(draft.key(), draft.pick((choices.FUTURE[3], choices.FUTURE[5]))))
    return clause


def draw_years(draft: Draft, subject: Nominal) -> Chunk:
    """Draws an age that suits the subject: a baker is an adult, and a pupil is a child."""
    numbers = NUMBERS[:-1]
    if isinstance(subject, NounPhrase):
        kind = subject.noun.fr
        numbers = NUMBERS[4:12] if kind in choices.YOUNG else NUMBERS[-3:-1] if kind in choices.OLD else NUMBERS[15:-1]
    return count(draft, numbers, "ans:2 | years:2 old:2")


def birth(draft: Draft) -> Clause:
    draft.use("verb:naître")
    clause = Clause(draft.key(), phrases.draw_subject(draft), VERB["naître"], "pc")
    if draft.chance(0.6):
        clause.rest.append(phrases.city(draft, "in") if draft.chance(0.5) else phrases.country(draft, "in"))
    year = 1930 + draft.below(80)
    date = draw_date(draft) if draft.chance(0.4) else Chunk(draft.key(), f"en:1 {year}:2 | in:1 {year}:2")
    clause.rest.append(date)
    return clause


# Actions and feelings ------------------------------------------------------------------------------------------------


def feeling(draft: Draft) -> Clause:
    """Draws a statement about a feeling: avoir faim, s'ennuyer."""
    verb = draft.pick(choices.FRAMES["state"])
    draft.use("verb:" + verb.fr, "avoir_idiom" if verb.fr.startswith("avoir") else "statement")
    clause = Clause(draft.key(), phrases.draw_subject(draft), verb)
    set_time(draft, clause)
    return negate(draft, clause, 0.25)


def wish(draft: Draft) -> Clause:
    verb = draft.pick(choices.FRAMES["inf"])
    clause = action(draft, verb=verb, bare=True)
    if verb.fr == "vouloir" and draft.chance(0.4) and not clause.negation:
        clause.tense = "conditionnel"
    return clause


def acting(verbs: Sequence[Verb]) -> Callable[[Draft], Clause]:
    """Returns a function that draws a statement with one of these verbs."""
    return lambda draft: action(draft, verb=draft.pick(verbs))


def pronominal(draft: Draft) -> Clause:
    """Draws a statement with an object pronoun: Je la connais; il les a aidés."""
    verb = draft.pick(choices.PEOPLE_VERBS)
    clause = Clause(draft.key(), phrases.draw_subject(draft), verb)
    draft.use("verb:" + verb.fr)
    clause.clitic = phrases.draw_clitic(draft, verb, clause.subject)
    if draft.chance(0.2):
        clause.negation = "pas"
    add_adjuncts(draft, clause)
    set_time(draft, clause)
    reconcile(draft, clause)
    return clause


def nothing(draft: Draft) -> Clause:
    """Draws a statement with rien or personne: Il ne mange rien; elle n'a vu personne."""
    people = draft.chance(0.4)
    verb = draft.pick(choices.PEOPLE_VERBS if people else choices.EMPTY_HANDED)
    clause = Clause(draft.key(), phrases.draw_subject(draft), verb, negation="personne" if people else "rien")
    draft.use("verb:" + verb.fr)
    clause.tense = draft.weighted(((0.5, "pc"), (0.3, "futur"), (0.2, "proche")))
    if verb.aspect == "state":
        clause.tense = draft.pick(("present", "imparfait"))
    elif draft.chance(0.6):
        clause.rest.append(draw_past_day(draft) if clause.tense == "pc" else draw_future_day(draft))
    note_negation(draft, clause)
    return clause


def animal(draft: Draft) -> Clause:
    """Draws a statement about an animal that sleeps, eats, runs or barks."""
    noun = NOUN["chien"] if draft.chance(0.2) else draft.pick(TAGGED["pet"])
    plural = draft.chance(0.3)
    subject = phrases.noun_phrase(draft, noun, "def" if draft.chance(0.6) else "my", plural, 0.25, draft.pick(choices.SPEAKERS))
    name = "aboyer" if noun.fr == "chien" and draft.chance(0.7) else draft.pick(("dormir", "manger", "courir"))
    if name == "manger" and noun.fr not in choices.FODDER:
        name = "dormir"
    draft.use("verb:" + name)
    clause = Clause(draft.key(), subject, VERB[name])
    if name == "manger":
        food = NOUN[draft.pick(choices.FODDER[noun.fr])]
        clause.rest.append(phrases.noun_phrase(draft, food, "some", food.countable))
    if draft.chance(0.4):
        clause.rest.append(phrases.inside(draft, NOUN[draft.pick(("jardin", "champ"))]))
    set_time(draft, clause)
    return negate(draft, clause, 0.1) if name != "manger" and clause.adverb is None else clause


STATEMENTS: tuple[tuple[float, Callable[[Draft], Node]], ...] = (
    (0.24, action),
    (0.08, acting(choices.JOURNEYS)),  # Paul visite l'Afrique; nous habitons à Lyon
    (0.015, acting(choices.FRAMES["language"] + choices.FRAMES["subject"])),  # Elle apprend le russe; il enseigne la chimie
    (0.03, acting(choices.FRAMES["like"])),  # J'aime les pommes; il déteste danser
    (0.03, nothing),
    (0.04, pronominal),
    (0.045, described_person),
    (0.10, described_thing),
    (0.05, compared_people),
    (0.055, compared_things),
    (0.03, profession),
    (0.03, location),
    (0.05, existence),
    (0.03, presentation),
    (0.025, weather),
    (0.005, clock),
    (0.02, price),
    (0.02, age),
    (0.02, birth),
    (0.03, feeling),
    (0.035, wish),
    (0.03, animal),
)
