"""What the program says about itself comes at once, and wrong usage is told from a failed run by its exit code."""

import subprocess
import sys
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

import transformer_cli

Command = Callable[..., CompletedProcess[str]]

COMMANDS = ("init", "train", "translate", "evaluate")
HEAVY = ("torch", "numpy", "datasets", "pyarrow", "sacrebleu", "sentencepiece", "safetensors", "yaml", "tqdm")


def test_help_and_version_import_nothing_heavy() -> None:
    script = f"""
import contextlib, io, sys
from transformer_cli.cli import app
for words in [["--help"], ["--version"], [], *([command, "--help"] for command in {COMMANDS}), ["train"]]:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            app(words)
    except SystemExit:
        pass
print([name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_version_is_that_of_the_package(program: Command) -> None:
    done = program("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"transformer-cli {transformer_cli.__version__}\n", "")


def test_help_names_every_command_and_each_has_an_example(cli: Command) -> None:
    overview = cli("--help")
    assert overview.returncode == 0
    for command in COMMANDS:
        assert f"\n  {command} " in overview.stdout
        own = cli(command, "--help")
        assert own.returncode == 0
        assert f"Example: transformer-cli {command} " in own.stdout


def test_help_tells_the_formula_of_the_length_penalty_and_what_a_larger_alpha_does(cli: Command) -> None:
    text = " ".join(cli("translate", "--help").stdout.split())
    assert "score = log-probability / lp(n); n counts the pieces and the end symbol." in text
    assert "a larger alpha favours longer translations" in text
    assert "wu ((5 + n) / 6)^alpha, avg n^alpha, none 1." in text


@pytest.mark.parametrize(
    "words",
    [[], ["train"], ["translate"], ["init"], ["bogus"], ["train", "--bogus"], ["train", "x.yaml", "--threads", "many"]],
)
def test_wrong_usage_ends_with_2_and_nothing_on_stdout_but_help(cli: Command, words: list[str]) -> None:
    done = cli(*words)
    assert done.returncode == 2
    assert "Usage: " in done.stdout + done.stderr
    assert not words or done.stdout == ""
