"""`transformer-cli train`: what it prints, what it leaves behind, and what every key of the configuration does."""

import json
import math
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from transformer_cli import checkpoint
from transformer_cli.config.hints import KEYS
from transformer_cli.config.load import load_config
from transformer_cli.config.yaml_text import Document
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.run_files import checkpoint_path, list_checkpoints
from transformer_cli.training import loop
from transformer_cli.training.run_dir import RunDir

Command = Callable[..., CompletedProcess[str]]
PairsOf = Callable[..., Iterator[tuple[str, str]]]

SIGNATURE = r"nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[0-9.]+"
TRAIN_EVENT = ["event", "step", "epoch", "loss", "nll", "ppl", "lr", "grad_norm", "skipped", "tgt_tokens"]
TRAIN_EVENT += ["seconds", "tokens_per_s"]
VALID_EVENT = ["event", "step", "epoch", "loss", "nll", "ppl", "tgt_tokens", "scores", "decoding"]


def result_line(name: str) -> re.Pattern[str]:
    return re.compile(rf"{name} BLEU \d+\.\d\d chrF2 \d+\.\d\d {SIGNATURE}")


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    found = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    return [event for event in found if event["event"] == kind]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(checkpoint.read(path).weights)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


# What it prints


def test_stdout_has_a_line_for_each_test_set_and_the_first_once_more_at_the_end(
    training: tuple[Path, CompletedProcess[str]],
) -> None:
    first, second, last = training[1].stdout.splitlines()
    # Several sets stand in columns.
    assert first.index("BLEU") == second.index("BLEU")
    assert result_line("test").fullmatch(" ".join(first.split()))
    assert result_line("again").fullmatch(second)
    assert last == " ".join(first.split())


def test_progress_samples_and_the_next_command_are_on_stderr(training: tuple[Path, CompletedProcess[str]]) -> None:
    run, done = training
    assert (
        "training text: 4,000 pairs read, 0 with an empty side, 0 longer than data.max_length, 4,000 kept\n"
        in done.stderr
    )
    assert re.search(
        r"^step 20/180  loss \d.*  ppl \d.*  lr 4\.42e-04  [\d,]+ tgt tokens/s  .* left$", done.stderr, re.M
    )
    assert done.stderr.count("\n  source     ") == 3
    assert done.stderr.count("\n  reference  ") == 3
    assert done.stderr.count("\n  model      ") == 3
    assert done.stderr.endswith('\nTranslate with it:  transformer-cli translate runs/config "…"\n\n')
    log = (run / "train.log").read_text()
    said = [line.split(" ", 3)[3] for line in log.splitlines()]
    shown = done.stderr[: done.stderr.index("\n\n  source")].splitlines()
    scores = [" ".join(line.split()) for line in done.stdout.splitlines()[:2]]  # told once, as the result
    assert said == [line.removeprefix("warning: ") for line in shown] + scores


def test_one_test_set_has_one_line_and_none_makes_it_the_validation(
    train: Command, small: Path, tmp_path: Path
) -> None:
    one = train(small, tmp_path / "one", "training.max_steps=1")
    assert one.returncode == 0
    assert result_line("test").fullmatch(one.stdout.rstrip("\n"))
    none = train(small, tmp_path / "none", "training.max_steps=1", "data.test=")
    assert result_line("valid").fullmatch(none.stdout.rstrip("\n"))
    assert [path.name for path in (tmp_path / "none" / "test").glob("*.hyp")] == ["valid.hyp"]


@pytest.mark.slow
def test_any_locale_will_do(program: Command, project: Callable[..., Path], tmp_path: Path) -> None:
    pairs = [("caf\u00e9 \u4f60", "\u597d CAF\u00c9"), ("\u0431\u0430 ce", "CE \u0411\u0410")] * 20
    config = project(tmp_path / "text", train=pairs, valid=pairs[:2], test=pairs[:2])
    done = program(
        "train", config, "--run-dir", tmp_path / "run", "--set", "training.max_steps=60", "--threads", 1,
        env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert result_line("test").fullmatch(done.stdout.rstrip("\n"))
    assert "\\u4f60" in done.stderr
    assert set((tmp_path / "run" / "test" / "test.hyp").read_text(encoding="utf-8")) <= set(
        "".join(target for _, target in pairs) + "\n"
    )


@pytest.mark.slow
def test_at_a_terminal_a_bar_moves_and_the_log_has_the_lines(small: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 200))
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_cli", "train", str(small), "--run-dir", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    assert process.wait() == 0
    assert b"/20 |" in seen
    assert b"tgt tokens/s" in seen
    assert b"step 5/20" not in seen
    assert "step 5/20  loss" in (tmp_path / "run" / "train.log").read_text()


# What it leaves behind


def test_a_run_directory_holds_what_the_design_says(trained: Path) -> None:
    found = {str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()}
    best = max(events(trained, "valid")[:-1], key=lambda event: event["scores"]["BLEU"]["score"])["step"]
    kept = {150, 180, best}
    assert found == {
        "config.yaml",
        "run.json",
        "model.safetensors",
        "train.log",
        "metrics.jsonl",
        "report.html",
        "test/test.hyp",
        "test/again.hyp",
        "test/scores.json",
        *(f"checkpoints/step-{step:08d}.safetensors" for step in kept),
        *(f"samples/step-{step:08d}.tsv" for step in range(30, 181, 30)),
    }


def test_its_configuration_is_the_resolved_one_with_absolute_paths(trained: Path) -> None:
    config = load_config(trained / "config.yaml")
    assert (config.name, config.precision, config.model.d_model) == ("config", "fp32", 64)
    corpora = (*config.data.train, *config.data.valid, *config.data.test["test"], *config.data.test["again"])
    assert len(corpora) == 5
    assert all(path.is_absolute() and path.is_file() for corpus in corpora for path in (corpus.source, corpus.target))
    # Every key is written out, so that a later version's defaults change nothing.
    text = (trained / "config.yaml").read_text()
    written = set(KEYS) - {"data.valid.hold_out"}  # the other way to name a validation set
    assert all(re.search(rf"^ *{key.split('.')[-1]}:", text, re.M) for key in written)


def test_its_record_tells_what_the_numbers_depend_on(trained: Path) -> None:
    record = json.loads((trained / "run.json").read_text())
    assert record.keys() == {
        "command", "started", "device", "threads", "processes", "adam", "git_commit", "platform", "versions", "data",
        "text", "finished",
    }  # fmt: skip
    assert record["command"][1:3] == ["train", "config.yaml"]
    assert (record["device"], record["threads"], record["processes"], record["adam"]) == ("cpu", 1, 1, "fused")
    assert record["versions"].keys() >= {"transformer_cli", "python", "torch", "sentencepiece", "sacrebleu"}
    assert [file["key"] for file in record["data"]] == ["data.train"] * 2 + ["data.valid"] * 2
    assert all(len(file["sha256"]) == 64 and file["bytes"] > 0 for file in record["data"])
    assert record["text"]["counts"]["kept"] == 4000
    assert record["text"]["lengths"]["source"].keys() == record["text"]["lengths"]["target"].keys()
    assert record["text"]["sets"] == {"valid": 40, "test": 40, "again": 80}
    assert record["finished"]["step"] == 180


def test_metrics_have_an_event_for_each_log_line_validation_and_test(trained: Path) -> None:
    train, valid, test = (events(trained, kind) for kind in ("train", "valid", "test"))
    assert [event["step"] for event in train] == list(range(20, 181, 20))
    assert [event["step"] for event in valid] == [*range(30, 181, 30), 180]
    assert [event["name"] for event in test] == ["test", "again"]
    assert len(train) + len(valid) + len(test) == len((trained / "metrics.jsonl").read_text().splitlines())
    assert all(list(event) == TRAIN_EVENT for event in train)
    assert all(list(event) == VALID_EVENT for event in valid[:-1])
    assert valid[-1]["averaged"] == [150, 180]
    assert all(list(event) == ["event", "step", "name", "scores", "decoding"] for event in test)
    # 4,000 pairs of 64 make 63 updates, the last of 32 pairs.
    assert [event["epoch"] for event in train] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    for event in train:
        assert event["ppl"] == pytest.approx(math.exp(event["nll"]))
        assert event["nll"] < event["loss"]
        assert event["lr"] == pytest.approx(0.5 * 64**-0.5 * event["step"] * 200**-1.5)
    for event in (*valid, *test):
        assert event["scores"].keys() == {"BLEU", "chrF2"}
        assert event["scores"]["BLEU"]["signature"].startswith("nrefs:1|")
    assert {event["decoding"]["beam_size"] for event in valid} == {1}
    assert {event["decoding"]["beam_size"] for event in test} == {4}
    assert train[-1]["loss"] < train[0]["loss"]


def test_samples_are_source_reference_and_translation_of_each_validation(trained: Path) -> None:
    corpus = trained.parents[1]
    rows = [line.split("\t") for line in (trained / "samples" / "step-00000180.tsv").read_text().split("\n")[:-1]]
    assert [row[0] for row in rows] == (corpus / "valid.src").read_text().splitlines()
    assert [row[1] for row in rows] == (corpus / "valid.tgt").read_text().splitlines()
    assert len({row[2] for row in rows}) > 10


def test_a_folder_with_a_run_is_refused_naming_both_ways_on(
    cli: Command, train: Command, small: Path, trained: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    done = train(small, trained)
    assert (done.returncode, done.stdout) == (2, "")
    assert "already holds a run" in done.stderr
    assert "--resume" in done.stderr
    assert "--overwrite" in done.stderr
    both = train(small, trained, flags=("--resume", "--overwrite"))
    assert (both.returncode, both.stdout) == (2, "")
    assert "give one of them" in both.stderr
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_overwriting_leaves_nothing_of_the_old_run(train: Command, small: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(small, run, "training.valid_steps=1", "training.max_steps=3").returncode == 0
    (run / "notes.txt").write_text("mine")
    assert train(small, run, "training.max_steps=2", flags=["--overwrite"]).returncode == 0
    assert [path.name for path in (run / "samples").iterdir()] == ["step-00000002.tsv"]
    assert [step for step, _ in list_checkpoints(run)] == [2]
    assert [event["step"] for event in events(run, "train")] == [2]
    assert (run / "notes.txt").read_text() == "mine"


def test_a_test_line_beyond_learned_positions_is_translated_in_parts_as_evaluate_does(
    cli: Command, train: Command, project: Callable[..., Path], tmp_path: Path
) -> None:
    config = project(tmp_path / "long", test=[("di fo " * 40, "DI FO " * 40), ("di", "DI")])
    run = tmp_path / "run"
    done = train(config, run, "model.positions=learned", "model.max_positions=65", "training.max_steps=1")
    assert done.returncode == 0, done.stderr
    translated = (run / "test" / "test.hyp").read_text().split("\n")[:-1]
    assert len(translated) == 2
    again = cli("evaluate", run, "--output", tmp_path / "again")
    assert again.returncode == 0
    assert (tmp_path / "again").read_text() == (run / "test" / "test.hyp").read_text()


def test_a_folder_in_which_another_process_trains_is_left_alone(train: Command, small: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(small, run, "training.max_steps=2").returncode == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with RunDir(run).locked():
        for flags in (["--overwrite"], ["--resume"]):
            done = train(small, run, "training.max_steps=4", flags=flags)
            assert done.returncode == 2
            # Before anything of the run is read: the other process may still add to it.
            assert done.stderr.splitlines() == [
                f"error: another process is training in {run}: wait for its end, or choose another folder with "
                "--run-dir"
            ]
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert train(small, run, "training.max_steps=4", flags=["--resume"]).returncode == 0


def test_settings_of_decoding_that_changed_on_resuming_are_those_of_the_model(
    cli: Command, train: Command, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(loop, "learning_rate", lambda step, _: 0.01 if step <= 20 else 0.0)  # 20 stays the best
    assert train(small, run, "training.average_last=1").returncode == 0
    changed = (
        "decoding.beam_size=2",
        "decoding.max_length_a=0.0",
        "decoding.max_length_b=2",
        "evaluation.metrics=[bleu]",
    )
    done = train(small, run, "training.average_last=1", "training.max_steps=21", *changed, flags=["--resume"])
    assert done.returncode == 0, done.stderr
    again = cli("evaluate", run, "--output", tmp_path / "again")
    assert (tmp_path / "again").read_text() == (run / "test" / "test.hyp").read_text()
    assert again.stdout.split()[1:3] == done.stdout.split()[1:3]
    model = checkpoint.read(run / "model.safetensors")
    assert model.config.decoding.max_length_b == 2
    assert model.origin == {"kind": "best", "step": 20}, "else it was written with these settings anyway"


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux alone")
def test_a_folder_whose_name_is_not_utf8_is_refused_before_anything_is_made(program: Command, small: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(small.parent) + b"/lat\xe9"))
    folder.mkdir()
    text = ("--source", small.parent / "train.src", "--target", small.parent / "train.tgt")
    for words in (
        ("train", small, "--run-dir", folder / "run"),
        ("init", folder / "new", *text, "--source-lang", "en", "--target-lang", "de"),
        ("data", "check", *text, "--fix", folder / "new"),
    ):
        done = program(*words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "is not UTF-8: rename it, or take another folder" in done.stderr
    assert list(folder.iterdir()) == []


# Every key does what it says. Each of these runs is repeated from its own files: the model that it leaves must give,
# by `evaluate`, the scores that it ended with.

RUNS = {
    "separate vocabularies, tied to the output": [
        "tokenizer.shared=false", "model.tie_embeddings=target", "tokenizer.model_type=unigram",
    ],
    "separate vocabularies, nothing tied": ["tokenizer.shared=false", "model.tie_embeddings=none"],
    "learned positions, pre-norm, gelu": [
        "model.positions=learned", "model.max_positions=70", "model.norm=pre", "model.activation=gelu",
    ],
    "another shape": [
        "model.d_model=24", "model.ffn_dim=40", "model.num_heads=3", "model.encoder_layers=3", "model.decoder_layers=2",
        "model.activation=swish", "model.norm=pre",
    ],
    "every dropout": [
        "model.dropout=0.2", "model.attention_dropout=0.1", "model.activation_dropout=0.1",
        "model.embedding_dropout=0.3",
    ],
    "inverse_sqrt": ["training.lr_schedule=inverse_sqrt", "training.learning_rate=2e-3", "training.warmup_steps=5"],
    "cosine": ["training.lr_schedule=cosine", "training.learning_rate=2e-3", "training.warmup_steps=5"],
    "constant": ["training.lr_schedule=constant", "training.learning_rate=2e-3", "training.warmup_steps=0"],
    "noam_factor": ["training.noam_factor=0.25", "training.label_smoothing=0.0"],
    "tokens, accumulated": [
        "training.batch_type=tokens", "training.batch_size=256", "training.gradient_accumulation_steps=3",
    ],
    "the optimizer": [
        "training.adam_betas=[0.8, 0.99]", "training.adam_eps=1e-8", "training.weight_decay=0.01",
        "training.clip_grad_norm=null",
    ],
    "best by loss": ["training.best_metric=loss", "evaluation.metrics=[chrf]", "training.patience=2"],
    "best by chrf": ["training.best_metric=chrf", "evaluation.valid_beam_size=3"],
    "limits": ["training.max_epochs=1", "training.max_hours=1.5", "training.max_steps=1000"],
    "curves for TensorBoard": ["training.tensorboard=true"],
    "activation checkpointing": ["training.activation_checkpointing=true", "model.norm=pre"],
    "what is kept": [
        "training.valid_steps=4", "training.save_steps=3", "training.log_steps=2", "training.keep_last=2",
        "training.keep_best=2", "training.average_last=2",
    ],
    "bytes for unknown characters": ["tokenizer.byte_fallback=true", "tokenizer.vocab_size=320"],
    "nfkc, rare characters unknown": ["tokenizer.normalization=nfkc", "tokenizer.character_coverage=0.99"],
    "nmt_nfkc": ["tokenizer.normalization=nmt_nfkc"],
    "identity": ["tokenizer.normalization=identity"],
    "characters, sampled lines, a symbol": [
        "tokenizer.model_type=char", "tokenizer.sample_lines=300", "tokenizer.user_defined_symbols=['<2de>']",
    ],
    "other pieces each epoch": [
        "tokenizer.sampling_alpha=0.2", "training.batch_type=tokens", "training.batch_size=128",
    ],
    "bf16": ["precision=bf16", "device=cpu", "seed=3"],
    "fp16": ["precision=fp16"],
    "decoding": [
        "decoding.beam_size=2", "decoding.n_best=2", "decoding.length_penalty=1.0",
        "decoding.length_penalty_type=avg", "decoding.max_length_a=0.5", "decoding.max_length_b=3",
        "decoding.min_length=1", "decoding.no_repeat_ngram_size=2", "decoding.repetition_penalty=1.1",
    ],
    "evaluation": [
        "evaluation.tokenize=char", "evaluation.lowercase=true", "evaluation.metrics=[chrf++, ter, bleu]",
    ],
    "every filter": [
        "data.filters.length_ratio=3.0", "data.filters.identical=true", "data.filters.duplicates=true",
        "data.filters.overlap=true", "data.filters.script=true",
    ],
    "the data": ["name=other", "data.source_lang=en", "data.target_lang=zh-TW", "data.max_length=12",
        "data.errors=replace",
    ],
}  # fmt: skip


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_a_run_ends_with_the_scores_that_its_files_give_again(
    cli: Command, train: Command, small: Path, tmp_path: Path, settings: list[str]
) -> None:
    run = tmp_path / "run"
    done = train(small, run, *settings)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("test ")
    assert cli("evaluate", run).stdout == done.stdout
    config = load_config(run / "config.yaml")
    for setting in settings:
        key, _, value = setting.partition("=")
        found: Any = config
        for part in key.split("."):
            found = getattr(found, part)
        assert (list(found) if isinstance(found, tuple) else found) == Document(value).value
    assert all(math.isfinite(event["loss"]) for event in events(run, "train"))


def test_every_key_of_the_schema_is_set_in_some_run() -> None:
    tested = {setting.partition("=")[0] for settings in RUNS.values() for setting in settings}
    files = {"data.train", "data.valid", "data.test"}  # set in all
    files |= {"data.valid.hold_out"}  # tested with `init` for a person's own text
    files |= {"data.cache_dir"}  # in test_prepared.py
    files |= {"tokenizer.model", "tokenizer.target_model"}  # in test_tokenizer_command.py
    files |= {"training.init_from", "training.compile"}  # in test_fine_tuning.py, and below
    sections = {key for key in KEYS if any(other.startswith(f"{key}.") for other in KEYS)}
    assert set(KEYS) - sections - files - tested == set()


# Memory and speed


def test_activation_checkpointing_changes_no_bit(train: Command, small: Path, tmp_path: Path) -> None:
    settings = ("model.attention_dropout=0.1", "model.activation_dropout=0.1", "training.gradient_accumulation_steps=2")
    assert train(small, tmp_path / "plain", *settings).returncode == 0
    assert train(small, tmp_path / "less", *settings, "training.activation_checkpointing=true").returncode == 0
    plain, less = (weights(checkpoint_path(tmp_path / run, 20)) for run in ("plain", "less"))
    assert same(plain, less)


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="no C++ compiler")
def test_a_compiled_model_learns_the_same(
    train: Command, project: Callable[..., Path], pairs: PairsOf, tmp_path: Path
) -> None:
    # Most of the time goes into the C++ compiler. With the same on both sides all batches have one kind of shape, so
    # that the model is compiled once.
    texts = {name: [(target, target) for _, target in pairs(80, seed)] for name, seed in (("train", 1), ("valid", 2))}
    config = project(tmp_path / "text", **texts)
    settings = ("model.dropout=0.0", "training.max_steps=5", "training.log_steps=5", "training.valid_steps=5")
    from torch._dynamo.utils import counters  # which loads the compiler

    assert train(config, tmp_path / "plain", *settings).returncode == 0
    before = counters["stats"]["unique_graphs"]
    assert train(config, tmp_path / "compiled", *settings, "training.compile=true").returncode == 0
    assert counters["stats"]["unique_graphs"] - before == 1
    torch.compiler.reset()
    for kind in ("train", "valid"):
        (plain,), (compiled,) = (events(tmp_path / run, kind) for run in ("plain", "compiled"))
        assert compiled["loss"] == pytest.approx(plain["loss"], abs=1e-3)


# The learning rate


@pytest.mark.parametrize("accumulated", [1, 3])
def test_the_rate_follows_noam_from_step_one_and_counts_updates(
    train: Command, small: Path, tmp_path: Path, accumulated: int
) -> None:
    settings = ["model.d_model=64", "training.warmup_steps=10", "training.max_steps=40", "training.valid_steps=100"]
    settings += ["training.log_steps=1"]
    done = train(small, tmp_path / "run", *settings, f"training.gradient_accumulation_steps={accumulated}")
    assert done.returncode == 0
    logged = events(tmp_path / "run", "train")
    rates = {event["step"]: event["lr"] for event in logged}
    assert list(rates) == list(range(1, 41))
    # 64^-0.5 * min(k^-0.5, k * 10^-1.5)
    for step, rate in {
        1: 3.952847e-03,
        2: 7.905694e-03,
        3: 1.185854e-02,
        10: 3.952847e-02,
        11: 3.768892e-02,
        20: 2.795085e-02,
        40: 1.976424e-02,
    }.items():
        assert rates[step] == pytest.approx(rate, rel=1e-6)
    assert max(rates, key=lambda step: rates[step]) == 10
    # 400 pairs are 13 updates of 32, or 5 of 96.
    assert [event["epoch"] for event in logged] == [1 + k // (13 if accumulated == 1 else 5) for k in range(40)]


def test_the_other_schedules_by_hand(train: Command, small: Path, tmp_path: Path) -> None:
    def rates(schedule: str, warmup: int) -> list[float]:
        run = tmp_path / schedule
        settings = (f"training.lr_schedule={schedule}", "training.learning_rate=0.008", "training.log_steps=1")
        assert train(small, run, *settings, "training.max_steps=7", f"training.warmup_steps={warmup}").returncode == 0
        return [event["lr"] for event in events(run, "train")]

    assert rates("constant", 4) == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.008, 0.008, 0.008])
    assert rates("inverse_sqrt", 1)[:4] == pytest.approx([0.008, 0.008 / 2**0.5, 0.008 / 3**0.5, 0.004])
    # Half a cosine from the peak at step 4 down to zero at step 8.
    assert rates("cosine", 4)[3:] == pytest.approx([0.008, 0.004 * (1 + 0.5**0.5), 0.004, 0.004 * (1 - 0.5**0.5)])


# When it ends, and with which model


def test_patience_ends_a_run_that_finds_nothing_better(train: Command, small: Path, tmp_path: Path) -> None:
    # A rate of nothing: every validation after the first is a tie, and of equal ones the earlier is the best.
    settings = ("training.lr_schedule=constant", "training.learning_rate=1e-30", "training.patience=3")
    done = train(small, tmp_path / "run", *settings, "training.valid_steps=2", "training.best_metric=loss")
    assert done.returncode == 0
    assert "3 validations without a new best (training.patience 3), at step 8; the best was step 2" in done.stderr
    assert [event["step"] for event in events(tmp_path / "run", "valid") if "averaged" not in event] == [2, 4, 6, 8]
    assert events(tmp_path / "run", "train")[-1]["step"] == 8  # what was trained since the last line is logged, too
    assert checkpoint.read(tmp_path / "run" / "model.safetensors").origin == {"kind": "best", "step": 2}


def test_epochs_and_hours_end_a_run_at_once_tested_all_the_same(train: Command, small: Path, tmp_path: Path) -> None:
    epochs = train(small, tmp_path / "epochs", "training.max_epochs=2", "training.max_steps=1000")
    assert "training ended: epoch 2 of training.max_epochs 2, at step 26" in epochs.stderr
    assert result_line("test").fullmatch(epochs.stdout.rstrip("\n"))
    hours = train(small, tmp_path / "hours", "training.max_hours=1e-9")
    assert "of training.max_hours 1e-09, at step 1" in hours.stderr
    assert [step for step, _ in list_checkpoints(tmp_path / "hours")] == [1]
    assert result_line("test").fullmatch(hours.stdout.rstrip("\n"))


def test_the_latest_and_the_best_checkpoints_are_kept(train: Command, small: Path, tmp_path: Path) -> None:
    kept = ("training.valid_steps=2", "training.keep_last=2", "training.keep_best=3", "training.average_last=1")
    assert train(small, tmp_path / "run", *kept, "training.best_metric=chrf").returncode == 0
    found = {
        event["step"]: (event["scores"]["chrF2"]["score"], event["loss"]) for event in events(tmp_path / "run", "valid")
    }
    scores = {step: score if score >= 1.0 else -loss for step, (score, loss) in found.items()}
    assert list(scores) == list(range(2, 21, 2))
    best = sorted(scores, key=lambda step: (-scores[step], step))
    left = [step for step, _ in list_checkpoints(tmp_path / "run")]
    assert left == sorted({18, 20} | set(best[:3]))
    model = checkpoint.read(tmp_path / "run" / "model.safetensors")
    assert model.origin == {"kind": "best", "step": best[0]}
    assert same(dict(model.weights), weights(checkpoint_path(tmp_path / "run", best[0])))
    assert (model.training, model.optimizer) == ({}, {})


def test_the_average_of_the_last_is_used_when_it_is_better(
    train: Command, project: Callable[..., Path], pairs: PairsOf, tmp_path: Path
) -> None:
    # At so high a rate, with so little to learn, the weights jump about, and their mean lies in the middle.
    texts = {
        name: list(pairs(count, seed, unrelated=True)) for name, count, seed in (("train", 400, 1), ("valid", 20, 2))
    }
    config = project(tmp_path / "text", **texts)
    rate = ("training.lr_schedule=constant", "training.learning_rate=0.05", "training.batch_size=8")
    done = train(config, tmp_path / "run", *rate, "training.max_steps=100", "training.best_metric=loss")
    assert done.returncode == 0
    assert "average of 5 checkpoints, steps 60, 70, 80, 90, 100  " in done.stderr
    assert "(used)" in done.stderr
    *single, average = events(tmp_path / "run", "valid")
    assert average["averaged"] == [60, 70, 80, 90, 100]
    assert average["loss"] < min(event["loss"] for event in single)
    model = checkpoint.read(tmp_path / "run" / "model.safetensors")
    assert model.origin == {"kind": "average", "steps": [60, 70, 80, 90, 100]}
    last = [weights(checkpoint_path(tmp_path / "run", step)) for step in (60, 70, 80, 90, 100)]
    for name, tensor in model.weights.items():
        torch.testing.assert_close(tensor, torch.stack([one[name] for one in last]).mean(0))


def test_the_average_of_the_last_is_left_when_it_is_worse(train: Command, small: Path, tmp_path: Path) -> None:
    # While the loss still falls steeply, the mean of now and a while ago lies behind.
    done = train(small, tmp_path / "run", "training.best_metric=loss", "training.valid_steps=5")
    assert "(step 20 is better)" in done.stderr
    assert checkpoint.read(tmp_path / "run" / "model.safetensors").origin == {"kind": "best", "step": 20}
    assert same(weights(tmp_path / "run" / "model.safetensors"), weights(checkpoint_path(tmp_path / "run", 20)))


# The text (cases of other toolkits' users)


def test_each_pair_is_seen_once_an_epoch_in_another_order_each_time(
    train: Command, small: Path, tmp_path: Path
) -> None:
    settings = ("training.max_epochs=2", "training.max_steps=1000", "training.log_steps=1", "training.batch_size=20")
    assert train(small, tmp_path / "run", *settings).returncode == 0
    tokenizer = Tokenizer(checkpoint.read(tmp_path / "run" / "model.safetensors").tokenizers["shared"])
    targets = small.with_name("train.tgt").read_text().splitlines()
    tokens = sum(len(tokenizer.encode(line)) + 1 for line in targets)
    epochs = [
        [event["tgt_tokens"] for event in events(tmp_path / "run", "train") if event["epoch"] == number]
        for number in (1, 2)
    ]
    assert [sum(epoch) for epoch in epochs] == [tokens, tokens]
    assert epochs[0] != epochs[1]
    assert train(small, tmp_path / "again", *settings).returncode == 0
    assert same(weights(tmp_path / "run" / "model.safetensors"), weights(tmp_path / "again" / "model.safetensors"))
    assert train(small, tmp_path / "other", *settings, "seed=8").returncode == 0
    assert [event["tgt_tokens"] for event in events(tmp_path / "other", "train")] != epochs[0] + epochs[1]


def test_only_a_line_feed_ends_a_line_of_training_text(
    train: Command, project: Callable[..., Path], tmp_path: Path
) -> None:
    config = project(tmp_path / "text")
    odd = b"ba\xe2\x80\xa8ce\ndi\xc2\x85fo\ngu\x0bha\nje\x0cki\nlo\x1cmu\nna\rpe\nqi ro\r\nsu ta\n"
    (tmp_path / "text" / "train.src").write_bytes(odd)
    (tmp_path / "text" / "train.tgt").write_text("BA CE\nDI FO\nGU HA\nJE KI\nLO MU\nNA PE\nQI RO\nSU TA\n")
    done = train(config, tmp_path / "run", "training.max_steps=1")
    assert done.returncode == 0
    assert "training text: 8 pairs read, 0 with an empty side, 0 longer than data.max_length, 8 kept" in done.stderr


def test_a_pair_with_a_blank_side_goes_as_a_pair(
    cli: Command, train: Command, project: Callable[..., Path], tmp_path: Path
) -> None:
    block = [("ba ce", "BA CE"), ("", "XX XX"), ("di fo", "DI FO"), ("gu ha", "   "), ("je ki", "JE KI")]
    config = project(tmp_path / "text", train=block * 200, valid=block, test=block)
    done = train(config, tmp_path / "run", "training.max_steps=200", "training.valid_steps=100")
    assert done.returncode == 0
    assert "1,000 pairs read, 400 with an empty side, 0 longer than data.max_length, 600 kept" in done.stderr
    found = cli("translate", tmp_path / "run", "di fo", "ba ce", "je ki").stdout
    assert found == "DI FO\nBA CE\nJE KI\n"
    assert "X" not in (tmp_path / "run" / "test" / "test.hyp").read_text()


def test_files_of_different_length_are_refused_with_both_counts(
    train: Command, project: Callable[..., Path], pairs: PairsOf, tmp_path: Path
) -> None:
    config = project(tmp_path / "text", train=list(pairs(1000, 1)))
    target = tmp_path / "text" / "train.tgt"
    target.write_text("".join(target.read_text().splitlines(keepends=True)[:-1]))
    done = train(config, tmp_path / "run")
    assert (done.returncode, done.stdout) == (1, "")
    assert "train.src has 1000 lines and " in done.stderr
    assert "train.tgt has 999" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_vocabulary_that_the_text_cannot_fill_is_as_large_as_it_can_be(
    train: Command, project: Callable[..., Path], tmp_path: Path, model_type: str
) -> None:
    texts = ["red green blue", "one two three", "dogs chase cats", "birds sing songs"] * 5
    config = project(tmp_path / "text", train=[(text, text) for text in texts])
    run = tmp_path / "run"
    done = train(
        config, run, "training.max_steps=1", "tokenizer.vocab_size=32000", f"tokenizer.model_type={model_type}"
    )
    assert done.returncode == 0
    model = checkpoint.read(run / "model.safetensors")
    size = Tokenizer(model.tokenizers["shared"]).vocab_size
    assert f"tokenizer.vocab_size is 32,000, but the text has only enough words for {size} pieces" in done.stderr
    assert size < 120
    assert {tensor.shape[0] for name, tensor in model.weights.items() if "embedding" in name} == {size}


def test_a_vocabulary_without_room_for_the_characters_is_refused_and_leaves_nothing(
    train: Command, project: Callable[..., Path], tmp_path: Path
) -> None:
    texts = ["red green blue", "one two three", "dogs chase cats", "birds sing songs"] * 5
    config = project(tmp_path / "text", train=[(text, text) for text in texts])
    before = sorted(tmp_path.rglob("*"))
    done = train(config, tmp_path / "run", "tokenizer.vocab_size=10")
    assert (done.returncode, done.stdout) == (2, "")
    assert "tokenizer.vocab_size 10 is too small" in done.stderr
    assert "raise it to 21 or more" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    again = train(config, tmp_path / "run", "tokenizer.vocab_size=30", "training.max_steps=1")
    assert again.returncode == 0
    assert Tokenizer(checkpoint.read(tmp_path / "run" / "model.safetensors").tokenizers["shared"]).vocab_size == 30


def test_marker_strings_in_the_text_are_text(
    cli: Command, train: Command, project: Callable[..., Path], tmp_path: Path
) -> None:
    lines = ["ba </s> ce", "<pad> di", "fo <s>", "gu <unk> ha"]
    marked = [(line, line) for line in lines]
    # SentencePiece learns nothing from a marker, so its characters must stand elsewhere, too.
    others = [("s < p / u", "s < p / u"), ("k > a n d", "k > a n d")]
    config = project(tmp_path / "text", train=(marked + others) * 50, valid=marked, test=marked)
    settings = ("model.d_model=32", "training.max_steps=150", "training.valid_steps=50", "training.warmup_steps=100")
    assert train(config, tmp_path / "run", *settings).returncode == 0
    # Neither source is cut at its end marker nor the translation: all comes out as it went in.
    assert cli("translate", tmp_path / "run", *lines).stdout.splitlines() == lines


@pytest.mark.slow
def test_no_model_knows_what_nothing_tells(
    train: Command, project: Callable[..., Path], pairs: PairsOf, tiny: tuple[str, ...], tmp_path: Path
) -> None:
    """Eight words out of sixteen at random cost 8 ln 16 = 22.18 nats; a decoder that sees the answer needs 1.5."""
    texts = {"train": (4000, 1), "valid": (200, 2), "test": (10, 3)}
    config = project(
        tmp_path / "text", **{name: list(pairs(count, seed, unrelated=True)) for name, (count, seed) in texts.items()}
    )
    settings = (*tiny, "training.max_steps=300", "training.valid_steps=300", "training.average_last=1")
    assert train(config, tmp_path / "run", *settings).returncode == 0
    (valid,) = events(tmp_path / "run", "valid")
    assert 21.5 <= valid["nll"] * valid["tgt_tokens"] / 200 < 27


# The configuration is judged before anything is done


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (("warmup_steps: 200", "warmup_step: 200"), ["training.warmup_step: unknown key", "training.warmup_steps"]),
        (("max_steps: 20", "d_model: 16"), ["training.d_model: unknown key", "model.d_model"]),
        (("encoder_layers: 1", "encoder_layers: two"), ["model.encoder_layers: must be a whole number, not 'two'"]),
        (("num_heads: 2", "num_heads: 6"), ["d_model 16", "num_heads 6"]),
        (("source: train.src", "source: nowhere.src"), ["data.train[0].source: no such file", "nowhere.src"]),
        (("max_steps: 20", "warmup_step: 9, num_heads: x"), ["training.warmup_step: ", "training.num_heads: "]),
        (("warmup_steps: 200", "warmup_steps: 0"), ["warmup_steps", "at least 1"]),
        (("seed: 7", "seed: 7\nseed: 8"), ["seed", "twice"]),
        (("data:", "data: ["), ["config.yaml:"]),
    ],
)
def test_mistakes_in_the_configuration_are_named_before_a_folder_exists(
    train: Command,
    project: Callable[..., Path],
    tmp_path: Path,
    change: tuple[str, str],
    messages: list[str],
) -> None:
    config = project(tmp_path / "text")
    text = config.read_text()
    assert change[0] in text
    config.write_text(text.replace(*change))
    done = train(config, tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(r"error: .*config\.yaml:\d+: ", done.stderr)
    for message in messages:
        assert message in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_mistake_is_named_within_seconds_by_the_program_and_imports_nothing_heavy(
    project: Callable[..., Path], tmp_path: Path
) -> None:
    config = project(tmp_path / "text")
    config.write_text(config.read_text().replace("warmup_steps", "warmup_step"))
    script = (
        "import sys\n"
        "from transformer_cli.cli import app\n"
        "try:\n    app(['train', 'config.yaml'])\n"
        "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=config.parent)
    assert done.stdout == "2 False\n"
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "text" / "runs").exists()


def test_numbers_in_scientific_notation_are_numbers(train: Command, small: Path, tmp_path: Path) -> None:
    settings = ("training.adam_eps=1e-9", "training.label_smoothing=1e-1", "training.max_steps=1")
    assert train(small, tmp_path / "run", *settings).returncode == 0
    config = load_config(tmp_path / "run" / "config.yaml").training
    assert (config.adam_eps, config.label_smoothing) == (1e-9, 0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["training.bogus=1"], "--set training.bogus=1: "),
        (["training.max_steps"], "has no `=`"),
        (["training.max_steps=many"], "must be a whole number, not 'many'"),
        (["data.train="], "data.train: needed to train"),
    ],
)
def test_mistakes_in_overrides_are_named(
    train: Command, small: Path, tmp_path: Path, settings: list[str], message: str
) -> None:
    done = train(small, tmp_path / "run", *settings)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_configuration_that_is_not_there_is_named(cli: Command, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.yaml", tmp_path):
        done = cli("train", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {path}: ")
