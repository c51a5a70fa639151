"""Tests the embedded corpus: its splits, the grammar and spelling of its sentences, and their alignments."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from itertools import chain, islice
from pathlib import Path
from statistics import median

import pytest

from entente_grammar import HELD_OUT, HELD_OUT_FEATURES, USUAL, Pair, Side, ceiling, derive, pair_of, splits, usual_french
from entente_grammar.cells import HE, ME, STEP, Style
from entente_grammar.choices import LEMMAS
from entente_grammar.clause import Clause, Clitic
from entente_grammar.french import agree, conjugate
from entente_grammar.lexicon import ADJECTIVES_OF, NOUN, VERB
from entente_grammar.nominals import Name, NounPhrase, Pronoun
from entente_grammar.show import alignment_matrix


@pytest.fixture(scope="module")
def parts() -> dict[str, list[Pair]]:
    """Returns all splits at their default sizes."""
    return splits()


@pytest.fixture(scope="module")
def sample() -> list[Pair]:
    """Returns 6,000 pairs that are generated with a different seed from that of the splits."""
    return take(6_000, seed=5)


@pytest.fixture(scope="module")
def texts(parts: dict[str, list[Pair]], sample: list[Pair]) -> list[tuple[str, str]]:
    """Returns the French and English sentences of all splits and of the sample."""
    return [(pair.text("fr"), pair.text("en")) for pair in chain(*parts.values(), sample)]


def take(n: int, seed: int) -> list[Pair]:
    return list(islice(derive(seed), n))


# Determinism ---------------------------------------------------------------------------------------------------------


def test_french_determines_english(parts: dict[str, list[Pair]], sample: list[Pair]) -> None:
    pairs = [*chain(*parts.values()), *sample]
    english: dict[str, str] = {}
    for pair in pairs:
        fr, en = pair.text("fr"), pair.text("en")
        assert english.setdefault(fr, en) == en, fr
    assert len(english) < len(pairs) - 500  # many sentences occur more than once


def test_a_seed_gives_the_same_pairs_in_any_process() -> None:
    program = (
        "import hashlib\n"
        "from entente_grammar import splits\n"
        "parts = splits(seed=3, train=401, valid=13, test=17)\n"
        "pairs = [(name, pair) for name in parts for pair in parts[name]]\n"
        "text = repr([(n, p.fr, p.en, sorted(p.sure), sorted(p.possible), sorted(p.features)) for n, p in pairs])\n"
        "print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    path = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    first, second = (
        subprocess.check_output([sys.executable, "-c", program], env=os.environ | path | {"PYTHONHASHSEED": salt})
        for salt in ("0", "1")
    )
    assert first == second
    assert [pair.text("fr") for pair in take(50, seed=1)] != [pair.text("fr") for pair in take(50, seed=2)]


# Splits --------------------------------------------------------------------------------------------------------------


def test_the_splits_have_the_requested_sizes(parts: dict[str, list[Pair]]) -> None:
    sizes = {name: len(pairs) for name, pairs in parts.items()}
    assert sizes == {"train": 30_000, "valid": 1_000, "test": 1_000, "test_long": 1_000, "test_compositional": 1_000}
    small = splits(seed=2, train=31, valid=7, test=5)
    assert {name: len(pairs) for name, pairs in small.items()} == dict.fromkeys(parts, 5) | {"train": 31, "valid": 7}


def test_no_sentence_occurs_twice_in_a_language(parts: dict[str, list[Pair]]) -> None:
    for side in ("fr", "en"):
        texts = [pair.text(side) for pairs in parts.values() for pair in pairs]
        assert len(texts) == len(set(texts))


def test_train_has_every_lemma_at_least_twenty_times(parts: dict[str, list[Pair]]) -> None:
    assert len(LEMMAS) == len(set(LEMMAS)) >= 600
    counts = Counter(feature for pair in parts["train"] for feature in pair.features)
    assert {lemma: counts[lemma] for lemma in LEMMAS if counts[lemma] < 20} == {}


def test_only_the_long_split_has_long_sentences(parts: dict[str, list[Pair]]) -> None:
    for name, pairs in parts.items():
        lengths = [pair.words for pair in pairs]
        low, high = (21, 50) if name == "test_long" else (2, 20)
        assert min(lengths) >= low and max(lengths) <= high
    assert 8 <= median(pair.words for pair in parts["train"]) <= 9


def test_compositional_pairs_have_combinations_that_train_lacks(parts: dict[str, list[Pair]]) -> None:
    train = Counter(feature for pair in parts["train"] for feature in pair.features)
    for construction, lexemes in HELD_OUT.items():
        assert train[f"construction:{construction}"] >= 300
        for lexeme in lexemes:
            assert train[lexeme] >= 20
            assert train[f"{lexeme}+{construction}"] == 0
    for name in ("valid", "test", "test_long"):
        assert not any(pair.features & HELD_OUT_FEATURES for pair in parts[name])
    assert all(pair.features & HELD_OUT_FEATURES for pair in parts["test_compositional"])
    met = {feature for pair in parts["test_compositional"] for feature in pair.features & HELD_OUT_FEATURES}
    assert met == HELD_OUT_FEATURES


# Constructions -------------------------------------------------------------------------------------------------------


def table(name: str) -> list[list[str]]:
    """Returns the rows of a tab-separated file next to this one, without its heading."""
    lines = (Path(__file__).parent / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines[1:]]


@pytest.mark.parametrize(("name", "french", "english"), table("constructions"))
def test_the_language_has(name: str, french: str, english: str, texts: list[tuple[str, str]]) -> None:
    examples = (fr for fr, en in texts if re.search(french, fr) and re.search(english, en))
    assert len([*islice(examples, 10)]) == 10


# Correct French and English ------------------------------------------------------------------------------------------

VOWEL = "aeiouâàéèêëîïôœAEIOUÉÎÂ"
MUTE_H = ("homme", "hôpita", "habill", "hôtel", "horloge", "habit", "heure", "honnête", "heureu", "Hélène", "huile")
INFINITIVES = {verb.fr.removeprefix("se ").removeprefix("s'").split()[0] for verb in VERB.values()}


def begins_with_vowel_sound(word: str) -> bool:
    return word[0] in VOWEL or word.startswith(MUTE_H)


def test_elision(sample: list[Pair]) -> None:
    eliding = {"je", "me", "te", "se", "le", "la", "de", "ne", "que", "ce"}
    for pair in sample:
        for word, follower in zip(pair.fr, pair.fr[1:], strict=False):
            if word.text.lower() in eliding:
                assert not begins_with_vowel_sound(follower.text) and follower.text != "y", pair.text("fr")
            elif word.text.endswith("'"):
                before_vowel = begins_with_vowel_sound(follower.text) or follower.text == "y"
                assert before_vowel and not follower.space, pair.text("fr")


def test_contraction(sample: list[Pair]) -> None:
    for pair in sample:
        texts = [token.text for token in pair.fr]
        for word, article, follower in zip(texts, texts[1:], texts[2:], strict=False):
            if word in ("de", "à") and article in ("le", "les"):
                assert follower in INFINITIVES, pair.text("fr")  # before an infinitive, le and les are pronouns


def test_forms_before_a_vowel(sample: list[Pair]) -> None:
    for pair in sample:
        texts = [token.text for token in pair.fr]
        for word, follower in zip(texts, texts[1:], strict=False):
            if word in ("ma", "ta", "sa"):
                assert not begins_with_vowel_sound(follower), pair.text("fr")
            if word in ("cet", "bel", "nouvel", "vieil"):
                assert begins_with_vowel_sound(follower), pair.text("fr")
        for singular, adjective, follower in zip(texts, texts[1:], texts[2:], strict=False):
            if singular.lower() in ("un", "le", "mon", "ton", "son", "notre", "votre"):
                assert adjective not in ("beau", "nouveau", "vieux") or not begins_with_vowel_sound(follower), pair.text("fr")


def test_determiners_agree_with_their_nouns(sample: list[Pair]) -> None:
    singular = {noun.fr: noun for noun in NOUN.values()}
    plural = {noun.fr_plural for noun in NOUN.values() if noun.countable and noun.fr_plural != noun.fr}
    pronouns = {"le", "la", "les"}  # before a verb, these are pronouns and not determiners
    for pair in sample:
        texts = [token.text.lower() for token in pair.fr]
        for word, follower in zip(texts, texts[1:], strict=False):
            if follower in NOUNS_LIKE_VERBS and word in pronouns:
                continue
            if follower in singular and word in ("le", "un", "ce", "cet", "du"):
                assert singular[follower].gender == "m", pair.text("fr")
            if follower in singular and word in ("la", "une", "cette", "ma", "ta", "sa"):
                assert singular[follower].gender == "f", pair.text("fr")
            if word in ("les", "des", "ces", "mes", "deux", "onze") and follower in singular:
                assert singular[follower].fr_plural == follower, pair.text("fr")
            if word in ("le", "la", "un", "une", "ce", "cette", "mon", "ma"):
                assert follower not in plural - NOUNS_LIKE_VERBS, pair.text("fr")


def test_participles_agree(sample: list[Pair]) -> None:
    moved = {conjugate(verb.fr.split()[0]).participle for verb in VERB.values() if verb.moves and not verb.reflexive}
    endings = {("elle", "est"): "e", ("elles", "sont"): "es", ("il", "est"): "", ("ils", "sont"): "s"}
    checked: Counter[str] = Counter()
    for pair in sample:
        texts = [token.text.lower() for token in pair.fr if token.text != "pas" and token.text not in ("n'", "ne")]
        for subject, verb, participle in zip(texts, texts[1:], texts[2:], strict=False):
            ending = endings.get((subject, verb))
            if ending is None:
                continue
            for form in moved:
                if participle in {agree(form, gender, number) for gender in "mf" for number in (False, True)}:
                    assert participle == form + ending, pair.text("fr")
                    checked[ending] += 1
    assert set(checked) == set(endings.values())


def test_the_participle_shows_the_gender_of_an_elided_object(sample: list[Pair]) -> None:
    words = set()
    for pair in sample:
        texts = [token.text for token in pair.fr]
        english = {i: pair.en[j].text for i, j in pair.sure}
        for i, (word, follower) in enumerate(zip(texts, texts[1:], strict=False)):
            if word.lower() == "l'" and english.get(i) in ("him", "her"):
                assert follower in ("ai", "as", "a", "avons", "avez", "ont"), pair.text("fr")
                participle = next(text for text in texts[i + 2 :] if text not in ("pas", "jamais", "plus") and text[0] != "-")
                assert participle.endswith("e") == (english[i] == "her"), pair.text("fr")
                words.add(english[i])
    assert words == {"him", "her"}


def test_a_and_an(sample: list[Pair]) -> None:
    as_consonant = {"uniform", "university", "European", "useful"}
    words = set()
    for pair in sample:
        texts = [token.text for token in pair.en]
        for word, follower in zip(texts, texts[1:], strict=False):
            if word.lower() in ("a", "an"):
                vowel = follower[0].lower() in "aeiou" and follower not in as_consonant or follower in ("hour", "honest")
                assert (word.lower() == "an") == vowel, pair.text("en")
                words.add(follower)
    assert {"uniform", "onion"} <= words


def test_do_takes_the_plain_verb(texts: list[tuple[str, str]]) -> None:
    plain = {verb.en.split()[0] for verb in VERB.values()} - {"be"} | {"have"}
    for _, en in texts:
        for word in re.findall(r"\b(?:do|does|did) not (?:often )?(\w+)", en):
            assert word in plain, en


def test_spacing_and_capitals(texts: list[tuple[str, str]]) -> None:
    for fr, en in texts:
        assert fr[0].isupper() and en[0].isupper()
        assert fr.endswith((" ?", ".")) and not fr.endswith(" .") and en.endswith(("?", ".")) and not en.endswith((" ?", " ."))
        assert fr.endswith("?") == en.endswith("?")
        assert not re.search(r"  | ,|,\w|[\u2018\u2019\u00a0\u202f]", fr + "\n" + en)
        assert not re.search(r"\bi\b|monday|january|\bfrench\b", en)
        assert not re.search(r"\w .*\b(Lundi|Janvier|Français|Je)\b", fr)


def verb_forms() -> set[str]:
    forms: set[str] = set()
    for infinitive in sorted(INFINITIVES):
        verb = conjugate(infinitive)
        for tense in (verb.present, verb.imparfait, verb.futur, verb.conditionnel):
            forms.update(tense)
        forms.update(agree(verb.participle, gender, plural) for gender in "mf" for plural in (False, True))
    return forms


# These noun forms are also verb forms. A review found that their position always tells the noun from the verb.
NOUNS_LIKE_VERBS = {"avions", "bus", "téléphone", "téléphones"}


def test_nouns_with_the_form_of_a_verb_are_reviewed() -> None:
    nouns = {form for noun in NOUN.values() for form in (noun.fr, noun.fr_plural)}
    assert nouns & verb_forms() == NOUNS_LIKE_VERBS


@pytest.mark.parametrize("forms", table("conjugation"), ids=lambda forms: forms[0])
def test_conjugation(forms: list[str]) -> None:
    infinitive, *expected = forms
    verb = conjugate(infinitive)
    assert expected == [*verb.present[2:4], *verb.imparfait[2:4], verb.futur[2], verb.participle]


# Spelling ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("hunspell") and not os.environ.get("CI"), reason="hunspell is not installed")
@pytest.mark.parametrize(("side", "dictionary"), [("fr", "fr_FR"), ("en", "en_US")])
def test_every_word_form_is_in_the_dictionary_or_reviewed(parts: dict[str, list[Pair]], side: Side, dictionary: str) -> None:
    texts = {token.text for pair in chain(*parts.values()) for token in pair.tokens(side)}
    words = {text for text in texts if re.fullmatch(r"[^\W\d_]+(-[^\W\d_]+)*", text)}  # neither elided nor inverted
    command, text = ["hunspell", "-i", "utf-8", "-d", dictionary, "-l"], "\n".join([*words, "pommme"])
    unknown = subprocess.run(command, input=text, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    reviewed = (Path(__file__).parent / "spelling" / f"{side}.txt").read_text(encoding="utf-8").splitlines()
    assert set(unknown.split()) == words.intersection(reviewed) | {"pommme"}


# Alignments ----------------------------------------------------------------------------------------------------------


def test_every_word_is_linked_and_each_noun_surely(sample: list[Pair]) -> None:
    nouns = {form for noun in NOUN.values() for form in (noun.fr, noun.fr_plural)} - NOUNS_LIKE_VERBS
    for pair in sample:
        assert pair.sure <= pair.possible
        assert {i for i, _ in pair.possible} == set(range(len(pair.fr))), pair.text("fr")
        assert {j for _, j in pair.possible} == set(range(len(pair.en))), pair.text("en")
        certain = {i for i, _ in pair.sure}
        assert all(i in certain for i, token in enumerate(pair.fr) if token.text in nouns), pair.text("fr")


HE_, SHE_, I_, JANE = (HE, "m"), (HE, "f"), (ME, "m"), Name(9 * STEP, "Jane", "Jane", "f")


def pair_from(clause: Clause, mark: str = ".", style: Style = USUAL) -> Pair:
    return pair_of([clause], mark, style, frozenset())


def links(pair: Pair) -> tuple[set[str], set[str]]:
    """Returns the sure links and the links that are only possible, each written as "French~English"."""
    words = {(i, j): f"{pair.fr[i].text}~{pair.en[j].text}" for i, j in pair.possible}
    return {words[link] for link in pair.sure}, {words[link] for link in pair.possible - pair.sure}


def car(*adjectives: str) -> NounPhrase:
    selected = tuple(next(a for a in ADJECTIVES_OF["voiture"] if a.fr == fr) for fr in adjectives)
    return NounPhrase(5 * STEP, NOUN["voiture"], "def", adjectives=selected)


@pytest.mark.parametrize(
    ("clause", "french", "english", "sure", "possible"),
    [
        (
            Clause(0, Pronoun(STEP, *HE_), VERB["voir"], negation="pas", rest=[car()]),
            "Il ne voit pas la voiture.", "He does not see the car.",
            "Il~He voit~see pas~not la~the voiture~car .~.", "ne~not voit~does",
        ),
        (
            Clause(0, Pronoun(STEP, *I_), VERB["voir"], "pc", clitic=Clitic(HE, "f", True)),
            "Je l'ai vue.", "I saw her.", "Je~I l'~her vue~saw .~.", "ai~saw",
        ),
        (
            Clause(0, JANE, VERB["vendre"], "futur", rest=[car("rouge")]),
            "Jane vendra la voiture rouge.", "Jane will sell the red car.",
            "Jane~Jane vendra~sell la~the voiture~car rouge~red .~.", "vendra~will",
        ),
        (
            Clause(0, Pronoun(STEP, *SHE_), VERB["avoir faim"]),
            "Elle a faim.", "She is hungry.", "Elle~She a~is faim~hungry .~.", "",
        ),
    ],
)  # fmt: skip
def test_alignment_of_a_clause(clause: Clause, french: str, english: str, sure: str, possible: str) -> None:
    pair = pair_from(clause)
    assert (pair.text("fr"), pair.text("en")) == (french, english)
    assert links(pair) == ({*sure.split()}, {*possible.split()})


def test_alignment_of_a_question_inverted_after_its_subject() -> None:
    clause = Clause(0, JANE, VERB["acheter"], "pc", rest=[car()], question=True)
    inverted = pair_from(clause, "?", Style(inversion=True))
    assert (inverted.text("fr"), inverted.text("en")) == ("Jane a-t-elle acheté la voiture ?", "Did Jane buy the car?")
    sure, possible = links(inverted)
    assert {"Jane~Jane", "acheté~buy", "?~?"} <= sure
    assert possible == {"a~Did", "acheté~Did", "a~buy", "-t-elle~Jane"}
    asked = pair_from(clause, "?")
    assert asked.text("fr") == "Est-ce que Jane a acheté la voiture ?"
    assert {"Est-ce~Did", "que~Did"} <= links(asked)[1]


def test_spans_give_the_tokens_of_the_text(sample: list[Pair]) -> None:
    for pair in sample[:2_000]:
        for side in ("fr", "en"):
            text = pair.text(side)
            assert [text[start:end] for start, end in pair.spans(side)] == [token.text for token in pair.tokens(side)]
            gaps = {text[end:start] for (_, end), (start, _) in zip(pair.spans(side), pair.spans(side)[1:], strict=False)}
            assert gaps <= {"", " "}


# English to French ---------------------------------------------------------------------------------------------------


def test_the_ceiling_is_the_bleu_of_the_usual_french(parts: dict[str, list[Pair]]) -> None:
    pairs = parts["test"]
    usual = [pair for pair in pairs if usual_french(pair) == pair.text("fr")]
    assert ceiling(usual) == pytest.approx(100)
    assert 85 < ceiling(pairs) < 99
    assert len(usual) < len(pairs)


def test_the_usual_french_has_the_same_english() -> None:
    formal = next(pair for pair in derive(seed=4) if "Avez-vous" in pair.text("fr"))
    assert usual_french(formal).startswith("Est-ce que tu as ")
    friend = next(pair for pair in derive(seed=4) if pair.text("fr").startswith("Ma voisine "))
    gender_shown = re.search(r"\b(she|her)\b", friend.text("en"))
    assert usual_french(friend).startswith("Ma voisine " if gender_shown else "Mon voisin ")


def test_the_matrix_of_a_pair_shows_its_links() -> None:
    rows = alignment_matrix(pair_from(Clause(0, Pronoun(STEP, *SHE_), VERB["avoir faim"]))).plain.splitlines()
    assert rows[1].split() == ["a", "·", "●", "·", "·"]
    assert rows[-1].split() == "1 She 2 is 3 hungry 4 .".split()
