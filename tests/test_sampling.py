"""Samples follow the probabilities of a table, and those of a sentence follow from the seed and the sentence alone."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
import torch
from tables import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    UNK,
    A,
    B,
    C,
    D,
    Kind,
    Prefix,
    Rules,
    Table,
    TableModel,
    assert_same,
    log_softmax,
    next_pieces,
    penalty,
    random_table,
    search,
    written_table,
)

from transformer_cli.decoding.constraints import NO_CONSTRAINTS, Constraints
from transformer_cli.decoding.hypotheses import Hypothesis
from transformer_cli.decoding.sampling import Sampling, sample
from transformer_cli.errors import UserError

# The chi-square distribution passes these once in ten thousand times, by its degrees of freedom.
BOUND = {1: 15.14, 2: 18.43, 3: 21.11, 4: 23.52, 5: 25.75, 6: 27.86}


def draw(
    table: Table,
    limits: Sequence[int],
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    sentences: Sequence[int] | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
    alpha: float = 0.0,
    kind: Kind = "wu",
    model: TableModel | None = None,
) -> list[list[Hypothesis]]:
    src = torch.tensor([[sentence] for sentence in (range(len(limits)) if sentences is None else sentences)])
    return sample(
        model or TableModel(table),
        src,
        torch.ones(len(src), 1, 1, dtype=torch.bool),
        torch.tensor(limits),
        SPECIAL,
        Sampling(temperature, top_k, top_p, seed),
        samples,
        alpha,
        kind,
        constraints,
    )


def assert_follows(drawn: Sequence[int], expected: Mapping[int, float]) -> None:
    """Chi-square: nothing impossible, and the rest about as often as its probability says."""
    assert sum(expected.values()) == pytest.approx(1.0)
    counts = Counter(drawn)
    assert set(counts) <= set(expected)
    distance = sum((counts[t] - len(drawn) * p) ** 2 / (len(drawn) * p) for t, p in expected.items())
    assert distance < BOUND[len(expected) - 1], counts


def first_pieces(found: Sequence[Sequence[Hypothesis]]) -> list[int]:
    return [(*h.ids, EOS)[0] for hypotheses in found for h in hypotheses]


WEIGHTS = {PAD: 5.0, BOS: 5.0, A: 0.35, B: 0.25, C: 0.2, EOS: 0.12, D: 0.05, UNK: 0.03}
TABLE = written_table({(): WEIGHTS})
WORDS = {token: weight for token, weight in WEIGHTS.items() if token not in (PAD, BOS)}  # they sum to 1


def powers(temperature: float) -> dict[int, float]:
    weights = {token: weight ** (1 / temperature) for token, weight in WORDS.items()}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


# Frequencies


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, WORDS),
        ({"temperature": 0.5}, powers(0.5)),
        ({"temperature": 2.0}, powers(2.0)),
        ({"top_k": 3}, {A: 0.35 / 0.8, B: 0.25 / 0.8, C: 0.2 / 0.8}),
        ({"top_k": 50}, WORDS),
        # A and B hold .6, with C it is .8: the fewest that hold .7 are three, those that hold .55 two.
        ({"top_p": 0.7}, {A: 0.35 / 0.8, B: 0.25 / 0.8, C: 0.2 / 0.8}),
        ({"top_p": 0.55}, {A: 0.35 / 0.6, B: 0.25 / 0.6}),
        ({"top_p": 0.95}, {t: w / 0.97 for t, w in WORDS.items() if t != UNK}),
        # Of the three likeliest A and B hold .75.
        ({"top_k": 3, "top_p": 0.7}, {A: 0.35 / 0.6, B: 0.25 / 0.6}),
    ],
    ids=str,
)
def test_pieces_come_as_often_as_their_probability_says(
    settings: dict[str, float], expected: dict[int, float], seed: int
) -> None:
    [found] = draw(TABLE, [1], samples=4000, seed=seed, **settings)  # type: ignore[arg-type]
    assert_follows(first_pieces([found]), expected)


def test_the_temperature_changes_what_the_nucleus_holds() -> None:
    # At temperature 1/2 the squares are .1225, .0625, .04, .0144, .0025, .0009 of .2428: A and B hold .76.
    [found] = draw(TABLE, [1], samples=500, temperature=0.5, top_p=0.7)
    assert set(first_pieces([found])) == {A, B}


def test_samples_of_many_sentences_follow_the_same_probabilities() -> None:
    assert_follows(first_pieces(draw(TABLE, [1] * 4000)), WORDS)


def test_later_pieces_follow_what_came_before_and_are_drawn_anew() -> None:
    table = written_table({(): {A: 0.5, B: 0.5}, (A,): {A: 0.7, B: 0.3}, (B,): {A: 0.2, C: 0.8}})
    [found] = draw(table, [2], samples=4000)
    pairs = {(A, A): 0.35, (A, B): 0.15, (B, A): 0.1, (B, C): 0.4}
    numbered = dict(enumerate(pairs))
    assert_follows(
        [next(i for i, pair in numbered.items() if pair == h.ids) for h in found],
        {i: pairs[pair] for i, pair in numbered.items()},
    )


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 0.01}], ids=str)
def test_the_likeliest_alone_is_greedy_search(settings: dict[str, float]) -> None:
    table = random_table(seed=41, vocab=9)
    limits = [1 + sentence % 9 for sentence in range(20)]
    drawn = draw(table, limits, alpha=0.6, **settings)  # type: ignore[arg-type]
    for found, greedy in zip(drawn, search(table, limits, alpha=0.6), strict=True):
        assert_same(found, greedy)


# What is told of a sample


@pytest.mark.parametrize(("alpha", "kind"), [(0.0, "none"), (0.6, "wu"), (1.0, "avg")])
def test_the_log_probability_is_the_models_own_whatever_it_was_drawn_by(alpha: float, kind: Kind) -> None:
    table = random_table(seed=42, vocab=9)
    drawn = draw(table, [6] * 10, samples=4, temperature=1.7, top_k=6, top_p=0.9, alpha=alpha, kind=kind)
    for sentence, found in enumerate(drawn):
        for h in found:
            tokens = h.ids if h.truncated else (*h.ids, EOS)
            own = [log_softmax(table(sentence, tokens[:t]))[token] for t, token in enumerate(tokens)]
            assert h.token_log_probs == pytest.approx(own, abs=1e-5)
            assert h.log_prob == pytest.approx(sum(own), abs=1e-5)
            assert h.score == pytest.approx(h.log_prob / penalty(h.n, alpha, kind), abs=1e-5)
            assert h.n == len(tokens)


def test_samples_end_or_are_cut_at_their_own_limit_and_come_by_score() -> None:
    limits = [1 + sentence % 7 for sentence in range(20)]
    drawn = draw(random_table(seed=43, vocab=8, scale=1.0), limits, samples=5, alpha=0.6)
    for limit, found in zip(limits, drawn, strict=True):
        assert len(found) == 5
        assert all(h.n == limit if h.truncated else h.n <= limit for h in found)
        assert all(one.score >= two.score for one, two in pairwise(found))
    assert {h.truncated for found in drawn for h in found} == {True, False}


# The same whatever the batch


def test_samples_do_not_depend_on_the_batch_the_order_or_the_neighbours() -> None:
    table = random_table(seed=44, vocab=12, scale=1.0)
    limits = [1 + (5 * sentence) % 13 for sentence in range(30)]
    together = draw(table, limits, samples=3, temperature=1.3, top_p=0.95)
    for sentence, limit in enumerate(limits):
        [alone] = draw(table, [limit], samples=3, temperature=1.3, top_p=0.95, sentences=[sentence])
        assert_same(alone, together[sentence])
    order = [(7 * i) % 30 for i in range(30)]
    shuffled = draw(table, [limits[s] for s in order], samples=3, temperature=1.3, top_p=0.95, sentences=order)
    for sentence, found in zip(order, shuffled, strict=True):
        assert_same(found, together[sentence])


def test_padding_of_a_source_changes_no_sample() -> None:
    table = random_table(seed=45, vocab=9)
    padded = torch.tensor([[3, 7, PAD, PAD], [3, 7, 7, 7]])
    mask = (padded != PAD).unsqueeze(1)
    settings = SPECIAL, Sampling(1.0, 0, 1.0, 1), 2, 0.0, "none"
    together = sample(TableModel(table), padded, mask, torch.tensor([6, 6]), *settings)  # type: ignore[arg-type]
    alone = sample(
        TableModel(table),
        padded[:1, :2],
        mask[:1, :, :2],
        torch.tensor([6]),
        *settings,  # type: ignore[arg-type]
    )
    assert_same(alone[0], together[0])
    assert together[0] != together[1], "another sentence, though the table has the same for it"


def test_the_same_sentence_twice_has_the_same_samples() -> None:
    one, two = draw(random_table(seed=46, vocab=12), [8, 8], samples=3, sentences=[5, 5])
    assert_same(one, two)


def test_another_seed_draws_others_and_the_same_seed_the_same() -> None:
    table = random_table(seed=47, vocab=12, scale=1.0)
    first, again, other = (draw(table, [8] * 10, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert sum(one[0].ids != two[0].ids for one, two in zip(first, other, strict=True)) >= 8


def test_samples_of_one_sentence_are_drawn_apart_and_more_of_them_begin_with_the_same() -> None:
    table = random_table(seed=48, vocab=30, scale=0.5)
    [few], [many] = (draw(table, [8], samples=samples) for samples in (5, 20))
    assert len({h.ids for h in many}) >= 19
    assert {h.ids for h in few} <= {h.ids for h in many}


def test_done_sentences_leave_and_one_row_enters_the_first_step() -> None:
    def table(sentence: int, prefix: Prefix) -> list[float]:
        return [0.0 if token == (A if len(prefix) < sentence else EOS) else -math.inf for token in range(8)]

    model = TableModel(table)
    found = draw(table, [9, 9, 9, 2], samples=2, sentences=[2, 0, 3, 9], model=model)
    assert [[h.ids for h in hypotheses] for hypotheses in found] == [
        [(A, A)] * 2,
        [()] * 2,
        [(A, A, A)] * 2,
        [(A, A)] * 2,
    ]
    assert [h.truncated for h in found[3]] == [True, True]
    assert model.shapes == [(4, 1), (3, 2), (2, 2), (1, 2)]


# Constraints


@pytest.mark.parametrize(
    "rules", [Rules(min_length=4), Rules(ngram=1), Rules(ngram=2), Rules(min_length=6, ngram=1, penalty=1.5)], ids=str
)
def test_constraints_hold_for_samples(rules: Rules) -> None:
    table = random_table(seed=49, vocab=8, scale=1.0)
    forced: list[Prefix] = [(A, A), (), (B,)] * 4
    longest = torch.tensor([[*prefix, PAD, PAD][:2] for prefix in forced])
    constraints = Constraints(rules.min_length, rules.ngram, rules.penalty, longest)
    for sentence, found in enumerate(draw(table, [9] * 12, samples=4, temperature=1.5, constraints=constraints)):
        own = Rules(rules.min_length, rules.ngram, rules.penalty, forced[sentence])
        for h in found:
            tokens = h.ids if h.truncated else (*h.ids, EOS)
            allowed = [next_pieces(table, sentence, tokens[:t], own) for t in range(len(tokens))]
            assert all(token in pieces for token, pieces in zip(tokens, allowed, strict=True))
            expected = [pieces[token] for token, pieces in zip(tokens, allowed, strict=True)]
            assert h.token_log_probs == pytest.approx(expected, abs=1e-5)


def test_logits_that_are_not_numbers_are_an_error() -> None:
    fine = random_table(seed=50, vocab=9)
    with pytest.raises(UserError, match=r"no probabilities \(NaN\)"):
        draw(lambda s, prefix: [math.nan] * 9 if s == 1 else fine(s, prefix), [5, 5, 5])
