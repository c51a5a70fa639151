"""Meaning trees, each node of which writes itself in French and in English.

A node owns a range of link numbers from its key on. A written word is a Cell with the numbers it carries surely or weakly: two
words that share a sure number are a sure link, two that share a number at all are a possible one (Och and Ney 2003).
"""

from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

from entente.data.grammar.lexicon import NOUN, Adjective, Noun, Verb
from entente.data.grammar.morphology import (
    BEFORE_VOWEL,
    ELIDING,
    a_or_an,
    agree,
    comparative,
    conjugate,
    ing,
    starts_with_vowel,
    third_person,
)

STEP = 16  # link numbers of one node
ME, YOU, HE, WE, THEY = 0, 1, 2, 3, 5  # grammatical persons; 4, the plural you, is French only


class Cell(NamedTuple):
    """One written word and its link numbers; an article contracts with à and de, a pronoun of the same form does not."""

    text: str
    sure: tuple[int, ...] = ()
    weak: tuple[int, ...] = ()
    article: bool = False


Cells = list[Cell]


@dataclass(frozen=True, slots=True)
class Style:
    """What French must choose and English leaves open: the genders of I, you, we, they; tu or vous; the form of a question."""

    me: str = "m"
    you: str = "tu"  # tu, vous, plural
    your: str = "m"
    us: str = "m"
    they: str = "m"
    masculine: bool = False  # un ami for a friend whose gender English does not show
    inversion: bool = False


class Agreement(NamedTuple):
    """What a verb and its participle or adjective agree with: French person 0-5, gender, number."""

    person: int
    gender: str
    plural: bool


def agreement(person: int, gender: str, style: Style) -> Agreement:
    """The agreement of a pronoun."""
    if person == ME:
        return Agreement(0, style.me, False)
    if person == YOU:
        return Agreement(1 if style.you == "tu" else 4, style.your, style.you == "plural")
    if person == WE:
        return Agreement(3, style.us, True)
    if person == THEY:
        return Agreement(5, style.they, True)
    return Agreement(2, gender, False)


class Node(Protocol):
    """A phrase that may follow a verb; an adjective in it agrees with the subject."""

    def french(self, style: Style, subject: Agreement) -> Cells: ...

    def english(self) -> Cells: ...


NOBODY = Agreement(2, "m", False)


@cache
def read_chunk(text: str) -> tuple[tuple[tuple[str, int, bool], ...], tuple[tuple[str, int, bool], ...]]:
    """A fixed phrase "word:1 word~1 | word:1" as (word, number, sure) of both sides."""

    def side(words: str) -> tuple[tuple[str, int, bool], ...]:
        out = []
        for word in words.split():
            mark = ":" if ":" in word else "~"
            form, number = word.rsplit(mark, 1)
            out.append((form, int(number), mark == ":"))
        return tuple(out)

    french, english = text.split(" | ")
    return side(french), side(english)


def _cells(words: tuple[tuple[str, int, bool], ...], base: int) -> Cells:
    return [Cell(w, (base + n,)) if sure else Cell(w, (), (base + n,)) for w, n, sure in words]


@dataclass(slots=True)
class Chunk:
    """A fixed phrase: an adverb, a conjunction, a date."""

    key: int
    text: str
    plural: bool = False
    gender: str = "m"

    @property
    def person(self) -> int:
        return THEY if self.plural else HE

    def agreement(self, style: Style) -> Agreement:
        return Agreement(5 if self.plural else 2, "m", self.plural)

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        return _cells(read_chunk(self.text)[0], self.key)

    def english(self) -> Cells:
        return _cells(read_chunk(self.text)[1], self.key)


# Nominals ------------------------------------------------------------------------------------------------------------

SUBJECTS = ("je", "tu", "il", "nous", "vous", "ils")
ENGLISH_SUBJECTS = ("I", "you", "he", "we", "you", "they")
ENGLISH_OBJECTS = ("me", "you", "him", "us", "you", "them")
STRONG = ("moi", "toi", "lui", "nous", "vous", "eux")
MY = (("mon", "ma", "mes"), ("ton", "ta", "tes"), ("son", "sa", "ses"), ("notre", "notre", "nos"), ("votre", "votre", "vos"),
      ("leur", "leur", "leurs"))  # fmt: skip
ENGLISH_MY = ("my", "your", "his", "our", "your", "their")


@dataclass(slots=True)
class Pronoun:
    """A personal pronoun as subject."""

    key: int
    person: int
    gender: str = "m"

    def agreement(self, style: Style) -> Agreement:
        return agreement(self.person, self.gender, style)

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        person, gender, _ = self.agreement(style)
        text = SUBJECTS[person]
        if gender == "f" and person in (2, 5):
            text = "elle" if person == 2 else "elles"
        return [Cell(text, (self.key,))]

    def english(self) -> Cells:
        text = "she" if self.person == HE and self.gender == "f" else ENGLISH_SUBJECTS[self.person]
        return [Cell(text, (self.key,))]


@dataclass(slots=True)
class Strong:
    """A pronoun after a preposition or than."""

    key: int
    person: int
    gender: str = "m"

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        person, gender, _ = agreement(self.person, self.gender, style)
        text = STRONG[person]
        if gender == "f" and person in (2, 5):
            text = "elle" if person == 2 else "elles"
        return [Cell(text, (self.key,))]

    def english(self) -> Cells:
        text = "her" if self.person == HE and self.gender == "f" else ENGLISH_OBJECTS[self.person]
        return [Cell(text, (self.key,))]


@dataclass(slots=True)
class Name:
    """A person or a place by name."""

    key: int
    fr: str
    en: str
    gender: str = "m"
    article: str = ""
    person: int = HE

    def agreement(self, style: Style) -> Agreement:
        return Agreement(2, self.gender, False)

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        name = Cell(self.fr, (self.key,))
        return [Cell(self.article, (), (self.key,), True), name] if self.article else [name]

    def english(self) -> Cells:
        return [Cell(self.en, (self.key,))]


@dataclass(slots=True)
class Both:
    """Two nominals joined by et / and."""

    key: int
    left: "Nominal"
    right: "Nominal"
    person: int = THEY
    gender: str = "m"

    def agreement(self, style: Style) -> Agreement:
        genders = {self.left.agreement(style).gender, self.right.agreement(style).gender}
        return Agreement(5, "f" if genders == {"f"} else "m", True)

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        return [*self.left.french(style), Cell("et", (self.key,)), *self.right.french(style)]

    def english(self) -> Cells:
        return [*self.left.english(), Cell("and", (self.key,)), *self.right.english()]


TWINS = {"cousine": "cousin", "amie": "ami", "voisine": "voisin", "étudiante": "étudiant", "directrice": "directeur"}


@dataclass(slots=True)
class NounPhrase:
    """A noun with its determiner, adjectives, owner or relative clause.

    det: def, indef, some, any, my (with possessor: person and gender), this, number, generic, bare.
    """

    key: int
    noun: Noun
    det: str = "def"
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    possessor: tuple[int, str] = (HE, "m")
    number: str = ""
    owner: "Nominal | None" = None
    relative: "Clause | None" = None
    profession: bool = False  # il est médecin / he is a doctor
    person_: int = field(init=False)

    def __post_init__(self) -> None:
        self.person_ = THEY if self.plural else HE

    @property
    def person(self) -> int:
        return self.person_

    @property
    def gender(self) -> str:
        return self.noun.gender

    def make_plural(self) -> None:
        """a pear -> some pears."""
        self.det, self.plural, self.person_ = "some", True, THEY

    def written_noun(self, style: Style) -> Noun:
        return NOUN[TWINS[self.noun.fr]] if style.masculine and self.noun.fr in TWINS else self.noun

    def agreement(self, style: Style) -> Agreement:
        return Agreement(self.person_, self.written_noun(style).gender, self.plural)

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        lexeme = self.written_noun(style)
        gender, plural, key = lexeme.gender, self.plural, self.key
        noun = lexeme.fr_plural if plural else lexeme.fr
        before = [(a.fr, key + 2 + i) for i, a in enumerate(self.adjectives) if a.place == "pre"]
        after = [(a.fr, key + 2 + i) for i, a in enumerate(self.adjectives) if a.place != "pre"]
        rest: Cells = []
        for i, (word, link) in enumerate(before):
            follower = before[i + 1][0] if i + 1 < len(before) else noun
            form = agree(word, gender, plural)
            if gender == "m" and not plural and word in BEFORE_VOWEL and starts_with_vowel(follower):
                form = BEFORE_VOWEL[word]
            rest.append(Cell(form, (link,)))
        rest.append(Cell(noun, (key,)))
        rest += [Cell(agree(word, gender, plural), (link,)) for word, link in after]
        cells = self._determiner(style, rest[0].text, bool(before)) + rest
        if self.owner is not None:
            cells += preposition(Cell("de", (key + 9,)), self.owner.french(style))
        if self.relative is not None:
            cells += self.relative.french_relative(style, self.agreement(style))
        return cells

    def _determiner(self, style: Style, follower: str, adjective_first: bool) -> Cells:
        gender, plural, link = self.written_noun(style).gender, self.plural, (self.key + 1,)
        vowel = starts_with_vowel(follower)
        the = "les" if plural else "le" if gender == "m" else "la"
        if self.owner is not None:
            return [Cell(the, (), (self.key,), True)]
        match self.det:
            case "def":
                return [Cell(the, link, (), True)]
            case "generic":
                return [Cell(the, (), (self.key,), True)]
            case "indef":
                return [Cell("un" if gender == "m" else "une", link)]
            case "any":
                return [Cell("de", link)]
            case "my":
                person = agreement(self.possessor[0], self.possessor[1], style).person
                forms = MY[person]
                return [Cell(forms[2] if plural else forms[1] if gender == "f" and not vowel else forms[0], link)]
            case "this":
                singular = "cette" if gender == "f" else "cet" if vowel else "ce"
                return [Cell("ces" if plural else singular, link)]
            case "number":
                return [Cell(self.number.split("/")[1], link)]
            case "some" if plural:
                return [Cell("de" if adjective_first else "des", link)]
            case "some" if not vowel and gender == "m":
                return [Cell("du", link)]
            case "some":
                return [Cell("de", link), Cell(the, link)]
        return []

    def english(self) -> Cells:
        key, plural = self.key, self.plural
        rest = [Cell(a.en, (key + 2 + i,)) for i, a in enumerate(self.adjectives)]
        rest += [Cell(word, (key,)) for word in (self.noun.en_plural if plural else self.noun.en).split()]
        if self.owner is not None:
            owner = self.owner.english()
            cells = [
                *owner,
                Cell("'" if owner[-1].text.endswith("s") and self.owner.person == THEY else "'s", (key + 9,)),
                *rest,
            ]
        else:
            cells = self._english_determiner(rest[0].text) + rest
        if self.relative is not None:
            cells += self.relative.english_relative(self.noun.person)
        return cells

    def _english_determiner(self, follower: str) -> Cells:
        match self.det:
            case "def":
                text = "the"
            case "indef":
                text = a_or_an(follower)
            case "some" | "any":
                text = self.det
            case "my":
                person, gender = self.possessor
                text = "her" if person == HE and gender == "f" else ENGLISH_MY[person]
            case "this":
                text = "these" if self.plural else "this"
            case "number":
                text = self.number.split("/")[2]
            case "bare" if self.profession:
                return [Cell(a_or_an(follower), (), (self.key,))]
            case _:
                return []
        return [Cell(text, (self.key + 1,))]


Nominal = Pronoun | Name | Both | NounPhrase | Chunk


def preposition(word: Cell, phrase: Cells) -> Cells:
    """à and de contracted with the article that follows: au, aux, du, des."""
    first = phrase[0]
    if not first.article or first.text not in ("le", "les"):
        return [word, *phrase]
    if first.text == "le" and starts_with_vowel(phrase[1].text):
        return [word, *phrase]
    merged = {"àle": "au", "àles": "aux", "dele": "du", "deles": "des"}.get(word.text + first.text)
    if merged is None:
        return [word, *phrase]
    return [Cell(merged, word.sure + first.sure, word.weak + first.weak), *phrase[1:]]


@dataclass(slots=True)
class Prepositional:
    """A preposition, possibly of several words, and a nominal; en may be empty (visiter la ville de ...)."""

    key: int
    fr: str
    en: str
    phrase: "Nominal | Strong"

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        *front, last = [Cell(word, (self.key,)) for word in self.fr.split()]
        return front + preposition(last, self.phrase.french(style))

    def english(self) -> Cells:
        return [Cell(word, (self.key,)) for word in self.en.split()] + self.phrase.english()


@dataclass(slots=True)
class Quality:
    """A predicate adjective, with its degree (plus, moins, aussi) and what it is compared with, if any."""

    key: int
    adjective: Adjective
    degree: str = ""
    than: "Nominal | Strong | None" = None

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        word = agree(self.adjective.fr, subject.gender, subject.plural)
        degree = Cell(self.degree, (self.key + 1,))
        if self.degree == "plus" and self.adjective.fr == "bon":
            cells = [Cell(agree("meilleur", subject.gender, subject.plural), (self.key, self.key + 1))]
        elif self.degree:
            cells = [degree, Cell(word, (self.key,))]
        else:
            cells = [Cell(word, (self.key,))]
        if self.than is not None:
            cells += [Cell("que", (self.key + 2,)), *self.than.french(style)]
        return cells

    def english(self) -> Cells:
        word, link = self.adjective.en, (self.key,)
        short = comparative(word)
        if self.degree == "plus" and short:
            cells = [Cell(short, (self.key, self.key + 1))]
        elif self.degree:
            cells = [Cell({"plus": "more", "moins": "less", "aussi": "as"}[self.degree], (self.key + 1,)), Cell(word, link)]
        else:
            cells = [Cell(word, link)]
        if self.than is not None:
            cells += [Cell("as" if self.degree == "aussi" else "than", (self.key + 2,)), *self.than.english()]
        return cells


@dataclass(slots=True)
class Existence:
    """Il y a ... / There is ...: a thing and where it is."""

    key: int
    thing: NounPhrase
    place: Node
    tense: str = "present"
    negated: bool = False

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
        link, no = (self.key,), (self.key + 1,)
        verb = Cell("a" if self.tense == "present" else "avait", link)
        cells = [Cell("il", link), Cell("y", link), verb]
        if self.negated:
            cells = [cells[0], Cell("ne", (), no), *cells[1:], Cell("pas", no)]
        return cells + self.thing.french(style) + self.place.french(style, subject)

    def english(self) -> Cells:
        link = (self.key,)
        cells = [Cell("there", link), Cell(be(self.thing.person, self.tense != "present"), link)]
        if self.negated:
            cells.append(Cell("not", (self.key + 1,)))
        return cells + self.thing.english() + self.place.english()


# Clauses -------------------------------------------------------------------------------------------------------------

HEAD, NOT, MODAL, ASK, TAIL, CLITIC, QUANTIFIER, SPEECH = range(8)  # link numbers inside a clause
DIRECT = ("me", "te", "le", "nous", "vous", "les")
INDIRECT = ("me", "te", "lui", "nous", "vous", "leur")
REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")
GERUND_AFTER = ("aimer", "détester", "adorer", "préférer")  # likes swimming
SHORT_ADVERBS = ("bien", "mal", "beaucoup")  # they stand before a participle or infinitive
PREPOSITIONS = ("de", "à", "avec")
SIMPLE = {"present", "imparfait", "futur", "conditionnel"}
NEGATIONS = {"pas": ("not",), "jamais": ("never",), "plus": ("no", "longer"), "rien": ("not",), "personne": ("not",)}
# modal, tense: English auxiliary and what follows it before the verb
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


class Clitic(NamedTuple):
    """An object pronoun before the verb; a person."""

    person: int
    gender: str
    direct: bool


@dataclass(slots=True)
class Clause:
    """A verb with its subject, tense, negation, objects and adjuncts; gap says what a relative pronoun stands for."""

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
    gap: str = ""  # subject, object
    front: Node | None = None
    manner: Chunk | None = None
    hypothetical: bool = False  # if I were

    # French ----------------------------------------------------------------------------------------------------------

    def french(self, style: Style, subject: Agreement = NOBODY) -> Cells:
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
        """ne, clitics, verb, second negation, adverb, participle or infinitive, and all that follows."""
        main = self.verb.fr.split()[1 if self.verb.fr.startswith("se ") else 0].removeprefix("s'")
        verb = (self.key + HEAD,)
        clitics = self._french_clitics(style, agr)
        inner: Cells = []
        if self.modal:
            finite = Cell(getattr(conjugate(self.modal), self.tense)[agr.person], (self.key + MODAL,))
            inner = [*clitics, Cell(main, verb)]
            clitics = []
        elif self.tense == "proche":
            finite = Cell(conjugate("aller").present[agr.person], (self.key + MODAL,))
            inner = [*clitics, Cell(main, verb)]
            clitics = []
        elif self.tense == "pc":
            auxiliary = "être" if self.verb.moves else "avoir"
            finite = Cell(conjugate(auxiliary).present[agr.person], (), verb)
            inner = [Cell(self._participle(main, style, agr, antecedent), verb)]
        else:
            finite = Cell(getattr(conjugate(main), self.tense)[agr.person], verb)
        cells = clitics + [finite]
        if self.negation:
            cells.insert(0, Cell("ne", (), (self.key + NOT,)))
        if inverted:
            cells.append(self._inverted(agr, finite.text))
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
        tail = self._tail_french()
        rest: Cells = []
        for node in self.rest:
            rest += node.french(style, agr)
        if self.infinitive is not None:
            rest = self.infinitive.french_infinitive(style, agr) + rest
        if tail and rest and tail[-1].text in ("de", "à"):
            return tail[:-1] + preposition(tail[-1], rest)
        return tail + rest

    def french_infinitive(self, style: Style, agr: Agreement) -> Cells:
        main = self.verb.fr.split()[1 if self.verb.fr.startswith("se ") else 0].removeprefix("s'")
        return [*self._french_clitics(style, agr), Cell(main, (self.key + HEAD,)), *self._french_rest(style, agr)]

    def _french_clitics(self, style: Style, agr: Agreement) -> Cells:
        if self.verb.reflexive:
            return [Cell(REFLEXIVE[agr.person], (), (self.key + HEAD,))]
        if self.clitic is None:
            return []
        person = agreement(self.clitic.person, self.clitic.gender, style).person
        text = (DIRECT if self.clitic.direct else INDIRECT)[person]
        if text == "le" and self.clitic.gender == "f":
            text = "la"
        return [Cell(text, (self.key + CLITIC,))]

    def _participle(self, main: str, style: Style, agr: Agreement, antecedent: Agreement | None) -> str:
        form = conjugate(main).participle
        if self.verb.moves:
            return agree(form, agr.gender, agr.plural)
        if antecedent is not None:
            return agree(form, antecedent.gender, antecedent.plural)
        if self.clitic is not None and self.clitic.direct:
            _, gender, plural = agreement(self.clitic.person, self.clitic.gender, style)
            return agree(form, gender, plural)
        return form

    def _inverted(self, agr: Agreement, finite: str) -> Cell:
        person, gender, _ = agr
        text = SUBJECTS[person]
        if gender == "f" and person in (2, 5):
            text = "elle" if person == 2 else "elles"
        text = "-t-" + text if person == 2 and finite[-1] in "aeé" else "-" + text
        link = (self.subject.key,)
        return Cell(text, link) if isinstance(self.subject, Pronoun) else Cell(text, (), link)

    def _tail_french(self) -> Cells:
        """The words of the verb phrase after the verb: faim, besoin de, à."""
        words = self.verb.fr.removeprefix("se ").split()[1:]
        others = len(self.verb.en.split()) - 1
        cells = []
        for i, word in enumerate(words):
            number = len(words) - i
            if number <= others:
                cells.append(Cell(word, (self.key + TAIL + 4 + number,)))
            elif word in PREPOSITIONS:
                cells.append(Cell(word, (), (self.key + HEAD,)))
            else:
                cells.append(Cell(word, (self.key + HEAD,)))
        return cells

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
        cells: Cells = []
        if self.infinitive is not None:
            cells += self.infinitive.english_infinitive(gerund=self.verb.fr in GERUND_AFTER)
        manner = self.manner.english() if self.manner is not None else []
        for node in self.rest:
            if not isinstance(node, NounPhrase):
                cells += manner
                manner = []
            cells += node.english()
        return cells + manner

    def english_infinitive(self, gerund: bool) -> Cells:
        head, *tail = self.verb.en.split()
        head = ing(head) if gerund else head
        return [Cell(head, (self.key + HEAD,)), *self._english_tail(tail), *self._english_clitic(), *self._english_rest()]

    def english_verb(self) -> tuple[Cells, Cells]:
        """The auxiliary with what stands beside it (empty where there is none), and the rest of the verb phrase."""
        head, *tail = self.verb.en.split()
        verb, weak = (self.key + HEAD,), (self.key + HEAD,)
        if head == "want" and self.tense == "conditionnel":  # je voudrais: I would like
            head = "like"
        if head == "can":  # pouvoir without a verb: if I could
            return [], [Cell("could", verb)]
        auxiliary, main = self._english_chain(head, verb)
        if not auxiliary and (self.question and not self._asks_subject() or self.negation in ("pas", "rien", "personne")):
            past = self.tense in ("pc", "imparfait")
            do = "did" if past else "does" if self.subject.person == HE else "do"
            auxiliary = [Cell(do, (), weak)]
            must = (
                [Cell(word, (self.key + MODAL,)) for word in ("have", "to")] if self.modal else []
            )  # had to -> did ... have to
            main = [*must, Cell(head, verb)]
        cells = auxiliary
        if self.negation:
            words = [Cell(word, (self.key + NOT,)) for word in NEGATIONS[self.negation]]
            if cells and cells[0].text == "can" and words[0].text == "not":
                cells = [Cell("cannot", cells[0].sure + words[0].sure)]
            else:
                cells = cells[:1] + words + cells[1:] if auxiliary else words
        if self.adverb is not None:
            cells = cells + self.adverb.english()
        rest = main + self._english_tail(tail) + self._english_clitic()
        if self.negation in ("rien", "personne"):
            word = "anything" if self.negation == "rien" else "anyone"
            rest.append(Cell(word, (self.key + QUANTIFIER,)))
        return cells, rest

    def _asks_subject(self) -> bool:
        return isinstance(self.subject, Chunk)

    def _english_chain(self, head: str, verb: tuple[int, ...]) -> tuple[Cells, Cells]:
        """The auxiliary (one word or none) and the verb forms after it, before negation and question."""
        modal = (self.key + MODAL,)
        person = self.subject.person
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
        """for of look for, hungry of be hungry, to of want to."""
        others = len(self.verb.fr.removeprefix("se ").split()) - 1
        cells = []
        for i, word in enumerate(words):
            number = len(words) - i
            if number <= others:
                cells.append(Cell(word, (self.key + TAIL + 4 + number,)))
            elif word == "to":
                cells.append(Cell(word, (), (self.key + HEAD,)))
            else:
                cells.append(Cell(word, (self.key + HEAD,)))
        return cells

    def _english_clitic(self) -> Cells:
        if self.clitic is None:
            return []
        person, gender, _ = self.clitic
        text = "her" if person == HE and gender == "f" else ENGLISH_OBJECTS[person]
        return [Cell(text, (self.key + CLITIC,))]


def be(person: int, past: bool) -> str:
    """am, is, are, was, were."""
    if past:
        return "was" if person in (ME, HE) else "were"
    return "am" if person == ME else "is" if person == HE else "are"


# From cells to tokens ------------------------------------------------------------------------------------------------


def elide(cells: Cells) -> list[tuple[Cell, bool]]:
    """French words as written, each with whether a space stands before it."""
    out: list[tuple[Cell, bool]] = []
    glued = True
    for i, cell in enumerate(cells):
        text = cell.text
        follower = cells[i + 1].text if i + 1 < len(cells) else "."
        if text in ELIDING and starts_with_vowel(follower):
            out.append((Cell(text[:-1] + "'", cell.sure, cell.weak), not glued))
            glued = True
        elif text == "si" and follower in ("il", "ils"):
            out.append((Cell("s'", cell.sure, cell.weak), not glued))
            glued = True
        else:
            out.append((cell, not glued and text[0] not in "-,."))
            glued = text.endswith("'")
    return out


def english_spacing(cells: Cells) -> list[tuple[Cell, bool]]:
    """English words, each with whether a space stands before it."""
    return [(cell, i > 0 and cell.text[0] not in "',.?!") for i, cell in enumerate(cells)]
