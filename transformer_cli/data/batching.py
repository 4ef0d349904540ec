"""Batching: group pairs into updates, cut updates into micro-batches, and pad these into tensors.

An update is a few groups of pairs. Lengths are similar within a group and differ between groups. This keeps padding low
without making an update a biased sample of one length, which slows learning markedly. The plan of an epoch is a pure
function of the lengths, the weights of the corpora, (seed, epoch) and the size of an update. Micro-batches only cut an
update, so the update is the same whether it is computed at once, accumulated, or spread over processes.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_cli.data.dataset import CorpusPart, TokenDataset
from transformer_cli.data.tokenizer import BOS, EOS, PAD, Ids

BatchType = Literal["tokens", "sentences"]
Indices = NDArray[np.int64]
Update = list[Indices]

# Minimum number of groups that an update is planned for. More groups have less padding, but each is a separate pass
# through the model, and on a GPU a pass of a few thousand cells costs as much as an empty one.
_GROUPS = 4
_LARGEST_GROUP = 8192  # cells; a larger update has more groups


class Batch(NamedTuple):
    """Padded ids: source `tokens eos`, target input `bos tokens`, target output `tokens eos`."""

    src: Tensor  # (B, S)
    tgt_in: Tensor  # (B, T)
    tgt_out: Tensor  # (B, T)

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device."""
        return Batch(*(ids.to(device, non_blocking=True) for ids in self))


class Plan(Sequence[Update]):
    """The updates of an epoch, built on access: a list of all of them would be millions of small arrays."""

    def __init__(self, order: Indices, bounds: Indices, groups: Indices, update_bounds: Indices) -> None:
        """`order` holds the indices of the pairs. Group g is order[bounds[g] : bounds[g + 1]]. Update u is
        groups[update_bounds[u] : update_bounds[u + 1]]."""
        self._order = order
        self._bounds = bounds
        self._groups = groups
        self._update_bounds = update_bounds

    def __len__(self) -> int:
        return len(self._update_bounds) - 1

    @property
    def pairs(self) -> int:
        """Number of pairs in the epoch."""
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Update: ...
    @overload
    def __getitem__(self, index: slice) -> list[Update]: ...
    def __getitem__(self, index: int | slice) -> Update | list[Update]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        groups = self._groups[self._update_bounds[i] : self._update_bounds[i + 1]]
        return [self._order[self._bounds[group] : self._bounds[group + 1]] for group in groups]


def plan_epoch(dataset: TokenDataset, update_size: int, batch_type: BatchType, seed: int, epoch: int) -> Plan:
    """Plan the updates of an epoch: sort pairs by length into groups, and draw groups in random order.

    Each pair occurs as often as the weight of its corpus says. An update has at most `update_size` cells (`tokens`;
    sentences x longest side, summed over its groups) or pairs (`sentences`). A longer pair is an update of its own.
    """
    random = np.random.default_rng([seed, epoch])
    chosen = _chosen(dataset.corpora, seed, epoch) if dataset.corpora else None
    shuffled = random.permutation(len(dataset) if chosen is None else chosen)
    source, target = dataset.source.every_length(), dataset.target.every_length()
    # Sort by target length first: padding then falls on the source side, where it costs no softmax over the vocabulary.
    # Source lengths ascend for odd target lengths and descend for even ones, so that a group that spans two target
    # lengths has similar sources where they meet.
    order = shuffled[np.lexsort((np.where(target % 2, source, ~source)[shuffled], target[shuffled]))]
    sizes = np.maximum(source, target)[order] + 1
    most = max(_GROUPS, -(-update_size // _LARGEST_GROUP)) if batch_type == "tokens" else _GROUPS
    bounds = _bounds(sizes, max(update_size // most, 1), batch_type)
    longest = np.maximum.reduceat(sizes, bounds[:-1]).astype(np.int64)
    taken = np.diff(bounds) * (longest if batch_type == "tokens" else 1)
    groups = random.permutation(len(longest))
    return Plan(order, bounds, groups, _full(taken[groups].tolist(), update_size))


def _chosen(corpora: Sequence[CorpusPart], seed: int, epoch: int) -> Indices:
    """The pairs of an epoch. A corpus is repeated in rounds, each a random permutation of all its pairs; an epoch takes
    `weight` rounds and starts where the previous epoch ended. A complete round is left in order, as the caller
    shuffles."""
    chosen = []
    first = 0
    for number, (count, weight) in enumerate(corpora):
        begin, end = int(epoch * weight * count), int((epoch + 1) * weight * count)
        for round_ in range(begin // count, -(-end // count)) if count else ():
            part = slice(max(begin - round_ * count, 0), min(end - round_ * count, count))
            if part.stop - part.start == count:
                chosen.append(np.arange(first, first + count))
            else:
                chosen.append(first + np.random.default_rng([seed, number, round_]).permutation(count)[part])
        first += count
    return np.concatenate(chosen)


def _full(taken: Sequence[int], update_size: int) -> Indices:
    """The bounds of updates in a list of groups, of which group i takes `taken[i]` out of `update_size`. An update ends
    when the next group does not fit."""
    bounds: list[int] = []
    free = 0
    for i, needed in enumerate(taken):
        if not bounds or needed > free:
            bounds.append(i)
            free = update_size
        free -= needed
    return np.array([*bounds, len(taken)])


def cut(sizes: NDArray[np.integer[Any]], budget: int, batch_type: BatchType) -> list[slice]:
    """Cut a list into runs as long as the budget allows. The cost of a run is its length (`sentences`), or its length x
    its largest size (`tokens`)."""
    return [slice(start, stop) for start, stop in pairwise(_bounds(sizes, budget, batch_type).tolist())]


def _bounds(sizes: NDArray[np.integer[Any]], budget: int, batch_type: BatchType) -> Indices:
    """The starts of the runs that `cut` makes, and the end of the last."""
    if batch_type == "sentences":
        return np.append(np.arange(0, len(sizes), budget), len(sizes))
    every = np.ascontiguousarray(sizes).data  # a memoryview: slices are cheap, and there can be a million runs
    bounds = [0]
    while bounds[-1] < len(every):
        window = every[bounds[-1] :][: max(budget // every[bounds[-1]], 1)]
        # A run has at most budget / first size items, and budget / maximum size items always fit.
        taken = max(budget // max(window), 1)
        if taken < len(window):
            cells = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
            taken = max(int(np.searchsorted(cells, budget, side="right")), 1)
        bounds.append(bounds[-1] + min(taken, len(window)))
    return np.array(bounds)


def micro_batches(
    update: Update, dataset: TokenDataset, batch_size: int, batch_type: BatchType, processes: int = 1
) -> list[Indices]:
    """Cut each group of an update into equal parts, as few as fit into `batch_size`.

    The total number of parts is a multiple of `processes`, so that each process gets the same number, if there are
    enough pairs.
    """
    parts = []
    multiple = processes // math.gcd(processes, len(update))
    for group in update:
        rows = batch_size
        if batch_type == "tokens":
            rows = max(batch_size // dataset.longest(group), 1)
        count = -(-len(group) // (rows * multiple)) * multiple
        parts += np.array_split(group, min(count, len(group)))
    while len(parts) % processes and max(map(len, parts)) > 1:
        most = max(range(len(parts)), key=lambda i: len(parts[i]))
        parts[most : most + 1] = np.array_split(parts[most], 2)
    return parts


def joined_groups(update: Update, dataset: TokenDataset, batch_size: int, batch_type: BatchType) -> Update:
    """The groups of an update, with groups of similar length merged where they fit into `batch_size`, padding
    included."""
    joined: list[Indices] = []
    for group in sorted(update, key=dataset.longest):
        if joined:
            both = np.concatenate([joined[-1], group])
            if (dataset.cells(both) if batch_type == "tokens" else len(both)) <= batch_size:
                joined[-1] = both
                continue
        joined.append(group)
    return joined


def make_batch(dataset: TokenDataset, indices: Indices) -> Batch:
    """The padded tensors of the given pairs."""
    source = [dataset.source[i] for i in indices]
    target = [dataset.target[i] for i in indices]
    return Batch(
        src=pad_sequences(source, suffix=EOS),
        tgt_in=pad_sequences(target, prefix=BOS),
        tgt_out=pad_sequences(target, suffix=EOS),
    )


def pad_sequences(
    sequences: Sequence[Sequence[int] | Ids], *, prefix: int | None = None, suffix: int | None = None
) -> Tensor:
    """Ids (B, longest), padded on the right; each row has the prefix and suffix added."""
    before, after = prefix is not None, suffix is not None
    rectangle = np.full((len(sequences), max(map(len, sequences)) + before + after), PAD, dtype=np.int64)
    for row, ids in zip(rectangle, sequences, strict=True):
        row[before : before + len(ids)] = ids
        if suffix is not None:
            row[before + len(ids)] = suffix
    if prefix is not None:
        rectangle[:, 0] = prefix
    return torch.from_numpy(rectangle)
