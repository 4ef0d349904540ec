"""Attention against the formula by hand, against PyTorch's module, and its two forms against each other."""

import math
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from transformer_cli.model.attention import AttentionForm, MultiHeadAttention, attention_weights
from transformer_cli.model.masks import causal_mask, padding_mask

B, T, S, D, H = 3, 4, 5, 12, 3
K = D // H
EVERYTHING = torch.ones(1, 1, 2, dtype=torch.bool)  # of two keys
FORMS: tuple[AttentionForm, ...] = get_args(AttentionForm)

both_forms = pytest.mark.parametrize("form", FORMS)


def attention(form: AttentionForm, dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> MultiHeadAttention:
    """Every weight and bias random, the same for every form."""
    torch.manual_seed(1)
    module = MultiHeadAttention(D, H, dropout, form)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.to(dtype).eval()


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randn(B, T, D).to(dtype).requires_grad_(), torch.randn(B, S, D).to(dtype).requires_grad_()


def padded_keys() -> Tensor:
    return padding_mask(torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 0, 0], [5, 0, 0, 0, 0]]), pad=0)  # (B, 1, S)


def scattered_keys() -> Tensor:
    """Another pattern for each sentence and query, none of them empty: (B, T, S)."""
    mask = torch.rand(B, T, S, generator=torch.Generator().manual_seed(3)) < 0.5
    mask[..., 0] |= ~mask.any(-1)
    return mask


def with_empty_rows() -> Tensor:
    """One query of the first sentence, and all of the second, may attend to nothing: (B, T, S)."""
    mask = scattered_keys()
    mask[0, 1] = False
    mask[1] = False
    return mask


def empty_rows() -> Tensor:
    return ~with_empty_rows().any(-1)  # (B, T)


# --- by hand --------------------------------------------------------------------------------------------------------


def test_weights_by_hand() -> None:
    # Two heads of width 4, so sqrt(K) = 2 and the scores of the first head are ln 3, 0 and, hidden, ln 3.
    q = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]).view(1, 2, 1, 4)
    k = torch.tensor([[2 * math.log(3), 1, 1, 1], [0, 5, 5, 5], [2 * math.log(3), 0, 0, 0]]).expand(1, 2, 3, 4)
    mask = torch.tensor([True, True, False]).view(1, 1, 1, 3)
    expected = torch.tensor([[3 / 4, 1 / 4, 0], [1 / 2, 1 / 2, 0]]).view(1, 2, 1, 3)
    torch.testing.assert_close(attention_weights(q, k, mask), expected)


@both_forms
def test_scores_are_divided_by_the_root_of_the_head_width(form: AttentionForm) -> None:
    # The value of the first key is 1 and that of the second 0, so the result is the weight of the first, 3/4, exactly
    # when a product of sqrt(K) ln 3 becomes a score of ln 3.
    module = attention(form)
    q, k, v = (torch.zeros(1, H, length, K, dtype=torch.float64) for length in (1, 2, 2))
    q[..., 0], k[:, :, 0, 0], v[:, :, 0] = 1.0, math.sqrt(K) * math.log(3), 1.0
    nn.init.eye_(module.output.weight)
    nn.init.zeros_(module.output.bias)
    torch.testing.assert_close(module.attend(q, k, v, EVERYTHING), torch.full((1, 1, D), 0.75, dtype=torch.float64))


def test_every_head_has_a_projection_of_its_own() -> None:
    x, memory = inputs()
    for projection in ("query", "key", "value"):
        module = attention("written_out")
        before = module.queries(x), module.keys(memory), module.values(memory)
        with torch.no_grad():
            linear = getattr(module, projection)
            linear.weight[K : 2 * K] += 1.0  # the rows of the second of three heads
        after = module.queries(x), module.keys(memory), module.values(memory)
        changed = [
            [not torch.equal(b[:, head], a[:, head]) for head in range(H)] for b, a in zip(before, after, strict=True)
        ]
        assert changed == [
            [name == projection and head == 1 for head in range(H)] for name in ("query", "key", "value")
        ]


# --- against a slower truth -----------------------------------------------------------------------------------------


def torch_attention(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(D, H, batch_first=True).to(ours.query.weight.dtype)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return theirs


def gradients(output: Tensor, wanted: list[Tensor]) -> tuple[Tensor, ...]:
    """Of a sum in which every number counts differently."""
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return torch.autograd.grad((output * weight).sum(), wanted)


@both_forms
@pytest.mark.parametrize(
    "mask",
    [torch.ones(1, 1, S, dtype=torch.bool), padded_keys(), scattered_keys()],
    ids=["nothing hidden", "padding", "a mask for each query"],
)
def test_attention_equals_torch(form: AttentionForm, mask: Tensor) -> None:
    ours = attention(form)
    theirs = torch_attention(ours)
    x, memory = inputs()
    output = ours(x, memory, mask)
    hidden = ~mask.expand(B, T, S).repeat_interleave(H, dim=0)  # theirs: True = may not
    expected, _ = theirs(x, memory, memory, attn_mask=hidden)
    torch.testing.assert_close(output, expected)

    linears = [ours.query, ours.key, ours.value]
    found = gradients(output, [x, memory, *(linear.weight for linear in linears), *(linear.bias for linear in linears)])
    truth = gradients(expected, [x, memory, theirs.in_proj_weight, theirs.in_proj_bias])
    found = (*found[:2], torch.cat(found[2:5]), torch.cat(found[5:]))
    torch.testing.assert_close(found, truth)


@both_forms
def test_causal_self_attention_equals_torch(form: AttentionForm) -> None:
    ours = attention(form)
    x, _ = inputs()
    output = ours(x, x, causal_mask(T, x.device))
    above = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected, _ = torch_attention(ours)(x, x, x, attn_mask=above)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(gradients(output, [x]), gradients(expected, [x]))


@pytest.mark.parametrize(
    "mask",
    [causal_mask(S, torch.device("cpu"))[:, :T], padded_keys(), scattered_keys(), with_empty_rows()],
    ids=["causal", "padding", "a mask for each query", "empty rows"],
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_the_two_forms_are_equal(mask: Tensor, dtype: torch.dtype, tolerance: float) -> None:
    results = []
    for form in FORMS:
        module = attention(form, dtype=dtype)
        x, memory = inputs(dtype)
        output = module(x, memory, mask)
        results.append((output, *gradients(output, [x, memory, *module.parameters()])))
    torch.testing.assert_close(results[0], results[1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("length", [8, 9, 15, 16, 17, 24, 25, 31, 33])
def test_the_two_forms_are_equal_whether_or_not_the_keys_fill_the_lanes(length: int) -> None:
    torch.manual_seed(length)
    mask = torch.rand(2, length, length) < 0.5
    mask[0, 3] = False  # a query without keys
    for mask_of in (mask, mask[:, :1], torch.ones(1, 1, 1, dtype=torch.bool), causal_mask(length, mask.device)):
        results = []
        for form in FORMS:
            module = attention(form)
            x = torch.randn(2, length, D, generator=torch.Generator().manual_seed(4)).double().requires_grad_()
            output = module(x, x, mask_of)
            results.append((output, *gradients(output, [x, *module.parameters()])))
        torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)


# --- what is hidden -------------------------------------------------------------------------------------------------


@both_forms
def test_a_hidden_key_has_no_influence_at_all(form: AttentionForm) -> None:
    module = attention(form)
    x, memory = inputs()
    mask = padded_keys()
    changed = torch.where(mask.transpose(1, 2), memory, 1000.0)
    assert torch.equal(module(x, memory, mask), module(x, changed, mask))
    (gradient,) = gradients(module(x, memory, mask), [memory])
    shown = mask.squeeze(1)
    assert (gradient[~shown] == 0).all()
    assert (gradient[shown] != 0).all()


@both_forms
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_query_without_keys_gets_zeros_and_no_gradient(form: AttentionForm, dtype: torch.dtype) -> None:
    module = attention(form, dtype=dtype)
    x, memory = inputs(dtype)
    output = module(x, memory, with_empty_rows())
    empty = empty_rows()
    assert torch.equal(output[empty], module.output.bias.expand_as(output[empty]))  # the projection of a zero
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either
        of_x, of_memory, *of_weights = gradients(output, [x, memory, *module.parameters()])
    assert (of_x[empty] == 0).all()
    assert (of_memory[1] == 0).all()
    assert all(gradient.isfinite().all() for gradient in (of_x, of_memory, *of_weights))
    assert (of_x[~empty] != 0).any(-1).all()


@both_forms
def test_a_query_without_keys_is_no_nan_under_autocast(form: AttentionForm) -> None:
    module = attention(form, dtype=torch.float32)
    x, memory = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        output = module(x, memory, with_empty_rows())
    empty = empty_rows()
    bias = module.output.bias.to(output.dtype)
    assert torch.equal(output[empty], bias.expand_as(output[empty]))
    assert all(gradient.isfinite().all() for gradient in gradients(output, [x, memory, *module.parameters()]))


def test_the_weights_of_a_query_without_keys_are_zero() -> None:
    module = attention("written_out")
    x, memory = inputs()
    weights = attention_weights(module.queries(x), module.keys(memory), with_empty_rows().unsqueeze(1))
    sums = (~empty_rows()).double().unsqueeze(1).expand(B, H, T)
    torch.testing.assert_close(weights.sum(-1), sums)


def test_the_gradient_of_the_weights_is_their_numerical_derivative() -> None:
    torch.manual_seed(3)
    q, k = torch.randn(B, H, T, K).double().requires_grad_(), torch.randn(B, H, S, K).double().requires_grad_()
    mask = torch.rand(B, 1, T, S) < 0.7
    mask[:, :, 1] = False  # a query without keys
    assert torch.autograd.gradcheck(lambda q, k: attention_weights(q, k, mask), (q, k))


def test_scores_thousands_apart_give_exact_weights() -> None:
    q, k = torch.full((1, 1, 1, 1), 1e4), torch.tensor([[[[3.0], [-3.0], [3.0], [2.0]]]])
    weights = attention_weights(q, k, torch.ones(1, 1, 1, 4, dtype=torch.bool))
    assert weights.flatten().tolist() == [0.5, 0.0, 0.5, 0.0]


# --- dropout --------------------------------------------------------------------------------------------------------


@both_forms
def test_dropout_falls_on_the_weights_and_only_in_training(form: AttentionForm) -> None:
    module = attention(form, dropout=0.25)
    nn.init.eye_(module.output.weight)
    nn.init.zeros_(module.output.bias)
    # Each of two keys has the weight 1/2 and a value of its own: what remains of the two shows which were dropped.
    q, k = torch.zeros(2000, H, 1, K, dtype=torch.float64), torch.zeros(2000, H, 2, K, dtype=torch.float64)
    v = torch.tensor([1.0, 10.0], dtype=torch.float64).view(2, 1).expand(2000, H, 2, K)
    assert torch.equal(module.attend(q, k, v, EVERYTHING), torch.full((2000, 1, D), 5.5, dtype=torch.float64))
    module.train()
    heads = module.attend(q, k, v, EVERYTHING).view(2000 * H, K)
    assert (heads == heads[:, :1]).all()  # the weight is dropped, and with it the whole value
    kept = heads[:, 0] * 0.75 * 2  # (weights kept) x (1, 10)
    share = {total: (kept - total).abs().lt(1e-9).double().mean().item() for total in (0.0, 1.0, 10.0, 11.0)}
    # Of 6000 draws: the standard deviation of a share is at most 0.0064.
    assert share == pytest.approx({0.0: 1 / 16, 1.0: 3 / 16, 10.0: 3 / 16, 11.0: 9 / 16}, abs=0.03)
