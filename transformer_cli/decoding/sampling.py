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
from transformer_cli.decoding.hypotheses import Finished, Hypothesis, LengthPenalty, SpecialIds
from transformer_cli.decoding.search import State, StepModel, closed_up


@dataclass(frozen=True)
class Sampling:
    """How to sample. `top_k` 0 keeps all pieces; `top_p` 1 keeps all that `top_k` leaves."""

    temperature: float
    top_k: int
    top_p: float
    seed: int


@torch.inference_mode()
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
    device = src.device
    results: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    remaining = torch.arange(len(src), device=device)
    random = _uniform(src, src_mask, samples, int(limits.max()), sampling.seed)  # (B, W, longest limit)
    state = model.start(src, src_mask)
    finished = Finished.empty(len(src), samples, int(limits.max()), device)
    prefixes = torch.empty(len(src), samples, 0, dtype=torch.long, device=device)  # (B, W, t)
    history = torch.empty(len(src), samples, 0, device=device)  # (B, W, t)
    live = torch.ones(len(src), samples, dtype=torch.bool, device=device)
    newest = torch.full((len(src), 1), special.bos, device=device)
    rows = torch.arange(len(src), device=device).unsqueeze(1).expand(-1, samples)  # all samples start from the one row

    while len(remaining):
        logits, state = model.step(newest, state)
        if not prefixes.shape[2]:
            state = model.reorder(state, rows)
            logits = logits.expand(-1, samples, -1)
        log_probs = constraints.log_probs(logits, prefixes, special)  # (B, W, V)
        newest = _draw(log_probs, random[..., prefixes.shape[2]], sampling)  # (B, W)
        prefixes = torch.cat([prefixes, newest.unsqueeze(-1)], dim=2)
        history = torch.cat([history, log_probs.gather(2, newest.unsqueeze(-1))], dim=2)

        ended = live & (newest == special.eos) & history[..., -1].isfinite()
        cut = live & ~ended & (limits <= prefixes.shape[2]).unsqueeze(1) & history[..., -1].isfinite()
        totals = history.sum(2)
        finished.add(ended, prefixes, history, totals, truncated=False)
        finished.add(cut, prefixes, history, totals, truncated=True)
        live = live & ~ended & (limits > prefixes.shape[2]).unsqueeze(1)
        going = live.any(1)
        if not going.all():
            done = ~going
            found = finished.select(done).ranked(samples, length_penalty, length_penalty_type)
            for sentence, hypotheses in zip(remaining[done].tolist(), found, strict=True):
                results[sentence] = hypotheses
            going = closed_up(done)
            rows = torch.arange(len(done) * samples, device=device).view(-1, samples)[going]
            remaining, limits, finished = remaining[going], limits[going], finished.select(going)
            random = random[going.to(random.device)]
            live, newest, prefixes, history = live[going], newest[going], prefixes[going], history[going]
            constraints = constraints.select(going)
            if len(rows):
                state = model.reorder(state, rows)
    return results


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
