"""Streams of text are UTF-8 with line feeds whatever the surroundings."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from transformer_cli.errors import ConfigError, DataError
from transformer_cli.streams import (
    argument_line,
    check_input,
    check_output,
    input_lines,
    is_shown_with,
    output_stream,
    standard_input,
    write_lines,
)


def standard_stream(content: bytes = b"", encoding: str = "ascii", newline: str = "\r\n") -> io.TextIOWrapper:
    """What Python may make of a pipe under another locale."""
    return io.TextIOWrapper(io.BytesIO(content), encoding=encoding, newline=newline)


def test_input_is_a_file_or_standard_input_by_the_same_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "caf\u00e9\u2028x\r\n\nlast".encode()
    (tmp_path / "in").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", standard_stream(content))
    expected = ["caf\u00e9\u2028x", "", "last"]
    assert list(input_lines(tmp_path / "in", "strict")) == expected
    assert list(input_lines(None, "strict")) == expected


def test_streams_that_the_program_was_started_without_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    message = "there is no standard input: give sentences as arguments, or a file with --input"
    with pytest.raises(DataError, match=message):
        standard_input()
    with pytest.raises(DataError, match=message):
        input_lines(None, "strict")
    with pytest.raises(DataError, match="there is no standard output for the result"), output_stream(None):
        pass


def test_an_input_that_cannot_be_read_is_told_and_a_pipe_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    check_input(tmp_path / "text")
    with pytest.raises(DataError, match=r"cannot read .*nowhere: No such file or directory"):
        check_input(tmp_path / "nowhere")
    with pytest.raises(DataError, match="Is a directory"):
        check_input(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    check_input(tmp_path / "pipe")  # to open it would wait for a writer for ever


def test_bytes_that_are_not_utf8_are_refused_by_place_or_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", standard_stream(b"a\n\xffb\n"))
    with pytest.raises(DataError, match="standard input, line 2: byte 1 of the line is 0xFF"):
        list(input_lines(None, "strict"))
    monkeypatch.setattr(sys, "stdin", standard_stream(b"a\n\xffb\n"))
    assert list(input_lines(None, "replace")) == ["a", "\ufffdb"]


def test_arguments_are_utf8_and_one_line_each_or_refused_by_number_or_replaced() -> None:
    good, bad = os.fsdecode("caf\u00e9 \u4f60".encode()), os.fsdecode(b"a\xffb")
    found = [argument_line(argument, "argument 1", "strict") for argument in (good, "", "a\nb")]
    assert found == ["caf\u00e9 \u4f60", "", "a b"]
    with pytest.raises(DataError, match="--prefix, line 1: byte 2 of the line is 0xFF"):
        argument_line(bad, "--prefix", "strict")
    assert argument_line(bad, "--prefix", "replace") == "a\ufffdb"


def test_an_output_over_an_input_or_in_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source, other = Path("source"), Path("other")
    source.touch()
    other.touch()
    Path("link").symlink_to(source)
    check_output(Path("new"), [source, other])
    check_output(other, [source])
    for target in (source, tmp_path / "source", Path("link")):
        with pytest.raises(ConfigError, match="--output is source, which is to be read: it would be lost"):
            check_output(target, [other, source])
    with pytest.raises(ConfigError, match="cannot write no/file: there is no folder no"):
        check_output(Path("no", "file"), [])


def test_an_output_that_may_not_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").touch()
    refused: list[Path] = []

    def access(path: Path, mode: int) -> bool:
        assert mode == os.W_OK
        refused.append(path)
        return False

    monkeypatch.setattr(os, "access", access)  # who is root may write everywhere
    for name in ("there", "new"):
        with pytest.raises(ConfigError, match=f"cannot write .*/{name}: Permission denied"):
            check_output(tmp_path / name, [])
    assert refused == [tmp_path / "there", tmp_path], "the file, or the folder that it would be made in"


@pytest.mark.parametrize(
    ("target", "terminal", "shown"), [(None, True, True), (None, False, False), ("x", True, False)]
)
def test_lines_on_the_screen_leave_no_room_for_a_bar(
    monkeypatch: pytest.MonkeyPatch, target: str | None, terminal: bool, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: terminal))
    assert is_shown_with(None if target is None else Path(target)) == shown


def test_standard_output_is_utf8_with_line_feeds_under_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = standard_stream()
    monkeypatch.setattr(sys, "stdout", stdout)
    with output_stream(None) as stream:
        stream.write("\u4f60\n")
    assert isinstance(stdout.buffer, io.BytesIO)
    assert stdout.buffer.getvalue() == "\u4f60\n".encode()


def test_lines_written_before_an_error_stay(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "first"
        raise DataError("the second line cannot be had")

    with pytest.raises(DataError, match="second line"):
        write_lines(tmp_path / "out", lines())
    assert (tmp_path / "out").read_bytes() == b"first\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"cannot write .*/no/folder: No such file or directory"),
        output_stream(tmp_path / "no" / "folder"),
    ):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_what_a_full_disk_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"^cannot write /dev/full: No space left on device$"):
        write_lines(Path("/dev/full"), ["a"])

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(reconfigure=lambda **_: None, write=len, flush=full))
    with (
        pytest.raises(DataError, match=r"^cannot write standard output: No space left on device$"),
        output_stream(None) as stream,
    ):
        stream.write("a\n")


def test_another_failure_within_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output error"), output_stream(tmp_path / "out"):
        raise OSError(errno.EIO, "Input/output error")


def test_a_whole_file_of_lines(tmp_path: Path) -> None:
    write_lines(tmp_path / "out", ["ä", "", "b"])
    assert (tmp_path / "out").read_bytes() == "ä\n\nb\n".encode()
    write_lines(tmp_path / "out", [])
    assert (tmp_path / "out").read_bytes() == b""
