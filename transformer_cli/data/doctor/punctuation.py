"""Punctuation that is common in the text to translate and rare in the training text.

A model writes what its training text has: one that has learned `'n` does not write `’n`, and each of these counts as a
wrong word in BLEU. The same goes for “ and ", for – and -, and for full-width marks in Chinese.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_SHARE = 0.01  # of the lines, from which a mark is common
_TIMES = 5  # how much more common it must be than in training, to be rare there
_LINES = 20  # with the mark, as they are or as training would have them: fewer may be chance


class First(NamedTuple):
    """The first line with a mark."""

    file: str
    number: int
    text: str


@dataclass
class Punctuation:
    """The marks of one side of a set, each with the number of lines that have it."""

    total: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    first: dict[str, First] = field(default_factory=dict)

    def add(self, file: str, number: int, text: str) -> None:
        """Count the marks of a line."""
        self.total += 1
        for mark in set(text):
            if mark.isalnum() or unicodedata.category(mark)[0] not in "PS":
                continue
            if mark not in self.lines:
                self.lines[mark] = 0
                self.first[mark] = First(file, number, text)
            self.lines[mark] += 1

    def share(self, mark: str) -> float:
        """Share of the lines that have the mark."""
        return self.lines.get(mark, 0) / max(self.total, 1)


def rare_in_training(found: Punctuation, training: Punctuation) -> Iterator[str]:
    """The marks that are common in `found` and rare in `training`, the most common first."""
    for mark, lines in sorted(found.lines.items(), key=lambda counted: (-counted[1], counted[0])):
        share = found.share(mark)
        enough = lines >= _LINES and share * training.total >= _LINES
        if enough and share >= _SHARE and _TIMES * training.share(mark) < share:
            yield mark
