"""`transformer-cli data check` tells by its exit code whether a text can be trained on, and mends what it can."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, Path, str, Path]:
    """The words that name two files of ten clean pairs."""
    (tmp_path / "a.en").write_text("".join(f"sentence {i}\n" for i in range(10)))
    (tmp_path / "a.ru").write_text("".join(f"предложение {i}\n" for i in range(10)), encoding="utf-8")
    return "--source", tmp_path / "a.en", "--target", tmp_path / "a.ru"


def test_a_clean_text_is_told_its_size_on_stdout_and_ends_with_0(
    cli: Command, files: tuple[str, Path, str, Path]
) -> None:
    done = cli("data", "check", *files, "--source-lang", "en", "--target-lang", "ru")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "train: 10 pairs",
        "  source   20 words, 100 characters; 10.0 characters a line, 10 in the longest",
        "  target   20 words, 130 characters; 13.0 characters a line, 13 in the longest",
        "0 errors, 0 warnings",
    ]


def test_warnings_end_with_0_and_errors_with_1(cli: Command, files: tuple[str, Path, str, Path]) -> None:
    target = files[3]
    target.write_text(target.read_text().replace("предложение 4", ""))
    done = cli("data", "check", *files)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "0 errors, 1 warning")
    assert f"first: {files[1]}:5: sentence 4 → " in done.stdout
    target.write_text("одно\n")
    done = cli("data", "check", *files)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 error, 0 warnings")
    assert "a.en has 10 lines and " in done.stdout


def test_json_holds_the_same(cli: Command, files: tuple[str, Path, str, Path]) -> None:
    found = json.loads(cli("data", "check", *files, "--json").stdout)
    assert (found["errors"], found["warnings"], found["sets"]["train"]["pairs"]) == (0, 0, 10)


def test_all_sets_of_a_configuration_are_checked_in_any_format(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("раз\tone\nдва\ttwo\n")
    (tmp_path / "v.jsonl.gz").write_bytes(gzip.compress('{"x": {"en": "two", "ru": "два"}}\n'.encode()))
    (tmp_path / "config.yaml").write_text(
        "data:\n  source_lang: en\n  target_lang: ru\n"
        "  train: [{path: t.tsv, source_field: 2, target_field: 1}]\n"
        "  valid: {hold_out: 1}\n"
        "  test: {a: [{path: v.jsonl.gz, source_field: x.en, target_field: x.ru}]}\n"
    )
    done = cli("data", "check", tmp_path / "config.yaml")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if not line.startswith(" ")] == [
        "train: 2 pairs",
        "test.a: 1 pair",
        "0 errors, 1 warning",
    ]
    assert "1 pair whose source stands in test.a too" in done.stdout


def test_bytes_that_are_not_utf8_are_an_error_unless_they_may_be_replaced(
    cli: Command, files: tuple[str, Path, str, Path], tmp_path: Path
) -> None:
    files[1].write_bytes(files[1].read_bytes().replace(b"sentence 6", b"sentence \xff"))
    done = cli("data", "check", *files)
    assert done.returncode == 1
    assert "a.en, line 7: byte 10 of the line is 0xFF" in done.stdout
    replaced = cli("data", "check", *files, "--errors", "replace")
    assert replaced.returncode == 0
    assert "1 line with U+FFFD" in replaced.stdout
    (tmp_path / "config.yaml").write_text("data: {errors: replace, train: [{source: a.en, target: a.ru}]}\n")
    assert cli("data", "check", tmp_path / "config.yaml").stdout == replaced.stdout


def test_pairs_with_bytes_that_are_not_utf8_are_not_in_the_copies(
    cli: Command, files: tuple[str, Path, str, Path], tmp_path: Path
) -> None:
    files[1].write_bytes(files[1].read_bytes().replace(b"sentence 6", b"sentence \xff"))
    done = cli("data", "check", *files, "--errors", "replace", "--fix", tmp_path / "new")
    assert done.stdout.splitlines()[-3:-1] == [
        "train: 9 pairs written, 0 lines changed",
        "          1  left out, with U+FFFD or bytes that are not UTF-8",
    ]
    assert "\ufffd" not in (tmp_path / "new" / "train.en").read_text("utf-8")
    assert "предложение 6" not in (tmp_path / "new" / "train.ru").read_text("utf-8")


def test_cleaned_copies_are_written_and_named_as_a_configuration_has_them(
    cli: Command, files: tuple[str, Path, str, Path], tmp_path: Path
) -> None:
    source = files[1]
    source.write_text(source.read_text().replace("sentence 3\n", "  \n").replace("sentence 5", "sen\u00adtence\u00a05"))
    words = ("--source-lang", "en", "--target-lang", "ru", "--fix", tmp_path / "new")
    done = cli("data", "check", *files, *words)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-3:] == [
        "train: 9 pairs written, 2 lines changed",
        "          1  left out, with an empty side",
        f"  {{source: {tmp_path}/new/train.en, target: {tmp_path}/new/train.ru}}",
    ]
    kept = [i for i in range(10) if i != 3]
    assert (tmp_path / "new" / "train.en").read_text() == "".join(f"sentence {i}\n" for i in kept)
    assert (tmp_path / "new" / "train.ru").read_text() == "".join(f"предложение {i}\n" for i in kept)
    again = cli("data", "check", *files, *words)
    assert (again.returncode, again.stdout) == (2, "")
    assert "not an empty folder" in again.stderr


def test_the_entry_of_a_copy_is_right_where_it_is_pasted(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp").mkdir()
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    config = tmp_path / "exp" / "config.yaml"
    config.write_text("data: {source_lang: en, target_lang: de, train: [{source: ../a.en, target: ../a.de}]}\n")
    for folder, shown in (("exp/new", "new"), ("my: new", "../my: new")):
        done = cli("data", "check", "exp/config.yaml", "--fix", folder)
        entry = done.stdout.splitlines()[-1].strip()
        assert shown in entry
        (tmp_path / "exp" / "pasted.yaml").write_text(
            f"data: {{source_lang: en, target_lang: de, train: [{entry}]}}\n", encoding="utf-8"
        )
        again = cli("data", "check", "exp/pasted.yaml")
        assert (again.returncode, again.stdout.splitlines()[0]) == (0, "train: 2 pairs")
    done = cli("data", "check", "--source", "a.en", "--target", "a.de", "--fix", "of files")
    assert done.stdout.splitlines()[-1] == (
        f'  {{source: "{tmp_path}/of files/train.en", target: "{tmp_path}/of files/train.de"}}'
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to check"),
        (["--source", "a"], "--target is missing"),
        (["--target", "a"], "--source is missing"),
        (["c.yaml", "--source", "a"], "a configuration names the files and languages"),
        (["no.yaml"], "no.yaml: no such file"),
        (["--source", "a", "--target", "b", "--source-lang", "x y"], "--source-lang must be a language tag"),
    ],
)
def test_a_wrong_command_ends_with_2(cli: Command, words: list[str], message: str) -> None:
    done = cli("data", "check", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_pipe_is_not_read_twice(cli: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "my.en")
    (tmp_path / "my.de").write_text("eins\n")
    files = ("--source", tmp_path / "my.en", "--target", tmp_path / "my.de")
    done = cli("data", "check", *files, "--fix", tmp_path / "new")
    assert (done.returncode, done.stdout) == (2, "")
    assert "my.en twice, and it is no plain file: save the text to a file first" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_configuration_without_text_is_told(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    done = cli("data", "check", tmp_path / "config.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "names no text" in done.stderr
