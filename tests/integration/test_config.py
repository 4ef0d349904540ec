"""`transformer-cli config show` and `config schema`."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from transformer_cli.config.show import json_schema

Command = Callable[..., CompletedProcess[str]]


def test_show_prints_a_configuration_that_trains_the_same(
    cli: Command, train: Command, small: Path, tmp_path: Path
) -> None:
    done = cli("config", "show", small, "--set", "training.max_steps=3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  max_steps: 3                                    # --set training.max_steps=3\n" in done.stdout
    (tmp_path / "shown.yaml").write_text(done.stdout)
    one = train(small, tmp_path / "one", "training.max_steps=3")
    other = train(tmp_path / "shown.yaml", tmp_path / "other")
    assert one.returncode == 0
    assert other.stdout == one.stdout
    longer = train(tmp_path / "shown.yaml", tmp_path / "one", "training.max_steps=4", flags=["--resume"])
    assert longer.returncode == 0, longer.stderr


def test_show_tells_all_that_is_wrong(cli: Command, small: Path) -> None:
    done = cli("config", "show", small, "--set", "model.d_modl=3", "--set", "seed=x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown key" in done.stderr
    assert "seed=x: must be a whole number" in done.stderr


def test_schema_prints_the_json_schema(cli: Command) -> None:
    done = cli("config", "schema")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(json.dumps(json_schema()))
