"""Constraints on a translation, as changes to the probabilities of the next piece.

    B sentences   W rows of each   V vocabulary   t pieces so far   P longest prefix

The repetition penalty changes the logits (Keskar et al. 2019, CTRL), from which the log-probabilities of all pieces are
then computed. Forbidden pieces get -inf, and the others keep their log-probabilities without renormalisation. Forbidden
are padding and the start symbol, an end symbol before `min_length` pieces, a piece that would complete an n-gram a
second time (Paulus et al. 2018) and, within a forced prefix, every piece but its next one. A row in which everything
would be forbidden may end.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transformer_cli.decoding.hypotheses import SpecialIds


@dataclass(frozen=True)
class Constraints:
    """The defaults impose nothing. `prefixes` (B, P): the pieces that each translation begins with, right-padded."""

    min_length: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    prefixes: Tensor | None = None

    def select(self, sentences: Tensor) -> "Constraints":
        """The constraints of the sentences with these numbers (B')."""
        return self if self.prefixes is None else replace(self, prefixes=self.prefixes[sentences])

    def log_probs(self, logits: Tensor, so_far: Tensor, special: SpecialIds) -> Tensor:
        """Logits (B, W, V) after the pieces so_far (B, W, t) -> log-probabilities (B, W, V), fp32; -inf: forbidden."""
        logits = logits.float()  # a separate operation: converting within the softmax takes several times as long
        if self.repetition_penalty != 1.0 and so_far.shape[2]:
            logits = self._penalise(logits, so_far)
        log_probs = logits.log_softmax(-1)
        log_probs[..., special.pad].fill_(-torch.inf)
        log_probs[..., special.bos].fill_(-torch.inf)
        step = so_far.shape[2]
        forced = None if self.prefixes is None or step >= self.prefixes.shape[1] else self.prefixes[:, step]  # (B)
        if forced is not None:
            forced = forced.view(-1, 1, 1).expand(-1, log_probs.shape[1], 1)
            of_forced = log_probs.gather(2, forced)  # (B, W, 1)
        if step < self.min_length or self.no_repeat_ngram_size:
            self._forbid(log_probs, so_far, special.eos)
        if forced is not None:
            begins = forced != special.pad  # (B, W, 1)
            log_probs.masked_fill_(begins, -torch.inf)
            log_probs.scatter_(2, forced, torch.where(begins, of_forced, log_probs.gather(2, forced)))
        return log_probs

    def _penalise(self, logits: Tensor, so_far: Tensor) -> Tensor:
        seen = logits.gather(2, so_far)
        seen = torch.where(seen > 0, seen / self.repetition_penalty, seen * self.repetition_penalty)
        return logits.scatter(2, so_far, seen)  # a repeated piece is written several times with the same value

    def _forbid(self, log_probs: Tensor, so_far: Tensor, eos: int) -> None:
        of_end = log_probs[..., eos].clone()  # (B, W)
        n = self.no_repeat_ngram_size
        if n and so_far.shape[2] >= n:
            windows = so_far.unfold(2, n, 1)  # (B, W, t - n + 1, n)
            last = so_far[..., so_far.shape[2] - n + 1 :].unsqueeze(2)  # (B, W, 1, n - 1)
            again = (windows[..., :-1] == last).all(-1)
            # The minimum with infinity leaves pieces that are not forbidden unchanged.
            piece = windows[..., -1]
            log_probs.scatter_reduce_(
                2, piece, torch.where(again, -torch.inf, torch.inf).to(log_probs), reduce="amin", include_self=True
            )
        if so_far.shape[2] < self.min_length:
            log_probs[..., eos] = -torch.inf
        stuck = log_probs.amax(-1) == -torch.inf  # (B, W)
        log_probs[..., eos] = torch.where(stuck, of_end, log_probs[..., eos])


NO_CONSTRAINTS = Constraints()
