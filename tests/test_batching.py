"""Each pair once an epoch, no batch over its budget (case C5), little padding, and one update however it is cut."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from transformer_cli.data import batching
from transformer_cli.data.batching import (
    Batch,
    BatchType,
    Indices,
    Update,
    cut,
    joined_groups,
    make_batch,
    micro_batches,
    pad_sequences,
    plan_epoch,
)
from transformer_cli.data.dataset import CorpusPart, Sequences, TokenDataset
from transformer_cli.data.tokenizer import BOS, EOS, PAD

C5_LENGTHS = [3, 40, 5, 39, 4, 41, 2]
BUDGET = 82


def sequences(lists: Sequence[Sequence[int]]) -> Sequences:
    ids = [id_ for ids in lists for id_ in ids]
    starts = np.cumsum([0, *map(len, lists)])
    return Sequences(np.array(ids, dtype=np.uint32), starts.astype(np.int64))


def dataset_of(source: Sequence[int], target: Sequence[int] | None = None) -> TokenDataset:
    """Pairs of these lengths."""
    target = source if target is None else target
    return TokenDataset(sequences([[7] * n for n in source]), sequences([[8] * n for n in target]))


def sizes_of(dataset: TokenDataset, indices: Indices) -> list[int]:
    return [max(len(dataset.source[i]), len(dataset.target[i])) + 1 for i in indices]


def takes(dataset: TokenDataset, indices: Indices, batch_type: BatchType = "tokens") -> int:
    """What some pairs use of a budget: cells or pairs."""
    return len(indices) * (max(sizes_of(dataset, indices)) if batch_type == "tokens" else 1)


def flat(parts: Sequence[Indices]) -> list[int]:
    return [int(i) for part in parts for i in part]


def groups_of(updates: Sequence[Update]) -> list[Indices]:
    return [group for update in updates for group in update]


def plain(updates: Sequence[Update]) -> list[list[list[int]]]:
    return [[group.tolist() for group in update] for update in updates]


# --- case C5 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [C5_LENGTHS, C5_LENGTHS[::-1], [2] * 7, [41] * 7])
@pytest.mark.parametrize("batch_size", [BUDGET, BUDGET // 2])
def test_no_batch_of_case_c5_allocates_more_than_its_budget(target: list[int], batch_size: int) -> None:
    dataset = dataset_of(C5_LENGTHS, target)
    for epoch in range(20):
        updates = plan_epoch(dataset, BUDGET, "tokens", seed=1, epoch=epoch)
        assert sorted(flat(groups_of(updates))) == list(range(7))
        for update in updates:
            # An update's groups together, and each part of it.
            assert sum(takes(dataset, group) for group in update) <= BUDGET
            for part in micro_batches(update, dataset, batch_size, "tokens"):
                batch = make_batch(dataset, part)
                assert all(ids.numel() <= batch_size for ids in batch) or len(part) == 1
                # 48 pieces, but 120 cells
                assert {0, 1, 2} - set(part.tolist())


def test_sentences_of_like_length_share_a_group() -> None:
    updates = plan_epoch(dataset_of(C5_LENGTHS), 4 * BUDGET, "tokens", seed=1, epoch=0)
    # A group has a quarter of the update. 2 3 4 5 with their end symbols are 4 x 6 cells, 39 and 40 are 2 x 41, and 41
    # stands alone; 24 + 82 + 42 fit into 328.
    (update,) = updates
    lengths = [[C5_LENGTHS[i] for i in group] for group in update]
    assert sorted(map(sorted, lengths)) == [[2, 3, 4, 5], [39, 40], [41]]


def test_a_pair_longer_than_the_budget_stands_alone() -> None:
    dataset = dataset_of([*C5_LENGTHS, 100])
    for epoch in range(20):
        updates = plan_epoch(dataset, BUDGET, "tokens", seed=1, epoch=epoch)
        assert sorted(flat(groups_of(updates))) == list(range(8))
        assert [[7]] in plain(updates)
        assert [part.tolist() for part in micro_batches([np.array([7])], dataset, BUDGET, "tokens")] == [[7]]


def test_epochs_differ_and_an_epoch_repeats() -> None:
    dataset = dataset_of([5] * 40)

    def plan(seed: int, epoch: int) -> list[list[list[int]]]:
        return plain(plan_epoch(dataset, 60, "tokens", seed, epoch))

    assert plan(1, 0) == plan(1, 0)
    plans = [plan(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len({str(plan) for plan in plans}) == 4
    # Not only the order of the updates: pairs meet other pairs, in a group and in an update.
    assert len({str(sorted(sorted(group) for update in plan for group in update)) for plan in plans}) == 4
    assert len({str(sorted(sorted(i for group in update for i in group) for update in plan)) for plan in plans}) == 4


def test_short_and_long_groups_come_in_random_order() -> None:
    dataset = dataset_of(list(range(1, 61)))
    updates = plan_epoch(dataset, 4 * 61, "tokens", seed=1, epoch=0)
    longest = [max(sizes_of(dataset, group)) for group in groups_of(updates)]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_with_sentences_an_update_is_a_number_of_pairs() -> None:
    dataset = dataset_of([9, 1, 8, 2, 7, 3, 6, 4, 5, 100])
    updates = plan_epoch(dataset, 8, "sentences", seed=1, epoch=0)
    assert sorted(flat(groups_of(updates))) == list(range(10))
    assert [sum(map(len, update)) for update in updates] == [8, 2]
    # of like length in a group all the same
    groups = sorted(sorted(sizes_of(dataset, group)) for group in groups_of(updates))
    assert groups == [[2, 3], [4, 5], [6, 7], [8, 9], [10, 101]]


# --- a corpus like a real one ---------------------------------------------------------------------------------------


def like_a_corpus(count: int, seed: int = 1) -> TokenDataset:
    """Lengths as of sentences: half of them below 15 pieces, one in fifty above 38, a target near its source."""
    random = np.random.default_rng(seed)
    source = random.lognormal(np.log(15), 0.45, count)
    target = source * random.lognormal(0.0, 0.2, count)

    def side(sizes: NDArray[np.float64]) -> Sequences:
        lengths = np.clip(sizes.round(), 1, 200).astype(np.int64)
        return Sequences(np.full(lengths.sum(), 7, np.uint32), np.concatenate([[0], np.cumsum(lengths)]))

    return TokenDataset(side(source), side(target))


CORPUS = like_a_corpus(29_000)


def test_no_target_length_lies_in_two_groups_but_at_their_ends() -> None:
    groups = groups_of(plan_epoch(CORPUS, 4096, "tokens", 1, 0))
    ranges = sorted((lengths.min(), lengths.max()) for lengths in map(CORPUS.target.lengths, groups))
    assert len(ranges) > 400
    assert all(longest <= shortest for (_, longest), (shortest, _) in pairwise(ranges))


@pytest.mark.parametrize(
    ("update_size", "on_both", "on_target"), [(4096, 0.025, 0.01), (25_000, 0.10, 0.02), (100_000, 0.11, 0.02)]
)
def test_little_of_what_is_computed_is_padding(update_size: int, on_both: float, on_target: float) -> None:
    parts = groups_of(plan_epoch(CORPUS, update_size, "tokens", 1, 0))
    real, padding = np.zeros(2), np.zeros(2)
    for part in parts:
        batch = make_batch(CORPUS, part)
        for side, ids in enumerate((batch.src, batch.tgt_out)):
            real[side] += int((ids != PAD).sum())
            padding[side] += int((ids == PAD).sum())
    assert real.sum() == len(CORPUS.source.ids) + len(CORPUS.target.ids) + 2 * len(CORPUS)  # an end symbol each
    assert padding.sum() / (real + padding).sum() < on_both
    # and hardly any of it on the target side, where every position costs a softmax over the vocabulary
    assert padding[1] / (real + padding)[1] < on_target


def test_a_group_of_two_target_lengths_has_like_sources() -> None:
    dataset = dataset_of([1, 2, 30, 1, 2, 30], [5, 5, 5, 6, 6, 6])
    groups = groups_of(plan_epoch(dataset, 8, "sentences", seed=1, epoch=0))  # of two pairs
    assert sorted(sorted(dataset.source.lengths(group).tolist()) for group in groups) == [[1, 2], [1, 2], [30, 30]]


@pytest.mark.parametrize(("update_size", "largest"), [(4096, 1024), (25_000, 6250), (100_000, 100_000 // 13)])
def test_a_group_is_a_quarter_of_an_update_and_at_most_8192_cells(update_size: int, largest: int) -> None:
    cells = [takes(CORPUS, group) for group in groups_of(plan_epoch(CORPUS, update_size, "tokens", 1, 0))]
    assert 0.95 * largest < max(cells) <= largest <= 8192


def test_updates_are_full() -> None:
    updates = plan_epoch(CORPUS, 4096, "tokens", 1, 0)
    used = [sum(takes(CORPUS, group) for group in update) for update in updates]
    assert sum(used) / len(used) > 0.95 * 4096


def test_an_update_mixes_lengths() -> None:
    updates = plan_epoch(CORPUS, 4096, "tokens", 1, 0)

    def length(group: Indices) -> float:
        return float(CORPUS.target.lengths(group).mean())

    thirds = np.quantile([length(group) for group in groups_of(updates)], [1 / 3, 2 / 3])
    kinds = np.array([len(set(np.digitize([length(group) for group in update], thirds))) for update in updates])
    # Of four groups, each short, middle or long by chance, all are alike in 3 x (1/3)^4 = 4 % of the updates, and in
    # 3 x (2^4 - 2) / 3^4 = 52 % there are two kinds.
    assert (kinds == 1).mean() < 0.1
    assert (kinds == 3).mean() > 0.3


# --- whatever the lengths -------------------------------------------------------------------------------------------

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=80)
batch_types = st.sampled_from(["tokens", "sentences"])


@given(lengths, st.integers(1, 200), st.integers(1, 5), batch_types, st.integers(0, 2**32 - 1))
def test_every_pair_comes_once_and_no_micro_batch_is_over_its_budget(
    lengths: list[tuple[int, int]], batch_size: int, accumulation: int, batch_type: BatchType, seed: int
) -> None:
    dataset = dataset_of([s for s, _ in lengths], [t for _, t in lengths])
    updates = plan_epoch(dataset, batch_size * accumulation, batch_type, seed, epoch=3)
    assert sorted(flat(groups_of(updates))) == list(range(len(lengths)))
    for update in updates:
        taken = sum(takes(dataset, group, batch_type) for group in update)
        assert taken <= batch_size * accumulation or len(flat(update)) == 1
        assert flat(micro_batches(update, dataset, batch_size, batch_type)) == flat(update)
        for group in update:
            parts = micro_batches([group], dataset, batch_size, batch_type)
            assert all(takes(dataset, part, batch_type) <= batch_size or len(part) == 1 for part in parts)
            rows = [len(part) for part in parts]
            assert max(rows) - min(rows) <= 1
            # One part fewer would not do for parts as long as the longest pair.
            longest = max(sizes_of(dataset, group)) if batch_type == "tokens" else 1
            assert (len(parts) - 1) * max(batch_size // longest, 1) < len(group)


@given(lengths, st.integers(1, 200), st.integers(1, 9), batch_types, st.sampled_from([1, 2, 3, 8]))
def test_the_shares_of_several_processes_are_the_update_and_as_many_for_each(
    lengths: list[tuple[int, int]], batch_size: int, accumulation: int, batch_type: BatchType, processes: int
) -> None:
    dataset = dataset_of([s for s, _ in lengths], [t for _, t in lengths])
    for update in plan_epoch(dataset, batch_size * accumulation, batch_type, seed=1, epoch=0):
        parts = micro_batches(update, dataset, batch_size, batch_type, processes)
        shares = [parts[rank::processes] for rank in range(processes)]
        assert sorted(i for share in shares for i in flat(share)) == sorted(flat(update))
        assert all(takes(dataset, part, batch_type) <= batch_size or len(part) == 1 for part in parts)
        # A part of two groups would be padded from the one's length to the other's.
        assert all(any(set(part.tolist()) <= set(group.tolist()) for group in update) for part in parts)
        # As many for each, unless there are no more pairs to deal out.
        assert len(parts) % processes == 0 or len(parts) == len(flat(update))


@pytest.mark.parametrize("processes", [2, 3, 4, 8])
def test_no_process_waits_long_for_another(processes: int) -> None:
    cells = []
    for update in plan_epoch(CORPUS, 4096, "tokens", 1, 0):
        parts = micro_batches(update, CORPUS, 4096, "tokens", processes)
        cells.append([sum(takes(CORPUS, part) for part in parts[rank::processes]) for rank in range(processes)])
    work = np.array(cells)
    assert work.mean() > 0.95 * work.max(axis=1).mean()


@given(lengths, st.integers(1, 300))
def test_a_run_ends_only_where_the_next_pair_would_not_fit(lengths: list[tuple[int, int]], budget: int) -> None:
    sizes = [max(pair) for pair in lengths]
    runs = cut(np.array(sizes, dtype=np.int64), budget, "tokens")
    assert [i for run in runs for i in range(run.start, run.stop)] == list(range(len(sizes)))
    for run in runs:
        assert len(sizes[run]) * max(sizes[run]) <= budget or len(sizes[run]) == 1
        if run.stop < len(sizes):
            longer = sizes[run.start : run.stop + 1]
            assert len(longer) * max(longer) > budget


@given(lengths, st.integers(1, 200), batch_types, st.integers(0, 2**32 - 1))
def test_an_update_takes_groups_until_the_next_does_not_fit(
    lengths: list[tuple[int, int]], update_size: int, batch_type: BatchType, seed: int
) -> None:
    dataset = dataset_of([s for s, _ in lengths], [t for _, t in lengths])
    updates = plan_epoch(dataset, update_size, batch_type, seed, epoch=0)
    for update, following in pairwise(updates):
        taken = sum(takes(dataset, group, batch_type) for group in [*update, following[0]])
        assert taken > update_size


def test_a_plan_is_a_sequence_of_updates() -> None:
    updates = plan_epoch(dataset_of(range(1, 40)), 100, "tokens", 1, 0)
    every = plain(updates)
    assert [plain([updates[i]])[0] for i in range(-len(updates), len(updates))] == every + every
    assert plain(updates[2:7:2]) == every[2:7:2]
    with pytest.raises(IndexError):
        updates[len(updates)]


# --- weights --------------------------------------------------------------------------------------------------------


def weighted(*corpora: tuple[int, float]) -> TokenDataset:
    parts = tuple(CorpusPart(*part) for part in corpora)
    return replace(dataset_of([5] * sum(part.pairs for part in parts)), corpora=parts)


def drawn(dataset: TokenDataset, epoch: int, seed: int = 1) -> list[int]:
    return flat(groups_of(plan_epoch(dataset, 60, "tokens", seed, epoch)))


def test_with_weights_of_one_an_epoch_is_what_it_is_without() -> None:
    dataset = weighted((20, 1.0), (13, 1.0))
    without = replace(dataset, corpora=())
    for epoch in range(3):
        assert plain(plan_epoch(dataset, 60, "tokens", 1, epoch)) == plain(plan_epoch(without, 60, "tokens", 1, epoch))


def test_a_weight_of_three_is_every_pair_three_times() -> None:
    assert Counter(drawn(weighted((4, 1.0), (3, 3.0)), 0)) == {0: 1, 1: 1, 2: 1, 3: 1, 4: 3, 5: 3, 6: 3}


def test_a_weight_of_a_half_is_another_half_each_epoch() -> None:
    dataset = weighted((10, 0.5), (3, 1.0))
    halves = [sorted(i for i in drawn(dataset, epoch) if i < 10) for epoch in range(40)]
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        assert sorted(first + second) == list(range(10))
    assert len({tuple(half) for half in halves}) > 20
    assert all({10, 11, 12} <= set(drawn(dataset, epoch)) for epoch in range(3))
    assert drawn(dataset, 7) == drawn(dataset, 7) != drawn(dataset, 7, seed=2)


@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0.05, 4)), min_size=1, max_size=4), st.integers(1, 8))
def test_after_some_epochs_each_pair_has_come_as_often_as_its_weight_says(
    corpora: list[tuple[int, float]], epochs: int
) -> None:
    dataset = weighted((1, 1.0), *corpora)
    found = Counter(i for epoch in range(epochs) for i in drawn(dataset, epoch))
    first = 1
    for count, weight in corpora:
        times = [found[i] for i in range(first, first + count)]
        assert sum(times) == int(epochs * weight * count)
        assert max(times, default=0) - min(times, default=0) <= 1
        first += count


@pytest.mark.parametrize("batch_type", ["tokens", "sentences"])
def test_1x16_2x8_4x4_and_16x1_compute_the_same_updates(batch_type: BatchType) -> None:
    random = np.random.default_rng(1)
    dataset = dataset_of(random.integers(1, 30, 500).tolist(), random.integers(1, 30, 500).tolist())
    size = 480 if batch_type == "tokens" else 64
    updates = plan_epoch(dataset, size, batch_type, 1, 0)
    counts = []
    for accumulation in (1, 2, 4, 8, 16):
        cuts = [micro_batches(update, dataset, size // accumulation, batch_type) for update in updates]
        assert [flat(parts) for parts in cuts] == [flat(update) for update in updates]
        counts.append(sum(map(len, cuts)))
    # An update has four groups as it is, which are the parts of 1x4; smaller batches cut these.
    assert counts[0] == counts[1] == counts[2] == len(groups_of(updates))
    assert counts[2] < counts[3] < counts[4]


# --- work -----------------------------------------------------------------------------------------------------------


def lines_run(module: Any, function: Callable[[], Any]) -> tuple[Any, int]:
    """What a function returns, and how many lines of a module Python went through for it."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != module.__file__:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return function(), lines
    finally:
        sys.settrace(before)


def test_planning_300_000_pairs_takes_no_python_step_a_pair() -> None:
    random = np.random.default_rng(1)
    starts = np.concatenate([[0], np.cumsum(random.integers(1, 60, 300_000))]).astype(np.int64)
    source = Sequences(np.zeros(0, dtype=np.uint32), starts)
    updates, lines = lines_run(batching, lambda: plan_epoch(TokenDataset(source, source), 25_000, "tokens", 1, 0))
    assert len(flat(groups_of(updates))) == 300_000
    assert len(updates) < 500
    assert lines < 20 * len(groups_of(updates)) < 50_000


# --- tensors --------------------------------------------------------------------------------------------------------


def test_a_batch_has_tokens_eos_and_bos_tokens_and_tokens_eos() -> None:
    dataset = TokenDataset(sequences([[7, 8, 9], [5], [6]]), sequences([[10], [11, 12], [13]]))
    batch = make_batch(dataset, np.array([1, 0]))
    assert batch.src.tolist() == [[5, EOS, PAD, PAD], [7, 8, 9, EOS]]
    assert batch.tgt_in.tolist() == [[BOS, 11, 12], [BOS, 10, PAD]]
    assert batch.tgt_out.tolist() == [[11, 12, EOS], [10, EOS, PAD]]
    assert all(ids.dtype == torch.int64 for ids in batch)


def test_padding_stands_right_of_the_suffix() -> None:
    lists = [[5], [6, 7, 8], []]
    assert pad_sequences(lists).tolist() == [[5, 0, 0], [6, 7, 8], [0, 0, 0]]
    assert pad_sequences(lists, suffix=3).tolist() == [[5, 3, 0, 0], [6, 7, 8, 3], [3, 0, 0, 0]]
    assert pad_sequences(lists, prefix=2).tolist() == [[2, 5, 0, 0], [2, 6, 7, 8], [2, 0, 0, 0]]
    assert pad_sequences(lists, prefix=2, suffix=3).tolist() == [[2, 5, 3, 0, 0], [2, 6, 7, 8, 3], [2, 3, 0, 0, 0]]


def test_a_batch_moves_as_a_whole() -> None:
    batch = make_batch(dataset_of([2, 3]), np.array([0, 1])).to(torch.device("meta"))
    assert isinstance(batch, Batch)
    assert all(ids.device.type == "meta" for ids in batch)


@pytest.mark.parametrize("batch_type", ["tokens", "sentences"])
def test_groups_are_put_together_as_far_as_they_fit_with_their_padding(batch_type: BatchType) -> None:
    dataset = dataset_of([3, 3, 3, 4, 4, 9, 9, 20])  # one more piece each with the end symbol
    update = [np.array([7]), np.array([3, 4]), np.array([0, 1, 2]), np.array([5, 6])]
    found = [part.tolist() for part in joined_groups(update, dataset, 26 if batch_type == "tokens" else 5, batch_type)]
    # 5 rows of 5 cells are 25; with two of 10 more they would be 70; 2 rows of 10 and one of 21 are 63.
    assert found == ([[0, 1, 2, 3, 4], [5, 6], [7]] if batch_type == "tokens" else [[0, 1, 2, 3, 4], [5, 6, 7]])
    (whole,) = joined_groups(update, dataset, 10**6, batch_type)
    assert sorted(whole.tolist()) == list(range(8))


def test_one_group_stays_as_it_is() -> None:
    dataset = dataset_of([3, 4])
    (group,) = joined_groups([np.array([1, 0])], dataset, 1, "tokens")
    assert group.tolist() == [1, 0]
