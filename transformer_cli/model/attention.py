"""Multi-head attention in two equivalent forms ("Attention Is All You Need", sections 3.2.1 and 3.2.2).

    Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V            MultiHead = Concat(head_1 … head_H) W^O

`written_out` follows the formula, with `attention_weights` as a function of its own; `fused` is PyTorch's kernel.

    B batch   T queries   S keys   D d_model   H heads   K = D // H
"""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from transformer_cli.model.blocks import LOG2_E, Linear, dropout

AttentionForm = Literal["written_out", "fused"]

_LANES = 16  # SIMD lanes: a softmax spends more time on a remainder that does not fill them than on the rest


def attention_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(K)) over the keys that the mask allows; a query without any gets zeros, never NaN.

    q (B, H, T, K), k (B, H, S, K), mask bool broadcastable to (B, H, T, S) -> (B, H, T, S).
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, S)
    if torch.compiler.is_compiling():  # it joins these operations itself
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1).masked_fill(~mask, 0.0)
    weights: Tensor = _MaskedSoftmax.apply(scores, mask)  # type: ignore[no-untyped-call]
    return weights


class _MaskedSoftmax(torch.autograd.Function):
    """p = exp(x - max) / sum of exp(x - max) over what the mask allows; the gradient is p (g - sum of p g).

    PyTorch's own softmax takes up to eight times as long on rows of fewer than 16 numbers, and its masks would be
    applied once more each in the backward pass.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, scores: Tensor, mask: Tensor) -> Tensor:
        blocked = ~mask
        dtype = torch.promote_types(scores.dtype, torch.float32)
        # The lowest finite number instead of -inf keeps a row without any key free of NaN.
        p = scores.to(dtype).masked_fill(blocked, torch.finfo(dtype).min)
        p = p.sub_(p.amax(-1, keepdim=True)).mul_(LOG2_E).exp2_().masked_fill_(blocked, 0.0)
        # The highest score alone adds 1 to the sum, which is 0 in a row without any key.
        p = p.div_(p.sum(-1, keepdim=True).clamp_(min=1.0)).to(scores.dtype)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (p,) = ctx.saved_tensors
        product = p * grad.to(torch.promote_types(grad.dtype, torch.float32))
        return product.addcmul_(p.to(product.dtype), product.sum(-1, keepdim=True), value=-1.0).to(grad.dtype), None


class MultiHeadAttention(nn.Module):
    """Project to H heads of queries, keys and values, attend, concatenate, project back.

    The projections are separate from the attention, so that a decoder can keep the keys and values of earlier steps.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float, form: AttentionForm) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.form = form
        self.query = Linear(d_model, d_model)
        self.key = Linear(d_model, d_model)
        self.value = Linear(d_model, d_model)
        self.output = Linear(d_model, d_model)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """x (B, T, D) attends to memory (B, S, D); mask (B or 1, T or 1, S), True = may attend -> (B, T, D)."""
        if memory is x:
            q, k, v = self._project_together(x, (self.query, self.key, self.value))
        else:
            q = self.queries(x)
            k, v = self._project_together(memory, (self.key, self.value))
        return self.attend(q, k, v, mask)

    def queries(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, H, T, K)."""
        return self._split_heads(self.query(x))

    def keys(self, memory: Tensor) -> Tensor:
        """(B, S, D) -> (B, H, S, K)."""
        return self._split_heads(self.key(memory))

    def values(self, memory: Tensor) -> Tensor:
        """(B, S, D) -> (B, H, S, K)."""
        return self._split_heads(self.value(memory))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """q (B, H, T, K), k and v (B, H, S, K), mask (B or 1, T or 1, S) -> (B, T, D)."""
        mask = mask.unsqueeze(1)  # (B, 1, T, S): the same for every head
        p = self.dropout if self.training else 0.0
        if self.form == "fused":
            if k.is_cpu and not torch.compiler.is_compiling():  # a compiled graph must serve all lengths
                k, v, mask = _in_whole_lanes(k, v, mask)
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
        else:
            heads = dropout(attention_weights(q, k, mask), p) @ v  # (B, H, T, K)
        return self.output(heads.transpose(1, 2).flatten(2))  # (B, T, D)

    def _project_together(self, x: Tensor, projections: tuple[Linear, ...]) -> tuple[Tensor, ...]:
        """Apply several projections to one input in a single matrix product, which is faster than one after another."""
        weight = torch.cat([projection.weight for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        projected = F.linear(x, weight, bias)  # (B, T, n * D)
        return tuple(map(self._split_heads, projected.chunk(len(projections), dim=-1)))

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)  # (B, T, D) -> (B, H, T, K)


def whole_lanes(length: int) -> int:
    """Round a length up to a multiple of `_LANES`."""
    return -(-length // _LANES) * _LANES


def _in_whole_lanes(k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pad to whole lanes with keys that no query may attend to, where that is worth a copy."""
    if k.shape[2] % _LANES <= _LANES // 2:
        return k, v, mask
    more = whole_lanes(k.shape[2]) - k.shape[2]
    return F.pad(k, (0, 0, 0, more)), F.pad(v, (0, 0, 0, more)), F.pad(mask.expand(-1, -1, -1, k.shape[2]), (0, more))
