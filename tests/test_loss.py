"""The loss of case C8 by hand, against a slow formula, and against autograd of the smoothed distribution."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.training import loss
from transformer_cli.training.loss import LossSums, fused_cross_entropy, smoothed_cross_entropy

Form = Callable[[Tensor, Tensor, Tensor, int, float], LossSums]
both_forms = pytest.mark.parametrize("form", [smoothed_cross_entropy, fused_cross_entropy])

PAD, EPSILON, V = 0, 0.1, 6

# Two rows of four positions; with the identity as output weight the hidden states are the logits.
LOGITS = torch.tensor(
    [
        [[0, 1, 2, 0.5, -1, 0], [0, 0.2, 0.1, 3, 0, -2], [1, 0, 0, 0, 0, 1], [5, 4, 3, 2, 1, 0]],
        [[0.3, 0.1, 0.4, 0.1, 0.5, 0.9], [9, 9, 9, 9, 9, 0], [1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]],
    ]
)
TARGETS = torch.tensor([[2, 3, 5, PAD], [4, PAD, PAD, PAD]])
TOKENS = 4
IDENTITY = torch.eye(V)

# What the right piece (0.9), padding (0) and each of the other four (0.1 / 4) get, for the targets 2 3 5 4.
SMOOTHED = torch.tensor(
    [
        [0.0, 0.025, 0.9, 0.025, 0.025, 0.025],
        [0.0, 0.025, 0.025, 0.9, 0.025, 0.025],
        [0.0, 0.025, 0.025, 0.025, 0.025, 0.9],
        [0.0, 0.025, 0.025, 0.025, 0.9, 0.025],
    ]
)


def random_batch(vocab: int = 11, d_model: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """hidden (3, 7, D), weight (V, D), targets (3, 7) of lengths 7, 4 and 1."""
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(3, 7, d_model, generator=generator)
    weight = torch.randn(vocab, d_model, generator=generator)
    targets = torch.randint(1, vocab, (3, 7), generator=generator)
    return hidden, weight, targets.masked_fill(torch.arange(7) >= torch.tensor([[7], [4], [1]]), PAD)


def gradients(
    form: Form, hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss and its gradients by hidden states and weight."""
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    total = form(hidden, weight, targets, PAD, epsilon).loss
    by_hidden, by_weight = torch.autograd.grad(total, [hidden, weight])
    return total.detach(), by_hidden, by_weight


# --- case C8 --------------------------------------------------------------------------------------------------------


@both_forms
def test_the_means_of_case_c8(form: Form) -> None:
    sums = form(LOGITS, IDENTITY, TARGETS, PAD, EPSILON)
    assert float(sums.nll) / TOKENS == pytest.approx(0.951989, abs=1e-6)
    assert float(sums.loss) / TOKENS == pytest.approx(1.112614, abs=1e-6)
    # over all eight positions, the same with mass on all V classes, padding scored, per sentence, the mean of two
    # means, mass on all V classes
    for wrong in (1.112614 / 2, 0.540369, 1.587625, 2.161478, 1.296010, 1.080739):
        assert abs(float(sums.loss) / TOKENS - wrong) > 0.01


@both_forms
def test_the_smoothed_distribution_is_this_matrix(form: Form) -> None:
    real_logits = LOGITS[TARGETS != PAD]
    expected = -(SMOOTHED * real_logits.log_softmax(-1)).sum()
    total, by_hidden, _ = gradients(form, LOGITS, IDENTITY, TARGETS, EPSILON)
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=0)
    # Cross-entropy of a softmax: its gradient is the difference of the two distributions.
    torch.testing.assert_close(by_hidden[TARGETS != PAD], real_logits.softmax(-1) - SMOOTHED, rtol=0, atol=1e-6)


@both_forms
def test_two_micro_batches_add_up_to_one_batch(form: Form) -> None:
    hidden, weight, targets = random_batch()
    tokens = int((targets != PAD).sum())
    whole = [gradient / tokens for gradient in gradients(form, hidden, weight, targets, EPSILON)]
    first = gradients(form, hidden[:1], weight, targets[:1], EPSILON)
    second = gradients(form, hidden[1:], weight, targets[1:], EPSILON)
    parts = [first[0] + second[0], torch.cat([first[1], second[1]]), first[2] + second[2]]
    for part, expected in zip(parts, whole, strict=True):
        assert (part / tokens - expected).norm() <= 1e-6 * expected.norm()


# --- a slower truth -------------------------------------------------------------------------------------------------


@both_forms
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_the_sums_are_those_of_a_loop_over_tokens_and_classes(form: Form, epsilon: float) -> None:
    hidden, weight, targets = random_batch()
    total = nll = 0.0
    for states, golds in zip(hidden.tolist(), targets.tolist(), strict=True):
        for state, gold in zip(states, golds, strict=True):
            if gold == PAD:
                continue
            logits = [sum(h * w for h, w in zip(state, row, strict=True)) for row in weight.tolist()]
            normaliser = math.log(sum(math.exp(logit) for logit in logits))
            for piece, logit in enumerate(logits):
                share = 1 - epsilon if piece == gold else 0 if piece == PAD else epsilon / (len(logits) - 2)
                total -= share * (logit - normaliser)
            nll -= logits[gold] - normaliser
    sums = form(hidden, weight, targets, PAD, epsilon)
    assert float(sums.loss) == pytest.approx(total, rel=1e-5)
    assert float(sums.nll) == pytest.approx(nll, rel=1e-5)


@both_forms
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_the_gradients_are_those_of_the_explicit_distribution(form: Form, epsilon: float) -> None:
    hidden, weight, targets = (tensor.double() if tensor.is_floating_point() else tensor for tensor in random_batch())
    vocab = len(weight)
    distribution = torch.full((*targets.shape, vocab), epsilon / (vocab - 2), dtype=torch.float64)
    distribution[:, :, PAD] = 0.0
    distribution.scatter_(2, targets.unsqueeze(2), 1 - epsilon)
    distribution[targets == PAD] = 0.0
    own_hidden, own_weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    explicit = -(distribution * F.linear(own_hidden, own_weight).log_softmax(-1)).sum()
    by_hidden, by_weight = torch.autograd.grad(explicit, [own_hidden, own_weight])

    total, *found = gradients(form, hidden.float(), weight.float(), targets, epsilon)
    torch.testing.assert_close(total.double(), explicit.detach(), rtol=1e-5, atol=0)
    torch.testing.assert_close(found[0].double(), by_hidden, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found[1].double(), by_weight, rtol=1e-4, atol=1e-6)


@both_forms
def test_without_smoothing_it_is_pytorchs_cross_entropy(form: Form) -> None:
    hidden, weight, targets = random_batch()
    own_hidden, own_weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    expected = F.cross_entropy(
        F.linear(own_hidden, own_weight).flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"
    )
    total, by_hidden, by_weight = gradients(form, hidden, weight, targets, 0.0)
    torch.testing.assert_close(total, expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(by_hidden, torch.autograd.grad(expected, own_hidden, retain_graph=True)[0])
    torch.testing.assert_close(by_weight, torch.autograd.grad(expected, own_weight)[0])


def test_the_fused_form_is_the_plain_one_however_many_chunks_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    hidden, weight = torch.randn(5, 11, 8), torch.randn(50, 8)
    targets = torch.randint(0, 50, (5, 11))  # some are padding
    plain = gradients(smoothed_cross_entropy, hidden, weight, targets, EPSILON)
    for cells in (1 << 20, 20 * 50, 1):
        monkeypatch.setattr(loss, "_CHUNK_CELLS", {"cpu": cells})
        fused = gradients(fused_cross_entropy, hidden, weight, targets, EPSILON)
        for found, expected in zip(fused, plain, strict=True):
            assert (found - expected).norm() <= 1e-6 * expected.norm()


def test_a_factor_of_the_loss_is_one_of_the_fused_gradient() -> None:
    hidden, weight, targets = random_batch()
    own = hidden.clone().requires_grad_()
    (seventh,) = torch.autograd.grad(fused_cross_entropy(own, weight, targets, PAD, EPSILON).loss / 7, own)
    torch.testing.assert_close(seventh, gradients(fused_cross_entropy, hidden, weight, targets, EPSILON)[1] / 7)


# --- padding --------------------------------------------------------------------------------------------------------


@both_forms
def test_more_columns_of_padding_change_nothing(form: Form) -> None:
    hidden, weight, targets = random_batch()
    before = gradients(form, hidden, weight, targets, EPSILON)
    longer = F.pad(hidden, (0, 0, 0, 3), value=1e30)
    after = gradients(form, longer, weight, F.pad(targets, (0, 3), value=PAD), EPSILON)
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[1], F.pad(before[1], (0, 0, 0, 3)))
    assert torch.equal(after[2], before[2])


@both_forms
def test_what_stands_at_padding_reaches_neither_sum_nor_gradient(form: Form) -> None:
    hidden, weight, targets = random_batch()
    before = gradients(form, hidden, weight, targets, EPSILON)
    after = gradients(form, hidden.masked_fill((targets == PAD).unsqueeze(2), math.nan), weight, targets, EPSILON)
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert not after[1][targets == PAD].any()


@both_forms
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_a_batch_of_nothing_but_padding_gives_zeros(form: Form, epsilon: float) -> None:
    hidden, weight, targets = random_batch()
    nothing = torch.full_like(targets, PAD)
    assert float(form(hidden, weight, nothing, PAD, epsilon).nll) == 0.0
    total, by_hidden, by_weight = gradients(form, hidden, weight, nothing, epsilon)
    assert float(total) == 0.0
    assert torch.equal(by_hidden, torch.zeros_like(hidden))
    assert torch.equal(by_weight, torch.zeros_like(weight))


# --- numbers --------------------------------------------------------------------------------------------------------


def test_half_precision_states_are_summed_in_fp32() -> None:
    hidden, weight, targets = (t.bfloat16() if t.is_floating_point() else t for t in random_batch(vocab=500))
    sums = smoothed_cross_entropy(hidden, weight, targets, PAD, EPSILON)
    assert sums.loss.dtype == sums.nll.dtype == torch.float32
    logits = F.linear(hidden, weight).float()  # only the product is rounded
    exact = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(sums.nll, exact, rtol=1e-6, atol=0)


@both_forms
def test_under_autocast_the_sums_are_fp32_and_the_gradient_reaches_the_fp32_weight(form: Form) -> None:
    hidden, weight, targets = random_batch()
    with torch.autocast("cpu", torch.bfloat16):
        total, _, by_weight = gradients(form, hidden, weight, targets, EPSILON)
    assert total.dtype == by_weight.dtype == torch.float32


@both_forms
def test_logits_of_any_size_give_a_finite_loss(form: Form) -> None:
    total, by_hidden, _ = gradients(form, 1e4 * LOGITS, IDENTITY, TARGETS, EPSILON)
    assert total.isfinite()
    assert by_hidden.isfinite().all()


@both_forms
def test_the_plain_nll_carries_no_gradient(form: Form) -> None:
    for epsilon in (0.0, EPSILON):
        sums = form(LOGITS.clone().requires_grad_(), IDENTITY, TARGETS, PAD, epsilon)
        assert sums.loss.requires_grad
        assert not sums.nll.requires_grad
