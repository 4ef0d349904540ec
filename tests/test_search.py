"""The search against brute force, against a slow plain-Python rule, and against cases worked by hand.

The model is a table from (sentence, prefix) to the logits of the next piece.
"""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import (
    BOS,
    EOS,
    PAD,
    UNK,
    A,
    B,
    C,
    D,
    Kind,
    Prefix,
    TableModel,
    as_hypothesis,
    assert_same,
    brute_force,
    log_softmax,
    penalty,
    random_table,
    search,
    slow_search,
    written_table,
)

from transformer_cli.decoding.hypotheses import Hypothesis, length_penalty
from transformer_cli.decoding.search import _likeliest, best_continuations, closed_up
from transformer_cli.errors import UserError


def p(hypothesis: Hypothesis) -> float:
    return math.exp(hypothesis.log_prob)


def words(n: int) -> list[Prefix]:
    return list(product((A, B), repeat=n))


# ---------------------------------------------------------------------------------------------- slower truths


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize(("kind", "alpha"), [("wu", 0.0), ("wu", 0.6), ("wu", 2.0), ("avg", 1.0), ("none", 1.0)])
def test_a_beam_as_wide_as_the_live_prefixes_finds_the_brute_force_n_best(kind: Kind, alpha: float, limit: int) -> None:
    table = random_table(seed=1, vocab=7)  # unk and three words go on: at most 4^limit live prefixes
    found = search(table, [limit] * 6, beam=4**limit, n_best=4, alpha=alpha, kind=kind)
    for sentence in range(6):
        assert_same(found[sentence], brute_force(table, sentence, limit, 4, alpha, kind))


@pytest.mark.parametrize("beam", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("kind", "alpha"), [("wu", 0.6), ("avg", 1.0), ("none", 0.6)])
@pytest.mark.parametrize(("vocab", "impossible"), [(5, 0.0), (9, 0.0), (30, 0.0), (7, 0.5)])
def test_the_search_equals_the_rule_written_out_in_lists(
    kind: Kind, alpha: float, beam: int, vocab: int, impossible: float
) -> None:
    table = random_table(10 + beam, vocab, impossible=impossible)
    limits = [1, 2, 3, 4, 5, 6] * 5
    for n_best in {1, beam}:
        found = search(table, limits, beam, n_best, alpha, kind)
        for sentence, limit in enumerate(limits):
            assert_same(found[sentence], slow_search(table, sentence, limit, beam, n_best, alpha, kind))


def test_the_random_tables_end_early_end_late_and_are_cut() -> None:
    """The two comparisons above would prove little if every sentence ended in the same way."""
    found = search(random_table(13, 9), [1, 2, 3, 4, 5, 6] * 5, beam=3, n_best=3)
    lengths = {h.n for hypotheses in found for h in hypotheses if not h.truncated}
    assert {1, 2, 3, 4} <= lengths
    assert any({h.truncated for h in hypotheses} == {True, False} for hypotheses in found)


def test_a_beam_of_one_is_greedy() -> None:
    table = random_table(seed=3, vocab=12)
    for sentence, [found] in enumerate(search(table, [8] * 20, beam=1)):
        prefix: Prefix = ()
        gained: list[float] = []
        while len(prefix) < 8 and prefix[-1:] != (EOS,):
            log_probs = log_softmax(table(sentence, prefix))
            best = max((t for t in range(12) if t not in (PAD, BOS)), key=lambda t: log_probs[t])
            gained.append(log_probs[best])
            prefix += (best,)
        assert_same([found], [as_hypothesis(prefix, gained, 0.0, "none")])


# ---------------------------------------------------------------------------------------------- the rule by hand


def test_an_end_symbol_ranked_within_the_beam_finishes_and_takes_nobodys_place() -> None:
    # Beam 2. Step 1 ranks A .5, end .3, B .2: the end is second and finishes, and B is still one of the two alive.
    # Step 2 ranks B end .2 first, before A's three times .15 and .05: the second to finish.
    table = written_table(
        {(): {A: 0.5, EOS: 0.3, B: 0.2}, (A,): {C: 0.3, D: 0.3, UNK: 0.3, EOS: 0.1}, (B,): {EOS: 1.0}}
    )
    [found] = search(table, [9], beam=2, n_best=2)
    assert [(h.ids, h.n, h.truncated) for h in found] == [((), 1, False), ((B,), 2, False)]
    assert [p(h) for h in found] == pytest.approx([0.3, 0.2])


def test_an_end_symbol_ranked_behind_the_beam_does_not_finish() -> None:
    # Beam 2. Step 1 ranks A .4, B .35, end .25: third. Step 2 ranks A C .22, B C .21, A end .18, B end .14.
    table = written_table({(): {A: 0.4, B: 0.35, EOS: 0.25}, (A,): {C: 0.55, EOS: 0.45}, (B,): {C: 0.6, EOS: 0.4}})
    [found] = search(table, [2], beam=2, n_best=2)
    assert [(h.ids, h.truncated) for h in found] == [((A, C), True), ((B, C), True)]
    assert [p(h) for h in found] == pytest.approx([0.22, 0.21])
    # With beam 3 the end of step 1 is within the beam, and the best of all.
    [[best]] = search(table, [2], beam=3)
    assert (best.ids, best.truncated) == ((), False)
    assert p(best) == pytest.approx(0.25)


def test_a_sentence_ends_when_as_many_as_the_beam_are_finished() -> None:
    # Beam 2: the end (.45) in step 1, A end (.55 x .6 = .33) in step 2. A C would go on to .22 and, being longer, win
    # by a strong length penalty; but the search has ended.
    table = written_table({(): {EOS: 0.45, A: 0.55}, (A,): {EOS: 0.6, C: 0.4}, (A, C): {D: 1.0}})
    model = TableModel(table)
    [found] = search(table, [9], beam=2, n_best=2, alpha=3.0, kind="avg", model=model)
    assert [(h.ids, h.n, h.truncated) for h in found] == [((A,), 2, False), ((), 1, False)]
    assert len(model.shapes) == 2
    # Beam 3 goes on, and that hypothesis wins.
    [[best, *_]] = search(table, [9], beam=3, n_best=3, alpha=3.0, kind="avg")
    assert best.ids == (A, C, D)


def test_more_than_the_beam_may_finish_and_the_best_of_them_are_given() -> None:
    # Beam 2: the end (.3) in step 1, A end (.4) and B end (.2) in step 2, as nothing follows the words.
    table = written_table({(): {A: 0.4, EOS: 0.3, B: 0.2, C: 0.1}, (A,): {EOS: 1.0}, (B,): {EOS: 1.0}})
    [found] = search(table, [9], beam=2, n_best=2)
    assert [h.ids for h in found] == [(A,), ()]
    assert [p(h) for h in found] == pytest.approx([0.4, 0.3])
    # Divided by 2^10, B's -ln 5 comes before the end's -ln 3.33 over 1^10.
    [found] = search(table, [9], beam=2, n_best=2, alpha=10.0, kind="avg")
    assert [h.ids for h in found] == [(A,), (B,)]


def test_live_hypotheses_are_not_taken_when_enough_are_finished_at_the_limit() -> None:
    # Greedy: the one end of step 2 is all that is given, although the limit is 2 as well.
    table = written_table({(): {A: 1.0}, (A,): {EOS: 0.4, B: 0.35, C: 0.25}})
    [found] = search(table, [2], beam=1)
    assert [(h.ids, h.truncated) for h in found] == [((A,), False)]
    # Beam 2 has one finished at the limit and takes the live ones too, marked.
    [found] = search(table, [2], beam=2, n_best=2)
    assert [(h.ids, h.n, h.truncated) for h in found] == [((A,), 2, False), ((A, B), 2, True)]


def test_each_sentence_of_a_batch_has_its_own_limit() -> None:
    endless = written_table({(A,) * n: {A: 0.75, B: 0.25} for n in range(9)})
    found = search(endless, [1, 5, 3], beam=1)
    assert [(h.ids, h.n, h.truncated) for [h] in found] == [
        ((A,), 1, True),
        ((A,) * 5, 5, True),
        ((A,) * 3, 3, True),
    ]
    assert [p(h) for [h] in found] == pytest.approx([0.75, 0.75**5, 0.75**3])


def test_n_counts_the_end_symbol_and_never_the_start_symbol() -> None:
    ends = written_table({(): {A: 1.0}, (A,): {B: 0.5, C: 0.3}, (A, B): {EOS: 1.0}})
    [[ended]] = search(ends, [9], alpha=1.0, kind="avg")
    assert (ended.ids, ended.n) == ((A, B), 3)
    assert ended.score == pytest.approx(math.log(0.5 / 0.8) / 3)
    # Cut after the same two pieces, it has taken two steps.
    [[cut]] = search(ends, [2], alpha=1.0, kind="avg")
    assert (cut.ids, cut.n, cut.truncated) == ((A, B), 2, True)
    assert cut.score == pytest.approx(math.log(0.5 / 0.8) / 2)


def test_a_limit_of_one_gives_one_piece_or_the_empty_translation() -> None:
    table = written_table({(): {EOS: 0.5, A: 0.3, B: 0.2}})
    [found] = search(table, [1], beam=3, n_best=3)
    assert [(h.ids, h.n, h.truncated) for h in found] == [((), 1, False), ((A,), 1, True), ((B,), 1, True)]


def test_a_limit_that_is_never_reached_takes_no_memory() -> None:
    table = written_table({(A,) * n: {A: 1, EOS: 1} for n in range(30)} | {(A,) * 30: {EOS: 1}})
    [found] = search(table, [10**13], beam=3, n_best=3)  # 80 terabytes of pieces
    assert [h.ids for h in found] == [(), (A,), (A, A)]


def test_a_first_piece_that_is_the_end_symbol_gives_the_empty_translation() -> None:
    [[found]] = search(written_table({(): {EOS: 0.9, A: 0.1}}), [5], beam=1)
    assert (found.ids, found.n, found.truncated) == ((), 1, False)
    assert found.log_prob == pytest.approx(math.log(0.9))


def test_pad_and_bos_are_never_emitted_even_where_they_are_the_likeliest() -> None:
    table = written_table({prefix: {PAD: 8, BOS: 4, A: 2, B: 1, EOS: 1} for n in range(4) for prefix in words(n)})
    for beam in (1, 2, 5):
        [found] = search(table, [4], beam=beam, n_best=beam)
        assert {token for h in found for token in h.ids} <= {A, B}


def test_pad_and_bos_keep_their_share_of_the_probability() -> None:
    # Of weights 8, 4, 3 and 1, A has 3/16 and not 3/4.
    table = written_table({(A,) * n: {PAD: 8, BOS: 4, A: 3, EOS: 1} for n in range(2)})
    [[found]] = search(table, [2], beam=1)
    assert found.ids == (A, A)
    assert p(found) == pytest.approx((3 / 16) ** 2)


@pytest.mark.parametrize("beam", [3, 5, 8])
def test_a_vocabulary_smaller_than_the_candidates_is_searched_all_the_same(beam: int) -> None:
    # Four special pieces and A: unk, A and the end are all that can come, six candidates and more are asked for.
    table = random_table(seed=4, vocab=5)
    for sentence, found in enumerate(search(table, [4] * 8, beam, n_best=beam, alpha=0.6)):
        assert_same(found, slow_search(table, sentence, 4, beam, beam, 0.6, "wu"))
        assert all(set(h.ids) <= {UNK, A} for h in found)


def test_fewer_hypotheses_than_asked_for_are_given_when_no_more_exist() -> None:
    model = TableModel(written_table({(): {A: 1}, (A,): {EOS: 1}}))
    [found] = search(model.table, [9], beam=4, n_best=4, model=model)
    assert [(h.ids, h.log_prob, h.n) for h in found] == [((A,), 0.0, 2)]
    assert len(model.shapes) == 2, "nothing is alive after two steps"


def test_of_equal_scores_the_one_found_in_an_earlier_step_comes_first() -> None:
    # The end and four words are equally likely in step 1, and all that follows is certain: equal to the last bit.
    certain = {(B,): {A: 1}, (C,): {A: 1}, (C, A): {A: 1}, (D,): {A: 1}, (D, A): {A: 1}, (D, A, A): {A: 1}}
    table = written_table({(): dict.fromkeys([EOS, D, C, B, A], 1), **certain})
    [found] = search(table, [9], beam=8, n_best=8)
    assert len({h.score for h in found}) == 1
    assert [h.ids for h in found] == [(), (A,), (B, A), (C, A, A), (D, A, A, A)]


def test_n_best_lists_are_sorted_by_score_and_hold_no_translation_twice() -> None:
    for found in search(random_table(seed=5, vocab=9), [6] * 20, beam=5, n_best=5, alpha=1.0):
        assert len(found) == 5
        assert all(first.score >= second.score for first, second in pairwise(found))
        assert len({h.ids for h in found}) == 5


# ---------------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_is_translated_alike_alone_in_a_batch_and_in_any_order(beam: int) -> None:
    table = random_table(seed=6, vocab=9, scale=0.3)  # flat: lengths differ widely, the margins are small
    limits = [1 + sentence % 12 for sentence in range(24)]
    together = search(table, limits, beam, beam, alpha=0.6)
    for sentence, limit in enumerate(limits):
        [alone] = search(table, [limit], beam, beam, alpha=0.6, sentences=[sentence])
        assert_same(together[sentence], alone)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(24).tolist()
        shuffled = search(table, [limits[s] for s in order], beam, beam, alpha=0.6, sentences=order)
        for sentence, found in zip(order, shuffled, strict=True):
            assert_same(found, together[sentence])


def test_sentences_leave_the_batch_when_they_are_done() -> None:
    # Sentence s says A s times and ends; the rows of each step are those that have not ended.
    def table(sentence: int, prefix: Prefix) -> list[float]:
        return [0.0 if token == (A if len(prefix) < sentence else EOS) else -math.inf for token in range(8)]

    model = TableModel(table)
    found = search(table, [9, 9, 9, 9], beam=1, sentences=[2, 0, 3, 1], model=model)
    assert [h.ids for [h] in found] == [(A, A), (), (A, A, A), (A,)]
    assert model.shapes == [(4, 1), (3, 1), (2, 1), (1, 1)]


def test_one_row_a_sentence_enters_the_first_step_and_beam_rows_the_next() -> None:
    model = TableModel(random_table(seed=7, vocab=20, scale=0.1))
    search(model.table, [3, 3], beam=4, model=model)
    assert model.shapes == [(2, 1), (2, 4), (2, 4)]


def test_a_source_is_encoded_once_and_each_step_sees_one_new_piece_a_row() -> None:
    def endless(sentence: int, prefix: Prefix) -> list[float]:
        return [-math.inf if token == EOS else float(token) for token in range(8)]

    model = TableModel(endless)
    [[found]] = search(endless, [200], beam=1, model=model)
    assert (found.n, found.truncated) == (200, True)
    assert model.starts == 1
    assert model.shapes == [(1, 1)] * 200


# ---------------------------------------------------------------------------------------------- length penalties


@pytest.mark.parametrize(
    ("n", "alpha", "kind", "expected"),
    [
        (1, 0.6, "wu", 1.0),  # (6 / 6)^0.6
        (7, 1.0, "wu", 2.0),  # 12 / 6
        (7, 0.6, "wu", 1.5157166),  # 2^0.6
        (19, 0.5, "wu", 2.0),  # (24 / 6)^0.5
        (19, 2.0, "wu", 16.0),
        (1, 0.6, "avg", 1.0),
        (4, 0.5, "avg", 2.0),
        (10, 1.0, "avg", 10.0),
        (10, 2.0, "avg", 100.0),
        (10, 1.0, "none", 1.0),
    ],
)
def test_length_penalties_by_hand(n: int, alpha: float, kind: Kind, expected: float) -> None:
    assert length_penalty(torch.tensor([n]), alpha, kind).tolist() == pytest.approx([expected])


@pytest.mark.parametrize("kind", ["wu", "avg", "none"])
def test_alpha_zero_leaves_the_log_probability(kind: Kind) -> None:
    assert length_penalty(torch.arange(1, 100), 0.0, kind).tolist() == [1.0] * 99
    for [found] in search(random_table(seed=8, vocab=9), [5] * 5, beam=3, alpha=0.0, kind=kind):
        assert found.score == found.log_prob


@given(
    pool=st.lists(st.tuples(st.floats(-100, 0), st.integers(1, 300)), min_size=1, max_size=8),
    alphas=st.lists(st.floats(0, 4), min_size=2, max_size=6),
    kind=st.sampled_from(["wu", "avg", "none"]),
)
@settings(max_examples=200, deadline=None)
def test_over_one_pool_no_shorter_hypothesis_wins_as_alpha_grows(
    pool: list[tuple[float, int]], alphas: list[float], kind: Kind
) -> None:
    log_probs = torch.tensor([log_prob for log_prob, _ in pool])
    lengths = torch.tensor([n for _, n in pool])
    scores = [log_probs / length_penalty(lengths, alpha, kind) for alpha in sorted(alphas)]
    for one, larger in pairwise(scores):
        winner = one.argmax()
        shorter = lengths < lengths[winner]
        # A tie may be decided by rounding, hence the margin.
        assert (larger[shorter] <= larger[winner] + 1e-6 * (1 + larger[winner].abs())).all()


def test_the_best_translation_of_a_search_does_not_get_shorter_as_alpha_grows() -> None:
    table = random_table(seed=9, vocab=7, scale=1.0)
    by_alpha = [search(table, [12] * 30, beam=4, alpha=alpha) for alpha in (0.0, 0.3, 0.6, 1.0, 2.0, 4.0)]
    lengths = [[best.n for [best] in found] for found in by_alpha]
    assert all(a <= b for one, larger in pairwise(lengths) for a, b in zip(one, larger, strict=True))
    assert lengths[0] != lengths[-1]


@pytest.mark.parametrize("kind", ["wu", "avg", "none"])
@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_a_score_is_the_log_probability_over_the_penalty_of_the_length(kind: Kind, alpha: float) -> None:
    table = random_table(seed=9, vocab=7, scale=1.0)
    for found in search(table, [8] * 10, beam=4, n_best=4, alpha=alpha, kind=kind):
        for h in found:
            assert h.score == pytest.approx(h.log_prob / penalty(h.n, alpha, kind), abs=1e-5)


# ---------------------------------------------------------------------------------------------- what is fast


@pytest.mark.parametrize("vocab", [5, 63, 64, 65, 127, 128, 129, 200, 640, 1000])
@pytest.mark.parametrize(("width", "count"), [(1, 2), (1, 10), (5, 10), (8, 16)])
def test_the_largest_by_blocks_are_the_largest_of_all(vocab: int, width: int, count: int) -> None:
    count = min(count, width * vocab)
    generator = torch.Generator().manual_seed(vocab)
    log_probs = torch.randn(6, width, vocab, generator=generator).log_softmax(-1)
    live = torch.randn(6, width, generator=generator)
    log_probs[1, :, ::2] = -torch.inf  # impossible pieces, of which a whole block may consist
    log_probs[2, 0, :-1] = -torch.inf
    log_probs[3, :, : vocab // 2] = -torch.inf
    live[4, width // 2 :] = -torch.inf  # dead rows
    live[5] = -torch.inf
    everything = (live.unsqueeze(-1) + log_probs).flatten(1)
    top, place = best_continuations(live, log_probs, count)
    assert torch.equal(top, everything.topk(count, dim=1).values)
    assert torch.equal(top, everything.gather(1, place))
    assert all(len(set(row)) == count for row in place.tolist()), "a continuation is there twice"


@pytest.mark.parametrize("vocab", [5, 63, 64, 65, 128, 1000])
def test_the_likeliest_piece_is_found_by_way_of_its_block(vocab: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    log_probs = torch.randn(40, 1, vocab, generator=generator)
    log_probs[0, 0, vocab - 1] = 9.0
    log_probs[1, 0, 0] = 9.0
    log_probs[2] = -torch.inf
    log_probs[3, 0, : vocab - 1] = -torch.inf
    value, place = _likeliest(log_probs)
    assert torch.equal(value, log_probs.amax(2))
    assert torch.equal(value, log_probs.gather(2, place.unsqueeze(2)).squeeze(2))
    assert place[0] == vocab - 1
    assert place[1] == 0


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ([0, 0, 0], [0, 1, 2]),
        ([1, 1, 1], []),
        ([0, 1, 0, 0], [0, 3, 2]),  # the last takes the place that becomes free
        ([1, 1, 0, 0, 0], [3, 4, 2]),
        ([0, 1, 0, 1, 1], [0, 2]),
        ([0, 0, 1, 1], [0, 1]),
    ],
)
def test_sentences_close_up_with_few_moves(done: list[int], expected: list[int]) -> None:
    assert closed_up(torch.tensor(done, dtype=torch.bool)).tolist() == expected


@pytest.mark.parametrize("beam", [1, 4])
def test_done_sentences_that_wait_in_the_batch_change_nothing(beam: int) -> None:
    drawn = random_table(seed=21, vocab=9, scale=1.5)

    def table(sentence: int, prefix: Prefix) -> list[float]:
        """Where few end in one step."""
        return [logit - 2.0 * (piece == EOS) for piece, logit in enumerate(drawn(sentence, prefix))]

    limits = [1 + (7 * sentence) % 29 for sentence in range(80)]
    model = TableModel(table)
    together = search(table, limits, beam, beam, alpha=0.6, model=model)
    sizes = [rows for rows, _ in model.shapes]
    lengths = [max(h.n for h in found) for found in together]  # steps of each, or more where it was searched on
    waiting = [size - sum(n > step for n in lengths) for step, size in enumerate(sizes)]
    assert max(waiting) >= 2, "none waits"
    assert len(set(sizes)) > 5, "none leaves"
    for sentence, limit in enumerate(limits):
        [alone] = search(table, [limit], beam, beam, alpha=0.6, sentences=[sentence])
        assert_same(together[sentence], alone)


def test_logits_that_are_not_numbers_are_an_error_whoever_else_is_in_the_batch() -> None:
    fine = random_table(seed=22, vocab=9)
    for beam in (1, 3):
        with pytest.raises(UserError, match="no probabilities \\(NaN\\)"):
            search(lambda s, prefix: [math.nan] * 9 if s == 1 else fine(s, prefix), [5, 5, 5], beam)
