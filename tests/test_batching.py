"""Each pair once an epoch, no batch over its budget (case C5), and the same update however it is cut."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_cli.data import batching
from transformer_cli.data.batching import Batch, Indices, cut, make_batch, micro_batches, pad_sequences, plan_epoch
from transformer_cli.data.dataset import Sequences, TokenDataset
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


def flat(parts: Sequence[Indices]) -> list[int]:
    return [int(i) for part in parts for i in part]


# --- case C5 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [C5_LENGTHS, C5_LENGTHS[::-1], [2] * 7, [41] * 7])
def test_no_batch_of_case_c5_allocates_more_than_its_budget(target: list[int]) -> None:
    dataset = dataset_of(C5_LENGTHS, target)
    for epoch in range(20):
        updates = plan_epoch(dataset, BUDGET, "tokens", seed=1, epoch=epoch)
        assert sorted(flat(updates)) == list(range(7))
        for update in updates:
            batch = make_batch(dataset, update)
            assert all(ids.numel() <= BUDGET for ids in batch)
            # 48 pieces, but 120 cells
            assert {0, 1, 2} - set(update.tolist())


def test_sentences_of_like_length_share_a_batch() -> None:
    updates = plan_epoch(dataset_of(C5_LENGTHS), BUDGET, "tokens", seed=1, epoch=0)
    # 2 3 4 5 with their end symbols are 4 x 6 cells, 39 and 40 are 2 x 41, and 41 stands alone.
    lengths = [[C5_LENGTHS[i] for i in update] for update in updates]
    assert sorted(map(sorted, lengths)) == [[2, 3, 4, 5], [39, 40], [41]]


def test_a_pair_longer_than_the_budget_stands_alone() -> None:
    dataset = dataset_of([*C5_LENGTHS, 100])
    for epoch in range(20):
        updates = plan_epoch(dataset, BUDGET, "tokens", seed=1, epoch=epoch)
        assert sorted(flat(updates)) == list(range(8))
        assert [7] in [update.tolist() for update in updates]
        assert [part.tolist() for part in micro_batches(np.array([7]), dataset, BUDGET, "tokens")] == [[7]]


def test_epochs_differ_and_an_epoch_repeats() -> None:
    dataset = dataset_of([5] * 40)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [update.tolist() for update in plan_epoch(dataset, 30, "tokens", seed, epoch)]

    assert plan(1, 0) == plan(1, 0)
    plans = [plan(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len({str(plan) for plan in plans}) == 4
    # Not only the order of the updates: pairs meet other pairs.
    assert len({str(sorted(map(sorted, plan))) for plan in plans}) == 4


def test_short_and_long_updates_come_in_random_order() -> None:
    dataset = dataset_of(list(range(1, 61)))
    updates = plan_epoch(dataset, 61, "tokens", seed=1, epoch=0)
    longest = [max(sizes_of(dataset, update)) for update in updates]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_with_sentences_an_update_is_a_number_of_pairs() -> None:
    dataset = dataset_of([9, 1, 8, 2, 7, 3, 6, 4, 5, 100])
    updates = plan_epoch(dataset, 4, "sentences", seed=1, epoch=0)
    assert sorted(flat(updates)) == list(range(10))
    assert sorted(map(len, updates)) == [2, 4, 4]
    # of like length all the same
    assert sorted(sorted(sizes_of(dataset, update)) for update in updates) == [[2, 3, 4, 5], [6, 7, 8, 9], [10, 101]]


# --- whatever the lengths -------------------------------------------------------------------------------------------

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=80)
batch_types = st.sampled_from(["tokens", "sentences"])


@given(lengths, st.integers(1, 200), st.integers(1, 5), batch_types, st.integers(0, 2**32 - 1))
def test_every_pair_comes_once_and_no_micro_batch_is_over_its_budget(
    lengths: list[tuple[int, int]],
    batch_size: int,
    accumulation: int,
    batch_type: Literal["tokens", "sentences"],
    seed: int,
) -> None:
    dataset = dataset_of([s for s, _ in lengths], [t for _, t in lengths])
    updates = plan_epoch(dataset, batch_size * accumulation, batch_type, seed, epoch=3)
    assert sorted(flat(updates)) == list(range(len(lengths)))
    for update in updates:
        parts = micro_batches(update, dataset, batch_size, batch_type)
        assert flat(parts) == update.tolist()
        for whole, budget in [(update, batch_size * accumulation)] + [(part, batch_size) for part in parts]:
            cells = len(whole) * max(sizes_of(dataset, whole)) if batch_type == "tokens" else len(whole)
            assert cells <= budget or len(whole) == 1
        rows = [len(part) for part in parts]
        assert max(rows) - min(rows) <= 1
        # One part fewer would not do for parts as long as the longest pair.
        longest = max(sizes_of(dataset, update)) if batch_type == "tokens" else 1
        assert (len(parts) - 1) * max(batch_size // longest, 1) < len(update)


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


@pytest.mark.parametrize("batch_type", ["tokens", "sentences"])
def test_1x4_2x2_and_4x1_compute_the_same_updates(batch_type: Literal["tokens", "sentences"]) -> None:
    random = np.random.default_rng(1)
    dataset = dataset_of(random.integers(1, 30, 500).tolist(), random.integers(1, 30, 500).tolist())
    size = 120 if batch_type == "tokens" else 16
    plans = [plan_epoch(dataset, size * count * (4 // count), batch_type, 1, 0) for count in (1, 2, 4)]
    for first, second, third in zip(*plans, strict=True):
        assert first.tolist() == second.tolist() == third.tolist()
    counts = []
    for count in (1, 2, 4):
        cuts = [micro_batches(update, dataset, size * 4 // count, batch_type) for update in plans[0]]
        assert [flat(parts) for parts in cuts] == [update.tolist() for update in plans[0]]
        counts.append(sum(map(len, cuts)))
    assert counts[0] == len(plans[0]) < counts[1] < counts[2]


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
    assert len(flat(updates)) == 300_000
    assert len(updates) < 500
    assert lines < 20 * len(updates)


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
