"""Constraints against brute force and the plain rules over a table, and by hand."""

import math
from collections.abc import Sequence

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
    Prefix,
    Rules,
    TableModel,
    assert_same,
    brute_force,
    log_softmax,
    random_table,
    search,
    slow_search,
    written_table,
)

from transformer_cli.decoding.constraints import Constraints

RULES = {
    "min_length": Rules(min_length=3),
    "no word twice": Rules(ngram=1),
    "no bigram twice": Rules(ngram=2),
    "no trigram twice": Rules(ngram=3),
    "repetition penalty": Rules(penalty=1.7),
    "penalty and bigrams": Rules(ngram=2, penalty=1.3),
    "length and words": Rules(min_length=4, ngram=1),
    "all": Rules(min_length=3, ngram=2, penalty=1.5),
}
FORCED: list[Prefix] = [(A, B, A, B), (), (C,), (A, A), (UNK, C, A), (), (B, B, B, B, B, B), (A, B)]

every_rule = pytest.mark.parametrize("rules", RULES.values(), ids=RULES)


def constraints(rules: Rules, prefixes: Sequence[Prefix] = ()) -> Constraints:
    longest = max(map(len, prefixes), default=0)
    padded = [[*prefix, *[PAD] * (longest - len(prefix))] for prefix in prefixes]
    return Constraints(rules.min_length, rules.ngram, rules.penalty, torch.tensor(padded) if longest else None)


def with_forced(rules: Rules, forced: Prefix) -> Rules:
    return Rules(rules.min_length, rules.ngram, rules.penalty, forced)


# Slower truths


@every_rule
@pytest.mark.parametrize("limit", [2, 4])
def test_a_wide_beam_finds_the_best_of_all_that_is_allowed(rules: Rules, limit: int) -> None:
    table = random_table(seed=31, vocab=7)
    found = search(table, [limit] * 5, beam=4**limit, n_best=4, alpha=0.6, constraints=constraints(rules))
    for sentence in range(5):
        assert_same(found[sentence], brute_force(table, sentence, limit, 4, 0.6, "wu", rules))


@every_rule
@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize(("vocab", "impossible"), [(5, 0.0), (7, 0.0), (30, 0.0), (9, 0.4)])
def test_the_search_equals_the_rules_written_out_in_lists(
    rules: Rules, beam: int, vocab: int, impossible: float
) -> None:
    # The end must be possible, for a row may have to end.
    drawn = random_table(32, vocab, impossible=impossible)

    def table(sentence: int, prefix: Prefix) -> list[float]:
        logits = list(drawn(sentence, prefix))
        return [x if token != EOS or x > -math.inf else 0.5 for token, x in enumerate(logits)]

    limits = [2, 4, 6, 9, 12] * 3
    found = search(table, limits, beam, beam, 0.6, constraints=constraints(rules))
    for sentence, limit in enumerate(limits):
        assert_same(found[sentence], slow_search(table, sentence, limit, beam, beam, 0.6, "wu", rules))


@every_rule
@pytest.mark.parametrize("beam", [1, 3])
def test_forced_prefixes_of_many_lengths_and_all_else_together(rules: Rules, beam: int) -> None:
    table = random_table(33, 9)
    limits = [9, 2, 5, 3, 12, 1, 7, 2]  # prefixes longer than other sentences go, and one as long as its own limit
    found = search(table, limits, beam, beam, 0.6, constraints=constraints(rules, FORCED))
    for sentence, (limit, forced) in enumerate(zip(limits, FORCED, strict=True)):
        expected = slow_search(table, sentence, limit, beam, beam, 0.6, "wu", with_forced(rules, forced))
        assert_same(found[sentence], expected)
        assert all(h.ids[: len(forced)] == forced for h in found[sentence])
        [alone] = search(
            table, [limit], beam, beam, 0.6, sentences=[sentence], constraints=constraints(rules, [forced])
        )
        assert_same(alone, expected)


def test_a_wide_beam_finds_the_best_that_begin_with_a_prefix() -> None:
    table = random_table(34, 7)
    prefixes: list[Prefix] = [(A,), (A, B), (C, UNK, A)]
    found = search(table, [4] * 3, beam=64, n_best=5, alpha=1.0, constraints=constraints(Rules(), prefixes))
    for sentence, forced in enumerate(prefixes):
        expected = brute_force(table, sentence, 4, 5, 1.0, "wu", Rules(forced=forced))
        assert_same(found[sentence], expected)
        assert len(expected) > 3


def test_prefixes_leave_the_batch_with_their_sentences() -> None:
    # Sentence s ends after s + 2 words; the prefixes of those that go on must stay with them.
    def table(sentence: int, prefix: Prefix) -> list[float]:
        return [0.0 if token == (A if len(prefix) < sentence + 2 else EOS) else -9.0 for token in range(8)]

    model = TableModel(table)
    prefixes: list[Prefix] = [(B,), (C, C), (D, C, B), (B, C, D, C)]
    found = search(table, [9] * 4, beam=1, model=model, constraints=constraints(Rules(), prefixes))
    assert [h.ids for [h] in found] == [(B, A), (C, C, A), (D, C, B, A), (B, C, D, C, A)]
    assert [rows for rows, _ in model.shapes] == [4, 4, 4, 3, 2, 1]


# By hand


def log_probs(constraints: Constraints, logits: Sequence[float], prefix: Prefix) -> list[float]:
    found = constraints.log_probs(torch.tensor([[logits]]), torch.tensor([[prefix]]).long().view(1, 1, -1), SPECIAL)
    return [float(x) for x in found.flatten()]


LOGITS = [0.5, -1.0, 0.2, 1.0, 2.0, -0.5, 0.0, 1.5]


def test_nothing_is_forbidden_but_padding_and_the_start_and_the_rest_keeps_its_own() -> None:
    expected = log_softmax(LOGITS)
    expected[PAD] = expected[BOS] = -math.inf
    assert log_probs(Constraints(), LOGITS, (A, B)) == pytest.approx(expected)


def test_what_is_forbidden_takes_no_probability_to_the_others() -> None:
    expected = log_softmax(LOGITS)
    expected[PAD] = expected[BOS] = expected[EOS] = -math.inf
    assert log_probs(Constraints(min_length=3), LOGITS, (A, B)) == pytest.approx(expected)
    expected[EOS] = log_softmax(LOGITS)[EOS]
    assert log_probs(Constraints(min_length=3), LOGITS, (A, B, A)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n", "prefix", "forbidden"),
    [
        (1, (), set()),
        (1, (A, C, A), {A, C}),
        (2, (A,), set()),
        (2, (A, B, A), {B}),
        (2, (A, B, A, C, A), {B, C}),
        (2, (A, A), {A}),
        (3, (A, B, C, A, B), {C}),
        (3, (A, B, C, B, A), set()),
        (4, (A, B, C), set()),
    ],
)
def test_a_piece_that_would_complete_an_ngram_again_is_forbidden(n: int, prefix: Prefix, forbidden: set[int]) -> None:
    found = log_probs(Constraints(no_repeat_ngram_size=n), LOGITS, prefix)
    assert {token for token, x in enumerate(found) if x == -math.inf} == forbidden | {PAD, BOS}
    free = set(range(8)) - forbidden - {PAD, BOS}
    assert all(found[token] == pytest.approx(log_softmax(LOGITS)[token]) for token in free)


def test_the_repetition_penalty_divides_positive_logits_and_multiplies_the_others_before_the_softmax() -> None:
    changed = list(LOGITS)
    changed[A], changed[B] = 2.0 / 1.5, -0.5 * 1.5  # A stands there twice and is divided once
    expected = log_softmax(changed)
    expected[PAD] = expected[BOS] = -math.inf
    assert log_probs(Constraints(repetition_penalty=1.5), LOGITS, (A, B, A)) == pytest.approx(expected)


def test_a_forced_piece_keeps_its_own_probability_and_nothing_else_has_any() -> None:
    found = log_probs(Constraints(prefixes=torch.tensor([[A, C]])), LOGITS, (A,))
    assert found[C] == pytest.approx(log_softmax(LOGITS)[C])
    assert {token for token, x in enumerate(found) if x > -math.inf} == {C}


def test_a_forced_piece_comes_even_where_it_repeats() -> None:
    both = Constraints(no_repeat_ngram_size=1, min_length=9, prefixes=torch.tensor([[A, A, B]]))
    found = log_probs(both, LOGITS, (A,))
    assert {token: x for token, x in enumerate(found) if x > -math.inf} == {A: pytest.approx(log_softmax(LOGITS)[A])}


def test_a_row_from_which_nothing_could_follow_may_end() -> None:
    # unk, A and the end are all there is; after unk and A no word is left, and three words are asked for.
    found = log_probs(Constraints(min_length=3, no_repeat_ngram_size=1), LOGITS[:5], (A, UNK))
    assert {token for token, x in enumerate(found) if x > -math.inf} == {EOS}
    assert found[EOS] == pytest.approx(log_softmax(LOGITS[:5])[EOS])
    only_a = written_table({(): {A: 1, EOS: 1}, (A,): {A: 3, EOS: 1}}, vocab=5)
    [[best]] = search(only_a, [9], beam=2, constraints=Constraints(min_length=5, no_repeat_ngram_size=1))
    assert (best.ids, best.truncated) == ((A,), False)
    assert best.log_prob == pytest.approx(math.log(0.5 * 0.25))


def test_of_several_rows_only_those_that_are_stuck_may_end() -> None:
    two = torch.tensor([[LOGITS[:5], LOGITS[:5]]])
    found = Constraints(min_length=9, no_repeat_ngram_size=1).log_probs(
        two, torch.tensor([[[A, UNK], [A, A]]]), SPECIAL
    )
    assert [[t for t, x in enumerate(row) if x > -math.inf] for row in found[0].tolist()] == [[EOS], [UNK]]
