"""Translations sampled at random from the model's probabilities, instead of searched for.

    B sentences   W samples of each   V vocabulary   t steps taken

p(piece) is proportional to exp(logit / temperature), over the `top_k` likeliest pieces, and of these over the fewest
that hold `top_p` of the probability (nucleus sampling, Holtzman et al. 2020). The log-probability of a sample is at
temperature 1 and over all pieces, so that without a repetition penalty `score` gives the same.

The random numbers of a sentence depend only on the seed and its own pieces, so its samples do not depend on the batch
or the order of sentences.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transformer_cli.decoding.constraints import NO_CONSTRAINTS, Constraints
from transformer_cli.decoding.hypotheses import Hypothesis, LengthPenalty, SpecialIds
from transformer_cli.decoding.search import SearchOptions, State, StepModel, decode_rows


@dataclass(frozen=True)
class Sampling:
    """How to sample. `top_k` 0 keeps all pieces; `top_p` 1 keeps all that `top_k` leaves."""

    temperature: float
    top_k: int
    top_p: float
    seed: int


def sample(
    model: StepModel[State],
    src: Tensor,
    src_mask: Tensor,
    limits: Tensor,
    special: SpecialIds,
    sampling: Sampling,
    samples: int,
    length_penalty: float,
    length_penalty_type: LengthPenalty,
    constraints: Constraints = NO_CONSTRAINTS,
) -> list[list[Hypothesis]]:
    """Independent samples of each sentence, best score first; src (B, S) ids, src_mask (B, 1, S), limits (B) steps.

    UserError when the logits are NaN.
    """
    random = _uniform(src, src_mask, samples, int(limits.max()), sampling.seed)  # (B, W, longest limit)

    def draw(log_probs: Tensor, sentences: Tensor, step: int) -> tuple[Tensor, Tensor]:
        ids = _draw(log_probs, random[sentences.to(random.device), :, step], sampling)
        return log_probs.gather(2, ids.unsqueeze(2)).squeeze(2), ids

    options = SearchOptions(samples, length_penalty, length_penalty_type, samples)
    return decode_rows(model, src, src_mask, limits, special, options, constraints, draw)


def _draw(log_probs: Tensor, uniform: Tensor, sampling: Sampling) -> Tensor:
    """The piece at which the cumulative probability passes a uniform number: (B, W, V), (B, W) -> ids (B, W).

    The sum starts from the likeliest piece, so that leaving out unlikely pieces does not move the others.
    """
    count = sampling.top_k or log_probs.shape[-1]
    likely, ids = (log_probs / sampling.temperature).topk(min(count, log_probs.shape[-1]), dim=-1)
    probabilities = likely.to(uniform.device).double().softmax(-1)  # (B, W, k), largest first
    below = probabilities.cumsum(-1)
    before = below - probabilities
    allowed = (before < sampling.top_p) & (probabilities > 0)  # always true of the first
    total = (probabilities * allowed).sum(-1, keepdim=True)
    place = (below < uniform.unsqueeze(-1) * total).sum(-1, keepdim=True)
    last = allowed.sum(-1, keepdim=True) - 1
    return ids.gather(-1, place.clamp(max=last).clamp(min=0).to(ids.device)).squeeze(-1)


def _uniform(src: Tensor, src_mask: Tensor, samples: int, longest: int, seed: int) -> Tensor:
    """Uniform random numbers in [0, 1) for each sentence, sample and step: (B, W, longest), fp64."""

    def of(ids: Sequence[int]) -> Tensor:
        digest = hashlib.blake2b(repr((seed, *ids)).encode(), digest_size=16).digest()
        # One stream per sample: a longer limit, caused by a longer neighbour, leaves the first numbers unchanged.
        streams = np.random.SeedSequence(int.from_bytes(digest, "little")).spawn(samples)
        return torch.from_numpy(np.stack([np.random.default_rng(stream).random(longest) for stream in streams]))

    real = [row[mask[0]].tolist() for row, mask in zip(src, src_mask, strict=True)]
    # Apple's GPUs have no fp64, so there the CPU does this part.
    return torch.stack([of(ids) for ids in real]).to("cpu" if src.device.type == "mps" else src.device)
