"""Clauses by chance: who does what to whom, and what is said of someone or something."""

from collections.abc import Sequence

from entente.data.grammar.lexicon import ADJECTIVES_OF, NOUN, TAGGED, VERB, Adjective, Noun, Verb
from entente.data.grammar.morphology import comparative, starts_with_vowel
from entente.data.grammar.phrases import Phrases
from entente.data.grammar.selection import (
    ACTIVITIES,
    AGE,
    ALWAYS_PLURAL,
    ALWAYS_SINGULAR,
    CITIES,
    CITY_LIFE,
    COMPANY,
    COMPARABLE,
    COUNTRIES,
    DESCRIBABLE,
    EMPTY_HANDED,
    ETRE,
    EXISTING,
    FODDER,
    FRAMES,
    FREQUENCY,
    FUTURE,
    JOURNEYS,
    LEXICAL,
    MANNERS,
    NOUN_CROWDING,
    NOW,
    NUMBERS,
    OLD,
    OWNED,
    PEOPLE_VERBS,
    PERSONS,
    PLACES,
    PLANS,
    PLEASURES,
    PREDICABLE,
    PROFESSIONS,
    RELATABLE,
    SKILLS,
    SPEAKERS,
    TALK,
    TRADE,
    TRADES,
    UNCOMPARED,
    VERBS_OF,
    WEATHER,
    WEATHER_VERBS,
    YOUNG,
)
from entente.data.grammar.syntax import (
    HE,
    ME,
    THEY,
    WE,
    Chunk,
    Clause,
    Clitic,
    Existence,
    Name,
    Node,
    Nominal,
    NounPhrase,
    Prepositional,
    Pronoun,
    Quality,
    Strong,
)


class Clauses(Phrases):
    """Clauses of one sentence being derived."""

    # clauses ---------------------------------------------------------------------------------------------------------

    def action(
        self, subject: Nominal | None = None, bare: bool = False, verb: Verb | None = None, negation: float = 0.16
    ) -> Clause:
        """Someone does, did or will do something; bare means without modal and time."""
        subject = subject or self.actor()
        verb = verb or self.pick(LEXICAL)
        clause = Clause(self.key(), subject, verb)
        self.use("verb:" + verb.fr)
        if verb.aspect == "action" and self.chance(0.1) and not bare:
            self.modal(clause)
        if self.chance(negation):
            clause.negation = self.weighted(((0.75, "pas"), (0.15, "jamais"), (0.1, "plus"))) if not clause.modal else "pas"
        # ne devait pas: was not supposed to, or did not have to; ne devra pas: must not
        if clause.modal == "devoir" and clause.tense in ("imparfait", "futur"):
            clause.negation = ""
        self.complement(clause)
        if clause.modal:
            if clause.negation:
                self.features.add("construction:negation_pas")
            return clause
        self.adjuncts(clause)
        self.time(clause, bare)
        self.reconcile(clause)
        return clause

    def actor(self) -> Nominal:
        """Who acts; someone's trade may be followed by a relative clause."""
        subject = self.subject()
        if isinstance(subject, NounPhrase) and subject.noun.section == "role" and not subject.adjectives and self.chance(0.15):
            subject.det = "def"
            self.relative(subject)
        return subject

    def modal(self, clause: Clause) -> None:
        clause.modal = self.pick(("pouvoir", "devoir"))
        clause.tense = self.pick(("present", "present", "imparfait", "futur", "conditionnel"))
        self.use("verb:" + clause.modal, "modal")

    def reconcile(self, clause: Clause) -> None:
        """Take back what tense and negation forbid together."""
        negation = clause.negation
        if negation in ("jamais", "plus"):
            clause.adverb = None
            if (
                clause.tense not in ("present",)
                or clause.progressive
                or clause.verb.aspect == "punctual"
                and negation == "plus"
            ):
                clause.negation = "pas"
        if clause.adverb is not None:
            self.repeat(clause)
        if clause.negation and clause.adverb is not None:
            clause.adverb = self.chunk(FREQUENCY[0])
        if clause.clitic is not None and clause.clitic.person == HE and clause.clitic.direct:
            if starts_with_vowel(clause.verb.fr) and clause.tense != "pc":
                clause.clitic = Clitic(THEY, "m", True)
        if clause.negation:
            self.features.add("construction:negation_" + clause.negation)
            if clause.tense == "pc":
                self.use("verb:" + clause.verb.fr, "negated_past")

    def repeat(self, clause: Clause) -> None:
        """What is done often is done to several, and nobody does something to "some" rarely."""
        for node in clause.rest:
            if not isinstance(node, NounPhrase):
                continue
            one = node.det == "indef" and clause.verb.fr in TRADE and node.noun.fr not in ALWAYS_SINGULAR
            if one or node.det == "number":
                self.use("noun:" + node.noun.fr, "plural")
                node.make_plural()
            if node.det == "some" and clause.adverb is not None and clause.adverb.text == FREQUENCY[3]:
                clause.adverb = self.chunk(FREQUENCY[0])

    def complement(self, clause: Clause) -> None:
        """The objects the verb asks for."""
        verb, subject = clause.verb, clause.subject
        negated = bool(clause.negation)
        match verb.frame:
            case "obj":
                if verb.fr == "visiter" and self.chance(0.6):
                    clause.rest.append(self.pick((self.country_name, self.country_name, self.city_name))())
                elif verb.people and not self.things_only and self.chance(0.5):
                    self.person_object(clause)
                else:
                    clause.rest.append(self.object_phrase(verb, subject, negated))
            case "person":
                self.person_object(clause)
            case "give":
                self.giving(clause, negated)
            case "put":
                clause.rest.append(self.thing(verb, subject, negated))
                clause.rest.append(self.where(subject))
            case "topic" | "fear":
                if verb.fr in TALK and self.chance(0.4):
                    clause.rest.append(self.person(subject))
                else:
                    noun = self.pick(verb.objects)
                    det = "my" if noun.section == "kin" else self.pick(("def", "def", "this"))
                    plural = noun.section != "kin" and verb.frame != "fear" and self.chance(0.2)
                    clause.rest.append(self.phrase(noun, det, plural, 0.15, self.owner(subject)))
            case "have":
                clause.rest.append(self.having(verb, subject, negated))
            case "subject" | "language" | "sport" | "instrument":
                self.practice(clause)
            case "like":
                self.liking(clause)
            case "inf":
                self.infinitive(clause)
            case "dative" | "resemble" | "caring":
                clause.rest.append(self.person(subject))
            case _:
                self.movement(clause)

    def object_phrase(self, verb: Verb, subject: Nominal, negated: bool) -> NounPhrase:
        phrase = self.thing(verb, subject, negated)
        if phrase.det == "def" and phrase.owner is None and self.related and self.chance(0.12) and phrase.noun.countable:
            self.relative(phrase, verb)
        return phrase

    def person_object(self, clause: Clause) -> None:
        if self.chance(0.5):
            clause.clitic = self.clitic(clause.verb, "present" if clause.modal else "pc", clause.modal, clause.subject)
        else:
            clause.rest.append(self.person(clause.subject))

    def giving(self, clause: Clause, negated: bool) -> None:
        verb, subject = clause.verb, clause.subject
        gift = self.thing(verb, subject, negated)
        self.features.add("construction:indirect_object")
        clause.rest.append(gift)
        if self.chance(0.4) and verb.fr != "rendre":
            clause.clitic = self.clitic(verb, "", "", subject, direct=False)
        else:
            clause.rest.append(Prepositional(self.key(), "à", "to", self.person(subject)))

    def where(self, subject: Nominal) -> Prepositional:
        fr, en, tag = self.pick(
            (
                ("sur", "on", "surface"),
                ("dans", "in", "container"),
                ("sous", "under", "table"),
                ("à côté de", "next to", "lampe"),
            )
        )
        noun = NOUN[tag] if tag in NOUN else self.pick(TAGGED[tag])
        self.features.add("construction:prepositional_phrase")
        self.use("preposition:" + fr)
        det = "def" if not self.chance(0.25) else "my"
        return Prepositional(self.key(), fr, en, self.phrase(noun, det, False, 0.1, self.owner(subject)))

    def having(self, verb: Verb, subject: Nominal, negated: bool) -> NounPhrase:
        family = verb.fr == "avoir" and self.chance(0.3)
        nouns = TAGGED["family"] if family else verb.objects
        noun = self.pick(nouns)
        det = "any" if negated else self.weighted(((0.6, "indef"), (0.4, "number")))
        return self.phrase(noun, det, det in ("any", "number"), 0.4)

    def practice(self, clause: Clause) -> None:
        """Study biology, speak French, play the piano, play tennis."""
        frame = clause.verb.frame
        noun = self.pick(TAGGED[frame])
        self.use("noun:" + noun.fr)
        if clause.verb.fr == "parler":
            phrase = NounPhrase(self.key(), noun, "bare")
        else:
            phrase = NounPhrase(self.key(), noun, "def" if frame == "instrument" else "generic")
        clause.rest.append(phrase)

    def liking(self, clause: Clause) -> None:
        """Likes apples, likes cheese, likes to dance."""
        self.features.add("construction:generic")
        if self.chance(0.3) and clause.verb.fr != "préférer":
            clause.infinitive = self.to_do(clause.subject, PLEASURES)
            return
        plural = self.chance(0.6)
        noun = self.pick(TAGGED["likedplural" if plural else "likedmass"])
        self.use("noun:" + noun.fr)
        if plural:
            self.use("noun:" + noun.fr, "plural")
        clause.rest.append(NounPhrase(self.key(), noun, "generic", plural))

    def infinitive(self, clause: Clause) -> None:
        self.features.add("construction:infinitive")
        name = clause.verb.fr
        kind = SKILLS if name in ("savoir", "apprendre à") else ACTIVITIES if name in ("commencer à", "continuer à") else PLANS
        clause.infinitive = self.to_do(clause.subject, kind)
        if clause.negation and any(isinstance(node, NounPhrase) and node.det == "some" for node in clause.infinitive.rest):
            clause.negation = ""  # did not start to pick *some* strawberries

    def to_do(self, subject: Nominal, verbs: Sequence[Verb]) -> Clause:
        verb = self.pick(verbs)
        self.use("verb:" + verb.fr)
        inner = Clause(self.key(), subject, verb)
        if verbs is not SKILLS or verb.frame != "obj":
            self.complement(inner)
            if inner.clitic is not None:
                inner.clitic = self.clitic(verb, "present", "", subject, inner.clitic.direct)
        return inner

    def movement(self, clause: Clause) -> None:
        verb = clause.verb
        if verb.frame == "move":
            clause.rest.append(
                self.pick((self.city, self.country))("to") if self.chance(0.5) else self.landmark("to", "destination")
            )
        elif verb.frame == "return":
            clause.rest.append(self.city_of_origin())
        elif verb.frame == "arrive":
            clause.rest.append(self.city("in") if self.chance(0.5) else self.landmark("at", "station"))
        elif verb.frame == "stay":
            clause.rest.append(self.city("in") if self.chance(0.5) else self.place(self.pick(TAGGED["resting"])))
        elif verb.frame == "live":
            clause.rest.append(self.pick((self.city, self.country))("in"))

    def city_of_origin(self) -> Prepositional:
        fr, en = self.pick(CITIES)
        self.use("place:" + fr, "places")
        return Prepositional(self.key(), "de", "from", Name(self.key(), fr, en))

    def adjuncts(self, clause: Clause) -> None:
        """Manner, company, place."""
        verb = clause.verb
        if any(isinstance(node, NounPhrase) and node.relative is not None for node in clause.rest):
            return  # what follows a relative clause would seem to belong to it
        if verb.fr in MANNERS and self.chance(0.3) and not clause.negation:
            clause.manner = self.chunk(self.pick(MANNERS[verb.fr]))
        if verb.fr in COMPANY and self.chance(0.35):
            self.features.add("construction:prepositional_phrase")
            clause.rest.append(Prepositional(self.key(), "avec", "with", self.companion(clause.subject)))
        things = (
            verb.people and clause.clitic is None and isinstance(clause.rest[0], NounPhrase) and not clause.rest[0].noun.person
        )
        places = PLACES.get(verb.fr, [])
        if self.indoors:
            places = [place for place in places if place.section in ("room", "building")]
        if places and not things and self.chance(0.5):
            clause.rest.append(self.place(self.pick(places)))
        elif verb.fr in CITY_LIFE and not things and self.chance(0.25):
            clause.rest.append(self.city("in"))

    def speaker(self) -> Pronoun:
        """I, you or we."""
        return Pronoun(self.key(), *self.pick(SPEAKERS))

    def relative(self, phrase: NounPhrase, main: Verb | None = None) -> None:
        """la lettre que j'ai écrite, l'homme qui porte un chapeau; none where French would ask for the plus-que-parfait."""
        if self.mode == "background":
            return
        if phrase.noun.person:
            mode, self.mode = self.mode, "present" if self.mode in ("", "present") and self.chance(0.6) else "past"
            clause = self.action(subject=phrase, bare=True, verb=self.pick(TRADES), negation=0.0)
            clause.gap, clause.front = "subject", None
            self.mode = mode
            self.features.add("construction:relative_qui")
        else:
            verbs = [verb for verb in VERBS_OF.get(phrase.noun.fr, []) if verb.fr in RELATABLE and verb is not main]
            if not verbs:
                return
            verb = self.pick(verbs)
            self.use("verb:" + verb.fr)
            clause = Clause(self.key(), self.speaker() if self.chance(0.34) else self.familiar(), verb, "pc", gap="object")
            if verb.aspect == "state":
                clause.tense = "present"
            self.use("noun:" + phrase.noun.fr, "relative_object")
            self.features.add("construction:relative_que")
        phrase.relative = clause

    # what is said of someone or something -----------------------------------------------------------------------------

    def copula(self, subject: Nominal, *rest: Node, tense: str = "") -> Clause:
        clause = Clause(
            self.key(), subject, ETRE, tense or self.weighted(((0.7, "present"), (0.3, "imparfait"))), rest=list(rest)
        )
        self.use("verb:être", clause.tense)
        return clause

    def negate(self, clause: Clause, probability: float = 0.2) -> Clause:
        if self.chance(probability):
            clause.negation = "pas"
            self.features.add("construction:negation_pas")
        return clause

    def quality(self, adjective: Adjective, degree: str = "", than: "Nominal | Strong | None" = None) -> Quality:
        self.use("adjective:" + adjective.fr, *(["comparative"] if degree else ["predicate"]))
        return Quality(self.key(), adjective, degree, than)

    def described_person(self) -> Clause:
        subject = self.subject()
        noun = subject.noun if isinstance(subject, NounPhrase) else NOUN["cousin"]
        return self.negate(self.copula(subject, self.quality(self.pick(ADJECTIVES_OF[noun.fr]))))

    def described_thing(self) -> Clause:
        adjective, nouns = self.pick(PREDICABLE)
        return self.negate(self.copula(self.described(self.even(nouns, NOUN_CROWDING)), self.quality(adjective)))

    def described(self, noun: Noun) -> NounPhrase:
        det = self.weighted(((0.5, "def"), (0.3, "my" if noun.fr in OWNED else "this"), (0.2, "this")))
        plural = noun.countable and (noun.fr in ALWAYS_PLURAL or noun.fr not in ALWAYS_SINGULAR and self.chance(0.15))
        phrase = self.phrase(noun, det, plural, 0.0, self.pick(SPEAKERS))
        if det == "def" and not plural and noun.fr in OWNED and self.chance(0.4):
            phrase.owner = self.familiar()
            self.features.add("construction:genitive")
        elif det == "def" and noun.countable and self.chance(0.3):
            self.relative(phrase)
        return phrase

    def degree(self, adjective: Adjective, clause: Clause) -> str:
        """plus, aussi, or moins where English has no form in -er."""
        degree = self.weighted(((0.55, "plus"), (0.3, "aussi"), (0.15, "moins")))
        if degree == "moins" and comparative(adjective.en):
            degree = "aussi"
        if degree == "aussi" and self.chance(0.6):
            clause.negation = "pas"
        return degree

    def compared_people(self) -> Clause:
        subject = self.subject()
        adjective = self.pick([a for a in ADJECTIVES_OF["cousin"] if a.fr not in UNCOMPARED])
        clause = self.copula(subject, tense=self.weighted(((0.8, "present"), (0.2, "imparfait"))))
        than: Nominal | Strong
        if self.chance(0.25):
            person, gender = self.pick([p for p in PERSONS if p[0] not in (subject.person, WE, ME)])
            than = Strong(self.key(), person, gender)
        else:
            than = self.person(subject)
        clause.rest.append(self.quality(adjective, self.degree(adjective, clause), than))
        return clause

    def compared_things(self) -> Clause:
        adjective, nouns = self.pick(COMPARABLE)
        first = self.pick(nouns)
        second = self.pick([noun for noun in nouns if noun.section == first.section])
        clause = self.copula(self.phrase(first, "this"), tense="present")
        if first is second:
            than = self.phrase(second, "my" if second.fr in OWNED else "def", False, 0.0, self.pick(SPEAKERS))
            if than.det == "def":
                than.owner = None
                clause.rest.append(self.quality(adjective))
                return clause
        else:
            than = self.phrase(second, self.pick(("this", "def")))
        clause.rest.append(self.quality(adjective, self.degree(adjective, clause), than))
        return clause

    def profession(self) -> Clause:
        """Il est médecin / He is a doctor; il est devenu médecin."""
        noun = self.pick(PROFESSIONS)
        subject = self.name_of(noun.gender) if self.chance(0.5) else Pronoun(self.key(), HE, noun.gender)
        self.use("noun:" + noun.fr, "profession")
        phrase = NounPhrase(self.key(), noun, "bare", profession=True)
        if self.chance(0.4):
            self.use("verb:devenir")
            clause = Clause(self.key(), subject, VERB["devenir"], self.pick(("pc", "pc", "futur")), rest=[phrase])
            self.time_after(clause)
            return clause
        return self.negate(self.copula(subject, phrase))

    def time_after(self, clause: Clause) -> None:
        if clause.tense == "pc" and self.chance(0.5):
            clause.rest.append(self.ago())
        elif clause.tense == "futur" and self.chance(0.5):
            clause.rest.append(self.chunk(FUTURE[5]))

    def located(self) -> Clause:
        """Où quelqu'un ou quelque chose est."""
        if self.chance(0.6):
            subject = self.subject()
            place = self.whereabouts()
            clause = self.copula(subject, place)
            if clause.tense == "present" and self.chance(0.4):
                clause.rest.append(self.chunk(NOW[0]))
            return self.negate(clause)
        subject = self.thing(VERB["laisser"], self.speaker())
        return self.negate(self.copula(subject, self.where(Pronoun(0, ME))))

    def whereabouts(self) -> Prepositional:
        """In Rome, in Japan, at the station."""
        kind = self.pick(("city", "country", "landmark"))
        return (
            self.city("in") if kind == "city" else self.country("in") if kind == "country" else self.landmark("at", "station")
        )

    def existence(self) -> Existence:
        """Il y a un chat dans le jardin; il n'y a pas de pain sur la table."""
        negated = self.chance(0.25)
        tense = self.weighted(((0.75, "present"), (0.25, "imparfait")))
        nouns, places = self.pick(EXISTING)
        noun, place = self.even(nouns, NOUN_CROWDING), self.pick(places)
        if not noun.countable:
            thing = self.phrase(noun, "any" if negated else "some", False, 0.15)
        else:
            det = "any" if negated else self.weighted(((0.5, "indef"), (0.3, "number"), (0.2, "some")))
            thing = self.phrase(noun, det, det != "indef", 0.25)
        fr, en = ("sur", "on") if place.section == "furniture" and place.fr not in ("armoire", "tiroir") else ("dans", "in")
        self.use("construction:il_y_a")
        self.features.add("construction:" + tense)
        if negated:
            self.features.add("construction:negation_pas")
        return Existence(self.key(), thing, Prepositional(self.key(), fr, en, self.phrase(place)), tense, negated)

    def presentation(self) -> Clause:
        """C'est ma sœur; c'est une bonne idée; ce sont mes clés."""
        if self.chance(0.35):
            phrase = self.kin(None)
        else:
            noun = self.even([noun for noun in DESCRIBABLE if noun.countable], NOUN_CROWDING)
            plural = noun.fr in ALWAYS_PLURAL or noun.fr in OWNED and noun.fr not in ALWAYS_SINGULAR and self.chance(0.4)
            phrase = self.phrase(noun, "my" if plural else "indef", plural, 0.3 if plural else 0.8, self.pick(SPEAKERS))
        self.features.add("construction:cest")
        this = "ce:1 | these:1" if phrase.plural else "ce:1 | this:1"
        subject = Chunk(self.key(), this, phrase.plural)
        return self.copula(subject, phrase, tense="present")

    def sky(self, text: str) -> str:
        """A phrase of weather, noted."""
        self.features.add("construction:impersonal")
        self.features.update(
            f"verb:{verb}" for stem, verb in WEATHER_VERBS.items() if f":1 {stem}" in text or f"2 {stem}" in text
        )
        return text

    def weather(self) -> Chunk:
        """Il pleut souvent à Londres; il faisait froid hier."""
        fr, en = self.sky(self.pick(WEATHER)).split(" | ")
        if self.chance(0.4):
            city, town = self.pick(CITIES)
            self.use("place:" + city, "places")
            return Chunk(self.key(), f"{fr} à:8 {city}:9 | {en} in:8 {town}:9")
        land, gender, country = self.pick(COUNTRIES)
        self.use("place:" + land, "places")
        to = "en" if gender == "f" else "au"
        return Chunk(self.key(), f"{fr} {to}:8 {land}:9 | {en} in:8 {country}:9")

    def clock(self) -> Chunk:
        _, fr, en = self.pick(NUMBERS[:10]).split("/")
        self.use("number:" + fr)
        return Chunk(self.key(), f"il:1 est:2 {fr}:3 heures:4 | it:1 is:2 {en}:3 o'clock:4")

    def price(self) -> Clause:
        subject = self.described(self.pick(TAGGED["priced"]))
        self.use("verb:coûter")
        self.features.add("construction:price")
        return Clause(
            self.key(),
            subject,
            VERB["coûter"],
            self.pick(("present", "present", "imparfait")),
            rest=[self.count(NUMBERS[8:], "euros", "euros")],
        )

    def count(self, numbers: Sequence[str], fr: str, en: str) -> Chunk:
        _, number, english = self.pick(numbers).split("/")
        self.use("number:" + number)
        return Chunk(self.key(), f"{number}:1 {fr}:2 | {english}:1 " + " ".join(word + ":2" for word in en.split()))

    def age(self) -> Clause:
        self.features.add("construction:age")
        subject = self.subject()
        clause = Clause(
            self.key(),
            subject,
            AGE,
            self.pick(("present", "present", "imparfait", "futur")),
            rest=[self.years(subject)],
        )
        if clause.tense == "futur":
            clause.rest.append(self.pick((Chunk(self.key(), FUTURE[3]), Chunk(self.key(), FUTURE[5]))))
        return clause

    def years(self, subject: Nominal) -> Chunk:
        """An age that suits someone: a tradesman is grown up, a pupil is not."""
        numbers = NUMBERS[:-1]
        if isinstance(subject, NounPhrase):
            kind = subject.noun
            numbers = NUMBERS[4:12] if kind.fr in YOUNG else NUMBERS[-3:-1] if kind.fr in OLD else NUMBERS[15:-1]
        return self.count(numbers, "ans", "years old")

    def birth(self) -> Clause:
        self.use("verb:naître")
        clause = Clause(self.key(), self.subject(), VERB["naître"], "pc")
        if self.chance(0.6):
            clause.rest.append(self.city("in") if self.chance(0.5) else self.country("in"))
        year = 1930 + int(self._random() * 80)
        clause.rest.append(self.date() if self.chance(0.4) else Chunk(self.key(), f"en:1 {year}:2 | in:1 {year}:2"))
        return clause

    def feeling(self) -> Clause:
        """Avoir faim, s'ennuyer, vouloir, penser: states and wishes."""
        verb = self.pick(FRAMES["state"])
        self.use("verb:" + verb.fr, "avoir_idiom" if verb.fr.startswith("avoir") else "statement")
        clause = Clause(self.key(), self.subject(), verb)
        self.time(clause)
        return self.negate(clause, 0.25)

    def wish(self) -> Clause:
        verb = self.pick(FRAMES["inf"])
        clause = self.action(verb=verb, bare=True)
        if verb.fr == "vouloir" and self.chance(0.4) and not clause.negation:
            clause.tense = "conditionnel"
        return clause

    def journey(self) -> Clause:
        """Paul visite l'Afrique; nous habitons à Lyon."""
        return self.action(verb=self.pick(JOURNEYS))

    def lesson(self) -> Clause:
        """Elle apprend le russe; il enseigne la chimie."""
        return self.action(verb=self.pick(FRAMES["language"] + FRAMES["subject"]))

    def taste(self) -> Clause:
        """J'aime les pommes; il déteste danser."""
        return self.action(verb=self.pick(FRAMES["like"]))

    def pronominal(self) -> Clause:
        """Je la connais; il les a aidés."""
        verb = self.pick(PEOPLE_VERBS)
        clause = Clause(self.key(), self.subject(), verb)
        self.use("verb:" + verb.fr)
        clause.clitic = self.clitic(verb, "pc", "", clause.subject)
        if self.chance(0.2):
            clause.negation = "pas"
        self.adjuncts(clause)
        self.time(clause)
        self.reconcile(clause)
        return clause

    def nothing(self) -> Clause:
        """Il ne mange rien; elle n'a vu personne."""
        people = self.chance(0.4)
        verb = self.pick(PEOPLE_VERBS if people else EMPTY_HANDED)
        clause = Clause(self.key(), self.subject(), verb, negation="personne" if people else "rien")
        self.use("verb:" + verb.fr)
        self.features.add("construction:negation_" + clause.negation)
        clause.tense = self.weighted(((0.5, "pc"), (0.3, "futur"), (0.2, "proche")))
        if verb.aspect == "state":
            clause.tense = self.pick(("present", "imparfait"))
        elif self.chance(0.6):
            clause.rest.append(self.yesterday() if clause.tense == "pc" else self.tomorrow())
        if clause.tense == "pc":
            self.use("verb:" + verb.fr, "negated_past")
        return clause

    def animal(self) -> Clause:
        """An animal sleeps, eats, runs."""
        noun = NOUN["chien"] if self.chance(0.2) else self.pick(TAGGED["pet"])
        plural = self.chance(0.3)
        subject = self.phrase(noun, "def" if self.chance(0.6) else "my", plural, 0.25, self.pick(SPEAKERS))
        name = "aboyer" if noun.fr == "chien" and self.chance(0.7) else self.pick(("dormir", "manger", "courir"))
        if name == "manger" and noun.fr not in FODDER:
            name = "dormir"
        verb = VERB[name]
        self.use("verb:" + name)
        clause = Clause(self.key(), subject, verb)
        if name == "manger":
            food = NOUN[self.pick(FODDER[noun.fr].split())]
            clause.rest.append(self.phrase(food, "some", food.countable))
        if self.chance(0.4):
            clause.rest.append(self.place(NOUN[self.pick(("jardin", "champ"))]))
        self.time(clause)
        return self.negate(clause, 0.1) if name != "manger" and clause.adverb is None else clause
