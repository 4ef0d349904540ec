"""Read JSON files: JSON lines, line by line, or one document with a list of objects, which is read as a whole."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_cli.data.lines import Errors, read_lines
from transformer_cli.errors import DataError

_SURROGATE = re.compile("[\ud800-\udfff]")


def json_lines(path: Path, errors: Errors = "strict") -> Iterator[tuple[int, Any]]:
    """The number and value of each line. DataError for a line that is not JSON."""
    for number, line in enumerate(read_lines(path, errors), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = _reason(error) if line.strip() else "it is blank"
            raise DataError(f"{path}, line {number}: this is no JSON ({reason}); correct the line") from error
        yield number, _checked(value, f"{path}, line {number}", errors) if "\\u" in line else value


def json_objects(path: Path, errors: Errors = "strict") -> Iterator[tuple[int, Any]]:
    """The items of a list, numbered from 1. The list is the document itself, or the first value of an object that is a
    list of objects. DataError if the text is not JSON or has no such list."""
    text = "\n".join(read_lines(path, errors))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(
            f"{path}{line}: this is no JSON ({_reason(error)}); correct it, or for an object a line add format: jsonl"
        ) from error
    if isinstance(document, dict):
        lists = (value for value in document.values() if isinstance(value, list) and value)
        document = next((items for items in lists if isinstance(items[0], dict)), None)
    if not isinstance(document, list):
        raise DataError(f"{path}: there is no list of objects in it; for an object a line add format: jsonl")
    escaped = "\\u" in text
    for number, value in enumerate(document, 1):
        yield number, _checked(value, f"{path}, record {number}", errors) if escaped else value


def _reason(error: Exception) -> str:
    """The reason of a JSON error, without its position."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    return "it is nested too deep" if isinstance(error, RecursionError) else "a number in it has too many digits"


def _checked(value: Any, where: str, errors: Errors) -> Any:
    """The value, checked for lone surrogates, which only `\\u` escapes can produce: DataError if `strict`, else each
    becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False)
    if not _SURROGATE.search(text):
        return value
    if errors == "strict":
        raise DataError(f"{where}: \\ud800 to \\udfff are halves of characters, and one stands alone: correct it")
    return json.loads(_SURROGATE.sub("\ufffd", text))
