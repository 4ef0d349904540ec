"""What the demo corpus talks about: random noun phrases and clauses that make sense.

Every choice comes from `random.Random.random`, whose numbers are the same for one seed in every Python.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from transformer_cli.data.demo.grammar import (
    ACCUSATIVE,
    CITY_PLACES,
    DATIVE,
    NAME_PHRASES,
    NOMINATIVE,
    NP,
    PRONOUNS,
    Clause,
    Phrase,
    comparison,
    goal,
    joined,
    noun_phrase,
    place,
    predicate,
    prepositional,
    two_way,
)
from transformer_cli.data.demo.lexicon import FREQUENCIES, FUTURE_TIMES, HABITS, MOMENTS, NUMBERS, PAST_TIMES
from transformer_cli.data.demo.words import (
    ADJECTIVE_NOUNS,
    ADJECTIVES,
    KINDS,
    NOUN_ADJECTIVES,
    NOUNS,
    TO_BE,
    VERBS,
    Adjective,
    Noun,
    Verb,
)

T = TypeVar("T")

# How often a kind of noun takes which determiner: "+" is the plural, "own" a possessive, "bare" none at all.
DETERMINERS = {
    kind: choices.split()
    for kind, choices in {
        "kin": "own own own own own own+",
        "people": "the the the the a a this the+ the+ number+ many+ these+",
        "dish": "bare bare bare bare the the own this",
        "drink": "bare bare bare bare the the own this",
        "building": "the the the a a a this the+ these+ bare+ number+ many+",
        "outdoors": "the the the a a a this the+ these+ bare+ number+ many+",
        "bare": "bare",
        "other": "the the the a a a own own this the+ own+ these+ bare+ number+ number+ many+",
    }.items()
}
ALL_DETERMINERS = ("the", "own", "this", "the+", "own+", "these+", "a", "bare", "bare+", "number+", "many+")
DEFINITE = ("the", "own", "this", "the+", "own+", "these+")
# With a negation no numbers, so that "nicht" and "kein" stand where they must.
NEGATABLE = ("the", "own", "this", "the+", "own+", "a", "bare", "bare+")
ORDERED = ("the", "own", "this", "the+", "own+", "a", "bare")

# The forms that a letter of a verb's uses allows; "habit" is the present simple with a word that says how often.
FORMS = {
    "g": ("progressive",),
    "s": ("simple",),
    "h": ("habit",),
    "t": ("past", "past", "perfect"),
    "p": ("past",),
    "f": ("will",),
    "m": ("can", "must", "should", "would like", "be allowed", "want", "want", "wanted", "had"),
    "c": ("can",),
    "l": ("like",),
}
LETTERS = "ggggsssshhttttppffmmmcl"
NEVER_NEGATED = ("habit", "like", "must", "had")


def phrases(table: dict[str, str]) -> tuple[Phrase, ...]:
    """The entries of a table of English and German."""
    return tuple(Phrase(en, de) for en, de in table.items())


TIMES = {
    "progressive": phrases(MOMENTS),
    "habit": phrases(HABITS),
    "will": phrases(FUTURE_TIMES),
    **dict.fromkeys(("past", "wanted", "had"), phrases(PAST_TIMES)),
    **dict.fromkeys(
        ("can", "must", "should", "would like", "be allowed", "want"), phrases({"today": "heute", "tomorrow": "morgen"})
    ),
}
HOW_OFTEN = phrases(FREQUENCIES)
ALREADY, YET, GERN = Phrase("already", "schon"), Phrase("yet", "noch"), Phrase("", "gern")
VERY, TOO = Phrase("very", "sehr"), Phrase("too", "zu")
AT_HOME, HOME = Phrase("at home", "zu Hause"), Phrase("home", "nach Hause")
BY = phrases({"by train": "mit dem Zug", "by bus": "mit dem Bus", "by car": "mit dem Auto"})
ASKED_ABOUT = ("you", "he", "she", "they")
NUMBER_WORDS = list(NUMBERS)
# How far the numbers go that count such nouns; elsewhere to six.
HOW_MANY = {"people": 10, "food": 21, "idea": 21}
CLOCK = [Phrase(f"at {en} o'clock", f"um {NUMBERS[en]} Uhr") for en in NUMBER_WORDS[:12]]

PEOPLE, KIN = KINDS["people"], KINDS["kin"]
DESCRIBED = [noun for noun in NOUNS if len(NOUN_ADJECTIVES[noun]) > 2]
# Adjectives that know no degree: "very broken", "too red".
ABSOLUTE = ("broken", "empty", "red", "blue", "green", "yellow", "black", "white", "brown", "fresh", "new")
# Adjectives of which something can well have too much.
EXCESSIVE = ("expensive", "difficult", "big", "small", "long", "short", "heavy", "cold", "hot", "warm", "sweet", "old")
STATES = [ADJECTIVES[name] for name in ("tired", "ill", "hungry", "thirsty", "happy", "sad")]
JOBS = {"his": ("teacher", "doctor", "baker", "policeman", "waiter", "student"), "her": ("nurse",)}
# What is eaten or drunk with what.
SIDES = {"soup": "bread", "rice": "meat", "bread": "cheese", "fish": "salad", "coffee": "milk", "potato": "fish"}
OWN_PLACES = ("garden", "room", "office", "house")

# Each frame, the kinds of complement a verb takes, as often as it is drawn.
ACTIVITIES = ["transitive"] * 10 + ["dative"] * 3 + ["ditransitive"] * 4 + ["intransitive"] * 4 + ["motion"] * 3
FRAMES = [*ACTIVITIES, "position", "placing", "placing", "living", "belonging", *["copula"] * 4]


class Speaker:
    """Says one thing after another; two speakers with one seed say the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def pick(self, choices: Sequence[T]) -> T:
        """One of them, all equally likely."""
        return choices[int(self._random() * len(choices))]

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self._random() < probability

    def noun_phrase(
        self, name: str, owner: str = "", among: Sequence[str] = (), negated: bool = False, described: float = 0.3
    ) -> NP:
        """A phrase of the noun `name`.

        `owner` is the possessive of the subject; `among`, where given, restricts the determiners; a `negated` phrase
        has "kein" where it is indefinite; `described` is how often it has an adjective.
        """
        noun = NOUNS[name]
        usual = DETERMINERS["other" if name in OWN_PLACES else noun.kind if noun.kind in DETERMINERS else "other"]
        choice = self.pick([each for each in usual if each in among] or among if among else usual)
        if noun.kind == "bare":
            choice = "bare"
        plural = choice.endswith("+") and noun.en_plural != ""
        determiner = choice.removesuffix("+")
        if determiner == "own":
            anyone = self.pick(("my", "your", "his", "her", "our", "their"))
            determiner = owner if owner and self.chance(0.75) else anyone
        elif determiner == "number":
            determiner = self.pick(NUMBER_WORDS[: HOW_MANY.get(noun.kind, 5)])
        elif determiner == "bare":
            determiner = ""
        german = "no" if negated and determiner in ("a", "") else NUMBERS.get(determiner, "")
        return noun_phrase(noun, determiner, self.adjectives(noun, described), plural, german)

    def adjectives(self, noun: Noun, probability: float) -> tuple[Adjective, ...]:
        """None, one or, seldom, two in their English order."""
        fitting = NOUN_ADJECTIVES[noun.en]
        if not fitting or not self.chance(probability):
            return ()
        first, second = self.pick(fitting), self.pick(fitting)
        return (first, second) if first.rank < second.rank and self.chance(0.4) else (first,)

    def person(self, asked: bool = False, described: float = 0.2) -> NP:
        """Who does something; in a question neither I nor we."""
        kind = self._random()
        if kind < 0.3:
            return PRONOUNS[self.pick(ASKED_ABOUT if asked else tuple(PRONOUNS))]
        if kind < 0.5:
            return self.pick(NAME_PHRASES)
        return self.noun_phrase(self.pick(PEOPLE if kind < 0.8 else KIN), described=described)

    def somebody(
        self, names: Sequence[str], subject: NP, pronouns: bool, among: Sequence[str] = (), negated: bool = False
    ) -> NP:
        """To whom something is done: one of the nouns `names` or, with `pronouns`, also a pronoun or a name."""
        if pronouns and self.chance(0.2):
            same = {"I": ("I", "we"), "you": ("you",), "we": ("I", "we")}.get(subject.en, ())
            return PRONOUNS[self.pick([pronoun for pronoun in PRONOUNS if pronoun not in same])]
        if pronouns and self.chance(0.15):
            return self.pick([name for name in NAME_PHRASES if name != subject])
        name = self.pick([name for name in names if name != subject.noun])
        return self.noun_phrase(name, subject.possessive, among or (NEGATABLE if negated else ()), negated)

    def where(self, name: str, subject: NP) -> Phrase:
        """In or at a place or city."""
        return CITY_PLACES[name][0] if name in CITY_PLACES else place(self._place_phrase(name, subject))

    def where_to(self, name: str, subject: NP) -> Phrase:
        """To a place or city."""
        return CITY_PLACES[name][1] if name in CITY_PLACES else goal(self._place_phrase(name, subject))

    def _place_phrase(self, name: str, subject: NP) -> NP:
        noun = NOUNS[name]
        if noun.kind == "kin":
            determiner = subject.possessive or self.pick(("my", "your", "our"))
        elif name in OWN_PLACES and subject.possessive and self.chance(0.5):
            determiner = subject.possessive
        else:
            determiner = "a" if self.chance(0.08) else "the"
        return noun_phrase(noun, determiner, self.adjectives(noun, 0.6 if determiner == "a" else 0.15))

    def clause(
        self,
        verbs: Sequence[Verb] = (),
        subject: NP | None = None,
        forms: Sequence[str] = (),
        negated: bool | None = None,
        inverted: bool = False,
        timed: float = 0.45,
    ) -> Clause:
        """Anything at all, or within what is given: these verbs this subject, these forms.

        `inverted` says that the German verb will stand before the subject: then a pronoun is an object only beside a
        pronoun as subject, since German would draw it forward. `timed` is how often a time is named.
        """
        verb = self.pick(verbs or VERBS[self.pick(FRAMES)])
        frame = verb.frame
        if frame == "copula":
            return self._copula(self._described_subject(inverted), negated)
        if frame in ("position", "belonging"):
            among = ("the", "this", "the+", "these+", *(("a", "number+") if frame == "position" else ()))
            subject = self.noun_phrase(self.pick(verb.objects), among=among)
        subject = subject or self.person(inverted)
        form = self.pick(forms or FORMS[self.pick([letter for letter in LETTERS if letter in verb.uses])])
        if negated is None:
            # Not "a bus is not standing there": German would say that no bus is.
            negated = form not in NEVER_NEGATED and subject.order != "indefinite" and self.chance(0.2)
        adverb, time = self._adverb_and_time(verb, form, negated, timed)
        clause = Clause(subject, verb, "simple" if form == "habit" else form, negated, adverb=adverb, time=time)
        return self._complete(clause, pronouns=not inverted or subject.order == "pronoun")

    def _adverb_and_time(self, verb: Verb, form: str, negated: bool, timed: float) -> tuple[Phrase, Phrase]:
        if form == "like":
            return GERN, Phrase()
        if form == "habit" and self.chance(0.5):
            return self.pick(HOW_OFTEN), Phrase()
        if form == "perfect" and self.chance(0.5):
            return (Phrase(), YET) if negated else (ALREADY, Phrase())
        # "They cut the bread" needs a word that says when; so does a habit.
        needed = form == "habit" or (form == "past" and verb.en_forms["past"] == verb.en_forms["base"])
        if form in TIMES and (needed or self.chance(timed)):
            return Phrase(), self.pick(TIMES[form])
        return Phrase(), Phrase()

    def _complete(self, clause: Clause, pronouns: bool) -> Clause:
        """With the complements that verbs of this frame have."""
        subject, verb, negated, frame = clause.subject, clause.verb, clause.negated, clause.verb.frame
        if frame == "transitive":
            return self._with_object(clause, pronouns and "o" in verb.uses)
        if frame == "intransitive":
            return self._with_circumstances(clause)
        if frame == "motion":
            return clause._replace(goal=self._goal(clause))
        if frame == "living":
            return clause._replace(place=self._residence(clause))
        if frame == "dative":
            helped = self.somebody(verb.objects, subject, pronouns, (), negated)
            return self._somewhere(clause._replace(objects=((helped, DATIVE),)))
        if frame == "belonging":
            return clause._replace(objects=((self.somebody(KIN + PEOPLE, subject, pronouns, DEFINITE), DATIVE),))
        if frame == "ditransitive":
            return clause._replace(objects=self._gift(clause, pronouns))
        preposition, landmark = self.pick(verb.places)
        near = self.noun_phrase(landmark, subject.possessive, ("the", "own"), described=0.12)
        if frame == "position":
            return clause._replace(place=two_way(preposition, near, DATIVE))
        thing = self._thing(clause, without=landmark)
        return clause._replace(objects=((thing, ACCUSATIVE),), goal=two_way(preposition, near, ACCUSATIVE))

    def _thing(self, clause: Clause, without: str = "") -> NP:
        """What it is done to, other than the noun `without`."""
        name = self.pick([name for name in clause.verb.objects if name != without])
        owner = clause.subject.possessive
        described = 0 if clause.verb.en in ("write", "build") else 0.3
        return self.noun_phrase(name, owner, self._determiners(clause), clause.negated, described)

    def _determiners(self, clause: Clause) -> list[str]:
        """Those that an object may have."""
        uses = clause.verb.uses
        counted = "n" not in uses and not clause.negated and clause.form != "imperative"
        allowed = ALL_DETERMINERS if counted else ORDERED if clause.form == "imperative" else NEGATABLE
        barred = (["a"] if {"n", "s"} <= uses else []) + (["own", "own+"] if "e" in uses else [])
        return [each for each in allowed if each not in barred]

    def _with_object(self, clause: Clause, pronouns: bool) -> Clause:
        subject, verb, negated = clause.subject, clause.verb, clause.negated
        if clause.form == "like":
            # "gern" goes with things in general: gern Tee, gern alte Bücher.
            general = [name for name in verb.objects if NOUNS[name].kind not in ("kin", "people")]
            return clause._replace(
                objects=((self.noun_phrase(self.pick(general), among=("bare", "bare+")), ACCUSATIVE),)
            )
        if verb.en == "have":
            among = ("a",) if negated else ("a", "a", "number+", "many+")
            thing = self.noun_phrase(self.pick(verb.objects), among=among, negated=negated)
        elif pronouns and NOUNS[self.pick(verb.objects)].kind in ("kin", "people"):
            thing = self.somebody(verb.objects, subject, True, self._determiners(clause), negated)
        else:
            thing = self._thing(clause, without=subject.noun)
        clause = clause._replace(objects=((thing, ACCUSATIVE),))
        if negated:
            return clause
        return self._with_more(clause, thing) if thing.order == "indefinite" else self._somewhere(clause)

    def _with_more(self, clause: Clause, thing: NP) -> Clause:
        """What goes with an indefinite object: a side dish, for whom it is, from whom."""
        verb, subject = clause.verb, clause.subject
        if verb.en in ("eat", "drink", "order") and thing.noun in SIDES and self.chance(0.4):
            side = self.noun_phrase(SIDES[thing.noun], among=("bare",), described=0.8)
            return clause._replace(goal=prepositional("with", "mit", side, DATIVE))
        if verb.en in ("buy", "order", "cook") and self.chance(0.15):
            return clause._replace(goal=prepositional("for", "für", self.somebody(KIN, subject, True), ACCUSATIVE))
        if verb.en == "receive" and self.chance(0.6):
            return clause._replace(goal=prepositional("from", "von", self.somebody(KIN, subject, True), DATIVE))
        return self._somewhere(clause)

    def _somewhere(self, clause: Clause) -> Clause:
        """Sometimes with a place, except beside a negation, which would then deny the place."""
        places = clause.verb.places
        if not places or clause.negated or not self.chance(0.25):
            return clause
        return clause._replace(place=self.where(self.pick(places)[1], clause.subject))

    def _with_circumstances(self, clause: Clause) -> Clause:
        verb, subject = clause.verb, clause.subject
        if verb.en == "get up":
            return clause._replace(place=self.pick(CLOCK))
        if verb.en == "sit":
            return clause._replace(place=self.where(self.pick(verb.places)[1], subject))
        company = Phrase()
        if verb.en in ("play", "work", "dance", "swim", "go shopping", "cook", "sing") and self.chance(0.25):
            company = prepositional("with", "mit", self.somebody(KIN, subject, True), DATIVE)
        where = self.where(self.pick(verb.places)[1], subject) if verb.places and self.chance(0.5) else Phrase()
        return clause._replace(place=joined(company, where))

    def _goal(self, clause: Clause) -> Phrase:
        verb = clause.verb
        if verb.en in ("go", "drive", "come") and self.chance(0.15):
            return HOME
        goals = [name for _, name in verb.places if name != clause.subject.noun]
        where_to = self.where_to(self.pick(goals), clause.subject)
        if verb.en == "travel" and not clause.negated and self.chance(0.5):
            by = self.pick(BY)
            return Phrase(f"{where_to.en} {by.en}", f"{by.de} {where_to.de}")
        return where_to

    def _residence(self, clause: Clause) -> Phrase:
        if clause.verb.en == "stay" and self.chance(0.5):
            return AT_HOME
        if self.chance(0.3):
            return prepositional("with", "bei", self.somebody(KIN, clause.subject, True, DEFINITE), DATIVE)
        return self.where(self.pick(clause.verb.places)[1], clause.subject)

    def _gift(self, clause: Clause, pronouns: bool) -> tuple[tuple[NP, int], ...]:
        receiver = self.somebody(KIN + PEOPLE, clause.subject, pronouns, DEFINITE)
        thing = self._thing(clause)
        if clause.verb.en == "explain":
            to_receiver = receiver._replace(en_object=f"to {receiver.en_object or receiver.en}")
            return (thing, ACCUSATIVE), (to_receiver, DATIVE)
        return (receiver, DATIVE), (thing, ACCUSATIVE)

    def _described_subject(self, asked: bool) -> NP:
        subject = self.person(asked, described=0)
        if subject.order == "indefinite" or self.chance(0.5):
            return self.noun_phrase(self.pick(DESCRIBED), among=DEFINITE, described=0)
        return subject

    def _copula(self, subject: NP, negated: bool | None) -> Clause:
        """What somebody or something, without an adjective so far, is or was: an adjective, more so, a profession."""
        form = self.pick(("simple", "simple", "simple", "past"))
        clause = Clause(subject, TO_BE, form, self.chance(0.2) if negated is None else negated)
        if subject.noun not in PEOPLE and subject.possessive in JOBS and self.chance(0.2):
            return clause._replace(negated=False, goal=self._profession(subject.possessive))
        fitting = NOUN_ADJECTIVES.get(subject.noun) or STATES
        adjective = self.pick([each for each in fitting if each.en != "little"])
        if adjective.en_comparative and subject.noun and self.chance(0.8):
            others = [name for name in ADJECTIVE_NOUNS[adjective] if NOUNS[name].kind == NOUNS[subject.noun].kind]
            others = [name for name in others if name != subject.noun]
            if others:
                other = self.noun_phrase(self.pick(others), among=DEFINITE, described=0)
                return clause._replace(goal=comparison(adjective, subject.noun, other))
        time = self.pick(TIMES["past"]) if form == "past" and adjective in STATES and self.chance(0.5) else Phrase()
        return clause._replace(goal=predicate(adjective, subject.noun, self.degree(adjective, 0.3)), time=time)

    def degree(self, adjective: Adjective, excess: float) -> Phrase:
        """Nothing, "very" or, `excess` often and where there can be too much of it, "too"."""
        if adjective.en in ABSOLUTE:
            return Phrase()
        if adjective.en in EXCESSIVE and self.chance(excess):
            return TOO
        return self.pick((Phrase(), Phrase(), VERY))

    def _profession(self, possessive: str) -> Phrase:
        job = NOUNS[self.pick(JOBS[possessive])]
        phrase = noun_phrase(job, "a", self.adjectives(job, 0.4))
        # Without an adjective German has no article: "Er ist Lehrer."
        german = phrase.de[NOMINATIVE] if phrase.adjectives else job.de[NOMINATIVE]
        return Phrase(phrase.en, german, phrase.pairs())
