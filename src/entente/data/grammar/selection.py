"""What goes with what: tables read off the lexicon, from which a derivation chooses. jouer_de is one verb."""

from collections.abc import Sequence
from typing import TypeVar

from entente.data.grammar import lexicon
from entente.data.grammar.lexicon import ADJECTIVE_LIST, ADJECTIVES_OF, NOUN, VERB, VERB_LIST, Adjective, Noun, Verb, expand
from entente.data.grammar.syntax import HE, ME, THEY, WE, YOU

T = TypeVar("T")


def names(words: str) -> frozenset[str]:
    """The lexemes of a list."""
    return frozenset(word.replace("_", " ") for word in words.split())


def verbs(words: str) -> list[Verb]:
    return [VERB[word.replace("_", " ")] for word in words.split()]


def nouns(words: str) -> list[Noun]:
    return expand(words.split())


def lines(block: str) -> list[str]:
    return block.strip().splitlines()


def entries(block: str) -> list[list[str]]:
    return [entry.split("/") for entry in block.split()]


# Fixed phrases, places and numbers -----------------------------------------------------------------------------------

FREQUENCY, HABITS, PAST, FUTURE, NOW, WEATHER = (
    lines(block) for block in (lexicon.FREQUENCY, lexicon.HABITS, lexicon.PAST, lexicon.FUTURE, lexicon.NOW, lexicon.WEATHER)
)
COUNTRIES, CITIES, MONTHS, DAYS = (
    entries(block) for block in (lexicon.COUNTRIES, lexicon.CITIES, lexicon.MONTHS, lexicon.DAYS)
)
NUMBERS = lexicon.NUMBERS.split()
MANNERS: dict[str, list[str]] = {}
for _phrase, _verbs in (_line.split(" = ") for _line in lines(lexicon.MANNERS)):
    for _name in sorted(names(_verbs)):
        MANNERS.setdefault(_name, []).append(_phrase)
PLACES = {
    name: nouns(places)
    for names_, places in (line.split(" = ") for line in lines(lexicon.PLACES))
    for name in sorted(names(names_))
}
REASONS = [
    (verb, sorted(names(states)))
    for words, states in (line.split(" = ") for line in lines(lexicon.REASONS))
    for verb in verbs(words)
]
RAIN = "si:1 il:2 pleut:2 demain:3 | if:1 it:2 rains:2 tomorrow:3"
SUN = "si:1 il:2 fait:5 beau:4 demain:3 | if:1 the~2 weather:2 is:5 nice:4 tomorrow:3"
RAINY = (
    "quand:1 il:2 pleut:2 | when:1 it:2 rains:2",
    "quand:1 il:2 neige:2 | when:1 it:2 snows:2",
    "quand:1 il:2 fait:2 froid:3 | when:1 it:2 is:2 cold:3",
)

# Persons, determiners, tenses ----------------------------------------------------------------------------------------

PERSONS = ((ME, "m"), (YOU, "m"), (HE, "m"), (HE, "f"), (WE, "m"), (THEY, "m"), (HE, "m"), (HE, "f"))
SPEAKERS = ((ME, "m"), (YOU, "m"), (WE, "m"))  # whose things may be named before anyone is
DETERMINERS = {
    "def": "definite",
    "indef": "indefinite",
    "some": "partitive",
    "any": "negated_partitive",
    "my": "possessive",
    "this": "demonstrative",
    "number": "number",
    "bare": "bare",
    "generic": "generic",
}
TENSES = {
    "action": ((0.38, "present"), (0.27, "pc"), (0.12, "imparfait"), (0.13, "futur"), (0.10, "proche")),
    "punctual": ((0.18, "present"), (0.52, "pc"), (0.18, "futur"), (0.12, "proche")),
    "state": ((0.62, "present"), (0.28, "imparfait"), (0.10, "futur")),
}
MODES = {"past": "pc", "present": "present", "future": "futur", "background": "imparfait", "would": "conditionnel"}

# Verbs ---------------------------------------------------------------------------------------------------------------

ETRE = Verb("être", "be", "be", "state", "copula", (), False)
AGE = Verb("avoir", "be", "be", "state", "age", (), False)
POUVOIR = Verb("pouvoir", "can", "could", "state", "can", (), False)
FRAMES: dict[str, list[Verb]] = {}
for _verb in VERB_LIST:
    FRAMES.setdefault(_verb.frame, []).append(_verb)
VERBS_OF: dict[str, list[Verb]] = {}
for _verb in FRAMES["obj"]:
    for _noun in _verb.objects:
        VERBS_OF.setdefault(_noun.fr, []).append(_verb)
SPECIAL = names("that weather animal price born become inf state")  # frames with sentences of their own
LEXICAL = [verb for verb in VERB_LIST if verb.frame not in SPECIAL]
PEOPLE_VERBS = [verb for verb in VERB_LIST if verb.people or verb.frame == "person"]
SKILLS, PLANS = (verbs(" ".join(words)) for words in (lexicon.SKILLS, lexicon.PLANS))
PLEASURES = verbs(
    "nager danser chanter voyager courir dormir travailler se_promener jouer_à jouer_de bavarder rire lire regarder écouter"
)
DEEDS = [verb for verb in LEXICAL + FRAMES["obj"] if verb.aspect != "state" and verb.frame not in ("intr", "rise", "person")]
DATED = [
    verb for verb in LEXICAL if verb.aspect != "state" and verb.frame in ("obj", "goes", "arrive", "move", "return", "person")
]
TRADES = verbs(
    "porter lire acheter chercher réparer préparer conduire connaître aider travailler chanter dormir "
    "attendre boire écouter habiter"
)
ACTIVITIES = verbs(
    "manger boire préparer lire écrire laver nettoyer réparer regarder écouter peindre dessiner arroser "
    "travailler dormir danser "
    "chanter bavarder cueillir planter étudier se_reposer se_promener jouer_de jouer_à"
)
EVENTS = verbs("arriver partir sortir tomber rentrer appeler se_lever se_réveiller")
INDOORS = verbs("lire écouter regarder dormir dessiner jouer_de préparer écrire nettoyer")
OUTDOORS = verbs("laver planter cueillir arroser se_promener courir sortir dessiner peindre photographier jouer_à")
WHAT = verbs(
    "manger boire acheter vendre préparer lire écrire porter chercher regarder écouter voir oublier "
    "perdre trouver choisir cacher "
    "apporter casser dessiner peindre réparer recevoir photographier construire nettoyer laver expliquer "
    "planter visiter comprendre"
)
WHERE = verbs("habiter travailler aller acheter trouver perdre cacher rencontrer apprendre étudier")
HOW = verbs("réparer trouver ouvrir apprendre préparer rencontrer perdre casser nettoyer fermer")
COUNTED = verbs(
    "manger acheter vendre lire écrire laver réparer casser trouver perdre photographier planter cueillir dessiner "
    "recevoir choisir"
)
EMPTY_HANDED = verbs(
    "manger boire acheter vendre lire écrire voir trouver perdre oublier casser recevoir cacher choisir "
    "préparer apporter emporter "
    "comprendre expliquer"
)
JOURNEYS = verbs("visiter visiter aller aller habiter revenir rester")
LUXURIES = tuple(nouns("voiture moto bateau maison appartement piano tableau bague collier"))
WEALTHY = [VERB["acheter"]._replace(objects=LUXURIES), *verbs("voyager construire visiter")]

COMPANY = frozenset(word.replace("_", " ") for word in lexicon.COMPANY)  # done with someone
CITY_LIFE = names(  # done in a city
    "travailler dormir déjeuner acheter vendre perdre trouver se_promener étudier enseigner "
    "rencontrer attendre aider reconnaître"
)
ENDURING = names("avoir posséder habiter")  # states that one speaks of in the future
MISHAPS = names("tomber casser perdre oublier trouver")  # nobody plans them
DEFINITE = names(  # done to a thing one knows
    "mettre laisser chercher oublier perdre cacher emporter visiter ouvrir fermer casser finir utiliser "
    "arroser remplir vider allumer "
    "éteindre laver nettoyer réparer admirer nourrir caresser"
)
INDEFINITE = names("dessiner construire planter posséder recevoir cueillir")  # done to any thing
SINGLE = names("écouter prendre attendre conduire porter essayer")  # done to one at a time
NOT_OWN = names("emprunter louer acheter recevoir trouver admirer dessiner choisir")
TRADE = names(  # done often only to several
    "acheter vendre recevoir casser trouver choisir construire planter réparer dessiner peindre cueillir "
    "emprunter louer préparer "
    "manger donner envoyer apporter rendre prêter"
)
RELATABLE = names(  # la lettre que j'ai ...
    "acheter vendre trouver perdre voir choisir réparer casser dessiner écrire lire recevoir oublier laver préparer construire "
    "peindre photographier cacher emprunter visiter admirer apporter chercher regarder écouter planter "
    "louer expliquer"
)
MONTHLY = names(  # dated by a month or a day of it
    "acheter vendre visiter voyager construire louer écrire planter rencontrer recevoir partir arriver "
    "aller rester apprendre étudier "
    "enseigner travailler peindre réparer inviter emprunter choisir photographier devenir décider_de lire envoyer voir cueillir"
)
DAILY = names(  # done every day, in the morning, on Mondays
    "manger boire lire écouter regarder travailler courir nager danser chanter jouer_à jouer_de étudier se_promener se_lever "
    "se_coucher se_réveiller se_reposer nettoyer préparer nourrir arroser s'entraîner prendre "
    "téléphoner_à s'occuper_de déjeuner "
    "aller bavarder sortir"
)
TALK = names("parler_de penser_à rêver_de se_souvenir_de jouer_avec")  # of a person as well

# Nouns and adjectives ------------------------------------------------------------------------------------------------

FAMILY = names("frère sœur oncle tante cousin cousine ami amie neveu nièce collègue voisin voisine")  # one has several
ALWAYS_PLURAL = names("haricot cerise fraise champignon légume gant botte chaussure chaussette rideau")
ALWAYS_SINGULAR = names("métro télévision four réfrigérateur piscine zoo opéra cuisine salon garage grenier terrasse")
OWNED = frozenset(
    noun.fr
    for noun in nouns("clothes vehicle furniture thing dish device text pet instrument room")
    if noun.fr not in ("train", "bus", "métro", "avion", "taxi", "balcon", "couloir", "journal", "tiroir", "billet")
)
YOUNG = names("garçon enfant élève")
OLD = names("grand-père grand-mère")
FODDER = {
    "chien": "viande",
    "chat": "poisson",
    "lapin": "carotte",
    "cheval": "carotte pomme",
    "âne": "carotte pomme",
    "chèvre": "pomme",
    "cochon": "pomme carotte",
    "tortue": "salade",
}
ATTRIBUTIVE = names("nouveau jeune français italien allemand japonais espagnol anglais américain européen gros")
UNCOMPARED = names("seul prêt surpris malade déçu furieux content")
ABSOLUTE = (
    ATTRIBUTIVE
    | UNCOMPARED
    | names("rouge bleu vert noir blanc gris jaune violet rond vide magnifique immense délicieux mûr sec mauvais")
)
PROFESSIONS = nouns(
    "médecin boulanger professeur facteur boucher pompier policier journaliste musicien peintre chanteur pharmacien coiffeur "
    "mécanicien fermier pilote soldat ingénieur architecte étudiant dentiste écrivain cuisinier serveur "
    "directeur acteur poète "
    "photographe vendeur infirmière actrice danseuse secrétaire caissière couturière serveuse vendeuse "
    "bibliothécaire étudiante "
    "directrice"
)
EXISTING = [  # things and where they are found
    (nouns(things), nouns(places))
    for things, places in (
        ("arbre chat chien oiseau fleur rose table chaise tulipe sapin pommier buisson rosier écureuil", "jardin parc"),
        ("verre assiette tasse bol bouteille vase couteau fourchette cuillère pomme orange gâteau lettre clé journal", "table"),
        ("pain fromage lait beurre confiture jus bière œuf tomate eau jambon viande poisson limonade", "réfrigérateur"),
        ("table chaise lampe fauteuil horloge miroir tapis tableau télévision", "salon chambre"),
        ("chemise robe manteau pull jupe veste uniforme", "armoire"),
        ("voiture vélo moto", "garage"),
        (
            "restaurant musée gare église école hôpital théâtre banque boulangerie pharmacie hôtel château marché",
            "village ville",
        ),
        ("stylo crayon cahier clé enveloppe couteau peigne photo", "tiroir sac"),
        ("lion éléphant tigre singe girafe ours loup serpent hibou tortue", "zoo"),
        ("touriste enfant étudiant médecin infirmière policier journaliste", "restaurant hôpital hôtel train"),
        ("vache cheval mouton chèvre âne tracteur arbre hérisson lapin", "champ"),
        ("renard loup ours hibou écureuil champignon oiseau serpent hérisson", "forêt"),
        ("canard bateau", "lac rivière"),
        ("riz soupe viande oignon carotte", "casserole"),
    )
]
_SAID_OF = {noun: [a for a in adjectives if a.fr not in ATTRIBUTIVE] for noun, adjectives in ADJECTIVES_OF.items()}
DESCRIBABLE = [
    noun
    for noun in NOUN.values()
    if not noun.person and noun.section not in ("wild", "sport", "language", "subject") and len(_SAID_OF[noun.fr]) > 1
]
PREDICABLE: list[tuple[Adjective, list[Noun]]] = [
    (adjective, [noun for noun in DESCRIBABLE if adjective in _SAID_OF[noun.fr]])
    for adjective in ADJECTIVE_LIST
    if any(adjective in _SAID_OF[noun.fr] for noun in DESCRIBABLE)
]
COMPARABLE = [
    (adjective, several)
    for adjective, described in PREDICABLE
    if adjective.fr not in ABSOLUTE
    for several in [[noun for noun in described if noun.countable and noun.fr not in ALWAYS_PLURAL]]
    if several
]
COMPARABLE += 4 * [(adjective, several) for adjective, several in COMPARABLE if adjective.fr == "bon"]  # meilleur
WEATHER_VERBS = {"pleu": "pleuvoir", "plu": "pleuvoir", "neig": "neiger"}
LEMMAS = tuple(
    [f"noun:{noun}" for noun in NOUN]
    + [f"verb:{verb.fr}" for verb in (*VERB_LIST, ETRE, POUVOIR)]
    + ["verb:devoir"]
    + [f"adjective:{fr}" for fr in dict.fromkeys(adjective.fr for adjective in ADJECTIVE_LIST)]
    + [f"place:{place[0]}" for place in COUNTRIES + CITIES]
    + [f"name:{name}" for name in lexicon.NAMES["m"] + lexicon.NAMES["f"]]
    + [f"number:{number.split('/')[1]}" for number in NUMBERS]
    + [f"month:{month[0]}" for month in MONTHS]
    + [f"day:{day[0]}" for day in DAYS]
)
RICH = next(adjective for adjective in ADJECTIVE_LIST if adjective.fr == "riche")


def _crowding(groups: Sequence[Sequence[T]]) -> dict[T, float]:
    """How often an item is drawn, against the mean, where each group is drawn from alike and evenly."""
    share: dict[T, float] = {}
    for group in groups:
        for item in group:
            share[item] = share.get(item, 0.0) + 1.0 / len(group)
    mean = sum(share.values()) / len(share)
    return {item: value / mean for item, value in share.items()}


NOUN_CROWDING = _crowding(
    [
        *(verb.objects for verb in FRAMES["obj"] + FRAMES["give"] + FRAMES["put"]),
        DESCRIBABLE,
        *(things for things, _ in EXISTING),
    ]
)
ADJECTIVE_CROWDING = _crowding([[a for a in adjectives if a.place != "pred"] for adjectives in ADJECTIVES_OF.values()])
