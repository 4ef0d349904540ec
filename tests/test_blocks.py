"""Dropout from 16-bit words: its share, its mean and its independence are those of a coin for each number."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.model.blocks import Dropout, dropout

COUNT = 2**20  # of each of the four words of a 64-bit integer
RATES = [0.5, 0.25, 0.1, 0.3, 1 / 65_536, 0.999]


def ones(count: int = 4 * COUNT) -> Tensor:
    torch.manual_seed(1)
    return torch.ones(count)


def deviation(p: float, count: int) -> float:
    """Of a share among so many draws."""
    return math.sqrt(p * (1 - p) / count)


# --- how much is dropped --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", RATES)
def test_each_of_the_four_words_of_a_random_integer_drops_its_share(p: float) -> None:
    dropped = (dropout(ones(), p) == 0).view(-1, 4).double().mean(0)
    # 5 deviations, and what rounding to 1/65,536 makes of p.
    assert (dropped - p).abs().max() < 5 * deviation(p, COUNT) + 2**-17


@pytest.mark.parametrize("p", [0.5, 0.1])
def test_neighbours_are_dropped_independently(p: float) -> None:
    dropped = (dropout(ones(), p) == 0).view(-1, 4).double()
    together = dropped.T @ dropped / COUNT
    for i in range(4):
        for j in range(i):
            assert together[i, j] == pytest.approx(p * p, abs=5 * deviation(p * p, COUNT))
    # nor does an integer tell of the next
    following = (dropped[1:] * dropped[:-1]).mean(0)
    assert (following - p * p).abs().max() < 5 * deviation(p * p, COUNT)


def test_every_value_of_a_word_is_as_likely_at_the_edges_as_elsewhere() -> None:
    # One value of 65,536 dropped, and one kept: 64 of the 4,194,304 on average, deviation 8.
    assert (dropout(ones(), 1 / 65_536) == 0).sum().item() == pytest.approx(64, abs=40)
    assert (dropout(ones(), 65_535 / 65_536) != 0).sum().item() == pytest.approx(64, abs=40)


@pytest.mark.parametrize("p", [1e-6, 1 - 1e-6, 1 - 1e-9])
def test_a_rate_beyond_what_16_bits_can_tell_is_the_nearest_that_they_can(p: float) -> None:
    kept = (dropout(ones(10_000), p) != 0).sum().item()
    assert kept == 10_000 if p < 0.5 else kept <= 3  # 0.15 on average


# --- what is kept ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "scaled"), [(0.5, 2.0), (0.25, 4 / 3), (0.75, 4.0)])
def test_what_is_kept_is_scaled_up(p: float, scaled: float) -> None:
    x = torch.linspace(1.0, 2.0, 1001)
    y = dropout(x, p)
    assert torch.equal(y[y != 0], (x * scaled)[y != 0])
    assert 0 < (y == 0).sum() < 1001


@pytest.mark.parametrize("p", RATES)
def test_the_mean_is_kept(p: float) -> None:
    y = dropout(ones(), p).double()
    assert y.mean().item() == pytest.approx(1.0, abs=5 * deviation(p, 4 * COUNT) / (1 - p))
    # Without chance: the scale is one over the share that a word keeps, which is p rounded to 1/65,536.
    (scale,) = set(y.tolist()) - {0.0}
    assert scale == pytest.approx(1 / (1 - round(p * 65_536) / 65_536), rel=1e-6)


def test_a_rate_of_zero_gives_the_very_tensor_and_draws_nothing() -> None:
    x = torch.randn(3, 5)
    before = torch.get_rng_state()
    assert dropout(x, 0.0) is x
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (5,), (7,), (3, 5, 7), (2, 3, 1, 11), (0,), (4, 0, 3)])
def test_any_shape_and_number_of_elements_goes_through(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    x = torch.randn(shape)
    seen = set()
    for _ in range(50):
        y = dropout(x, 0.5)
        assert y.shape == x.shape
        assert ((y == 0) | (y == 2 * x)).all()
        seen.add(tuple((y == 0).flatten().tolist()))
    assert len(seen) >= min(2 ** x.numel(), 10)  # the last elements are drawn, too


def test_a_tensor_that_does_not_lie_in_order_in_memory_goes_through() -> None:
    torch.manual_seed(1)
    x = torch.randn(6, 8).t()[::2]
    y = dropout(x, 0.5)
    assert y.shape == (4, 6)
    assert ((y == 0) | (y == 2 * x)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_mask_is_the_same_in_every_number_format(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    expected = dropout(torch.ones(999), 0.25)
    torch.manual_seed(1)
    y = dropout(torch.ones(999, dtype=dtype), 0.25)
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), expected, rtol=torch.finfo(dtype).eps, atol=0)


# --- the gradient ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_gradient_passes_where_the_number_did(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.rand(33, 31).add(0.5).to(dtype).requires_grad_()
    y = dropout(x, 0.5)
    wanted = torch.rand(33, 31).add(0.5).to(dtype)
    (gradient,) = torch.autograd.grad(y, x, wanted)
    assert torch.equal(gradient, torch.where(y == 0, 0.0, 2 * wanted))
    assert (y == 0).any()


# --- chance ---------------------------------------------------------------------------------------------------------


def test_the_mask_follows_from_the_seed_and_each_call_has_its_own() -> None:
    def two(seed: int) -> tuple[Tensor, Tensor]:
        torch.manual_seed(seed)
        return dropout(torch.ones(100), 0.5), dropout(torch.ones(100), 0.5)

    first, second = two(1)
    assert not torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip((first, second), two(1), strict=True))
    assert not torch.equal(first, two(2)[0])


def test_a_mask_does_not_depend_on_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(dropout(ones(), 0.3))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


# --- elsewhere ------------------------------------------------------------------------------------------------------


def test_on_another_device_it_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[float] = []
    theirs: Callable[..., Tensor] = F.dropout

    def watched(x: Tensor, p: float) -> Tensor:
        called.append(p)
        return theirs(x, p)

    monkeypatch.setattr(F, "dropout", watched)
    assert dropout(torch.ones(3, 5, device="meta"), 0.25).shape == (3, 5)
    assert called == [0.25]
    dropout(torch.ones(3, 5), 0.25)
    assert called == [0.25]


def test_the_module_drops_in_training_only() -> None:
    module = Dropout(0.5)
    x = torch.rand(100) + 0.5
    y = module(x)
    assert set((y / x).tolist()) == {0.0, 2.0}
    assert module.eval()(x) is x
    assert Dropout(0.0)(x) is x
