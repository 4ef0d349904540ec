"""PyTorch's elementary modules, with the types of their calls and without their own initialisation.

`Transformer` initialises every weight itself, and a model read from a file none: PyTorch's default would be a second of
random numbers thrown away at each start.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """y = x W^T + b, its memory not yet filled."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class Embedding(nn.Embedding):
    """A vector for each id, its memory not yet filled."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class LayerNorm(nn.LayerNorm):
    """Layer normalisation (Ba et al. 2016), gain 1 and bias 0 at the start."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...


def dropout(x: Tensor, p: float) -> Tensor:
    """Zeros with probability p (on CPU rounded to 1/65,536), the rest scaled by 1 / (1 - p).

    PyTorch draws a random float for each number, which on CPU is slow; here four numbers share one
    random 64-bit integer.
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
    """Zeros at random, the rest scaled up, in training only."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...

    def forward(self, x: Tensor) -> Tensor:
        """Of any shape."""
        return dropout(x, self.p) if self.training else x


class Identity(nn.Identity):
    """Its input, where a block has nothing to do."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...
