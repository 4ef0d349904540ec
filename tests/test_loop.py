"""Runs that were broken off, changed or damaged: what is resumed, what is refused, and what is never lost."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer_cli import checkpoint
from transformer_cli.config.schema import Config
from transformer_cli.data.batching import Batch
from transformer_cli.errors import CheckpointError, ConfigError, DataError, NewerVersionError, NothingToDo, UserError
from transformer_cli.training.loop import train
from transformer_cli.training.step import Updater, UpdateResult

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
    newest = checkpoint.checkpoint_path(run, 8)
    newest.write_bytes(newest.read_bytes()[:-100])
    train(config_in(finished, max_steps=12, save_steps=5), run, resume=True)
    assert f"{newest} is not a safetensors file" in caplog.text
    assert [step for step, _ in checkpoint.list_checkpoints(run)] == [4, 5, 10, 12]


def test_a_model_among_the_checkpoints_is_none(finished: Path, run: Path, caplog: pytest.LogCaptureFixture) -> None:
    foreign = checkpoint.checkpoint_path(run, 9)
    shutil.copy(run / "model.safetensors", foreign)
    train(config_in(finished, max_steps=9), run, resume=True)
    assert f"{foreign} is a model without a training state" in caplog.text


def test_a_checkpoint_of_a_later_version_is_not_passed_over(
    finished: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = checkpoint.checkpoint_path(run, 8)
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
    last, best = checkpoint.checkpoint_path(run, 8), checkpoint.checkpoint_path(run, 4)
    file = checkpoint.read(last)
    checkpoint.write(last, replace(file, training=dict(file.training) | {"best_step": 4}))
    best.write_bytes(b"")
    train(config_in(finished, max_steps=9, average_last=1), run, resume=True)
    assert "the best model so far, of step 4, cannot be put back" in caplog.text


def test_a_run_that_ends_where_it_was_not_validated_is_validated_there(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    seldom = {"valid_steps": 100, "save_steps": 2}
    train(config_in(finished, max_steps=3, **seldom), run)
    for path in (checkpoint.checkpoint_path(run, 3), run / "model.safetensors"):
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


def test_a_gradient_that_is_no_number_ends_a_run_before_it_is_saved(
    finished: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Updater.update

    def overflowing(self: Updater, batches: list[Batch], step: int, rate: float) -> UpdateResult:
        result = update(self, batches, step, rate)
        with torch.no_grad():
            self.model.output.weight.fill_(torch.nan)
        return result._replace(grad_norm=torch.inf)

    monkeypatch.setattr(Updater, "update", overflowing)
    with pytest.raises(UserError, match=r"training diverged at step 9: the loss or its gradient is no longer a number"):
        train(config_in(finished, max_steps=9), run, resume=True)
    assert [step for step, _ in checkpoint.list_checkpoints(run)] == [4, 8]


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
