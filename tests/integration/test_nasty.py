"""Dirty files of every kind: each command gives as many lines as it should, or one error that names the place."""

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Command = Callable[..., CompletedProcess[str]]

DATA = Path(os.environ.get("TRANSFORMER_CLI_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
TABLES = (".csv", ".tsv", ".jsonl")
FIELDS: dict[str, tuple[object, object]] = {
    ".tsv": (1, 2), ".csv": ("en", "de"), ".jsonl": ("translation.de", "translation.en"),
}  # fmt: skip
SHORT = ("--max-length-a", 0, "--max-length-b", 3, "--beam-size", 1)  # the number of lines is what counts


@pytest.fixture
def nasty() -> Path:
    folder = DATA / "nasty"
    if not folder.is_dir():
        pytest.skip("the nasty files are not here")
    return folder


def cases(folder: Path) -> Iterator[dict[str, Any]]:
    yield from json.loads((folder / "expected.json").read_text("utf-8"))


def corpora(folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Each case that can be trained on, and its entry in a configuration; what has no partner goes with a clean one."""
    for case in cases(folder):
        first = folder / case["files"][0]
        if (suffix := first.suffix) in TABLES:
            source, target = FIELDS[suffix]
            yield case, f"{{path: {first}, source_field: {source}, target_field: {target}}}"
        elif len(case["files"]) == 1:
            yield case, f"{{source: {first}, target: {folder / 'clean.en'}}}"
        else:
            yield case, f"{{source: {first}, target: {folder / case['files'][1]}}}"


def assert_one_error(done: CompletedProcess[str], case: dict[str, Any]) -> None:
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.returncode, len(errors)) == (1, 1), (case, done.stderr)
    assert case["error_mentions"] in errors[0] or case["error_mentions"] in case["files"], (case, errors)
    assert any(name in errors[0] for name in case["files"]), (case, errors)


def test_every_nasty_file_is_translated_line_by_line_or_refused(cli: Command, trained: Path, nasty: Path) -> None:
    for case in cases(nasty):
        for name in case["files"]:
            # One side of a mismatch is plain lines.
            if name.endswith(TABLES) or name.startswith("mismatch"):
                continue
            done = cli("translate", trained, "--input", nasty / name, *SHORT)
            if case["translate_ok"]:
                assert done.returncode == 0, (name, done.stderr)
                assert done.stdout.count("\n") == len(done.stdout.splitlines()) == case["lines"], name
            else:
                assert_one_error(done, case)
                assert done.stdout == "" or "one-bad-byte" in name


def test_files_that_differ_in_line_ends_marks_or_compression_are_translated_alike(
    cli: Command, trained: Path, nasty: Path
) -> None:
    clean = cli("translate", trained, "--input", nasty / "clean.de", *SHORT).stdout
    for name in (
        "crlf.de",
        "mixed-eol.de",
        "bom.de",
        "no-final-newline.de",
        *(f"compressed.de.{c}" for c in ("gz", "xz", "bz2")),
    ):
        found = cli("translate", trained, "--input", nasty / name, *SHORT).stdout
        assert found == clean, name


def test_every_nasty_pair_of_files_is_scored_or_refused(cli: Command, nasty: Path) -> None:
    for case in cases(nasty):
        first, *others = case["files"]
        if first.endswith(TABLES) or case["lines"] == 0:
            continue
        done = cli("evaluate", "--hypothesis", nasty / first, "--reference", nasty / (others or [first])[0])
        if case["translate_ok"] and "compressed" not in first:
            assert done.returncode == 0, (case, done.stderr)
        elif not case["translate_ok"]:
            assert_one_error(done, case)


def test_data_check_finds_the_errors_of_every_nasty_corpus_and_no_others(
    cli: Command, nasty: Path, tmp_path: Path
) -> None:
    for case, entry in corpora(nasty):
        (tmp_path / "config.yaml").write_text(f"data: {{train: [{entry}]}}\n", encoding="utf-8")
        done = cli("data", "check", tmp_path / "config.yaml")
        sound = case["translate_ok"] and case["lines"] != 0
        assert done.returncode == (0 if sound else 1), (case, done.stdout)
        if not sound and case["error_mentions"]:
            assert case["error_mentions"] in done.stdout or case["error_mentions"] in case["files"], done.stdout


@pytest.mark.slow
def test_every_nasty_corpus_is_trained_on_or_refused_before_training(
    train: Command, small: Path, nasty: Path, tmp_path: Path
) -> None:
    for number, (case, entry) in enumerate(corpora(nasty)):
        settings = ("tokenizer.vocab_size=2000", "training.max_steps=1", "data.test=", "data.max_length=512")
        run = tmp_path / str(number)
        done = train(small, run, f"data.train=[{entry}]", *settings)
        if case["translate_ok"] and case["lines"] != 0:
            assert done.returncode == 0, (case, done.stderr)
            assert f"{case['lines']:,} pairs read" in done.stderr, (case, done.stderr)
        else:
            assert done.returncode == 1
            assert not run.exists()
            if case["error_mentions"]:
                assert_one_error(done, case)


# Files of our own


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_lines_are_translated_and_scored_as_they_are(
    cli: Command, trained: Path, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "in").write_bytes(b"ba ce\ndi fo\n")
    (tmp_path / "packed").write_bytes(compress(b"ba ce\ndi fo\n"))
    (tmp_path / "ref").write_bytes(compress(b"BA CE\nDI FO\n"))
    plain, packed = (cli("translate", trained, "--input", tmp_path / name) for name in ("in", "packed"))
    assert (packed.returncode, packed.stdout) == (0, plain.stdout)
    scored = cli("evaluate", trained, "--source", tmp_path / "packed", "--reference", tmp_path / "ref")
    assert scored.returncode == 0, scored.stderr
    (tmp_path / "cut").write_bytes((tmp_path / "packed").read_bytes()[:-9])
    cut = cli("translate", trained, "--input", tmp_path / "cut")
    assert cut.returncode == 1
    assert "cut is compressed by" in cut.stderr
    assert "Traceback" not in cut.stderr


def test_a_mixture_of_formats_trains_with_a_table_of_what_was_left_out(
    train: Command, small: Path, tmp_path: Path
) -> None:
    (tmp_path / "t.tsv").write_text("ba ce\tBA CE\nba ce\tBA CE\ndi fo\tDI FO\n")
    (tmp_path / "t.json").write_text(json.dumps({"data": [{"x": {"s": "gu ha\nje", "t": "GU HA JE"}}]}))
    (tmp_path / "t.src.gz").write_bytes(gzip.compress(b"ki lo\nmu na\n"))
    (tmp_path / "t.tgt").write_bytes(b"KI LO\n\n")
    entries = (
        f"{{path: {tmp_path}/t.tsv, source_field: 1, target_field: 2}}, "
        f"{{path: {tmp_path}/t.json, source_field: x.s, target_field: x.t}}, "
        f"{{source: {tmp_path}/t.src.gz, target: {tmp_path}/t.tgt}}"
    )
    settings = (f"data.train=[{entries}]", "data.filters.duplicates=true", "training.max_steps=1", "data.test=")
    done = train(small, tmp_path / "run", *settings)
    assert done.returncode == 0, done.stderr
    table = "training text: \n{:>14}  pairs read\n{:>14}  with an empty side\n{:>14}  duplicates\n"
    assert table.format(6, 1, 1) in done.stderr
    assert "t.json: 1 fields held a line feed; a space stands in its place" in done.stderr


def test_bad_bytes_are_trained_on_where_the_configuration_says_so(train: Command, small: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"ba ce\ndi \xff\n")
    (tmp_path / "t").write_bytes(b"BA CE\nDI FO\n")
    settings = (f"data.train=[{{source: {tmp_path}/s, target: {tmp_path}/t}}]", "training.max_steps=1", "data.test=")
    refused = train(small, tmp_path / "run", *settings)
    assert refused.returncode == 1
    assert "s, line 2: byte 4 of the line is 0xFF" in refused.stderr
    done = train(small, tmp_path / "run", *settings, "data.errors=replace")
    assert done.returncode == 0, done.stderr
    assert "s: 1 lines held bytes that are not UTF-8" in done.stderr


# More faults of the same kinds: what ends a line, what is text, what belongs together. Each as (source, target, lines
# that translate gives or None where it refuses, what the error of training says or None where it trains).
TEXT = [f"ba ce {word}".encode() for word in ("di", "fo", "gu", "ha", "je", "ki", "lo", "mu")]
PLAIN = b"".join(line + b"\n" for line in TEXT)
MORE: dict[str, tuple[bytes, bytes, int | None, str | None]] = {
    "line ends converted twice": (PLAIN.replace(b"\n", b"\r\r\n"), PLAIN, 8, None),
    "a byte-order mark where two files were joined": (
        b"\xef\xbb\xbf" + PLAIN[:36] + b"\xef\xbb\xbf" + PLAIN[36:], PLAIN, 8, None,
    ),
    "the end of a file of DOS": (PLAIN + b"\x1a", PLAIN, 9, "has 9 lines and"),
    "lines too many at the end of one side": (PLAIN + b"\n\n", PLAIN, 10, "has 10 lines and"),
    "a blank first line": (b"\n" + PLAIN, b"\n" + PLAIN, 9, None),
    "lines of what cannot be seen": (
        b"\xe2\x80\x8b\n\xc2\xad\n\xe2\x80\x8e\n\xcc\x81\n" + PLAIN, PLAIN[:36] + PLAIN, 12, None,
    ),
    "emoji as two halves": (
        PLAIN + b"\xed\xa0\xbd\xed\xb8\x80\n", PLAIN + b"x\n", None, "line 9: byte 1 of the line is 0xED",
    ),
    "a zero as two bytes": (PLAIN + b"a\xc0\x80\n", PLAIN + b"x\n", None, "line 9: byte 2 of the line is 0xC0"),
    "half a character at the end": (PLAIN + b"gr\xc3", PLAIN + b"x\n", None, "line 9: byte 3 of the line is 0xC3"),
    "zeros behind the text": (PLAIN + bytes(5000), PLAIN, None, "line 9: here are 5,000 NUL bytes"),
    "zeros in the text": (PLAIN[:36] + bytes(512) + PLAIN[36:], PLAIN, None, "line 5: here are 512 NUL bytes"),
    "two compressed files, joined": (gzip.compress(PLAIN[:36]) + gzip.compress(PLAIN[36:]), PLAIN, 8, None),
    "something behind a compressed file": (
        gzip.compress(PLAIN) + b"more", PLAIN, None, "is compressed by gzip, and damaged",
    ),
    "compressed UTF-16": (gzip.compress(PLAIN.decode().encode("utf-16")), PLAIN, None, "looks like UTF-16"),
    "an archive": (b"PK\x03\x04\x14\0\0\0\x08\0", PLAIN, None, "is a zip archive and no text"),
    "one line by another sign": (PLAIN.replace(b"\n", b"\xc2\x85"), PLAIN.replace(b"\n", b"\xc2\x85"), 1, None),
}  # fmt: skip


@pytest.mark.parametrize(("source", "target", "count", "refused"), MORE.values(), ids=MORE)
def test_more_faults_are_handled_by_each_command(
    cli: Command,
    train: Command,
    trained: Path,
    small: Path,
    tmp_path: Path,
    source: bytes,
    target: bytes,
    count: int | None,
    refused: str | None,
) -> None:
    (tmp_path / "s").write_bytes(source)
    (tmp_path / "t").write_bytes(target)
    translated = cli("translate", trained, "--input", tmp_path / "s", *SHORT)
    scored = cli("evaluate", "--hypothesis", tmp_path / "s", "--reference", tmp_path / "t")
    checked = cli("data", "check", "--source", tmp_path / "s", "--target", tmp_path / "t")
    tried = train(
        small, tmp_path / "run", f"data.train=[{{source: {tmp_path}/s, target: {tmp_path}/t}}]", flags=["--check"]
    )
    if count is None:
        assert translated.returncode == 1
        assert refused is not None
        assert refused in translated.stderr
    else:
        assert translated.returncode == 0, translated.stderr
        assert translated.stdout.count("\n") == len(translated.stdout.splitlines()) == count
    likely = cli("score", trained, "--source", tmp_path / "s", "--target", tmp_path / "t")
    assert len(likely.stdout.splitlines()) == (count or 0) or refused is not None
    # The compressed ones are read by `evaluate` as all files are.
    for done in (scored, checked, tried, likely):
        assert done.returncode == (0 if refused is None else 1), done.stderr
    if refused is not None:
        assert refused in tried.stderr
        assert refused in likely.stderr
        assert refused in checked.stdout
        assert "s" in scored.stderr.splitlines()[-1]
