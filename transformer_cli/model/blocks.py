"""PyTorch's elementary modules, with the types of their calls and without their own initialisation.

`Transformer` initialises every weight itself, and a model read from a file none: PyTorch's default would be a second of
random numbers thrown away at each start.
"""

from typing import TYPE_CHECKING

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


class Dropout(nn.Dropout):
    """Zeros at random, the rest scaled up, in training only."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...


class Identity(nn.Identity):
    """Its input, where a block has nothing to do."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...
