"""Draws sentences: questions, statements, and sentences of several clauses."""

from dataclasses import replace

from entente_grammar import choices
from entente_grammar.actions import action, add_relative, pluralise_repeated
from entente_grammar.cells import THEY, Node
from entente_grammar.clause import Clause
from entente_grammar.draft import Draft
from entente_grammar.lexicon import ADJECTIVES_OF, VERB, Verb
from entente_grammar.nominals import Both, Nominal, NounPhrase, Pronoun
from entente_grammar.phrases import draw_clitic, draw_other, draw_subject
from entente_grammar.questions import question
from entente_grammar.statements import STATEMENTS, copula, described_person, feeling, location, note_weather, quality

AND, BUT, IF, THAT = "et:1 | and:1", ",:1 mais:2 | ,:1 but:2", "si:1 | if:1", "que:1 | that:1"
WHILE, WHEN, BECAUSE = "pendant:1 que:1 | while:1", "quand:1 | when:1", "parce:1 que:1 | because:1"


def sentence(draft: Draft) -> tuple[list[Node], str]:
    """Draws the parts of a sentence and its end mark."""
    if draft.chance(0.13):
        return [question(draft)], "?"
    return draft.weighted(SENTENCES)(draft), "."


def single_clause(draft: Draft) -> list[Node]:
    """Draws a statement of one clause."""
    return [draft.weighted(STATEMENTS)(draft)]


def joined_clauses(draft: Draft) -> list[Node]:
    """Draws two clauses and a conjunction: X et Y; X, mais Y; X pendant que Y."""
    draft.mode = draft.pick(("past", "future"))
    conjunction = draft.weighted(((0.4, AND), (0.3, BUT), (0.3, WHILE)))
    if conjunction == WHILE:
        draft.mode = "background"
        first = draw_activity(draft)
        return [first, draft.conjunction(WHILE), draw_activity(draft, draw_other(draft, first.subject))]
    first = action(draft, bare=True, verb=draw_deed(draft), negation=0.1)
    if conjunction == BUT:
        return [first, draft.conjunction(BUT), contrast(draft, first)]
    other = draw_other(draft, first.subject)
    while isinstance(other, Both):  # "fed his pig and Laura and my uncle ate" would be misread
        other = draw_other(draft, first.subject)
    return [first, draft.conjunction(AND), action(draft, other, True, draw_deed(draft), 0.05)]


def draw_deed(draft: Draft) -> Verb:
    """Draws an action verb for a sentence with several clauses."""
    verb = draft.pick(choices.DEEDS)
    while draft.mode == "future" and verb.fr in choices.MISHAPS:
        verb = draft.pick(choices.DEEDS)
    return verb


def draw_activity(draft: Draft, subject: Nominal | None = None) -> Clause:
    return action(draft, subject, bare=True, verb=draft.pick(choices.ACTIVITIES), negation=0.0)


def contrast(draft: Draft, first: Clause) -> Clause:
    """Draws a clause with the verb of `first`, a different subject, and either a different object or the opposite polarity."""
    done = {phrase.noun for phrase in first.noun_phrases}
    features = set(draft.features)
    draft.things_only = True
    negation = 0.0 if first.negation else 0.5 if done else 1.0
    for _ in range(5):
        second = action(draft, draw_other(draft, first.subject), True, first.verb, negation)
        if second.negation or first.negation or not done & {phrase.noun for phrase in second.noun_phrases}:
            break
        draft.features = set(features)
    second.negation = "pas" if second.negation else ""
    return second


def interrupted_activity(draft: Draft) -> list[Node]:
    """Draws an activity and the event that interrupts it: Paul dormait quand Jane est arrivée."""
    draft.mode = "background"
    first = draw_activity(draft)
    event = Clause(draft.key(), draw_other(draft, first.subject), draft.pick(choices.EVENTS), "pc")
    draft.use("verb:" + event.verb.fr)
    if event.verb.fr == "appeler":
        # direct=False excludes the third person singular, because "l'" would refer to the subject of the first clause.
        event.clitic = draw_clitic(draft, event.verb, event.subject, direct=False)._replace(direct=True)
    draft.note("pc")
    return [first, draft.conjunction(WHEN), event]


def action_and_reason(draft: Draft) -> list[Node]:
    """Draws a past action or state and its reason: Il dormait parce qu'il était fatigué."""
    verb, states = draft.pick(choices.REASONS)
    draft.mode = draft.pick(("past", "background"))
    draft.indoors = True
    subject = draw_subject(draft)
    clause = action(draft, subject, bare=True, verb=verb, negation=0.0)
    over = draft.mode == "past" or clause.clitic is not None or verb.frame == "stay"
    clause.tense = "pc" if over else "imparfait"
    clause.adverb = clause.manner = None
    same = repeat_subject(draft, subject)
    state = draft.pick(states)
    if state.startswith("avoir"):
        draft.use("verb:" + state, "avoir_idiom")
        why = Clause(draft.key(), same, VERB[state], "imparfait")
    else:
        adjective = next(a for a in ADJECTIVES_OF["cousin"] if a.fr == state)
        why = copula(draft, same, quality(draft, adjective), tense="imparfait")
    return [clause, draft.conjunction(BECAUSE), why]


def repeat_subject(draft: Draft, subject: Nominal) -> Pronoun:
    """Returns the pronoun for a subject already mentioned, and sets the style so that "they" has the gender of the subject."""
    if subject.person == THEY and not isinstance(subject, Pronoun):
        draft.style = replace(draft.style, they=subject.agreement(draft.style).gender)
    return Pronoun(draft.key(), subject.person, subject.gender)


def conditional(draft: Draft) -> list[Node]:
    """Draws a condition and its result: S'il pleut demain, je resterai; si j'étais riche, j'achèterais un bateau."""
    draft.note("conditional")
    if draft.chance(0.3):
        draft.mode = "future"
        weather, plans = draft.pick(((choices.RAIN, choices.INDOORS), (choices.SUN, choices.OUTDOORS)))
        draft.indoors, draft.related = weather == choices.RAIN, False
        main = action(draft, bare=True, verb=draft.pick(plans), negation=0.1)
        return [draft.chunk(note_weather(draft, weather)), draft.comma(), main]
    draft.mode = "would"
    subject = draw_subject(draft)
    rich = draft.pick((False, True))
    if rich:
        first = copula(draft, subject, quality(draft, choices.RICH), tense="imparfait")
        first.hypothetical = True
    else:
        first = Clause(draft.key(), subject, choices.POUVOIR, "imparfait")
    same = repeat_subject(draft, subject)
    main = action(draft, same, bare=True, verb=draft.pick(choices.WEALTHY if rich else choices.PLANS), negation=0.0)
    main.tense = "conditionnel"
    for phrase in main.noun_phrases:
        if rich and not phrase.plural and phrase.noun in choices.LUXURIES:
            phrase.det, phrase.owner = "indef", None
    draft.note("conditionnel")
    return [draft.conjunction(IF), first, draft.comma(), main]


def reported_speech(draft: Draft) -> list[Node]:
    """Draws reported speech or thought: Je pense que Jane est malade; il a dit qu'il viendrait."""
    verb = draft.pick(choices.FRAMES["that"])
    draft.use("verb:" + verb.fr, "that_clause")
    in_past = verb.fr == "dire"
    head = Clause(draft.key(), draw_subject(draft), verb, "pc" if in_past else "present")
    draft.mode = "would" if in_past else draft.pick(("past", "future", "future"))
    if not in_past and draft.chance(0.4):
        content = draft.pick((described_person, location, feeling_now))(draft)
        content.negation = ""
    else:
        content = action(draft, bare=True)
        content.front = None
        if content.tense == "conditionnel":
            draft.note("conditionnel")
    return [head, draft.conjunction(THAT), content]


def feeling_now(draft: Draft) -> Clause:
    draft.mode = "present"
    return feeling(draft)


def bad_weather_activity(draft: Draft) -> list[Node]:
    """Draws a sentence about bad weather and an indoor activity: Quand il pleut, Jane lit un roman."""
    draft.mode, draft.indoors, draft.related = "present", True, False
    clause = action(draft, bare=True, verb=draft.pick(choices.INDOORS), negation=0.0)
    when = note_weather(draft, draft.pick(choices.BAD_WEATHER))
    if clause.adverb is None and clause.manner is None and draft.chance(0.5):
        clause.adverb = draft.chunk(draft.pick(choices.FREQUENCY))
        pluralise_repeated(draft, clause)
    return [draft.chunk(when), draft.comma(), clause]


def long_sentence(draft: Draft) -> tuple[list[Node], str]:
    """Draws the parts and the end mark of a sentence with several clauses (report, coordination, contrast)."""
    draft.mode = draft.pick(("past", "future"))
    parts: list[Node] = []
    if draft.chance(0.4):
        verb = VERB[draft.pick(("penser", "croire"))]
        draft.use("verb:" + verb.fr, "that_clause")
        parts += [Clause(draft.key(), draw_subject(draft), verb), draft.conjunction(THAT)]
    clauses = draw_series(draft, 2 + draft.below(3))
    for clause in clauses[:-1]:
        parts += [clause, draft.comma()]
    parts[-1:] = [draft.conjunction(AND), clauses[-1]]
    if draft.chance(0.4):
        parts += [draft.conjunction(BUT), contrast(draft, clauses[-1])]
    elif draft.mode == "past" and draft.chance(0.5):
        draft.mode = "background"
        parts += [draft.conjunction(WHILE), draw_activity(draft, draw_other(draft, clauses[-1].subject))]
    return parts, "."


def draw_series(draft: Draft, length: int) -> list[Clause]:
    """Draws clauses in which different people do different things."""
    clauses: list[Clause] = []
    verbs: set[str] = set()
    while len(clauses) < length:
        verb = draw_deed(draft)
        if verb.fr in verbs:
            continue
        verbs.add(verb.fr)
        subject = draw_other(draft, clauses[-1].subject) if clauses else draw_subject(draft)
        clause = action(draft, subject, True, verb, 0.08)
        last = clause.rest[-1] if clause.rest else None
        if isinstance(last, NounPhrase) and last.noun.countable and last.det in ("def", "this") and last.relative is None:
            if last.owner is None and not last.noun.person and clause.manner is None and draft.chance(0.5):
                add_relative(draft, last, verb)
        clauses.append(clause)
    return clauses


SENTENCES = (
    (0.60, single_clause),
    (0.16, joined_clauses),
    (0.05, interrupted_activity),
    (0.04, action_and_reason),
    (0.05, conditional),
    (0.07, reported_speech),
    (0.03, bad_weather_activity),
)
