"""Greedy and beam search over anything that can give the next logits; no model is known here.

    B sentences still searched   W beam   V vocabulary   C = 2W candidates   t steps taken

The rule. Each step ranks the 2W best continuations of a sentence. An end symbol among the first W of them finishes its
hypothesis; the best W that are not end symbols stay alive. A sentence is done when W hypotheses are finished, or at its
own length limit, where the live ones are taken as they are and marked truncated. Greedy search is W = 1.

    score = log-probability / lp(n)      wu: ((5 + n) / 6)^alpha (Wu et al. 2016)      avg: n^alpha      none: 1

n counts the steps taken: the pieces and the end symbol where one was emitted, never the start symbol or padding. A
larger alpha favours longer translations.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor

from transformer_cli.errors import UserError

State = TypeVar("State")


class StepModel(Protocol[State]):
    """What a search needs of a model. Rows are numbered sentence by sentence, W to each."""

    def start(self, src: Tensor, src_mask: Tensor) -> State:
        """Encode once: src (B, S) ids, src_mask (B, 1, S) -> a state of one row a sentence."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The newest token of each row (B, W) -> the logits of the next one (B, W, V)."""

    def reorder(self, state: State, rows: Tensor) -> State:
        """Keep these rows: (B', W') present row numbers, a line for each sentence that stays, in their order."""


@dataclass(frozen=True)
class SpecialIds:
    """The ids that mean something to a search; `pad` and `bos` are never emitted."""

    pad: int
    bos: int
    eos: int


@dataclass(frozen=True)
class SearchOptions:
    """How to search; what each means stands at the keys of the same names in the configuration."""

    beam_size: int
    length_penalty: float
    length_penalty_type: Literal["wu", "avg", "none"]
    n_best: int


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its pieces without the end symbol, and what the search thought of it."""

    ids: tuple[int, ...]
    log_prob: float
    score: float
    n: int
    truncated: bool


def length_penalty(n: Tensor, alpha: float, kind: Literal["wu", "avg", "none"]) -> Tensor:
    """lp(n) of the formulas above; n (…) counts steps."""
    if kind == "wu":
        return ((5.0 + n) / 6.0) ** alpha
    if kind == "avg":
        return n.to(torch.get_default_dtype()) ** alpha
    return torch.ones_like(n, dtype=torch.get_default_dtype())


@dataclass
class _Finished:
    """Room for all that a sentence can end with: fewer than W hypotheses, and then at most W in one step."""

    tokens: Tensor  # (B, 2W, longest limit)
    log_probs: Tensor  # (B, 2W)
    lengths: Tensor  # (B, 2W)
    truncated: Tensor  # (B, 2W) bool
    count: Tensor  # (B)

    @classmethod
    def empty(cls, sentences: int, beam: int, longest: int, device: torch.device) -> "_Finished":
        shape = (sentences, 2 * beam)
        return cls(
            tokens=torch.zeros(*shape, longest, dtype=torch.long, device=device),
            log_probs=torch.full(shape, -torch.inf, device=device),
            lengths=torch.ones(shape, dtype=torch.long, device=device),
            truncated=torch.zeros(shape, dtype=torch.bool, device=device),
            count=torch.zeros(sentences, dtype=torch.long, device=device),
        )

    def add(self, which: Tensor, tokens: Tensor, log_probs: Tensor, truncated: bool) -> None:
        """Put away the hypotheses at `which` (B, W) bool of tokens (B, W, t) and log_probs (B, W)."""
        sentence, column = which.nonzero(as_tuple=True)
        slot = (self.count.unsqueeze(1) + which.cumsum(1) - 1)[sentence, column]
        length = tokens.shape[2]
        self.tokens[sentence, slot, :length] = tokens[sentence, column]
        self.log_probs[sentence, slot] = log_probs[sentence, column]
        self.lengths[sentence, slot] = length
        self.truncated[sentence, slot] = truncated
        self.count += which.sum(1)

    def select(self, sentences: Tensor) -> "_Finished":
        return _Finished(
            self.tokens[sentences],
            self.log_probs[sentences],
            self.lengths[sentences],
            self.truncated[sentences],
            self.count[sentences],
        )


@torch.inference_mode()
def beam_search(
    model: StepModel[State],
    src: Tensor,
    src_mask: Tensor,
    limits: Tensor,
    special: SpecialIds,
    options: SearchOptions,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first: `options.n_best` of them, or as many as there are.

    src (B, S) ids, src_mask (B, 1, S), limits (B): the most steps of each sentence, end symbol included, at least 1. Of
    equal scores the one found in an earlier step wins. UserError when the logits are not numbers.
    """
    beam = options.beam_size
    device = src.device
    results: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    remaining = torch.arange(len(src), device=device)  # (B) which sentence each line of the tensors below is
    state = model.start(src, src_mask)
    finished = _Finished.empty(len(src), beam, int(limits.max()), device)
    prefixes = torch.empty(len(src), 1, 0, dtype=torch.long, device=device)  # (B, W, t); one row until it can split
    live = torch.zeros(len(src), 1, device=device)  # (B, W) log-probability of each live prefix; -inf: dead
    newest = torch.full((len(src), 1), special.bos, device=device)  # (B, W)
    steps = 0

    while len(remaining):
        logits, state = model.step(newest, state)  # (B, W, V)
        steps += 1
        logits = logits.float()
        log_probs = logits - logits.logsumexp(-1, keepdim=True)
        log_probs[..., [special.pad, special.bos]] = -torch.inf
        width, vocab = log_probs.shape[1:]
        totals = (live.unsqueeze(-1) + log_probs).flatten(1)  # (B, W * V)
        top, index = totals.topk(min(2 * beam, width * vocab), dim=1)  # (B, C), best first
        parent = index.div(vocab, rounding_mode="floor")  # (B, C) in 0 … W - 1
        token = index % vocab
        candidates = torch.cat(
            [prefixes.gather(1, parent.unsqueeze(-1).expand(-1, -1, steps - 1)), token.unsqueeze(-1)], dim=2
        )  # (B, C, t)

        ends = token == special.eos
        first = ends & (top > -torch.inf)
        first[:, beam:] = False
        finished.add(first, candidates, top, truncated=False)

        # The best W that go on, in rank order: a stable sort puts the end symbols behind them.
        order = ends.long().argsort(dim=1, stable=True)[:, :beam]  # (B, W)
        live = top.masked_fill(ends, -torch.inf).gather(1, order)
        newest = token.gather(1, order)
        prefixes = candidates.gather(1, order.unsqueeze(-1).expand(-1, -1, steps))
        parent = parent.gather(1, order)

        enough = finished.count >= beam
        at_limit = (limits <= steps) & ~enough
        cut = at_limit.unsqueeze(1) & (live > -torch.inf)
        if at_limit.any():
            finished.add(cut, prefixes, live, truncated=True)
        done = enough | at_limit | (live == -torch.inf).all(1)
        if done.any():
            for sentence, hypotheses in zip(
                remaining[done].tolist(), _ranked(finished.select(done), special, options), strict=True
            ):
                results[sentence] = hypotheses
            going = ~done
            remaining, limits, finished = remaining[going], limits[going], finished.select(going)
            live, newest, prefixes = live[going], newest[going], prefixes[going]
            rows = (parent + torch.arange(len(done), device=device).unsqueeze(1) * width)[going]
        else:
            rows = parent + torch.arange(len(done), device=device).unsqueeze(1) * width
        if len(rows):
            state = model.reorder(state, rows)
    return results


def _ranked(finished: _Finished, special: SpecialIds, options: SearchOptions) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, by score."""
    scores = finished.log_probs / length_penalty(finished.lengths, options.length_penalty, options.length_penalty_type)
    order = scores.argsort(dim=1, descending=True, stable=True)
    rows = zip(
        finished.tokens.tolist(),
        finished.log_probs.tolist(),
        scores.tolist(),
        finished.lengths.tolist(),
        finished.truncated.tolist(),
        finished.count.tolist(),
        order.tolist(),
        strict=True,
    )
    ranked = []
    for tokens, log_probs, score, lengths, truncated, count, best in rows:
        chosen = [i for i in best if i < count][: options.n_best]
        if not chosen:
            raise UserError("the model gives no probabilities (NaN): its training diverged; use an earlier checkpoint")
        ranked.append(
            [
                Hypothesis(
                    ids=tuple(tokens[i][: lengths[i] - (0 if truncated[i] else 1)]),
                    log_prob=log_probs[i],
                    score=score[i],
                    n=lengths[i],
                    truncated=truncated[i],
                )
                for i in chosen
            ]
        )
    return ranked
