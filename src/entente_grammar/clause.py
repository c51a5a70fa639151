"""Defines the clauses of a meaning tree (a verb with subject, objects and adjuncts). Each writes itself in both languages."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from entente_grammar.cells import HE, IMPERSONAL, ME, Agreement, Cell, Cells, Chunk, Node, Style, agreement
from entente_grammar.english import ing, third_person
from entente_grammar.french import agree, conjugate
from entente_grammar.lexicon import Verb
from entente_grammar.nominals import (
    ENGLISH_OBJECTS,
    SUBJECTS,
    Nominal,
    NounPhrase,
    Prepositional,
    Pronoun,
    english_pronoun,
    french_pronoun,
    preposition,
)

# Link numbers in a clause, relative to its key. The numbers from TAIL on belong to words that follow the verb in a verb phrase.
HEAD, NOT, MODAL, ASK, CLITIC, QUANTIFIER, SPEECH, TAIL = range(8)
DIRECT = ("me", "te", "le", "nous", "vous", "les")
INDIRECT = ("me", "te", "lui", "nous", "vous", "leur")
REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")
GERUND_AFTER = ("aimer", "détester")  # an infinitive after these verbs is a gerund in English: likes swimming
SHORT_ADVERBS = ("bien", "mal", "beaucoup")  # adverbs that precede a participle or infinitive
PREPOSITIONS = ("de", "à", "avec")
NEGATIONS = {"pas": "not", "jamais": "never", "plus": "no longer", "rien": "not", "personne": "not"}
# The English for each modal verb and tense: the auxiliary, and the words between it and the main verb.
MODALS = {
    ("pouvoir", "present"): ("can", ""),
    ("pouvoir", "imparfait"): ("could", ""),
    ("pouvoir", "futur"): ("will", "be able to"),
    ("pouvoir", "conditionnel"): ("could", ""),
    ("devoir", "present"): ("must", ""),
    ("devoir", "imparfait"): ("", "had to"),
    ("devoir", "futur"): ("will", "have to"),
    ("devoir", "conditionnel"): ("should", ""),
}


def be(person: int, past: bool) -> str:
    """Returns the form of "be" for a person: am, is, are, was or were."""
    if past:
        return "was" if person in (ME, HE) else "were"
    return "am" if person == ME else "is" if person == HE else "are"


@dataclass(slots=True)
class Existence:
    """A statement that something is somewhere: Il y a ... / There is ..."""

    key: int
    thing: NounPhrase
    place: Node
    tense: str = "present"
    negated: bool = False

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
        link, no = (self.key,), (self.key + 1,)
        cells = [Cell("il", link), Cell("y", link), Cell("a" if self.tense == "present" else "avait", link)]
        if self.negated:
            cells = [cells[0], Cell("ne", (), no), *cells[1:], Cell("pas", no)]
        return cells + self.thing.french(style) + self.place.french(style, subject)

    def english(self) -> Cells:
        link = (self.key,)
        cells = [Cell("there", link), Cell(be(self.thing.person, self.tense != "present"), link)]
        if self.negated:
            cells.append(Cell("not", (self.key + 1,)))
        return cells + self.thing.english() + self.place.english()


class Clitic(NamedTuple):
    """An object pronoun, which precedes the verb in French. It always refers to a person."""

    person: int
    gender: str
    direct: bool


@dataclass(slots=True)
class Clause:
    """A verb with subject, tense, negation, objects and adjuncts. `gap` names the part that a relative pronoun replaces."""

    key: int
    subject: Nominal
    verb: Verb
    tense: str = "present"
    negation: str = ""
    clitic: Clitic | None = None
    rest: list[Node] = field(default_factory=list)
    modal: str = ""
    adverb: Chunk | None = None
    progressive: bool = False
    question: bool = False
    wh: Chunk | Prepositional | None = None
    infinitive: "Clause | None" = None
    gap: str = ""  # subject or object; empty if this is not a relative clause
    front: Node | None = None
    manner: Chunk | None = None
    hypothetical: bool = False  # takes the subjunctive in English: if I were

    @property
    def noun_phrases(self) -> list[NounPhrase]:
        """The noun phrases among the objects and adjuncts."""
        return [node for node in self.rest if isinstance(node, NounPhrase)]

    def _tail(self, words: Sequence[str], others: int, function_words: Collection[str]) -> Cells:
        """Returns the cells of `words`, which follow the verb in a verb phrase (faim, besoin de; for, hungry). In the other
        language, the verb phrase has `others` such words. The last `others` cells are linked to those words, and any cells
        before these to the verb, weakly if their words are in `function_words`."""
        head = (self.key + HEAD,)
        cells = []
        for number, word in zip(range(len(words), 0, -1), words, strict=True):
            if number <= others:
                cells.append(Cell(word, (self.key + TAIL + number,)))
            else:
                cells.append(Cell(word, (), head) if word in function_words else Cell(word, head))
        return cells

    # French ----------------------------------------------------------------------------------------------------------

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
        agr = self.subject.agreement(style)
        cells: Cells = []
        if self.front is not None:
            cells += [*self.front.french(style, agr), Cell(",", (self.key + SPEECH,))]
        if not self.question:
            return cells + self.subject.french(style) + self.french_predicate(style, agr)
        counted: Agreement | None = None
        if self.wh is not None:
            cells += self.wh.french(style)
            if isinstance(self.wh, Prepositional) and isinstance(self.wh.phrase, NounPhrase):
                counted = self.wh.phrase.agreement(style)
        what = self.wh is not None and cells[0].text == "que"
        if style.inversion and agr.person != 0 and not (what and not isinstance(self.subject, Pronoun)):
            if not isinstance(self.subject, Pronoun):
                cells += self.subject.french(style)
            return cells + self.french_predicate(style, agr, inverted=True, antecedent=counted)
        ask = (self.key + ASK,)
        cells += [Cell("est-ce", (), ask), Cell("que", (), ask), *self.subject.french(style)]
        return cells + self.french_predicate(style, agr, antecedent=counted)

    def french_relative(self, style: Style, antecedent: Agreement) -> Cells:
        link = (self.key + SPEECH,)
        if self.gap == "subject":
            return [Cell("qui", link), *self.french_predicate(style, antecedent)]
        agr = self.subject.agreement(style)
        return [Cell("que", link), *self.subject.french(style), *self.french_predicate(style, agr, antecedent=antecedent)]

    def french_predicate(
        self, style: Style, agr: Agreement, inverted: bool = False, antecedent: Agreement | None = None
    ) -> Cells:
        """Returns the predicate in this order: ne, clitics, finite verb, second negation word (pas), adverb, participle or
        infinitive, objects and adjuncts."""
        main, link = self.verb.words[0], (self.key + HEAD,)
        clitics = self._french_clitics(style, agr)
        inner: Cells = []
        if self.modal or self.tense == "proche":
            modal = conjugate(self.modal or "aller")
            finite = Cell(getattr(modal, self.tense if self.modal else "present")[agr.person], (self.key + MODAL,))
            inner = [*clitics, Cell(main, link)]
            clitics = []
        elif self.tense == "pc":
            auxiliary = "être" if self.verb.moves else "avoir"
            finite = Cell(conjugate(auxiliary).present[agr.person], (), link)
            inner = [Cell(self._participle(style, agr, antecedent), link)]
        else:
            finite = Cell(getattr(conjugate(main), self.tense)[agr.person], link)
        cells = [*clitics, finite]
        if self.negation:
            cells.insert(0, Cell("ne", (), (self.key + NOT,)))
        if inverted:
            cells.append(self._inverted_subject(agr, finite.text))
        if self.negation and self.negation != "personne":
            cells.append(Cell(self.negation, (self.key + (QUANTIFIER if self.negation == "rien" else NOT),)))
        if self.adverb is not None:
            cells += self.adverb.french(style)
        manner = self.manner.french(style) if self.manner is not None else []
        cells += manner + inner if manner and manner[0].text in SHORT_ADVERBS else inner + manner
        if self.negation == "personne":
            cells.append(Cell("personne", (self.key + QUANTIFIER,)))
        return cells + self._french_rest(style, agr)

    def _french_rest(self, style: Style, agr: Agreement) -> Cells:
        tail = self._tail(self.verb.words[1:], len(self.verb.en.split()) - 1, PREPOSITIONS)
        rest = self.infinitive.french_infinitive(style, agr) if self.infinitive is not None else []
        for node in self.rest:
            rest += node.french(style, agr)
        return tail[:-1] + preposition(tail[-1], rest) if tail and rest else tail + rest

    def french_infinitive(self, style: Style, agr: Agreement) -> Cells:
        verb = Cell(self.verb.words[0], (self.key + HEAD,))
        return [*self._french_clitics(style, agr), verb, *self._french_rest(style, agr)]

    def _french_clitics(self, style: Style, agr: Agreement) -> Cells:
        if self.verb.reflexive:
            return [Cell(REFLEXIVE[agr.person], (), (self.key + HEAD,))]
        if self.clitic is None:
            return []
        person, gender, direct = self.clitic
        text = (DIRECT if direct else INDIRECT)[agreement(person, gender, style).person]
        return [Cell("la" if text == "le" and gender == "f" else text, (self.key + CLITIC,))]

    def _participle(self, style: Style, agr: Agreement, antecedent: Agreement | None) -> str:
        form = conjugate(self.verb.words[0]).participle
        if self.verb.moves:
            return agree(form, agr.gender, agr.plural)
        if antecedent is None and self.clitic is not None and self.clitic.direct:
            antecedent = agreement(self.clitic.person, self.clitic.gender, style)
        return agree(form, antecedent.gender, antecedent.plural) if antecedent is not None else form

    def _inverted_subject(self, agr: Agreement, finite: str) -> Cell:
        joint = "-t-" if agr.person == 2 and finite[-1] in "aeé" else "-"
        text, link = joint + french_pronoun(SUBJECTS, agr), (self.subject.key,)
        return Cell(text, link) if isinstance(self.subject, Pronoun) else Cell(text, (), link)

    # English ---------------------------------------------------------------------------------------------------------

    def english(self) -> Cells:
        auxiliary, rest = self.english_verb()
        cells: Cells = []
        if self.front is not None:
            cells += [*self.front.english(), Cell(",", (self.key + SPEECH,))]
        if self.question:
            if self.wh is not None:
                cells += self.wh.english()
            first = auxiliary[0]
            auxiliary = [Cell(first.text, first.sure, (*first.weak, self.key + ASK)), *self.subject.english(), *auxiliary[1:]]
        else:
            cells += self.subject.english()
        return cells + auxiliary + rest + self._english_rest()

    def english_relative(self, is_person: bool) -> Cells:
        auxiliary, rest = self.english_verb()
        pronoun = Cell("who" if is_person and self.gap == "subject" else "that", (self.key + SPEECH,))
        subject = [] if self.gap == "subject" else self.subject.english()
        return [pronoun, *subject, *auxiliary, *rest, *self._english_rest()]

    def _english_rest(self) -> Cells:
        cells = self.infinitive.english_infinitive(self.verb.fr in GERUND_AFTER) if self.infinitive is not None else []
        manner = self.manner.english() if self.manner is not None else []
        for node in self.rest:
            if not isinstance(node, NounPhrase):
                cells += manner
                manner = []
            cells += node.english()
        return cells + manner

    def english_infinitive(self, gerund: bool) -> Cells:
        head, *tail = self.verb.en.split()
        verb = Cell(ing(head) if gerund else head, (self.key + HEAD,))
        return [verb, *self._english_tail(tail), *self._english_rest()]

    def english_verb(self) -> tuple[Cells, Cells]:
        """Returns two parts of the verb phrase: the auxiliary, if any, with negation and adverb, and the words that follow."""
        head, *tail = self.verb.en.split()
        link = (self.key + HEAD,)
        if head == "want" and self.tense == "conditionnel":  # je voudrais is "I would like"
            head = "like"
        if head == "can":  # pouvoir without an infinitive: if I could
            return [], [Cell("could", link)]
        cells, main = self._english_chain(head)
        asked = self.question and not isinstance(self.subject, Chunk)
        if not cells and (asked or self.negation in ("pas", "rien", "personne")):
            past = self.tense in ("pc", "imparfait")
            cells = [Cell("did" if past else "does" if self.subject.person == HE else "do", (), link)]
            must = ["have", "to"] if self.modal else []  # "had to" becomes "did ... have to"
            main = [*(Cell(word, (self.key + MODAL,)) for word in must), Cell(head, link)]
        if self.negation:
            words = [Cell(word, (self.key + NOT,)) for word in NEGATIONS[self.negation].split()]
            if cells and cells[0].text == "can" and words[0].text == "not":
                cells = [Cell("cannot", cells[0].sure + words[0].sure)]
            else:
                cells = cells[:1] + words + cells[1:]
        if self.adverb is not None:
            cells = cells + self.adverb.english()
        rest = main + self._english_tail(tail)
        if self.negation in ("rien", "personne"):
            rest.append(Cell("anything" if self.negation == "rien" else "anyone", (self.key + QUANTIFIER,)))
        return cells, rest

    def _english_chain(self, head: str) -> tuple[Cells, Cells]:
        """Returns the auxiliary (at most one word) and the verb forms after it, without negation or inversion."""
        verb, modal, person = (self.key + HEAD,), (self.key + MODAL,), self.subject.person
        base = Cell(head, verb)
        if self.modal:
            auxiliary, more = MODALS[self.modal, self.tense]
            first = [Cell(auxiliary, modal)] if auxiliary else []
            return first, [*(Cell(word, modal) for word in more.split()), base]
        match self.tense:
            case "futur" | "conditionnel":
                return [Cell("will" if self.tense == "futur" else "would", (), verb)], [base]
            case "proche":
                return [Cell(be(person, False), (), modal)], [Cell("going", modal), Cell("to", (), modal), base]
            case "imparfait" if self.verb.aspect == "action":
                return [Cell(be(person, True), (), verb)], [Cell(ing(head), verb)]
            case "present" if self.progressive:
                return [Cell(be(person, False), (), verb)], [Cell(ing(head), verb)]
        past = self.tense != "present"
        if head == "be":
            return [Cell("were" if self.hypothetical else be(person, past), verb)], []
        if past:
            return [], [Cell(self.verb.en_past, verb)]
        return [], [Cell(third_person(head) if person == HE else head, verb)]

    def _english_tail(self, words: list[str]) -> Cells:
        """Returns the words after the head of an English verb (look "for", be "hungry", want "to"), then any object pronoun."""
        cells = self._tail(words, len(self.verb.words) - 1, ("to",))
        if self.clitic is not None:
            text = english_pronoun(ENGLISH_OBJECTS, self.clitic.person, self.clitic.gender)
            cells.append(Cell(text, (self.key + CLITIC,)))
        return cells
