"""The grammar of the demo corpus: noun phrases and clauses, each built in both languages at once.

Nothing here is random: others decide what is said, this module how. English "you" is always one person called "du".
"""

from functools import cache
from typing import NamedTuple

from transformer_cli.data.demo.lexicon import AT_PLACE, CITIES, NAMES, TWO_WAY
from transformer_cli.data.demo.words import HABEN, PLACES, SEIN, Adjective, Cases, Noun, Pair, Verb, words

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)

# By gender (p: plural of all three), in the order of the cases. German has one set of endings for "der", one for
# "dieser", one for "ein"; the adjective after them is weak, weak, mixed, and strong where no article stands.
DER = {"m": ("der", "den", "dem"), "f": ("die", "die", "der"), "n": ("das", "das", "dem"), "p": ("die", "die", "den")}
DIESER = {"m": ("er", "en", "em"), "f": ("e", "e", "er"), "n": ("es", "es", "em"), "p": ("e", "e", "en")}
EIN = {"m": ("", "en", "em"), "f": ("e", "e", "er"), "n": ("", "", "em"), "p": ("e", "e", "en")}
WEAK = {"m": ("e", "en", "en"), "f": ("e", "e", "en"), "n": ("e", "e", "en"), "p": ("en", "en", "en")}
MIXED = {"m": ("er", "en", "en"), "f": ("e", "e", "en"), "n": ("es", "es", "en"), "p": ("en", "en", "en")}
STRONG = {"m": ("er", "en", "em"), "f": ("e", "e", "er"), "n": ("es", "es", "em"), "p": ("e", "e", "en")}
POSSESSIVES = {"my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr"}
EIN_WORDS = {"a": "ein", "no": "kein", **POSSESSIVES}
QUANTITIES = {"many": "viel", "how many": "wie viel"}

# The columns are I, you, he (she, it), we, they; so are those of Verb.present and NP.agreement.
BE = ("am", "are", "is", "are", "are")
WAS = ("was", "were", "was", "were", "were")
# Where German prefers the simple past to the perfect.
PRETERITE = {
    "haben": ("hatte", "hattest", "hatte", "hatten", "hatten"),
    "sein": ("war", "warst", "war", "waren", "waren"),
}
# Form of a clause: English auxiliary, what follows it, German verb. With "do" and "did" the auxiliary shows only in
# questions and negations.
MODALS = {
    "will": ("will", "", ("werde", "wirst", "wird", "werden", "werden")),
    "can": ("can", "", ("kann", "kannst", "kann", "können", "können")),
    "may": ("may", "", ("darf", "darfst", "darf", "dürfen", "dürfen")),
    "must": ("must", "", ("muss", "musst", "muss", "müssen", "müssen")),
    "shall": ("shall", "", ("soll", "sollst", "soll", "sollen", "sollen")),
    "should": ("should", "", ("sollte", "solltest", "sollte", "sollten", "sollten")),
    "would like": ("would", "like to", ("möchte", "möchtest", "möchte", "möchten", "möchten")),
    "be allowed": ("be", "allowed to", ("darf", "darfst", "darf", "dürfen", "dürfen")),
    "want": ("do", "want to", ("will", "willst", "will", "wollen", "wollen")),
    "wanted": ("did", "want to", ("wollte", "wolltest", "wollte", "wollten", "wollten")),
    "like": ("do", "like to", ()),  # "gern" in German, an adverb
    "had": ("did", "have to", ("musste", "musstest", "musste", "mussten", "mussten")),
}
LEADS = {
    "want to": ("want to", "wants to", "wanted to"),
    "have to": ("have to", "has to", "had to"),
    "like to": ("like to", "likes to", "liked to"),
}
CONTRACTIONS = {
    "in dem": "im", "in das": "ins", "an dem": "am", "an das": "ans", "zu dem": "zum", "zu der": "zur",
    "bei dem": "beim", "von dem": "vom",
}  # fmt: skip


class NP(NamedTuple):
    """A noun phrase or pronoun."""

    en: str
    de: Cases
    agreement: int = 2
    order: str = "definite"
    """pronoun, definite or indefinite: its place among the objects of a German clause."""
    noun: str = ""
    adjectives: tuple[str, ...] = ()
    possessive: str = ""
    """The English possessive of its own things: a boy's are "his"; empty where none is natural."""
    en_object: str = ""
    """Where it differs from the subject."""

    def pairs(self) -> tuple[Pair, ...]:
        """The adjective-noun pairs in it."""
        return tuple((adjective, self.noun) for adjective in self.adjectives)


class Phrase(NamedTuple):
    """An adverbial or a predicate, with the pairs in it."""

    en: str = ""
    de: str = ""
    pairs: tuple[Pair, ...] = ()


NONE = Phrase()


class Clause(NamedTuple):
    """What is said; the methods say it. `negated` gives "nicht" unless an indefinite object carries "kein"."""

    subject: NP
    verb: Verb
    form: str
    """progressive, simple, past, perfect, imperative or a key of MODALS."""
    negated: bool = False
    objects: tuple[tuple[NP, int], ...] = ()
    """With their German cases, in English order."""
    place: Phrase = NONE
    goal: Phrase = NONE
    """A direction or a predicate: last in the German middle field."""
    time: Phrase = NONE
    adverb: Phrase = NONE
    """Before the English verb: often, already."""

    def pairs(self) -> tuple[Pair, ...]:
        """All verb-object and adjective-noun pairs."""
        phrases = [*self.subject.pairs(), *self.place.pairs, *self.goal.pairs]
        for noun_phrase, _ in self.objects:
            phrases += noun_phrase.pairs()
            if noun_phrase.noun:
                phrases.append((self.verb.en, noun_phrase.noun))
        return tuple(phrases)

    def english(self) -> str:
        """In the order of a statement."""
        auxiliary, verb = _english_verb(self.verb, self.subject.agreement, self.form, supported=self.negated)
        if self.negated:
            auxiliary = "cannot" if auxiliary == "can" else f"{auxiliary} not"
        return words(self.subject.en, auxiliary, self.adverb.en, verb, self._english_rest())

    def english_question(self) -> str:
        """In the order of a question, without its mark."""
        auxiliary, verb = _english_verb(self.verb, self.subject.agreement, self.form, supported=True)
        negation = "not" if self.negated else ""
        return words(auxiliary, self.subject.en, negation, self.adverb.en, verb, self._english_rest())

    def english_imperative(self) -> str:
        """Without its mark."""
        return words("do not" if self.negated else "", self.verb.en, self._english_rest())

    def german(self) -> str:
        """In the order of a statement: the finite verb second."""
        finite, tail, _ = self._german_verb()
        return words(self.subject.de[NOMINATIVE], finite, self._middle(), tail)

    def german_inverted(self) -> str:
        """Finite verb before the subject: after a first phrase, and in questions."""
        finite, tail, _ = self._german_verb()
        return words(finite, self.subject.de[NOMINATIVE], self._middle(), tail)

    def german_subordinate(self) -> str:
        """Finite verb last, a separable prefix joined to it."""
        return words(self.subject.de[NOMINATIVE], self._middle(), self._german_verb()[2])

    def german_imperative(self) -> str:
        """Without its mark."""
        return words(self.verb.imperative, self._middle(), self.verb.prefix)

    def _english_rest(self) -> str:
        objects = [noun_phrase.en_object or noun_phrase.en for noun_phrase, _ in self.objects]
        return words(*objects, self.place.en, self.goal.en, self.time.en)

    def _middle(self) -> str:
        """Between the two parts of the German verb: what is known, time, negation, place, what is new."""
        pronouns, known, new = [], [], []
        for phrase, case in sorted(self.objects, key=lambda entry: -entry[1]):
            # The second of two objects waits for the time, unless "nicht" must follow it.
            second = case == ACCUSATIVE and len(self.objects) == 2 and not self.negated
            if phrase.order == "pronoun":
                pronouns.append(phrase.de[case])
            elif phrase.order == "definite" and not second:
                known.append(phrase.de[case])
            else:
                new.append(phrase.de[case])
        negation = "nicht" if self.negated and not new else ""
        return words(*pronouns, *known, self.time.de, self.adverb.de, negation, self.place.de, *new, self.goal.de)

    def _german_verb(self) -> tuple[str, str, str]:
        """The finite verb; what closes a main clause; what closes a subordinate one."""
        verb, agreement = self.verb, self.subject.agreement
        if self.form in MODALS and self.form != "like":
            finite, end = MODALS[self.form][2][agreement], verb.infinitive
        elif self.form in ("past", "perfect") and verb.infinitive in PRETERITE:
            finite, end = PRETERITE[verb.infinitive][agreement], ""
        elif self.form in ("past", "perfect"):
            finite, end = (HABEN if verb.auxiliary == "hat" else SEIN)[agreement], verb.participle
        else:
            finite = verb.present[agreement]
            return finite, verb.prefix, verb.prefix + finite
        return finite, end, words(end, finite)


def _do(agreement: int, past: bool, supported: bool, forms: tuple[str, str, str]) -> tuple[str, str]:
    """Auxiliary and verb, where English needs "do" in questions and negations; `forms` are base, s and past."""
    if supported:
        return "did" if past else "does" if agreement == 2 else "do", forms[0]
    return "", forms[2] if past else forms[1] if agreement == 2 else forms[0]


def _english_verb(verb: Verb, agreement: int, form: str, supported: bool) -> tuple[str, str]:
    if verb.en == "be" and form not in MODALS:
        return (WAS if form == "past" else BE)[agreement], ""
    if form == "progressive":
        return BE[agreement], verb.en_forms["ing"]
    if form == "perfect":
        return "has" if agreement == 2 else "have", verb.en_forms["participle"]
    if form not in MODALS:
        forms = verb.en_forms["base"], verb.en_forms["s"], verb.en_forms["past"]
        return _do(agreement, form == "past", supported, forms)
    auxiliary, lead, _ = MODALS[form]
    if auxiliary == "be":
        auxiliary = BE[agreement]
    elif auxiliary in ("do", "did"):
        auxiliary, lead = _do(agreement, auxiliary == "did", supported, LEADS[lead])
    return auxiliary, words(lead, verb.en)


@cache
def _determiner(determiner: str, gender: str) -> tuple[Cases, Cases]:
    """The German forms of an English determiner and the endings of an adjective after it."""
    if determiner == "the":
        return DER[gender], WEAK[gender]
    if determiner in ("this", "these"):
        stem, endings, adjective = "dies", DIESER, WEAK
    elif determiner == "which":
        stem, endings, adjective = "welch", DIESER, WEAK
    elif determiner in QUANTITIES:
        stem, endings, adjective = QUANTITIES[determiner], DIESER, STRONG
    elif determiner in EIN_WORDS:
        stem, endings, adjective = EIN_WORDS[determiner], EIN, MIXED
    else:
        stem, endings, adjective = determiner, {gender: ("", "", "")}, STRONG
    nominative, accusative, dative = (stem + ending for ending in endings[gender])
    return (nominative, accusative, dative), adjective[gender]


@cache
def noun_phrase(
    noun: Noun,
    determiner: str,
    adjectives: tuple[Adjective, ...] = (),
    plural: bool = False,
    german_determiner: str = "",
) -> NP:
    """`determiner` is English, or empty; `german_determiner`, where given, decides the German instead (no: kein)."""
    forms, endings = _determiner(german_determiner or determiner, "p" if plural else noun.gender)
    nouns = noun.de_plural if plural else noun.de
    nominative, accusative, dative = [
        words(forms[case], *[adjective.de_stem + endings[case] for adjective in adjectives], nouns[case])
        for case in range(3)
    ]
    rest = words(*[adjective.en for adjective in adjectives], noun.en_plural if plural else noun.en)
    indefinite = determiner not in ("the", "this", "these") and determiner not in POSSESSIVES
    owner = {"m": "his", "f": "her"}.get(noun.gender, "") if noun.kind in ("kin", "people") else ""
    return NP(
        en=words("an" if determiner == "a" and rest[0] in "aeiou" else determiner, rest),
        de=(nominative, accusative, dative),
        agreement=4 if plural else 2,
        order="indefinite" if indefinite else "definite",
        noun=noun.en,
        adjectives=tuple([adjective.en for adjective in adjectives]),
        possessive="their" if plural else owner,
    )


def predicate(adjective: Adjective, noun: str, degree: Phrase = NONE) -> Phrase:
    """An adjective after "to be", said of `noun` (which may be empty)."""
    pairs = ((adjective.en, noun),) if noun else ()
    return Phrase(words(degree.en, adjective.en), words(degree.de, adjective.de), pairs)


def prepositional(en: str, de: str, noun_phrase: NP, case: int) -> Phrase:
    """A preposition with its noun phrase; "in dem" becomes "im"."""
    german = f"{de} {noun_phrase.de[case]}"
    start = " ".join(german.split()[:2])
    if start in CONTRACTIONS:
        german = CONTRACTIONS[start] + german[len(start) :]
    return Phrase(f"{en} {noun_phrase.en_object or noun_phrase.en}", german, noun_phrase.pairs())


def comparison(adjective: Adjective, noun: str, other: NP) -> Phrase:
    """More so than another, said of `noun`."""
    english = f"{adjective.en_comparative} than {other.en}"
    german = f"{adjective.de_comparative} als {other.de[NOMINATIVE]}"
    return Phrase(english, german, ((adjective.en, noun),))


def joined(first: Phrase, second: Phrase) -> Phrase:
    """Two phrases, one after the other in both languages."""
    return Phrase(words(first.en, second.en), words(first.de, second.de), first.pairs + second.pairs)


def place(noun_phrase: NP) -> Phrase:
    """Where something is."""
    return prepositional(AT_PLACE.get(noun_phrase.noun, "in"), PLACES[noun_phrase.noun][0], noun_phrase, DATIVE)


def goal(noun_phrase: NP) -> Phrase:
    """Where something goes."""
    preposition = PLACES[noun_phrase.noun][1]
    return prepositional("to", preposition, noun_phrase, DATIVE if preposition == "zu" else ACCUSATIVE)


def two_way(preposition: str, noun_phrase: NP, case: int) -> Phrase:
    """On, under, next to …: dative where something is, accusative where it goes."""
    return prepositional(preposition, TWO_WAY[preposition], noun_phrase, case)


NAME_PHRASES = [NP(name, (name, name, name), possessive=possessive) for name, possessive in NAMES.items()]
CITY_PLACES = {en: (Phrase(f"in {en}", f"in {de}"), Phrase(f"to {en}", f"nach {de}")) for en, de in CITIES.items()}
PRONOUNS = {
    "I": NP("I", ("ich", "mich", "mir"), 0, "pronoun", possessive="my", en_object="me"),
    "you": NP("you", ("du", "dich", "dir"), 1, "pronoun", possessive="your"),
    "he": NP("he", ("er", "ihn", "ihm"), 2, "pronoun", possessive="his", en_object="him"),
    "she": NP("she", ("sie", "sie", "ihr"), 2, "pronoun", possessive="her", en_object="her"),
    "we": NP("we", ("wir", "uns", "uns"), 3, "pronoun", possessive="our", en_object="us"),
    "they": NP("they", ("sie", "sie", "ihnen"), 4, "pronoun", possessive="their", en_object="them"),
}
IT = NP("it", ("es", "es", "ihm"), 2, "pronoun")
WHO = NP("who", ("wer", "wen", "wem"), 2, "pronoun")
