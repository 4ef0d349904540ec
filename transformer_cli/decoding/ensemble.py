"""Several models with the same vocabulary as one: at each step, the mean of their probabilities."""

import math
from collections.abc import Sequence
from typing import Generic

import torch
from torch import Tensor

from transformer_cli.decoding.search import State, StepModel


class Ensemble(Generic[State]):
    """A `StepModel` made of several: log p(piece) = log of the mean over the models of p(piece)."""

    def __init__(self, models: Sequence[StepModel[State]]) -> None:
        self.models = models

    def start(self, src: Tensor, src_mask: Tensor) -> list[State]:
        """The state of each model."""
        return [model.start(src, src_mask) for model in self.models]

    def step(self, tokens: Tensor, state: list[State]) -> tuple[Tensor, list[State]]:
        """The newest token of each row (B, W) -> log-probabilities of the next one (B, W, V), which serve as logits."""
        steps = [model.step(tokens, own) for model, own in zip(self.models, state, strict=True)]
        log_probs = torch.stack([logits.float().log_softmax(-1) for logits, _ in steps])
        return log_probs.logsumexp(0) - math.log(len(steps)), [own for _, own in steps]

    def reorder(self, state: list[State], rows: Tensor) -> list[State]:
        """Keep these rows in each model."""
        return [model.reorder(own, rows) for model, own in zip(self.models, state, strict=True)]
