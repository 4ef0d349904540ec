"""Batches: which pairs make an update, how it is cut into micro-batches, and the padded tensors.

An update is a few groups of pairs, like lengths within a group and any lengths beside each other: there is little
padding, and yet no update is a biased sample of one length, from which a model learns markedly slower. The plan of an
epoch is a pure function of the lengths, (seed, epoch) and the size of an update. Micro-batches only cut an update, so
that the same one comes out whether it is computed in one piece, accumulated, or spread over processes.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.tokenizer import BOS, EOS, PAD

BatchType = Literal["tokens", "sentences"]
Indices = NDArray[np.int64]
Update = list[Indices]

# Groups of an update, where no pair is longer than its share. More of them have less padding, but each is a pass of its
# own through the model, which on a GPU takes as long for a few thousand cells as for none.
_GROUPS = 4
_LARGEST_GROUP = 8192  # cells


class Batch(NamedTuple):
    """Padded ids. Source `tokens eos`; target input `bos tokens`; target output `tokens eos`."""

    src: Tensor  # (B, S)
    tgt_in: Tensor  # (B, T)
    tgt_out: Tensor  # (B, T)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(*(ids.to(device, non_blocking=True) for ids in self))


def plan_epoch(dataset: TokenDataset, update_size: int, batch_type: BatchType, seed: int, epoch: int) -> list[Update]:
    """The updates of an epoch: every pair once, pairs of like length in a group, groups in random order.

    With `tokens` the cells of an update's groups (sentences x longest side, summed) are at most `update_size`, with
    `sentences` its pairs; a pair that is longer stands alone.
    """
    random = np.random.default_rng([seed, epoch])
    shuffled = random.permutation(len(dataset))
    # By target first: padding then falls on the source side, where no softmax over the vocabulary is paid for it. With
    # one target length sources grow, with the next they shrink, so that a group of both has like ones where they meet.
    source, target = dataset.source.lengths(shuffled), dataset.target.lengths(shuffled)
    order = shuffled[np.lexsort((np.where(target % 2, source, -source), target))]
    groups = max(_GROUPS, -(-update_size // _LARGEST_GROUP)) if batch_type == "tokens" else _GROUPS
    runs = cut(dataset.sizes(order), max(update_size // groups, 1), batch_type)
    updates: list[Update] = []
    free = 0
    for i in random.permutation(len(runs)):
        group = order[runs[i]]
        needed = dataset.cells(group) if batch_type == "tokens" else len(group)
        if not updates or needed > free:
            updates.append([])
            free = update_size
        updates[-1].append(group)
        free -= needed
    return updates


def cut(sizes: NDArray[np.int64], budget: int, batch_type: BatchType) -> list[slice]:
    """Cut a list into runs, each as long as the budget allows: its length, or its length x its largest size."""
    if batch_type == "sentences":
        return [slice(start, min(start + budget, len(sizes))) for start in range(0, len(sizes), budget)]
    runs = []
    start = 0
    while start < len(sizes):
        # No run is longer than the budget over its first size, nor than that over its largest.
        window = np.maximum.accumulate(sizes[start : start + max(budget // int(sizes[start]), 1)])
        cells = window * np.arange(1, len(window) + 1)
        taken = max(int(np.searchsorted(cells, budget, side="right")), 1)
        runs.append(slice(start, start + taken))
        start += taken
    return runs


def micro_batches(
    update: Update, dataset: TokenDataset, batch_size: int, batch_type: BatchType, processes: int = 1
) -> list[Indices]:
    """Cut each group of an update into equal parts, the fewest that fit into `batch_size`.

    For several processes the parts are as many as can be dealt out evenly, as far as there are pairs for it.
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


def make_batch(dataset: TokenDataset, indices: Indices) -> Batch:
    """The padded tensors of some pairs."""
    source = [dataset.source[i] for i in indices]
    target = [dataset.target[i] for i in indices]
    return Batch(
        src=pad_sequences(source, suffix=EOS),
        tgt_in=pad_sequences(target, prefix=BOS),
        tgt_out=pad_sequences(target, suffix=EOS),
    )


def pad_sequences(
    sequences: Sequence[Sequence[int] | NDArray[np.uint32]], *, prefix: int | None = None, suffix: int | None = None
) -> Tensor:
    """A rectangle (B, longest) of ids, each row with its prefix or suffix, padded on the right."""
    before, after = prefix is not None, suffix is not None
    rectangle = np.full((len(sequences), max(map(len, sequences)) + before + after), PAD, dtype=np.int64)
    for row, ids in zip(rectangle, sequences, strict=True):
        row[before : before + len(ids)] = ids
        if suffix is not None:
            row[before + len(ids)] = suffix
    if prefix is not None:
        rectangle[:, 0] = prefix
    return torch.from_numpy(rectangle)
