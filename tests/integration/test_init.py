"""`transformer-cli init` writes a folder from which `train` learns its task."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Command = Callable[..., CompletedProcess[str]]


def test_it_says_what_to_run_next_and_prints_nothing(program: Command, tmp_path: Path) -> None:
    done = program("init", "first", "--template", "reverse", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Train on it:  transformer-cli train first/config.yaml\n"
    assert (tmp_path / "first" / "config.yaml").read_text().startswith("# The reverse task")


def test_copy_is_the_template_where_none_is_named(cli: Command, tmp_path: Path) -> None:
    assert cli("init", tmp_path / "first").returncode == 0
    assert "\nname: copy-task\n" in (tmp_path / "first" / "config.yaml").read_text()


def test_what_is_there_already_is_not_written_over(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("mine")
    done = cli("init", tmp_path)
    assert done.returncode == 2
    assert "already exists and is not an empty folder: choose another" in done.stderr
    assert (tmp_path / "config.yaml").read_text() == "mine"


def test_a_template_that_does_not_exist_is_wrong_usage(cli: Command, tmp_path: Path) -> None:
    done = cli("init", tmp_path / "first", "--template", "translate")
    assert done.returncode == 2
    assert "--template" in done.stderr
    assert not (tmp_path / "first").exists()


@pytest.mark.slow
def test_the_copy_task_is_learnt(cli: Command, tmp_path: Path) -> None:
    """The proof that every part works together: 98 % of the test lines come out exactly."""
    cli("init", tmp_path / "copy")
    done = cli("train", tmp_path / "copy" / "config.yaml", "--run-dir", tmp_path / "run", "--threads", 1)
    assert done.returncode == 0
    hypotheses = (tmp_path / "run" / "test" / "test.hyp").read_text().splitlines()
    references = (tmp_path / "copy" / "data" / "test.tgt").read_text().splitlines()
    right = sum(one == other for one, other in zip(hypotheses, references, strict=True))
    assert right >= 0.98 * len(references)
