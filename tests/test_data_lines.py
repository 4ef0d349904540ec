"""What a line is, in every file that people really have."""

import io
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_cli.data.lines import lines_of, read_lines
from transformer_cli.errors import DataError

DATA = Path(os.environ.get("TRANSFORMER_CLI_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def lines(content: bytes) -> list[str]:
    return list(lines_of(io.BytesIO(content), "input"))


def refusal(content: bytes) -> str:
    with pytest.raises(DataError) as caught:
        lines(content)
    return str(caught.value)


@pytest.fixture
def nasty() -> Path:
    folder = DATA / "nasty"
    if not folder.is_dir():
        pytest.skip("the nasty files are not here")
    return folder


def test_only_a_line_feed_ends_a_line() -> None:
    content = (
        b"ba\xe2\x80\xa8ce\ndi\xc2\x85fo\ngu\x0bha\nje\x0cki\nlo\x1cmu\nna\rpe\nqi ro\r\nsu ta\n"  # as printf gives it
    )
    assert len(content.decode().splitlines()) == 14
    assert lines(content) == [
        "ba\u2028ce",
        "di\u0085fo",
        "gu\vha",
        "je\fki",
        "lo\x1cmu",
        "na\rpe",
        "qi ro",
        "su ta",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\r", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        (b"a\0b\n\0\n", ["a\0b", "\0"]),
    ],
)
def test_line_ends_and_byte_order_marks_are_not_part_of_a_line(content: bytes, expected: list[str]) -> None:
    assert lines(content) == expected


def test_a_byte_that_is_not_utf8_is_named_with_its_place_and_the_way_out() -> None:
    message = refusal(b"fine\nM\xfcnchen\n")
    assert "input, line 2: byte 2 of the line is 0xFC" in message
    assert "iconv" in message
    assert "--errors replace" in message


@pytest.mark.parametrize(
    ("encoding", "text", "told"),
    [
        ("gb18030", "今天天气很好，我和朋友们一起去了公园。他说这是他的书。", "It looks like GB18030: "),
        ("big5", "今天天氣很好，我和朋友們一起去了公園。他說這是他的書。", "It looks like BIG5: "),
        ("shift_jis", "今日は天気がいいので、友達と公園に行きました。", "It looks like SHIFT_JIS: "),
        ("euc-jp", "今日は天気がいいので、友達と公園に行きました。", "It looks like EUC-JP: "),
        ("cp949", "오늘은 날씨가 좋아서 친구와 함께 공원에 갔습니다.", "It looks like CP949: "),
        ("cp1251", "Сегодня хорошая погода, и мы пошли в парк.", "It is perhaps CP1251: "),
        ("cp1252", "Die Bären möchten über die Straße gehen.", "It is perhaps CP1252: "),
        ("gb18030", "我的", "It is perhaps GB18030: "),
    ],
)
def test_the_likely_encoding_is_named_with_the_command_that_converts_it(encoding: str, text: str, told: str) -> None:
    message = refusal(b"fine\n" + f"{text}\nand more\n".encode(encoding))
    sure = f"convert the file (iconv -f {told.split()[-1][:-1]} -t UTF-8 FILE > NEW)"
    assert told + (sure if "looks" in told else "make sure, and convert the file (iconv -f ENCODING") in message


def test_a_bad_byte_in_utf8_is_no_other_encoding() -> None:
    message = refusal("Die Bären\n".encode() + b"M\xfcnchen\n" + "über die Straße\n".encode())
    assert "Correct the line, or convert the file if all of it is in another encoding (iconv -f ENCODING" in message


def test_a_long_file_that_is_not_utf8_is_refused_at_once() -> None:
    stream = io.BytesIO("Die Bären möchten über die Straße gehen.\n".encode("cp1252") * 1_000_000)
    started = time.monotonic()
    with pytest.raises(DataError, match="CP1252"):
        list(lines_of(stream, "input"))
    assert time.monotonic() - started < 1


def test_the_rest_of_a_pipe_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as pipe:
        pipe.write("Straße\n".encode("cp1252"))
        with pytest.raises(DataError, match="It is perhaps CP1252"):
            list(lines_of(stream, "standard input"))


def test_replace_keeps_the_line_and_counts_it(caplog: pytest.LogCaptureFixture) -> None:
    replaced = lines_of(io.BytesIO(b"a\nM\xfcn\xfc\nb\n"), "input", errors="replace")
    assert list(replaced) == ["a", "M\ufffdn\ufffd", "b"]
    assert [record.getMessage() for record in caplog.records] == [
        "input: 1 lines held bytes that are not UTF-8; U+FFFD stands in their place"
    ]


@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        ("utf-16", "looks like UTF-16)"),
        ("utf-32", "looks like UTF-32)"),
        ("utf-16-le", "looks like UTF-16 or UTF-32"),
        ("utf-16-be", "looks like UTF-16 or UTF-32"),
        ("utf-32-be", "looks like UTF-16 or UTF-32"),
    ],
)
@pytest.mark.parametrize("text", ["Ein Hund rennt.\nUnd eine Katze.\n", "\nEin Hund rennt.\n"])
def test_utf16_and_utf32_are_refused_by_name_with_and_without_a_mark(encoding: str, named: str, text: str) -> None:
    assert named in refusal(text.encode(encoding))


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize("text", ["Ein Hund rennt.\nUnd eine Katze.\n", "\nEin Hund rennt.\n"])
def test_the_command_that_converts_utf16_names_its_form(encoding: str, text: str) -> None:
    assert f"(iconv -f {encoding} -t UTF-8 FILE > NEW)" in refusal(text.encode(encoding))


def test_utf16_is_refused_under_replace_too() -> None:
    with pytest.raises(DataError, match="UTF-16"):
        list(lines_of(io.BytesIO("Katze\n".encode("utf-16")), "input", errors="replace"))


@pytest.mark.parametrize("before", ["", "Ein Hund rennt.\n" * 3, "Ein Hund rennt.\n" * 1000])
def test_nuls_in_a_row_are_refused_by_their_line_and_are_no_utf16(before: str) -> None:
    number = before.count("\n") + 1
    message = refusal(before.encode() + b"a" + b"\0" * 4096 + b"b\nc\n")
    assert f", line {number}: here are 4,096 NUL bytes, as a crash leaves behind, or this is an archive" in message


def test_up_to_three_nuls_in_a_row_are_text() -> None:
    text = b"Ein Hund rennt.\n" * 300 + b"a\0\0\0b\n"
    assert list(lines_of(io.BytesIO(text), "input"))[-1] == "a\0\0\0b"


def test_a_file_with_lone_carriage_returns_for_line_ends_is_refused() -> None:
    assert "CR line ends" in refusal(b"eins\rzwei\rdrei\r")


def test_a_line_is_given_before_the_next_one_is_written() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as pipe:
        arriving = lines_of(stream, "standard input")
        pipe.write(b"one\n")
        assert next(arriving) == "one"
        pipe.write(b"two\n")
        assert next(arriving) == "two"


def test_memory_stays_flat_however_long_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"a line of some forty bytes, and so it goes\n" * 100_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_lines(path)) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_the_locale_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "zürich"
    path.write_bytes("Grüße\n".encode())
    code = (
        "import pathlib, sys; from transformer_cli.data.lines import read_lines;"
        "print(ascii(list(read_lines(next(pathlib.Path(sys.argv[1]).iterdir())))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"['Gr\\xfc\\xdfe']\n"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to("nowhere"), "No such file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    path = tmp_path / "-train ä.en"
    make(path)
    with pytest.raises(DataError, match=reason) as caught:
        list(read_lines(path))
    assert str(path) in str(caught.value)


def test_the_nasty_files_have_the_lines_and_the_errors_they_should_have(nasty: Path) -> None:
    other_formats = (".csv", ".tsv", ".jsonl", ".gz", ".xz", ".bz2")
    checked = 0
    for case in json.loads((nasty / "expected.json").read_text("utf-8")):
        for name in case["files"]:
            # A file of other length than its partner is a matter of pairs.
            if name.endswith(other_formats) or name.startswith("mismatch"):
                continue
            checked += 1
            if case["translate_ok"]:
                assert sum(1 for _ in read_lines(nasty / name)) == case["lines"], name
            else:
                with pytest.raises(DataError) as caught:
                    list(read_lines(nasty / name))
                message = str(caught.value)
                assert name in message
                assert case["error_mentions"] in message or case["error_mentions"] in case["files"]
    assert checked > 40


def test_crlf_mixed_ends_and_byte_order_marks_give_the_clean_lines(nasty: Path) -> None:
    clean = list(read_lines(nasty / "clean.de"))
    for name in ("crlf.de", "mixed-eol.de", "bom.de"):
        assert list(read_lines(nasty / name)) == clean
