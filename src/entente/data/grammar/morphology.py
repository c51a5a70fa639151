"""How French and English words change their form: conjugation, agreement, elision, plurals.

Regular patterns are rules; what no rule gives stands in a table. French after Grevisse, Le Bon Usage; English is American.
"""

from functools import cache
from typing import NamedTuple

VOWELS = frozenset("aeiouyàâäæéèêëîïôöœùûüAEIOUÀÂÆÉÈÊËÎÏÔŒÙÛ")
ASPIRATED = ("haricot", "hibou", "hérisson", "harpe", "hockey", "homard", "hamster", "haut", "hongrois", "huit", "onze")
ELIDING = frozenset({"je", "me", "te", "se", "le", "la", "de", "ne", "que", "ce"})


@cache
def starts_with_vowel(word: str) -> bool:
    """Whether je, le, de ... lose their vowel before this word (h aspiré does not count, "y" alone does)."""
    if word == "y":
        return True
    if word[0] in "hH":
        return not word.lower().startswith(ASPIRATED)
    return word[0] in VOWELS and word[0] != "y" and word != "onze"


# French verbs --------------------------------------------------------------------------------------------------------

# infinitive: six forms of the present | past participle | stem of the future
IRREGULAR = """
être: suis es est sommes êtes sont | été | ser
avoir: ai as a avons avez ont | eu | aur
aller: vais vas va allons allez vont | allé | ir
faire: fais fais fait faisons faites font | fait | fer
voir: vois vois voit voyons voyez voient | vu | verr
vouloir: veux veux veut voulons voulez veulent | voulu | voudr
pouvoir: peux peux peut pouvons pouvez peuvent | pu | pourr
devoir: dois dois doit devons devez doivent | dû | devr
savoir: sais sais sait savons savez savent | su | saur
boire: bois bois boit buvons buvez boivent | bu | boir
croire: crois crois croit croyons croyez croient | cru | croir
lire: lis lis lit lisons lisez lisent | lu | lir
dire: dis dis dit disons dites disent | dit | dir
écrire: écris écris écrit écrivons écrivez écrivent | écrit | écrir
prendre: prends prends prend prenons prenez prennent | pris | prendr
mettre: mets mets met mettons mettez mettent | mis | mettr
connaître: connais connais connaît connaissons connaissez connaissent | connu | connaîtr
naître: nais nais naît naissons naissez naissent | né | naîtr
mourir: meurs meurs meurt mourons mourez meurent | mort | mourr
venir: viens viens vient venons venez viennent | venu | viendr
partir: pars pars part partons partez partent | parti | partir
sortir: sors sors sort sortons sortez sortent | sorti | sortir
dormir: dors dors dort dormons dormez dorment | dormi | dormir
courir: cours cours court courons courez courent | couru | courr
ouvrir: ouvre ouvres ouvre ouvrons ouvrez ouvrent | ouvert | ouvrir
cueillir: cueille cueilles cueille cueillons cueillez cueillent | cueilli | cueiller
recevoir: reçois reçois reçoit recevons recevez reçoivent | reçu | recevr
conduire: conduis conduis conduit conduisons conduisez conduisent | conduit | conduir
construire: construis construis construit construisons construisez construisent | construit | construir
peindre: peins peins peint peignons peignez peignent | peint | peindr
éteindre: éteins éteins éteint éteignons éteignez éteignent | éteint | éteindr
rire: ris ris rit rions riez rient | ri | rir
sourire: souris souris sourit sourions souriez sourient | souri | sourir
vendre: vends vends vend vendons vendez vendent | vendu | vendr
attendre: attends attends attend attendons attendez attendent | attendu | attendr
perdre: perds perds perd perdons perdez perdent | perdu | perdr
répondre: réponds réponds répond répondons répondez répondent | répondu | répondr
rendre: rends rends rend rendons rendez rendent | rendu | rendr
descendre: descends descends descend descendons descendez descendent | descendu | descendr
entendre: entends entends entend entendons entendez entendent | entendu | entendr
envoyer: envoie envoies envoie envoyons envoyez envoient | envoyé | enverr
pleuvoir: - - pleut pleuvons - - | plu | pleuvr
plaire: plais plais plaît plaisons plaisez plaisent | plu | plair
"""
LIKE = {
    "apprendre": "prendre",
    "comprendre": "prendre",
    "promettre": "mettre",
    "permettre": "mettre",
    "reconnaître": "connaître",
    "devenir": "venir",
    "revenir": "venir",
    "souvenir": "venir",
    "découvrir": "ouvrir",
    "endormir": "dormir",
    "sentir": "partir",
    "traduire": "conduire",
}
PAST_ENDINGS = ("ais", "ais", "ait", "ions", "iez", "aient")
FUTURE_ENDINGS = ("ai", "as", "a", "ons", "ez", "ont")
ER_ENDINGS = ("e", "es", "e", "ons", "ez", "ent")


class Conjugation(NamedTuple):
    """The forms of one French verb; a tense has six, je to ils."""

    infinitive: str
    present: tuple[str, ...]
    imparfait: tuple[str, ...]
    futur: tuple[str, ...]
    conditionnel: tuple[str, ...]
    participle: str


def _read_irregular() -> dict[str, tuple[list[str], str, str]]:
    table: dict[str, tuple[list[str], str, str]] = {}
    for line in IRREGULAR.strip().splitlines():
        verb, rest = line.split(": ")
        forms, participle, future = rest.split(" | ")
        table[verb] = (forms.split(), participle, future)
    for verb, model in LIKE.items():
        present, participle, future = table[model]
        prefix, old = verb, model
        while prefix and old and prefix[-1] == old[-1]:
            prefix, old = prefix[:-1], old[:-1]
        cut = len(old)
        table[verb] = ([prefix + form[cut:] for form in present], prefix + participle[cut:], prefix + future[cut:])
    return table


_IRREGULAR = _read_irregular()


def _er_verb(infinitive: str) -> tuple[list[str], str, str]:
    """Present, participle and future stem of a verb in -er, with its changes of spelling."""
    stem = infinitive[:-2]
    strong = stem  # before a silent ending: achète, appelle, préfère, nettoie
    future = infinitive
    if stem[-1] == "y" and stem[-2] in "ou":
        strong = stem[:-1] + "i"
        future = strong + "er"
    elif infinitive in ("appeler", "rappeler", "jeter"):
        strong = stem + stem[-1]
        future = strong + "er"
    elif len(stem) > 2 and stem[-2] == "e" and stem[-1] in "vtlmn":
        strong = stem[:-2] + "è" + stem[-1]
        future = strong + "er"
    elif len(stem) > 2 and stem[-2] == "é" and stem[-1] not in "aeiouéy":
        strong = stem[:-2] + "è" + stem[-1]
    soft = stem[:-1] + "ç" if stem[-1] == "c" else stem + "e" if stem[-1] == "g" else stem
    stems = (strong, strong, strong, soft, stem, strong)
    return [a + b for a, b in zip(stems, ER_ENDINGS, strict=True)], stem + "é", future


def _ir_verb(infinitive: str) -> tuple[list[str], str, str]:
    stem = infinitive[:-2]
    endings = ("is", "is", "it", "issons", "issez", "issent")
    return [stem + ending for ending in endings], stem + "i", infinitive


@cache
def conjugate(infinitive: str) -> Conjugation:
    """All forms of a French verb that the grammar uses."""
    if infinitive in _IRREGULAR:
        present, participle, future = _IRREGULAR[infinitive]
    elif infinitive.endswith("er"):
        present, participle, future = _er_verb(infinitive)
    else:
        present, participle, future = _ir_verb(infinitive)
    past = "ét" if infinitive == "être" else present[3][:-3]
    # mangeons -> mangeais but mangions; commençons -> commençais but commencions
    soft = {"ge": past[:-1], "nç": past[:-1] + "c"}.get(past[-2:], past)
    imparfait = tuple((soft if ending[0] == "i" else past) + ending for ending in PAST_ENDINGS)
    futur = tuple(future + ending for ending in FUTURE_ENDINGS)
    conditionnel = tuple(future + ending for ending in PAST_ENDINGS)
    return Conjugation(infinitive, tuple(present), imparfait, futur, conditionnel, participle)


# French nouns and adjectives -----------------------------------------------------------------------------------------

PLURALS = {"bijou": "bijoux", "hibou": "hiboux", "festival": "festivals", "bleu": "bleus"}
FEMININES = {
    "beau": "belle",
    "nouveau": "nouvelle",
    "vieux": "vieille",
    "long": "longue",
    "blanc": "blanche",
    "frais": "fraîche",
    "sec": "sèche",
    "gentil": "gentille",
    "bon": "bonne",
    "gros": "grosse",
    "doux": "douce",
    "jaloux": "jalouse",
    "public": "publique",
    "grec": "grecque",
    "franc": "franche",
    "favori": "favorite",
    "violet": "violette",
}
BEFORE_VOWEL = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil"}


@cache
def french_plural(word: str) -> str:
    """The plural of a noun or adjective."""
    if word in PLURALS:
        return PLURALS[word]
    if "-" in word and word.startswith("grand-"):
        return "grands-" + word[6:] + "s"
    if word[-1] in "sxz":
        return word
    if word.endswith("al"):
        return word[:-2] + "aux"
    if word.endswith(("eau", "eu")):
        return word + "x"
    return word + "s"


@cache
def feminine(word: str) -> str:
    """The feminine of an adjective or participle."""
    if word in FEMININES:
        return FEMININES[word]
    if word[-1] == "e":
        return word
    for ending, other in (
        ("eux", "euse"),
        ("er", "ère"),
        ("if", "ive"),
        ("ïf", "ïve"),
        ("el", "elle"),
        ("en", "enne"),
        ("et", "ète"),
    ):
        if word.endswith(ending):
            return word[: -len(ending)] + other
    return word + "e"


@cache
def agree(word: str, gender: str, plural: bool) -> str:
    """An adjective or participle in the gender ("m" or "f") and number of what it belongs to."""
    form = feminine(word) if gender == "f" else word
    return french_plural(form) if plural else form


# English -------------------------------------------------------------------------------------------------------------

ENGLISH_PLURALS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "person": "people",
    "knife": "knives",
    "shelf": "shelves",
    "wolf": "wolves",
    "sheep": "sheep",
    "fish": "fish",
    "salesman": "salesmen",
    "saleswoman": "saleswomen",
    "scarf": "scarves",
    "leaf": "leaves",
    "photo": "photos",
    "piano": "pianos",
    "zoo": "zoos",
    "radio": "radios",
}
DOUBLING = frozenset(
    {
        "swim",
        "run",
        "get",
        "put",
        "stop",
        "plan",
        "sit",
        "cut",
        "forget",
        "begin",
        "drop",
        "hug",
        "rub",
        "chat",
        "pet",
        "prefer",
    }
)


@cache
def english_plural(noun: str) -> str:
    """The plural of an English noun; of several words the last one changes."""
    *front, last = noun.split()
    if last in ENGLISH_PLURALS:
        last = ENGLISH_PLURALS[last]
    else:
        last = _add_s(last)
    return " ".join([*front, last])


def _add_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")) or word[-1] == "o":
        return word + "es"
    if word[-1] == "y" and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


@cache
def third_person(verb: str) -> str:
    """he does, goes, has, sees."""
    return {"have": "has", "do": "does"}.get(verb) or _add_s(verb)


@cache
def english_past(verb: str) -> str:
    """The simple past of a regular verb."""
    if verb[-1] == "e":
        return verb + "d"
    if verb[-1] == "y" and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + (verb[-1] if verb in DOUBLING else "") + "ed"


@cache
def ing(verb: str) -> str:
    """The form in -ing."""
    if verb == "lie" or verb == "die" or verb == "tie":
        return verb[:-2] + "ying"
    if verb[-1] == "e" and verb[-2] != "e" and verb != "be":
        return verb[:-1] + "ing"
    return verb + (verb[-1] if verb in DOUBLING else "") + "ing"


@cache
def a_or_an(word: str) -> str:
    """The article by the sound of the next word: a European, a uniform, an hour."""
    lower = word.lower()
    if lower.startswith(("uni", "use", "euro", "one")) and not lower.startswith("unin"):
        return "a"
    if lower.startswith(("hour", "honest", "heir")):
        return "an"
    return "an" if lower[0] in "aeiou" else "a"


@cache
def comparative(adjective: str) -> str | None:
    """The form in -er, or None where English says "more"."""
    irregular = {"good": "better", "bad": "worse"}
    if adjective in irregular:
        return irregular[adjective]
    if adjective in MORE_ADJECTIVES:
        return None
    if adjective in SHORT_ADJECTIVES:
        if adjective[-1] == "e":
            return adjective + "r"
        if adjective[-1] == "y":
            return adjective[:-1] + "ier"
        return adjective + (adjective[-1] if adjective in ("big", "fat", "sad", "hot", "thin") else "") + "er"
    return None


MORE_ADJECTIVES = frozenset({"friendly"})
SHORT_ADJECTIVES = frozenset(
    "tall big small short old young new long fast slow heavy light happy sad funny kind lazy rich poor shy clean dirty fresh "
    "hot cold warm quiet strong weak brave nice dark ugly pretty easy cheap narrow wide deep high thin fat tough hard "
    "calm proud rude wise loud noisy dry wet busy crazy clever safe strange soft ripe thick wide "
    "sweet steep simple gentle".split()
)
