"""`transformer-cli translate`: one line out for each line in, whatever the text, the streams and the locale."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch

from transformer_cli.decoding.translator import Translator

Command = Callable[..., CompletedProcess[str]]

PROGRAM = [sys.executable, "-m", "transformer_cli"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}

# Eight lines, though other readers would see nine or fourteen: only a line feed ends one.
ODD_LINES = b"ba\xe2\x80\xa8ce\ndi\xc2\x85fo\ngu\x0bha\nje\x0cki\nlo\x1cmu\nna\rpe\nqi ro\r\nsu ta\n"
ODD_CHARACTERS = "\u2028\x85\x0b\x0c\x1c\r"


def lines(text: str) -> list[str]:
    assert text == "" or text.endswith("\n")
    return text.split("\n")[:-1]


@pytest.fixture(scope="module")
def expected(trained: Path) -> Callable[[list[str]], list[str]]:
    """The translations of single lines by the library."""
    torch.set_num_threads(1)
    translator = Translator.load(trained, device="cpu")
    return lambda sources: [translator.best_texts([source])[0] for source in sources]


# Ways in and out


def test_the_program_answers_each_argument_with_a_line_under_any_locale(
    program: Command, trained: Path, expected: Callable[[list[str]], list[str]]
) -> None:
    sources = ["di fo", "", "qi \u00e9\u4f60 ro", "gu ha"]
    locale = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = program("translate", trained, *sources, env=locale)
    assert (done.returncode, done.stderr) == (0, "")
    assert lines(done.stdout) == expected(sources)


def test_arguments_a_file_and_a_pipe_give_the_same(cli: Command, trained: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_text("ba ce\n\ndi fo gu\n")
    by_arguments = cli("translate", trained, "ba ce", "", "di fo gu")
    assert by_arguments.returncode == 0
    assert len(lines(by_arguments.stdout)) == 3
    for same in (
        cli("translate", trained, "--input", source),
        cli("translate", trained, "-i", "-", stdin="ba ce\n\ndi fo gu\n"),
        cli("translate", trained, stdin=b"ba ce\r\n\r\ndi fo gu"),
        cli("translate", trained, "-i", source, "-o", "-"),
    ):
        assert (same.returncode, same.stdout, same.stderr) == (0, by_arguments.stdout, "")
    to_file = cli("translate", trained, "--input", source, "--output", tmp_path / "out")
    assert (to_file.returncode, to_file.stdout) == (0, "")
    assert (tmp_path / "out").read_text() == by_arguments.stdout


@pytest.mark.parametrize("part", ["model.safetensors", "checkpoints/step-00000180.safetensors"])
def test_a_model_file_and_a_checkpoint_translate_too(cli: Command, trained: Path, part: str) -> None:
    done = cli("translate", trained / part, "di fo", "gu ha je")
    expected = Translator.load(trained / part, device="cpu").best_texts(["di fo", "gu ha je"])
    assert (done.returncode, lines(done.stdout)) == (0, expected)


def test_the_model_file_alone_is_enough(cli: Command, trained: Path, tmp_path: Path) -> None:
    alone = tmp_path / "elsewhere.safetensors"
    alone.write_bytes((trained / "model.safetensors").read_bytes())
    assert cli("translate", alone, "di fo").stdout == cli("translate", trained, "di fo").stdout


def test_the_name_of_a_file_is_translated_with_a_warning(cli: Command, trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "my text.en"
    file.write_text("ba\n")
    done = cli("translate", trained, "ba", file, "x" * 1000)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    assert done.stderr.count("is a file, and its name is translated") == 1
    assert f"warning: {file} is a file, and its name is translated: for its lines give --input FILE\n" in done.stderr


def test_what_looks_like_an_option_is_text_behind_two_dashes(cli: Command, trained: Path) -> None:
    done = cli("translate", trained, "--", "-x", "--help", "ba; $(ce) '\"\\")
    assert done.returncode == 0
    assert len(lines(done.stdout)) == 3
    assert cli("translate", trained, "-x").returncode == 2


def test_a_line_end_inside_an_argument_is_a_space(cli: Command, trained: Path) -> None:
    done = cli("translate", trained, "di\nfo", "gu\u2028ha\tje")
    assert lines(done.stdout) == lines(cli("translate", trained, "di fo", "gu ha je").stdout)


# C1, C15: what a line is


def test_only_a_line_feed_ends_a_line(
    cli: Command, trained: Path, tmp_path: Path, expected: Callable[[list[str]], list[str]]
) -> None:
    (tmp_path / "sep.src").write_bytes(ODD_LINES)
    done = cli("translate", trained, "--input", tmp_path / "sep.src", "--output", tmp_path / "sep.out")
    assert done.returncode == 0
    written = (tmp_path / "sep.out").read_bytes()
    assert written.count(b"\n") == 8
    assert not set(ODD_CHARACTERS) & set(written.decode())
    assert lines(written.decode())[6] == expected(["qi ro"])[0]
    assert lines(written.decode())[0] == expected(["ba ce"])[0]


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_empty_lines_stay_empty_and_in_place(cli: Command, trained: Path, batch_size: int, beam_size: int) -> None:
    settings = ("--batch-size", batch_size, "--beam-size", beam_size)
    source = "\n   \n\t\n\u200b\n\u3000\nba ce\n\n"
    done = cli("translate", trained, *settings, stdin=source)
    alone = cli("translate", trained, "ba ce", *settings).stdout
    assert alone.strip()
    assert (done.returncode, done.stdout) == (0, "\n" * 5 + alone + "\n")


@pytest.mark.parametrize(("source", "out"), [("", ""), ("\n", "\n"), ("\n \n\n", "\n\n\n")])
def test_blank_lines_alone_give_as_many_and_nothing_gives_nothing(
    cli: Command, trained: Path, tmp_path: Path, source: str, out: str
) -> None:
    (tmp_path / "in").write_text(source)
    done = cli("translate", trained, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (done.returncode, (tmp_path / "out").read_text()) == (0, out)
    assert cli("translate", trained, stdin=source).stdout == out


def test_an_empty_argument_is_an_empty_line(cli: Command, trained: Path) -> None:
    assert cli("translate", trained, "").stdout == "\n"


# Formats


def test_n_best_lists_name_the_line_they_belong_to(cli: Command, trained: Path) -> None:
    done = cli("translate", trained, "di fo", "", "gu ha", "--n-best", 3, "--beam-size", 4)
    fields = [line.split(" ||| ") for line in lines(done.stdout)]
    assert [index for index, *_ in fields] == ["0", "0", "0", "1", "2", "2", "2"]
    assert all(len(line) == 3 for line in fields)
    assert fields[3] == ["1", "", "0.0000"]
    scores = [float(score) for _, _, score in fields]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert [fields[0][1], "", fields[4][1]] == lines(cli("translate", trained, "di fo", "", "gu ha").stdout)


@pytest.mark.parametrize(
    ("flags", "penalty"),
    [
        ([], lambda n: ((5 + n) / 6) ** 0.6),
        (["--length-penalty", 1.5], lambda n: ((5 + n) / 6) ** 1.5),
        (["--length-penalty-type", "avg"], lambda n: n**0.6),
        (["--length-penalty-type", "none"], lambda n: 1.0),
        (["--length-penalty", 0], lambda n: 1.0),
    ],
)
def test_scores_are_the_log_probability_over_the_penalty_that_the_help_tells(
    cli: Command, trained: Path, flags: list[object], penalty: Callable[[int], float]
) -> None:
    done = cli("translate", trained, "di fo", "gu ha je ki", "--scores", *flags)
    for line in lines(done.stdout):
        _, score, log_prob, n = line.split(" ||| ")
        assert float(score) == pytest.approx(float(log_prob) / penalty(int(n)), abs=1e-4)


def test_json_lines_hold_eight_keys_in_order(cli: Command, trained: Path) -> None:
    done = cli("translate", trained, "di fo", "", "--format", "jsonl", "--n-best", 2)
    found = [json.loads(line) for line in lines(done.stdout)]
    keys = ["index", "text", "score", "log_prob", "n", "truncated", "pieces", "token_log_probs"]
    assert [list(one) for one in found] == [keys] * 3
    assert [one["index"] for one in found] == [0, 0, 1]
    assert found[2] == dict(zip(keys, [1, "", 0.0, 0.0, 0, False, [], []], strict=True))
    for one in found:
        assert "".join(one["pieces"]).replace("▁", " ").strip() == one["text"]
        assert len(one["token_log_probs"]) == one["n"]
        assert sum(one["token_log_probs"]) == pytest.approx(one["log_prob"], abs=1e-5)
    assert f"{found[0]['score']:.4f}" in cli("translate", trained, "di fo", "--scores").stdout


def test_the_length_flags_cut_and_the_cut_is_told(cli: Command, trained: Path) -> None:
    def one(*flags: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(cli("translate", trained, "di fo gu", "--format", "jsonl", *flags).stdout)
        return found

    # Nothing is translated by two pieces, and the start of a word at least is said in each.
    assert one("--max-length-a", 0, "--max-length-b", 2)["n"] <= 2
    cut = one("--max-length-a", 0, "--max-length-b", 2, "--beam-size", 1)
    assert (cut["n"], cut["truncated"]) == (2, True)
    assert not one()["truncated"]


# Flags


def test_a_flag_overrides_the_setting_of_the_run(cli: Command, train: Command, small: Path, tmp_path: Path) -> None:
    settings = ("training.max_steps=2", "decoding={beam_size: 3, n_best: 2, max_length_a: 0.5, max_length_b: 2}")
    assert train(small, tmp_path / "run", *settings).returncode == 0
    assert len(lines(cli("translate", tmp_path / "run", "di fo").stdout)) == 2
    assert len(lines(cli("translate", tmp_path / "run", "di fo", "--n-best", 3).stdout)) == 3
    assert len(lines(cli("translate", tmp_path / "run", "di fo", "--n-best", 1, "--beam-size", 1).stdout)) == 1


def test_other_precisions_translate(cli: Command, trained: Path) -> None:
    done = cli("translate", trained, "di fo", "--precision", "bf16", "--device", "cpu", "--threads", 1)
    assert done.returncode == 0
    assert len(lines(done.stdout)) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--n-best", 9], "error: --n-best 9 needs a --beam-size of at least as many, not 4\n"),
        (["--beam-size", 0], "error: --beam-size must be at least 1, not 0\n"),
        (["--length-penalty", -1], "error: --length-penalty must be at least 0, not -1.0\n"),
        (["--length-penalty", "nan"], "error: --length-penalty must be a finite number, not nan\n"),
        (["--max-length-b", 0], "error: --max-length-b must be at least 1, not 0\n"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_flag(
    cli: Command, trained: Path, flags: list[object], message: str
) -> None:
    done = cli("translate", trained, "di", *flags)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize(
    "flags", [["--batch-size", 0], ["--threads", 0], ["--format", "xml"], ["--device", "tpu"], ["--errors", "ignore"]]
)
def test_a_value_that_no_flag_takes_is_wrong_usage(cli: Command, trained: Path, flags: list[object]) -> None:
    done = cli("translate", trained, "di", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(flags[0]) in done.stderr


# Errors


def test_a_run_that_is_none_is_named(cli: Command, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("di fo\n")
    for run, message in (
        (tmp_path / "nowhere", "nowhere does not exist"),
        (tmp_path, "holds no model.safetensors"),
        (tmp_path / "text", "is not a safetensors file"),
    ):
        done = cli("translate", run, "di")
        assert (done.returncode, done.stdout) == (1, "")
        assert message in done.stderr
    assert cli("translate").returncode == 2


def test_input_that_cannot_be_read_is_named(cli: Command, trained: Path, tmp_path: Path) -> None:
    done = cli("translate", trained, "--input", tmp_path / "nowhere")
    assert done.returncode == 1
    assert "nowhere: No such file or directory" in done.stderr
    (tmp_path / "out").write_text("of yesterday")
    done = cli("translate", trained, "--input", tmp_path / "nowhere", "--output", tmp_path / "out")
    assert done.returncode == 1
    assert (tmp_path / "out").read_text() == "of yesterday"
    done = cli("translate", trained, "--input", tmp_path)
    assert done.returncode == 1
    assert "Is a directory" in done.stderr


def test_output_over_the_input_is_refused_before_it_is_lost(cli: Command, trained: Path, tmp_path: Path) -> None:
    source = tmp_path / "text"
    source.write_text("di fo\n")
    (tmp_path / "link").symlink_to(source)
    done = cli("translate", trained, "--input", source, "--output", tmp_path / "link")
    assert done.returncode == 2
    assert f"--output is {source}, which is to be read: it would be lost" in done.stderr
    assert source.read_text() == "di fo\n"


def test_output_that_cannot_be_written_is_named(cli: Command, trained: Path, tmp_path: Path) -> None:
    done = cli("translate", trained, "di", "--output", tmp_path / "no" / "file")
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    full = cli("translate", trained, "di", "--output", "/dev/full")
    assert (full.returncode, full.stdout) == (1, "")
    assert full.stderr == "error: cannot write /dev/full: No space left on device\n"


def test_arguments_and_a_file_together_are_refused(cli: Command, trained: Path, tmp_path: Path) -> None:
    for source in (tmp_path / "x", "-"):
        done = cli("translate", trained, "di", "--input", source)
        assert done.returncode == 2
        assert "not both" in done.stderr


def test_bytes_that_are_not_utf8_are_refused_by_line_or_replaced(cli: Command, trained: Path) -> None:
    source = b"di fo\n\xff gu\nha\n"
    done = cli("translate", trained, stdin=source)
    assert done.returncode == 1
    assert "standard input, line 2: byte 1 of the line is 0xFF" in done.stderr
    assert "--errors replace" in done.stderr
    done = cli("translate", trained, "--errors", "replace", stdin=source)
    assert done.returncode == 0
    assert len(lines(done.stdout)) == 3
    assert "1 lines held bytes that are not UTF-8" in done.stderr


def test_an_argument_that_is_no_text_is_refused(cli: Command, trained: Path) -> None:
    done = cli("translate", trained, os.fsdecode(b"di \xff"))
    assert done.returncode == 1
    assert "argument 1, line 1: byte 4 of the line is 0xFF, which is not UTF-8" in done.stderr


def test_a_line_too_long_for_learned_positions_is_translated_in_parts_and_named(
    cli: Command, train: Command, small: Path, tmp_path: Path
) -> None:
    settings = ("model.positions=learned", "model.max_positions=65", "training.max_steps=1")
    assert train(small, tmp_path / "run", *settings).returncode == 0
    done = cli("translate", tmp_path / "run", stdin="di fo\n\n" + "ba ce " * 40 + "\n")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 3
    assert re.search(r"a line of \d+ pieces is translated in [2-9] parts", done.stderr)
    assert re.search(r"line 3 has \d+ pieces, more than any line in training", done.stderr)


# The world outside


def test_a_reader_that_has_seen_enough_ends_it_without_a_word(trained: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"yes 'di fo' | head -n 3000 | {' '.join(PROGRAM)} translate {trained} | head -n 1; "
         "echo ${PIPESTATUS[2]}"],
        capture_output=True,
        env=ONE_THREAD,
        check=True,
    )  # fmt: skip
    assert done.stderr == b""
    assert done.stdout.endswith(b"\n0\n")
    assert done.stdout.count(b"\n") == 2


def test_an_interrupt_ends_it_with_130_and_whole_lines(trained: Path) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "translate", str(trained), "--batch-size", "2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ONE_THREAD,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"di fo gu\n" * 5000)
    process.stdin.close()
    first = process.stdout.readline()  # lines come as they are done, long before the last
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.stderr is not None
    assert process.stderr.read() == b"interrupted\n"
    assert process.wait() == 130
    found = (first + rest).decode()
    assert set(lines(found)) == {first.decode().rstrip("\n")}
    assert len(lines(found)) < 5000


@pytest.mark.slow
def test_at_a_terminal_it_says_what_it_waits_for_and_answers_line_by_line(trained: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "translate", str(trained)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ONE_THREAD,
    )
    os.close(theirs)
    assert process.stdout is not None
    assert process.stderr is not None
    hint = process.stderr.readline()
    assert b"Type a sentence" in hint
    answers = []
    for line in (b"di fo\n", b"\n", b"gu ha\n"):
        os.write(ours, line)
        answers.append(process.stdout.readline())
    os.write(ours, b"\x04")
    assert process.wait() == 0
    assert process.stderr.read() == b""
    os.close(ours)
    assert answers[0].strip()
    assert answers[1] == b"\n"
    assert answers[2].strip()
