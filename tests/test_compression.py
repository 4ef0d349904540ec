"""Compressed files are known by their content, and read as they are; damaged ones are named."""

import bz2
import gzip
import io
import lzma
import os
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest

from transformer_cli.config.schema import Corpus
from transformer_cli.data.compression import compression
from transformer_cli.data.corpus import Pair, read_pairs
from transformer_cli.data.lines import read_lines
from transformer_cli.errors import DataError


def zstd(content: bytes) -> bytes:
    return bytes(pyarrow.compress(content, codec="zstd", asbytes=True))


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
}
TEXT = "".join(f"Zeile {i}: Grüße {i * i}\n" for i in range(5000)).encode()


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("suffix", [".gz", ".txt", ""])
def test_a_compressed_file_has_the_lines_of_the_plain_one_whatever_its_name(
    tmp_path: Path, name: str, suffix: str
) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(COMPRESSORS[name](TEXT))
    assert list(read_lines(path)) == TEXT.decode().split("\n")[:-1]


@pytest.mark.parametrize("name", COMPRESSORS)
def test_two_compressed_files_end_to_end_are_one(tmp_path: Path, name: str) -> None:
    compress = COMPRESSORS[name]
    (tmp_path / "text").write_bytes(compress(b"a\nb") + compress(b"c\nd\n"))
    assert list(read_lines(tmp_path / "text")) == ["a", "bc", "d"]


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("behind", [b"di fo\n", b"\xff" * 40, "damaged"])
def test_what_stands_behind_a_compressed_text_is_not_passed_over(
    tmp_path: Path, name: str, behind: bytes | str
) -> None:
    compress = COMPRESSORS[name]
    if isinstance(behind, str):
        second = bytearray(compress(TEXT))
        second[4:12] = b"\xff" * 8
        behind = bytes(second)
    (tmp_path / "text").write_bytes(compress(b"ba\nce\n") + behind)
    with pytest.raises(DataError, match=f"text is compressed by {name}, and damaged or cut off"):
        list(read_lines(tmp_path / "text"))


def test_zeros_that_fill_up_an_xz_file_are_no_text(tmp_path: Path) -> None:
    for zeros in (4, 1 << 18):
        (tmp_path / "text").write_bytes(lzma.compress(b"ba\n") + bytes(zeros) + lzma.compress(b"ce\n") + bytes(zeros))
        assert list(read_lines(tmp_path / "text")) == ["ba", "ce"]


@pytest.mark.parametrize("name", COMPRESSORS)
def test_an_empty_compressed_file_has_no_lines(tmp_path: Path, name: str) -> None:
    (tmp_path / "text").write_bytes(COMPRESSORS[name](b""))
    assert list(read_lines(tmp_path / "text")) == []


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("spoil", ["cut", "overwritten"])
def test_a_damaged_file_is_named_with_its_compression(tmp_path: Path, name: str, spoil: str) -> None:
    whole = bytearray(COMPRESSORS[name](TEXT))
    if spoil == "cut":
        del whole[len(whole) * 2 // 3 :]
    else:
        whole[12:36] = b"\xff" * 24
    path = tmp_path / "train.en"
    path.write_bytes(whole)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert f"{path} is compressed by {name}, and damaged or cut off" in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"B", b"BZh9 is how it begins", b"BZh91AY and a half", "\u001f plain".encode()])
def test_plain_text_is_not_taken_for_compressed(text: bytes) -> None:
    assert compression(text) is None


def test_bytes_that_are_no_text_are_named_in_a_compressed_file_too(tmp_path: Path) -> None:
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"fine\nM\xfcnchen\n"))
    with pytest.raises(DataError, match=r"text\.gz, line 2: byte 2 of the line is 0xFC"):
        list(read_lines(tmp_path / "text.gz"))


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.XLSX", zipped("[Content_Types].xml", "xl/workbook.xml"), 'is an Excel workbook: save it as "CSV UTF-8"'),
        ("a.xls", OLE, 'is an Excel workbook: save it as "CSV UTF-8"'),
        ("a.docx", zipped("[Content_Types].xml"), "is a Word document: save it as plain text (UTF-8)"),
        ("a.en", zipped("[Content_Types].xml"), "is a document of an office program: save it as plain text"),
        ("a.ods", zipped("mimetype"), 'is a spreadsheet: save it as "CSV UTF-8"'),
        ("a.en", zipped("mimetype"), "is a document of an office program: save it as plain text"),
        ("a.en", zipped("a.txt"), "is a zip archive and no text: unpack it"),
        ("a.en", b"%PDF-1.7\n", "is a PDF: convert it to plain text"),
        ("a.xml", XML + b'<!DOCTYPE tmx>\n<tmx version="1.4">', "is a translation memory in XML: export it"),
        ("a.xml", b"\xef\xbb\xbf" + XML + b"<xliff>", "is a translation memory in XML: export it"),
        ("a.tmx.gz", gzip.compress(b"<tmx>", mtime=0), "is a translation memory in XML: export it"),
    ],
)
def test_a_document_of_another_program_is_named_with_the_way_to_text(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(read_lines(tmp_path / name))
    assert f"{tmp_path / name} {told}" in str(caught.value)


@pytest.mark.parametrize("name", ["a.doc", "a.pdf", "a.tmx.en", "a.odt"])
def test_text_is_read_even_if_its_name_is_that_of_a_document(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("<?xml and so on\n")
    assert list(read_lines(tmp_path / name)) == ["<?xml and so on"]


def test_each_side_of_a_corpus_may_be_compressed_in_its_own_way(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(lzma.compress(b"one\ntwo\n"))
    (tmp_path / "b").write_bytes(zstd(b"eins\nzwei\n"))
    corpus = Corpus(source=tmp_path / "a", target=tmp_path / "b")
    assert list(read_pairs([corpus])) == [Pair("one", "eins"), Pair("two", "zwei")]


def test_a_pipe_is_opened_only_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(b"one\ntwo\n"),))
    writer.start()
    assert list(read_lines(pipe)) == ["one", "two"]
    writer.join()
