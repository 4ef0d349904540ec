"""One update: how it is cut changes nothing, even by memory that runs out or by several processes; what is not finite
is left out; chance is derived, the norm is the gradient's own, and Adam is Adam."""

import gc
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from transformer_cli.config.schema import ModelConfig, TrainingConfig
from transformer_cli.data.batching import Batch, Update, make_batch, micro_batches, plan_epoch
from transformer_cli.data.dataset import Sequences, TokenDataset
from transformer_cli.data.tokenizer import PAD
from transformer_cli.device import Precision
from transformer_cli.errors import UserError
from transformer_cli.model.transformer import Transformer
from transformer_cli.training import step
from transformer_cli.training.distributed import Processes
from transformer_cli.training.loss import LossSums, fused_cross_entropy, smoothed_cross_entropy
from transformer_cli.training.step import Updater, batch_loss, derived_seed

CPU = torch.device("cpu")
V = 20
BATCH_SIZE = 48  # cells
SCALE = 65536.0  # of a fresh GradScaler

every_precision = pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])


def model(dropout: float = 0.0, **changes: Any) -> Transformer:
    torch.manual_seed(1)
    size = {"d_model": 16, "ffn_dim": 32, "num_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    return Transformer(ModelConfig(**size | {"dropout": dropout} | changes), V, V, PAD)


def updater(dropout: float = 0.0, precision: Precision = "fp32", **training: Any) -> Updater:
    return Updater(model(dropout), TrainingConfig(**training), seed=7, device=CPU, precision=precision)


def pairs(count: int = 120) -> TokenDataset:
    """Random pairs of 1 to 10 pieces a side."""
    random = np.random.default_rng(3)

    def side() -> Sequences:
        starts = np.concatenate([[0], np.cumsum(random.integers(1, 11, count))]).astype(np.int64)
        return Sequences(random.integers(4, V, starts[-1]).astype(np.uint32), starts)

    return TokenDataset(side(), side())


PAIRS = pairs()
UPDATES = plan_epoch(PAIRS, 4 * BATCH_SIZE, "tokens", seed=1, epoch=0)
# An update is about four groups, which is how 1x4, 2x2 and 4x1 compute it; 8x1 and 16x1 cut the groups.
FOURS = [4 * BATCH_SIZE, 2 * BATCH_SIZE, BATCH_SIZE]
SMALLER = [BATCH_SIZE // 2, BATCH_SIZE // 4]


def batches(update: Update, batch_size: int = 4 * BATCH_SIZE) -> list[Batch]:
    return [make_batch(PAIRS, part) for part in micro_batches(update, PAIRS, batch_size, "tokens")]


def in_one(update: Update) -> list[Batch]:
    """The slower truth: a whole update as one padded batch."""
    return [make_batch(PAIRS, np.concatenate(update))]


def gradient(of: Updater) -> dict[str, Tensor]:
    return {
        name: parameter.grad.clone() for name, parameter in of.model.named_parameters() if parameter.grad is not None
    }


def norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.double().pow(2).sum()) for tensor in tensors))


def weights(of: Updater) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in of.model.named_parameters()}


def change(of: Updater, before: dict[str, Tensor]) -> float:
    return norm([after - before[name] for name, after in weights(of).items()])


def assert_same_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


# --- how an update is cut -------------------------------------------------------------------------------------------


def is_key_bias(name: str) -> bool:
    """Its true gradient is zero, since a softmax ignores what is added to all scores; it has only rounding noise."""
    return name.endswith(".key.bias")


def difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Relative, of two gradients as a whole."""
    assert found.keys() == expected.keys()
    return norm([found[name] - expected[name] for name in found]) / norm(list(expected.values()))


def test_1x4_2x2_4x1_and_smaller_ones_have_the_gradient_of_one_big_batch() -> None:
    for update in UPDATES[:2]:
        whole = updater(clip_grad_norm=None)
        truth = whole.update(in_one(update), step=1, rate=1e-3)
        found = []
        groups, *others = ([part.src.tolist() for part in batches(update, batch_size)] for batch_size in FOURS)
        assert others == [groups, groups]
        for batch_size in (BATCH_SIZE, *SMALLER):
            one = updater(clip_grad_norm=None)
            parts = batches(update, batch_size)
            result = one.update(parts, step=1, rate=1e-3)
            assert (result.tokens, result.skipped) == (truth.tokens, False)
            assert result.loss == pytest.approx(truth.loss, rel=1e-6)
            assert result.nll == pytest.approx(truth.nll, rel=1e-6)
            assert result.grad_norm == pytest.approx(truth.grad_norm, rel=1e-6)
            assert difference(gradient(one), gradient(whole)) <= 1e-6
            found.append((len(parts), gradient(one)))
        counts, cuts = zip(*found, strict=True)
        assert 1 < len(update) == counts[0] < counts[1] < counts[2]
        for cut in cuts[1:]:
            for name in cut:
                size = 1 if is_key_bias(name) else norm([cuts[0][name]])
                assert norm([cut[name] - cuts[0][name]]) <= 1e-6 * size, name


@every_precision
def test_an_update_is_cut_into_few_parts_where_these_are_faster(precision: Precision) -> None:
    ours = updater(precision=precision, batch_size=4 * BATCH_SIZE)
    for update in UPDATES:
        parts = ours.cut(PAIRS, update)
        assert sorted(np.concatenate(parts)) == sorted(np.concatenate(update))
        assert max(map(PAIRS.cells, parts)) <= 4 * BATCH_SIZE
        assert (len(parts) < len(update)) == (precision != "fp32" and len(update) > 1)


def test_1x4_2x2_4x1_and_smaller_ones_have_the_same_weights_after_20_updates() -> None:
    def train(cut: Callable[..., list[Batch]], *batch_size: int) -> tuple[list[float], dict[str, Tensor]]:
        one = updater()
        losses = []
        for number in range(1, 21):
            result = one.update(cut(UPDATES[number % len(UPDATES)], *batch_size), number, rate=1e-3)
            losses.append(result.loss / result.tokens)
        return losses, weights(one)

    losses, expected = train(in_one)
    assert losses[-1] < losses[0]
    for batch_size in (BATCH_SIZE, SMALLER[-1]):
        found_losses, found = train(batches, batch_size)
        assert found_losses == pytest.approx(losses, rel=1e-5)
        for name, weight in found.items():
            if not is_key_bias(name):
                torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-5, msg=name)


def test_micro_batches_of_unequal_token_counts_are_weighed_by_their_tokens() -> None:
    # 1 pair of 11 target tokens and 1 of 2: the mean of two means would give the second half of the weight.
    dataset = TokenDataset(
        Sequences(np.full(11, 5, dtype=np.uint32), np.array([0, 10, 11])),
        Sequences(np.arange(4, 15, dtype=np.uint32), np.array([0, 10, 11])),
    )
    cut, whole = updater(clip_grad_norm=None), updater(clip_grad_norm=None)
    result = cut.update([make_batch(dataset, np.array([0])), make_batch(dataset, np.array([1]))], 1, 1e-3)
    assert result.tokens == 13
    assert result.loss == pytest.approx(whole.update([make_batch(dataset, np.array([0, 1]))], 1, 1e-3).loss, rel=1e-6)
    difference = [gradient(cut)[name] - gradient(whole)[name] for name in gradient(whole)]
    assert norm(difference) <= 1e-6 * norm(list(gradient(whole).values()))


def test_the_numbers_of_an_update_are_sums_from_before_it() -> None:
    one = updater(label_smoothing=0.2)
    parts = batches(UPDATES[0], BATCH_SIZE)
    with torch.no_grad():
        expected = [batch_loss(one.model, part, smoothed_cross_entropy, 0.2) for part in parts]
    result = one.update(parts, 1, 1e-3)
    assert result.loss == pytest.approx(sum(float(sums.loss) for sums in expected), rel=1e-6)
    assert result.nll == pytest.approx(sum(float(sums.nll) for sums in expected), rel=1e-6)
    lengths = PAIRS.target.lengths(np.concatenate(UPDATES[0]))
    assert result.tokens == int(lengths.sum()) + len(lengths)  # an end symbol each


def test_no_gradient_is_left_from_the_update_before() -> None:
    first, second = updater(clip_grad_norm=None), updater(clip_grad_norm=None)
    first.update(batches(UPDATES[1]), 1, rate=0.0)  # changes no weight
    first.update(batches(UPDATES[0]), 2, rate=0.0)
    second.update(batches(UPDATES[0]), 2, rate=0.0)
    assert_same_bits(gradient(first), gradient(second))


# --- clipping (case C10) --------------------------------------------------------------------------------------------


@every_precision
def test_updates_leave_no_garbage_for_which_memory_would_have_to_be_searched(precision: Precision) -> None:
    ours = updater(dropout=0.1, precision=precision)
    ours.update(batches(UPDATES[0]), 1, rate=0.01)
    gc.collect()
    gc.disable()
    try:
        for number, update in enumerate(UPDATES[1:6], start=2):
            ours.update(batches(update), number, rate=0.01)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_norm_told_is_the_one_before_clipping() -> None:
    free, clipped = updater(clip_grad_norm=None), updater(clip_grad_norm=0.01)
    result = clipped.update(batches(UPDATES[0]), 1, 1e-3)
    assert result.grad_norm == free.update(batches(UPDATES[0]), 1, 1e-3).grad_norm > 0.1
    assert result.grad_norm == pytest.approx(norm(list(gradient(free).values())), rel=1e-5)
    assert norm(list(gradient(clipped).values())) == pytest.approx(0.01, rel=1e-3)


def test_a_short_gradient_is_not_made_longer() -> None:
    free, clipped = updater(clip_grad_norm=None), updater(clip_grad_norm=1e6)
    free.update(batches(UPDATES[0]), 1, 1e-3)
    clipped.update(batches(UPDATES[0]), 1, 1e-3)
    assert_same_bits(gradient(free), gradient(clipped))


@pytest.mark.parametrize("batch_size", [4 * BATCH_SIZE, BATCH_SIZE])
@every_precision
def test_the_norm_told_is_the_same_in_every_precision(precision: Precision, batch_size: int) -> None:
    exact = updater().update(batches(UPDATES[0]), 1, 1e-3).grad_norm
    found = updater(precision=precision).update(batches(UPDATES[0], batch_size), 1, 1e-3).grad_norm
    assert 0.9 < found / exact < 1.1


@every_precision
def test_a_clipped_step_of_sgd_is_rate_times_the_longest_norm(precision: Precision) -> None:
    one: Any = updater(precision=precision, clip_grad_norm=0.5)
    one.optimizer = torch.optim.SGD(one.model.parameters(), lr=0.0)  # Adam's steps do not tell the gradient's scale
    before = weights(one)
    assert one.update(batches(UPDATES[0], BATCH_SIZE), 1, rate=0.1).grad_norm > 0.5
    assert change(one, before) == pytest.approx(0.1 * 0.5, rel=0.01)


def test_only_fp16_scales_its_loss() -> None:
    assert updater(precision="fp16").scaler.get_scale() == SCALE
    assert not updater(precision="bf16").scaler.is_enabled()
    assert not updater(precision="fp32").scaler.is_enabled()


def test_only_fp16_takes_the_loss_whose_gradient_comes_after_the_scaling() -> None:
    assert updater(precision="fp16").cross_entropy is smoothed_cross_entropy
    assert updater(precision="bf16").cross_entropy is fused_cross_entropy
    assert updater(precision="fp32").cross_entropy is fused_cross_entropy


def test_a_step_whose_fp16_gradient_overflows_is_left_out_and_the_scale_is_halved() -> None:
    one = updater(precision="fp16")
    with torch.no_grad():
        one.model.output.weight.mul_(2000.0)
    before = weights(one)
    result = one.update(batches(UPDATES[0]), 1, 1e-3)
    assert result.skipped
    assert not math.isfinite(result.grad_norm)
    assert_same_bits(weights(one), before)
    assert one.scaler.get_scale() == SCALE / 2


def test_with_accumulation_the_scale_of_fp16_is_taken_out_once() -> None:
    one = updater(precision="fp16", clip_grad_norm=None)
    one.update(batches(UPDATES[0], BATCH_SIZE // 4), 1, 0.0)
    exact = updater(clip_grad_norm=None)
    exact.update(batches(UPDATES[0], BATCH_SIZE // 4), 1, 0.0)
    assert norm(list(gradient(one).values())) == pytest.approx(norm(list(gradient(exact).values())), rel=0.1)


# --- what is not finite -----------------------------------------------------------------------------------------------


@dataclass
class Spoilt:
    """In place of the loss: the real one, with something added to its value and its gradient multiplied."""

    added: float = 0.0
    slope: float = 1.0

    def __call__(self, *arguments: Any) -> LossSums:
        loss, nll = batch_loss(*arguments)
        spoilt = loss + self.added
        spoilt.register_hook(lambda gradient: gradient * self.slope)  # type: ignore[no-untyped-call]
        return LossSums(spoilt, nll)


@pytest.mark.parametrize("fault", [{"slope": math.nan}, {"slope": math.inf}, {"added": math.nan}, {"added": math.inf}])
@every_precision
def test_an_update_that_is_not_finite_is_left_out(
    monkeypatch: pytest.MonkeyPatch, precision: Precision, fault: dict[str, float]
) -> None:
    one = updater(dropout=0.3, precision=precision)
    for number in range(1, 4):
        assert not one.update(batches(UPDATES[number]), number, 1e-3).skipped
    before, adam = weights(one), {name: tensor.clone() for name, tensor in one.optimizer_tensors().items()}
    with monkeypatch.context() as spoilt:
        spoilt.setattr(step, "batch_loss", Spoilt(**fault))
        result = one.update(batches(UPDATES[4]), 4, 1e-3)
    assert result.skipped
    assert math.isfinite(result.loss) == ("slope" in fault)
    assert math.isfinite(result.grad_norm) == ("added" in fault)
    assert_same_bits(weights(one), before)
    assert_same_bits(one.optimizer_tensors(), adam)
    # It goes on as if that one had never been.
    assert not one.update(batches(UPDATES[5]), 5, 1e-3).skipped
    assert change(one, before) > 0
    assert all(tensor.isfinite().all() for tensor in weights(one).values())


def test_of_an_update_the_one_micro_batch_that_is_not_finite_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    one = updater()
    before = weights(one)
    faults = iter([Spoilt(), Spoilt(slope=math.nan), Spoilt(), Spoilt()])
    monkeypatch.setattr(step, "batch_loss", lambda *arguments: next(faults)(*arguments))
    assert len(batches(UPDATES[0])) == 4
    assert one.update(batches(UPDATES[0]), 1, 1e-3).skipped
    assert_same_bits(weights(one), before)
    assert one.optimizer_tensors() == {}


# --- memory that runs out -------------------------------------------------------------------------------------------


@dataclass
class SmallMemory:
    """In place of the loss: the real one, for batches of at most so many cells or pairs."""

    cap: int
    counts: str = "cells"
    error: Exception = field(default_factory=lambda: torch.OutOfMemoryError("CUDA out of memory"))
    seen: list[int] = field(default_factory=list)

    def __call__(self, model: Transformer, batch: Batch, *rest: Any) -> LossSums:
        rows, longest = len(batch.src), max(batch.src.shape[1], batch.tgt_in.shape[1])
        self.seen.append(rows * longest if self.counts == "cells" else rows)
        sums = batch_loss(model, batch, *rest)
        if self.seen[-1] > self.cap:
            torch.autograd.backward(sums.loss * 1e3)  # it has come this far, and left something behind
            raise self.error
        return sums


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate"
    ),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_where_memory_runs_out_the_same_update_is_computed_in_smaller_parts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    eight, random = np.arange(9) * 5, np.random.default_rng(1)  # pairs of 5 pieces and their end symbol
    dataset = TokenDataset(
        *(Sequences(random.integers(4, V, 40).astype(np.uint32), eight.astype(np.int64)) for _ in range(2))
    )
    update = [np.arange(8)]
    whole = updater(clip_grad_norm=None, batch_size=100)
    truth = whole.train_on(dataset, update, 1, 0.0)
    assert caplog.messages == []

    cut = updater(clip_grad_norm=None, batch_size=100)  # of which 48 cells are used; half of 100 would change nothing
    memory = SmallMemory(15, error=error)
    monkeypatch.setattr(step, "batch_loss", memory)
    result = cut.train_on(dataset, update, 1, 0.0)
    assert memory.seen == [48, 24, 12, 12, 12, 12]
    assert result.tokens == truth.tokens == 48
    assert result.loss == pytest.approx(truth.loss, rel=1e-6)
    assert difference(gradient(cut), gradient(whole)) <= 1e-6
    # Each halving is said, and the last is remembered: nothing is tried in vain again.
    assert caplog.messages == [
        f"out of memory with {rows} pairs of up to 6 pieces at once: from here on an update is computed in parts of at "
        f"most {left} cells; its gradient stays the same"
        for rows, left in ((8, 24), (4, 12))
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert cut.batch_size == 12
    cut.train_on(dataset, update, 2, 0.0)
    assert memory.seen[6:] == [12, 12, 12, 12]
    assert len(caplog.messages) == 2


def test_pairs_are_halved_where_a_batch_counts_pairs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    update = plan_epoch(PAIRS, 32, "sentences", seed=1, epoch=0)[0]  # four groups of 8
    settings: dict[str, Any] = {"clip_grad_norm": None, "batch_type": "sentences", "batch_size": 8}
    whole, cut = updater(**settings), updater(**settings)
    whole.train_on(PAIRS, update, 1, 0.0)
    monkeypatch.setattr(step, "batch_loss", SmallMemory(3, counts="pairs"))
    cut.train_on(PAIRS, update, 1, 0.0)
    assert difference(gradient(cut), gradient(whole)) <= 1e-6
    assert cut.batch_size == 2
    assert [message.split(" in parts of ")[1] for message in caplog.messages] == [
        "at most 4 pairs; its gradient stays the same",
        "at most 2 pairs; its gradient stays the same",
    ]


def test_a_single_pair_that_does_not_fit_is_an_error_that_names_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "batch_loss", SmallMemory(5))
    one = updater(batch_size=BATCH_SIZE)
    before = weights(one)
    longest = max(map(PAIRS.longest, UPDATES[0]))
    for attempt in (lambda: one.train_on(PAIRS, UPDATES[0], 1, 1e-3), lambda: one.try_largest(PAIRS, UPDATES)):
        with pytest.raises(
            UserError, match=rf"a single pair of {longest} pieces does not fit into memory: lower data\.max_length"
        ):
            attempt()
    assert_same_bits(weights(one), before)


def test_another_error_is_none_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "batch_loss", SmallMemory(0, error=RuntimeError("mat1 and mat2 cannot be multiplied")))
    for attempt in (
        lambda: updater().train_on(PAIRS, UPDATES[0], 1, 1e-3),
        lambda: updater(batch_size=BATCH_SIZE).try_largest(PAIRS, UPDATES),
    ):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            attempt()


def test_the_largest_batch_is_tried_first_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    largest = max(PAIRS.cells(group) for update in UPDATES for group in update)
    untried, tried = (
        updater(dropout=0.3, batch_size=BATCH_SIZE),
        updater(dropout=0.3, batch_size=BATCH_SIZE),
    )
    before = weights(tried)
    memory = SmallMemory(10**6)
    with monkeypatch.context() as watched:
        watched.setattr(step, "batch_loss", memory)
        tried.try_largest(PAIRS, UPDATES)
    assert memory.seen == [largest]
    assert (tried.batch_size, caplog.messages) == (BATCH_SIZE, [])
    assert_same_bits(weights(tried), before)
    assert gradient(tried) == {}
    # Adam's moments are there, as memory for them must be, and say nothing yet.
    assert {name.rpartition(".")[0] for name in tried.optimizer_tensors()} == set(before)
    assert not any(tensor.any() for tensor in tried.optimizer_tensors().values())
    for number in (1, 2):
        for one in (untried, tried):
            one.train_on(PAIRS, UPDATES[number - 1], number, 1e-3)
    assert_same_bits(weights(tried), weights(untried))
    assert_same_bits(tried.optimizer_tensors(), untried.optimizer_tensors())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("processes", [1, 2, 8])
def test_the_batch_that_is_tried_is_the_largest_that_a_process_will_have(
    monkeypatch: pytest.MonkeyPatch, precision: Precision, processes: int
) -> None:
    group = OneOfSeveral(0, processes) if processes > 1 else Processes()
    one = Updater(model(), TrainingConfig(batch_size=4 * BATCH_SIZE), 7, CPU, precision, group)
    memory = SmallMemory(10**6)
    monkeypatch.setattr(step, "batch_loss", memory)
    one.try_largest(PAIRS, UPDATES)
    assert memory.seen == [max(PAIRS.cells(part) for update in UPDATES for part in one.cut(PAIRS, update))]


def test_where_nothing_is_planned_nothing_is_tried() -> None:
    assert updater(batch_size=BATCH_SIZE).try_largest(PAIRS, []) is None


def test_moments_that_were_restored_are_not_made_anew() -> None:
    one, other = (
        updater(batch_size=BATCH_SIZE),
        updater(batch_size=BATCH_SIZE),
    )
    one.train_on(PAIRS, UPDATES[0], 1, 1e-3)
    kept = {name: tensor.clone() for name, tensor in one.optimizer_tensors().items()}
    other.restore(kept, {})
    other.try_largest(PAIRS, UPDATES)
    assert_same_bits(other.optimizer_tensors(), kept)


def test_when_the_largest_batch_has_been_tried_no_update_runs_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = updater(batch_size=BATCH_SIZE)
    memory = SmallMemory(BATCH_SIZE // 2)
    monkeypatch.setattr(step, "batch_loss", memory)
    one.try_largest(PAIRS, UPDATES)
    assert gradient(one) == {}
    assert one.batch_size <= BATCH_SIZE // 2
    told, tried = len(caplog.messages), len(memory.seen)
    assert told == tried - 1
    for number, update in enumerate(UPDATES, start=1):
        one.train_on(PAIRS, update, number, 1e-3)
    assert max(memory.seen[tried:]) <= BATCH_SIZE // 2
    assert len(caplog.messages) == told


# --- several processes ------------------------------------------------------------------------------------------------


class OneOfSeveral(Processes):
    """As it looks to one process; what the others give to a sum is told beforehand."""

    def __init__(self, rank: int, count: int, sums: Sequence[Sequence[float]] = ()) -> None:
        self.rank = rank
        self.count = count
        self.sums = iter(sums)

    def sum(self, values: Sequence[float]) -> list[float]:
        return list(next(self.sums, values))


def target_tokens(update: Update) -> int:
    return int((PAIRS.target.lengths(np.concatenate(update)) + 1).sum())


@pytest.mark.parametrize("count", [2, 3, 8])
def test_the_mean_gradient_of_the_processes_is_that_of_one(count: int) -> None:
    for update in (UPDATES[0], UPDATES[1][:1], [UPDATES[2][0][:1]]):  # the last of a single pair: the others have none
        whole = updater(clip_grad_norm=None)
        truth = whole.train_on(PAIRS, update, 1, 0.0)
        losses, gradients = [], []
        for rank in range(count):
            group = OneOfSeveral(rank, count, sums=[[target_tokens(update)]])
            one = Updater(model(), TrainingConfig(clip_grad_norm=None), 7, CPU, "fp32", group)
            result = one.train_on(PAIRS, update, 1, 0.0)
            assert result.tokens == truth.tokens
            losses.append(result.loss)
            gradients.append(gradient(one))
        assert sum(losses) == pytest.approx(truth.loss, rel=1e-6)
        assert all(found.keys() == gradient(whole).keys() for found in gradients)
        mean = {name: torch.stack([found[name] for found in gradients]).mean(0) for name in gradients[0]}
        assert difference(mean, gradient(whole)) <= 1e-6


@every_precision
@pytest.mark.parametrize("tie", ["all", "none"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_a_process_without_a_pair_gives_zeros_for_every_parameter(
    precision: Precision, tie: str, positions: str
) -> None:
    group = OneOfSeveral(1, 2, sums=[[10.0]])
    changed = model(dropout=0.3, tie_embeddings=tie, positions=positions)
    one = Updater(changed, TrainingConfig(), 7, CPU, precision, group)
    result = one.update([], 1, 1e-3)
    assert (result.loss, result.nll, result.grad_norm, result.skipped) == (0.0, 0.0, 0.0, False)
    assert result.tokens == 10
    assert gradient(one).keys() == {name for name, _ in one.model.named_parameters()}
    assert not any(tensor.any() for tensor in gradient(one).values())


def test_each_process_has_its_own_dropout_and_one_alone_has_no_rank() -> None:
    def loss(group: Processes) -> float:
        return (
            Updater(model(dropout=0.5), TrainingConfig(), 7, CPU, "fp32", group)
            .update(batches(UPDATES[0]), 1, 1e-3)
            .loss
        )

    alone = loss(Processes())
    assert alone == updater(dropout=0.5).update(batches(UPDATES[0]), 1, 1e-3).loss
    assert len({alone, loss(OneOfSeveral(0, 2)), loss(OneOfSeveral(1, 2))}) == 3


def test_what_another_process_found_not_finite_is_left_out_here_too() -> None:
    group = OneOfSeveral(0, 2, sums=[[100.0], [math.nan, 1.0]])
    one = Updater(model(), TrainingConfig(), 7, CPU, "fp32", group)
    before = weights(one)
    assert one.update(batches(UPDATES[0]), 1, 1e-3).skipped
    assert_same_bits(weights(one), before)


def test_memory_that_runs_out_in_one_of_several_processes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others may have added to their gradients what this one's first half gave."""
    monkeypatch.setattr(step, "batch_loss", SmallMemory(0))
    one = Updater(model(), TrainingConfig(), 7, CPU, "fp32", OneOfSeveral(1, 2))
    with pytest.raises(UserError, match=r"process 1 ran out of memory: lower training\.batch_size and raise"):
        one.train_on(PAIRS, UPDATES[0], 1, 1e-3)


def test_the_least_that_fits_in_one_process_holds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tighter(OneOfSeveral):
        def min(self, value: int) -> int:
            return min(value, 17)

    one = Updater(model(), TrainingConfig(batch_size=BATCH_SIZE), 7, CPU, "fp32", Tighter(0, 2))
    one.try_largest(PAIRS, UPDATES)
    assert one.batch_size == 17


# --- chance ---------------------------------------------------------------------------------------------------------


def test_derived_seeds_stay_what_they_are() -> None:
    """A checkpoint goes on with the chance it would have had, so these may never change."""
    assert derived_seed(1) == 1695107200560264221
    assert derived_seed(1, 250, 0) == 3216395516913637179


def test_derived_seeds_differ_by_each_number_and_its_place() -> None:
    parts = [(1,), (2,), (1, 0, 0), (1, 0, 1), (1, 1, 0), (0, 1, 1), (1, 10, 0), (11, 0, 0), (1, 1, 0, 0)]
    seeds = [derived_seed(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_chance_follows_from_seed_step_and_micro_batch_alone() -> None:
    parts = batches(UPDATES[0], BATCH_SIZE)

    def loss(step: int, seed: int = 7, before: int = 0, order: Sequence[Batch] = parts) -> float:
        torch.manual_seed(before)
        one = Updater(model(dropout=0.5), TrainingConfig(), seed, CPU, "fp32")
        torch.rand(before)
        return one.update(order, step, 1e-3).loss

    assert loss(step=3) == loss(step=3, before=5)
    assert len({loss(step=3), loss(step=4), loss(step=3, seed=8), loss(step=3, order=parts[::-1])}) == 4


def test_each_micro_batch_has_its_own_dropout() -> None:
    part = batches(UPDATES[0], BATCH_SIZE)[0]
    single = updater(dropout=0.5).update([part], 1, 1e-3).loss
    assert updater(dropout=0.5).update([part, part], 1, 1e-3).loss != pytest.approx(2 * single, rel=1e-3)


def test_a_look_at_the_model_between_updates_changes_nothing() -> None:
    alone, watched = updater(dropout=0.3), updater(dropout=0.3)
    for number in range(1, 4):
        alone.update(batches(UPDATES[number]), number, 1e-3)
        watched.update(batches(UPDATES[number]), number, 1e-3)
        watched.model.eval()
        with torch.inference_mode():
            batch_loss(watched.model, batches(UPDATES[0])[0], smoothed_cross_entropy, 0.1)
        torch.rand(number)
    assert_same_bits(weights(alone), weights(watched))


# --- the optimizer --------------------------------------------------------------------------------------------------


def test_the_optimizer_is_pytorchs_adamw_bit_for_bit() -> None:
    settings = TrainingConfig(weight_decay=0.01)

    def trained(adamw: type[torch.optim.AdamW]) -> Updater:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step, "FusedAdamW", adamw)
            one = Updater(model(dropout=0.1), settings, seed=7, device=CPU, precision="fp32")
            for number, update in enumerate(UPDATES[:3], start=1):
                one.update(batches(update), number, 1e-2)
            two = Updater(model(dropout=0.1), settings, seed=7, device=CPU, precision="fp32")
            two.model.load_state_dict(one.model.state_dict())
            two.restore(one.optimizer_tensors(), {})
        for number, update in enumerate(UPDATES[:3], start=4):
            two.update(batches(update), number, 1e-3)
        return two

    ours, theirs = trained(step.FusedAdamW), trained(torch.optim.AdamW)
    assert_same_bits(weights(ours), weights(theirs))
    assert_same_bits(ours.optimizer_tensors(), theirs.optimizer_tensors())
    assert not any(parameter.grad_fn for parameter in ours.model.parameters())


def test_an_update_loads_no_compiler() -> None:
    script = """
import sys, torch
from transformer_cli.config.schema import ModelConfig, TrainingConfig
from transformer_cli.data.batching import Batch
from transformer_cli.model.transformer import Transformer
from transformer_cli.training.step import Updater
size = {"d_model": 16, "ffn_dim": 32, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
one = Updater(Transformer(ModelConfig(**size), 9, 9, 0), TrainingConfig(), 7, torch.device("cpu"), "fp32")
ids = torch.tensor([[5, 6, 3]])
one.update([Batch(ids, ids, ids)], 1, 1e-3)
one.restore(one.optimizer_tensors(), {})
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@every_precision
def test_restored_it_goes_on_bit_for_bit(precision: Precision) -> None:
    whole = updater(dropout=0.3, precision=precision)
    for number in range(1, 4):
        whole.update(batches(UPDATES[number], BATCH_SIZE), number, 1e-3)
    saved = {name: tensor.clone() for name, tensor in whole.optimizer_tensors().items()}
    kept, scale = weights(whole), whole.scaler.state_dict()

    restored = updater(dropout=0.3, precision=precision)
    restored.model.load_state_dict(kept, strict=False)
    restored.restore(saved, scale)
    assert_same_bits(restored.optimizer_tensors(), saved)
    for number in range(4, 7):
        rate = 1e-3 / number
        first = whole.update(batches(UPDATES[number], BATCH_SIZE), number, rate)
        second = restored.update(batches(UPDATES[number], BATCH_SIZE), number, rate)
        assert first == second
    assert_same_bits(weights(restored), weights(whole))
    assert_same_bits(restored.optimizer_tensors(), whole.optimizer_tensors())
    assert restored.scaler.state_dict() == whole.scaler.state_dict()


def test_the_optimizers_tensors_are_named_after_their_parameters() -> None:
    one = updater()
    assert one.optimizer_tensors() == {}
    one.update(batches(UPDATES[0]), 1, 1e-3)
    names = [name for name, _ in one.model.named_parameters()]
    kinds = ("step", "exp_avg", "exp_avg_sq")
    assert set(one.optimizer_tensors()) == {f"{name}.{kind}" for name in names for kind in kinds}
    assert one.optimizer_tensors()["encoder.layers.0.self_attention.key.weight.exp_avg"].shape == (16, 16)


def test_restoring_keeps_the_hyperparameters_of_the_configuration() -> None:
    old = updater(adam_eps=1e-3)
    old.update(batches(UPDATES[0]), 1, 1e-3)
    new = updater(adam_eps=1e-6, adam_betas=(0.5, 0.6))
    new.restore(old.optimizer_tensors(), {})
    group = new.optimizer.param_groups[0]
    assert (group["eps"], group["betas"], group["fused"]) == (1e-6, (0.5, 0.6), True)


@dataclass
class GivenGradients:
    """In place of the loss: one whose gradient by the single parameter is what was given for each update."""

    gradients: list[list[float]]
    calls: int = 0

    def __call__(self, model: nn.Module, batch: Batch, *_: object) -> LossSums:
        tokens = int((batch.tgt_out != PAD).sum())
        loss = (model.get_parameter("p") * torch.tensor(self.gradients[self.calls])).sum() * tokens
        self.calls += 1
        return LossSums(loss, loss.detach())


class OneParameter(nn.Module):
    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(values))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_three_steps_of_adam_by_its_formula(monkeypatch: pytest.MonkeyPatch, decay: float) -> None:
    gradients = [[0.5, -2.0, 0.0], [0.1, 3.0, 1e-8], [-0.7, 0.25, 1.0]]
    rates = [1e-3, 2e-3, 0.5e-3]
    start = [1.0, -0.5, 0.25]
    beta1, beta2, eps = 0.9, 0.98, 1e-9
    p, m, v = list(start), [0.0] * 3, [0.0] * 3
    for t, (grads, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        for i, g in enumerate(grads):
            m[i] = beta1 * m[i] + (1 - beta1) * g
            v[i] = beta2 * v[i] + (1 - beta2) * g * g
            p[i] -= rate * decay * p[i]
            p[i] -= rate * (m[i] / (1 - beta1**t)) / (math.sqrt(v[i] / (1 - beta2**t)) + eps)

    monkeypatch.setattr(step, "batch_loss", GivenGradients(gradients))
    one: Any = OneParameter(start)
    subject = Updater(one, TrainingConfig(clip_grad_norm=None, weight_decay=decay), 1, CPU, "fp32")
    for t, rate in enumerate(rates, start=1):
        subject.update(in_one(UPDATES[0]), t, rate)
    torch.testing.assert_close(one.p.detach(), torch.tensor(p), rtol=1e-6, atol=1e-8)
