"""A streamed set, read window by window: no more of it is ever held than two windows, as token ids.

An epoch goes through the shards of the set in an order drawn from (seed, epoch). The next `shuffle_buffer` records of
it are a window, within which pairs are shuffled and put together by length. Of several processes each reads shards of
its own, as many as the others; of shards that are left over, and where there are fewer than processes of all of them,
each takes every n-th record. A place in the stream is where a window begins, which is told by a few numbers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from transformer_cli.config.schema import Config, HubSet
from transformer_cli.data.corpus import Pair
from transformer_cli.data.dataset import TokenDataset, encode_chunks, joined
from transformer_cli.data.filters import FilterCounts, SeenPairs, drop_chosen, drop_empty
from transformer_cli.data.formats import HubStream
from transformer_cli.data.split import Text
from transformer_cli.data.tokenizer import Tokenizers

_SAMPLED_AT_ONCE = 8  # shards that are open while the tokenizer's sample is taken


@dataclass(frozen=True)
class Place:
    """Where a process stands in an epoch: before a record, which is the beginning of a window."""

    epoch: int = 0
    window: int = 0
    shard: int = 0
    """Of those that this process reads in the epoch."""
    record: int = 0
    """Of those that it takes from the shard."""
    counts: FilterCounts = field(default_factory=FilterCounts)
    """Of the epoch until here."""

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "Place":
        """The place that `to_plain` described."""
        return cls(**{**values, "counts": FilterCounts(**values["counts"])})


class Window(NamedTuple):
    """Pairs that are batched together. There can be none, where the filters let none through."""

    begin: Place
    end: Place
    dataset: TokenDataset


class _Part(NamedTuple):
    """What a process reads of a shard: every `step`-th record from `start` on."""

    shard: int
    start: int
    step: int


class Stream:
    """The streamed set of a configuration. DataError if it cannot be had."""

    def __init__(self, hub: HubSet, config: Config, text: Text) -> None:
        """`text` knows the validation and test sets."""
        self._set = HubStream(hub)
        self._config = config
        self._size = hub.shuffle_buffer
        self._evaluated = text.evaluated() if config.data.filters.overlap else set()
        self._closed = False

    @property
    def shards(self) -> int:
        """The pieces that the set is made of, files as a rule."""
        return self._set.shards

    def sample(self, pairs: int) -> Iterator[Pair]:
        """At most so many pairs that go through the filters: the first ones of several shards, in turn, and of others
        when these are at their ends."""
        order = np.random.default_rng(self._config.seed).permutation(self.shards).tolist()
        groups = (order[i : i + _SAMPLED_AT_ONCE] for i in range(0, len(order), _SAMPLED_AT_ONCE))
        in_turn = chain.from_iterable(
            _in_turn([self._pairs(_Part(shard, 0, 1)) for shard in group]) for group in groups
        )
        return islice(self._filtered(in_turn, FilterCounts()), pairs)

    def windows(
        self, begin: Place, tokenizers: Tokenizers, threads: int, rank: int = 0, processes: int = 1
    ) -> Iterator[Window]:
        """What one of several processes reads of an epoch, from a place on. DataError where a record cannot be read."""
        parts = self._parts(begin.epoch, rank, processes)
        at = begin.shard, begin.record

        def pairs() -> Iterator[Pair]:
            nonlocal at
            for number in range(begin.shard, len(parts)):
                before = begin.record if number == begin.shard else 0
                for taken, pair in enumerate(self._pairs(parts[number], before), before + 1):
                    at = number, taken
                    yield pair

        remaining = pairs()
        while True:
            counts = replace(begin.counts)
            read = self._filtered(islice(remaining, self._size), counts)
            dataset = joined(encode_chunks(read, tokenizers, counts, self._config.data.max_length, threads))
            if counts.read == begin.counts.read:
                return
            end = Place(begin.epoch, begin.window + 1, *at, counts)
            yield Window(begin, end, dataset)
            begin = end

    def report(self) -> None:
        """Tell what had to be changed in the records read since the last time."""
        self._set.report()

    def close(self) -> None:
        """End what another thread may be reading at the next record."""
        self._closed = True

    def _parts(self, epoch: int, rank: int, processes: int) -> list[_Part]:
        order = np.random.default_rng([self._config.seed, epoch]).permutation(self.shards).tolist()
        whole = self.shards - self.shards % processes
        own = [_Part(shard, 0, 1) for shard in order[rank:whole:processes]]
        return own + [_Part(shard, rank, processes) for shard in order[whole:]]

    def _pairs(self, part: _Part, taken: int = 0) -> Iterator[Pair]:
        for record in self._set.records(part.shard, part.start + taken * part.step, part.step):
            if self._closed:
                return
            yield Pair(record.source, record.target)

    def _filtered(self, pairs: Iterator[Pair], counts: FilterCounts) -> Iterator[Pair]:
        return drop_chosen(drop_empty(pairs, counts), self._config.data, self._evaluated, SeenPairs(), counts)


def _in_turn(several: list[Iterator[Pair]]) -> Iterator[Pair]:
    """One of each, then the next of each, as long as there are any."""
    while several:
        remaining = []
        for pairs in several:
            if (pair := next(pairs, None)) is not None:
                yield pair
                remaining.append(pairs)
        several = remaining
