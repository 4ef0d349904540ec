"""Translations drawn at random from what the model thinks likely, instead of searched for.

    B sentences   W samples of each   V vocabulary   t steps taken

p(piece) is proportional to exp(logit / temperature), over the `top_k` likeliest pieces, and of these over the fewest
that hold `top_p` of the probability (nucleus sampling, Holtzman et al. 2020). The log-probability of a sample is the
model's own, at temperature 1 and over all pieces, so that `score` gives the same.

The random numbers of a sentence follow from the seed and its own pieces: its samples do not depend on the batch, the
order or the neighbours.
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
    """What to draw from. `top_k` 0: from all pieces; `top_p` 1: from all that are left."""

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
    """For each sentence so many independent samples, by score; src (B, S) ids, src_mask (B, 1, S), limits (B) steps.

    UserError when the logits are not numbers.
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
    rows = torch.arange(len(src), device=device).unsqueeze(1).expand(-1, samples)  # all samples begin at the one row

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
    """The piece at which the summed probability passes a uniform number: (B, W, V), (B, W) -> ids (B, W).

    The pieces are summed from the likeliest on, so that leaving out unlikely ones moves no other.
    """
    count = sampling.top_k or log_probs.shape[-1]
    likely, ids = (log_probs / sampling.temperature).topk(min(count, log_probs.shape[-1]), dim=-1)
    probabilities = likely.to(uniform.device).double().softmax(-1)  # (B, W, k), largest first
    below = probabilities.cumsum(-1)
    before = below - probabilities
    allowed = (before < sampling.top_p) & (probabilities > 0)  # the first always is
    total = (probabilities * allowed).sum(-1, keepdim=True)
    place = (below < uniform.unsqueeze(-1) * total).sum(-1, keepdim=True)
    last = allowed.sum(-1, keepdim=True) - 1
    return ids.gather(-1, place.clamp(max=last).clamp(min=0).to(ids.device)).squeeze(-1)


def _uniform(src: Tensor, src_mask: Tensor, samples: int, longest: int, seed: int) -> Tensor:
    """Numbers in [0, 1) for each sentence, sample and step: (B, W, longest), fp64."""

    def of(ids: Sequence[int]) -> Tensor:
        digest = hashlib.blake2b(repr((seed, *ids)).encode(), digest_size=16).digest()
        # A stream each: with a longer limit, which comes of a longer neighbour, the first numbers stay as they are.
        streams = np.random.SeedSequence(int.from_bytes(digest, "little")).spawn(samples)
        return torch.from_numpy(np.stack([np.random.default_rng(stream).random(longest) for stream in streams]))

    real = [row[mask[0]].tolist() for row, mask in zip(src, src_mask, strict=True)]
    # Apple's GPUs have no fp64: there this part is the processor's.
    return torch.stack([of(ids) for ids in real]).to("cpu" if src.device.type == "mps" else src.device)
