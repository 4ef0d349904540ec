"""Greedy and beam search over any `StepModel`.

    B sentences still searched   W beam   V vocabulary   C = 2W candidates   t steps taken

Each step ranks the 2W best continuations of a sentence. An end symbol among the first W of them finishes its
hypothesis; the best W that are not end symbols stay live. A sentence is done when W hypotheses are finished, or when
none is live, or at its own length limit, where the live hypotheses are kept and marked truncated. Greedy search is
W = 1: the likeliest piece at each step, until that is the end symbol, which needs no ranking (`decode_rows`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from transformer_cli.decoding.constraints import NO_CONSTRAINTS, Constraints
from transformer_cli.decoding.hypotheses import Finished, Hypothesis, LengthPenalty, SpecialIds

State = TypeVar("State")

_BLOCK = 64  # pieces of the vocabulary whose maximum is computed before any ranking
_LEAVE = 16  # done sentences leave the batch once they are 1 in 16 of it: removing them costs time, too


class StepModel(Protocol[State]):
    """The interface of a model for search. Rows are numbered sentence by sentence, W to each.

    `step` and `reorder` consume the state passed to them: use only the state that they return.
    """

    def start(self, src: Tensor, src_mask: Tensor) -> State:
        """Encode the sources: src (B, S) ids, src_mask (B, 1, S) -> a state with one row per sentence."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The newest token of each row (B, W) -> the logits of the next one (B, W, V)."""

    def reorder(self, state: State, rows: Tensor) -> State:
        """Keep these rows: (B', W') current row numbers, one line for each sentence that stays. The lines may be in any
        order, except that all sentences keep their places if all of them stay."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search. The keys of the same names in the configuration document the fields."""

    beam_size: int
    length_penalty: float
    length_penalty_type: LengthPenalty
    n_best: int


# How the next piece of each row is chosen: log_probs (B, W, V), the numbers of the sentences (B), the steps so far ->
# its log-probability and its id, (B, W) each.
Choose = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]


@torch.inference_mode()
def beam_search(
    model: StepModel[State],
    src: Tensor,
    src_mask: Tensor,
    limits: Tensor,
    special: SpecialIds,
    options: SearchOptions,
    constraints: Constraints = NO_CONSTRAINTS,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first: `options.n_best` of them, or as many as there are.

    src (B, S) ids, src_mask (B, 1, S), limits (B): the maximum number of steps of each sentence, end symbol included,
    at least 1. Of equal scores, the one found in an earlier step wins. UserError when the logits are NaN.
    """
    if options.beam_size == 1:
        return decode_rows(
            model, src, src_mask, limits, special, options, constraints, lambda log_probs, *_: _likeliest(log_probs)
        )
    beam = options.beam_size
    device = src.device
    results: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    remaining = torch.arange(len(src), device=device)  # (B) the sentence of each line of the tensors below
    state = model.start(src, src_mask)
    finished = Finished.empty(len(src), beam, device)
    prefixes = torch.empty(len(src), 1, 0, dtype=torch.long, device=device)  # (B, W, t); one row in the first step
    history = torch.empty(len(src), 1, 0, device=device)  # (B, W, t) log-probability of each of these tokens
    live = torch.zeros(len(src), 1, device=device)  # (B, W) log-probability of each live prefix; -inf: dead
    newest = torch.full((len(src), 1), special.bos, device=device)  # (B, W)

    while len(remaining):
        logits, state = model.step(newest, state)  # (B, W, V)
        log_probs = constraints.log_probs(logits, prefixes, special)
        width, vocab = log_probs.shape[1:]
        top, index = best_continuations(live, log_probs, min(2 * beam, width * vocab))  # (B, C), best first
        parent = index.div(vocab, rounding_mode="floor")  # (B, C) in 0 … W - 1
        token = index - parent * vocab
        gained = log_probs.flatten(1).gather(1, index)

        ends = token == special.eos
        first = ends & (top > -torch.inf)
        first[:, beam:] = False
        if first.any():
            finished.add(first, *_grown(prefixes, history, parent, token, gained), top, truncated=False)

        # The best W that stay live, in rank order: a stable sort puts the end symbols behind them.
        order = ends.byte().argsort(dim=1, stable=True)[:, :beam]  # (B, W)
        live = top.masked_fill_(ends, -torch.inf).gather(1, order)
        newest, parent = token.gather(1, order), parent.gather(1, order)
        prefixes, history = _grown(prefixes, history, parent, newest, gained.gather(1, order))

        enough = finished.count >= beam
        at_limit = (limits <= prefixes.shape[2]) & ~enough
        done = enough | at_limit | (live == -torch.inf).all(1)  # (B)
        rows = parent + torch.arange(0, len(done) * width, width, device=device).unsqueeze(1)  # (B, W)
        dones = int(done.sum())
        if dones:
            cut = at_limit.unsqueeze(1) & (live > -torch.inf)
            finished.add(cut, prefixes, history, live, truncated=True)
            live = live.masked_fill(done.unsqueeze(1), -torch.inf)
        if dones * _LEAVE >= len(done):
            found = finished.select(done).ranked(options.n_best, options.length_penalty, options.length_penalty_type)
            for sentence, hypotheses in zip(remaining[done].tolist(), found, strict=True):
                results[sentence] = hypotheses
            going = closed_up(done)
            remaining, limits, finished = remaining[going], limits[going], finished.select(going)
            live, newest, rows = live[going], newest[going], rows[going]
            prefixes, history, constraints = prefixes[going], history[going], constraints.select(going)
        if len(rows):
            state = model.reorder(state, rows)
    return results


@torch.inference_mode()
def decode_rows(
    model: StepModel[State],
    src: Tensor,
    src_mask: Tensor,
    limits: Tensor,
    special: SpecialIds,
    options: SearchOptions,
    constraints: Constraints,
    choose: Choose,
) -> list[list[Hypothesis]]:
    """As many hypotheses of each sentence as the beam is wide, best score first. Each grows by the piece that is chosen
    for its row, until that is the end symbol. Arguments and errors are those of `beam_search`."""
    beam, device = options.beam_size, src.device
    results: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    remaining = torch.arange(len(src), device=device)  # (B)
    state = model.start(src, src_mask)
    prefixes = torch.empty(len(src), beam, 0, dtype=torch.long, device=device)  # (B, W, t)
    history = torch.empty(len(src), beam, 0, device=device)  # (B, W, t)
    lengths = torch.zeros(len(src), beam, dtype=torch.long, device=device)  # (B, W) steps to the end; 0: not reached
    newest = torch.full((len(src), 1), special.bos, device=device)  # (B, W); one row in the first step
    limits = limits.unsqueeze(1)
    steps, shortest = 0, int(limits.min())

    while len(remaining):
        logits, state = model.step(newest, state)
        if logits.shape[1] < beam:  # all rows of a sentence start from one
            logits = logits.expand(-1, beam, -1)
            state = model.reorder(state, remaining.unsqueeze(1).expand(-1, beam))
        gained, newest = choose(constraints.log_probs(logits, prefixes, special), remaining, steps)  # (B, W)
        prefixes = torch.cat([prefixes, newest.unsqueeze(2)], dim=2)
        history = torch.cat([history, gained.unsqueeze(2)], dim=2)
        steps += 1
        ends = newest == special.eos
        if steps < shortest and not ends.any():  # most steps: the rest would change nothing
            continue
        ends |= limits <= steps
        lengths = torch.where(ends & (lengths == 0), steps, lengths)
        done = lengths.all(1)
        dones = int(done.sum())
        if dones * _LEAVE < len(done):
            continue
        found = _finished(prefixes[done], history[done], lengths[done], special.eos)
        ranked = found.ranked(options.n_best, options.length_penalty, options.length_penalty_type)
        for sentence, hypotheses in zip(remaining[done].tolist(), ranked, strict=True):
            results[sentence] = hypotheses
        going = closed_up(done)
        rows = torch.arange(len(done) * beam, device=device).view(-1, beam)[going]
        remaining, limits, lengths = remaining[going], limits[going], lengths[going]
        newest, prefixes, history = newest[going], prefixes[going], history[going]
        constraints = constraints.select(going)
        if len(going):
            state = model.reorder(state, rows)
    return results


def _finished(prefixes: Tensor, history: Tensor, lengths: Tensor, eos: int) -> Finished:
    """The finished hypotheses of sentences: prefixes and history (B, W, t), and lengths (B, W) in steps."""
    beyond = torch.arange(prefixes.shape[2], device=lengths.device) >= lengths.unsqueeze(2)
    totals = history.masked_fill(beyond, 0.0).sum(2)
    truncated = prefixes.gather(2, lengths.unsqueeze(2) - 1).squeeze(2) != eos
    return Finished(prefixes, history, totals, lengths, truncated, totals.shape[1] * totals.isfinite().all(1))


def closed_up(done: Tensor) -> Tensor:
    """The numbers (B') of the sentences to keep, in their new order, when those that are done (B) leave. The last
    sentences take the free places, so that no other moves."""
    stay = (~done).nonzero().squeeze(1)
    order = torch.arange(len(stay), device=done.device)
    free = done[: len(stay)].nonzero().squeeze(1)
    order[free] = stay[len(stay) - len(free) :]
    return order


def _likeliest(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of log_probs (B, 1, V) and its index, (B, 1) each, found in the block with the largest maximum."""
    flat = log_probs.squeeze(1)
    blocks = flat.shape[1] // _BLOCK
    if not blocks:
        return flat.max(1, keepdim=True)
    whole = flat[:, : blocks * _BLOCK].view(len(flat), blocks, _BLOCK)
    block = whole.amax(2).argmax(1, keepdim=True)  # (B, 1)
    value, place = whole.gather(1, block.unsqueeze(2).expand(-1, -1, _BLOCK)).max(2)
    place = place + block * _BLOCK
    if flat.shape[1] % _BLOCK:  # fewer than a block at the end
        last, behind = flat[:, blocks * _BLOCK :].max(1, keepdim=True)
        place = torch.where(last > value, behind + blocks * _BLOCK, place)
        value = torch.maximum(value, last)
    return value, place


def best_continuations(live: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of live (B, W) + log_probs (B, W, V), best first: values and indices into W * V, (B, count).

    The largest values lie in the blocks with the largest maxima, so only those blocks are ranked: a maximum is much
    cheaper than a ranking.
    """
    sentences, width, vocab = log_probs.shape
    blocks = vocab // _BLOCK
    if width * blocks <= count:
        return (live.unsqueeze(-1) + log_probs).flatten(1).topk(count, dim=1)
    whole = log_probs[..., : blocks * _BLOCK].view(sentences, width, blocks, _BLOCK)
    maxima = (live.unsqueeze(-1) + whole.amax(-1)).flatten(1)  # (B, W * blocks)
    chosen = maxima.topk(count, dim=1, sorted=False).indices  # (B, count)
    row = chosen.div(blocks, rounding_mode="floor")
    place = (row * vocab + chosen % blocks * _BLOCK).unsqueeze(-1) + torch.arange(_BLOCK, device=live.device)
    place = place.flatten(1)  # (B, count * _BLOCK)
    if vocab % _BLOCK:  # fewer than a block at the end of each row
        rest = torch.arange(blocks * _BLOCK, vocab, device=live.device)
        rest = (torch.arange(width, device=live.device).unsqueeze(1) * vocab + rest).flatten().expand(sentences, -1)
        place = torch.cat([place, rest], dim=1)
    totals = log_probs.flatten(1).gather(1, place) + live.gather(1, place.div(vocab, rounding_mode="floor"))
    top, index = totals.topk(count, dim=1)
    return top, place.gather(1, index)


def _grown(prefixes: Tensor, history: Tensor, parent: Tensor, token: Tensor, gained: Tensor) -> tuple[Tensor, Tensor]:
    """Append a token to prefixes (B, W, t) and its log-probability to history: parent, token, gained (B, C) -> (B, C,
    t + 1)."""
    of_parent = parent.unsqueeze(-1).expand(-1, -1, prefixes.shape[2])
    return (
        torch.cat([prefixes.gather(1, of_parent), token.unsqueeze(-1)], dim=2),
        torch.cat([history.gather(1, of_parent), gained.unsqueeze(-1)], dim=2),
    )
