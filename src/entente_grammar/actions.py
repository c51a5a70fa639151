"""Draws clauses about what someone does: first the objects of the verb, then adjuncts of manner, company, place and time."""

from collections.abc import Sequence

from entente_grammar import choices, phrases
from entente_grammar.cells import HE, THEY
from entente_grammar.clause import Clause, Clitic
from entente_grammar.draft import Draft
from entente_grammar.french import starts_with_vowel
from entente_grammar.lexicon import MANNERS, TAGGED, Verb
from entente_grammar.nominals import Nominal, NounPhrase, Prepositional
from entente_grammar.times import set_time


def action(
    draft: Draft, subject: Nominal | None = None, bare: bool = False, verb: Verb | None = None, negation: float = 0.16
) -> Clause:
    """Draws a clause in which someone does something. A bare clause has no modal verb, and no date unless it is progressive."""
    subject = subject or draw_actor(draft)
    verb = verb or draft.pick(choices.LEXICAL)
    clause = Clause(draft.key(), subject, verb)
    draft.use("verb:" + verb.fr)
    if verb.aspect == "action" and draft.chance(0.1) and not bare:
        set_modal(draft, clause)
    if draft.chance(negation):
        clause.negation = draft.weighted(((0.75, "pas"), (0.15, "jamais"), (0.1, "plus"))) if not clause.modal else "pas"
    # "devait" and "devra" are never negated: "ne devait pas" can mean "was not supposed to" or "did not have to", and
    # "ne devra pas" means "must not".
    if clause.modal == "devoir" and clause.tense in ("imparfait", "futur"):
        clause.negation = ""
    add_objects(draft, clause)
    if clause.modal:
        if clause.negation:
            draft.note("negation_pas")
        return clause
    add_adjuncts(draft, clause)
    set_time(draft, clause, sparse=bare)
    reconcile(draft, clause)
    return clause


def draw_actor(draft: Draft) -> Nominal:
    """Draws the subject of an action. A person named by an occupation may get a relative clause."""
    subject = phrases.draw_subject(draft)
    if isinstance(subject, NounPhrase) and subject.noun.section == "role" and not subject.adjectives and draft.chance(0.15):
        subject.det = "def"
        add_relative(draft, subject)
    return subject


def set_modal(draft: Draft, clause: Clause) -> None:
    clause.modal = draft.pick(("pouvoir", "devoir"))
    clause.tense = draft.pick(("present", "present", "imparfait", "futur", "conditionnel"))
    draft.use("verb:" + clause.modal, "modal")


def reconcile(draft: Draft, clause: Clause) -> None:
    """Adjusts the negation, adverb, objects and clitic of a finished clause to each other and to the tense."""
    verb, negation = clause.verb, clause.negation
    if negation in ("jamais", "plus"):
        clause.adverb = None
        ended = negation == "plus" and verb.aspect == "punctual"
        if clause.tense != "present" or clause.progressive or ended:
            clause.negation = "pas"
    if clause.adverb is not None:
        pluralise_repeated(draft, clause)
    if clause.negation and clause.adverb is not None:
        clause.adverb = draft.chunk(choices.FREQUENCY[0])
    if clause.clitic is not None and clause.clitic.person == HE and clause.clitic.direct:
        if starts_with_vowel(verb.fr) and clause.tense != "pc":
            clause.clitic = Clitic(THEY, "m", True)
    if clause.negation:
        note_negation(draft, clause)


def note_negation(draft: Draft, clause: Clause) -> None:
    draft.note("negation_" + clause.negation)
    if clause.tense == "pc":
        draft.use("verb:" + clause.verb.fr, "negated_past")


def pluralise_repeated(draft: Draft, clause: Clause) -> None:
    """Makes an object plural if a repeated action needs several objects, and replaces "rarely" with "often" if an object has
    the article "some"."""
    for phrase in clause.noun_phrases:
        one = phrase.det == "indef" and clause.verb.fr in choices.TRADE and phrase.noun.fr not in choices.ALWAYS_SINGULAR
        if one or phrase.det == "number":
            draft.use("noun:" + phrase.noun.fr, "plural")
            phrase.make_plural()
        if phrase.det == "some" and clause.adverb is not None and clause.adverb.text == choices.FREQUENCY[3]:
            clause.adverb = draft.chunk(choices.FREQUENCY[0])


# Objects -------------------------------------------------------------------------------------------------------------


def add_objects(draft: Draft, clause: Clause) -> None:
    """Draws the objects that the frame of the verb requires, and adds them to the clause."""
    verb, subject, rest = clause.verb, clause.subject, clause.rest
    negated = bool(clause.negation)
    match verb.frame:
        case "obj":
            if verb.fr == "visiter" and draft.chance(0.6):
                rest.append(draft.pick((phrases.country_name, phrases.country_name, phrases.city_name))(draft))
            elif verb.people and not draft.things_only and draft.chance(0.5):
                add_person(draft, clause)
            else:
                rest.append(draw_object(draft, verb, subject, negated))
        case "person":
            add_person(draft, clause)
        case "give":
            rest.append(phrases.draw_thing(draft, verb, subject, negated))
            draft.note("indirect_object")
            if draft.chance(0.4) and verb.fr != "rendre":
                clause.clitic = phrases.draw_clitic(draft, verb, subject, direct=False)
            else:
                rest.append(Prepositional(draft.key(), "à", "to", phrases.draw_person(draft, subject)))
        case "put":
            rest.append(phrases.draw_thing(draft, verb, subject, negated))
            rest.append(phrases.near_furniture(draft, subject))
        case "topic" | "fear":
            rest.append(draw_topic(draft, verb, subject))
        case "have":
            family = verb.fr == "avoir" and draft.chance(0.3)
            noun = draft.pick(TAGGED["family"] if family else verb.objects)
            det = "any" if negated else draft.weighted(((0.6, "indef"), (0.4, "number")))
            rest.append(phrases.noun_phrase(draft, noun, det, det in ("any", "number"), 0.4))
        case "subject" | "language" | "sport" | "instrument":
            noun = draft.pick(TAGGED[verb.frame])
            draft.use("noun:" + noun.fr)
            det = "bare" if verb.fr == "parler" else "def" if verb.frame == "instrument" else "generic"
            rest.append(NounPhrase(draft.key(), noun, det))
        case "like":
            add_liking(draft, clause)
        case "inf":
            add_infinitive(draft, clause)
        case "dative" | "resemble" | "caring":
            rest.append(phrases.draw_person(draft, subject))
        case "move":
            by_name = draft.chance(0.5)
            rest.append(named_place(draft, "to") if by_name else phrases.landmark(draft, "to", "destination"))
        case "return":
            rest.append(phrases.city(draft, "from", "de"))
        case "arrive":
            rest.append(phrases.city(draft, "in") if draft.chance(0.5) else phrases.landmark(draft, "at", "station"))
        case "stay":
            by_name = draft.chance(0.5)
            rest.append(phrases.city(draft, "in") if by_name else phrases.inside(draft, draft.pick(TAGGED["resting"])))
        case "live":
            rest.append(named_place(draft, "in"))


def named_place(draft: Draft, en: str) -> Prepositional:
    """Draws a city or a country and puts a preposition before it. `en` is the English preposition: "in" or "to"."""
    return draft.pick((phrases.city, phrases.country))(draft, en)


def draw_object(draft: Draft, verb: Verb, subject: Nominal, negated: bool) -> NounPhrase:
    """Draws a thing as the object of a verb, perhaps with a relative clause."""
    phrase = phrases.draw_thing(draft, verb, subject, negated)
    if phrase.det == "def" and phrase.owner is None and draft.related and draft.chance(0.12) and phrase.noun.countable:
        add_relative(draft, phrase, verb)
    return phrase


def add_person(draft: Draft, clause: Clause) -> None:
    """Adds a person as the object of the clause: a pronoun or a noun phrase."""
    if draft.chance(0.5):
        clause.clitic = phrases.draw_clitic(draft, clause.verb, clause.subject, hidden=bool(clause.modal))
    else:
        clause.rest.append(phrases.draw_person(draft, clause.subject))


def draw_topic(draft: Draft, verb: Verb, subject: Nominal) -> Nominal:
    """Draws the object of a verb like "talk about", "dream of", "need" or "be afraid of"."""
    if verb.fr in choices.TALK and draft.chance(0.4):
        return phrases.draw_person(draft, subject)
    noun = draft.pick(verb.objects)
    det = "my" if noun.section == "kin" else draft.pick(("def", "def", "this"))
    plural = noun.section != "kin" and verb.frame != "fear" and draft.chance(0.2)
    return phrases.noun_phrase(draft, noun, det, plural, 0.15, phrases.owner_of(draft, subject))


def add_liking(draft: Draft, clause: Clause) -> None:
    """Adds the object of "like" or a similar verb: likes apples, likes cheese, likes dancing."""
    draft.note("generic")
    if draft.chance(0.3) and clause.verb.fr != "préférer":
        clause.infinitive = draw_infinitive(draft, clause.subject, choices.PLEASURES)
        return
    plural = draft.chance(0.6)
    noun = draft.pick(TAGGED["likedplural" if plural else "likedmass"])
    draft.use("noun:" + noun.fr, *["plural"] * plural)
    clause.rest.append(NounPhrase(draft.key(), noun, "generic", plural))


def add_infinitive(draft: Draft, clause: Clause) -> None:
    """Adds the infinitive after a verb: wants to do, knows how to do, starts to do something."""
    draft.note("infinitive")
    verbs = choices.INFINITIVES.get(clause.verb.fr, choices.PLANS)
    clause.infinitive = draw_infinitive(draft, clause.subject, verbs)
    if clause.negation and any(phrase.det == "some" for phrase in clause.infinitive.noun_phrases):
        clause.negation = ""  # avoids "did not start to pick some strawberries"


def draw_infinitive(draft: Draft, subject: Nominal, verbs: Sequence[Verb]) -> Clause:
    verb = draft.pick(verbs)
    draft.use("verb:" + verb.fr)
    clause = Clause(draft.key(), subject, verb)
    if verbs is not choices.SKILLS or verb.frame != "obj":
        add_objects(draft, clause)
        if clause.clitic is not None:
            clause.clitic = phrases.draw_clitic(draft, verb, subject, hidden=True, direct=clause.clitic.direct)
    return clause


# Adjuncts and relative clauses -----------------------------------------------------------------------------------------


def add_adjuncts(draft: Draft, clause: Clause) -> None:
    """May add an adverb of manner, a companion and a place to the clause, each of which suits the verb."""
    verb, rest = clause.verb, clause.rest
    if any(phrase.relative is not None for phrase in clause.noun_phrases):
        return  # an adjunct after a relative clause would be read as part of it
    if verb.fr in MANNERS and draft.chance(0.3) and not clause.negation:
        clause.manner = draft.chunk(draft.pick(MANNERS[verb.fr]))
    if verb.fr in choices.COMPANY and draft.chance(0.35):
        draft.note("prepositional_phrase")
        rest.append(Prepositional(draft.key(), "avec", "with", phrases.draw_familiar(draft, clause.subject, names=0.45)))
    things = verb.people and clause.clitic is None and isinstance(rest[0], NounPhrase) and not rest[0].noun.person
    places = choices.PLACES.get(verb.fr, [])
    if draft.indoors:
        places = [place for place in places if place.section in ("room", "building")]
    if places and not things and draft.chance(0.5):
        rest.append(phrases.inside(draft, draft.pick(places)))
    elif verb.fr in choices.CITY_LIFE and not things and draft.chance(0.25):
        rest.append(phrases.city(draft, "in"))


def add_relative(draft: Draft, phrase: NounPhrase, main: Verb | None = None) -> None:
    """Adds a relative clause, as in "la lettre que j'ai écrite" or "l'homme qui porte un chapeau", if a verb suits and French
    would not need the plus-que-parfait."""
    if draft.mode == "background":
        return
    if phrase.noun.person:
        mode, draft.mode = draft.mode, "present" if draft.mode in ("", "present") and draft.chance(0.6) else "past"
        clause = action(draft, phrase, bare=True, verb=draft.pick(choices.TRADES), negation=0.0)
        clause.gap, clause.front = "subject", None
        draft.mode = mode
        draft.note("relative_qui")
    else:
        verbs = [verb for verb in choices.VERBS_OF.get(phrase.noun.fr, []) if verb.fr in choices.RELATABLE and verb is not main]
        if not verbs:
            return
        verb = draft.pick(verbs)
        draft.use("verb:" + verb.fr)
        subject = phrases.draw_speaker(draft) if draft.chance(0.34) else phrases.draw_familiar(draft)
        clause = Clause(draft.key(), subject, verb, "present" if verb.aspect == "state" else "pc", gap="object")
        draft.use("noun:" + phrase.noun.fr, "relative_object")
        draft.note("relative_que")
    phrase.relative = clause
