"""An ensemble is the mean of the probabilities of its models."""

import math

import pytest
import torch
from tables import (
    BOS,
    EOS,
    A,
    B,
    C,
    Kind,
    Prefix,
    Rules,
    Table,
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
from transformer_cli.decoding.ensemble import Ensemble


def mean(*tables: Table) -> Table:
    """The logs of the mean probabilities, a number at a time."""

    def logits(sentence: int, prefix: Prefix) -> list[float]:
        columns = zip(*(log_softmax(table(sentence, prefix)) for table in tables), strict=True)
        means = [sum(math.exp(x) for x in column) / len(tables) for column in columns]
        return [math.log(x) if x else -math.inf for x in means]

    return logits


def ensemble(*tables: Table) -> Ensemble[list[tuple[int, Prefix]]]:
    return Ensemble([TableModel(table) for table in tables])


def test_the_mean_of_probabilities_by_hand() -> None:
    one = written_table({(): {A: 0.8, B: 0.1, EOS: 0.1}})
    two = written_table({(): {A: 0.1, B: 0.5, C: 0.4}})
    both = ensemble(one, two)
    state = both.start(torch.tensor([[0]]), torch.ones(1, 1, 1, dtype=torch.bool))
    logits, _ = both.step(torch.tensor([[BOS]]), state)
    assert logits.exp().flatten().tolist() == pytest.approx([0, 0, 0, 0.05, 0.45, 0.3, 0.2, 0])


def test_the_models_agree_on_what_neither_thinks_the_likeliest() -> None:
    # B is the second of each, .4 and .4; the firsts are .6 and 0, and 0 and .6.
    one, two = written_table({(): {A: 0.6, B: 0.4}}), written_table({(): {C: 0.6, B: 0.4}})
    [[best]] = search(one, [5], model=ensemble(one, two))
    assert best.ids == (B,)
    assert best.log_prob == pytest.approx(math.log(0.4))


@pytest.mark.parametrize("models", [2, 3])
@pytest.mark.parametrize(("kind", "alpha"), [("wu", 0.6), ("none", 0.0)])
def test_a_wide_beam_over_an_ensemble_finds_the_brute_force_n_best(models: int, kind: Kind, alpha: float) -> None:
    tables = [random_table(seed=60 + i, vocab=7, impossible=0.2) for i in range(models)]
    found = search(tables[0], [3] * 6, beam=64, n_best=4, alpha=alpha, kind=kind, model=ensemble(*tables))
    for sentence in range(6):
        assert_same(found[sentence], brute_force(mean(*tables), sentence, 3, 4, alpha, kind))


@pytest.mark.parametrize("beam", [1, 3])
def test_an_ensemble_is_searched_by_the_rule_and_under_constraints_too(beam: int) -> None:
    tables = [random_table(seed=70, vocab=12), random_table(seed=71, vocab=12)]
    rules = Rules(min_length=2, ngram=2, penalty=1.2)
    limits = [1 + sentence % 9 for sentence in range(20)]
    found = search(tables[0], limits, beam, beam, 0.6, model=ensemble(*tables), constraints=Constraints(2, 2, 1.2))
    for sentence, limit in enumerate(limits):
        assert_same(found[sentence], slow_search(mean(*tables), sentence, limit, beam, beam, 0.6, "wu", rules))


@pytest.mark.parametrize("beam", [1, 4])
def test_one_model_twice_is_the_model(beam: int) -> None:
    table = random_table(seed=72, vocab=9)
    limits = [1 + sentence % 9 for sentence in range(20)]
    twice = search(table, limits, beam, beam, 0.6, model=ensemble(table, table))
    for found, alone in zip(twice, search(table, limits, beam, beam, 0.6), strict=True):
        assert_same(found, alone)


def test_each_model_keeps_rows_of_its_own() -> None:
    tables = [random_table(seed=73, vocab=9), random_table(seed=74, vocab=9)]
    members = [TableModel(table) for table in tables]
    search(tables[0], [6] * 5, beam=3, model=Ensemble(members))
    assert members[0].shapes == members[1].shapes
    assert [member.starts for member in members] == [1, 1]
