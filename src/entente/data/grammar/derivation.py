"""Sentences by chance: questions, statements, and clauses joined to clauses."""

from collections.abc import Callable
from dataclasses import replace

from entente.data.grammar.clauses import Clauses
from entente.data.grammar.lexicon import ADJECTIVES_OF, NOUN, TAGGED, VERB, Verb
from entente.data.grammar.selection import (
    ACTIVITIES,
    AGE,
    ALWAYS_SINGULAR,
    COUNTED,
    DATED,
    DEEDS,
    EVENTS,
    FRAMES,
    FREQUENCY,
    HOW,
    INDOORS,
    LUXURIES,
    MISHAPS,
    NOW,
    OUTDOORS,
    PERSONS,
    PLANS,
    POUVOIR,
    RAIN,
    RAINY,
    REASONS,
    RICH,
    SUN,
    WEALTHY,
    WHAT,
)
from entente.data.grammar.syntax import THEY, Both, Chunk, Clause, Node, Nominal, NounPhrase, Prepositional, Pronoun


class Derivation(Clauses):
    """One sentence being derived."""

    # questions -------------------------------------------------------------------------------------------------------

    def asked(self) -> Nominal:
        """Who a question is about."""
        kind = self.weighted(((0.65, "pronoun"), (0.25, "name"), (0.1, "kin")))
        if kind == "pronoun":
            person, gender = self.pick(PERSONS[1:])
            return Pronoun(self.key(), person, gender)
        return self.name() if kind == "name" else self.kin(None)

    def question(self) -> Clause:
        self.features.add("construction:question")
        clause = self.weighted(QUESTIONS)(self)
        if not isinstance(clause.subject, Chunk):
            clause.question = True
            self.features.add("construction:" + ("inversion" if self.style.inversion else "est_ce_que"))
        self.use("verb:" + clause.verb.fr, "question")
        clause.front = None
        return clause

    def deny(self, clause: Clause) -> None:
        """Negate a finished clause whose objects a negation leaves as they are."""
        if (
            any(isinstance(node, NounPhrase) and node.det in ("indef", "some", "number") for node in clause.rest)
            or clause.manner
        ):
            return
        clause.negation = "pas"
        self.features.add("construction:negation_pas")
        if clause.tense == "pc":
            self.use("verb:" + clause.verb.fr, "negated_past")

    def yes_or_no(self) -> Clause:
        if self.chance(0.25):
            subject = self.asked()
            noun = subject.noun if isinstance(subject, NounPhrase) else NOUN["cousin"]
            return self.copula(subject, self.quality(self.pick(ADJECTIVES_OF[noun.fr])))
        if self.chance(0.3):
            clause = self.action(
                self.asked(), verb=self.pick(FRAMES["like"] + FRAMES["have"] + FRAMES["live"] + FRAMES["state"]), negation=0.0
            )
            clause.tense = "present" if clause.tense == "futur" else clause.tense
            return clause
        self.mode = self.pick(("past", "past", "future", "background"))
        clause = self.action(self.asked(), negation=0.0)
        if clause.progressive is False and not clause.modal and clause.adverb is None and self.chance(0.12):
            self.deny(clause)
        return clause

    def where_or_when(self) -> Clause:
        """Où, quand, pourquoi, comment."""
        kind = self.pick(("where", "when", "why", "how"))
        self.features.add("construction:wh_question")
        if kind == "where":
            verb = VERB[
                self.pick(
                    (
                        "habiter",
                        "travailler",
                        "aller",
                        "acheter",
                        "trouver",
                        "perdre",
                        "cacher",
                        "rencontrer",
                        "apprendre",
                        "étudier",
                    )
                )
            ]
            clause = self.plain(verb, "present" if verb.fr == "habiter" else "", where=True)
            clause.wh = self.chunk("où:1 | where:1")
        elif kind == "when":
            clause = self.plain(self.pick(DATED))
            clause.wh = self.chunk("quand:1 | when:1")
        elif kind == "how":
            clause = self.plain(self.pick(HOW))
            clause.wh = self.chunk("comment:1 | how:1")
        else:
            clause = self.plain(self.deed())
            clause.wh = self.chunk("pourquoi:1 | why:1")
        return clause

    def plain(self, verb: Verb, tense: str = "", where: bool = False) -> Clause:
        """A clause with its objects and no adjunct, in a past or a future."""
        clause = Clause(self.key(), self.asked(), verb)
        self.use("verb:" + verb.fr)
        if not where or verb.frame not in ("move", "live"):  # the place is what is asked
            self.complement(clause)
        state = verb.aspect == "state"
        clause.tense = tense or self.pick(("present", "imparfait") if state else ("pc", "pc", "futur", "proche"))
        self.features.add("construction:" + clause.tense)
        self.reconcile(clause)
        return clause

    def what(self) -> Clause:
        """Que manges-tu? Qu'est-ce que tu as acheté?"""
        verb = self.pick(WHAT)
        clause = Clause(self.key(), self.asked(), verb, wh=self.chunk("que:1 | what:1"))
        self.use("verb:" + verb.fr)
        self.features.add("construction:wh_question")
        clause.tense = "present" if verb.aspect == "state" else self.pick(("pc", "pc", "futur", "proche", "present"))
        if verb.aspect == "punctual" and clause.tense == "present":
            clause.tense = "pc"
        if clause.tense == "present" and verb.aspect == "action":
            clause.progressive = True
            clause.rest.append(self.chunk(self.pick(NOW)))
        self.features.add("construction:" + clause.tense)
        return clause

    def who(self) -> Clause:
        """Qui a cassé le verre?"""
        self.features.add("construction:wh_question")
        verb = self.pick(FRAMES["obj"])
        self.mode = "future" if verb.fr not in MISHAPS and self.chance(0.35) else "past"
        return self.action(self.chunk("qui:1 | who:1"), bare=True, verb=verb, negation=0.0)

    def how_many(self) -> Clause:
        """Combien de pommes as-tu mangées?"""
        verb = self.pick(COUNTED)
        noun = self.pick([noun for noun in verb.objects if noun.countable and noun.fr not in ALWAYS_SINGULAR])
        phrase = self.phrase(noun, "bare", True)
        self.use("verb:" + verb.fr)
        self.features.add("construction:how_many")
        many = Prepositional(self.key(), "combien de", "how many", phrase)
        clause = Clause(self.key(), self.asked(), verb, self.pick(("pc", "pc", "futur")), wh=many)
        self.features.add("construction:" + clause.tense)
        return clause

    def measure(self) -> Clause:
        if self.chance(0.5):
            self.features.add("construction:age")
            return Clause(
                self.key(),
                self.asked(),
                AGE,
                self.pick(("present", "present", "imparfait")),
                wh=self.chunk("quel:1 âge:1 | how:1 old:1"),
            )
        self.features.add("construction:price")
        self.use("verb:coûter")
        subject = self.described(self.pick(TAGGED["priced"]))
        return Clause(
            self.key(), subject, VERB["coûter"], self.pick(("present", "imparfait")), wh=self.chunk("combien:1 | how:1 much:1")
        )

    # sentences of several clauses --------------------------------------------------------------------------------------

    def conjunction(self, text: str) -> Chunk:
        self.features.add("construction:clauses")
        return self.chunk(text)

    def joined(self) -> list[Node]:
        """X et Y; X, mais Y; X pendant que Y."""
        self.mode = self.pick(("past", "future"))
        kind = self.weighted(((0.4, "et:1 | and:1"), (0.3, ",:1 mais:2 | ,:1 but:2"), (0.3, "while")))
        if kind == "while":
            self.mode = "background"
            first = self.during()
            second = self.during(self.other(first.subject))
            return [first, self.conjunction("pendant:1 que:1 | while:1"), second]
        first = self.action(bare=True, verb=self.deed(), negation=0.1)
        if kind.startswith("et"):
            other = self.other(first.subject)
            while isinstance(other, Both):  # "fed his pig and Laura and my uncle ate" leads astray
                other = self.other(first.subject)
            return [first, self.conjunction(kind), self.action(other, True, self.deed(), 0.05)]
        return [first, self.conjunction(kind), self.contrast(first)]

    def deed(self) -> Verb:
        """What someone may do in a sentence of several clauses."""
        verb = self.pick(DEEDS)
        while self.mode == "future" and verb.fr in MISHAPS:
            verb = self.pick(DEEDS)
        return verb

    def contrast(self, first: Clause) -> Clause:
        """Someone else does the same to something else, or does not do it."""
        done = {node.noun for node in first.rest if isinstance(node, NounPhrase)}
        features = set(self.features)
        self.things_only = True
        for _ in range(5):
            second = self.action(self.other(first.subject), True, first.verb, 0.0 if first.negation else 0.5 if done else 1.0)
            if (
                second.negation
                or first.negation
                or not done & {node.noun for node in second.rest if isinstance(node, NounPhrase)}
            ):
                break
            self.features = set(features)
        second.negation = "pas" if second.negation else ""
        return second

    def during(self, subject: Nominal | None = None) -> Clause:
        return self.action(subject, bare=True, verb=self.pick(ACTIVITIES), negation=0.0)

    def interrupted(self) -> list[Node]:
        """Paul dormait quand Jane est arrivée."""
        self.mode = "background"
        first = self.during()
        event = Clause(self.key(), self.other(first.subject), self.pick(EVENTS), "pc")
        self.use("verb:" + event.verb.fr)
        if event.verb.fr == "appeler":
            # indirect, so that it is no third person: "l'" would be whoever the first clause is about
            event.clitic = self.clitic(event.verb, "pc", "", event.subject, direct=False)._replace(direct=True)
        self.features.add("construction:pc")
        return [first, self.conjunction("quand:1 | when:1"), event]

    def reasoned(self) -> list[Node]:
        """Il dort parce qu'il est fatigué."""
        verb, states = self.pick(REASONS)
        self.mode = self.pick(("past", "background"))
        self.indoors = True
        subject = self.subject()
        clause = self.action(subject, bare=True, verb=verb, negation=0.0)
        clause.tense = "pc" if self.mode == "past" else "imparfait"
        if clause.clitic is not None or verb.frame == "stay" and self.mode == "background":
            clause.tense = "pc"
        clause.adverb = clause.manner = None
        same = self.echo(subject)
        state = self.pick(states)
        tense = "imparfait"
        if state.startswith("avoir"):
            self.use("verb:" + state, "avoir_idiom")
            why = Clause(self.key(), same, VERB[state], tense)
        else:
            adjective = next(a for a in ADJECTIVES_OF["cousin"] if a.fr == state)
            why = self.copula(same, self.quality(adjective), tense=tense)
        return [clause, self.conjunction("parce:1 que:1 | because:1"), why]

    def echo(self, subject: Nominal) -> Pronoun:
        """The pronoun for someone already named; two women are elles only where the style says so."""
        if subject.person == THEY and not isinstance(subject, Pronoun):
            self.style = replace(self.style, they=subject.agreement(self.style).gender)
        return Pronoun(self.key(), subject.person, subject.gender)

    def conditional(self) -> list[Node]:
        """S'il pleut demain, je resterai; si j'étais riche, j'achèterais un bateau."""
        self.features.add("construction:conditional")
        if self.chance(0.3):
            self.mode = "future"
            weather, plans = self.pick(((RAIN, INDOORS), (SUN, OUTDOORS)))
            self.indoors, self.related = weather == RAIN, False
            main = self.action(bare=True, verb=self.pick(plans), negation=0.1)
            return [self.chunk(self.sky(weather)), Chunk(self.key(), ",:1 | ,:1"), main]
        self.mode = "would"
        subject = self.subject()
        first = Clause(self.key(), subject, POUVOIR, "imparfait")
        kind = self.pick(("pouvoir", "riche"))
        if kind == "riche":
            first = self.copula(subject, self.quality(RICH), tense="imparfait")
            first.hypothetical = True
        plans = WEALTHY if kind == "riche" else PLANS
        main = self.action(self.echo(subject), bare=True, verb=self.pick(plans), negation=0.0)
        main.tense = "conditionnel"
        for node in main.rest:
            if kind == "riche" and isinstance(node, NounPhrase) and not node.plural and node.noun in LUXURIES:
                node.det, node.owner = "indef", None
        self.features.add("construction:conditionnel")
        return [self.conjunction("si:1 | if:1"), first, Chunk(self.key(), ",:1 | ,:1"), main]

    def reported(self) -> list[Node]:
        """Je pense que Jane est malade; il a dit qu'il viendrait."""
        verb = self.pick(FRAMES["that"])
        self.use("verb:" + verb.fr, "that_clause")
        subject = self.subject()
        if verb.fr == "dire":
            head = Clause(self.key(), subject, verb, "pc")
            self.mode = "would"
        else:
            head = Clause(self.key(), subject, verb, "present")
            self.mode = self.pick(("past", "future", "future"))
        if self.mode != "would" and self.chance(0.4):
            said = self.pick((self.described_person, self.located, self.feeling_now))()
            said.negation = ""
        else:
            said = self.action(bare=True)
            said.front = None
            if said.tense == "conditionnel":
                self.features.add("construction:conditionnel")
        return [head, self.conjunction("que:1 | that:1"), said]

    def feeling_now(self) -> Clause:
        self.mode = "present"
        return self.feeling()

    def rainy(self) -> list[Node]:
        """Quand il pleut, Jane lit un roman."""
        self.mode, self.indoors, self.related = "present", True, False
        clause = self.action(bare=True, verb=self.pick(INDOORS), negation=0.0)
        when = self.sky(self.pick(RAINY))
        if clause.adverb is None and clause.manner is None and self.chance(0.5):
            clause.adverb = self.chunk(self.pick(FREQUENCY))
            self.repeat(clause)
        return [self.chunk(when), Chunk(self.key(), ",:1 | ,:1"), clause]

    def alone(self) -> list[Node]:
        """One clause."""
        return [self.weighted(STATEMENTS)(self)]

    def sentence(self) -> tuple[list[Node], str]:
        """The parts of a sentence and its end mark."""
        if self.chance(0.13):
            return [self.question()], "?"
        return self.weighted(SENTENCES)(self), "."

    def long_sentence(self) -> tuple[list[Node], str]:
        """Clauses in clauses: coordination, report, reason, each of which may hold the next."""
        self.mode = self.pick(("past", "future"))
        parts: list[Node] = []
        if self.chance(0.4):
            verb = VERB[self.pick(("penser", "croire"))]
            self.use("verb:" + verb.fr, "that_clause")
            parts += [Clause(self.key(), self.subject(), verb), self.conjunction("que:1 | that:1")]
        clauses = self.series(2 + int(self._random() * 3))
        for clause in clauses[:-1]:
            parts += [clause, Chunk(self.key(), ",:1 | ,:1")]
        parts[-1:] = [self.conjunction("et:1 | and:1"), clauses[-1]]
        if self.chance(0.4):
            parts += [self.conjunction(",:1 mais:2 | ,:1 but:2"), self.contrast(clauses[-1])]
        elif self.mode == "past" and self.chance(0.5):
            self.mode = "background"
            parts += [self.conjunction("pendant:1 que:1 | while:1"), self.during(self.other(clauses[-1].subject))]
        return parts, "."

    def series(self, length: int) -> list[Clause]:
        """What several people did, each something else."""
        clauses: list[Clause] = []
        verbs: set[str] = set()
        while len(clauses) < length:
            verb = self.deed()
            if verb.fr in verbs:
                continue
            verbs.add(verb.fr)
            subject = self.other(clauses[-1].subject) if clauses else self.subject()
            clause = self.action(subject, True, verb, 0.08)
            node = clause.rest[-1] if clause.rest else None
            if isinstance(node, NounPhrase) and node.noun.countable and node.det in ("def", "this") and node.relative is None:
                if node.owner is None and not node.noun.person and clause.manner is None and self.chance(0.5):
                    self.relative(node, verb)
            clauses.append(clause)
        return clauses


QUESTIONS = (
    (0.45, Derivation.yes_or_no),
    (0.14, Derivation.where_or_when),
    (0.12, Derivation.what),
    (0.13, Derivation.who),
    (0.08, Derivation.how_many),
    (0.08, Derivation.measure),
)
STATEMENTS: tuple[tuple[float, Callable[[Derivation], Node]], ...] = (
    (0.24, Derivation.action),
    (0.08, Derivation.journey),
    (0.015, Derivation.lesson),
    (0.03, Derivation.taste),
    (0.03, Derivation.nothing),
    (0.04, Derivation.pronominal),
    (0.045, Derivation.described_person),
    (0.10, Derivation.described_thing),
    (0.05, Derivation.compared_people),
    (0.055, Derivation.compared_things),
    (0.03, Derivation.profession),
    (0.03, Derivation.located),
    (0.05, Derivation.existence),
    (0.03, Derivation.presentation),
    (0.025, Derivation.weather),
    (0.005, Derivation.clock),
    (0.02, Derivation.price),
    (0.02, Derivation.age),
    (0.02, Derivation.birth),
    (0.03, Derivation.feeling),
    (0.035, Derivation.wish),
    (0.03, Derivation.animal),
)
SENTENCES = (
    (0.60, Derivation.alone),
    (0.16, Derivation.joined),
    (0.05, Derivation.interrupted),
    (0.04, Derivation.reasoned),
    (0.05, Derivation.conditional),
    (0.07, Derivation.reported),
    (0.03, Derivation.rainy),
)
