"""Learning rates by hand: the rate of step k is what update k uses, and k counts from 1."""

from itertools import pairwise
from typing import Any

import pytest

from transformer_cli.config.schema import Config
from transformer_cli.training.schedule import constant, cosine, inverse_sqrt, learning_rate, noam, peak_rate

SCHEDULES = ["noam", "inverse_sqrt", "cosine", "constant"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def configured(schedule: str, d_model: int = 64, **training: Any) -> Config:
    source = {} if schedule == "noam" else {"learning_rate": 0.01}
    settings = {"lr_schedule": schedule, "warmup_steps": 10, "max_steps": 40} | source | training
    return Config.model_validate({"name": "x", "model": {"d_model": d_model}, "training": settings})


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (1, 3.952847e-03),
        (2, 7.905694e-03),
        (3, 1.185854e-02),
        (10, 3.952847e-02),
        (11, 3.768892e-02),
        (20, 2.795085e-02),
        (40, 1.976424e-02),
    ],
)
def test_noam_with_width_64_and_warm_up_10(step: int, rate: float) -> None:
    assert noam(step, d_model=64, factor=1.0, warmup=10) == pytest.approx(rate, rel=1e-6)
    assert learning_rate(step, configured("noam")) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(("step", "rate"), [(1, 1.746928e-07), (4000, 6.987712e-04)])
def test_noam_with_the_papers_setting(step: int, rate: float) -> None:
    assert noam(step, d_model=512, factor=1.0, warmup=4000) == pytest.approx(rate, rel=1e-6)


def test_the_noam_factor_multiplies() -> None:
    assert noam(7, 64, 2.5, 10) == pytest.approx(2.5 * noam(7, 64, 1.0, 10), rel=1e-12)
    assert learning_rate(7, configured("noam", noam_factor=2.5)) == noam(7, 64, 2.5, 10)


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.0025), (2, 0.005), (3, 0.0075), (4, 0.01), (16, 0.005), (64, 0.0025), (400, 0.001)]
)
def test_inverse_sqrt_halves_when_the_step_is_four_times_the_warm_up(step: int, rate: float) -> None:
    assert inverse_sqrt(step, peak=0.01, warmup=4) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.5), (2, 1.0), (4, 0.8535533906), (6, 0.5), (8, 0.1464466094), (9, 0.0380602337), (10, 0.0)]
)
def test_cosine_falls_from_the_warm_up_to_zero_behind_the_last_step(step: int, rate: float) -> None:
    assert cosine(step, peak=1.0, warmup=2, max_steps=9) == pytest.approx(rate, abs=1e-9)


@pytest.mark.parametrize(("step", "rate"), [(1, 0.25), (2, 0.5), (4, 1.0), (5, 1.0), (10_000, 1.0)])
def test_constant_stays_at_its_peak(step: int, rate: float) -> None:
    assert constant(step, peak=1.0, warmup=4) == rate


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert [inverse_sqrt(step, 1.0, 0) for step in (1, 4, 100)] == pytest.approx([1.0, 0.5, 0.1])
    assert [constant(step, 1.0, 0) for step in (1, 4, 100)] == [1.0, 1.0, 1.0]
    assert [cosine(step, 1.0, 0, 3) for step in (1, 2, 3)] == pytest.approx([0.8535533906, 0.5, 0.1464466094])


@every_schedule
def test_the_rate_rises_up_to_the_warm_up_and_never_after(schedule: str) -> None:
    config = configured(schedule, max_steps=200)
    rates = [learning_rate(step, config) for step in range(1, 201)]
    assert all(before < after for before, after in pairwise(rates[:10]))
    assert all(before >= after for before, after in pairwise(rates[9:]))
    assert max(rates) == rates[9] == peak_rate(config)


@every_schedule
def test_the_first_step_does_something(schedule: str) -> None:
    assert learning_rate(1, configured(schedule)) == pytest.approx(peak_rate(configured(schedule)) / 10, rel=1e-9)


def test_cosine_ends_at_almost_nothing_and_stays_there() -> None:
    config = configured("cosine", warmup_steps=100, max_steps=1000)
    assert 0 < learning_rate(1000, config) < 1e-5 * peak_rate(config)
    assert learning_rate(2000, config) == 0.0


def test_the_configuration_chooses_the_schedule() -> None:
    assert learning_rate(25, configured("noam")) == noam(25, 64, 1.0, 10)
    assert learning_rate(25, configured("inverse_sqrt")) == inverse_sqrt(25, 0.01, 10)
    assert learning_rate(25, configured("cosine")) == cosine(25, 0.01, 10, 40)
    assert learning_rate(25, configured("constant")) == 0.01


@every_schedule
def test_a_run_that_ends_in_its_warm_up_has_its_highest_rate_at_the_end(schedule: str) -> None:
    config = configured(schedule, warmup_steps=100, max_steps=40)
    assert peak_rate(config) == learning_rate(40, config) == max(learning_rate(step, config) for step in range(1, 41))


@every_schedule
def test_without_warm_up_the_highest_rate_is_the_first(schedule: str) -> None:
    config = configured(schedule, warmup_steps=1 if schedule == "noam" else 0)
    assert peak_rate(config) == learning_rate(1, config) == max(learning_rate(step, config) for step in range(1, 41))
