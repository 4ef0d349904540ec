"""Which charts there are of runs, and what stands in them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from transformer_cli.evaluation.curves import curves, lengths
from transformer_cli.evaluation.history import RunHistory


def run(
    trained: list[dict[str, Any]],
    validated: list[dict[str, Any]] | None = None,
    averaged: list[dict[str, Any]] | None = None,
    record: Mapping[str, Any] | None = None,
) -> RunHistory:
    return RunHistory(Path("x"), None, "", record or {}, 0, trained, validated or [], averaged or [], {}, {})


TRAINED = [{"step": step, "loss": 4.0 / step, "ppl": 9.0, "lr": 0.1, "tokens_per_s": 5} for step in (1, 2)]
VALIDATED = [{"step": 2, "loss": 3.0, "ppl": None, "scores": {"BLEU": {"score": 7.5}}}]


def test_a_run_by_itself_has_charts_of_all_that_was_measured_and_of_nothing_else() -> None:
    charts = {chart.name: chart for chart in curves({"a": run(TRAINED, VALIDATED)})}
    assert list(charts) == ["loss", "ppl", "BLEU", "lr", "tokens_per_s"]
    training, validation = charts["loss"].series
    assert (training.steps, training.values, validation.steps, validation.values) == ((1, 2), (4.0, 2.0), (2,), (3.0,))
    assert training.colour != validation.colour
    assert [one.label for one in charts["ppl"].series] == ["training"]
    assert [one.values for one in charts["BLEU"].series] == [(7.5,)]


def test_the_average_of_checkpoints_stands_apart() -> None:
    charts = curves({"a": run(TRAINED, VALIDATED, [{"step": 2, "loss": 2.5, "averaged": [1, 2]}])})
    assert [(one.label, one.kind) for one in charts[0].series][-1] == ("average of checkpoints", "mark")


def test_several_runs_share_a_chart_each_in_its_colour() -> None:
    loss = curves({"a": run(TRAINED, VALIDATED), "b": run(TRAINED)})[0]
    assert [(one.run, one.label) for one in loss.series] == [("a", "training"), ("a", "validation"), ("b", "training")]
    assert loss.series[0].colour == loss.series[1].colour != loss.series[2].colour


def test_of_a_run_that_has_measured_nothing_there_are_no_charts() -> None:
    assert curves({"a": run([], [])}) == []
    assert curves({"a": run([{"step": 5, "loss": None}])}) == []


def test_lengths_are_those_that_run_json_knows() -> None:
    sizes = {"width": 2, "counts": [1, 4]}
    known = run([], record={"text": {"lengths": {"source": sizes, "target": sizes}}})
    assert [(bars.title, bars.counts) for bars in lengths({"a": known})] == [
        ("Lines of the source", [1, 4]),
        ("Lines of the target", [1, 4]),
    ]
    assert list(lengths({"a": run([])})) == []
