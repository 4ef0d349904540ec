"""What a line is, and how the lines of two files become pairs.

The text is UTF-8 whatever the locale. A line ends at a line feed and nowhere else: a carriage return before it is
dropped, one anywhere else is part of the line, like U+2028, U+0085 and the other characters that some readers take for
line ends. The last line may lack its line feed; a byte-order mark at the start is dropped.
"""

import codecs
import logging
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from transformer_cli.config.schema import Corpus
from transformer_cli.errors import DataError

logger = logging.getLogger(__name__)

Errors = Literal["strict", "replace"]

# The bytes at the start of a file within which NULs give away UTF-16 and UTF-32 without a byte-order mark.
_FIRST_BLOCK = 4096


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_pairs(corpora: Sequence[Corpus], errors: Errors = "strict") -> Iterator[Pair]:
    """The pairs of one corpus after the other. A corpus whose files differ in length ends in a DataError that has
    counted both to their ends."""
    for corpus in corpora:
        yield from _aligned(corpus, errors)


def _aligned(corpus: Corpus, errors: Errors) -> Iterator[Pair]:
    sources, targets = read_lines(corpus.source, errors), read_lines(corpus.target, errors)
    for number, (source, target) in enumerate(zip_longest(sources, targets)):
        if source is None or target is None:
            shorter, longer = number, number + 1 + sum(1 for _ in (targets if source is None else sources))
            lengths = (shorter, longer) if source is None else (longer, shorter)
            raise DataError(
                f"{corpus.source} has {lengths[0]} lines and {corpus.target} has {lengths[1]}: line N of the one must "
                "be the translation of line N of the other"
            )
        yield Pair(source, target)


def read_lines(path: Path, errors: Errors = "strict") -> Iterator[str]:
    """The lines of a file, without their ends. DataError if it cannot be read or is not UTF-8."""
    try:
        with path.open("rb") as stream:
            yield from lines_of(stream, str(path), errors)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def lines_of(stream: BinaryIO, name: str, errors: Errors = "strict") -> Iterator[str]:
    """The lines of an open file or pipe, each as soon as it has arrived, without their ends.

    `name` is what the messages call the stream. Bytes that are not UTF-8 are a DataError, or, with `replace`, become
    U+FFFD and are counted in the log. UTF-16, UTF-32 and lone carriage returns as line ends are always a DataError.
    """
    read = nuls = replaced = 0
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = _first_line(raw, name)
            if not raw:  # nothing but a byte-order mark
                return
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
                raise DataError(
                    f"{name}, line {number}: byte {error.start + 1} of the line is 0x{raw[error.start]:02X}, which is "
                    "not UTF-8. Correct the line, or convert the file if all of it is in another encoding (iconv -f "
                    "ENCODING -t UTF-8); translate and evaluate also take --errors replace"
                ) from error
            line = raw.decode("utf-8", errors="replace")
            replaced += 1
        yield line
    if replaced:
        logger.warning(
            "%s: %s lines held bytes that are not UTF-8; U+FFFD stands in their place", name, f"{replaced:,}"
        )


def _first_line(raw: bytes, name: str) -> bytes:
    """The first line without the byte-order mark of UTF-8; other encodings and line ends are found out here."""
    if raw.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise _other_encoding(name, "UTF-32")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _other_encoding(name, "UTF-16")
    if not raw.endswith(b"\n") and b"\r" in raw[:-1]:
        raise DataError(
            f"{name}: CR line ends: the file has carriage returns and no line feed, so it would be one line; convert "
            "it (tr '\\r' '\\n')"
        )
    return raw.removeprefix(codecs.BOM_UTF8)


def _other_encoding(name: str, encoding: str) -> DataError:
    return DataError(
        f"{name}, line 1: not UTF-8 (looks like {encoding}): convert the file (iconv -f ENCODING -t UTF-8)"
    )
