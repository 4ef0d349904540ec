"""Sentences worth reading: those whose changes over the validations are shown, and the best and worst."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from transformer_cli.evaluation.history import RunHistory, Sample
from transformer_cli.evaluation.scores import LOWER_IS_BETTER, Measure, sentence_scores

_STEPS = 6  # validations shown
_SENTENCES = 8  # sentences whose changes are shown
_EXTREMES = 5

# Units to compare: a character of a script without spaces, a word, or any other character.
_CLOSE = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
_UNITS = re.compile(f"[{_CLOSE}]|[^\\W{_CLOSE}]+(?:['\u2019-][^\\W{_CLOSE}]+)*|.")


class Rated(NamedTuple):
    """A sentence with its score."""

    sample: Sample
    score: float


class Story(NamedTuple):
    """A sentence and how its translation changed: (step, parts) per validation, each part with whether it is new."""

    source: str
    reference: str
    versions: list[tuple[int, list[tuple[str, bool]]]]


def stories(run: RunHistory) -> list[Story]:
    """Evenly spaced sentences of the validation set over evenly spaced validations, the first and the last included."""
    steps = evenly(list(run.sample_files), _STEPS)
    samples = {step: run.samples(step) for step in steps}
    count = min((len(found) for found in samples.values() if found), default=0)
    return [_story(samples, index) for index in evenly(range(count), _SENTENCES)]


def _story(samples: dict[int, list[Sample]], index: int) -> Story:
    versions: list[tuple[int, list[tuple[str, bool]]]] = []
    before: str | None = None
    for step, found in samples.items():
        if found:
            sample = found[index]
            versions.append((step, list(changes(sample.hypothesis if before is None else before, sample.hypothesis))))
            before = sample.hypothesis
    return Story(sample.source, sample.reference, versions)


def changes(before: str, after: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text in order, each with whether it is new. Words are compared, or characters in scripts without
    spaces."""
    old, new = (_UNITS.findall(text) for text in (before, after))
    for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for text in re.findall(r"\s+|\S+(?:\s+\S+)*", "".join(new[start:end])):
            yield text, kind != "equal" and not text.isspace()


def extremes(samples: Sequence[Sample], measure: Measure) -> tuple[list[Rated], list[Rated]]:
    """The best sentences by the first metric, best first, and the worst, worst first. Of equal ones, those with longer
    sources come first. No sentence is in both."""
    metric = measure.metrics[0]
    scores = sentence_scores(
        [one.hypothesis for one in samples], [[one.reference for one in samples]], [metric], *measure[1:]
    )
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    rated = [Rated(one, next(iter(found.values()))) for one, found in zip(samples, scores, strict=True)]
    best = sorted(rated, key=lambda one: (-sign * one.score, -len(one.sample.source)))
    worst = sorted(rated, key=lambda one: (sign * one.score, -len(one.sample.source)))
    few = min(_EXTREMES, len(rated) // 2)
    return best[:few], worst[:few]


def evenly(values: Sequence[int], most: int) -> list[int]:
    """At most `most` of the values, evenly spaced, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]
