"""What the program says about itself comes at once, and wrong usage is told from a failed run by its exit code."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import transformer_cli

Command = Callable[..., CompletedProcess[str]]

COMMANDS = (
    "init", "train", "translate", "evaluate", "report", "inspect", "score", "export", "data check", "tokenizer train",
    "tokenizer encode", "tokenizer decode", "config show", "config schema",
)  # fmt: skip
HEAVY = ("torch", "numpy", "datasets", "pyarrow", "sacrebleu", "sentencepiece", "safetensors", "yaml", "tqdm")
HEAVY += ("matplotlib", "tensorboard")


def test_help_and_version_import_nothing_heavy() -> None:
    script = f"""
import contextlib, io, sys
from transformer_cli.cli import app
for words in [["--help"], ["--version"], [], *([*command.split(), "--help"] for command in {COMMANDS}), ["train"]]:
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
        assert f"\n  {command.split()[0]} " in overview.stdout
        own = cli(*command.split(), "--help")
        assert own.returncode == 0
        assert re.search(rf"Example: transformer-cli {command}\s", own.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_each_command_runs(
    program: Command, cli: Command, small: Path, trained: Path, tmp_path: Path, command: str
) -> None:
    shutil.copytree(small.parent, tmp_path, dirs_exist_ok=True)
    shutil.copytree(trained, tmp_path / "runs" / "demo")
    shutil.copy(tmp_path / "train.src", tmp_path / "train.en")
    shutil.copy(tmp_path / "train.tgt", tmp_path / "train.de")
    texts = {"test.en": "ba ce\ndi fo\n", "test.de": "BA CE\nDI FO\n", "test.pieces": "▁ ba\n▁\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = " ".join(cli(*command.split(), "--help").stdout.split())
    example = re.split(" (?:Arguments|Options):", words.split("Example: transformer-cli ")[1])[0]
    done = program(*shlex.split(example), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_commands_and_options_that_the_readme_shows_exist(cli: Command) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"transformer-cli ((?:data |tokenizer |config )?\w+)([^#\n`]*)", readme)
    assert {command for command, _ in shown} >= {"init", "train", "translate"}
    for command, rest in shown:
        options = cli(*command.split(), "--help").stdout
        for option in re.findall(r"--[a-z-]+", rest):
            assert f"{option} " in options, (command, option)


def test_the_options_in_the_tables_of_the_readme_exist(cli: Command) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    commands = readme.split("## The commands")[1].split("`COMMAND --help`")[0]
    shown = re.findall(r"^\| `((?:data |config |tokenizer )?\w+)(.*(?:\n\| \|.*)?)$", commands, re.MULTILINE)
    assert {command for command, _ in shown} == {*COMMANDS} - {"config schema", "tokenizer encode", "tokenizer decode"}
    of_translate = readme.split("## Translating")[1].split("\n## ")[0]
    for command, rest in [*shown, ("translate", of_translate)]:
        known = cli(*command.split(), "--help").stdout
        options = re.findall(r"--[a-z][a-z-]+", rest)
        assert command in ("config show", "report") or options
        for option in options:
            assert re.search(rf"{option}\b(?!-)", known), (command, option)


def test_the_python_of_the_readme_runs(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    block = readme.split("From Python:\n\n")[1].split("\n## ")[0].replace("runs/mine", str(trained))
    exec(textwrap.dedent(block), {})
    assert re.fullmatch(r"(.+ -\d+\.\d+\n){2}", capsys.readouterr().out)


def test_help_tells_the_formula_of_the_length_penalty_and_what_a_larger_alpha_does(cli: Command) -> None:
    text = " ".join(cli("translate", "--help").stdout.split())
    assert "score = log-probability / lp(n); n counts the pieces and the end symbol." in text
    assert "a larger alpha favours longer translations" in text
    assert "wu ((5 + n) / 6)^alpha, avg n^alpha, none 1." in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "x.yaml", "--threads", "many"], "Invalid value for '--threads': must be a whole number"),
        (["translate", "run", "--batch-size", "0"], "Invalid value for '--batch-size': must be at least 1"),
        (["translate", "run", "--length-penalty", "x"], "Invalid value for '--length-penalty': must be a number"),
        (["translate", "run", "--device", "tpu"], "Invalid value for '--device': 'tpu' is not one of 'auto', 'cpu',"),
        (
            ["evaluate", "--metric", "x"],
            "Invalid value for '--metric': 'x' is not one of 'bleu', 'chrf', 'chrf++', 'ter'",
        ),
        (["init", "a\0b"], "Invalid value for 'DIR': embedded null byte"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(cli: Command, words: list[str], message: str) -> None:
    done = cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"Error: {message}")


@pytest.mark.parametrize(
    "words",
    [[], ["train"], ["translate"], ["init"], ["bogus"], ["train", "--bogus"], ["train", "x.yaml", "--threads", "many"]],
)
def test_wrong_usage_ends_with_2_and_nothing_on_stdout_but_help(cli: Command, words: list[str]) -> None:
    done = cli(*words)
    assert done.returncode == 2
    assert "Usage: " in done.stdout + done.stderr
    assert not words or done.stdout == ""


ANSWERS = [["--version"], ["--help"], ["tokenizer", "--help"], ["config", "schema"]]


def run_into(output: int, words: list[str], unbuffered: str) -> tuple[int, str]:
    """Exit code and standard error of a command that writes to a descriptor."""
    command = [sys.executable, "-m", "transformer_cli", *words]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}  # empty as at most people's
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=env, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_an_answer_that_cannot_be_written_is_an_error_in_one_line(words: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        found = run_into(full.fileno(), words, unbuffered)
    assert found == (1, "error: cannot write standard output: No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_an_answer_whose_reader_has_gone_is_no_error(words: list[str], unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    found = run_into(writer, words, unbuffered)
    os.close(writer)
    assert found == (0, "")


def test_a_rank_that_is_no_number_is_that_of_a_single_process(program: Command) -> None:
    done = program("config", "schema", env={"RANK": "", "LOCAL_RANK": "x"})
    assert (done.returncode, done.stderr) == (0, "")
