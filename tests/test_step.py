"""One update: how it is cut changes nothing, chance is derived, the norm is the gradient's own, and Adam is Adam."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from transformer_cli.config.schema import ModelConfig, TrainingConfig
from transformer_cli.data.batching import Batch, Indices, make_batch, micro_batches, plan_epoch
from transformer_cli.data.dataset import Sequences, TokenDataset
from transformer_cli.data.tokenizer import PAD
from transformer_cli.device import Precision
from transformer_cli.model.transformer import Transformer
from transformer_cli.training import step
from transformer_cli.training.loss import LossSums, fused_cross_entropy, smoothed_cross_entropy
from transformer_cli.training.step import Updater, batch_loss, derived_seed

CPU = torch.device("cpu")
V = 20
BATCH_SIZE = 48  # cells
SCALE = 65536.0  # of a fresh GradScaler

every_precision = pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])


def model(dropout: float = 0.0) -> Transformer:
    torch.manual_seed(1)
    return Transformer(
        ModelConfig(d_model=16, ffn_dim=32, num_heads=2, encoder_layers=2, decoder_layers=2, dropout=dropout), V, V, PAD
    )


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


def batches(update: Indices, batch_size: int = 4 * BATCH_SIZE) -> list[Batch]:
    return [make_batch(PAIRS, part) for part in micro_batches(update, PAIRS, batch_size, "tokens")]


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


def test_1x4_2x2_and_4x1_have_the_same_gradient() -> None:
    for update in UPDATES[:5]:
        found = []
        for batch_size in (4 * BATCH_SIZE, 2 * BATCH_SIZE, BATCH_SIZE):
            one = updater(clip_grad_norm=None)
            parts = batches(update, batch_size)
            result = one.update(parts, step=1, rate=1e-3)
            found.append((len(parts), result, gradient(one)))
        whole = found[0]
        assert whole[0] == 1 < found[1][0] < found[2][0]
        for _, result, cut in found[1:]:
            assert result.tokens == whole[1].tokens
            assert result.loss == pytest.approx(whole[1].loss, rel=1e-6)
            assert result.nll == pytest.approx(whole[1].nll, rel=1e-6)
            assert result.grad_norm == pytest.approx(whole[1].grad_norm, rel=1e-6)
            assert norm([cut[name] - whole[2][name] for name in cut]) <= 1e-6 * norm(list(whole[2].values()))
            for name in cut:
                assert norm([cut[name] - whole[2][name]]) <= 1e-6 * (1 if is_key_bias(name) else norm([whole[2][name]]))


def test_1x4_2x2_and_4x1_have_the_same_weights_after_20_updates() -> None:
    found = []
    for batch_size in (4 * BATCH_SIZE, 2 * BATCH_SIZE, BATCH_SIZE):
        one = updater()
        losses = []
        for number in range(1, 21):
            result = one.update(batches(UPDATES[number % len(UPDATES)], batch_size), number, rate=1e-3)
            losses.append(result.loss / result.tokens)
        found.append((losses, weights(one)))
    for losses, cut in found[1:]:
        assert losses == pytest.approx(found[0][0], rel=1e-5)
        for name, weight in cut.items():
            if not is_key_bias(name):
                torch.testing.assert_close(weight, found[0][1][name], rtol=0, atol=1e-5, msg=name)
    assert found[0][0][-1] < found[0][0][0]


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
    lengths = PAIRS.target.lengths(UPDATES[0])
    assert result.tokens == int(lengths.sum()) + len(lengths)  # an end symbol each


def test_no_gradient_is_left_from_the_update_before() -> None:
    first, second = updater(clip_grad_norm=None), updater(clip_grad_norm=None)
    first.update(batches(UPDATES[1]), 1, rate=0.0)  # changes no weight
    first.update(batches(UPDATES[0]), 2, rate=0.0)
    second.update(batches(UPDATES[0]), 2, rate=0.0)
    assert_same_bits(gradient(first), gradient(second))


# --- clipping (case C10) --------------------------------------------------------------------------------------------


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
    assert not math.isfinite(result.grad_norm)
    assert_same_bits(weights(one), before)
    assert one.scaler.get_scale() == SCALE / 2


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
        subject.update(batches(UPDATES[0]), t, rate)
    torch.testing.assert_close(one.p.detach(), torch.tensor(p), rtol=1e-6, atol=1e-8)
