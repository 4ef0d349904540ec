"""What a person sees while the program works, and what a run keeps of it."""

import io
import json
import logging
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from transformer_cli import log
from transformer_cli.log import LOGGER, OF_ONE_PROCESS, Metrics, Progress, RunLog, to_stderr

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    """The logger as it was, whatever a test does to it."""
    handlers, level = list(LOGGER.handlers), LOGGER.level
    LOGGER.handlers.clear()
    LOGGER.setLevel(logging.INFO)
    yield
    LOGGER.handlers[:] = handlers
    LOGGER.setLevel(level)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: self.now))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# --- messages -------------------------------------------------------------------------------------------------------


def test_messages_go_to_stderr_and_only_warnings_say_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr(logging.INFO)
    LOGGER.info("step %d", 5)
    LOGGER.warning("careful")
    LOGGER.debug("not shown")
    logging.getLogger("transformer_cli.data.corpus").info("from a module")
    captured = capsys.readouterr()
    assert captured.err == "step 5\nwarning: careful\nfrom a module\n"
    assert captured.out == ""


def test_asking_twice_shows_a_message_once(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr(logging.INFO)
    to_stderr(logging.INFO)
    LOGGER.info("once")
    assert capsys.readouterr().err == "once\n"


@pytest.mark.parametrize(("process", "said"), [(0, ["same", "warning: own"]), (2, ["process 2: warning: own"])])
def test_of_several_processes_the_others_show_only_what_is_theirs_alone(
    process: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    to_stderr(logging.INFO, process)
    LOGGER.info("same")
    LOGGER.warning("own", extra=OF_ONE_PROCESS)
    assert capsys.readouterr().err.splitlines() == said


# --- train.log ------------------------------------------------------------------------------------------------------


def test_what_was_said_before_the_file_was_open_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with RunLog() as run_log:
        LOGGER.info("early")
        LOGGER.warning("übel")
        assert not path.exists()
        run_log.open(path)
        LOGGER.info("late")
        assert path.read_text("utf-8").endswith("late\n")  # at once
    lines = path.read_text("utf-8").splitlines()
    assert [re.fullmatch(f"{STAMP} (.*)", line)[1] for line in lines] == ["INFO early", "WARNING übel", "INFO late"]  # type: ignore[index]


def test_its_messages_do_not_depend_on_what_is_shown(tmp_path: Path) -> None:
    LOGGER.setLevel(logging.NOTSET)  # as where no command line runs
    with RunLog() as run_log:
        run_log.open(tmp_path / "train.log")
        LOGGER.info("told")
    assert (tmp_path / "train.log").read_text().endswith("INFO told\n")


def test_a_resumed_run_appends_to_its_log(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("from before\n")
    with RunLog() as run_log:
        LOGGER.info("early")
        run_log.open(path)
    lines = path.read_text().splitlines()
    assert lines[0] == "from before"
    assert lines[1].endswith("INFO early")
    assert len(lines) == 2


def fail(path: Path | None) -> None:
    """A run that fails once its log is open, or before."""
    with RunLog() as run_log:
        if path is not None:
            run_log.open(path)
        raise ValueError("too large")


def test_the_error_that_ended_a_run_is_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with pytest.raises(ValueError, match="too large"):
        fail(path)
    assert path.read_text() == "ValueError: too large\n"
    assert LOGGER.handlers == []


def test_a_run_that_fails_before_its_log_is_open_leaves_none() -> None:
    with pytest.raises(ValueError, match="too large"):
        fail(None)
    assert LOGGER.handlers == []


def test_after_the_run_nothing_more_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with RunLog() as run_log:
        run_log.open(path)
        LOGGER.info("during")
    LOGGER.info("after")
    assert "after" not in path.read_text()
    assert LOGGER.handlers == []


# --- metrics.jsonl --------------------------------------------------------------------------------------------------


def test_each_event_is_a_line_of_json_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, keep_lines=0)
    metrics.write("train", {"step": 1, "loss": 0.1 + 0.2})
    assert path.read_bytes() == b'{"event": "train", "step": 1, "loss": 0.30000000000000004}\n'
    metrics.write("note", {"text": "zwei\nZeilen\u2028drei"})
    lines = path.read_bytes().split(b"\n")
    assert len(lines) == 3
    assert json.loads(lines[1]) == {"event": "note", "text": "zwei\nZeilen\u2028drei"}
    assert metrics.lines == 2


def test_a_number_that_is_none_is_null_for_json_has_neither_infinity_nor_nan(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    Metrics(path, keep_lines=0).write(
        "valid",
        {
            "loss": math.nan,
            "ppl": math.inf,
            "step": 10**20,
            "lr": 5e-324,
            "averaged": [1, 2],
            "ok": True,
            "scores": [{"name": "BLEU", "value": -math.inf, "range": (math.nan, 1.5)}],
        },
    )

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    assert json.loads(path.read_text(), parse_constant=refuse) == {
        "event": "valid",
        "loss": None,
        "ppl": None,
        "step": 10**20,
        "lr": 5e-324,
        "averaged": [1, 2],
        "ok": True,
        "scores": [{"name": "BLEU", "value": None, "range": [None, 1.5]}],
    }


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_going_on_cuts_what_came_after_the_lines_to_keep(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [b'{"event": "train", "step": 1}\n', b'{"event": "note", "text": "a\xe2\x80\xa8b"}\n', b'{"event": "va']
    path.write_bytes(b"".join(lines))
    metrics = Metrics(path, keep)
    assert path.read_bytes() == b"".join(lines[:keep])
    assert metrics.lines == keep


def test_lines_that_were_lost_are_not_counted(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", keep_lines=7)
    assert metrics.lines == 0
    metrics.write("train", {})
    assert metrics.lines == 1


# --- progress -------------------------------------------------------------------------------------------------------


def test_without_a_terminal_each_log_is_one_line_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    to_stderr(logging.INFO)
    with Progress(total=100) as progress:
        for _ in range(25):
            clock.now += 2.0
            progress.advance()
        progress.log("step 25/100", "loss 1.5")
        clock.now += 2.0
        progress.advance()
        assert capsys.readouterr().err == "step 25/100  loss 1.5  02:30 left\n"
    assert capsys.readouterr().err == ""


def test_at_the_end_no_time_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    to_stderr(logging.INFO)
    progress = Progress(total=2)
    clock.now += 10.0
    progress.advance(by=2)
    progress.log("step 2/2", "done")
    assert capsys.readouterr().err == "step 2/2  done  00:00 left\n"


def test_a_resumed_run_reckons_with_the_pace_it_has_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    to_stderr(logging.INFO)
    progress = Progress(total=100, initial=90)
    clock.now += 60.0
    progress.advance(by=4)
    progress.log("step 94/100", "")
    assert capsys.readouterr().err == "step 94/100    01:30 left\n"


def test_at_a_terminal_there_is_a_bar_and_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    to_stderr(logging.INFO)
    with Progress(total=4, initial=1) as progress:
        progress.advance()
        progress.log("step 2/4", "loss 1.5")
        progress.bar.refresh()
    assert "\n" not in terminal.getvalue().rstrip("\n")
    last = terminal.getvalue().rstrip().rsplit("\r", 1)[-1]
    assert "2/4" in last
    assert "loss 1.5" in last


def test_a_message_does_not_break_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    to_stderr(logging.INFO)
    with Progress(total=4):
        LOGGER.info("in between")
    assert re.search(r"\r *\rin between\n", terminal.getvalue())


def test_an_error_takes_the_bar_away_before_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(ValueError, match="stop"), Progress(total=4):
        raise ValueError("stop")
    assert terminal.getvalue().endswith("\n")


def test_progress_that_is_not_wanted_shows_nothing_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(total=4, shown=False) as progress:
        progress.advance()
    assert terminal.getvalue() == ""
