"""Reads the words of the corpus, and the tags that say which words go together, from the lists in words/.

The lists were written for this project. A noun belongs to one section and may have further tags; verbs and adjectives list the
tags of the nouns that they take. No French form has two meanings (livre, femme, temps and avocat are left out), so each French
sentence has one translation.
"""

from collections.abc import Iterable
from typing import NamedTuple

from entente_grammar.english import english_past, english_plural
from entente_grammar.french import french_plural
from entente_grammar.tables import read_table, read_words


class Noun(NamedTuple):
    """A noun in both languages. A countable noun has a plural and takes un or une; the others are mass nouns."""

    fr: str
    gender: str
    en: str
    section: str
    countable: bool
    fr_plural: str
    en_plural: str

    @property
    def person(self) -> bool:
        return self.section in ("kin", "role")


class Adjective(NamedTuple):
    fr: str
    en: str
    place: str  # pre or post (before or after the noun), or pred (only after être)


class Verb(NamedTuple):
    """A verb or a verb phrase (avoir faim, look for) with its construction (`frame`) and the nouns it takes (`objects`)."""

    fr: str
    en: str
    en_past: str
    aspect: str  # action, state or punctual (no progressive, no imparfait)
    frame: str
    objects: tuple[Noun, ...] = ()
    people: bool = False  # may take a person as object

    @property
    def reflexive(self) -> bool:
        return self.fr.startswith(("se ", "s'"))

    @property
    def words(self) -> list[str]:
        """The French words without the reflexive pronoun: the infinitive and the rest of the phrase (faim, besoin de)."""
        return self.fr.removeprefix("se ").removeprefix("s'").split()

    @property
    def moves(self) -> bool:
        """Whether the passé composé is formed with être."""
        return self.reflexive or self.words[0] in ETRE_VERBS


class Term(NamedTuple):
    """A name, place, month, day or number in both languages. First names and countries have a gender."""

    fr: str
    en: str
    gender: str


ETRE_VERBS = frozenset("aller partir arriver sortir rester tomber rentrer naître revenir devenir".split())


def _read_nouns() -> dict[str, Noun]:
    nouns = {}
    for row in read_table("nouns"):
        fr, en, countable = row["french"], row["english"], not row["mass"]
        plurals = (french_plural(fr), english_plural(en)) if countable else ("", "")
        nouns[fr] = Noun(fr, row["gender"], en, row["section"], countable, *plurals)
    return nouns


def _read_tags(nouns: dict[str, Noun]) -> dict[str, list[Noun]]:
    """Returns a dict from each section and each tag to its nouns. A tag may have several rows in words/noun_tags.tsv."""
    tags: dict[str, list[Noun]] = {}
    for noun in nouns.values():
        tags.setdefault(noun.section, []).append(noun)
    for row in read_table("noun_tags"):
        tags.setdefault(row["tag"], []).extend(nouns[word] for word in row["nouns"].split())
    return tags


def expand(names: Iterable[str]) -> list[Noun]:
    """Returns the nouns for a list of French nouns, sections and tags, without duplicates. A tag stands for all its nouns."""
    return list(dict.fromkeys(noun for name in names for noun in TAGGED.get(name) or [NOUN[name]]))


def _read_adjectives() -> tuple[list[Adjective], dict[str, list[Adjective]]]:
    """Returns all adjectives and a dict from French nouns to adjectives. An adjective with two translations is listed twice."""
    adjectives = []
    by_noun: dict[str, list[Adjective]] = {noun: [] for noun in NOUN}
    for row in read_table("adjectives"):
        adjective = Adjective(row["french"], row["english"], row["place"])
        adjectives.append(adjective)
        for noun in expand(row["nouns"].split()):
            by_noun[noun.fr].append(adjective)
    return adjectives, by_noun


def _read_verbs() -> dict[str, Verb]:
    verbs = {}
    for row in read_table("verbs"):
        fr, en, objects = row["french"], row["english"], row["objects"].split()
        past = row["past"] or english_past(en.split()[0])
        nouns = tuple(expand(tag for tag in objects if tag != "person"))
        verbs[fr] = Verb(fr, en, past, row["aspect"], row["frame"], nouns, "person" in objects)
    return verbs


def _read_phrases() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Returns two dicts: from kinds to fixed phrases, and from verbs to phrases of manner. A phrase is the text of a Chunk."""
    phrases: dict[str, list[str]] = {}
    manners: dict[str, list[str]] = {}
    for row in read_table("phrases"):
        text = f"{row['french']} | {row['english']}"
        phrases.setdefault(row["kind"], []).append(text)
        for verb in read_words(row["verbs"]):
            manners.setdefault(verb, []).append(text)
    return phrases, manners


def _read_groups() -> dict[str, list[str]]:
    """Returns the named lists of lexemes. A list may have several rows in words/groups.tsv."""
    groups: dict[str, list[str]] = {}
    for row in read_table("groups"):
        groups.setdefault(row["group"], []).extend(read_words(row["words"]))
    return groups


def read_pairings(kind: str) -> list[tuple[list[str], list[str]]]:
    """Returns the rows of one kind in words/pairings.tsv, each as a list of lexemes and a list of lexemes that suit them."""
    return [(read_words(row["left"]), read_words(row["right"])) for row in read_table("pairings") if row["kind"] == kind]


def terms(kind: str) -> list[Term]:
    """Returns the rows of one kind in words/names.tsv."""
    return [Term(row["french"], row["english"], row["gender"]) for row in read_table("names") if row["kind"] == kind]


NOUN = _read_nouns()
TAGGED = _read_tags(NOUN)
ADJECTIVE_LIST, ADJECTIVES_OF = _read_adjectives()
VERB = _read_verbs()
PHRASES, MANNERS = _read_phrases()
GROUPS = _read_groups()
FIRST_NAMES = {gender: [name.fr for name in terms("name") if name.gender == gender] for gender in "mf"}
COUNTRIES, CITIES, MONTHS, DAYS, NUMBERS = map(terms, ("country", "city", "month", "day", "number"))
