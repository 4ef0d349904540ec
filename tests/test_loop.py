"""Runs that were broken off, changed or damaged: what is resumed, what is refused, and what is never lost."""

import json
import logging
import math
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from transformer_cli import checkpoint
from transformer_cli.checkpoint import ModelFile
from transformer_cli.config.schema import Config
from transformer_cli.data.batching import Batch, Update, plan_epoch
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.errors import CheckpointError, ConfigError, DataError, NewerVersionError, NothingToDo, UserError
from transformer_cli.model.transformer import Transformer
from transformer_cli.run_files import checkpoint_path, list_checkpoints
from transformer_cli.training import loop, step
from transformer_cli.training.loop import train
from transformer_cli.training.loss import LossSums
from transformer_cli.training.schedule import learning_rate
from transformer_cli.training.step import Updater, UpdateResult, batch_loss

WORDS = ["ba", "ce", "di", "fo", "gu", "ha", "je", "ki"]
TRAINING = {
    "batch_size": 128, "max_steps": 8, "warmup_steps": 10, "valid_steps": 4, "log_steps": 2, "best_metric": "loss",
}  # fmt: skip


def config_in(folder: Path, **training: Any) -> Config:
    corpus = {
        key: [{"source": str(folder / f"{key}.src"), "target": str(folder / f"{key}.tgt")}]
        for key in ("train", "valid")
    }
    width = {"d_model": 16, "ffn_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    return Config.model_validate(
        {
            "name": "x",
            "precision": "fp32",  # whatever this machine is good at
            "data": corpus | {"max_length": 20},
            "tokenizer": {"vocab_size": 40},
            "model": width,
            "training": TRAINING | training,
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text and a finished run of 8 steps, saved and validated at 4 and 8."""
    folder = tmp_path_factory.mktemp("loop")
    chance = random.Random(1)
    for key, count in (("train", 200), ("valid", 20)):
        lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 5))) + "\n" for _ in range(count)]
        (folder / f"{key}.src").write_text("".join(lines))
        (folder / f"{key}.tgt").write_text("".join(lines).upper())
    train(config_in(folder), folder / "run", threads=1)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished / "run", tmp_path / "run"))


def unfinish(run: Path) -> None:
    """As if the process had been killed before the record was written."""
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"finished": None}))


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == kind]


def warnings_of(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    """Beside these, a short run of a small model gives alarms."""
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [message for message in messages if words in message]


def test_the_epoch_of_an_event_is_that_of_its_update(finished: Path, tmp_path: Path) -> None:
    train(config_in(finished, max_steps=100, max_epochs=2, log_steps=1, valid_steps=100), tmp_path / "run", threads=1)
    epochs = [event["epoch"] for event in events(tmp_path / "run", "train")]
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2}
    assert {event["epoch"] for event in events(tmp_path / "run", "valid")} == {2}


def test_a_finished_run_has_nothing_to_do_until_its_limit_is_raised(finished: Path, run: Path) -> None:
    with pytest.raises(NothingToDo, match=r"finished: step 8 of training\.max_steps 8\. To train on, raise that limit"):
        train(config_in(finished), run, resume=True)
    train(config_in(finished, max_steps=9), run, resume=True)
    assert [event["step"] for event in events(run, "train")] == [2, 4, 6, 8, 9]


def test_a_damaged_checkpoint_is_passed_over_and_never_met_again(
    finished: Path, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = checkpoint_path(run, 8)
    newest.write_bytes(newest.read_bytes()[:-100])
    train(config_in(finished, max_steps=12, save_steps=5, valid_steps=100), run, resume=True)
    assert f"{newest} is not a safetensors file" in caplog.text
    assert [step for step, _ in list_checkpoints(run)] == [4, 5, 10, 12]


def test_a_model_among_the_checkpoints_is_none(finished: Path, run: Path, caplog: pytest.LogCaptureFixture) -> None:
    foreign = checkpoint_path(run, 9)
    shutil.copy(run / "model.safetensors", foreign)
    train(config_in(finished, max_steps=9), run, resume=True)
    assert f"{foreign} is a model without a training state" in caplog.text


def test_a_checkpoint_of_a_later_version_is_not_passed_over(
    finished: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = checkpoint_path(run, 8)
    file = checkpoint.read(newest)
    with monkeypatch.context() as later:
        later.setattr(checkpoint, "FORMAT_VERSION", 99)
        checkpoint.write(newest, file)
    with pytest.raises(NewerVersionError, match="format version 99"):
        train(config_in(finished, max_steps=9), run, resume=True)
    assert newest.is_file()


def test_a_finished_model_without_checkpoints_is_not_trained_away(finished: Path, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    before = (run / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match="its checkpoints are gone"):
        train(config_in(finished, max_steps=9), run, resume=True)
    assert (run / "model.safetensors").read_bytes() == before


def test_a_damaged_best_checkpoint_does_not_end_a_run(
    finished: Path, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    last, best = checkpoint_path(run, 8), checkpoint_path(run, 4)
    file = checkpoint.read(last)
    checkpoint.write(last, replace(file, training=dict(file.training) | {"best_step": 4}))
    best.write_bytes(b"")
    train(config_in(finished, max_steps=9, average_last=1), run, resume=True)
    assert "the best model so far, of step 4, cannot be put back" in caplog.text


@pytest.mark.parametrize("damaged", [4, 8])
def test_a_damaged_checkpoint_is_left_out_of_the_average_and_named(
    finished: Path, run: Path, damaged: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = checkpoint_path(run, damaged)
    choose_model = loop.choose_model

    def after_damage(*arguments: Any) -> None:
        path.write_bytes(path.read_bytes()[:-100])
        choose_model(*arguments)

    monkeypatch.setattr(loop, "choose_model", after_damage)
    train(config_in(finished, max_steps=16), run, resume=True)
    others = [step for step in (4, 8, 12, 16) if step != damaged]
    assert [event["averaged"] for event in events(run, "valid") if "averaged" in event][-1] == others
    assert [line for line in warnings_of(caplog, "the average is made without it") if str(path) in line]
    assert any(f"average of 3 checkpoints, steps {', '.join(map(str, others))}  " in line for line in caplog.messages)
    assert events(run, "test")[-1]["step"] == 16


def test_a_best_model_that_came_to_harm_is_put_back_before_the_test(
    finished: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_model = loop.choose_model

    def after_damage(*arguments: Any) -> None:
        (run / "model.safetensors").write_bytes(b"")
        choose_model(*arguments)

    monkeypatch.setattr(loop, "choose_model", after_damage)
    train(config_in(finished, max_steps=9, average_last=1), run, resume=True)
    step = checkpoint.read(checkpoint_path(run, 9)).training["best_step"]
    assert dict(checkpoint.read(run / "model.safetensors").origin) == {"kind": "best", "step": step}
    assert events(run, "test")[-1]["step"] == 9


def test_with_one_intact_checkpoint_there_is_no_average_and_the_best_is_used(
    finished: Path, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint_path(run, 4).write_bytes(b"")
    unfinish(run)
    train(config_in(finished), run, resume=True)
    assert len(warnings_of(caplog, "the average is made without it")) == 1
    assert [event for event in events(run, "valid") if "averaged" in event] == []
    assert checkpoint.read(run / "model.safetensors").origin["kind"] == "best"


def test_a_run_that_ends_where_it_was_not_validated_is_validated_there(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    seldom = {"valid_steps": 100, "save_steps": 2}
    train(config_in(finished, max_steps=3, **seldom), run)
    for path in (checkpoint_path(run, 3), run / "model.safetensors"):
        path.unlink()
    unfinish(run)
    train(config_in(finished, max_steps=1, **seldom), run, resume=True)
    assert [event["step"] for event in events(run, "valid")] == [2]
    assert dict(checkpoint.read(run / "model.safetensors").origin) == {"kind": "best", "step": 2}


def test_what_the_runs_own_configuration_says_now_does_not_matter(finished: Path, run: Path) -> None:
    changed = config_in(finished, max_steps=9, label_smoothing=0.3)
    text = (run / "config.yaml").read_text().replace("label_smoothing: 0.1", "label_smoothing: 0.3")
    (run / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"training\.label_smoothing: 0\.1 in the run, 0\.3 now"):
        train(changed, run, resume=True)


def test_a_project_folder_is_not_overwritten(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("# mine")
    with pytest.raises(ConfigError, match=r"holds config\.yaml but no run"):
        train(config_in(finished), tmp_path, overwrite=True)
    assert (tmp_path / "config.yaml").read_text() == "# mine"


# --- steps without a finite gradient --------------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, steps: Callable[[int], bool]) -> list[tuple[TokenDataset, Update]]:
    """Let the loss of some steps be no number. Returns a list to which each step adds its update."""
    seen: list[tuple[TokenDataset, Update]] = []
    train_on = Updater.train_on

    def no_number(*arguments: Any) -> LossSums:
        sums = batch_loss(*arguments)
        return LossSums(sums.loss * math.nan, sums.nll)

    def spoilt(self: Updater, dataset: TokenDataset, update: Update, number: int, rate: float) -> UpdateResult:
        seen.append((dataset, update))
        with monkeypatch.context() as patch:
            if steps(number):
                patch.setattr(step, "batch_loss", no_number)
            return train_on(self, dataset, update, number, rate)

    monkeypatch.setattr(Updater, "train_on", spoilt)
    return seen


def assert_same_weights(found: ModelFile, expected: ModelFile) -> None:
    for one, other in ((found.weights, expected.weights), (found.optimizer, expected.optimizer)):
        assert one.keys() == other.keys()
        assert [name for name in one if not torch.equal(one[name], other[name])] == []


def test_a_gradient_that_stays_no_number_ends_a_run_with_its_last_checkpoint_as_it_was(
    finished: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = checkpoint.read(checkpoint_path(run, 8))
    seen = spoil(monkeypatch, lambda number: number > 8)
    config = config_in(finished, max_steps=100)
    with pytest.raises(UserError) as caught:
        train(config, run, resume=True)
    assert len(seen) == 20  # steps 9 to 28
    dataset, update = seen[-1]
    rows, longest = sum(map(len, update)), max(map(dataset.longest, update))
    plans = [plan_epoch(dataset, 128, "tokens", config.seed, epoch) for epoch in range(5)]
    place, epoch = [(i, epoch) for epoch, plan in enumerate(plans, 1) for i, _ in enumerate(plan, 1)][28 - 1]
    assert str(caught.value) == (
        "training diverged: at step 28 the loss or its gradient was not a finite number for the 20th time in a row "
        f"(update {place} of epoch {epoch}, {rows} pairs of up to {longest} pieces; learning rate "
        f"{learning_rate(28, config):.2e}). Most likely the learning rate is too high: start again with a lower "
        "training.noam_factor or training.learning_rate, warm up longer, or use precision fp32"
    )
    # What was saved on the way is what was there before the first of them, and can be used.
    saved = list_checkpoints(run)
    assert [number for number, _ in saved] == [8, 12, 16, 20, 24]
    for number, path in saved[1:]:
        file = checkpoint.read(path)
        assert_same_weights(file, good)
        assert (file.training["skipped"], file.training["skipped_in_a_row"]) == (number - 8, number - 8)
    # Going on does not begin the count anew.
    with pytest.raises(UserError, match=r"at step 28 the loss .* for the 20th time in a row"):
        train(config, run, resume=True)
    assert len(seen) == 20 + 4


def test_a_step_now_and_then_without_a_finite_gradient_is_left_out_and_counted(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    caplog.set_level(logging.INFO)
    with monkeypatch.context() as patch:
        spoil(patch, lambda number: number in (3, 4, 6))
        train(config_in(finished), run, threads=1)
    told = events(run, "train")
    assert [(event["step"], event["skipped"]) for event in told] == [(2, 0), (4, 2), (6, 3), (8, 3)]
    # Of steps 3 and 4 there is nothing to tell; in 6 only of 5.
    assert (told[1]["tgt_tokens"], told[1]["loss"], told[1]["ppl"], told[1]["grad_norm"]) == (0, None, None, None)
    assert 0 < told[2]["tgt_tokens"] < told[0]["tgt_tokens"] + told[3]["tgt_tokens"]
    assert math.isfinite(told[2]["loss"])
    assert warnings_of(caplog, "the step is skipped") == [
        f"step {number}: loss or gradient is not a finite number; the step is skipped ({count} so far)"
        for count, number in enumerate((3, 4, 6), start=1)
    ]
    (line,) = [line for line in caplog.messages if line.startswith("step 4/8")]
    assert re.fullmatch(r"step 4/8  no step was taken  lr \d\.\d\de-\d\d  2 skipped  .* left", line)
    assert not any("nan" in line for line in caplog.messages)
    assert any("step 8/8" in line and "  3 skipped" in line for line in caplog.messages)
    # The count goes on with the run.
    train(config_in(finished, max_steps=10), run, resume=True)
    assert events(run, "train")[-1]["skipped"] == 3


def test_one_good_step_begins_the_count_of_those_in_a_row_anew(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, lambda number: number not in (20, 40))
    train(config_in(finished, max_steps=40, valid_steps=40, log_steps=40), tmp_path / "run", threads=1)
    assert events(tmp_path / "run", "train")[-1]["skipped"] == 38


# --- memory and disk ------------------------------------------------------------------------------------------------


def without_dropout(config: Config) -> Config:
    return config.model_copy(update={"model": config.model.model_copy(update={"dropout": 0.0})})


def test_the_batch_that_memory_allows_is_remembered_with_the_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cells: list[int] = []

    def in_small_memory(model: Transformer, batch: Batch, *rest: Any) -> LossSums:
        cells.append(len(batch.src) * max(batch.src.shape[1], batch.tgt_in.shape[1]))
        if cells[-1] > 20:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return batch_loss(model, batch, *rest)

    config = without_dropout(config_in(finished))
    train(config, tmp_path / "whole", threads=1)
    monkeypatch.setattr(step, "batch_loss", in_small_memory)
    told_before: list[int] = []
    train_on = Updater.train_on

    def noted(self: Updater, *arguments: Any) -> UpdateResult:
        told_before.append(len(warnings_of(caplog, "out of memory with ")))
        return train_on(self, *arguments)

    monkeypatch.setattr(Updater, "train_on", noted)
    train(config, tmp_path / "run", threads=1)
    # Known before the first step, and the same is computed.
    assert told_before == [1] * 8
    assert len([size for size in cells if size > 20]) == 1
    for found, expected in zip(events(tmp_path / "run", "train"), events(tmp_path / "whole", "train"), strict=True):
        assert found["tgt_tokens"] == expected["tgt_tokens"]
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)

    remembered = checkpoint.read(checkpoint_path(tmp_path / "run", 8)).training["batch_size"]
    assert remembered <= 20
    caplog.clear()
    longer = without_dropout(config_in(finished, max_steps=10))
    train(longer, tmp_path / "run", resume=True)
    assert warnings_of(caplog, "out of memory with ") == []
    assert len([size for size in cells if size > 20]) == 1
    assert checkpoint.read(checkpoint_path(tmp_path / "run", 10)).training["batch_size"] == remembered


def test_a_run_goes_on_bit_for_bit_however_its_updates_are_cut_into_their_groups(
    finished: Path, tmp_path: Path
) -> None:
    def end_of(batch_size: int, accumulation: int) -> ModelFile:
        run = Path(shutil.copytree(finished / "run", tmp_path / str(accumulation)))
        cut = {"batch_size": batch_size, "gradient_accumulation_steps": accumulation}
        train(config_in(finished, max_steps=12, **cut), run, resume=True)
        return checkpoint.read(checkpoint_path(run, 12))

    whole = end_of(128, 1)
    assert_same_weights(end_of(64, 2), whole)
    assert_same_weights(end_of(32, 4), whole)


def test_a_disk_that_is_full_ends_a_run_with_what_was_saved_intact(
    finished: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*.safetensors")}
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        with pytest.raises(CheckpointError, match=r"are free\. What was saved before is intact; make room"):
            train(config_in(finished, max_steps=12), run, resume=True)
    assert {path: path.read_bytes() for path in run.rglob("*.safetensors")} == before
    train(config_in(finished, max_steps=12), run, resume=True)
    assert [number for number, _ in list_checkpoints(run)] == [4, 8, 12]


# --- fine-tuning ----------------------------------------------------------------------------------------------------


def test_fine_tuning_starts_from_the_weights_and_the_tokenizer_of_another_run(
    finished: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = tmp_path / "tuned"
    asked = Config.model_validate(
        {
            "name": "y",
            "seed": 9,
            "precision": "fp32",
            "data": {"max_length": 20},
            "training": TRAINING | {"max_steps": 4, "init_from": str(run)},
        }
    )
    data = config_in(finished).data
    asked = asked.model_copy(update={"data": data.model_copy(update={"train": data.valid})})  # other text
    with monkeypatch.context() as still:
        still.setattr(loop, "learning_rate", lambda *_: 0.0)  # so that the weights stay what they were
        train(asked, tuned, threads=1)
    base, found = checkpoint.read(run / "model.safetensors"), checkpoint.read(checkpoint_path(tuned, 4))
    assert found.tokenizers == base.tokenizers
    assert found.weights.keys() == base.weights.keys()
    assert all(torch.equal(found.weights[name], base.weights[name]) for name in base.weights)
    assert (found.config.model, found.config.tokenizer) == (base.config.model, base.config.tokenizer)
    assert [event["step"] for event in events(tuned, "train")] == [2, 4]
    assert {float(value) for name, value in found.optimizer.items() if name.endswith(".step")} == {4.0}  # its own Adam

    # Once begun, it needs the other no more.
    shutil.rmtree(run)
    train(asked.model_copy(update={"training": asked.training.model_copy(update={"max_steps": 6})}), tuned, resume=True)
    again = checkpoint.read(checkpoint_path(tuned, 6))
    assert again.tokenizers == base.tokenizers
    assert not all(torch.equal(again.weights[name], base.weights[name]) for name in base.weights)


def test_a_fine_tuning_that_cannot_begin_leaves_no_run_behind(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size: 50 here, 40 there"):
        train(
            config_in(finished, init_from=str(finished / "run")).model_copy(
                update={"tokenizer": Config.model_validate({"name": "x", "tokenizer": {"vocab_size": 50}}).tokenizer}
            ),
            tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_validation_text_without_a_usable_pair_is_refused(finished: Path, tmp_path: Path) -> None:
    for side in ("src", "tgt"):
        (tmp_path / f"blank.{side}").write_text("\n \n")
    blank = [{"source": str(tmp_path / "blank.src"), "target": str(tmp_path / "blank.tgt")}]
    config = config_in(finished)
    data = config.data.model_copy(
        update={"valid": Config.model_validate({"name": "x", "data": {"valid": blank}}).data.valid}
    )
    with pytest.raises(DataError, match=r"data\.valid: no pair has text on both sides"):
        train(config.model_copy(update={"data": data}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
