"""Several processes: they compute what one computes, and end together. On CPU, by gloo."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from runs import WITHIN, in_processes, metrics, record_weights, saved_steps, updates_done

from transformer_cli import checkpoint
from transformer_cli.data.corpus import Pair
from transformer_cli.data.split import Splits
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import DataError
from transformer_cli.run_files import checkpoint_path
from transformer_cli.training import step
from transformer_cli.training.loss import LossSums
from transformer_cli.training.run_dir import RunDir
from transformer_cli.training.step import batch_loss

Command = Callable[..., CompletedProcess[str]]

# 400 pairs are 7 updates of 64, the last of 16 pairs: the groups of 16 are 25, four an update.
SETTINGS = (
    "model.dropout=0.0",
    "training.batch_size=64",
    "training.max_epochs=3",
    "training.max_steps=1000",
    "training.log_steps=1",
    "training.valid_steps=7",
    "training.average_last=1",
)
LAST = 21


@pytest.fixture(scope="module")
def alone(train: Command, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run by one process, in one piece; tests only read it."""
    run = tmp_path_factory.mktemp("alone") / "run"
    assert train(small, run, *SETTINGS).returncode == 0
    return run


def assert_equal(run: Path, other: Path) -> None:
    """Losses and weights within 1e-5 after 21 updates, and the same pairs in the same updates."""
    events, expected = metrics(run), metrics(other)
    assert [(event["event"], event.get("step")) for event in events] == [
        (event["event"], event.get("step")) for event in expected
    ]
    for event, theirs in zip(events, expected, strict=True):
        for key in {"tgt_tokens", "lr", "epoch"} & theirs.keys():
            assert event[key] == theirs[key]
        for key in {"loss", "nll"} & theirs.keys():
            assert event[key] == pytest.approx(theirs[key], abs=1e-5)
    ours, theirs = (checkpoint.read(checkpoint_path(path, LAST)).weights for path in (run, other))
    for name, tensor in theirs.items():
        # The gradient of a key's bias is zero but for rounding, of which Adam makes full steps.
        if not name.endswith(".key.bias"):
            torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-5)


# The groups of 16 are cut by the last only.
@pytest.mark.parametrize(("batch_size", "steps"), [(32, 2), (16, 4), (4, 16)])
def test_an_update_in_one_piece_or_accumulated_is_the_same(
    train: Command, small: Path, alone: Path, tmp_path: Path, batch_size: int, steps: int
) -> None:
    cut = (f"training.batch_size={batch_size}", f"training.gradient_accumulation_steps={steps}")
    assert train(small, tmp_path / "run", *SETTINGS, *cut).returncode == 0
    assert_equal(tmp_path / "run", alone)


# By torchrun, as a person starts them


def torchrun(*words: object) -> subprocess.Popen[str]:
    """Two processes of a module (`-m NAME`) or script."""
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for_updates(process: subprocess.Popen[str], run: Path, count: int) -> None:
    while updates_done(run) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def as_options(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def epochs_of(run: Path) -> list[int]:
    """Target tokens of each epoch."""
    trained = [event for event in metrics(run) if event["event"] == "train"]
    return [
        sum(event["tgt_tokens"] for event in trained if event["epoch"] == epoch)
        for epoch in range(1, trained[-1]["epoch"] + 1)
    ]


@pytest.mark.slow
def test_two_processes_compute_what_one_does_and_the_main_one_alone_speaks(
    small: Path, alone: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = torchrun("-m", "transformer_cli", "train", small, "--run-dir", run, *as_options(SETTINGS))
    said, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert_equal(run, alone)
    tokenizer = Tokenizer(checkpoint.read(run / "model.safetensors").tokenizers["shared"])
    targets = small.with_name("train.tgt").read_text().splitlines()
    assert epochs_of(run) == [sum(len(tokenizer.encode(line)) + 1 for line in targets)] * 3
    assert len(said.splitlines()) == 1
    assert said.startswith("test BLEU ")
    assert "with 1 thread in each of 2 processes; " in told
    lines = [line for line in told.splitlines() if line and not line.startswith("  ")]  # but for the samples
    assert sorted(set(lines)) == sorted(lines)
    assert json.loads((run / "run.json").read_text())["processes"] == 2


AT_UPDATE_3 = """\
import os, pathlib, signal, sys
from transformer_cli.cli import app
from transformer_cli.training.step import Updater

update = Updater.update

def third(self, batches, step, rate):
    if step == 3 and self.processes.rank == {rank}:
        {what}
    return update(self, batches, step, rate)

Updater.update = third
pathlib.Path(sys.argv[1], "pid-" + os.environ["RANK"]).write_text(str(os.getpid()))
app(sys.argv[2:])
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "what", "message"),
    [
        (0, "os.kill(os.getpid(), signal.SIGKILL)", "error: process 1 lost the others"),
        (1, "os.kill(os.getpid(), signal.SIGKILL)", "error: process 0 lost the others"),
        (1, "raise ZeroDivisionError('as no other process has it')", "ZeroDivisionError: as no other process has it"),
    ],
    ids=["kill -9 of the main one", "kill -9 of another", "an error in one"],
)
def test_when_one_process_fails_all_end_and_what_was_saved_can_be_resumed(
    train: Command, small: Path, alone: Path, tmp_path: Path, rank: int, what: str, message: str
) -> None:
    script, run = tmp_path / "script.py", tmp_path / "run"
    script.write_text(AT_UPDATE_3.format(rank=rank, what=what))
    settings = (*SETTINGS, "training.save_steps=1", "training.keep_last=30")
    process = torchrun(script, tmp_path, "train", small, "--run-dir", run, *as_options(settings))
    wait_for_updates(process, run, 2)
    said, told = process.communicate(timeout=WITHIN)
    assert process.returncode not in (0, None)
    assert said == ""
    assert message in told
    assert not any(is_alive(int((tmp_path / f"pid-{i}").read_text())) for i in range(2))
    assert saved_steps(run) == [1, 2]
    assert train(small, run, *settings, flags=["--resume"]).returncode == 0
    assert_equal(run, alone)


@pytest.mark.slow
def test_a_signal_to_torchrun_stops_all_saved_and_one_process_goes_on(
    train: Command, small: Path, alone: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # A stop at any step is to be seen, so no checkpoint but those of the best so far and of the stop.
    settings = (*SETTINGS, "training.save_steps=100")
    process = torchrun("-m", "transformer_cli", "train", small, "--run-dir", run, *as_options(settings))
    wait_for_updates(process, run, 3)
    process.send_signal(signal.SIGTERM)
    said, told = process.communicate(timeout=WITHIN)
    assert process.returncode not in (0, None)
    step = max(event["step"] for event in metrics(run) if event["event"] == "train")
    assert saved_steps(run)[-1] == step
    assert told.count("stopped by SIGTERM. ") == 1
    assert (
        f"stopped by SIGTERM. step {step} is saved. Go on with: torchrun --nproc-per-node 2 -m transformer_cli train "
        in told
    )
    assert told.count("SIGTERM: finishing this step") == 1
    assert said == ""
    resumed = train(small, run, *settings, flags=["--resume"])
    assert f"resumed after step {step}\n" in resumed.stderr
    assert_equal(run, alone)


# Processes that torchrun would start, forked from one that has imported everything


@pytest.mark.slow
def test_with_fewer_pairs_than_processes_all_take_part_and_have_the_same_weights(
    train: Command, project: Callable[..., Path], tmp_path: Path
) -> None:
    # The one pair of an epoch falls to the main process, and nothing to the other two.
    config = project(tmp_path / "text", train=[("ba ce di fo gu ha je ki", "BA CE DI FO GU HA JE KI")])
    settings = ("model.dropout=0.0", "training.max_epochs=21", "training.max_steps=1000", "training.log_steps=1")
    assert train(config, tmp_path / "alone", *settings).returncode == 0
    run = tmp_path / "run"
    words = ["train", config, "--run-dir", run, *as_options(settings)]
    in_processes(3, words, tmp_path, before=record_weights)
    assert_equal(run, tmp_path / "alone")
    recorded = [
        [line.split(" ", 1) for line in (tmp_path / f"weights-{rank}").read_text().splitlines()] for rank in range(3)
    ]
    assert [{parts for parts, _ in lines} for lines in recorded] == [{"1"}, {"0"}, {"0"}]
    weights = [[line for _, line in lines] for lines in recorded]
    assert len(weights[0]) == LAST
    assert weights[0] == weights[1] == weights[2]


@pytest.mark.slow
def test_a_run_begun_by_one_process_goes_on_by_two_with_the_same_weights_in_both(
    train: Command, small: Path, alone: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert train(small, run, *SETTINGS, "training.max_steps=7").returncode == 0
    words = ["train", small, "--run-dir", run, "--resume", *as_options(SETTINGS)]
    in_processes(2, words, tmp_path, before=record_weights)
    assert "resumed after step 7" in (tmp_path / "0").read_text()
    assert (tmp_path / "1").read_text() == ""
    assert_equal(run, alone)
    weights = [(tmp_path / f"weights-{rank}").read_text().splitlines() for rank in range(2)]
    assert len(weights[0]) == LAST - 7
    assert [line.split(" ", 1)[1] for line in weights[0]] == [line.split(" ", 1)[1] for line in weights[1]]
    assert json.loads((run / "run.json").read_text())["processes"] == 2


def _signal_in_validation(rank: int) -> None:
    """To one process only, in the middle of its part of the first validation: translating, or waiting for the score."""
    sleep, translate = time.sleep, Translator.best_texts
    is_main = os.environ["RANK"] == "0"

    def signalled() -> None:
        if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:  # in training
            signal.raise_signal(signal.SIGTERM)

    def translating(*arguments: Any) -> Any:
        sleep(0.5) if rank == 1 else signalled()
        return translate(*arguments)

    def sleeping(seconds: float) -> None:
        signalled()
        sleep(seconds)

    if is_main:
        Translator.best_texts = translating  # type: ignore[method-assign]
    elif rank == 1:
        time.sleep = sleeping


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "step"), [(0, 7), (1, 8)], ids=["the main one, at once", "another, at the next step"])
def test_a_signal_that_reaches_one_process_in_a_validation_stops_both(
    train: Command, small: Path, alone: Path, tmp_path: Path, rank: int, step: int
) -> None:
    run = tmp_path / "run"
    words = ["train", small, "--run-dir", run, *as_options(SETTINGS)]
    in_processes(2, words, tmp_path, before=partial(_signal_in_validation, rank), main_code=143)
    assert f"stopped by SIGTERM. step {step} is saved. Go on with: " in (tmp_path / "0").read_text()
    assert (tmp_path / "1").read_text() == ""
    resumed = train(small, run, *SETTINGS, flags=["--resume"])
    assert (resumed.returncode, f"resumed after step {step}\n" in resumed.stderr) == (0, True)
    assert_equal(run, alone)


# What is the same for all is said once


@pytest.mark.parametrize(("rank", "said"), [("0", 1), ("1", 0), ("3", 0)])
def test_an_error_before_the_processes_know_each_other_is_said_by_the_first_of_a_machine(
    cli: Command, rank: str, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(variable, value)
    done = cli("train", "nowhere.yaml")
    assert (done.returncode, done.stderr.count("error: nowhere.yaml: no such file")) == (2, said)
    assert len(done.stderr.splitlines()) == said


@pytest.mark.slow
def test_an_error_and_a_warning_that_all_processes_meet_are_said_by_the_main_one(
    train: Command, small: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert train(small, run, *SETTINGS, "training.max_steps=7").returncode == 0
    words = ["train", small, "--run-dir", run, "--resume", *as_options(SETTINGS)]
    in_processes(2, [*words, "--set", "seed=8"], tmp_path, main_code=2, others_code=2)
    assert (tmp_path / "0").read_text().startswith("error: the run cannot be resumed with another configuration:")
    assert (tmp_path / "1").read_text() == ""
    (tmp_path / "0").unlink()
    in_processes(2, [*words, "--threads", 2], tmp_path)
    assert (tmp_path / "0").read_text().count("no longer bit for bit the unbroken run") == 1
    assert (tmp_path / "1").read_text() == ""


@pytest.mark.slow
def test_an_error_that_the_main_process_alone_meets_ends_all_with_its_message_only(small: Path, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    began = time.monotonic()
    with run.locked():
        words = ["train", small, "--run-dir", run.path, *as_options(SETTINGS)]
        in_processes(3, words, tmp_path, main_code=2, others_code=1)
    assert time.monotonic() - began < 60
    assert (
        (tmp_path / "0").read_text().startswith(f"error: another process is training in {run.path}: wait for its end")
    )
    assert (tmp_path / "1").read_text() == (tmp_path / "2").read_text() == ""


def _trouble_in_process_1(kind: str) -> None:
    if os.environ["RANK"] != "1":
        return
    if kind == "text":
        Splits.valid = missing  # type: ignore[method-assign]
    else:
        step.batch_loss = once_without_memory


def missing(_: Splits) -> list[Pair]:
    raise DataError("cannot read valid.src: No such file or directory")


def once_without_memory(*arguments: Any) -> LossSums:
    step.batch_loss = batch_loss
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.slow
def test_what_one_process_alone_meets_is_said_by_that_one(small: Path, tmp_path: Path) -> None:
    words = ["train", small, "--run-dir", tmp_path / "run", *as_options(SETTINGS)]
    in_processes(2, words, tmp_path, partial(_trouble_in_process_1, "text"), main_code=1, others_code=1)
    assert (tmp_path / "1").read_text() == "error: process 1: cannot read valid.src: No such file or directory\n"
    told = (tmp_path / "0").read_text()
    assert told.splitlines()[-1].startswith("error: process 0 lost the others: one of them has failed")
    assert told.count("error: ") == 1
    for rank in range(2):
        (tmp_path / str(rank)).unlink()
    in_processes(2, [*words, "--overwrite"], tmp_path, partial(_trouble_in_process_1, "memory"))
    (said,) = (tmp_path / "1").read_text().splitlines()
    assert said.startswith("process 1: warning: out of memory with ")
    assert "out of memory" not in (tmp_path / "0").read_text()
