"""Sentences of one clause in the demo corpus: statements, questions, orders, and some that state facts."""

from collections.abc import Sequence
from typing import NamedTuple

from transformer_cli.data.demo.grammar import (
    ACCUSATIVE,
    CITY_PLACES,
    IT,
    NAME_PHRASES,
    NOMINATIVE,
    PRONOUNS,
    WHO,
    Clause,
    Phrase,
    noun_phrase,
)
from transformer_cli.data.demo.lexicon import NUMBERS
from transformer_cli.data.demo.speaker import (
    ACTIVITIES,
    CLOCK,
    DEFINITE,
    KIN,
    NUMBER_WORDS,
    TIMES,
    Speaker,
)
from transformer_cli.data.demo.words import (
    KINDS,
    NOUNS,
    TO_BE,
    VERBS,
    Pair,
    Verb,
    words,
)


def named(frame: str, names: str) -> list[Verb]:
    """The verbs of these names, separated by commas."""
    return [verb for name in names.split(", ") for verb in VERBS[frame] if verb.en == name]


COST, ARRIVE, LEAVE, BEGIN, RAIN, SNOW = named("thing", "cost, arrive, leave, begin, rain, snow")
DOING = [verb for frame in ACTIVITIES for verb in VERBS[frame] if "g" in verb.uses]
ORDERS = [verb for frame in (*ACTIVITIES, "placing") for verb in VERBS[frame] if "i" in verb.uses]
MODAL = [verb for frame in ACTIVITIES for verb in VERBS[frame] if "m" in verb.uses]
PLEASE = Phrase("", "bitte")

SKIES = [Phrase(*sky) for sky in (("cold", "kalt"), ("very cold", "sehr kalt"), ("warm", "warm"), ("hot", "heiß"))]
PRICED = [*KINDS["clothes"], *KINDS["device"], *KINDS["furniture"], "car", "bicycle", "bag", "ticket"]
SIGHTS = [*KINDS["building"], "park", "garden", "lake", "river", "market"]
CHILDREN = ("boy", "girl", "child", "pupil", "brother", "sister", "son", "daughter", "friend")
AGES = (
    (CHILDREN, ("six", "seven", "eight", "nine", "ten", "twelve", "10", "12", "15")),
    (("father", "mother", "uncle", "aunt", "teacher", "neighbour"), ("30", "40", "50")),
    (("grandfather", "grandmother"), ("60", "80")),
)
WHAT = [verb for verb in VERBS["transitive"] if "o" not in verb.uses and verb.en not in ("pick up", "speak")]
WHAT += [verb for verb in VERBS["ditransitive"] if verb.en != "explain"]
WHOM = named("transitive", "visit, call, meet, invite, ask, know, see, hear")
WHOM += named("dative", "help, thank, follow, listen to, believe, trust")
WHICH = [verb for verb in VERBS["transitive"] if any(NOUNS[name].en_plural for name in verb.objects)]


class Sentence(NamedTuple):
    """A sentence in both languages with the verb-object and adjective-noun pairs in it."""

    en: str
    de: str
    pairs: frozenset[Pair]


def sentence(en: str, de: str, mark: str, *clauses: Clause, pairs: Sequence[Pair] = ()) -> Sentence:
    """Capital letter and mark added; the pairs of the clauses, and others."""
    found = frozenset(pair for clause in clauses for pair in clause.pairs()).union(pairs)
    return Sentence(en[0].upper() + en[1:] + mark, de[0].upper() + de[1:] + mark, found)


def statement(speaker: Speaker) -> Sentence:
    """The man reads the book."""
    clause = speaker.clause()
    return sentence(clause.english(), clause.german(), ".", clause)


def time_first(speaker: Speaker) -> Sentence:
    """Yesterday the man read the book: the verb stays second in German."""
    clause = speaker.clause(DOING, inverted=True, timed=1.0)
    while clause.time.en in ("", "yet"):
        clause = speaker.clause(DOING, inverted=True, timed=1.0)
    rest = clause._replace(time=Phrase())
    en, de = f"{clause.time.en} {rest.english()}", f"{clause.time.de} {rest.german_inverted()}"
    return sentence(en, de, ".", clause)


def question(speaker: Speaker) -> Sentence:
    """Does the man read the book?"""
    clause = speaker.clause(negated=False, inverted=True)
    return sentence(clause.english_question(), clause.german_inverted(), "?", clause)


def permission(speaker: Speaker) -> Sentence:
    """May I read the book?"""
    subject, form = PRONOUNS[speaker.pick(("I", "we"))], speaker.pick(("may", "can", "shall"))
    clause = speaker.clause(MODAL, subject, (form,), negated=False, inverted=True)
    return sentence(clause.english_question(), clause.german_inverted(), "?", clause)


def order(speaker: Speaker) -> Sentence:
    """Read the book!"""
    negated, polite = speaker.chance(0.25), speaker.chance(0.4)
    clause = speaker.clause(ORDERS, PRONOUNS["you"], ("imperative",), negated, timed=0)
    if polite:
        clause = clause._replace(adverb=PLEASE)
    en = clause.english_imperative()
    return sentence(f"please {en}" if polite else en, clause.german_imperative(), "!", clause)


class Asked(NamedTuple):
    """A question word with the clause that lacks what it asks for."""

    en: str
    de: str
    clause: Clause
    pairs: tuple[Pair, ...] = ()


def asked(speaker: Speaker) -> Asked:
    """Where, when, why, what, whom, which or how many, and the rest of the question."""
    return speaker.pick((_where, _when, _why, _what, _whom, _which, _which))(speaker)


def _where(speaker: Speaker) -> Asked:
    if speaker.chance(0.4):
        clause = speaker.clause(named("motion", "go, drive, run, travel, fly"), negated=False, inverted=True)
        return Asked("where", "wohin", clause._replace(goal=Phrase()))
    verbs = named("living", "live") * 3 + named("intransitive", "work, sleep, play, swim, sit, wait")
    clause = speaker.clause(verbs, negated=False, inverted=True)
    return Asked("where", "wo", clause._replace(place=Phrase()))


def _when(speaker: Speaker) -> Asked:
    clause = speaker.clause(DOING, forms=("past", "will"), negated=False, inverted=True, timed=0)
    return Asked("when", "wann", clause._replace(time=Phrase()))


def _why(speaker: Speaker) -> Asked:
    return Asked("why", "warum", speaker.clause(DOING, inverted=True))


def _what(speaker: Speaker) -> Asked:
    clause = speaker.clause(WHAT, negated=False, inverted=True)
    return Asked("what", "was", clause._replace(objects=clause.objects[:-1], goal=Phrase()))


def _whom(speaker: Speaker) -> Asked:
    clause = speaker.clause(WHOM, negated=False, inverted=True)
    case = clause.objects[0][1]
    return Asked("who", WHO.de[case], clause._replace(objects=(), goal=Phrase()))


def _which(speaker: Speaker) -> Asked:
    verb = speaker.pick(WHICH)
    name = speaker.pick([name for name in verb.objects if NOUNS[name].en_plural])
    how_many = speaker.chance(0.5)
    determiner, plural = ("how many", True) if how_many else ("which", speaker.chance(0.3))
    asked = noun_phrase(NOUNS[name], determiner, speaker.adjectives(NOUNS[name], 0.2), plural)
    clause = speaker.clause([verb], negated=False, inverted=True)._replace(objects=(), goal=Phrase())
    return Asked(asked.en, asked.de[ACCUSATIVE], clause, (*asked.pairs(), (verb.en, name)))


def question_word(speaker: Speaker) -> Sentence:
    """What does the man read?"""
    word, wort, clause, pairs = asked(speaker)
    en, de = f"{word} {clause.english_question()}", f"{wort} {clause.german_inverted()}"
    return sentence(en, de, "?", clause, pairs=pairs)


def who(speaker: Speaker) -> Sentence:
    """Who reads the book?"""
    clause = speaker.clause(DOING, WHO, negated=False)
    return sentence(clause.english(), clause.german(), "?", clause)


def owner(speaker: Speaker) -> Sentence:
    """Who does the book belong to?"""
    clause = speaker.clause(named("belonging", "belong to"), negated=False)._replace(objects=())
    return sentence(f"who {clause.english_question()}", f"wem {clause.german_inverted()}", "?", clause)


def weather(speaker: Speaker) -> Sentence:
    """It is raining in Berlin today."""
    form = speaker.pick(("progressive", "progressive", "past"))
    negated = speaker.chance(0.2)
    where = Phrase() if negated or speaker.chance(0.3) else CITY_PLACES[speaker.pick(list(CITY_PLACES))][0]
    clause = Clause(IT, speaker.pick((RAIN, SNOW)), form, negated, place=where, time=speaker.pick(TIMES[form]))
    if speaker.chance(0.6):
        sky = speaker.pick(SKIES)
        clause = clause._replace(
            verb=TO_BE, place=Phrase(), goal=Phrase(words(sky.en, where.en), words(where.de, sky.de))
        )
    if speaker.chance(0.2):
        return sentence(clause.english_question(), clause.german_inverted(), "?", clause)
    return sentence(clause.english(), clause.german(), ".", clause)


def price(speaker: Speaker) -> Sentence:
    """The coat costs 80 euros. How much does it cost?"""
    thing = speaker.noun_phrase(speaker.pick(PRICED), among=("the", "this", "the+", "these+"))
    number = speaker.pick(NUMBER_WORDS[10:])
    clause = Clause(thing, COST, "simple", goal=Phrase(f"{number} euros", f"{NUMBERS[number]} Euro"))
    return _measured(speaker, clause, "how much", "wie viel")


def age(speaker: Speaker) -> Sentence:
    """The boy is 12 years old. How old is he?"""
    names, numbers = speaker.pick(AGES)
    person = speaker.noun_phrase(speaker.pick(names), among=("the", "own"))
    if speaker.chance(0.3):
        person = speaker.pick(NAME_PHRASES)
    number = speaker.pick(numbers)
    clause = Clause(person, TO_BE, "simple", goal=Phrase(f"{number} years old", f"{NUMBERS[number]} Jahre alt"))
    return _measured(speaker, clause, "how old", "wie alt")


def _measured(speaker: Speaker, clause: Clause, how: str, wie: str) -> Sentence:
    """The clause with its measure, or asking for it."""
    if speaker.chance(0.7):
        return sentence(clause.english(), clause.german(), ".", clause)
    clause = clause._replace(goal=Phrase())
    return sentence(f"{how} {clause.english_question()}", f"{wie} {clause.german_inverted()}", "?", clause)


def timetable(speaker: Speaker) -> Sentence:
    """The train to Berlin leaves, or the film begins, at nine o'clock. When does it?"""
    if speaker.chance(0.3):
        subject, verb = speaker.somebody(KIN, WHO, pronouns=False, among=DEFINITE), ARRIVE
    elif speaker.chance(0.3):
        subject, verb = speaker.noun_phrase("film", among=("the", "this")), BEGIN
    else:
        subject = speaker.noun_phrase(speaker.pick(("train", "bus", "ship")), among=("the", "this"), described=0.15)
        verb = speaker.pick((ARRIVE, LEAVE))
        if speaker.chance(0.4):
            _, to_city = speaker.pick(list(CITY_PLACES.values()))
            nominative = f"{subject.de[NOMINATIVE]} {to_city.de}"
            subject = subject._replace(en=f"{subject.en} {to_city.en}", de=(nominative, nominative, nominative))
    form = speaker.pick(("simple", "past", "will"))
    time = speaker.pick((*TIMES["habit" if form == "simple" else form], Phrase(), Phrase()))
    if speaker.chance(0.75):
        clause = Clause(subject, verb, form, place=speaker.pick(CLOCK), time=time)
        return sentence(clause.english(), clause.german(), ".", clause)
    clause = Clause(subject, verb, form)
    return sentence(f"when {clause.english_question()}", f"wann {clause.german_inverted()}", "?", clause)


def existence(speaker: Speaker) -> Sentence:
    """There is a church in the village."""
    town = speaker.pick(("village", "city", *CITY_PLACES))
    there = CITY_PLACES[town][0] if town in CITY_PLACES else speaker.where(town, WHO)
    missing = speaker.chance(0.2)
    name = speaker.pick(SIGHTS)
    if missing:
        sight = noun_phrase(NOUNS[name], "no", speaker.adjectives(NOUNS[name], 0.3))
    else:
        sight = speaker.noun_phrase(name, among=("a", "number+", "many+"))
    pairs = (*sight.pairs(), *there.pairs)
    be, german = "are" if sight.agreement == 4 else "is", sight.de[ACCUSATIVE]
    if not missing and speaker.chance(0.25):
        return sentence(f"{be} there {sight.en} {there.en}", f"gibt es {there.de} {german}", "?", pairs=pairs)
    return sentence(f"there {be} {sight.en} {there.en}", f"{there.de} gibt es {german}", ".", pairs=pairs)
