"""Matrix products with weights that no longer change, for decoding."""

import torch
from torch import Tensor

# Weights of fewer elements are multiplied by PyTorch's usual product, since a call of oneDNN costs 20 µs more.
_PACKED_FROM = 2**16


class Product:
    """y = x W^T + b, with the weights laid out once.

    PyTorch's product on CPU brings them into the layout of its kernel at each call, which takes as long as a product
    with few rows. oneDNN can keep its layout: with 5 rows and 8,000 outputs it takes half the time, with 100 rows four
    fifths.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        """weight (out, in), bias (out); both are converted to `dtype`, and so is x."""
        weight = weight.to(dtype)
        self.dtype = dtype
        self.bias = None if bias is None else bias.to(dtype)
        self.packed = _can_be_packed(weight)
        self.weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous()) if self.packed else weight.t().contiguous()
        )

    def __call__(self, x: Tensor) -> Tensor:
        """x (N, in) -> (N, out)."""
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
        if self.packed:
            product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, "none", [], "")
            return product
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


def _can_be_packed(weight: Tensor) -> bool:
    """Whether oneDNN has the product, which torch.compile uses, too, and is faster."""
    operations = torch.ops.mkldnn
    if not weight.is_cpu or weight.numel() < _PACKED_FROM or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if not hasattr(operations, "_linear_pointwise") or not hasattr(operations, "_reorder_linear_weight"):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(operations._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32
