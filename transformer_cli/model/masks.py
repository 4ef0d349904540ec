"""Attention masks, and the one convention about them: bool, **True = may attend**.

The same as in PyTorch's `scaled_dot_product_attention` (and the opposite of `nn.Transformer`'s padding masks). What
each row of a beam sees of a cache is told in `model.incremental`. The first axis is the sentence, the middle one the
query, the last the key; an axis of size 1 stands for all.
"""

import torch
from torch import Tensor


def padding_mask(ids: Tensor, pad: int) -> Tensor:
    """Which keys are tokens and not padding: (B, S) ids -> (B, 1, S)."""
    return (ids != pad).unsqueeze(1)


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Which keys lie at or before the query: (1, T, T), the lower triangle."""
    return torch.ones(1, length, length, dtype=torch.bool, device=device).tril()


def target_mask(ids: Tensor, pad: int) -> Tensor:
    """Causal, and no padding: (B, T) ids -> (B, T, T).

    The row of a padding query still sees the tokens before it, so none is empty as long as each target has a token.
    """
    return padding_mask(ids, pad) & causal_mask(ids.shape[1], ids.device)
