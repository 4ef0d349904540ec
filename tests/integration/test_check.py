"""`train --check` tells what training will take and leaves nothing behind; how much a command says can be chosen."""

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from transformer_cli.data.batching import Batch
from transformer_cli.decoding.translator import Translator
from transformer_cli.model.transformer import Transformer
from transformer_cli.training import step

Command = Callable[..., CompletedProcess[str]]


def test_check_reports_and_writes_nothing(cli: Command, small: Path, tmp_path: Path) -> None:
    before = sorted(small.parent.rglob("*"))
    warm_up = ("--set", "training.warmup_steps=10")
    done = cli("train", small, "--check", "--threads", 1, "--run-dir", tmp_path / "run", *warm_up)
    assert done.returncode == 0
    assert sorted(small.parent.rglob("*")) == before
    assert not (tmp_path / "run").exists()
    report = {line[:15].strip(): line[16:] for line in done.stdout.splitlines()}
    assert report["training text"] == "400 pairs read, 0 with an empty side, 0 longer than data.max_length, 400 kept"
    assert report["valid text"] == "20 pairs"
    assert report["test text"] == "10 pairs"
    # 400 pairs in batches of 32 are 13 steps, the last with 16.
    assert report["an epoch"] == "13 steps of 31 pairs on average; 20 steps are 1.5 epochs"
    parts = [int(report[name].replace(",", "")) for name in ("encoder", "decoder", "vocabulary")]
    assert int(report["parameters"].replace(",", "")) == sum(parts)
    # d_model 16, warm-up 10: 16^-0.5 * 10^-0.5
    assert report["learning rate"] == "at most 7.91e-02"
    # Six checkpoints of three numbers a parameter, and the model.
    assert report["disk"] == f"{19 * 4 * sum(parts) / 2**20:,.0f} MiB for 6 checkpoints and the model"
    assert re.fullmatch(r"[\d.]+ GiB at the largest batch, \d+ pairs of up to \d+ pieces", report["memory"])
    assert re.match(r"about \d+ minutes for 20 steps on cpu in fp32 with 1 thread,", report["time"])
    assert 0 <= float(report["padding"].split("%")[0]) < 50


def test_check_reads_the_cache_and_writes_nothing_to_it(
    cli: Command, train: Command, small: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    words = ("train", small, "--check", "--threads", 1, "--set", f"data.cache_dir={kept}")
    first = cli(*words)
    assert first.returncode == 0
    assert not kept.exists()
    assert train(small, tmp_path / "run", f"data.cache_dir={kept}", "training.max_steps=1").returncode == 0
    before = {path: path.stat().st_mtime_ns for path in kept.iterdir()}
    assert {path.name.partition("-")[0] for path in before} == {"file", "tokenizer", "tokens"}
    second = cli(*words, "--verbose")
    assert "the training text is taken from the cache" in second.stderr
    assert {path: path.stat().st_mtime_ns for path in kept.iterdir()} == before
    assert second.stdout.splitlines()[:4] == first.stdout.splitlines()[:4]


def test_check_warns_of_a_warm_up_that_does_not_end(cli: Command, small: Path) -> None:
    done = cli("train", small, "--check", "--threads", 1, "--set", "training.warmup_steps=30")
    assert done.stderr.count("training.warmup_steps 30 is more than max_steps 20") == 1


def test_check_refuses_what_training_would_refuse(cli: Command, small: Path) -> None:
    done = cli("train", small, "--check", "--set", "tokenizer.vocab_size=10")
    assert (done.returncode, done.stdout) == (2, "")
    assert "tokenizer.vocab_size 10 is too small" in done.stderr


def test_check_tells_of_a_model_that_does_not_fit_into_memory(
    cli: Command, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_room(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes.")

    monkeypatch.setattr("transformer_cli.training.job.Transformer", without_room)
    done = cli("train", small, "--check")
    assert done.returncode == 1
    assert (
        "error: the model does not fit into memory (8.00 GiB more were asked for): lower model.d_model" in done.stderr
    )


def test_check_refuses_a_folder_that_training_could_not_use(cli: Command, small: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    done = cli("train", small, "--check", "--run-dir", tmp_path / "taken")
    assert (done.returncode, done.stdout) == (2, "")
    assert "taken is a file: choose another folder with --run-dir" in done.stderr


def test_check_refuses_to_sample_from_a_tokenizer_that_has_one_way_to_cut(
    cli: Command, small: Path, tmp_path: Path
) -> None:
    char = tmp_path / "char.model"
    text = ("--input", small.parent / "train.src", "--input", small.parent / "train.tgt")
    made = cli("tokenizer", "train", *text, "--model-type", "char", "--vocab-size", 100, "--output", char)
    assert made.returncode == 0, made.stderr
    settings = (f"tokenizer.model={char}", "tokenizer.sampling_alpha=0.3")
    done = cli("train", small, "--check", *(word for setting in settings for word in ("--set", setting)))
    assert done.returncode == 2, done.stderr
    assert "tokenizer.sampling_alpha needs a unigram or bpe model" in done.stderr


@pytest.mark.parametrize(("flag", "said"), [("--quiet", False), ("--verbose", True)])
def test_a_command_says_as_much_as_it_is_asked_to(cli: Command, tmp_path: Path, flag: str, said: bool) -> None:
    for side in ("en", "de"):
        (tmp_path / f"my.{side}").write_text("".join(f"sentence {i}\n" for i in range(600)))
    words = ["--source", tmp_path / "my.en", "--target", tmp_path / "my.de"]
    done = cli("init", tmp_path / "mine", *words, flag)
    assert done.returncode == 0
    assert ("600 pairs read" in done.stderr) == said


def test_a_traceback_is_shown_only_when_asked_for(cli: Command, tmp_path: Path) -> None:
    done = cli("translate", tmp_path / "no", "a")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    done = cli("translate", tmp_path / "no", "a", "--traceback")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")


def test_of_several_processes_the_first_checks_for_all(
    cli: Command, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", small, "--check", "--threads", 1)
    alone = cli(*words).stdout.splitlines()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    other = cli(*words)
    assert (other.returncode, other.stdout, other.stderr) == (0, "", "")
    monkeypatch.setenv("RANK", "0")
    shared = cli(*words).stdout.splitlines()
    assert shared[:6] == alone[:6]  # the same text in the same updates
    assert "with 2 processes of 1 thread, validations not counted" in shared[-1]


def test_check_tries_the_tokenizer_and_the_weights_that_training_would_start_from(
    cli: Command, small: Path, trained: Path
) -> None:
    without = [line for line in small.read_text().splitlines() if not line.startswith(("tokenizer:", "model:"))]
    config = small.with_name("fine-tuning.yaml")
    config.write_text("\n".join(without))
    done = cli("train", config, "--check", "--threads", 1, "--set", f"training.init_from={trained}")
    assert done.returncode == 0, done.stderr
    model = Translator.load(trained, "cpu").model
    assert f"parameters      {sum(p.numel() for p in model.parameters()):,}\n" in done.stdout
    done = cli("train", small, "--check", "--set", f"training.init_from={trained}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "training.init_from: the model of" in done.stderr


def test_check_tells_where_memory_runs_out(cli: Command, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, seen = step.batch_loss, []

    def little(model: object, batch: Batch, *rest: Any) -> object:
        seen.append(len(batch.src))
        if len(batch.src) > 4:
            raise torch.OutOfMemoryError("out of memory")
        return whole(model, batch, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "batch_loss", little)
    done = cli("train", small, "--check", "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert "out of memory with " in done.stderr
    assert re.search(r"\nmemory          [\d.]+ GiB at the largest batch, [1-4] pairs of up to", done.stdout)
    assert max(seen[-20:]) <= 4


@pytest.mark.parametrize("setting", ["training.activation_checkpointing=true", "training.batch_type=tokens"])
def test_check_computes_as_training_would(
    cli: Command, small: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    recomputed = []
    monkeypatch.setattr(Transformer, "checkpoint_activations", lambda self: recomputed.append(self))
    done = cli("train", small, "--check", "--threads", 1, "--set", setting, "--set", "training.batch_size=200")
    assert done.returncode == 0, done.stderr
    assert bool(recomputed) == ("checkpointing" in setting)


def test_check_counts_pairs_by_their_weight(cli: Command, small: Path) -> None:
    text = "data.train=[{source: train.src, target: train.tgt, weight: 0.5}]"
    done = cli("train", small, "--check", "--threads", 1, "--set", text.replace("train.", f"{small.parent}/train."))
    assert "an epoch        7 steps of 29 pairs on average" in done.stdout  # 200 pairs in updates of 32


@pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
def test_check_goes_with_no_flag_that_it_would_pass_over(cli: Command, small: Path, flag: str) -> None:
    done = cli("train", small, "--check", flag)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--check starts nothing and writes nothing: leave --resume and --overwrite out" in done.stderr
