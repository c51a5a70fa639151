"""Draws questions."""

from entente_grammar import choices
from entente_grammar.actions import action, add_objects, note_negation, reconcile
from entente_grammar.cells import Chunk
from entente_grammar.clause import Clause
from entente_grammar.draft import Draft
from entente_grammar.lexicon import TAGGED, VERB, Verb
from entente_grammar.nominals import Nominal, Prepositional, Pronoun
from entente_grammar.phrases import draw_kin, draw_name, noun_phrase
from entente_grammar.statements import described_phrase, described_subject


def question(draft: Draft) -> Clause:
    draft.note("question")
    clause = draft.weighted(QUESTIONS)(draft)
    if not isinstance(clause.subject, Chunk):
        clause.question = True
        draft.note("inversion" if draft.style.inversion else "est_ce_que")
    draft.use("verb:" + clause.verb.fr, "question")
    clause.front = None
    return clause


def draw_question_subject(draft: Draft) -> Nominal:
    """Draws the subject of a question: a pronoun other than "I", a first name, or a relative or friend."""
    kind = draft.weighted(((0.65, "pronoun"), (0.25, "name"), (0.1, "kin")))
    if kind == "pronoun":
        person, gender = draft.pick(choices.PERSONS[1:])
        return Pronoun(draft.key(), person, gender)
    return draw_name(draft) if kind == "name" else draw_kin(draft)


def deny(draft: Draft, clause: Clause) -> None:
    """Negates a finished clause, unless the negation would require changing its objects or its adverb of manner."""
    if clause.manner is None and all(phrase.det not in ("indef", "some", "number") for phrase in clause.noun_phrases):
        clause.negation = "pas"
        note_negation(draft, clause)


def yes_or_no(draft: Draft) -> Clause:
    if draft.chance(0.25):
        return described_subject(draft, draw_question_subject(draft))
    if draft.chance(0.3):
        subject = draw_question_subject(draft)
        verb = draft.pick(choices.FRAMES["like"] + choices.FRAMES["have"] + choices.FRAMES["live"] + choices.FRAMES["state"])
        clause = action(draft, subject, verb=verb, negation=0.0)
        clause.tense = "present" if clause.tense == "futur" else clause.tense
        return clause
    draft.mode = draft.pick(("past", "past", "future", "background"))
    clause = action(draft, draw_question_subject(draft), negation=0.0)
    if not clause.progressive and not clause.modal and clause.adverb is None and draft.chance(0.12):
        deny(draft, clause)
    return clause


def where_or_when(draft: Draft) -> Clause:
    """Draws a question with où, quand, pourquoi or comment."""
    kind = draft.pick(("where", "when", "why", "how"))
    draft.note("wh_question")
    if kind == "where":
        verb = draft.pick(choices.WHERE)
        clause = plain_clause(draft, verb, "present" if verb.fr == "habiter" else "", where=True)
        clause.wh = draft.chunk("où:1 | where:1")
    elif kind == "when":
        clause = plain_clause(draft, draft.pick(choices.DATED))
        clause.wh = draft.chunk("quand:1 | when:1")
    elif kind == "how":
        clause = plain_clause(draft, draft.pick(choices.HOW))
        clause.wh = draft.chunk("comment:1 | how:1")
    else:
        clause = plain_clause(draft, draft.pick(choices.DEEDS))
        clause.wh = draft.chunk("pourquoi:1 | why:1")
    return clause


def plain_clause(draft: Draft, verb: Verb, tense: str = "", where: bool = False) -> Clause:
    """Draws the clause of a question, with objects but no adjuncts. If `where`, omits the place that the question asks for."""
    clause = Clause(draft.key(), draw_question_subject(draft), verb)
    draft.use("verb:" + verb.fr)
    if not where or verb.frame not in ("move", "live"):
        add_objects(draft, clause)
    state = verb.aspect == "state"
    clause.tense = tense or draft.pick(("present", "imparfait") if state else ("pc", "pc", "futur", "proche"))
    draft.note(clause.tense)
    reconcile(draft, clause)
    return clause


def what(draft: Draft) -> Clause:
    """Draws a question with que: Que manges-tu? Qu'est-ce que tu as acheté?"""
    verb = draft.pick(choices.WHAT)
    clause = Clause(draft.key(), draw_question_subject(draft), verb, wh=draft.chunk("que:1 | what:1"))
    draft.use("verb:" + verb.fr)
    draft.note("wh_question")
    clause.tense = "present" if verb.aspect == "state" else draft.pick(("pc", "pc", "futur", "proche", "present"))
    if verb.aspect == "punctual" and clause.tense == "present":
        clause.tense = "pc"
    if clause.tense == "present" and verb.aspect == "action":
        clause.progressive = True
        clause.rest.append(draft.chunk(draft.pick(choices.NOW)))
    draft.note(clause.tense)
    return clause


def who(draft: Draft) -> Clause:
    """Draws a question with qui: Qui a cassé le verre?"""
    draft.note("wh_question")
    verb = draft.pick(choices.FRAMES["obj"])
    draft.mode = "future" if verb.fr not in choices.MISHAPS and draft.chance(0.35) else "past"
    return action(draft, draft.chunk("qui:1 | who:1"), bare=True, verb=verb, negation=0.0)


def how_many(draft: Draft) -> Clause:
    """Draws a question with combien de: Combien de pommes as-tu mangées?"""
    verb = draft.pick(choices.COUNTED)
    noun = draft.pick([noun for noun in verb.objects if noun.countable and noun.fr not in choices.ALWAYS_SINGULAR])
    many = Prepositional(draft.key(), "combien de", "how many", noun_phrase(draft, noun, "bare", True))
    draft.use("verb:" + verb.fr)
    draft.note("how_many")
    clause = Clause(draft.key(), draw_question_subject(draft), verb, draft.pick(("pc", "pc", "futur")), wh=many)
    draft.note(clause.tense)
    return clause


def measure(draft: Draft) -> Clause:
    """Draws a question about an age or a price: Quel âge a Paul? Combien coûte la lampe?"""
    if draft.chance(0.5):
        draft.note("age")
        subject, tense = draw_question_subject(draft), draft.pick(("present", "present", "imparfait"))
        return Clause(draft.key(), subject, choices.AGE, tense, wh=draft.chunk("quel:1 âge:1 | how:1 old:1"))
    draft.note("price")
    draft.use("verb:coûter")
    subject, tense = described_phrase(draft, draft.pick(TAGGED["priced"])), draft.pick(("present", "imparfait"))
    return Clause(draft.key(), subject, VERB["coûter"], tense, wh=draft.chunk("combien:1 | how:1 much:1"))


QUESTIONS = (
    (0.45, yes_or_no),
    (0.14, where_or_when),
    (0.12, what),
    (0.13, who),
    (0.08, how_many),
    (0.08, measure),
)
