"""Where a run stands: kept exactly, moved on by one, judged by the rules of best, patience and limits."""

import json
from typing import Any

import pytest

from transformer_cli.config.schema import TrainingConfig
from transformer_cli.training.state import Interval, TrainingState


def limits(**training: Any) -> TrainingConfig:
    return TrainingConfig(**{"max_steps": 1000, "patience": None} | training)


def validated(*scores: float, every: int = 10) -> TrainingState:
    """A run whose validations, one every ten steps, gave these scores."""
    state = TrainingState()
    for number, score in enumerate(scores, start=1):
        state.step = number * every
        state.record_validation(score)
    return state


# --- kept -----------------------------------------------------------------------------------------------------------


def test_json_keeps_every_bit() -> None:
    state = TrainingState(
        step=123_456,
        epoch=7,
        update_in_epoch=89,
        seconds=0.1 + 0.2,
        best_step=123_000,
        best_score=34.567890123456789,
        scores={"122500": 1 / 3, "123000": -1e-17, "123400": 5e-324},
        bad_validations=2,
        metrics_lines=400,
        skipped=23,
        skipped_in_a_row=19,
        batch_size=2048,
        besides=[123_000],
        stopped_at=123_456,
        interval=Interval(loss=1e9 + 1e-7, nll=2**53 - 1.0, tokens=987_654, seconds=1.1),
        loss_scale={"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 12},
    )
    plain = json.loads(json.dumps(state.to_plain()))
    again = TrainingState.from_plain(plain)
    assert again == state
    assert again.best_steps(2, [122_500, 123_000, 123_400]) == [122_500, 123_400]
    assert again.to_plain() == state.to_plain()


def test_a_state_from_before_a_field_was_added_has_its_beginning() -> None:
    plain = TrainingState(step=5, skipped=3, batch_size=2048).to_plain()
    for key in ("skipped", "skipped_in_a_row", "batch_size", "besides", "stopped_at"):
        del plain[key]
    assert TrainingState.from_plain(plain) == TrainingState(step=5)


def test_a_beginning_is_kept_too() -> None:
    assert TrainingState.from_plain(json.loads(json.dumps(TrainingState().to_plain()))) == TrainingState()


def test_what_was_written_does_not_change_with_the_state() -> None:
    state = validated(1.0)
    plain = state.to_plain()
    state.step = 20
    state.record_validation(2.0)
    state.interval.add(1.0, 1.0, 1, 1.0)
    assert plain["scores"] == {"10": 1.0}
    assert plain["interval"] == {"loss": 0.0, "nll": 0.0, "tokens": 0, "seconds": 0.0}


def test_an_interval_adds_up() -> None:
    interval = Interval()
    interval.add(10.0, 8.0, 4, 0.5)
    interval.add(1.0, 0.5, 2, 0.25)
    assert interval == Interval(loss=11.0, nll=8.5, tokens=6, seconds=0.75)


# --- moved on -------------------------------------------------------------------------------------------------------


def test_the_last_update_of_an_epoch_leads_to_the_first_of_the_next() -> None:
    state = TrainingState()
    places = []
    for _ in range(7):
        state.advance(ends_epoch=state.update_in_epoch == 2)
        places.append((state.step, state.epoch, state.update_in_epoch))
    assert places == [(1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 1, 1), (5, 1, 2), (6, 2, 0), (7, 2, 1)]


def test_the_current_epoch_is_that_of_the_last_update() -> None:
    state = TrainingState()
    epochs = []
    for _ in range(7):
        state.advance(ends_epoch=state.update_in_epoch == 2)
        epochs.append(state.current_epoch)
    assert epochs == [1, 1, 1, 2, 2, 2, 3]


def test_an_epoch_of_one_update_is_over_after_it() -> None:
    state = TrainingState()
    state.advance(ends_epoch=True)
    assert (state.step, state.epoch, state.update_in_epoch) == (1, 1, 0)


# --- best and patience ----------------------------------------------------------------------------------------------


def test_the_first_validation_is_the_best_so_far_whatever_its_score() -> None:
    state = TrainingState(step=5)
    assert state.record_validation(-1e9)
    assert (state.best_step, state.best_score, state.bad_validations) == (5, -1e9, 0)


def test_a_tie_leaves_the_earlier_step_the_best_and_counts_as_bad() -> None:
    state = validated(3.0, 3.0)
    assert (state.best_step, state.bad_validations) == (10, 1)


def test_a_new_best_starts_the_count_of_bad_ones_anew() -> None:
    state = validated(3.0, 2.0, 1.0)
    assert (state.best_step, state.bad_validations) == (10, 2)
    state.step = 40
    assert state.record_validation(3.5)
    assert (state.best_step, state.best_score, state.bad_validations) == (40, 3.5, 0)
    state.step = 50
    assert not state.record_validation(3.25)
    assert (state.best_step, state.bad_validations) == (40, 1)


def test_the_best_steps_come_best_first_and_the_earlier_of_two_equal_ones_first() -> None:
    state = validated(1.0, 5.0, 3.0, 5.0, 4.0)
    steps = [10, 20, 30, 40, 50]
    assert state.best_steps(4, steps) == [20, 40, 50, 30]
    assert state.best_steps(1, steps) == [20]
    assert state.best_steps(0, steps) == []
    assert state.best_steps(9, steps) == [20, 40, 50, 30, 10]


def test_the_best_steps_are_those_of_the_checkpoints_that_there_are() -> None:
    state = validated(1.0, 5.0, 3.0)
    assert state.best_steps(1, [10, 15, 30]) == [30]


def test_of_equal_steps_the_lower_number_comes_first_not_the_lower_text() -> None:
    state = validated(1.0, 1.0, every=90)
    assert list(state.scores) == ["90", "180"]
    assert state.best_steps(2, [90, 180]) == [90, 180]


# --- checkpoints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "kept"),
    [
        (5, 0, {10, 20, 30, 40, 50}),
        (2, 0, {40, 50}),
        (1, 0, {50}),
        (2, 1, {20, 40, 50}),
        (1, 3, {20, 30, 50}),  # 30 ties with 40, and is the earlier
        (9, 9, {10, 20, 30, 40, 50}),
    ],
)
def test_the_last_and_the_best_checkpoints_are_kept(keep_last: int, keep_best: int, kept: set[int]) -> None:
    state = validated(1.0, 5.0, 4.0, 4.0, 4.5)
    config = limits(keep_last=keep_last, keep_best=keep_best, average_last=1)
    assert state.checkpoints_to_keep([10, 20, 30, 40], due=True, config=config) == kept


def test_a_checkpoint_for_a_best_stays_while_it_is_one_and_counts_among_no_last() -> None:
    state, config, saved = TrainingState(), limits(keep_last=2, keep_best=1, average_last=1), set()
    history = []
    for step, score, due in ((10, 1.0, False), (20, 2.0, False), (30, 1.0, True), (60, 1.5, True), (90, 1.0, True),
                             (100, 3.0, False), (120, 4.0, True)):  # fmt: skip
        state.step = step
        state.record_validation(score)
        saved = state.checkpoints_to_keep(saved, due, config)
        history.append((sorted(saved), state.besides))
    assert history == [
        ([10], [10]),
        ([20], [20]),
        ([20, 30], [20]),
        ([20, 30, 60], [20]),
        ([20, 60, 90], [20]),
        ([60, 90, 100], [100]),
        ([90, 120], []),
    ]


def test_a_checkpoint_that_a_stop_asked_for_lasts_until_the_next_however_good_it_is() -> None:
    state, config = validated(3.0, 2.0), limits(keep_last=2, keep_best=2, average_last=1)
    state.step = 25
    assert state.checkpoints_to_keep([10, 20], due=False, config=config) == {10, 20, 25}
    assert (state.stopped_at, state.besides) == (25, [])
    state.record_validation(2.5)  # which it was stopped before
    state.step = 30
    assert state.checkpoints_to_keep([10, 20, 25], due=True, config=config) == {10, 20, 30}
    assert state.stopped_at is None


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_run_within_its_limits_goes_on() -> None:
    assert TrainingState().stop_reason(limits()) is None
    state = TrainingState(step=999, epoch=4, seconds=3599.9, bad_validations=2)
    assert state.stop_reason(limits(max_epochs=5, max_hours=1.0, patience=3)) is None


def test_no_limit_but_the_steps_holds_when_none_is_given() -> None:
    state = TrainingState(step=999, epoch=10_000, seconds=1e9, bad_validations=10_000)
    assert state.stop_reason(limits()) is None


@pytest.mark.parametrize("step", [1000, 1001])
def test_it_ends_at_max_steps(step: int) -> None:
    reason = TrainingState(step=step).stop_reason(limits())
    assert reason == f"step {step} of training.max_steps 1000"


def test_it_ends_after_max_epochs() -> None:
    state = TrainingState(step=12, epoch=1, update_in_epoch=5)
    assert state.stop_reason(limits(max_epochs=2)) is None
    state.advance(ends_epoch=True)
    assert state.stop_reason(limits(max_epochs=2)) == "epoch 2 of training.max_epochs 2, at step 13"


def test_it_ends_after_max_hours() -> None:
    state = TrainingState(step=12, seconds=5400.0)
    assert state.stop_reason(limits(max_hours=1.5)) == "1.50 of training.max_hours 1.5, at step 12"


def test_it_ends_when_patience_does() -> None:
    state = validated(3.0, 2.0, 3.0)
    assert state.stop_reason(limits(patience=3)) is None
    assert state.stop_reason(limits(patience=2)) == (
        "2 validations without a new best (training.patience 2), at step 30; the best was step 10"
    )
