"""The token ids of all pairs in flat arrays, without a Python object per sentence."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_cli.data.corpus import Pair
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.tokenizer import Ids, Tokenizers

_BARS = 30  # bars of a histogram, plus one for the longest 1 %
_CHUNK = 2_000  # pairs tokenised at a time; few enough to stay in the processor's cache


@dataclass(frozen=True)
class Sequences:
    """Concatenated sequences of ids: sequence i is ids[starts[i] : starts[i + 1]]."""

    ids: Ids
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Lengths of some sequences in pieces, without special ones."""
        return self.starts[indices + 1] - self.starts[indices]

    def every_length(self) -> NDArray[np.integer[Any]]:
        """Lengths of all sequences in pieces, in the smallest integer type that holds them."""
        lengths = np.diff(self.starts)
        return lengths.astype(np.min_scalar_type(lengths.max(initial=0) + 1))  # + 1: callers add the end symbol

    def length_statistics(self) -> dict[str, Any]:
        """Statistics of the lengths as plain values: `mean`, `median`, `most_of_99` (the 99th percentile), `longest`,
        and a histogram: `counts[i]` is the number of lengths from `width` x i on, the last bar being open-ended."""
        lengths = self.every_length()
        most = float(np.quantile(lengths, 0.99))
        width = math.ceil((most + 1) / _BARS)
        return {
            "mean": float(lengths.mean()),
            "median": float(np.median(lengths)),
            "most_of_99": most,
            "longest": int(lengths.max()),
            "width": width,
            "counts": np.bincount(np.minimum(lengths // width, _BARS)).tolist(),
        }


class CorpusPart(NamedTuple):
    """The number of pairs from one corpus, and how often each occurs in an epoch."""

    pairs: int
    weight: float


@dataclass(frozen=True)
class TokenDataset:
    """Pairs of sequences: pair i is source[i] and target[i]. No special ids are stored.

    `corpora` gives the size and weight of each corpus, in the order of the pairs; if empty, every pair occurs once in
    an epoch.
    """

    source: Sequences
    target: Sequences
    corpora: tuple[CorpusPart, ...] = ()

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(cls, columns: Mapping[str, Sequences]) -> "TokenDataset":
        """The dataset with these `columns`."""
        return cls(columns["source"], columns["target"])

    def columns(self) -> dict[str, Sequences]:
        """The sequences by field name."""
        return {"source": self.source, "target": self.target}

    def shares(self) -> str:
        """The share of each corpus in an epoch, in words."""
        drawn = [pairs * weight for pairs, weight in self.corpora]
        return ", ".join(
            f"{share / sum(drawn):.1%} of corpus {number} ({pairs:,} pairs x {weight:g})"
            for number, ((pairs, weight), share) in enumerate(zip(self.corpora, drawn, strict=True), start=1)
        )

    def sizes(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The length of each of some pairs in a batch: its longer side plus the end symbol."""
        return np.maximum(self.source.lengths(indices), self.target.lengths(indices)) + 1

    def longest(self, indices: NDArray[np.int64]) -> int:
        """The length of the longest side of some pairs, plus the end symbol."""
        return int(self.sizes(indices).max())

    def cells(self, indices: NDArray[np.int64]) -> int:
        """The size of some pairs as one batch, padding included: sentences x longest side."""
        return len(indices) * self.longest(indices)


def encode_pairs(
    pairs: Iterable[Pair], tokenizers: Tokenizers, counts: FilterCounts, max_length: int | None = None
) -> TokenDataset:
    """Tokenise pairs; drop and count those with an empty side or a side of more than `max_length` pieces."""
    return joined(encode_chunks(pairs, tokenizers, counts, max_length))


def encode_chunks(
    pairs: Iterable[Pair],
    tokenizers: Tokenizers,
    counts: FilterCounts,
    max_length: int | None = None,
    threads: int = 1,
) -> Iterator[TokenDataset]:
    """Like `encode_pairs`, in chunks of at most _CHUNK pairs.

    While SentencePiece tokenises one chunk in the background, the next chunk is read and the previous one filtered.
    """
    remaining = iter(pairs)
    with ThreadPoolExecutor(1) as background:
        running = None
        while chunk := list(islice(remaining, _CHUNK)):
            following = background.submit(_encode, chunk, tokenizers, threads)
            if running is not None:
                yield _kept(running.result(), counts, max_length)
            running = following
        if running is not None:
            yield _kept(running.result(), counts, max_length)


def _encode(chunk: list[Pair], tokenizers: Tokenizers, threads: int) -> TokenDataset:
    source = tokenizers.source.encode_flat([pair.source for pair in chunk], threads)
    target = tokenizers.target.encode_flat([pair.target for pair in chunk], threads)
    return TokenDataset(Sequences(*source), Sequences(*target))


def _kept(chunk: TokenDataset, counts: FilterCounts, max_length: int | None) -> TokenDataset:
    source, target = np.diff(chunk.source.starts), np.diff(chunk.target.starts)
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    empty = shorter == 0
    too_long = ~empty & (longer > max_length) if max_length is not None else np.zeros_like(empty)
    counts.empty += int(empty.sum())
    counts.too_long += int(too_long.sum())
    kept = ~(empty | too_long)
    if kept.all():
        return chunk
    return TokenDataset.of({name: _selected(column, kept) for name, column in chunk.columns().items()})


def _selected(sequences: Sequences, kept: NDArray[np.bool_]) -> Sequences:
    lengths = np.diff(sequences.starts)
    return Sequences(sequences.ids[np.repeat(kept, lengths)], _starts([lengths[kept]]))


def joined(chunks: Iterable[TokenDataset]) -> TokenDataset:
    """Concatenate chunks into one dataset in memory."""
    columns: dict[str, list[Sequences]] = {"source": [], "target": []}
    for chunk in chunks:
        for name, column in chunk.columns().items():
            columns[name].append(column)
    return TokenDataset.of({name: _joined(parts) for name, parts in columns.items()})


def _joined(parts: list[Sequences]) -> Sequences:
    ids: list[Ids] = [part.ids for part in parts] or [np.zeros(0, dtype=np.uint16)]
    return Sequences(np.concatenate(ids), _starts([np.diff(part.starts) for part in parts]))


def _starts(lengths: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.cumsum(np.concatenate([np.zeros(1, dtype=np.int64), *lengths]))
