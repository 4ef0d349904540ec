"""Hypotheses, their scores, and the storage of finished hypotheses while a search goes on.

    B sentences still searched   W hypotheses of each   t steps taken

    score = log-probability / lp(n)      wu: ((5 + n) / 6)^alpha (Wu et al. 2016)      avg: n^alpha      none: 1

n counts the steps taken: the pieces and the end symbol where one was emitted, never the start symbol or padding. A
larger alpha favours longer translations.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.errors import UserError

LengthPenalty = Literal["wu", "avg", "none"]

NO_PROBABILITIES = "the model gives no probabilities (NaN): its training diverged; use an earlier checkpoint"


@dataclass(frozen=True)
class SpecialIds:
    """The special ids that a search needs; `pad` and `bos` are never emitted."""

    pad: int
    bos: int
    eos: int


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its pieces without the end symbol, its log-probability and its score.

    `token_log_probs` has one entry per step; the last is the end symbol's unless the hypothesis was truncated.
    """

    ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    log_prob: float
    score: float
    n: int
    truncated: bool


def length_penalty(n: Tensor, alpha: float, kind: LengthPenalty) -> Tensor:
    """lp(n) of the formulas above; n (…) counts steps."""
    if kind == "wu":
        return ((5.0 + n) / 6.0) ** alpha
    if kind == "avg":
        return n.to(torch.get_default_dtype()) ** alpha
    return torch.ones_like(n, dtype=torch.get_default_dtype())


@dataclass
class Finished:
    """Storage for all finished hypotheses of a sentence: fewer than W, and then at most W in its last step."""

    tokens: Tensor  # (B, 2W, the longest so far or more); in `decode_rows` (B, W, steps taken)
    token_log_probs: Tensor  # (B, 2W, as many)
    log_probs: Tensor  # (B, 2W)
    lengths: Tensor  # (B, 2W)
    truncated: Tensor  # (B, 2W) bool
    count: Tensor  # (B)

    @classmethod
    def empty(cls, sentences: int, width: int, device: torch.device) -> "Finished":
        """Nothing finished yet. `width`: W."""
        shape = (sentences, 2 * width)
        return cls(
            tokens=torch.zeros(*shape, 0, dtype=torch.long, device=device),
            token_log_probs=torch.zeros(*shape, 0, device=device),
            log_probs=torch.full(shape, -torch.inf, device=device),
            lengths=torch.ones(shape, dtype=torch.long, device=device),
            truncated=torch.zeros(shape, dtype=torch.bool, device=device),
            count=torch.zeros(sentences, dtype=torch.long, device=device),
        )

    def add(
        self, which: Tensor, tokens: Tensor, token_log_probs: Tensor, log_probs: Tensor, *, truncated: bool
    ) -> None:
        """Store the hypotheses that `which` (B, W) bool marks; tokens, token_log_probs (B, W, t), log_probs (B, W)."""
        sentence, column = which.nonzero(as_tuple=True)
        slot = (self.count.unsqueeze(1) + which.cumsum(1) - 1)[sentence, column]
        length, room = tokens.shape[2], self.tokens.shape[2]
        if length > room:
            self.tokens = F.pad(self.tokens, (0, 2 * length - room))
            self.token_log_probs = F.pad(self.token_log_probs, (0, 2 * length - room))
        self.tokens[sentence, slot, :length] = tokens[sentence, column]
        self.token_log_probs[sentence, slot, :length] = token_log_probs[sentence, column]
        self.log_probs[sentence, slot] = log_probs[sentence, column]
        self.lengths[sentence, slot] = length
        self.truncated[sentence, slot] = truncated
        self.count += which.sum(1)

    def select(self, sentences: Tensor) -> "Finished":
        """Keep these sentences only: numbers (B') or a mask (B) bool."""
        return Finished(
            self.tokens[sentences],
            self.token_log_probs[sentences],
            self.log_probs[sentences],
            self.lengths[sentences],
            self.truncated[sentences],
            self.count[sentences],
        )

    def ranked(self, n_best: int, alpha: float, kind: LengthPenalty) -> list[list[Hypothesis]]:
        """The n best hypotheses of each sentence by score; of equal ones, the first stored comes first.

        UserError when a sentence has none, which happens only when the model gives NaN.
        """
        scores = self.log_probs / length_penalty(self.lengths, alpha, kind)
        order = scores.argsort(dim=1, descending=True, stable=True)
        rows = zip(
            self.tokens.tolist(),
            self.token_log_probs.tolist(),
            self.log_probs.tolist(),
            scores.tolist(),
            self.lengths.tolist(),
            self.truncated.tolist(),
            self.count.tolist(),
            order.tolist(),
            strict=True,
        )
        ranked = []
        for tokens, token_log_probs, log_probs, score, lengths, truncated, count, best in rows:
            chosen = [i for i in best if i < count][:n_best]
            if not chosen:
                raise UserError(NO_PROBABILITIES)
            ranked.append(
                [
                    Hypothesis(
                        ids=tuple(tokens[i][: lengths[i] - (0 if truncated[i] else 1)]),
                        token_log_probs=tuple(token_log_probs[i][: lengths[i]]),
                        log_prob=log_probs[i],
                        score=score[i],
                        n=lengths[i],
                        truncated=truncated[i],
                    )
                    for i in chosen
                ]
            )
        return ranked
