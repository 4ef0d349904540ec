"""Token ids of all pairs, in flat arrays: no Python object a sentence."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from transformer_cli.data.corpus import Pair
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.tokenizer import Tokenizers

_CHUNK = 10_000  # pairs tokenised at a time


@dataclass(frozen=True)
class Sequences:
    """Sequences of ids end to end: sequence i is ids[starts[i] : starts[i + 1]]."""

    ids: NDArray[np.uint32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> NDArray[np.uint32]:
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pieces of some of the sequences, no special ones counted."""
        return self.starts[indices + 1] - self.starts[indices]


@dataclass(frozen=True)
class TokenDataset:
    """Pairs of sequences: pair i is source[i] and target[i]. No special ids are stored."""

    source: Sequences
    target: Sequences

    def __len__(self) -> int:
        return len(self.source)

    def sizes(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """What each of some pairs takes in a batch: the longer of its sides, with its end symbol."""
        return np.maximum(self.source.lengths(indices), self.target.lengths(indices)) + 1

    def longest(self, indices: NDArray[np.int64]) -> int:
        """The longest side of some pairs, with its end symbol."""
        return int(self.sizes(indices).max())

    def cells(self, indices: NDArray[np.int64]) -> int:
        """What some pairs take as one batch, padding included: sentences x longest side."""
        return len(indices) * self.longest(indices)


def encode_pairs(
    pairs: Iterable[Pair], tokenizers: Tokenizers, counts: FilterCounts, max_length: int | None = None
) -> TokenDataset:
    """Tokenise pairs, leaving out and counting those with an empty side or more than `max_length` pieces on one."""
    source, target = _Writer(), _Writer()
    remaining = iter(pairs)
    while chunk := list(islice(remaining, _CHUNK)):
        sources = tokenizers.source.encode_batch([pair.source for pair in chunk])
        targets = tokenizers.target.encode_batch([pair.target for pair in chunk])
        for source_ids, target_ids in zip(sources, targets, strict=True):
            if not source_ids or not target_ids:
                counts.empty += 1
            elif max_length is not None and max(len(source_ids), len(target_ids)) > max_length:
                counts.too_long += 1
            else:
                source.append(source_ids)
                target.append(target_ids)
        source.flush()
        target.flush()
    return TokenDataset(source.sequences(), target.sequences())


class _Writer:
    """Gathers id lists; each chunk becomes one array, so that at most one chunk is held as Python numbers."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.lengths: list[int] = []
        self.id_chunks = [np.zeros(0, dtype=np.uint32)]
        self.length_chunks = [np.zeros(1, dtype=np.int64)]

    def append(self, ids: list[int]) -> None:
        self.ids += ids
        self.lengths.append(len(ids))

    def flush(self) -> None:
        self.id_chunks.append(np.array(self.ids, dtype=np.uint32))
        self.length_chunks.append(np.array(self.lengths, dtype=np.int64))
        self.ids, self.lengths = [], []

    def sequences(self) -> Sequences:
        return Sequences(np.concatenate(self.id_chunks), np.cumsum(np.concatenate(self.length_chunks)))
