"""Read JSON files incrementally: JSON lines, or one document with a list of objects."""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from transformer_cli.data.compression import open_bytes
from transformer_cli.data.lines import Errors, check_beginning, not_utf8, read_lines
from transformer_cli.errors import DataError

_CHUNK = 1 << 16  # bytes read at a time
_LARGEST_VALUE = 1 << 26  # characters; a value that does not end within them is an error
_SURROGATE = re.compile("[\ud800-\udfff]")


def json_lines(path: Path, errors: Errors = "strict") -> Iterator[tuple[int, Any]]:
    """The number and value of each line. DataError for a line that is not JSON."""
    for number, line in enumerate(read_lines(path, errors), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = _reason(error) if line.strip() else "it is blank"
            raise DataError(f"{path}, line {number}: this is no JSON ({reason}); correct the line") from error
        yield number, _checked(value, line, f"{path}, line {number}", errors)


def json_objects(path: Path, errors: Errors = "strict") -> Iterator[tuple[int, Any]]:
    """The items of a list, numbered from 1. The list is the document itself, or the first value of an object that is a
    list of objects. DataError if the text is not JSON or has no such list."""
    with open_bytes(path) as stream:
        text = _Text(_chunks(stream, str(path), errors), str(path))
        within = text.next() == "{"
        if within:
            _enter_list(text)
        elif text.next() != "[":
            raise text.error("a list of objects should begin here")
        text.take("[")
        for number in range(1, 1 << 62):
            if text.next() == "]":
                break
            if number > 1:
                text.take(",")
            value, source = text.value()
            yield number, _checked(value, source, f"{path}, record {number}", errors)
        text.take("]")
        if within and not text.next():
            raise text.error("the object is not closed: the file is cut off")
        if not within and text.next():
            raise text.error("the list has ended, and something stands behind it: a document holds one list")


def _enter_list(text: "_Text") -> None:
    """Advance to the first value of an object that is a list of objects."""
    text.take("{")
    while text.next() != "}":
        text.value()
        text.take(":")
        if text.next() == "[" and text.begins_list_of_objects():
            return
        text.value()
        if text.next() == ",":
            text.take(",")
    raise text.error("no list of objects has been found; for an object a line add format: jsonl")


def _reason(error: Exception) -> str:
    """The reason of a JSON error, without its position, which counts from the start of the buffer."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "it is nested too deep" if isinstance(error, RecursionError) else "a number in it has too many digits"


def _checked(value: Any, source: str, where: str, errors: Errors) -> Any:
    """The value, checked for lone surrogates, which only `\\u` escapes can produce: DataError if `strict`, else each
    becomes U+FFFD."""
    if "\\u" not in source or not _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        return value
    if errors == "strict":
        raise DataError(f"{where}: \\ud800 to \\udfff are halves of characters, and one stands alone: correct it")
    return json.loads(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))


class _Text:
    """A buffered text, read on demand."""

    def __init__(self, chunks: Iterator[str], name: str) -> None:
        self._chunks = chunks
        self._name = name
        self._text = ""
        self._at = 0
        self._lines = 0  # line feeds before the buffer
        self._ended = False
        self._decode = json.JSONDecoder().raw_decode

    def next(self) -> str:
        """Skip whitespace and return the next character without consuming it; empty at the end."""
        while True:
            found = re.compile(r"[ \t\r\n]*").match(self._text, self._at)
            assert found is not None, "it matches anything"
            self._at = found.end()
            if self._at < len(self._text) or not self._read_on():
                return self._text[self._at : self._at + 1]

    def take(self, character: str) -> None:
        """Consume this character. DataError if the next one is different."""
        if self.next() != character:
            raise self.error(f"{character} should stand here")
        self._at += 1

    def begins_list_of_objects(self) -> bool:
        """Whether a list whose first item is an object comes next."""
        while not (found := re.compile(r"\[\s*(\S)").match(self._text, self._at)):
            if not self._read_on():
                return False
        return found[1] == "{"

    def value(self) -> tuple[Any, str]:
        """Consume a value, and return it with its text. DataError if it is not JSON."""
        self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
                if end < len(self._text) or self._ended or not self._read_on():  # a number might go on
                    break
            except (ValueError, RecursionError) as error:
                held = len(self._text) - self._at
                if held > _LARGEST_VALUE or not self._read_on():
                    raise self.error(f"this is no JSON ({_reason(error)})") from error
        source, self._at = self._text[self._at : end], end
        return value, source

    def error(self, words: str) -> DataError:
        line = self._lines + self._text.count("\n", 0, self._at) + 1
        return DataError(f"{self._name}, line {line}: {words}")

    def _read_on(self) -> bool:
        """Drop the consumed text and read at least as much as remains in the buffer. Returns whether there was more."""
        more = next(self._chunks, "")
        wanted = len(self._text) - self._at
        parts = [more]
        while more and sum(map(len, parts)) < wanted:
            parts.append(more := next(self._chunks, ""))
        self._lines += self._text.count("\n", 0, self._at)
        self._text, self._at = self._text[self._at :] + "".join(parts), 0
        self._ended = not more
        return any(parts)


def _chunks(stream: BinaryIO, name: str, errors: Errors) -> Iterator[str]:
    """The decoded text of a stream, in chunks."""
    decode = codecs.getincrementaldecoder("utf-8")(errors).decode
    raw = check_beginning(stream.read(_CHUNK), name)
    line, column = 1, 0  # the column counts bytes, from 0
    while True:
        try:
            text = decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            line, column = _moved(line, column, error.object[: error.start])
            raise not_utf8(name, line, column, error.object[error.start]) from error
        line, column = _moved(line, column, text.encode())
        if text:
            yield text
        if not raw:
            return
        raw = stream.read(_CHUNK)


def _moved(line: int, column: int, passed: bytes) -> tuple[int, int]:
    """The line and column after these bytes."""
    breaks = passed.count(b"\n")
    return line + breaks, len(passed) - passed.rfind(b"\n") - 1 if breaks else column + len(passed)
