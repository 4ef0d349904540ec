"""What a line is.

The text is UTF-8 whatever the locale. A line ends at a line feed and nowhere else: a carriage return before it is
dropped, one anywhere else is part of the line, like U+2028, U+0085 and the other characters that some readers take for
line ends. The last line may lack its line feed; a byte-order mark at the start is dropped.
"""

import codecs
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from transformer_cli.data.compression import open_bytes
from transformer_cli.errors import DataError

logger = logging.getLogger(__name__)

Errors = Literal["strict", "replace"]

# UTF-16 and UTF-32 have no more than three NULs in a row; what has more is no text.
_NULS = bytes(4)
# The bytes at the start of a file within which NULs give away UTF-16 and UTF-32 without a byte-order mark.
_FIRST_BLOCK = 4096


def read_lines(path: Path, errors: Errors = "strict") -> Iterator[str]:
    """The lines of a file, which may be compressed, without their ends. DataError if it cannot be read or is not
    UTF-8."""
    with open_bytes(path) as stream:
        yield from lines_of(stream, str(path), errors)


def lines_of(stream: BinaryIO, name: str, errors: Errors = "strict") -> Iterator[str]:
    """The lines of an open file or pipe, each as soon as it has arrived, without their ends.

    `name` is what the messages call the stream. Bytes that are not UTF-8 are a DataError, or, with `replace`, become
    U+FFFD and are counted in the log. UTF-16, UTF-32 and lone carriage returns as line ends are always a DataError.
    """
    read = nuls = replaced = 0
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = check_beginning(raw, name)
            if not raw:  # nothing but a byte-order mark
                return
        if _NULS in raw:
            raise DataError(
                f"{name}, line {number}: here are {raw.count(0):,} NUL bytes, as a crash leaves behind, or this is "
                "an archive and no text: get the file again, or take them out (tr -d '\\0')"
            )
        if read < _FIRST_BLOCK:
            read += len(raw)
            nuls += raw.count(0)
            if nuls > 3 and nuls * 4 >= read:
                raise _other_encoding(name, "UTF-16 or UTF-32, for it is full of NUL bytes")
        if raw.endswith(b"\n"):
            raw = raw[:-1].removesuffix(b"\r")
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if errors == "strict":
                raise not_utf8(name, number, error.start, raw[error.start]) from error
            line = raw.decode("utf-8", errors="replace")
            replaced += 1
        yield line
    if replaced:
        logger.warning(
            "%s: %s lines held bytes that are not UTF-8; U+FFFD stands in their place", name, f"{replaced:,}"
        )


def not_utf8(name: str, line: int, position: int, byte: int) -> DataError:
    """The error of a bad byte; its position in the line counts from 0."""
    return DataError(
        f"{name}, line {line}: byte {position + 1} of the line is 0x{byte:02X}, which is not UTF-8. Correct the line, "
        "or convert the file if all of it is in another encoding (iconv -f ENCODING -t UTF-8); data.errors: replace "
        "trains on it nevertheless, and translate and evaluate take --errors replace"
    )


def check_beginning(raw: bytes, name: str) -> bytes:
    """The first line, or a first part of the file, without the byte-order mark of UTF-8. DataError where it shows
    another encoding or other line ends."""
    if raw.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise _other_encoding(name, "UTF-32")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _other_encoding(name, "UTF-16")
    if b"\n" not in raw and b"\r" in raw[:-1]:
        raise DataError(
            f"{name}: CR line ends: the file has carriage returns and no line feed, so it would be one line; convert "
            "it (tr '\\r' '\\n')"
        )
    return raw.removeprefix(codecs.BOM_UTF8)


def _other_encoding(name: str, encoding: str) -> DataError:
    return DataError(
        f"{name}, line 1: not UTF-8 (looks like {encoding}): convert the file (iconv -f ENCODING -t UTF-8)"
    )
