"""Sentences of two clauses in the demo corpus, joined by that, whether, because, although, if, while, and, but."""

from transformer_cli.data.demo.grammar import ACCUSATIVE, IT, NP, PRONOUNS, Clause, noun_phrase, predicate
from transformer_cli.data.demo.simple import DOING, MODAL, Asked, Sentence, asked, named, sentence
from transformer_cli.data.demo.speaker import Speaker
from transformer_cli.data.demo.words import ADJECTIVES, NOUN_ADJECTIVES, NOUNS, TO_BE, Verb

(HAVE,), (WORK,) = named("transitive", "have"), named("intransitive", "work")
KNOW, ASK = named("saying", "know, ask")

PRONOUN_OF = {pronoun.possessive: pronoun for pronoun in PRONOUNS.values()}

# A reason in the person, and what is therefore done, or (True) not done.
REASONS = (
    ("hungry", False, named("transitive", "eat, cook")),
    ("thirsty", False, named("transitive", "drink")),
    ("tired", True, named("intransitive", "work, dance, play, swim, go shopping, cook")),
    ("ill", True, named("intransitive", "work, swim, dance, sing") + named("motion", "travel, fly")),
    ("time", True, named("transitive", "visit, meet, call, read, write, tidy up, cook") + named("dative", "help")),
    ("money", True, named("transitive", "buy, rent, order") + named("motion", "travel")),
    ("work", True, named("intransitive", "swim, go shopping, watch television, sleep") + named("transitive", "meet")),
)
NOTHING_OF = {name: noun_phrase(NOUNS[name], "no") for name in ("time", "money")}
# What is done in spite of being tired or ill.
IN_SPITE = named("intransitive", "work, dance, sing, go shopping") + named("transitive", "clean, wash, visit, repair")
# What is done (False) or not done for a reason in the thing: verbs and adjectives.
PROPERTIES = [
    (
        negated,
        [
            (verb, name, ADJECTIVES[word])
            for verb in named("transitive", verbs)
            for name in verb.objects
            for word in adjectives.split()
            if ADJECTIVES[word] in NOUN_ADJECTIVES[name]
        ],
    )
    for negated, verbs, adjectives in (
        (True, "buy, rent, order", "expensive"),
        (True, "buy, wear, like", "old ugly small big short long"),
        (True, "read, like", "boring long sad difficult"),
        (True, "eat, drink", "cold hot sweet"),
        (True, "understand", "difficult"),
        (True, "wear", "dirty"),
        (True, "take, turn on", "broken"),
        (False, "buy, like, wear", "beautiful cheap modern warm"),
        (False, "read, like, visit", "interesting"),
        (False, "repair, sell", "broken old"),
        (False, "wash, clean", "dirty"),
    )
]
# What is done in which weather.
OUTDOORS = named("intransitive", "swim, play, dance") + named("motion", "go, drive")
INDOORS = named("transitive", "read, cook") + named("intransitive", "watch television, sleep") + named("living", "stay")
WRAPPED_UP = named("transitive", "drink, wear, put on") + named("living", "stay")
WEATHER = (
    ("the weather is good", "das Wetter gut ist", OUTDOORS),
    ("it is warm", "es warm ist", OUTDOORS),
    ("the weather is bad", "das Wetter schlecht ist", INDOORS),
    ("it rains", "es regnet", INDOORS),
    ("it snows", "es schneit", WRAPPED_UP),
    ("it is cold", "es kalt ist", WRAPPED_UP),
)
CONJUNCTIONS = ((" while", ", während"), (" while", ", während"), (" and", " und"), (", but", ", aber"))


def that(speaker: Speaker) -> Sentence:
    """She says that the man reads the book."""
    verb = speaker.pick(named("saying", "know, think, believe, hope, say"))
    doubted = verb.en in ("know", "think", "believe")
    clause = speaker.clause()
    while clause.form in ("would like", "want"):  # not "he hopes that he wants to"
        clause = speaker.clause()
    main, en, de, mark = _main(speaker, verb, clause.subject, asked=doubted and speaker.chance(0.2), denied=doubted)
    return sentence(f"{en} that {clause.english()}", f"{de}, dass {clause.german_subordinate()}", mark, main, clause)


def whether(speaker: Speaker) -> Sentence:
    """I do not know whether the man reads the book, or where he lives."""
    whether_or_not = speaker.chance(0.5)
    word, wort, clause, pairs = Asked("whether", "ob", speaker.clause()) if whether_or_not else asked(speaker)
    verb = ASK if speaker.chance(0.3) else KNOW
    unknown = verb is KNOW
    main, en, de, mark = _main(speaker, verb, clause.subject, asked=unknown and speaker.chance(0.4), denied=unknown)
    en, de = f"{en} {word} {clause.english()}", f"{de}, {wort} {clause.german_subordinate()}"
    return sentence(en, de, mark, main, clause, pairs=pairs)


def _main(speaker: Speaker, verb: Verb, other: NP, asked: bool, denied: bool) -> tuple[Clause, str, str, str]:
    """The clause that another, with the subject `other`, depends on: itself, in both languages, and its mark.

    It is a question where `asked`, otherwise often negated where `denied`.
    """
    subject = speaker.person(asked)
    while subject == other and subject.order != "pronoun":  # not "Anna knows that Anna reads"
        subject = speaker.person(asked)
    negated = denied and not asked and speaker.chance(0.6)
    clause = Clause(subject, verb, "progressive" if verb is ASK else "simple", negated)
    if asked:
        return clause, clause.english_question(), clause.german_inverted(), "?"
    return clause, clause.english(), clause.german(), "."


def because(speaker: Speaker) -> Sentence:
    """The man is not reading the book because he is tired, or because it is boring."""
    main, reason = (_reason_in_thing if speaker.chance(0.5) else _reason_in_person)(speaker)
    en, de = f"{main.english()} because {reason.english()}", f"{main.german()}, weil {reason.german_subordinate()}"
    return sentence(en, de, ".", main, reason)


def _reason_in_person(speaker: Speaker) -> tuple[Clause, Clause]:
    state, negated, verbs = speaker.pick(REASONS)
    form = speaker.pick(("progressive", "progressive", "past"))
    main = speaker.clause(verbs, _somebody_with_pronoun(speaker), (form,), negated, timed=0.2)
    return main, _state(main.subject, state, "past" if form == "past" else "simple")


def _state(subject: NP, state: str, form: str) -> Clause:
    """The subject, as a pronoun, is tired, has no time, or must work."""
    pronoun = PRONOUN_OF[subject.possessive]
    if state == "work":
        return Clause(pronoun, WORK, "had" if form == "past" else "must")
    if state in NOTHING_OF:
        return Clause(pronoun, HAVE, form, objects=((NOTHING_OF[state], ACCUSATIVE),))
    return Clause(pronoun, TO_BE, form, goal=predicate(ADJECTIVES[state], ""))


def _reason_in_thing(speaker: Speaker) -> tuple[Clause, Clause]:
    negated, choices = speaker.pick(PROPERTIES)
    verb, name, adjective = speaker.pick(choices)
    thing = speaker.noun_phrase(name, among=("the", "this", "the+", "these+"), described=0)
    usual = "progressive" if "g" in verb.uses else "simple"
    form = speaker.pick((usual, usual, "want", "will") if "m" in verb.uses else (usual,))
    main = Clause(speaker.person(), verb, form, negated, objects=((thing, ACCUSATIVE),))
    german = {"m": "er", "f": "sie", "n": "es"}[NOUNS[name].gender]
    pronoun = PRONOUNS["they"] if thing.agreement == 4 else IT._replace(de=(german, german, german))
    degree = speaker.degree(adjective, excess=1 if negated else 0)
    return main, Clause(pronoun, TO_BE, "simple", goal=predicate(adjective, name, degree))


def although(speaker: Speaker) -> Sentence:
    """The man is working although he is tired."""
    form = speaker.pick(("progressive", "progressive", "past"))
    main = speaker.clause(IN_SPITE, _somebody_with_pronoun(speaker), (form,), False, timed=0.3)
    reason = _state(main.subject, speaker.pick(("tired", "ill", "hungry")), "past" if form == "past" else "simple")
    en, de = f"{main.english()} although {reason.english()}", f"{main.german()}, obwohl {reason.german_subordinate()}"
    return sentence(en, de, ".", main, reason)


def if_weather(speaker: Speaker) -> Sentence:
    """If it rains, the man stays at home; or the other way round."""
    condition, bedingung, verbs = speaker.pick(WEATHER)
    main = speaker.clause(verbs, forms=("simple",), negated=False, inverted=True, timed=0)
    if main.goal.en:
        main = main._replace(goal=speaker.where_to(speaker.pick(("park", "lake", "beach", "river")), main.subject))
    if speaker.chance(0.5):
        en, de = f"if {condition}, {main.english()}", f"wenn {bedingung}, {main.german_inverted()}"
    else:
        en, de = f"{main.english()} if {condition}", f"{main.german()}, wenn {bedingung}"
    return sentence(en, de, ".", main)


def if_time(speaker: Speaker) -> Sentence:
    """If the man has time, he will read the book."""
    subject = _somebody_with_pronoun(speaker)
    condition = Clause(subject, HAVE, "simple", objects=((noun_phrase(NOUNS["time"], ""), ACCUSATIVE),))
    pronoun = PRONOUN_OF[subject.possessive]
    main = speaker.clause(MODAL, pronoun, (speaker.pick(("will", "will", "can")),), False, inverted=True, timed=0.2)
    en = f"if {condition.english()}, {main.english()}"
    de = f"wenn {condition.german_subordinate()}, {main.german_inverted()}"
    return sentence(en, de, ".", condition, main)


def two_at_once(speaker: Speaker) -> Sentence:
    """The man is reading while the child sleeps; and, but."""
    conjunction, german = speaker.pick(CONJUNCTIONS)
    first = speaker.clause(DOING, forms=("progressive",), negated=False, timed=0)
    second = speaker.clause(DOING, forms=("progressive",), negated=False, timed=0)
    while second.subject == first.subject:
        second = speaker.clause(DOING, forms=("progressive",), negated=False, timed=0)
    other = second.german_subordinate() if conjunction == " while" else second.german()
    return sentence(
        f"{first.english()}{conjunction} {second.english()}", f"{first.german()}{german} {other}", ".", first, second
    )


def _somebody_with_pronoun(speaker: Speaker) -> NP:
    """Not a child or a girl, which the two languages take up by different pronouns."""
    subject = speaker.person(described=0.1)
    while not subject.possessive:
        subject = speaker.person(described=0.1)
    return subject
