"""Draws tenses, dates and adverbs of time."""

from entente_grammar import choices
from entente_grammar.cells import Chunk
from entente_grammar.clause import Clause
from entente_grammar.draft import Draft
from entente_grammar.lexicon import DAYS, MONTHS, NUMBERS


def draw_date(draft: Draft, monthly: bool = True) -> Chunk:
    """Draws a date or time, such as "on Monday" or "at eight o'clock" or, if `monthly`, also "in September" or "on May 3"."""
    months = 0.6 if monthly else 0.0
    kind = draft.weighted(((months / 2, "month"), (months / 2, "day"), (0.25, "weekday"), (0.15, "hour"), (1.0, "weekday")))
    draft.note("date")
    if kind == "weekday":
        day = draft.pick(DAYS)
        draft.use("day:" + day.fr)
        return Chunk(draft.key(), f"{day.fr}:1 | on~1 {day.en}:1")
    if kind == "hour":
        hour = draft.number(NUMBERS[:10])
        return Chunk(draft.key(), f"à:1 {hour.fr}:2 heures:3 | at:1 {hour.en}:2 o'clock:3")
    if kind == "month":
        return draw_month(draft)
    month = draft.pick(MONTHS)
    draft.use("month:" + month.fr)
    date = 2 + draft.below(27)
    return Chunk(draft.key(), f"le:1 {date}:3 {month.fr}:2 | on:1 {month.en}:2 {date}:3")


def draw_month(draft: Draft) -> Chunk:
    month = draft.pick(MONTHS)
    draft.use("month:" + month.fr, "date")
    return Chunk(draft.key(), f"en:1 {month.fr}:2 | in:1 {month.en}:2")


def draw_weekly(draft: Draft) -> Chunk:
    day = draft.pick(DAYS)
    draft.use("day:" + day.fr)
    return Chunk(draft.key(), f"le~1 {day.fr}:1 | on~1 {day.en}s:1")


def draw_ago(draft: Draft) -> Chunk:
    number = draft.number(NUMBERS[:9])
    unit, english = draft.pick((("jours", "days"), ("semaines", "weeks"), ("mois", "months")))
    return Chunk(draft.key(), f"il~1 y~1 a~1 {number.fr}:2 {unit}:3 | {number.en}:2 {english}:3 ago:1")


def draw_past_day(draft: Draft, far: bool = False) -> Chunk:
    """Draws a past day or, if `far`, a past week, month or year."""
    return draft.chunk(draft.pick(choices.PAST[3:] if far else choices.PAST[:3]))


def draw_future_day(draft: Draft, far: bool = False) -> Chunk:
    return draft.chunk(draft.pick(choices.FUTURE[3:] if far else choices.FUTURE[:3]))


def draw_tense(draft: Draft, verb: str, aspect: str) -> str:
    """Draws a tense that suits the verb and the mode of the sentence."""
    state = aspect == "state"
    if state and draft.mode == "future" and verb not in choices.ENDURING:
        return "present"
    if state and draft.mode == "past":
        return "imparfait"
    if draft.mode == "background" and aspect == "punctual":
        return "pc"
    tense = choices.MODES[draft.mode] if draft.mode else draft.weighted(choices.TENSES[aspect])
    if verb in choices.MISHAPS and not draft.mode and tense in ("futur", "proche"):
        return "pc"
    return "present" if tense == "futur" and state and verb not in choices.ENDURING else tense


def set_time(draft: Draft, clause: Clause, sparse: bool = False) -> None:
    """Sets the tense, and may add an adverb or a time expression. If `sparse`, only progressive clauses get the latter."""
    aspect = clause.verb.aspect
    clause.tense = draw_tense(draft, clause.verb.fr, aspect)
    if clause.verb.frame == "arrive" and clause.tense == "present":
        clause.tense = "pc"
    denied = clause.tense == "present" and aspect == "action" and clause.negation == "pas"
    if denied and not draft.mode and draft.chance(0.7):
        clause.tense = "pc"
    draft.note(clause.tense)
    adjunct = draw_present_adjunct(draft, clause) if clause.tense == "present" else draw_adjunct(draft, clause)
    if adjunct is None or sparse and not clause.progressive:
        return
    relative = any(phrase.relative is not None for phrase in clause.noun_phrases)
    if (relative or draft.chance(0.2)) and not clause.progressive:
        clause.front = adjunct
    else:
        clause.rest.append(adjunct)


def draw_present_adjunct(draft: Draft, clause: Clause) -> Chunk | None:
    """Returns a time expression or None for a clause in the present. May make the clause progressive or add an adverb."""
    verb, aspect = clause.verb.fr, clause.verb.aspect
    if aspect == "state":
        return None
    if verb in choices.MONTHLY and aspect == "action" and not draft.mode and not clause.negation and draft.chance(0.25):
        return draw_month(draft)
    if aspect == "action" and not draft.mode and draft.chance(0.25):
        clause.progressive = True
        draft.note("progressive")
        return draft.chunk(draft.pick(choices.NOW))
    if (draft.chance(0.3) or verb not in choices.DAILY) and clause.manner is None:
        # With apprendre, "toujours" would mean "still".
        clause.adverb = draft.chunk(draft.pick(choices.FREQUENCY[:1] if verb == "apprendre" else choices.FREQUENCY))
    elif draft.chance(0.75) and verb in choices.DAILY:
        return draw_weekly(draft) if draft.chance(0.3) else draft.chunk(draft.pick(choices.HABITS))
    return None


def draw_adjunct(draft: Draft, clause: Clause) -> Chunk | None:
    """Returns a time expression or None for a clause in a past or future tense."""
    tense, monthly = clause.tense, clause.verb.fr in choices.MONTHLY
    if tense == "pc" and draft.chance(0.75):
        kind = draft.weighted(((0.4, "date"), (0.2, "ago"), (0.4, "yesterday")))
        if kind == "date":
            return draw_date(draft, monthly)
        if monthly and kind == "ago" and not clause.negation:
            return draw_ago(draft)
        return draw_past_day(draft, monthly)
    if tense in ("futur", "proche") and clause.verb.aspect != "state" and draft.chance(0.75):
        return draw_date(draft, monthly) if draft.chance(0.45) else draw_future_day(draft, monthly)
    if tense == "imparfait" and clause.verb.aspect == "action" and not monthly and draft.chance(0.5):
        return draw_past_day(draft)
    return None


def add_time(draft: Draft, clause: Clause) -> None:
    """With probability 0.5, adds a phrase like "two weeks ago" (passé composé) or "next year" (future) to the clause."""
    if clause.tense == "pc" and draft.chance(0.5):
        clause.rest.append(draw_ago(draft))
    elif clause.tense == "futur" and draft.chance(0.5):
        clause.rest.append(draft.chunk(choices.FUTURE[5]))
