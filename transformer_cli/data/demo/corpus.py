"""Training, validation and test sentences of the demo, with pairs of words kept out of all but the test.

A pair is a verb with its object or an adjective with its noun. Of the pairs that make sense, some are reserved: no
training or validation sentence contains one, though each of its words is frequent there. A model that has learned
words and grammar translates them; one that has learned phrases by heart does not.
"""

from collections import Counter
from dataclasses import dataclass

from transformer_cli.data.demo import joined, simple
from transformer_cli.data.demo.simple import Sentence
from transformer_cli.data.demo.speaker import Speaker
from transformer_cli.data.demo.words import NOUN_ADJECTIVES, VERBS, Pair

TRAIN, VALID, TEST_SEEN, TEST_NEW = 20_000, 500, 700, 350
SHORTEST, LONGEST = 3, 16
RESERVED = 0.12
"""The share of the pairs that is reserved."""
ASIDE = 15
"""One sentence in so many is kept for validation and test."""
FAMILIAR = 5
"""A word form of a validation or test sentence stands at least so often in the training sentences."""
FREQUENT = 20
"""The words of a reserved pair that is tested stand at least so often in pairs of the training sentences."""

# The kinds of sentence, each with how often it is drawn.
KINDS_OF_SENTENCE = [
    kind
    for kind, times in (
        (simple.statement, 30),
        (simple.time_first, 10),
        (simple.question, 10),
        (simple.question_word, 8),
        (simple.order, 5),
        (simple.existence, 3),
        (simple.who, 2),
        (simple.permission, 2),
        (simple.price, 2),
        (simple.timetable, 2),
        (simple.owner, 1),
        (simple.weather, 1),
        (simple.age, 1),
        (joined.because, 8),
        (joined.that, 6),
        (joined.whether, 5),
        (joined.two_at_once, 4),
        (joined.if_weather, 3),
        (joined.if_time, 2),
        (joined.although, 2),
    )
    for _ in range(times)
]


@dataclass(frozen=True)
class DemoCorpus:
    """Pairs (English, German); no English sentence stands in it twice."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test_seen: list[tuple[str, str]]
    """Each verb-object and adjective-noun pair stands in a training sentence."""
    test_new: list[tuple[str, str]]
    """At least one such pair stands in no training or validation sentence."""


def make_demo(seed: int = 1) -> DemoCorpus:
    """The corpus of this seed, the same on every machine."""
    speaker = Speaker(seed)
    reserved = _reserved_pairs(speaker)
    train: list[Sentence] = []
    aside: list[Sentence] = []
    new: list[Sentence] = []
    drawn: set[str] = set()
    while len(train) < TRAIN:
        sentence = speaker.pick(KINDS_OF_SENTENCE)(speaker)
        if sentence.en in drawn or not SHORTEST <= len(sentence.en.split()) <= LONGEST:
            continue
        drawn.add(sentence.en)
        if sentence.pairs & reserved:
            new.append(sentence)
        elif len(drawn) % ASIDE == 0:
            aside.append(sentence)
        else:
            train.append(sentence)
    familiar = _familiar_forms(train)
    known = Counter(pair for sentence in train for pair in sentence.pairs)
    counts: Counter[str] = Counter()
    for pair, count in known.items():
        counts.update(dict.fromkeys(pair, count))
    rare = {pair for pair in reserved if min(counts[word] for word in pair) < FREQUENT}
    aside = [sentence for sentence in aside if _forms(sentence) <= familiar and sentence.pairs <= known.keys()]
    new = [sentence for sentence in new if _forms(sentence) <= familiar and not sentence.pairs & rare]
    seen = aside[VALID : VALID + TEST_SEEN]
    new = new[:: len(new) // TEST_NEW][:TEST_NEW]
    return DemoCorpus(_texts(train), _texts(aside[:VALID]), _texts(seen), _texts(new))


def _reserved_pairs(speaker: Speaker) -> frozenset[Pair]:
    """Some of the pairs that the lexicon allows; words with few partners keep them all."""
    pairs = {(verb.en, noun): None for verbs in VERBS.values() for verb in verbs for noun in verb.objects}
    pairs |= {(adjective.en, noun): None for noun, adjectives in NOUN_ADJECTIVES.items() for adjective in adjectives}
    partners = Counter(word for pair in pairs for word in pair)
    return frozenset(pair for pair in pairs if min(partners[word] for word in pair) > 5 and speaker.chance(RESERVED))


def _forms(sentence: Sentence) -> set[str]:
    """The words of both sides as they stand, without punctuation; marked, since "warm" is a word of both languages."""
    return {f"en {word.strip(',.?!')}" for word in sentence.en.split()} | {
        f"de {word.strip(',.?!')}" for word in sentence.de.split()
    }


def _familiar_forms(sentences: list[Sentence]) -> set[str]:
    counts = Counter(form for sentence in sentences for form in _forms(sentence))
    return {form for form, count in counts.items() if count >= FAMILIAR}


def _texts(sentences: list[Sentence]) -> list[tuple[str, str]]:
    return [(sentence.en, sentence.de) for sentence in sentences]
