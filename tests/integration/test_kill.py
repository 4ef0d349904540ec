"""What no program can catch: `kill -9` while training and saving, and a disk with no room left."""

import os
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from runs import assert_same_run, saved_steps, start, updates_done

from transformer_cli import checkpoint
from transformer_cli.run_files import checkpoint_path
from transformer_cli.training.step import Updater, UpdateResult

Command = Callable[..., CompletedProcess[str]]

KILLS = 20
# After every update a checkpoint is written and an older one removed, and the model after most validations.
SETTINGS = (
    "model.attention_dropout=0.1",
    "training.log_steps=1",
    "training.save_steps=1",
    "training.valid_steps=4",
    "training.best_metric=loss",
    "training.average_last=3",
)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_leave_whole_files_and_the_unbroken_run(
    train: Command, small: Path, tmp_path: Path
) -> None:
    run, said = tmp_path / "run", tmp_path / "said"
    settings = (*SETTINGS, "training.max_steps=60")
    assert train(small, tmp_path / "unbroken", *settings).returncode == 0
    chosen = [word for setting in settings for word in ("--set", setting)]
    chance = random.Random(1)
    # Some fall where the one before was already past: those runs are killed while they start.
    for step in sorted(chance.sample(range(1, 50), KILLS)):
        process = start(["train", small, "--run-dir", run, "--threads", 1, "--resume", *chosen], said)
        while updates_done(run) < step:
            assert process.is_alive(), said.read_text()
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.03))
        process.kill()
        process.join()
        assert process.exitcode == -9, said.read_text()
        for path in (*run.glob("checkpoints/[!.]*"), *run.glob("model.safetensors")):
            assert checkpoint.read(path).weights
    assert train(small, run, *settings, flags=["--resume"]).returncode == 0
    assert_same_run(run, tmp_path / "unbroken")


@pytest.fixture(scope="module")
def unbroken(train: Command, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 updates in one go; tests only read it."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    assert train(small, run, *SETTINGS).returncode == 0
    return run


def _no_file_larger_than(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_checkpoint_that_cannot_be_written_ends_a_run_that_can_go_on(
    train: Command, small: Path, unbroken: Path, tmp_path: Path
) -> None:
    run, said = tmp_path / "run", tmp_path / "said"
    assert train(small, run, *SETTINGS, "training.max_steps=12").returncode == 0
    model, newest = run / "model.safetensors", checkpoint_path(run, 12)
    between = (model.stat().st_size + newest.stat().st_size) // 2
    process = start(
        ["train", small, "--run-dir", run, "--resume", *(word for setting in SETTINGS for word in ("--set", setting))],
        said,
        before=partial(_no_file_larger_than, between),
    )
    process.join(60)
    assert process.exitcode == 1
    last = said.read_text().splitlines()[-1]
    assert last.startswith(f"error: cannot write {checkpoint_path(run, 13)}: ")
    assert "What was saved before is intact" in last
    assert saved_steps(run)[-1] == 12
    assert [path.name for path in newest.parent.iterdir() if path.name.startswith(".")] == []
    assert train(small, run, *SETTINGS, flags=["--resume"]).returncode == 0
    assert_same_run(run, unbroken)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_disk_that_fills_up_ends_a_run_that_can_go_on(
    train: Command, small: Path, unbroken: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = small_disk / "run", small_disk / "other"
    update = Updater.update

    def filling(self: Updater, batches: Any, step: int, rate: float) -> UpdateResult:
        if step == 13:
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            other.write_bytes(b"x" * (free - 2**20))  # 1 MiB is kept for what a run writes beside its checkpoints
        return update(self, batches, step, rate)

    with monkeypatch.context() as patch:
        patch.setattr(Updater, "update", filling)
        done = train(small, run, *SETTINGS)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: cannot write {checkpoint_path(run, 13)}: it takes ")
    assert last.endswith("make room on the disk and go on, or choose another folder with --run-dir")
    assert saved_steps(run)[-1] == 12
    other.unlink()
    assert train(small, run, *SETTINGS, flags=["--resume"]).returncode == 0
    assert_same_run(run, unbroken)
