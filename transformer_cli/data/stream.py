"""Read a streamed set window by window; at most two windows are in memory, as token ids.

An epoch reads the shards of the set in an order drawn from (seed, epoch). A window is the next `shuffle_buffer`
records; pairs are shuffled and grouped by length within it. With n processes, each process reads an equal number of
whole shards. Of the remaining shards, fewer than n, each process reads every n-th record. A position in the stream is
the start of a window, given by a few numbers.
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
from transformer_cli.data.split import Splits
from transformer_cli.data.tokenizer import Tokenizers

_SAMPLED_AT_ONCE = 8  # shards read in turn for the training sample of the tokenizer


@dataclass(frozen=True)
class Position:
    """The position of a process in an epoch: the record where a window begins."""

    epoch: int = 0
    window: int = 0
    shard: int = 0
    """Index into the shards that this process reads in the epoch."""
    record: int = 0
    """Index into the records that it reads of the shard."""
    counts: FilterCounts = field(default_factory=FilterCounts)
    """Counts of the epoch so far."""

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "Position":
        """The position that `to_plain` described."""
        return cls(**{**values, "counts": FilterCounts(**values["counts"])})


class Window(NamedTuple):
    """Pairs that are shuffled and batched together; may be empty after filtering."""

    begin: Position
    end: Position
    dataset: TokenDataset


class _Slice(NamedTuple):
    """The part of a shard that a process reads: every `step`-th record from `start` on."""

    shard: int
    start: int
    step: int


class Stream:
    """The streamed set of a configuration. DataError if it cannot be loaded."""

    def __init__(self, hub: HubSet, config: Config, splits: Splits) -> None:
        """`splits` provides the validation and test sets for the filter `overlap`."""
        self._set = HubStream(hub)
        self._config = config
        self._size = hub.shuffle_buffer
        self._evaluated = splits.evaluated() if config.data.filters.overlap else set()
        self._closed = False

    @property
    def shards(self) -> int:
        """Number of shards of the set; a shard is usually a file."""
        return self._set.shards

    def sample(self, pairs: int) -> Iterator[Pair]:
        """At most `pairs` pairs that pass the filters, taken in turn from the starts of several shards, then from
        further shards once these are exhausted."""
        order = np.random.default_rng(self._config.seed).permutation(self.shards).tolist()
        groups = (order[i : i + _SAMPLED_AT_ONCE] for i in range(0, len(order), _SAMPLED_AT_ONCE))
        in_turn = chain.from_iterable(
            _in_turn([self._pairs(_Slice(shard, 0, 1)) for shard in group]) for group in groups
        )
        return islice(self._filtered(in_turn, FilterCounts()), pairs)

    def windows(
        self, begin: Position, tokenizers: Tokenizers, threads: int, rank: int = 0, processes: int = 1
    ) -> Iterator[Window]:
        """The windows that the process `rank` reads of an epoch, from a position on. DataError if a record cannot be
        read."""
        slices = self._slices(begin.epoch, rank, processes)
        at = begin.shard, begin.record

        def pairs() -> Iterator[Pair]:
            nonlocal at
            for number in range(begin.shard, len(slices)):
                before = begin.record if number == begin.shard else 0
                for taken, pair in enumerate(self._pairs(slices[number], before), before + 1):
                    at = number, taken
                    yield pair

        remaining = pairs()
        while True:
            counts = replace(begin.counts)
            read = self._filtered(islice(remaining, self._size), counts)
            dataset = joined(encode_chunks(read, tokenizers, counts, self._config.data.max_length, threads))
            if counts.read == begin.counts.read:
                return
            end = Position(begin.epoch, begin.window + 1, *at, counts)
            yield Window(begin, end, dataset)
            begin = end

    def report(self) -> None:
        """Log what was changed in the records read since the last report."""
        self._set.report()

    def close(self) -> None:
        """Stop reading, in any thread, at the next record."""
        self._closed = True

    def _slices(self, epoch: int, rank: int, processes: int) -> list[_Slice]:
        order = np.random.default_rng([self._config.seed, epoch]).permutation(self.shards).tolist()
        whole = self.shards - self.shards % processes
        own = [_Slice(shard, 0, 1) for shard in order[rank:whole:processes]]
        return own + [_Slice(shard, rank, processes) for shard in order[whole:]]

    def _pairs(self, slice_: _Slice, taken: int = 0) -> Iterator[Pair]:
        for record in self._set.records(slice_.shard, slice_.start + taken * slice_.step, slice_.step):
            if self._closed:
                return
            yield Pair(record.source, record.target)

    def _filtered(self, pairs: Iterator[Pair], counts: FilterCounts) -> Iterator[Pair]:
        return drop_chosen(drop_empty(pairs, counts), self._config.data, self._evaluated, SeenPairs(), counts)


def _in_turn(several: list[Iterator[Pair]]) -> Iterator[Pair]:
    """Take one pair of each iterator in turn until all are exhausted."""
    while several:
        remaining = []
        for pairs in several:
            if (pair := next(pairs, None)) is not None:
                yield pair
                remaining.append(pairs)
        several = remaining
