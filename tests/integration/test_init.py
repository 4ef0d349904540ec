"""`transformer-cli init` writes a folder from which `train` learns its task."""

import gzip
import os
import pty
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from transformer_cli.config.load import load_config
from transformer_cli.config.schema import Corpus

Command = Callable[..., CompletedProcess[str]]


def test_it_says_what_to_run_next_and_prints_nothing(program: Command, tmp_path: Path) -> None:
    done = program("init", "first", "--template", "reverse", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Train on it:  transformer-cli train first/config.yaml\n"
    assert (tmp_path / "first" / "config.yaml").read_text().startswith("# The reverse task")


def test_the_next_command_can_be_copied_whatever_the_name(cli: Command, tmp_path: Path) -> None:
    done = cli("init", tmp_path / "my first", "--template", "copy")
    assert done.stderr == f"Train on it:  transformer-cli train '{tmp_path}/my first/config.yaml'\n"


def test_the_demo_is_the_template_where_none_is_named(cli: Command, tmp_path: Path) -> None:
    assert cli("init", tmp_path / "first").returncode == 0
    assert "\nname: demo-en-de\n" in (tmp_path / "first" / "config.yaml").read_text()


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
    cli("init", tmp_path / "copy", "--template", "copy")
    done = cli("train", tmp_path / "copy" / "config.yaml", "--run-dir", tmp_path / "run", "--threads", 1)
    assert done.returncode == 0
    hypotheses = (tmp_path / "run" / "test" / "test.hyp").read_text().splitlines()
    references = (tmp_path / "copy" / "data" / "test.tgt").read_text().splitlines()
    right = sum(one == other for one, other in zip(hypotheses, references, strict=True))
    assert right >= 0.98 * len(references)


# --- a person's own text ----------------------------------------------------------------------------------------------


def write_text(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("".join(f"sentence {i}\n" for i in range(600)), encoding="utf-8")


def test_own_text_is_told_with_what_is_held_out(cli: Command, tmp_path: Path) -> None:
    write_text(tmp_path, "my.en", "my.de")
    done = cli("init", tmp_path / "mine", "--source", tmp_path / "my.en", "--target", tmp_path / "my.de")
    assert (done.returncode, done.stdout) == (0, "")
    assert "600 pairs read, 0 of them with an empty side" in done.stderr
    assert "valid: 50 pairs held out of training" in done.stderr
    assert "test: 50 pairs held out of training" in done.stderr
    config = tmp_path / "mine" / "config.yaml"
    assert done.stderr.endswith(
        f"Look at it:   transformer-cli data check {config}\nTrain on it:  transformer-cli train {config}\n"
    )
    assert "  source_lang: en\n  target_lang: de\n" in (tmp_path / "mine" / "config.yaml").read_text(encoding="utf-8")


def test_the_line_of_the_first_empty_side_is_told(cli: Command, tmp_path: Path) -> None:
    write_text(tmp_path, "my.en", "my.de")
    for name, empty in (("my.en", [98]), ("my.de", [16, 17])):
        lines = (tmp_path / name).read_text(encoding="utf-8").splitlines()
        (tmp_path / name).write_text("".join(("" if i in empty else line) + "\n" for i, line in enumerate(lines)))
    done = cli("init", tmp_path / "mine", "--source", tmp_path / "my.en", "--target", tmp_path / "my.de")
    expected = "600 pairs read, 3 of them with an empty side (the first is line 17), which are left out\n"
    assert done.stderr.startswith(expected)


@pytest.mark.parametrize(
    "name", ["my.txt", "my.src", "my", "my.text", "my.dat", "my.log", "my.md", "my.en.bak", "my.new.gz", "my.OLD"]
)
def test_a_language_that_no_suffix_tells_is_asked_for(cli: Command, tmp_path: Path, name: str) -> None:
    write_text(tmp_path, name, "my.de")
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    words = ["init", tmp_path / "mine", "--source", tmp_path / name, "--target", tmp_path / "my.de"]
    done = cli(*words)
    assert done.returncode == 2
    assert (
        f"the language of {tmp_path / name} cannot be told from its suffix: give it with --source-lang" in done.stderr
    )
    assert not (tmp_path / "mine").exists()
    assert cli(*words, "--source-lang", "en").returncode == 0


@pytest.mark.parametrize(("name", "language"), [("my.bak_Cyrl", "bak-cyrl"), ("my.pt-BR", "pt-br"), ("my.vec", "vec")])
def test_a_suffix_that_is_a_language_is_taken_for_one(cli: Command, tmp_path: Path, name: str, language: str) -> None:
    write_text(tmp_path, name, "my.de")
    assert cli("init", tmp_path / "mine", "--source", tmp_path / name, "--target", tmp_path / "my.de").returncode == 0
    assert load_config(tmp_path / "mine" / "config.yaml").data.source_lang == language


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (
            "my.tsv",
            "is a table, and init takes two files with a sentence in each line: write its columns to such files",
        ),
        ("my.csv.gz", "is a table"),
        ("my.tmx", "is a translation memory in XML: export it as tab-separated text"),
        ("my.docx", "is a Word document: save it as plain text (UTF-8)"),
    ],
)
def test_a_file_that_is_no_lines_of_text_is_refused_by_its_suffix(
    cli: Command, tmp_path: Path, name: str, advice: str
) -> None:
    write_text(tmp_path, "my.en", "my.de")
    (tmp_path / name).write_bytes((tmp_path / "my.en").read_bytes())
    for source, target in ((name, "my.de"), ("my.en", name)):
        words = ["--source", tmp_path / source, "--target", tmp_path / target, "--source-lang", "en"]
        done = cli("init", tmp_path / "mine", *words, "--target-lang", "de")
        assert done.returncode == 2
        assert f"error: {tmp_path / name} {advice}" in done.stderr
        assert not (tmp_path / "mine").exists()


def test_text_that_is_out_of_step_is_warned_of_with_the_place(cli: Command, tmp_path: Path) -> None:
    english = [f"{'word ' * (1 + i * i % 23)}{i}" for i in range(2000)]
    german = [f"{'Wort ' * (1 + i * i % 23)}{i}" for i in range(2000)]
    del german[1200]
    (tmp_path / "my.en").write_text("".join(line + "\n" for line in english[:-1]))
    (tmp_path / "my.de").write_text("".join(line + "\n" for line in german))
    done = cli("init", tmp_path / "mine", "--source", tmp_path / "my.en", "--target", tmp_path / "my.de")
    assert done.returncode == 0
    found = re.search(r"out of step from about line ([\d,]+) on: look at the text with the command", done.stderr)
    assert found is not None
    assert abs(int(found[1].replace(",", "")) - 1201) < 10


def test_two_files_of_different_texts_are_warned_of(cli: Command, tmp_path: Path) -> None:
    lengths = random.Random(1).choices(range(1, 40), k=1000)
    (tmp_path / "my.en").write_text("".join(f"{'word ' * n}\n" for n in lengths[:500]))
    (tmp_path / "my.de").write_text("".join(f"{'Wort ' * n}\n" for n in lengths[500:]))
    done = cli("init", tmp_path / "mine", "--source", tmp_path / "my.en", "--target", tmp_path / "my.de")
    assert done.returncode == 0
    assert "line N of one file is no translation of line N of the other: look at the text with the" in done.stderr


def test_a_language_that_is_none_is_refused(cli: Command, tmp_path: Path) -> None:
    write_text(tmp_path, "my.en", "my.de")
    words = ["init", tmp_path / "mine", "--source", tmp_path / "my.en", "--target", tmp_path / "my.de"]
    done = cli(*words, "--source-lang", "the English one")
    assert done.returncode == 2
    assert "--source-lang" in done.stderr
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "my.en"], "your own text needs both --source and --target"),
        (["--target-lang", "de"], "your own text needs both --source and --target"),
        (["--source", "my.en", "--target", "my.de", "--template", "demo"], "--template brings its own text"),
        (["--source", "my.en", "--target", "my.de", "--test-source", "my.en"], "--test-source and --test-target go"),
        (["--source", "no.en", "--target", "my.de"], "no.en"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path, "my.en", "my.de")
    done = cli("init", "mine", *words)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert not (tmp_path / "mine").exists()


@pytest.mark.slow
def test_own_text_trains_as_it_is_written(cli: Command, tmp_path: Path) -> None:
    write_text(tmp_path, "my.en", "my.de")
    cli("init", tmp_path / "mine", "--source", tmp_path / "my.en", "--target", tmp_path / "my.de")
    config = tmp_path / "mine" / "config.yaml"
    short = ["--set", "training.max_steps=5", "--set", "training.valid_steps=5", "--set", "training.average_last=1"]
    done = cli("train", config, "--run-dir", tmp_path / "run", "--threads", 1, *short)
    assert done.returncode == 0
    assert "600 pairs read, 0 with an empty side, 100 held out, 0 longer than data.max_length, 500 kept" in done.stderr
    trained = done.stdout.splitlines()[-1]
    again = cli("evaluate", tmp_path / "run")
    assert again.stdout == trained + "\n"  # the set's own name is test


def test_compressed_files_are_taken_as_they_are_and_tell_their_language(cli: Command, tmp_path: Path) -> None:
    for side in ("en", "de"):
        text = "".join(f"{side} sentence {i}\n" for i in range(100))
        (tmp_path / f"my.{side}.gz").write_bytes(gzip.compress(text.encode()))
    done = cli("init", tmp_path / "mine", "--source", tmp_path / "my.en.gz", "--target", tmp_path / "my.de.gz")
    assert done.returncode == 0, done.stderr
    config = load_config(tmp_path / "mine" / "config.yaml")
    assert (config.data.source_lang, config.data.target_lang) == ("en", "de")
    assert "100 pairs read" in done.stderr


def test_validation_and_test_text_of_ones_own_is_taken(cli: Command, tmp_path: Path) -> None:
    for name, count in (("train", 300), ("valid", 20), ("test", 30)):
        for side in ("en", "de"):
            text = "".join(f"{name} {side} sentence {i}\n" for i in range(count))
            (tmp_path / f"{name}.{side}").write_text(text)
    done = cli(
        "init", tmp_path / "mine", "--source", tmp_path / "train.en", "--target", tmp_path / "train.de",
        "--valid-source", tmp_path / "valid.en", "--valid-target", tmp_path / "valid.de",
        "--test-source", tmp_path / "test.en", "--test-target", tmp_path / "test.de",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "valid: 20 pairs\ntest: 30 pairs\n" in done.stderr
    data = load_config(tmp_path / "mine" / "config.yaml").data
    assert data.valid == (Corpus(source=tmp_path / "valid.en", target=tmp_path / "valid.de"),)
    assert data.test["test"] == (Corpus(source=tmp_path / "test.en", target=tmp_path / "test.de"),)


@pytest.mark.parametrize("is_there", [False, True])
def test_what_failed_leaves_nothing_in_the_way_of_the_next_attempt(
    cli: Command, tmp_path: Path, is_there: bool
) -> None:
    for name, english, german in (("train", 300, 300), ("valid", 20, 1)):
        (tmp_path / f"{name}.en").write_text("".join(f"sentence {i}\n" for i in range(english)))
        (tmp_path / f"{name}.de").write_text("".join(f"Satz {i}\n" for i in range(german)))
    if is_there:
        (tmp_path / "mine").mkdir()
    words = ("init", tmp_path / "mine", "--source", tmp_path / "train.en", "--target", tmp_path / "train.de")
    done = cli(*words, "--valid-source", tmp_path / "valid.en", "--valid-target", tmp_path / "valid.de")
    assert done.returncode == 1
    assert "20 lines" in done.stderr
    assert (tmp_path / "mine").exists() == is_there
    assert cli(*words).returncode == 0


def test_text_from_a_pipe_is_refused_before_it_is_read(cli: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "my.en")
    write_text(tmp_path, "my.de")
    done = cli("init", tmp_path / "mine", "--source", tmp_path / "my.en", "--target", tmp_path / "my.de")
    assert (done.returncode, done.stdout) == (2, "")
    assert "my.en is no plain file, and training will read it again" in done.stderr
    assert not (tmp_path / "mine").exists()


def test_who_sits_at_a_terminal_is_asked_for_a_language_that_no_suffix_tells(tmp_path: Path) -> None:
    write_text(tmp_path, "my.txt", "my.de")
    words = [sys.executable, "-m", "transformer_cli", "init", "mine", "--source", "my.txt", "--target", "my.de"]
    keyboard, terminal = pty.openpty()
    try:
        with subprocess.Popen(words, cwd=tmp_path, stdin=terminal, stdout=-1, stderr=subprocess.PIPE, text=True) as run:
            os.write(keyboard, b"en\n")
            told = run.communicate()
        assert run.returncode == 0, told
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert told[0] == ""
    assert "Language of my.txt (such as en, de, zh)" in told[1]
    assert load_config(tmp_path / "mine" / "config.yaml").data.source_lang == "en"
