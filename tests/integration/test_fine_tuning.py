"""`training.init_from`: a run that starts from another's model, and needs it no more once it has begun."""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from runs import assert_same_run, metrics

from transformer_cli import checkpoint
from transformer_cli.config.load import load_config

Command = Callable[..., CompletedProcess[str]]
PairsOf = Callable[..., Iterator[tuple[str, str]]]


@pytest.fixture(scope="module")
def base(train: Command, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 updates; tests only read it."""
    run = tmp_path_factory.mktemp("base") / "run"
    assert train(small, run, "training.average_last=1", "training.best_metric=loss").returncode == 0
    return run


@pytest.fixture(scope="module")
def other(project: Callable[..., Path], pairs: PairsOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with other training text, the validation text of the base, and neither tokenizer nor model."""
    folder = tmp_path_factory.mktemp("other")
    # Fewer words and other letters: a tokenizer of its own would be another.
    train = [(source.replace("a", "o"), target.replace("A", "O")) for source, target in pairs(100, 4)]
    config = project(folder, train=train)
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith(("tokenizer:", "model:"))))
    return config


def test_it_begins_where_the_other_ended_with_the_same_tokenizer(
    train: Command, other: Path, base: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # At a rate of nothing the model stays what it is.
    settings = ("training.lr_schedule=constant", "training.learning_rate=1e-30", "training.max_steps=1")
    done = train(other, run, f"training.init_from={base}", *settings, "training.best_metric=loss")
    assert done.returncode == 0, done.stderr
    first, last = checkpoint.read(run / "model.safetensors"), checkpoint.read(base / "model.safetensors")
    assert first.tokenizers == last.tokenizers
    assert all(torch.equal(first.weights[name], tensor) for name, tensor in last.weights.items())
    ended = [event for event in metrics(base) if event["event"] == "valid"][-1]
    (began,) = (event for event in metrics(run) if event["event"] == "valid")
    assert (began["loss"], began["scores"]) == (ended["loss"], ended["scores"])
    # What was taken over is written down.
    config = load_config(run / "config.yaml")
    assert (config.tokenizer, config.model) == (last.config.tokenizer, last.config.model)
    assert config.training.init_from == base


def test_it_learns_on_from_there(train: Command, other: Path, base: Path, tmp_path: Path) -> None:
    done = train(other, tmp_path / "run", f"training.init_from={base}", "training.log_steps=1")
    assert done.returncode == 0
    losses = [event["loss"] for event in metrics(tmp_path / "run") if event["event"] == "train"]
    began = [event["loss"] for event in metrics(base) if event["event"] == "train"]
    assert losses[-1] < losses[0] < began[0]


def test_another_vocabulary_is_refused_with_both_sizes_and_the_hash(
    train: Command, small: Path, base: Path, tmp_path: Path
) -> None:
    done = train(small, tmp_path / "run", f"training.init_from={base}", "tokenizer.vocab_size=80")
    assert (done.returncode, done.stdout) == (2, "")
    (proto,) = checkpoint.read(base / "model.safetensors").tokenizers.values()
    assert f"(shared 60 pieces, SHA-256 {hashlib.sha256(proto).hexdigest()[:12]})" in done.stderr
    assert "\n  tokenizer.vocab_size: 80 here, 60 there\n" in done.stderr
    assert "Leave the tokenizer section out to take that vocabulary" in done.stderr
    assert not (tmp_path / "run").exists()


def test_once_begun_it_needs_the_other_run_no_more(train: Command, other: Path, base: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    settings = (f"training.init_from={copy}", "training.log_steps=1")
    assert train(other, tmp_path / "whole", *settings).returncode == 0
    assert train(other, tmp_path / "run", *settings, "training.max_steps=10").returncode == 0
    shutil.rmtree(copy)
    resumed = train(other, tmp_path / "run", *settings, flags=["--resume"])
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after step 10\n" in resumed.stderr
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_was_cut_before_its_first_checkpoint_starts_from_the_other_again(
    train: Command, other: Path, base: Path, tmp_path: Path
) -> None:
    settings = (f"training.init_from={base}",)
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert train(other, whole, *settings).returncode == 0
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    record = (run / "run.json").read_text()
    (run / "run.json").write_text(re.sub(r',\s*"finished": \{[^}]*\}', "", record))
    resumed = train(other, run, *settings, flags=["--resume"])
    assert "has no checkpoint yet: starting from the beginning" in resumed.stderr
    assert_same_run(run, whole)
