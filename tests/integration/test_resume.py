"""`transformer-cli train --resume`: however a run was cut, it ends bit for bit as if it had never been."""

import gzip
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from runs import assert_same_run, metrics, saved_steps, start, updates_done
from safetensors.torch import save

from transformer_cli import checkpoint
from transformer_cli.run_files import checkpoint_path, list_checkpoints
from transformer_cli.training import loop
from transformer_cli.training.step import Updater, UpdateResult

Command = Callable[..., CompletedProcess[str]]

# 400 pairs are 13 updates of 32: the checkpoints of 39 and 78 are at the end of an epoch, 50 is in the midst of one.
SETTINGS = (
    "model.dropout=0.1",
    "model.attention_dropout=0.1",
    "training.log_steps=1",
    "training.valid_steps=25",
    "training.save_steps=39",
    "training.average_last=2",
)
UNTIL_100 = (*SETTINGS, "training.max_steps=100")


@pytest.fixture(scope="module")
def unbroken(train: Command, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 100 updates in one go; tests only read it."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    assert train(small, run, *UNTIL_100).returncode == 0
    return run


@pytest.fixture
def copy(unbroken: Path, tmp_path: Path) -> Path:
    """The finished run, to be damaged or continued."""
    return Path(shutil.copytree(unbroken, tmp_path / "copy"))


# As if it had never been cut


def test_a_run_of_50_updates_resumed_to_100_in_a_new_process_is_the_run_of_100(
    program: Command, train: Command, small: Path, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert train(small, run, *SETTINGS, "training.max_steps=50", flags=["--threads", 1]).returncode == 0
    log = (run / "train.log").read_text()
    before = (run / "metrics.jsonl").read_text().splitlines()[:52]  # 50 log lines, 2 validations
    # The run's own number of threads holds, not that of the environment.
    done = program(
        "train", small, "--run-dir", run, "--resume", *(word for s in UNTIL_100 for word in ("--set", s)),
        env={"OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "resumed after step 50" in done.stderr
    assert "with 1 thread;" in done.stderr
    assert_same_run(run, unbroken)
    # What was there is continued, not written anew.
    assert (run / "train.log").read_text().startswith(log)
    assert (run / "metrics.jsonl").read_text().splitlines()[:52] == before


def test_a_run_in_bf16_is_resumed_to_the_last_bit_too(
    program: Command, train: Command, small: Path, tmp_path: Path
) -> None:
    # As `auto` trains models of this width on some CPUs; two batches a step are computed as one.
    settings = (*SETTINGS, "model.d_model=128", "precision=bf16", "device=cpu")
    settings = (*settings, "training.gradient_accumulation_steps=2", "training.save_steps=10")
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert train(small, whole, *settings, "training.max_steps=40").returncode == 0
    assert train(small, run, *settings, "training.max_steps=25", flags=["--threads", 1]).returncode == 0
    words = (word for setting in (*settings, "training.max_steps=40") for word in ("--set", setting))
    done = program("train", small, "--run-dir", run, "--resume", *words)
    assert "resumed after step 25" in done.stderr
    assert_same_run(run, whole)


@pytest.mark.parametrize(("cut_at", "saved_at"), [(40, 39), (99, 78)])
def test_a_run_cut_at_any_update_ends_as_if_it_had_not_been(
    train: Command,
    small: Path,
    unbroken: Path,
    tmp_path: Path,
    cut_at: int,
    saved_at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    update = Updater.update

    def interrupted(self: Updater, batches: Any, step: int, rate: float) -> UpdateResult:
        if step == cut_at:
            raise KeyboardInterrupt
        return update(self, batches, step, rate)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Updater, "update", interrupted)
        done = train(small, run, *UNTIL_100)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.endswith("interrupted\n")
    resumed = train(small, run, *UNTIL_100, flags=["--resume"])
    assert f"resumed after step {saved_at}" in resumed.stderr
    assert resumed.stdout.startswith("test BLEU ")
    assert_same_run(run, unbroken)


class Killed(BaseException):
    """Ends a process as `kill -9` does, nothing being put in order."""


BETWEEN = ("training.log_steps=1", "training.valid_steps=10", "training.save_steps=30", "training.max_steps=70",
           "training.best_metric=loss")  # fmt: skip


@pytest.fixture
def spoilt_from_21(monkeypatch: pytest.MonkeyPatch) -> None:
    """At such a rate all is forgotten, so that step 20 stays the best."""
    monkeypatch.setattr(loop, "learning_rate", lambda step, _: 0.01 if step <= 20 else 1.0)


@pytest.mark.usefixtures("spoilt_from_21")
@pytest.mark.parametrize("left", ["whole", "damaged", "gone", "of a later step"])
def test_a_best_step_that_is_no_save_step_is_put_back_after_a_kill(
    train: Command, small: Path, tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    assert train(small, unbroken, *BETWEEN).returncode == 0
    assert saved_steps(unbroken) == [20, 30, 60, 70]
    model = unbroken / "model.safetensors"
    assert checkpoint.read(model).origin == {"kind": "best", "step": 20}
    # The last that were due, without 20, which is there for being the best.
    assert metrics(unbroken)[-2]["averaged"] == [30, 60, 70]

    update = Updater.update

    def killed_at_44(self: Updater, batches: Any, step: int, rate: float) -> UpdateResult:
        if step == 44:
            raise Killed
        return update(self, batches, step, rate)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Updater, "update", killed_at_44)
        train(small, run, *BETWEEN)
    assert saved_steps(run) == [20, 30]
    model = run / "model.safetensors"
    if left == "damaged":
        model.write_bytes(model.read_bytes()[:-1])
    elif left == "gone":
        model.unlink()
    elif left == "of a later step":
        later = checkpoint.read(checkpoint_path(unbroken, 70))
        checkpoint.write(model, replace(later, origin={"kind": "best", "step": 40}, training={}, optimizer={}))
    assert train(small, run, *BETWEEN, flags=["--resume"]).returncode == 0
    assert_same_run(run, unbroken)


@pytest.mark.usefixtures("spoilt_from_21")
def test_the_model_is_never_ahead_of_the_checkpoint_that_a_killed_run_goes_on_from(
    train: Command, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    settings = (*BETWEEN, "training.keep_best=0", "training.average_last=1")
    assert train(small, unbroken, *settings).returncode == 0
    assert saved_steps(unbroken) == [30, 60, 70]
    write = checkpoint.write

    def killed_between(path: Path, file: checkpoint.ModelFile) -> None:
        if file.origin == {"kind": "best", "step": 20}:
            raise Killed
        write(path, file)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(checkpoint, "write", killed_between)
        train(small, run, *settings)
    assert saved_steps(run) == [20]
    assert checkpoint.read(run / "model.safetensors").origin == {"kind": "best", "step": 10}
    assert train(small, run, *settings, flags=["--resume"]).returncode == 0
    assert_same_run(run, unbroken)


ALL_FILTERS = "{length_ratio: 2.0, identical: true, duplicates: true, overlap: true, script: true}"


def text_of(log: str) -> list[tuple[str, str]]:
    """What each start has said of the training text and of an epoch."""
    return re.findall(r"training text: \n((?: +.*\n)+).*(an epoch: .*)", log)


def test_a_run_over_text_and_table_with_all_filters_and_other_pieces_each_epoch_is_killed_and_resumes_bit_for_bit(
    program: Command,
    train: Command,
    small: Path,
    pairs: Callable[..., Iterator[tuple[str, str]]],
    tmp_path: Path,
) -> None:
    texts = [list(pairs(400, 1)), list(pairs(40, 5))]
    (seen, _), *_ = pairs(1, 2)  # the first of the validation set
    texts[0] += [("same", "same"), ("", "X")]
    texts[1] += [
        (seen, "SEEN"),
        ("nono", "CE " * 10),
        ("\u0436\u0436\u0436\u0436", "ZH"),
        ("same", "same"),
        ("ba", "\u200b"),
        ("nono " * 70, "SU " * 70),
    ]
    for name, side in (("a.src.gz", 0), ("a.tgt", 1)):
        lines = "".join(pair[side] + "\n" for pair in texts[0]).encode()
        (tmp_path / name).write_bytes(gzip.compress(lines) if side == 0 else lines)
    (tmp_path / "b.tsv").write_text("".join("\t".join(pair) + "\n" for pair in texts[1]), encoding="utf-8")
    corpora = (
        f"[{{source: {tmp_path}/a.src.gz, target: {tmp_path}/a.tgt}},"
        f" {{path: {tmp_path}/b.tsv, source_field: 1, target_field: 2, weight: 0.5}}]"
    )
    settings = (
        *SETTINGS, f"data.train={corpora}", f"data.filters={ALL_FILTERS}", "data.source_lang=en", "data.target_lang=de",
        "data.test={}", f"data.cache_dir={tmp_path}/kept", "tokenizer.sampling_alpha=0.2", "training.valid_steps=10",
        "training.save_steps=5", "training.max_steps=40",
    )  # fmt: skip
    chosen = [word for setting in settings for word in ("--set", setting)]
    run, said = tmp_path / "run", tmp_path / "said"
    process = start(["train", small, "--run-dir", run, "--threads", 1, *chosen], said)
    while updates_done(run) < 18:  # in the middle of the second epoch
        assert process.is_alive(), said.read_text()
        time.sleep(0.001)
    process.kill()
    process.join()
    kept = {path: path.stat().st_ino for path in (tmp_path / "kept").iterdir()}
    assert {path.name.partition("-")[0] for path in kept} == {"file", "tokenizer", "tokens"}
    done = program("train", small, "--run-dir", run, "--resume", *chosen)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_ino for path in (tmp_path / "kept").iterdir()} == kept
    whole = train(small, tmp_path / "whole", *settings, f"data.cache_dir={tmp_path}/other")
    assert whole.returncode == 0, whole.stderr
    first, second = text_of((run / "train.log").read_text())
    assert first == second
    counts = [int(line.split()[0]) for line in first[0].splitlines()]
    assert counts[0] == len(texts[0]) + len(texts[1]) == sum(counts[1:])
    assert all(counts), "each filter has left out something"
    assert text_of(whole.stderr) == [first]
    assert_same_run(run, tmp_path / "whole")


@pytest.mark.slow
def test_accumulated_updates_resume_too(train: Command, small: Path, tmp_path: Path) -> None:
    settings = [*SETTINGS, "training.gradient_accumulation_steps=3", "training.batch_type=tokens"]
    settings += ["data.max_length=11", "training.batch_size=60", "training.save_steps=25"]
    whole = train(small, tmp_path / "whole", *settings, "training.max_steps=50")
    assert whole.returncode == 0
    assert train(small, tmp_path / "run", *settings, "training.max_steps=25").returncode == 0
    resumed = train(small, tmp_path / "run", *settings, "training.max_steps=50", flags=["--resume"])
    assert resumed.stdout == whole.stdout
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_cut_between_its_last_update_and_its_test_is_finished(
    train: Command, small: Path, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(loop, "test_model", interrupted)
        assert train(small, run, *UNTIL_100).returncode == 130
    assert not (run / "test").exists()
    resumed = train(small, run, *UNTIL_100, flags=["--resume"])
    assert resumed.returncode == 0
    assert "resumed after step 100" in resumed.stderr
    assert "step 100/100" not in resumed.stderr
    assert_same_run(run, unbroken)


def test_a_run_without_a_checkpoint_yet_starts_from_the_beginning_and_says_so(
    train: Command, small: Path, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Updater, "update", interrupted)
        assert train(small, run, *UNTIL_100).returncode == 130
    resumed = train(small, run, *UNTIL_100, flags=["--resume"])
    assert resumed.returncode == 0
    assert f"{run} has no checkpoint yet: starting from the beginning" in resumed.stderr
    assert_same_run(run, unbroken)


def test_a_run_that_is_looked_for_in_the_wrong_place_is_missed_by_its_whole_path(
    train: Command, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = train(small, Path("runs/other"), "training.max_steps=1", flags=["--resume"])
    assert done.returncode == 0
    assert f"warning: there is no run in {tmp_path}/runs/other: starting from the beginning\n" in done.stderr


# What is left to do, and what may change


def test_a_finished_run_has_nothing_left_to_do(train: Command, small: Path, copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = train(small, copy, *UNTIL_100, flags=["--resume"])
    assert (done.returncode, done.stdout) == (3, "")
    assert "is finished: step 100 of training.max_steps 100" in done.stderr
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_limits_and_what_does_not_touch_training_may_change(train: Command, small: Path, copy: Path) -> None:
    settings = ["training.max_steps=104", "training.valid_steps=2", "training.log_steps=4", "training.keep_last=30"]
    settings += ["evaluation.valid_beam_size=2", "decoding.beam_size=1", "data.test=", "name=renamed"]
    done = train(small, copy, *SETTINGS[:2], "training.save_steps=10", *settings, flags=["--resume"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("valid BLEU ")
    assert [event["step"] for event in metrics(copy) if event["event"] == "valid"][-3:] == [102, 104, 104]


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ("model.d_model=32", "model.d_model"),
        ("training.label_smoothing=0.0", "training.label_smoothing"),
        ("training.batch_size=16", "training.batch_size x gradient_accumulation_steps"),
        ("seed=8", "seed"),
    ],
)
def test_what_would_make_it_another_run_is_refused_by_name(
    train: Command, small: Path, copy: Path, changed: str, key: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    done = train(small, copy, *UNTIL_100, "training.max_steps=120", changed, flags=["--resume"])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"\n  {key}: " in done.stderr
    assert f"{changed.partition('=')[2]} now" in done.stderr
    assert "--overwrite" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


def test_training_text_that_has_changed_is_refused_by_file(
    train: Command, project: Callable[..., Path], tmp_path: Path
) -> None:
    config = project(tmp_path / "text")
    assert train(config, tmp_path / "run", "training.max_steps=2").returncode == 0
    with (tmp_path / "text" / "train.src").open("a") as file:
        file.write("ba\n")
    done = train(config, tmp_path / "run", "training.max_steps=4", flags=["--resume"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "the data has changed since the run began" in done.stderr
    assert "train.src" in done.stderr


@pytest.mark.slow
def test_another_number_of_threads_is_said_to_end_bit_equality(train: Command, small: Path, copy: Path) -> None:
    done = train(small, copy, *SETTINGS, "training.max_steps=101", flags=["--resume", "--threads", 2])
    assert done.returncode == 0
    assert "no longer bit for bit the unbroken run" in done.stderr
    assert json.loads((copy / "run.json").read_text())["threads"] == 2


# Files that were cut short, and files that are none


@pytest.mark.parametrize("damage", ["half", "empty", "flipped", "foreign"])
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(
    train: Command, small: Path, unbroken: Path, copy: Path, damage: str
) -> None:
    newest = checkpoint_path(copy, 100)
    content = newest.read_bytes()
    flipped = content[:-100] + bytes([content[-100] ^ 1]) + content[-99:]
    foreign = save({"weight": torch.ones(2)}, {"format": "pt"})  # as many other programs write
    half = content[: len(content) // 2]
    newest.write_bytes({"half": half, "empty": b"", "flipped": flipped, "foreign": foreign}[damage])
    done = train(small, copy, *UNTIL_100, flags=["--resume"])
    assert done.returncode == 0
    assert f"warning: {newest} is " in done.stderr
    assert "trying the one before" in done.stderr
    assert "resumed after step 78" in done.stderr
    assert_same_run(copy, unbroken)


def test_when_no_checkpoint_can_be_read_nothing_is_started_anew(train: Command, small: Path, copy: Path) -> None:
    for _, path in list_checkpoints(copy):
        path.write_bytes(path.read_bytes()[:1000])
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = train(small, copy, *UNTIL_100, flags=["--resume"])
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no checkpoint of {copy} can be read" in done.stderr
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


class Evil:
    """What a pickle can do to the one who opens it."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, ("PWNED",)


@pytest.mark.parametrize("real", [False, True], ids=["nothing else", "among real weights"])
def test_a_pickle_is_refused_by_every_command_and_runs_nothing(
    cli: Command, train: Command, small: Path, copy: Path, tmp_path: Path, real: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    weights = dict(checkpoint.read(copy / "model.safetensors").weights) if real else {}
    torch.save({"model": Evil(), **weights}, "evil.pt")

    def assert_refused(done: CompletedProcess[str], code: int) -> None:
        assert (done.returncode, done.stdout) == (code, "")
        assert "is not a safe model file: it looks like a PyTorch pickle" in done.stderr
        assert not (place / "PWNED").exists()

    assert_refused(cli("translate", "evil.pt", "di fo"), 1)
    files = ("--source", small.with_name("test.src"), "--reference", small.with_name("test.tgt"))
    assert_refused(cli("evaluate", "evil.pt", *files), 1)

    # As the newest checkpoint it is passed over; with no other, the run is not resumed.
    shutil.copy("evil.pt", checkpoint_path(copy, 110))
    assert_refused(train(small, copy, *UNTIL_100, flags=["--resume"]), 3)
    for _, path in list_checkpoints(copy):
        shutil.copy("evil.pt", path)
    assert_refused(train(small, copy, *UNTIL_100, flags=["--resume"]), 1)
    # And as the model of the run it is no model.
    shutil.copy("evil.pt", copy / "model.safetensors")
    assert_refused(cli("translate", copy, "di fo"), 1)


@pytest.mark.usefixtures("spoilt_from_21")
def test_a_run_that_goes_on_after_its_end_averages_what_the_unbroken_one_does(
    train: Command, small: Path, tmp_path: Path
) -> None:
    settings = (*BETWEEN[:3], "training.best_metric=loss", "training.average_last=4")
    assert train(small, tmp_path / "whole", *settings, "training.max_steps=100").returncode == 0
    assert train(small, tmp_path / "run", *settings, "training.max_steps=50").returncode == 0
    assert metrics(tmp_path / "run")[-2]["averaged"] == [30, 50]
    done = train(small, tmp_path / "run", *settings, "training.max_steps=100", flags=["--resume"])
    assert done.returncode == 0, done.stderr
    for run in ("run", "whole"):
        assert metrics(tmp_path / run)[-2]["averaged"] == [30, 60, 90, 100]
        assert 50 not in saved_steps(tmp_path / run)
