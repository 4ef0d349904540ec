"""`transformer-cli inspect`: a run, one of its files, and a model file by itself."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from transformer_cli import checkpoint

Command = Callable[..., CompletedProcess[str]]


def test_a_run_tells_what_it_is_and_how_it_came_about(cli: Command, trained: Path) -> None:
    done = cli("inspect", trained)
    assert (done.returncode, done.stderr) == (0, "")
    total = sum(weight.numel() for weight in checkpoint.read(trained / "model.safetensors").weights.values())
    for words in (
        f"parameters  {total:,}\n",
        "Transformer of 2 + 2 layers, width 64, 4 heads, feed-forward 128 relu, post-norm, sinusoidal positions",
        "bpe, 60 pieces (shared), normalization clean\n",
        "training    180 steps, ",
        "\n  last (step 180): loss ",
        "training ended with step 180 of training.max_steps 180\n",
        "\n  again: BLEU ",
        "/train.src sha256 ",
    ):
        assert words in done.stdout, words


def test_json_has_the_same_unrounded(cli: Command, trained: Path) -> None:
    found = json.loads(cli("inspect", trained, "--json").stdout)
    assert found["scores"] == json.loads((trained / "test" / "scores.json").read_text())
    assert found["run"] == json.loads((trained / "run.json").read_text())
    assert found["parameters"].pop("total") == sum(found["parameters"].values())
    assert found["tokenizer"]["pieces"] == {"shared": 60}
    events = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert found["history"]["last"] in events
    assert found["history"]["best"] in events


def test_a_checkpoint_tells_its_own_step_and_the_history_of_its_run(cli: Command, trained: Path) -> None:
    path = trained / "checkpoints" / "step-00000150.safetensors"
    found = json.loads(cli("inspect", path, "--json").stdout)
    assert found["origin"] == {"kind": "checkpoint", "step": 150}
    assert found["history"]["step"] == 180
    assert "the checkpoint at step 150" in cli("inspect", path).stdout


def test_records_that_lack_something_are_told_as_far_as_they_go(cli: Command, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "test").mkdir(parents=True)
    for name in ("model.safetensors", "config.yaml", "run.json"):
        shutil.copy(trained / name, run / name)
    (run / "metrics.jsonl").write_text('{"event": "valid", "step": 7}\n')
    (run / "test" / "scores.json").write_text('{"a": {"BLEU": {"score": 12.5}, "note": "mine"}}')
    done = cli("inspect", run)
    assert (done.returncode, done.stderr) == (0, "")
    assert "  last (step 7): loss none, ppl none, \n" in done.stdout
    assert "  a: BLEU 12.50 \n" in done.stdout


def test_a_model_file_by_itself_tells_what_it_holds(cli: Command, trained: Path, tmp_path: Path) -> None:
    alone = tmp_path / "deep" / "deeper" / "model.safetensors"
    alone.parent.mkdir(parents=True)
    shutil.copy(trained / "model.safetensors", alone)
    found = json.loads(cli("inspect", alone, "--json").stdout)
    assert (found["history"], found["scores"], found["run"]) == ({}, {}, {})
    done = cli("inspect", alone)
    assert "parameters  " in done.stdout
    assert "training" not in done.stdout


def test_what_is_no_model_is_refused(cli: Command, tmp_path: Path) -> None:
    assert cli("inspect", tmp_path / "gone").returncode == 1
    (tmp_path / "text").write_text("no model")
    done = cli("inspect", tmp_path / "text")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not a safetensors file" in done.stderr
