"""PyTorch's basic modules, with typed calls and without the default random initialisation.

`Transformer` initialises its weights itself, and a model read from a file needs no initialisation: PyTorch's default
would spend a second at each start on random numbers that are thrown away.
"""

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LOG2_E = math.log2(math.e)  # exp(x) = exp2(x * LOG2_E), of which PyTorch's exp2 is three times as fast on CPU


class Linear(nn.Linear):
    """y = x W^T + b, with uninitialised weights."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def reset_parameters(self) -> None:
        """Leave the weights uninitialised."""


class Embedding(nn.Embedding):
    """A vector for each id, with uninitialised weights."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def reset_parameters(self) -> None:
        """Leave the weights uninitialised."""


class LayerNorm(nn.LayerNorm):
    """Layer normalisation (Ba et al. 2016), gain 1 and bias 0 at the start."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each element with probability p (on CPU rounded to 1/65,536) and scale the rest by 1 / (1 - p).

    PyTorch draws a random float for each element, which is slow on CPU; here four elements share one random 64-bit
    integer.
    """
    if p == 0.0:
        return x
    if not x.is_cpu:
        return F.dropout(x, p)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    dropped = min(round(p * 2**16), 2**16 - 1)  # of the 65,536 values of a word
    keep = words[: x.numel()].view(x.shape) >= dropped - 2**15
    return x * keep.to(x.dtype).mul_(2**16 / (2**16 - dropped))


class Dropout(nn.Dropout):
    """Zero random elements and scale up the rest, in training only."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape."""
        return dropout(x, self.p) if self.training else x


class Identity(nn.Identity):
    """Return the input unchanged."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...
