"""Label-smoothed cross-entropy (Szegedy et al. 2016; "Attention Is All You Need", section 5.4), as sums over tokens.

    loss(y) = -(1 - e) log p(y) - e / (V - 2) * sum of log p(v) over the V - 2 classes v other than y and padding

so that the smoothed distribution gives the right piece 1 - e, padding 0 and every other piece the same. Toolkits differ
in this spread (some use V classes, some V - 1), and their smoothed losses cannot be compared: compare the plain `nll`.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from transformer_cli.model.blocks import LOG2_E

# Logits per chunk of the fused form: 8 MB, about the cache of a CPU; elsewhere enough to be worth a kernel launch.
_CHUNK_CELLS = {"cpu": 1 << 21, "other": 1 << 26}


class LossSums(NamedTuple):
    """Sums over the real target tokens of a batch, end symbols included and padding excluded."""

    loss: Tensor
    nll: Tensor


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, pad: int, epsilon: float) -> LossSums:
    """hidden (B, T, D), output weight (V, D), targets (B, T) ids -> two fp32 sums; `nll` carries no gradient.

    Only real positions are projected. A batch of nothing but padding gives zeros.
    """
    real = targets != pad  # (B, T)
    gold = targets[real]  # (n)
    logits = F.linear(hidden[real], weight).float()  # (n, V)
    normaliser = logits.logsumexp(-1)  # (n)
    gold_logits = logits.gather(1, gold.unsqueeze(1)).squeeze(1)
    nll = (normaliser - gold_logits).sum()
    if epsilon == 0.0:
        return LossSums(nll, nll.detach())
    others = logits.shape[1] - 2
    other_logits = logits.sum(-1) - gold_logits - logits[:, pad]
    spread = (normaliser - other_logits / others).sum()
    return LossSums((1.0 - epsilon) * nll + epsilon * spread, nll.detach())


def fused_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, pad: int, epsilon: float) -> LossSums:
    """`smoothed_cross_entropy` in one pass over chunks of positions, for training.

    Loss and gradient of a chunk are computed together while its logits are in the processor's cache, so that the logits
    of all positions never exist at once: less memory, and faster.
    """
    real = targets != pad
    loss, nll = _Fused.apply(hidden[real], weight, targets[real], pad, epsilon)  # type: ignore[no-untyped-call]
    return LossSums(loss, nll)


class _Fused(torch.autograd.Function):
    """With p the softmax and s = e / (V - 2), the gradient of the loss with respect to the logits is p - s, plus
    s - (1 - e) at the gold class and s at padding.

    Only p needs full matrix products; the rest is a few rows of the weight, added in fp32. And p stays unnormalised
    until after them, where the division is over D columns instead of V. Logits and sums are to base 2: the factor is in
    the weight, so that `exp2` needs no pass of its own for it.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, hidden: Tensor, weight: Tensor, gold: Tensor, pad: int, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        vocab, width = weight.shape
        spread = epsilon / (vocab - 2)
        at_gold = 1.0 - epsilon - spread
        device = weight.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        binary_weight = (weight * LOG2_E).to(dtype)
        everywhere = spread * (weight.sum(0) - weight[pad])  # (D)
        loss = torch.zeros((), dtype=torch.float32, device=weight.device)
        nll = torch.zeros_like(loss)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight)
        # A chunk reads and adds to a whole weight matrix: with fewer rows than D that would be most of its work.
        rows = max(_CHUNK_CELLS["cpu" if device == "cpu" else "other"] // vocab, width)
        # Memory once for all chunks, as new pages for each take a CPU longer than the exponentials.
        products = weight.new_empty(min(rows, len(hidden)), vocab, dtype=dtype)
        in_fp32 = products if dtype == torch.float32 else torch.empty_like(products, dtype=torch.float32)
        for start in range(0, len(hidden), rows):
            chunk, chunk_gold = hidden[start : start + rows], gold[start : start + rows]
            product = torch.mm(chunk.to(dtype), binary_weight.t(), out=products[: len(chunk)])  # (rows, V)
            logits = product if products is in_fp32 else in_fp32[: len(chunk)].copy_(product)
            gold_logits = logits.gather(1, chunk_gold.unsqueeze(1)).squeeze(1)
            others = logits.sum(-1) - gold_logits - logits[:, pad]
            highest = logits.amax(-1, keepdim=True)
            exponentials = logits.sub_(highest).exp2_()  # in place: no longer logits
            total = exponentials.sum(-1, keepdim=True)  # (rows, 1)
            normaliser = (highest + total.log2()).squeeze(1)
            chunk_nll = (normaliser - gold_logits).sum()
            nll += chunk_nll
            loss += (1.0 - epsilon) * chunk_nll + (epsilon * normaliser - spread * others).sum()
            if products is not in_fp32:
                product.copy_(exponentials)
            by_hidden = torch.mm(product, binary_weight).float() / (total * LOG2_E)  # (rows, D)
            by_hidden -= everywhere + at_gold * F.embedding(chunk_gold, weight)
            grad_hidden[start : start + rows] = by_hidden
            grad_weight += torch.mm(product.t(), (chunk / total).to(dtype))
        summed = spread * hidden.sum(0, dtype=torch.float32)
        grad_weight -= summed
        grad_weight[pad] += summed
        grad_weight.index_add_(0, gold, hidden.float(), alpha=-at_gold)
        ctx.save_for_backward(grad_hidden, grad_weight)
        loss, nll = loss / LOG2_E, nll / LOG2_E
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad_loss, grad_weight * grad_loss, None, None, None
