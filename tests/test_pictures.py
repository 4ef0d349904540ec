"""What is drawn while a run trains: not too often, never to its harm, and on resuming as if it had not stopped."""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from untrained import translator

from transformer_cli.config.schema import TrainingConfig
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation import page
from transformer_cli.training import pictures
from transformer_cli.training.pictures import Pictures, check_tensorboard
from transformer_cli.training.run_dir import RunDir

drawing = pytest.mark.skipif(not page.can_draw(), reason="matplotlib is not installed")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "run")
    found.samples.mkdir(parents=True)
    found.config.write_text("name: x\n")
    return found


def write_events(run: RunDir, *events: dict[str, Any]) -> None:
    with run.metrics.open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


# The page


@drawing
def test_the_page_is_drawn_and_no_temporary_file_stays(run: RunDir) -> None:
    Pictures(run, tensorboard=False, shown=True).draw_at_end(translator(), {})
    assert run.report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert {path.name for path in run.path.iterdir()} == {"samples", "config.yaml", "report.html"}


@drawing
def test_drawing_begins_after_10_seconds_and_takes_a_twentieth_of_the_time_at_most(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    drawn: list[float] = []

    def draw(*_: object) -> str:
        drawn.append(now[0])
        now[0] += 2.0
        return "x"

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("transformer_cli.evaluation.report.report", draw)
    shown = Pictures(run, tensorboard=False, shown=True)
    for at in (105.0, 109.9, 110.0, 120.0, 151.9, 152.0, 160.0, 194.0):
        now[0] = at
        shown.draw_if_due(translator())
    assert drawn == [110.0, 152.0, 194.0]
    shown.draw_at_end(translator(), {})
    assert drawn[-1] == 196.0  # whenever that is


@drawing
def test_a_failure_is_told_once_and_goes_no_further(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> str:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("transformer_cli.evaluation.report.report", fail)
    shown = Pictures(run, tensorboard=False, shown=True)
    shown.draw_at_end(translator(), {})
    shown.draw_at_end(translator(), {})
    assert told(caplog) == ["a picture of the run could not be drawn (ZeroDivisionError: by zero); training goes on"]
    assert not run.report.exists()


def test_without_the_library_it_is_said_once_what_to_install(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    caplog.set_level(logging.INFO)
    shown = Pictures(run, tensorboard=False, shown=True)
    shown.draw_if_due(translator())
    shown.draw_at_end(translator(), {})
    assert told(caplog) == ["no report.html is written, for matplotlib is not installed: pip install matplotlib"]
    assert not run.report.exists()


def test_other_processes_draw_and_say_nothing(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shown = Pictures(run, tensorboard=True, shown=False)
    shown.draw_at_end(translator(), {})
    assert told(caplog) == []
    assert not run.report.exists()
    assert not run.tensorboard.exists()


# TensorBoard


def scalars(run: RunDir) -> dict[str, list[tuple[int, float]]]:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run.tensorboard))
    found.Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_has_what_the_metrics_have(run: RunDir) -> None:
    pytest.importorskip("tensorboard")
    write_events(run, {"event": "train", "step": 5, "epoch": 1, "loss": 4.0, "lr": 0.5, "grad_norm": None})
    board = Pictures(run, tensorboard=True, shown=True)
    score = {"BLEU": {"score": 7.0, "signature": ""}}
    write_events(run, {"event": "train", "step": 10, "loss": 3.0, "lr": 0.25, "grad_norm": 2.0})
    board.follow()
    write_events(
        run,
        {"event": "valid", "step": 10, "loss": 2.0, "scores": score},
        {"event": "valid", "step": 10, "averaged": [5, 10], "loss": 1.0, "scores": score},
        {"event": "test", "step": 10, "name": "news", "scores": score},
    )
    board.follow()
    board.follow()
    assert scalars(run) == {
        "train/loss": [(5, 4.0), (10, 3.0)],
        "train/lr": [(5, 0.5), (10, 0.25)],
        "train/grad_norm": [(10, 2.0)],
        "valid/loss": [(10, 2.0)],
        "valid/BLEU": [(10, 7.0)],
        "average/loss": [(10, 1.0)],
        "average/BLEU": [(10, 7.0)],
        "test/news/BLEU": [(10, 7.0)],
    }


def test_a_run_that_is_resumed_repeats_no_step(run: RunDir) -> None:
    pytest.importorskip("tensorboard")
    first = [{"event": "train", "step": step, "loss": float(step)} for step in (5, 10, 15)]
    write_events(run, *first)
    Pictures(run, tensorboard=True, shown=True)
    run.metrics.unlink()  # it was killed after its checkpoint at step 10
    write_events(run, *first[:2])
    board = Pictures(run, tensorboard=True, shown=True)
    write_events(run, {"event": "train", "step": 15, "loss": 1.5})
    board.follow()
    assert scalars(run) == {"train/loss": [(5, 5.0), (10, 10.0), (15, 1.5)]}


def test_a_viewer_that_is_looking_on_forgets_the_steps_that_are_done_again(run: RunDir) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_events(run, *({"event": "train", "step": step, "loss": float(step)} for step in (5, 10, 15)))
    Pictures(run, tensorboard=True, shown=True)
    viewer = EventAccumulator(str(run.tensorboard))
    viewer.Reload()
    run.metrics.write_text(json.dumps({"event": "train", "step": 5, "loss": 5.0}) + "\n")
    Pictures(run, tensorboard=True, shown=True)
    viewer.Reload()
    assert [one.step for one in viewer.Scalars("train/loss")] == [5]


def test_tensorboard_that_is_not_installed_is_an_error_only_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    check_tensorboard(TrainingConfig())
    with pytest.raises(ConfigError, match=r"^training.tensorboard: .* pip install tensorboard"):
        check_tensorboard(TrainingConfig(tensorboard=True))


# In a whole run


@drawing
def test_a_run_whose_pictures_fail_trains_to_its_end(
    train: Callable[..., Any], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise OSError("no room")

    monkeypatch.setattr("transformer_cli.evaluation.report.report", fail)
    done = train(small, tmp_path / "run")
    assert done.returncode == 0
    assert done.stderr.count("could not be drawn (OSError: no room)") == 1
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_run_without_the_libraries_trains_and_says_what_to_install(
    train: Callable[..., Any], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "transformer_cli.evaluation.drawing"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    done = train(small, tmp_path / "run")
    assert done.returncode == 0
    assert done.stderr.count("pip install matplotlib") == 1
    assert not any(name.startswith("matplotlib") for name in sys.modules)
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    for flags in ((), ("--check",)):
        refused = train(small, tmp_path / "other", "training.tensorboard=true", flags=flags)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "tensorboard is not installed" in refused.stderr
    assert not (tmp_path / "other").exists()
