"""Read compressed files: gzip, bzip2, xz and zstd, recognised by their first bytes, not by their names."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from transformer_cli.config.corpora import suffix_of_content
from transformer_cli.config.documents import DOCUMENTS, OFFICE_DOCUMENT, PDF, TRANSLATION_MEMORY
from transformer_cli.errors import DataError

Compression = Literal["gzip", "bzip2", "xz", "zstd"]

# No UTF-8 text begins with these bytes. Text may begin with `BZh`, so bzip2 is recognised by its first block as well.
_BEGINNINGS: dict[bytes, Compression] = {
    b"\x1f\x8b\x08": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
# Archives are recognised as well: reading one as text would not reliably give a clear error.
_ZIP = b"PK\x03\x04"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # Word and Excel before 2007
_ARCHIVES = {_ZIP: "zip", b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!\x1a\x07": "rar"}
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
_LONGEST = 10  # bytes needed to recognise any of these
_CHUNK = 1 << 16


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, decompressed if it is compressed. DataError, also while reading, if the file
    cannot be read, is an archive or a document of another program, or is damaged or truncated."""
    found: Compression | None = None
    try:
        with path.open("rb") as file:
            beginning = file.peek(_LONGEST)
            if document := _document(path, beginning):
                raise DataError(f"{path} is {document}")
            for magic, name in _ARCHIVES.items():
                if beginning.startswith(magic):
                    raise DataError(
                        f"{path} is a {name} archive and no text: unpack it, and name the file that is in it"
                    )
            found = compression(beginning)
            with _decompressed(file, found) as stream:
                yield stream
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(path, found, error) from error
    except OSError as error:
        if error.errno is None and found is not None:
            raise _damaged(path, found, error) from error
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def compression(beginning: bytes) -> Compression | None:
    """The compression that the first bytes of a file show; None if there is none."""
    if beginning[:3] == b"BZh" and beginning[4:10] in _BZIP2_BLOCKS:
        return "bzip2"
    return next((name for magic, name in _BEGINNINGS.items() if beginning.startswith(magic)), None)


def _document(path: Path, beginning: bytes) -> str | None:
    """What a file of another program is, and how to make text of it; None for text and other files."""
    named = DOCUMENTS.get(suffix_of_content(path))
    if beginning.startswith(_ZIP) and (b"[Content_Types].xml" in beginning or beginning[30:38] == b"mimetype"):
        return named or OFFICE_DOCUMENT
    if beginning.startswith(_OLE):
        return named or OFFICE_DOCUMENT
    if beginning.startswith(b"%PDF-"):
        return PDF
    xml = beginning[:1024].removeprefix(codecs.BOM_UTF8)
    is_memory = xml.startswith(b"<?xml") and (b"<tmx" in xml or b"<xliff" in xml)
    return TRANSLATION_MEMORY if is_memory or named == TRANSLATION_MEMORY else None


def _decompressed(file: io.BufferedReader, found: Compression | None) -> BinaryIO:
    match found:
        case "gzip":
            return cast(BinaryIO, gzip.GzipFile(fileobj=file))
        case "bzip2":
            return io.BufferedReader(_Streams(file, bz2.BZ2Decompressor), _CHUNK)
        case "xz":
            return io.BufferedReader(_Streams(file, lzma.LZMADecompressor), _CHUNK)
        case "zstd":
            import pyarrow  # takes 0.1 s, so only where needed

            return io.BufferedReader(pyarrow.CompressedInputStream(file, "zstd"), _CHUNK)
    return file


class _Streams(io.RawIOBase):
    """Concatenated compressed streams, read as one. The readers of the standard library silently ignore bytes after a
    stream that do not begin another one; this one raises the decompressor's error."""

    def __init__(self, file: io.BufferedReader, new: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        self._file = file
        self._new = new
        self._decompressor = new()

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        while True:
            raw = b""
            if self._decompressor.eof:
                if not (raw := self._behind(self._decompressor.unused_data)):
                    return 0
                self._decompressor = self._new()
            elif self._decompressor.needs_input and not (raw := self._file.read(_CHUNK)):
                raise EOFError("it ends within a stream")
            if text := self._decompressor.decompress(raw, len(buffer)):
                buffer[: len(text)] = text
                return len(text)

    def _behind(self, raw: bytes) -> bytes:
        """The bytes after the end of a stream, without zero bytes, which may pad an xz file."""
        while not (raw := raw.lstrip(b"\0")):
            if not (raw := self._file.read(_CHUNK)):
                break
        return raw


def _damaged(path: Path, found: Compression | None, error: Exception) -> DataError:
    return DataError(
        f"{path} is compressed by {found}, and damaged or cut off ({error}): get it again, or unpack what is left of it"
    )
