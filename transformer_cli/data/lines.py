"""Read lines of text: the one definition of a line for the whole package.

The text is UTF-8 whatever the locale. Only a line feed ends a line. A carriage return before it is dropped; anywhere
else it is part of the line, like U+2028, U+0085 and the other characters that some readers take for line ends. The last
line may lack its line feed. A byte-order mark at the start is dropped.
"""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from transformer_cli.data.compression import open_bytes
from transformer_cli.data.encodings import likely_encoding
from transformer_cli.errors import DataError
from transformer_cli.log import ABOUT_TEXT, LOGGER

Errors = Literal["strict", "replace"]

# UTF-16 and UTF-32 text has at most three NUL bytes in a row; data with more is not text.
_NULS = bytes(4)
# Bytes at the start of a file where many NUL bytes indicate UTF-16 or UTF-32 without a byte-order mark.
_FIRST_BLOCK = 4096
# Bytes from a bad line on whose encoding is guessed.
_SAMPLE = 1 << 16


def read_lines(path: Path, errors: Errors = "strict") -> Iterator[str]:
    """The lines of a file, which may be compressed, without line ends. DataError if it cannot be read; bytes that are
    not UTF-8 are treated as in `lines_of`."""
    with open_bytes(path) as stream:
        yield from lines_of(stream, str(path), errors)


def lines_of(stream: BinaryIO, name: str, errors: Errors = "strict") -> Iterator[str]:
    """The lines of an open file or pipe, each as soon as it arrives, without line ends.

    `name` is the name of the stream in messages. Bytes that are not UTF-8 are a DataError; with `replace` they become
    U+FFFD, and the number of such lines is logged. UTF-16, UTF-32, runs of NUL bytes, and carriage returns as the only
    line ends are always a DataError.
    """
    read = nuls = replaced = 0
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = _check_beginning(raw, name)
            if not raw:  # the file has only a byte-order mark
                return
        if _NULS in raw:
            raise DataError(
                f"{name}, line {number}: here are {raw.count(0):,} NUL bytes, as a crash leaves behind, or this is "
                "an archive and no text: get the file again, or take them out (tr -d '\\0')"
            )
        if read < _FIRST_BLOCK:
            before = read
            read += len(raw)
            nuls += raw.count(0)
            if nuls > 3 and nuls * 4 >= read:
                words = "UTF-16 or UTF-32, for it is full of NUL bytes"
                raise _other_encoding(name, words, _encoding_of_nuls(raw, before))
        if raw.endswith(b"\n"):
            raw = raw[:-1].removesuffix(b"\r")
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if errors == "strict":
                # The next bytes of a pipe may be long in coming.
                rest = stream.read(_SAMPLE) if stream.seekable() else b""
                guess = likely_encoding((raw[:_SAMPLE] + b"\n" + rest)[:_SAMPLE])
                raise _not_utf8(name, number, error.start, raw[error.start], guess) from error
            line = raw.decode("utf-8", errors="replace")
            replaced += 1
        yield line
    if replaced:
        LOGGER.warning(
            "%s: %s lines held bytes that are not UTF-8; U+FFFD stands in their place",
            name,
            f"{replaced:,}",
            extra=ABOUT_TEXT,
        )


def _not_utf8(name: str, line: int, position: int, byte: int, guess: tuple[str, bool] | None) -> DataError:
    """The error for a byte that is not UTF-8; `position` in the line counts from 0. `guess` is the likely encoding, and
    whether it is sure."""
    if guess is None:
        way = f"Correct the line, or convert the file if all of it is in another encoding ({_iconv('ENCODING')})"
    else:
        encoding, is_sure = guess
        way = (
            f"It looks like {encoding}: convert the file ({_iconv(encoding)})"
            if is_sure
            else f"It is perhaps {encoding}: make sure, and convert the file ({_iconv('ENCODING')})"
        )
    return DataError(
        f"{name}, line {line}: byte {position + 1} of the line is 0x{byte:02X}, which is not UTF-8. {way}. For a few "
        "bad bytes, data.errors: replace trains with U+FFFD in their place; data check, translate and evaluate take "
        "--errors replace"
    )


def _check_beginning(raw: bytes, name: str) -> bytes:
    """Strip the UTF-8 byte-order mark from the first line of a file. DataError if the bytes show another encoding or
    other line ends."""
    if raw.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise _other_encoding(name, "UTF-32", "UTF-32")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _other_encoding(name, "UTF-16", "UTF-16")
    if b"\n" not in raw and b"\r" in raw[:-1]:
        raise DataError(
            f"{name}: CR line ends: the file has carriage returns and no line feed, so it would be one line; convert "
            "it (tr '\\r' '\\n')"
        )
    return raw.removeprefix(codecs.BOM_UTF8)


def _encoding_of_nuls(raw: bytes, before: int) -> str:
    """The form of UTF-16 or UTF-32 that a line has NUL bytes of; `before` is the number of bytes before the line."""
    first = before + raw.index(0)
    if b"\0\0\0" in raw:
        return "UTF-32BE" if first % 4 == 0 else "UTF-32LE"
    return "UTF-16BE" if first % 2 == 0 else "UTF-16LE"


def _other_encoding(name: str, words: str, encoding: str) -> DataError:
    return DataError(f"{name}, line 1: not UTF-8 (looks like {words}): convert the file ({_iconv(encoding)})")


def _iconv(encoding: str) -> str:
    return f"iconv -f {encoding} -t UTF-8 FILE > NEW"
