"""Every option is tried by some test, and those that all commands share do what they say."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import typer

from transformer_cli.cli import app
from transformer_cli.cli.options import DEFAULT_BATCH_SIZE
from transformer_cli.decoding import translator

Command = Callable[..., CompletedProcess[str]]


def options(command: Any) -> Iterator[str]:
    """The long names of the options of a command and of those under it."""
    for parameter in command.params:
        yield from (name for name in parameter.opts if name.startswith("--"))
    for inner in getattr(command, "commands", {}).values():
        yield from options(inner)


def test_the_batch_size_that_help_tells_is_that_of_the_translator() -> None:
    assert DEFAULT_BATCH_SIZE == translator.DEFAULT_BATCH_SIZE


@pytest.mark.parametrize(
    "words",
    [("--threads", "99999"), ("--batch-size", "99999999999999999999"), ("--max-length-b", "99999999999999999999")],
)
def test_numbers_beyond_sense_are_refused(cli: Command, trained: Path, words: tuple[str, str]) -> None:
    done = cli("translate", trained, "ba", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert words[0] in done.stderr or "max_length_b" in done.stderr


def test_a_fault_of_the_program_is_one_line_too(cli: Command, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("seven is not eight")

    monkeypatch.setattr(translator.Translator, "_search", broken)
    done = cli("translate", trained, "ba")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "error: ValueError: seven is not eight. This is a fault of the program; with --traceback it says where"
    )
    assert "in broken" in cli("translate", trained, "ba", "--traceback").stderr


def test_some_test_gives_each_option() -> None:
    here = Path(__file__).parents[1]
    texts = [path.read_text("utf-8") for path in here.rglob("test_*.py") if path != Path(__file__)]
    mine = Path(__file__).read_text("utf-8").split("\n# What all commands share\n")[1]
    given = set(re.findall(r"\"(--[a-z-]+)", "".join([*texts, mine])))
    everything = set(options(typer.main.get_command(app)))
    assert len(everything) > 60
    # The last writes into the home of whoever runs it.
    assert everything - given - {"--install-completion"} == set()


# What all commands share


@pytest.mark.parametrize("short", ["-q", "-v"])
def test_the_short_names_say_as_little_or_as_much(cli: Command, tmp_path: Path, short: str) -> None:
    done = cli("init", tmp_path / "copy", "--template", "copy", short)
    assert done.returncode == 0
    assert ("Train on it:" in done.stderr) == (short == "-v")


def at_a_terminal(*words: str, **environment: str) -> str:
    """What a person sees."""
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "transformer_cli", *words]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env={**os.environ, **environment}):
        os.close(terminal)
        seen = b""
        try:
            while chunk := os.read(master, 4096):
                seen += chunk
        except OSError:
            pass  # the end, as Linux tells it
    os.close(master)
    return seen.decode()


@pytest.mark.parametrize("words", [["--help"], ["translate", "--help"], ["translate", "nowhere", "x"], ["nothing"]])
def test_no_colour_where_none_is_wanted(words: list[str]) -> None:
    seen = at_a_terminal(*words, NO_COLOR="1", TERM="xterm-256color")
    assert len(seen.split()) > 5
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9;]*m", seen)


def test_the_shell_completes_commands() -> None:
    program = Path(sys.executable).with_name("transformer-cli")
    if not program.exists():
        pytest.skip("the package is not installed, so that no shell knows it")

    def said(*words: str, **environment: str) -> str:
        run = subprocess.run([program, *words], env={**os.environ, **environment}, capture_output=True, text=True)
        return run.stdout

    completed = said(_TRANSFORMER_CLI_COMPLETE="complete_bash", COMP_WORDS="transformer-cli t", COMP_CWORD="1")
    assert {"train", "translate", "tokenizer"} <= set(completed.split())
    assert "_TRANSFORMER_CLI_COMPLETE=complete_bash" in said(
        "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )


def test_scoring_takes_the_options_of_the_other_commands(cli: Command, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ba ce\n\xff\n")
    (tmp_path / "b").write_bytes(b"BA CE\nDI\n")
    words = [
        "score",
        trained,
        "--source",
        tmp_path / "a",
        "--target",
        tmp_path / "b",
        "--device",
        "cpu",
        "--threads",
        1,
    ]
    done = cli(*words)
    assert done.returncode == 1
    assert "a, line 2: byte 1 of the line is 0xFF" in done.stderr
    exact, rounded = (cli(*words, "--errors", "replace", "--precision", name).stdout for name in ("fp32", "bf16"))
    numbers = [[float(line) for line in text.splitlines()] for text in (exact, rounded)]
    assert numbers[0] != numbers[1]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.1)


def test_export_takes_the_options_of_the_other_commands(cli: Command, trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    (tmp_path / "text").write_bytes(b"ba ce\n\xff di\n")
    words = ["export", trained, "-o", tmp_path / "out", "--format", "ctranslate2", "--threads", 1, "--text"]
    done = cli(*words, tmp_path / "text")
    assert done.returncode == 1
    assert "text, line 2: byte 1 of the line is 0xFF" in done.stderr
    done = cli(*words, tmp_path / "text", "--errors", "replace")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'out'}\n"), done.stderr
    (tmp_path / "blank").write_text("\n \n")
    done = cli(*words, tmp_path / "blank")
    assert done.returncode == 2
    assert "blank has no line with text: the proof needs sentences" in done.stderr


def test_what_an_ensemble_cannot_do_is_refused(cli: Command, trained: Path) -> None:
    done = cli("translate", trained, "--ensemble", trained, "--repetition-penalty", 1.5, "ba")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--repetition-penalty 1.5 changes what one model finds" in done.stderr
