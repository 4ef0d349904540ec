"""Products with weights in a layout that is made once."""

import pytest
import torch

from transformer_cli.model.products import Product


@pytest.mark.parametrize(("inputs", "outputs", "packed"), [(64, 96, False), (128, 512, True), (256, 1031, True)])
@pytest.mark.parametrize("rows", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_product_is_that_of_double_precision(
    inputs: int, outputs: int, packed: bool, rows: int, has_bias: bool
) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight, bias = torch.randn(outputs, inputs, generator=generator), torch.randn(outputs, generator=generator)
    x = torch.randn(rows, inputs, generator=generator)
    expected = x.double() @ weight.double().t() + (bias.double() if has_bias else 0.0)
    product = Product(weight, bias if has_bias else None, torch.float32)
    assert product.packed == (packed and torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    torch.testing.assert_close(product(x).double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 96), (128, 512)])
def test_half_precision_rounds_weights_input_and_output(inputs: int, outputs: int) -> None:
    generator = torch.Generator().manual_seed(1)
    weight, x = torch.randn(outputs, inputs, generator=generator), torch.randn(9, inputs, generator=generator)
    found = Product(weight, None, torch.bfloat16)(x)
    assert found.dtype == torch.bfloat16
    expected = (x.bfloat16().double() @ weight.bfloat16().double().t()).bfloat16()
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-7)


def test_later_changes_of_the_weights_do_not_matter() -> None:
    for outputs in (96, 1024):
        weight = torch.ones(outputs, 64)
        product = Product(weight, None, torch.float32)
        weight.fill_(2.0)
        assert product(torch.ones(3, 64)).unique().tolist() == [64.0]


def test_without_onednn_the_product_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = torch.randn(1024, 128), torch.randn(5, 128)
    expected = Product(weight, None, torch.float32)(x)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    product = Product(weight, None, torch.float32)
    assert not product.packed
    torch.testing.assert_close(product(x), expected, rtol=0, atol=1e-4)
