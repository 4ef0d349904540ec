"""Training on a set that is streamed: nothing of it is kept, and a run that was killed goes on bit for bit."""

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from runs import assert_same_run, in_processes, metrics, record_weights, saved_steps, start, updates_done

from transformer_cli import checkpoint
from transformer_cli.training.step import Updater, UpdateResult

Command = Callable[..., CompletedProcess[str]]
Pairs = Callable[..., Any]

# 3 shards of 130, 150 and 170 pairs, in windows of 60; every update is logged and saved.
SETTINGS = (
    "model.attention_dropout=0.1",
    "training.log_steps=1",
    "training.save_steps=1",
    "training.valid_steps=8",
    "training.best_metric=loss",
    "training.average_last=3",
    "training.max_steps=40",
)
READ = 450


@pytest.fixture(scope="module", autouse=True)
def _sets_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("datasets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hub")))
        yield


def streamed(project: Callable[..., Path], pairs: Pairs, folder: Path, kind: str = "parquet", **entry: Any) -> Path:
    """A configuration whose training text is streamed from shards of parquet or JSON lines."""
    config = project(folder)
    (folder / "set").mkdir()
    for shard in range(3):
        rows = [{"en": source, "de": target} for source, target in pairs(130 + 20 * shard, shard)]
        if kind == "parquet":
            parquet.write_table(
                pyarrow.Table.from_pylist(rows), folder / "set" / f"train-{shard}.parquet", row_group_size=50
            )
        else:
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / "set" / f"train-{shard}.jsonl").write_text(text)
    fields: dict[str, Any] = {"hub": "./set", "split": "train", "source_field": "en", "target_field": "de"}
    fields |= {"streaming": True, "shuffle_buffer": 60, **entry}
    text = config.read_text().replace("[{source: train.src, target: train.tgt}]", json.dumps([fields]))
    config.write_text(text)
    return config


@pytest.fixture(scope="module")
def config(project: Callable[..., Path], pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return streamed(project, pairs, tmp_path_factory.mktemp("streamed") / "project")


@pytest.fixture(scope="module")
def unbroken(train: Command, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 updates in one go; tests only read it."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    done = train(config, run, *SETTINGS)
    assert done.returncode == 0, done.stderr
    assert "training text: streamed from 3 shards, as it is needed" in done.stderr
    assert (
        f"epoch 1: {READ} pairs read, 0 with an empty side, 0 longer than data.max_length, {READ} kept" in done.stderr
    )
    return run


def epochs_of(run: Path) -> list[int]:
    """Target tokens of each epoch."""
    trained = [event for event in metrics(run) if event["event"] == "train"]
    return [
        sum(event["tgt_tokens"] for event in trained if event["epoch"] == epoch)
        for epoch in sorted({event["epoch"] for event in trained})
    ]


def as_options(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def test_each_epoch_is_all_of_the_set_and_no_token_of_it_is_kept(
    train: Command, config: Path, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    settings = (*SETTINGS, "training.max_epochs=3", "training.max_steps=1000", f"data.cache_dir={tmp_path / 'kept'}")
    done = train(config, run, *settings)
    assert "epoch 3 of training.max_epochs 3" in done.stderr
    assert done.stderr.count(f": {READ} pairs read") == 3
    tokens = epochs_of(run)
    assert len(tokens) == 3
    assert len(set(tokens)) == 1
    assert tokens[0] == epochs_of(unbroken)[0]
    assert [path.name for path in (tmp_path / "kept").glob("tokens-*")] == []
    assert list(Path(os.environ["HF_HOME"]).rglob("*.arrow")) == []


@pytest.mark.parametrize("limit", ["training.max_steps=16", "training.patience=1"])
def test_whatever_ends_a_run_in_an_epoch_what_was_read_of_it_is_told(
    train: Command, config: Path, tmp_path: Path, limit: str
) -> None:
    # A rate of nothing: the second validation is a tie.
    rate = ("training.lr_schedule=constant", "training.learning_rate=1e-30")
    done = train(config, tmp_path / "run", *SETTINGS, *rate, limit)
    assert metrics(tmp_path / "run")[-1]["step"] == 16
    assert re.findall(r"^epoch (\d+)( so far)?: ", done.stderr, re.MULTILINE) == [("1", ""), ("2", " so far")]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "steps"), [("parquet", [3, 12, 19, 27]), ("jsonl", [11])])
def test_kills_at_random_moments_leave_the_unbroken_run(
    train: Command, project: Callable[..., Path], pairs: Pairs, tmp_path: Path, kind: str, steps: list[int]
) -> None:
    config = streamed(project, pairs, tmp_path / "project", kind)
    settings = (*SETTINGS, "tokenizer.sampling_alpha=0.2")
    assert train(config, tmp_path / "unbroken", *settings).returncode == 0
    run, said = tmp_path / "run", tmp_path / "said"
    words = ["train", config, "--run-dir", run, "--threads", 1, "--resume", *as_options(settings)]
    chance = random.Random(1)
    for step in steps:  # within windows and between them, in two epochs
        process = start(words, said)
        while updates_done(run) < step:
            assert process.is_alive(), said.read_text()
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.join()
    assert train(config, run, *settings, flags=["--resume"]).returncode == 0
    assert_same_run(run, tmp_path / "unbroken")


def test_a_run_that_was_stopped_at_any_step_goes_on_as_the_unbroken_one(
    train: Command, config: Path, unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for last in (5, 8, 17, 40):
        assert train(config, run, *SETTINGS[:-1], f"training.max_steps={last}", flags=["--resume"]).returncode == 0
    tokens = [[e["tgt_tokens"] for e in metrics(path) if e["event"] == "train"] for path in (run, unbroken)]
    assert tokens[0] == tokens[1]
    assert [e["loss"] for e in metrics(run) if e["event"] == "train"] == [
        e["loss"] for e in metrics(unbroken) if e["event"] == "train"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_several_processes_read_each_record_once_an_epoch_and_have_the_same_weights(
    config: Path, unbroken: Path, tmp_path: Path, count: int
) -> None:
    # Of 3 shards 2 processes have one each, of unlike sizes, and share the third; 4 share them all.
    run = tmp_path / "run"
    rarely = ("training.save_steps=100", "training.valid_steps=100", "training.max_epochs=2")
    words = ["train", config, "--run-dir", run, *as_options((*SETTINGS, *rarely))]
    in_processes(count, words, tmp_path, before=record_weights)
    said = (tmp_path / "0").read_text()
    assert re.findall(r"^epoch (\d): (\d+) pairs read", said, re.MULTILINE) == [("1", "450"), ("2", "450")]
    assert epochs_of(run) == [epochs_of(unbroken)[0]] * 2
    recorded = [
        [line.split(" ", 1) for line in (tmp_path / f"weights-{rank}").read_text().splitlines()]
        for rank in range(count)
    ]
    assert len({str([weights for _, weights in lines]) for lines in recorded}) == 1
    pairs = [[int(pairs) for pairs, _ in lines] for lines in recorded]
    assert sum(map(sum, pairs)) == 2 * READ
    assert any(0 in of_one for of_one in pairs) is (count == 2)


@pytest.mark.slow
def test_two_processes_that_were_killed_go_on_as_the_unbroken_two_and_one_is_refused(
    train: Command, config: Path, tmp_path: Path
) -> None:
    settings = (*SETTINGS, "training.max_steps=16")

    def words(run: Path, *flags: object) -> list[object]:
        return ["train", config, "--run-dir", run, "--threads", 1, *as_options(settings), *flags]

    in_processes(2, words(tmp_path / "unbroken"), tmp_path)
    run = tmp_path / "run"
    in_processes(2, words(run, "--resume"), tmp_path, before=_kill_at_update_11, main_code=-9, others_code=1)
    assert "process 1 lost the others" in (tmp_path / "1").read_text()
    assert saved_steps(run)[-1] == 10
    alone = train(config, run, *settings, flags=["--resume"])
    assert alone.returncode == 2
    assert alone.stderr.splitlines()[-1].startswith(
        "error: data.train has streaming: true, and the run was begun by 2 processes with places of their own in the "
        "shards, and not by 1 process: resume with as many as before"
    )
    in_processes(2, words(run, "--resume"), tmp_path)
    assert_same_run(run, tmp_path / "unbroken")


def _kill_at_update_11() -> None:
    update = Updater.update

    def killed(self: Updater, batches: Any, step: int, rate: float) -> UpdateResult:
        if step == 11 and self.processes.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(self, batches, step, rate)

    Updater.update = killed  # type: ignore[method-assign]


@pytest.mark.slow
def test_more_processes_than_pairs_take_part_with_none(
    project: Callable[..., Path], pairs: Pairs, tmp_path: Path
) -> None:
    config = streamed(project, pairs, tmp_path / "project")
    for path in (tmp_path / "project" / "set").iterdir():
        path.unlink()
    rows = [{"en": "ba ce di fo gu ha je ki", "de": "BA CE DI FO GU HA JE KI"}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "project" / "set" / "train-0.parquet")
    words = ["train", config, "--run-dir", tmp_path / "run", *as_options((*SETTINGS, "training.max_epochs=3"))]
    in_processes(3, words, tmp_path, before=record_weights)
    counts = [
        [line.split(" ", 1)[0] for line in (tmp_path / f"weights-{rank}").read_text().splitlines()] for rank in range(3)
    ]
    assert counts == [["1"] * 3, ["0"] * 3, ["0"] * 3]


# --- what does not go with it, and the other commands -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["data.valid={hold_out: 10}"],
            "valid.hold_out needs the whole of train to choose from, and train[0] has streaming: true: name a set of "
            "its own, such as another split",
        ),
        (
            ["data.test={mine: {hold_out: 10}}"],
            "test.mine.hold_out needs the whole of train to choose from, and train[0] has streaming: true: name a set "
            "of its own, such as another split",
        ),
        (
            ["data.filters={duplicates: true}"],
            "filters.duplicates remembers every pair, and train[0] with streaming: true is never held: leave one of "
            "them out",
        ),
    ],
)
def test_what_needs_the_whole_text_is_refused_by_name(
    train: Command, config: Path, tmp_path: Path, settings: Sequence[str], message: str
) -> None:
    done = train(config, tmp_path / "run", *settings)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("entry", "more", "message"),
    [
        (
            {"weight": 0.5},
            [],
            "train[0].weight has no part with streaming: true, where each record stands once in an epoch: leave it out",
        ),
        (
            {},
            [{"source": "train.src", "target": "train.tgt"}],
            "train[0] has streaming: true, and such a set is the only one to train on: leave streaming out, or the "
            "other corpora",
        ),
    ],
)
def test_what_mixes_corpora_is_refused_by_name(
    train: Command, project: Callable[..., Path], pairs: Pairs, tmp_path: Path, entry: Any, more: Any, message: str
) -> None:
    config = streamed(project, pairs, tmp_path / "project", **entry)
    corpora = "".join(f", {json.dumps(corpus)}" for corpus in more)
    config.write_text(re.sub(r"train: \[(.*)\]", rf"train: [\1{corpora}]", config.read_text(), count=1))
    done = train(config, tmp_path / "run")
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_stream_without_a_pair_that_can_be_used_is_an_error(
    train: Command, project: Callable[..., Path], unbroken: Path, tmp_path: Path
) -> None:
    config = streamed(project, lambda count, _: [("ba", " ")] * count, tmp_path / "project")
    (tmp_path / "mine.model").write_bytes(checkpoint.read(unbroken / "model.safetensors").tokenizers["shared"])
    for flags in ([], ["--check"]):
        done = train(config, tmp_path / "run", f"tokenizer.model={tmp_path / 'mine.model'}", flags=flags)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == "error: data.train: no pair is left to train on in the stream"


def test_the_check_reads_a_window_and_tells_what_it_is(cli: Command, config: Path, tmp_path: Path) -> None:
    done = cli("train", config, "--check")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "training text   streamed from 3 shards, of which one window (shuffle_buffer) is read:"
    assert lines[1].strip() == "60 pairs read, 0 with an empty side, 0 longer than data.max_length, 60 kept"
    assert any(
        line.startswith("a window        2 steps of 30 pairs on average; 20 steps are 10.0 windows") for line in lines
    )


def test_the_data_check_reads_a_streamed_set_once(cli: Command, config: Path) -> None:
    done = cli("data", "check", config)
    assert done.returncode == 0, done.stderr
    assert "450" in done.stdout


def test_another_window_or_other_files_are_refused_on_resume(
    train: Command, project: Callable[..., Path], pairs: Pairs, tmp_path: Path
) -> None:
    config = streamed(project, pairs, tmp_path / "project")
    run = tmp_path / "run"
    assert train(config, run, "training.max_steps=3").returncode == 0
    text = config.read_text()
    config.write_text(text.replace('"shuffle_buffer": 60', '"shuffle_buffer": 61'))
    done = train(config, run, flags=["--resume"])
    assert (done.returncode, "the data has changed since the run began" in done.stderr) == (2, True), done.stderr
    config.write_text(text)
    with (tmp_path / "project" / "set" / "train-1.parquet").open("ab") as file:
        file.write(b"more")
    done = train(config, run, flags=["--resume"])
    assert (done.returncode, "the data has changed since the run began" in done.stderr) == (2, True), done.stderr


def test_a_set_without_a_record_says_so(
    cli: Command, project: Callable[..., Path], pairs: Pairs, tmp_path: Path
) -> None:
    config = streamed(project, pairs, tmp_path / "project", "jsonl")
    for path in (tmp_path / "project" / "set").iterdir():
        path.write_text("")
    done = cli("train", config, "--check", "--threads", 1)
    assert (done.returncode, done.stdout) == (1, "")
    assert "holds no records in its split train" in done.stderr
