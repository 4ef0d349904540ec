"""Split the text of an experiment into training, validation and test sets.

A validation or test set is either corpora of its own or `{hold_out: N}`: N pairs of the training corpora, chosen by a
hash of (seed, source text). The choice does not depend on the order of the lines. Pairs with equal sources stay
together, also if the sources differ only in spaces or in the composition of characters, so that no held-out source is
trained on. For this reason a set can be slightly larger than N.
"""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from transformer_cli.config.corpora import CorporaOrHoldOut
from transformer_cli.config.schema import Config, HoldOut
from transformer_cli.data.corpus import Pair, read_corpus, read_pairs
from transformer_cli.data.filters import FilterCounts, SeenPairs, drop_chosen, drop_empty
from transformer_cli.data.lines import Errors
from transformer_cli.data.tokenizer import canonical
from transformer_cli.errors import ConfigError, DataError


def sets_beside_training(config: Config) -> dict[str, CorporaOrHoldOut]:
    """The validation and test sets by their configuration keys."""
    data = config.data
    return {"data.valid": data.valid} | {f"data.test.{name}": part for name, part in data.test.items()}


class Splits:
    """The training, validation and test pairs of a configuration. Held-out pairs are selected on construction.

    If `errors` or `data.errors` is `replace`, bytes that are not UTF-8 become U+FFFD. The argument `held_out` is an
    earlier result of `held_out()` for the same configuration; it saves two passes over the training text.
    """

    def __init__(self, config: Config, errors: Errors = "strict", held_out: Mapping[str, Any] | None = None) -> None:
        self._config = config
        self._errors: Errors = "replace" if "replace" in (errors, config.data.errors) else "strict"
        data = config.data
        self._sets = sets_beside_training(config)
        sizes = {key: part.hold_out for key, part in self._sets.items() if isinstance(part, HoldOut)}
        self._ranges: dict[str, tuple[int, int]] = {}
        self._held: dict[str, list[Pair]] = {}
        if held_out is not None:
            self._ranges = {key: (first, last) for key, (first, last) in held_out["ranges"].items()}
            self._held = {key: [Pair(*pair) for pair in pairs] for key, pairs in held_out["pairs"].items()}
        elif sizes:
            self._ranges = self._choose(sizes)
            self._held = {key: [] for key in self._ranges}
            for pair in drop_empty(read_pairs(data.train, self._errors), FilterCounts()):
                if key := self._set_of(pair.source):
                    self._held[key].append(pair)

    def held_out(self) -> dict[str, Any]:
        """The held-out pairs and their ranges of hashes, as plain values."""
        return {"ranges": self._ranges, "pairs": self._held}

    def train(self, counts: FilterCounts) -> Iterator[Pair]:
        """The training pairs: those with text on both sides that are not held out and pass the filters of the
        configuration. Updates `counts`."""
        return chain.from_iterable(self.train_by_corpus(counts))

    def train_by_corpus(self, counts: FilterCounts) -> Iterator[Iterator[Pair]]:
        """The pairs of `train`, one iterator for each corpus of data.train. Exhaust each before taking the next."""
        data = self._config.data
        evaluated = self.evaluated() if data.filters.overlap else ()
        seen = SeenPairs()
        for corpus in data.train:
            pairs = self._not_held_out(drop_empty(read_corpus(corpus, self._errors), counts), counts)
            yield drop_chosen(pairs, data, evaluated, seen, counts)

    def valid(self) -> list[Pair]:
        """The validation set. DataError if it has no lines."""
        return self._pairs("data.valid")

    def tests(self) -> dict[str, list[Pair]]:
        """The test sets by name. DataError if one has no lines."""
        return {name: self._pairs(f"data.test.{name}") for name in self._config.data.test}

    def evaluated(self) -> set[str]:
        """The sources of the validation and test sets, in `canonical` form."""
        return {canonical(pair.source) for part in (self.valid(), *self.tests().values()) for pair in part}

    def _not_held_out(self, pairs: Iterator[Pair], counts: FilterCounts) -> Iterator[Pair]:
        for pair in pairs:
            if self._set_of(pair.source):
                counts.held_out += 1
            else:
                yield pair

    def _pairs(self, key: str) -> list[Pair]:
        part = self._sets[key]
        pairs = self._held[key] if isinstance(part, HoldOut) else list(read_pairs(part, self._errors))
        if not pairs:
            raise DataError(f"{key} has no lines")
        return pairs

    def _choose(self, sizes: dict[str, int]) -> dict[str, tuple[int, int]]:
        """For each set an inclusive range of hashes that contains the wanted number of pairs, or a few more; the ranges
        are consecutive."""
        pairs = drop_empty(read_pairs(self._config.data.train, self._errors), FilterCounts())
        hashes = np.sort(np.fromiter((self._hash(pair.source) for pair in pairs), dtype=np.uint64))
        ranges: dict[str, tuple[int, int]] = {}
        first = 0
        for key, size in sizes.items():
            if first + size >= len(hashes):
                raise ConfigError(
                    f"{key}: hold_out {size} leaves nothing to train on: data.train has {len(hashes):,} pairs with text"
                )
            last = hashes[first + size - 1]
            ranges[key] = int(hashes[first]), int(last)
            first = int(np.searchsorted(hashes, last, side="right"))
        return ranges

    def _set_of(self, source: str) -> str | None:
        """The key of the set that a source is held out for; None if it is not held out."""
        if not self._ranges:
            return None
        value = self._hash(source)
        return next((key for key, (first, last) in self._ranges.items() if first <= value <= last), None)

    def _hash(self, source: str) -> int:
        digest = hashlib.blake2b(
            f"{self._config.seed} {canonical(source)}".encode("utf-8", "surrogatepass"), digest_size=8
        ).digest()
        return int.from_bytes(digest, "little")
