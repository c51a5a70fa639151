"""Defines phrases of a meaning tree: pronouns, names, noun phrases and adjectives. Each writes itself in both languages."""

from dataclasses import dataclass
from typing import Protocol

from entente_grammar.cells import HE, IMPERSONAL, THEY, Agreement, Cell, Cells, Chunk, Style, agreement
from entente_grammar.english import a_or_an, comparative
from entente_grammar.french import BEFORE_VOWEL, agree, starts_with_vowel
from entente_grammar.lexicon import NOUN, Adjective, Noun, Term

# Indexed by French person, 0 to 5.
SUBJECTS = ("je", "tu", "il", "nous", "vous", "ils")
STRONG = ("moi", "toi", "lui", "nous", "vous", "eux")
FEMININE = {"il": "elle", "ils": "elles", "lui": "elle", "eux": "elles"}
MY = (("mon", "ma", "mes"), ("ton", "ta", "tes"), ("son", "sa", "ses"), ("notre", "notre", "nos"), ("votre", "votre", "vos"),
      ("leur", "leur", "leurs"))  # fmt: skip
# Indexed by grammatical person; the last form is the feminine of the third person singular.
ENGLISH_SUBJECTS = ("I", "you", "he", "we", "you", "they", "she")
ENGLISH_OBJECTS = ("me", "you", "him", "us", "you", "them", "her")
ENGLISH_MY = ("my", "your", "his", "our", "your", "their", "her")
MASCULINES = {"cousine": "cousin", "amie": "ami", "voisine": "voisin", "étudiante": "étudiant", "directrice": "directeur"}
CONTRACTIONS = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}


def french_pronoun(forms: tuple[str, ...], agr: Agreement) -> str:
    """Returns the French pronoun for the person and gender of `agr`. `forms` is SUBJECTS or STRONG."""
    form = forms[agr.person]
    return FEMININE.get(form, form) if agr.gender == "f" else form


def english_pronoun(forms: tuple[str, ...], person: int, gender: str) -> str:
    """Returns the English pronoun for a person and gender. `forms` is ENGLISH_SUBJECTS, ENGLISH_OBJECTS or ENGLISH_MY."""
    return forms[-1 if person == HE and gender == "f" else person]


@dataclass(slots=True)
class Pronoun:
    """A personal pronoun: a subject, or a strong form after a preposition or "que" (than)."""

    key: int
    person: int
    gender: str = "m"
    strong: bool = False

    def agreement(self, style: Style) -> Agreement:
        return agreement(self.person, self.gender, style)

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
        return [Cell(french_pronoun(STRONG if self.strong else SUBJECTS, self.agreement(style)), (self.key,))]

    def english(self) -> Cells:
        forms = ENGLISH_OBJECTS if self.strong else ENGLISH_SUBJECTS
        return [Cell(english_pronoun(forms, self.person, self.gender), (self.key,))]


@dataclass(slots=True)
class Name:
    """The name of a person or a place."""

    key: int
    fr: str
    en: str
    gender: str = "m"
    article: str = ""
    person: int = HE

    def agreement(self, style: Style) -> Agreement:
        return Agreement(2, self.gender, False)

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
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

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
        return [*self.left.french(style), Cell("et", (self.key,)), *self.right.french(style)]

    def english(self) -> Cells:
        return [*self.left.english(), Cell("and", (self.key,)), *self.right.english()]


class Relative(Protocol):
    """The interface of a relative clause."""

    def french_relative(self, style: Style, antecedent: Agreement) -> Cells: ...

    def english_relative(self, is_person: bool) -> Cells: ...


@dataclass(slots=True)
class NounPhrase:
    """A noun with a determiner, adjectives, an owner and a relative clause.

    `det` is def, indef, some, any, my (any possessive: see `possessor`), this, number, generic or bare.
    """

    key: int
    noun: Noun
    det: str = "def"
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    possessor: tuple[int, str] = (HE, "m")
    number: Term | None = None
    owner: "Nominal | None" = None
    relative: Relative | None = None
    profession: bool = False  # without an article in French: il est médecin / he is a doctor

    @property
    def person(self) -> int:
        return THEY if self.plural else HE

    @property
    def gender(self) -> str:
        return self.noun.gender

    def make_plural(self) -> None:
        """Turns "a pear" into "some pears"."""
        self.det, self.plural = "some", True

    def written_noun(self, style: Style) -> Noun:
        return NOUN[MASCULINES[self.noun.fr]] if style.masculine and self.noun.fr in MASCULINES else self.noun

    def agreement(self, style: Style) -> Agreement:
        return Agreement(self.person, self.written_noun(style).gender, self.plural)

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
        lexeme = self.written_noun(style)
        gender, plural, key = lexeme.gender, self.plural, self.key
        noun = lexeme.fr_plural if plural else lexeme.fr
        linked = [(adjective, (key + 2 + i,)) for i, adjective in enumerate(self.adjectives)]
        before = [(adjective.fr, link) for adjective, link in linked if adjective.place == "pre"]
        followers = [*(word for word, _ in before[1:]), noun]
        rest: Cells = []
        for (word, link), follower in zip(before, followers, strict=False):
            form = agree(word, gender, plural)
            if gender == "m" and not plural and starts_with_vowel(follower):
                form = BEFORE_VOWEL.get(word, form)
            rest.append(Cell(form, link))
        rest.append(Cell(noun, (key,)))
        rest += [Cell(agree(adjective.fr, gender, plural), link) for adjective, link in linked if adjective.place != "pre"]
        cells = self._french_determiner(style, rest[0].text, bool(before)) + rest
        if self.owner is not None:
            cells += preposition(Cell("de", (key + 9,)), self.owner.french(style))
        if self.relative is not None:
            cells += self.relative.french_relative(style, self.agreement(style))
        return cells

    def _french_determiner(self, style: Style, follower: str, adjective_first: bool) -> Cells:
        gender, plural, link = self.written_noun(style).gender, self.plural, (self.key + 1,)
        vowel = starts_with_vowel(follower)
        the = "les" if plural else "le" if gender == "m" else "la"
        if self.owner is not None or self.det == "generic":
            return [Cell(the, (), (self.key,), True)]
        match self.det:
            case "def":
                return [Cell(the, link, (), True)]
            case "indef":
                return [Cell("un" if gender == "m" else "une", link)]
            case "any":
                return [Cell("de", link)]
            case "my":
                forms = MY[agreement(*self.possessor, style).person]
                return [Cell(forms[2 if plural else 1 if gender == "f" and not vowel else 0], link)]
            case "this":
                singular = "cette" if gender == "f" else "cet" if vowel else "ce"
                return [Cell("ces" if plural else singular, link)]
            case "number" if self.number:
                return [Cell(self.number.fr, link)]
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
            genitive = "'" if owner[-1].text.endswith("s") and self.owner.person == THEY else "'s"
            cells = [*owner, Cell(genitive, (key + 9,)), *rest]
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
                text = english_pronoun(ENGLISH_MY, *self.possessor)
            case "this":
                text = "these" if self.plural else "this"
            case "number" if self.number:
                text = self.number.en
            case "bare" if self.profession:
                return [Cell(a_or_an(follower), (), (self.key,))]
            case _:
                return []
        return [Cell(text, (self.key + 1,))]


Nominal = Pronoun | Name | Both | NounPhrase | Chunk


def preposition(word: Cell, phrase: Cells) -> Cells:
    """Puts a preposition before a phrase. Contracts à or de with the article le or les: au, aux, du, des."""
    first = phrase[0]
    merged = CONTRACTIONS.get((word.text, first.text)) if first.article else None
    if merged is None or first.text == "le" and starts_with_vowel(phrase[1].text):
        return [word, *phrase]
    return [Cell(merged, word.sure + first.sure, word.weak + first.weak), *phrase[1:]]


@dataclass(slots=True)
class Prepositional:
    """A prepositional phrase: a preposition of one or more words, and a nominal."""

    key: int
    fr: str
    en: str
    phrase: Nominal

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
        *front, last = [Cell(word, (self.key,)) for word in self.fr.split()]
        return front + preposition(last, self.phrase.french(style))

    def english(self) -> Cells:
        return [Cell(word, (self.key,)) for word in self.en.split()] + self.phrase.english()


@dataclass(slots=True)
class Quality:
    """A predicate adjective, with a degree (plus, moins, aussi) and a nominal to compare with, if any."""

    key: int
    adjective: Adjective
    degree: str = ""
    than: Nominal | None = None

    def french(self, style: Style, subject: Agreement = IMPERSONAL) -> Cells:
        better = self.degree == "plus" and self.adjective.fr == "bon"
        word = agree("meilleur" if better else self.adjective.fr, subject.gender, subject.plural)
        cells = self._compared(self.degree, word, better)
        if self.than is not None:
            cells += [Cell("que", (self.key + 2,)), *self.than.french(style)]
        return cells

    def english(self) -> Cells:
        short = comparative(self.adjective.en) if self.degree == "plus" else None
        degree = {"": "", "plus": "more", "moins": "less", "aussi": "as"}[self.degree]
        cells = self._compared(degree, short or self.adjective.en, bool(short))
        if self.than is not None:
            cells += [Cell("as" if self.degree == "aussi" else "than", (self.key + 2,)), *self.than.english()]
        return cells

    def _compared(self, degree: str, word: str, merged: bool) -> Cells:
        """Returns the degree word, if any, and the adjective ("plus grand"), or one word for both ("taller") if `merged`."""
        if merged:
            return [Cell(word, (self.key, self.key + 1))]
        return [Cell(degree, (self.key + 1,)), Cell(word, (self.key,))] if degree else [Cell(word, (self.key,))]
