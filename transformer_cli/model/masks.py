"""Attention masks: bool, True = may attend.

This is the convention of PyTorch's `scaled_dot_product_attention` (and the opposite of `nn.Transformer`'s padding
masks). The axes are sentence, query and key; an axis of size 1 is broadcast. `model.incremental` makes the masks of its
key/value cache itself.
"""

import torch
from torch import Tensor


def padding_mask(ids: Tensor, pad: int) -> Tensor:
    """True where the key is a token, not padding: (B, S) ids -> (B, 1, S)."""
    return (ids != pad).unsqueeze(1)


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where the key is at or before the query: (1, T, T), lower triangular."""
    return torch.ones(1, length, length, dtype=torch.bool, device=device).tril()


def target_mask(ids: Tensor, pad: int) -> Tensor:
    """Causal mask without padding keys: (B, T) ids -> (B, T, T).

    A padding query still attends to the tokens before it, so no row is empty as long as each target has a token.
    """
    return padding_mask(ids, pad) & causal_mask(ids.shape[1], ids.device)
