"""Label-smoothed cross-entropy (Szegedy et al. 2016; "Attention Is All You Need", section 5.4), as sums over tokens.

    loss(y) = -(1 - e) log p(y) - e / (V - 2) * sum of log p(v) over the V - 2 classes v other than y and padding

so that the smoothed distribution gives the right piece 1 - e, padding 0 and every other piece the same. Toolkits differ
in this spread (some use V classes, some V - 1), and their smoothed losses cannot be compared: compare the plain `nll`.
"""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor


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
