"""SIGTERM, SIGUSR1, SIGHUP and Ctrl-C: what is saved, what is said, and that going on is as if nothing had happened."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from runs import assert_same_run, metrics, saved_steps, start, updates_done

from transformer_cli.data.prepared import Preparation
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.translator import Translator
from transformer_cli.training.step import Updater

Command = Callable[..., CompletedProcess[str]]

# Saved at 4, 8, 12, 16 and 20, the last two being averaged; validated at 6, 12, 18 and 20, each of which is the best so
# far and so saved, too.
SETTINGS = (
    "model.attention_dropout=0.1",
    "training.log_steps=1",
    "training.save_steps=4",
    "training.valid_steps=6",
    "training.keep_last=3",
    "training.average_last=2",
)


@pytest.fixture(scope="module")
def unbroken(train: Command, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 updates in one go; tests only read it."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    assert train(small, run, *SETTINGS).returncode == 0
    assert saved_steps(run) == [12, 16, 20]
    return run


@contextmanager
def signalled(owner: Any, name: str, call: int, *numbers: signal.Signals) -> Iterator[None]:
    """The signals arrive as the method is called for the `call`th time, from 1."""
    original = getattr(owner, name)
    calls = 0

    def method(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            for number in numbers:
                signal.raise_signal(number)
        return original(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, method)
        yield


def last_update(run: Path) -> int:
    return max(event["step"] for event in metrics(run) if event["event"] == "train")


# A validation translates once: at 6, 12, 18 and 20; then come the average and the test.
@pytest.mark.parametrize(
    ("owner", "name", "call", "number", "step"),
    [
        (Updater, "update", 1, signal.SIGTERM, 1),
        (Updater, "update", 10, signal.SIGTERM, 10),
        (Updater, "update", 10, signal.SIGUSR1, 10),
        (Updater, "update", 10, signal.SIGINT, 10),
        (Updater, "update", 10, signal.SIGHUP, 10),
        (Updater, "update", 16, signal.SIGTERM, 16),
        (Updater, "update", 18, signal.SIGTERM, 18),
        (Updater, "update", 19, signal.SIGTERM, 19),
        (Updater, "update", 20, signal.SIGTERM, 20),
        (Translator, "best_texts", 1, signal.SIGINT, 6),
        (Translator, "best_texts", 2, signal.SIGTERM, 12),
        (Translator, "best_texts", 4, signal.SIGTERM, 20),
        (Translator, "best_texts", 5, signal.SIGTERM, 20),
        (Translator, "best_texts", 6, signal.SIGUSR1, 20),
    ],
    ids=[
        "in the first update", "between two checkpoints", "SIGUSR1", "Ctrl-C", "SIGHUP",
        "where it is saved anyway",
        "where it is to be validated", "before the last update", "in the last update", "in a validation",
        "in a validation where it is saved anyway", "in the last validation", "in scoring the average", "in the test",
    ],
)  # fmt: skip
def test_a_signal_ends_a_run_saved_at_that_step_and_resumed_it_is_the_unbroken_run(
    train: Command,
    small: Path,
    unbroken: Path,
    tmp_path: Path,
    owner: Any,
    name: str,
    call: int,
    number: signal.Signals,
    step: int,
) -> None:
    run = tmp_path / "run"
    with signalled(owner, name, call, number):
        done = train(small, run, *SETTINGS)
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert f"stopped by {number.name}. step {step} is saved. Go on with: transformer-cli " in done.stderr
    assert done.stderr.endswith(" --resume\n")
    assert last_update(run) == step
    assert saved_steps(run)[-1] == step
    resumed = train(small, run, *SETTINGS, flags=["--resume"])
    assert resumed.returncode == 0
    assert f"resumed after step {step}\n" in resumed.stderr
    assert_same_run(run, unbroken)


def test_a_run_that_is_stopped_again_and_again_is_the_unbroken_run(
    train: Command, small: Path, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for flags in ([], ["--resume"], ["--resume"]):  # at 9, 10 and 11
        with signalled(Updater, "update", 1 if flags else 9, signal.SIGTERM):
            assert train(small, run, *SETTINGS, flags=flags).returncode == 143
    # What the last stop left has taken the place of what the ones before left.
    assert saved_steps(run) == [4, 6, 8, 11]
    with signalled(Translator, "best_texts", 1, signal.SIGTERM):
        assert train(small, run, *SETTINGS, flags=["--resume"]).returncode == 143
    # A validation that is made up is abandoned like any other.
    with signalled(Translator, "best_texts", 1, signal.SIGTERM):
        again = train(small, run, *SETTINGS, flags=["--resume"])
    assert again.returncode == 143
    assert "stopped by SIGTERM. step 12 is saved. Go on with: " in again.stderr
    assert train(small, run, *SETTINGS, flags=["--resume"]).returncode == 0
    assert_same_run(run, unbroken)


def test_a_second_ctrl_c_leaves_at_once_without_saving(
    train: Command, small: Path, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with signalled(Updater, "update", 10, signal.SIGTERM, signal.SIGINT):
        done = train(small, run, *SETTINGS)
    assert (done.returncode, done.stdout) == (130, "")
    assert "SIGTERM: finishing this step and saving (Ctrl-C leaves at once)\n" in done.stderr
    assert done.stderr.endswith("interrupted\n")
    assert saved_steps(run) == [4, 6, 8]
    assert train(small, run, *SETTINGS, flags=["--resume"]).returncode == 0
    assert_same_run(run, unbroken)


def test_a_signal_that_comes_twice_is_one(train: Command, small: Path, tmp_path: Path) -> None:
    with signalled(Updater, "update", 10, signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
        assert train(small, tmp_path / "run", *SETTINGS).returncode == 143
    assert saved_steps(tmp_path / "run")[-1] == 10


def test_patience_may_run_out_in_a_validation_that_was_made_up(train: Command, small: Path, tmp_path: Path) -> None:
    # Nothing is learnt, so that the second validation is a tie and the last.
    settings = ("training.lr_schedule=constant", "training.learning_rate=1e-30", "training.patience=1")
    settings += ("training.best_metric=loss", "training.valid_steps=3", "training.save_steps=100")
    settings += ("training.log_steps=1",)
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert train(small, whole, *settings).returncode == 0
    assert saved_steps(whole) == [3, 6]
    with signalled(Translator, "best_texts", 2, signal.SIGTERM):
        assert train(small, run, *settings).returncode == 143
    assert train(small, run, *settings, flags=["--resume"]).returncode == 0
    assert_same_run(run, whole)


def test_the_program_stops_saves_and_tells_the_command_that_goes_on(
    cli: Command, project: Callable[..., Path], tmp_path: Path
) -> None:
    config = project(tmp_path / "a text")
    settings = [word for setting in (*SETTINGS, "training.max_steps=100000") for word in ("--set", setting)]
    said = tmp_path / "said"
    run = tmp_path / "a run"
    process = start(["train", config, "--overwrite", *settings, "--run-dir", run], said)
    while updates_done(run) < 3:
        assert process.is_alive(), said.read_text()
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 143
    step = last_update(run)
    last = said.read_text().splitlines()[-1]
    told = f"stopped by SIGTERM. step {step} is saved. Go on with: transformer-cli "
    assert last.startswith(told)
    words = shlex.split(last.removeprefix(told))
    assert "--overwrite" not in words
    resumed = cli(*words, "--set", f"training.max_steps={step + 2}")
    assert resumed.returncode == 0, resumed.stderr
    assert f"resumed after step {step}\n" in resumed.stderr


def _signal_in_the_preparation(number: signal.Signals) -> None:
    """As if it took so long that a signal came. What the cache holds is not made again, but it is asked for."""
    tokenizers = Preparation.tokenizers

    def signalled(preparation: Preparation) -> Tokenizers:
        signal.raise_signal(number)
        return tokenizers(preparation)

    Preparation.tokenizers = signalled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_in_the_preparation_ends_a_run_at_once_and_nothing_is_written(
    small: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    said = tmp_path / "said"
    process = start(["train", small, "--run-dir", run], said, before=partial(_signal_in_the_preparation, number))
    process.join(60)
    # The system tells of a process that a signal has ended by a negative number, and a shell as 128 and the number.
    assert process.exitcode == (130 if number == signal.SIGINT else -number)
    assert said.read_text() == ("interrupted\n" if number == signal.SIGINT else "")
    assert not run.exists()


# Runs a command at a terminal of its own and closes that once a folder holds a checkpoint. A process with threads, as a
# test's, had better not fork by itself.
CLOSED_TERMINAL = """
import os, pty, sys
from pathlib import Path
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.executable, [sys.executable, "-m", "transformer_cli", *sys.argv[2:]])
while not [*Path(sys.argv[1]).glob("step-*.safetensors")]:
    os.read(terminal, 4096)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_terminal_that_is_closed_ends_a_run_saved(small: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", small, "--run-dir", run, "--threads", 1, "--set", "training.max_steps=100000"]
    words += [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-c", CLOSED_TERMINAL, run / "checkpoints", *words]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) == 128 + signal.SIGHUP
    # What it would have said went nowhere, and is in the log of the run.
    step = saved_steps(run)[-1]
    assert f"stopped by SIGHUP. step {step} is saved. Go on with: " in (run / "train.log").read_text()
    assert last_update(run) == step


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "2>&- >&-", "2> >(head -n 1 >/dev/null)"])
def test_a_run_goes_on_where_nobody_hears_what_it_says(
    small: Path, unbroken: Path, tmp_path: Path, redirection: str
) -> None:
    run = tmp_path / "run"
    words = ["train", small, "--run-dir", run, "--threads", 1]
    words += [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-m", "transformer_cli", *map(str, words)]
    done = subprocess.run(["bash", "-c", f'"$@" {redirection}', "bash", *command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (done.stdout == b"") == (">&-" in redirection.split())
    assert_same_run(run, unbroken)


def test_a_run_under_nohup_goes_on_when_its_terminal_is_closed(train: Command, small: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signalled(Updater, "update", 10, signal.SIGHUP):
            assert train(small, tmp_path / "run", *SETTINGS).returncode == 0
    finally:
        signal.signal(signal.SIGHUP, before)
