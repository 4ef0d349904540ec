"""A model that is a table, and what a search over it must find: by brute force, and by the rules in plain lists.

The table goes from (sentence, prefix) to the logits of the next piece. The state of the model is the prefixes of its
rows, so that a row sent to the wrong place reads the wrong logits.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer_cli.decoding.constraints import NO_CONSTRAINTS, Constraints
from transformer_cli.decoding.hypotheses import Hypothesis, SpecialIds
from transformer_cli.decoding.search import SearchOptions, StepModel, beam_search

PAD, UNK, BOS, EOS, A, B, C, D = range(8)
SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)

Kind = Literal["wu", "avg", "none"]
Prefix = tuple[int, ...]
Table = Callable[[int, Prefix], Sequence[float]]  # the logits after this prefix of this sentence
Rows = list[tuple[int, Prefix]]

torch.set_num_threads(1)


class TableModel:
    """A model that looks its logits up. A sentence is its own number; a row is (sentence, prefix with bos)."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.starts = 0
        self.shapes: list[tuple[int, int]] = []

    def start(self, src: Tensor, src_mask: Tensor) -> Rows:
        assert src_mask.shape == (len(src), 1, src.shape[1])
        self.starts += 1
        return [(sentence, ()) for sentence in src[:, 0].tolist()]

    def step(self, tokens: Tensor, state: Rows) -> tuple[Tensor, Rows]:
        self.shapes.append((tokens.shape[0], tokens.shape[1]))
        state = [(s, (*prefix, token)) for (s, prefix), token in zip(state, tokens.flatten().tolist(), strict=True)]
        assert all(prefix[0] == BOS for _, prefix in state)
        return torch.tensor([self.table(s, prefix[1:]) for s, prefix in state]).view(*tokens.shape, -1), state

    def reorder(self, state: Rows, rows: Tensor) -> Rows:
        kept = [[state[row] for row in line] for line in rows.tolist()]
        sentences = [{sentence for sentence, _ in line} for line in kept]
        assert all(len(one) == 1 for one in sentences), "a line of rows mixes sentences"
        return [row for line in kept for row in line]


def search(
    table: Table,
    limits: Sequence[int],
    beam: int = 1,
    n_best: int = 1,
    alpha: float = 0.0,
    kind: Kind = "wu",
    sentences: Sequence[int] | None = None,
    model: StepModel[Any] | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
) -> list[list[Hypothesis]]:
    sentences = range(len(limits)) if sentences is None else sentences
    src = torch.tensor([[sentence] for sentence in sentences])
    return beam_search(
        model or TableModel(table),
        src,
        torch.ones(len(src), 1, 1, dtype=torch.bool),
        torch.tensor(limits),
        SPECIAL,
        SearchOptions(beam, alpha, kind, n_best),
        constraints,
    )


def random_table(seed: int, vocab: int, scale: float = 2.0, impossible: float = 0.0) -> Table:
    """Logits drawn for each prefix; a share of them may be minus infinity, at least one finite."""

    @cache
    def logits(sentence: int, prefix: Prefix) -> list[float]:
        generator = np.random.default_rng([seed, sentence, *prefix])
        values = scale * generator.standard_normal(vocab)
        forbidden = generator.random(vocab) < impossible
        forbidden[A] = False
        return [float(x) for x in np.where(forbidden, -np.inf, values).astype(np.float32)]

    return logits


def written_table(weights: Mapping[Prefix, Mapping[int, float]], vocab: int = 8) -> Table:
    """Probabilities, up to a factor; a piece that is not named has none, a prefix that is not named ends."""

    def logits(sentence: int, prefix: Prefix) -> list[float]:
        row = weights.get(prefix, {EOS: 1.0})
        return [math.log(row[token]) if row.get(token) else -math.inf for token in range(vocab)]

    return logits


def log_softmax(logits: Sequence[float]) -> list[float]:
    largest = max(logits)
    total = largest + math.log(sum(math.exp(x - largest) for x in logits))
    return [x - total for x in logits]


def penalty(n: int, alpha: float, kind: Kind) -> float:
    return float({"wu": ((5 + n) / 6) ** alpha, "avg": n**alpha, "none": 1.0}[kind])


def as_hypothesis(tokens: Prefix, log_probs: Sequence[float], alpha: float, kind: Kind) -> Hypothesis:
    ended = tokens[-1] == EOS
    n = len(tokens)
    log_prob = sum(log_probs)
    score = log_prob / penalty(n, alpha, kind)
    return Hypothesis(tokens[:-1] if ended else tokens, tuple(log_probs), log_prob, score, n, not ended)


Path = tuple[Prefix, tuple[float, ...]]  # pieces and the log-probability of each


@dataclass(frozen=True)
class Rules:
    """The constraints of one sentence, for the plain rules."""

    min_length: int = 0
    ngram: int = 0
    penalty: float = 1.0
    forced: Prefix = ()


NO_RULES = Rules()


def next_pieces(table: Table, sentence: int, prefix: Prefix, rules: Rules) -> dict[int, float]:
    """The pieces that may follow, each with its log-probability."""
    logits = list(table(sentence, prefix))
    for token in set(prefix):
        logits[token] *= 1 / rules.penalty if logits[token] > 0 else rules.penalty
    log_probs = log_softmax(logits)
    if len(prefix) < len(rules.forced):
        forced = rules.forced[len(prefix)]
        return {forced: log_probs[forced]}
    grams = [prefix[i : i + rules.ngram] for i in range(len(prefix) - rules.ngram + 1)] if rules.ngram else []
    found = {
        token: log_prob
        for token, log_prob in enumerate(log_probs)
        if token not in (PAD, BOS)
        and log_prob > -math.inf
        and not (token == EOS and len(prefix) < rules.min_length)
        and (*prefix[len(prefix) - rules.ngram + 1 :], token) not in grams
    }
    return found or {EOS: log_probs[EOS]}


def continuations(table: Table, sentence: int, live: Sequence[Path], rules: Rules) -> list[Path]:
    return [
        ((*prefix, token), (*so_far, log_prob))
        for prefix, so_far in live
        for token, log_prob in next_pieces(table, sentence, prefix, rules).items()
        if log_prob > -math.inf
    ]


def brute_force(
    table: Table, sentence: int, limit: int, n_best: int, alpha: float, kind: Kind, rules: Rules = NO_RULES
) -> list[Hypothesis]:
    """Every sequence that ends within the limit, and every one cut by it, best first."""
    live: list[Path] = [((), ())]
    pool: list[Path] = []
    for _ in range(limit):
        found = continuations(table, sentence, live, rules)
        pool += [one for one in found if one[0][-1] == EOS]
        live = [one for one in found if one[0][-1] != EOS]
    hypotheses = [as_hypothesis(tokens, log_probs, alpha, kind) for tokens, log_probs in pool + live]
    return sorted(hypotheses, key=lambda one: -one.score)[:n_best]


def slow_search(
    table: Table,
    sentence: int,
    limit: int,
    beam: int,
    n_best: int,
    alpha: float,
    kind: Kind,
    rules: Rules = NO_RULES,
) -> list[Hypothesis]:
    """The beam rule, sentence by sentence, in lists."""
    live: list[Path] = [((), ())]
    finished: list[Path] = []
    for _ in range(limit):
        ranked = sorted(continuations(table, sentence, live, rules), key=lambda one: -sum(one[1]))[: 2 * beam]
        finished += [one for one in ranked[:beam] if one[0][-1] == EOS]
        live = [one for one in ranked if one[0][-1] != EOS][:beam]
        if len(finished) >= beam:
            break
    else:
        finished += live
    hypotheses = [as_hypothesis(tokens, log_probs, alpha, kind) for tokens, log_probs in finished]
    return sorted(hypotheses, key=lambda one: -one.score)[:n_best]


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [(h.ids, h.n, h.truncated) for h in found] == [(h.ids, h.n, h.truncated) for h in expected]
    assert [h.log_prob for h in found] == pytest.approx([h.log_prob for h in expected], abs=1e-4)
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)
    for one, other in zip(found, expected, strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)
