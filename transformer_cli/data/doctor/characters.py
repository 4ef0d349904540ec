"""Detect and repair flaws in the characters of a line."""

import html
import html.entities
import re
import unicodedata
from collections.abc import Iterator
from itertools import islice

from transformer_cli.data.tokenizer import SPACES, VANISHING

_SOFT_HYPHEN = "\u00ad"
_ZERO_WIDTH = "\u200b\u2060\ufeff" + _SOFT_HYPHEN
# Other programs end a line at these characters, and so count different numbers of lines.
_SEPARATORS = "\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"

FLAWS = {
    "separators": "lines with characters that other programs take for the end of a line",
    "controls": "lines with tabs or other control characters",
    "zero_width": "lines with characters that have no width",
    "replaced": "lines with U+FFFD, which stands where a character could not be read",
    "misread": "lines with UTF-8 that was read as Latin-1",
    "escapes": "lines with HTML escapes such as &quot;",
    "tags": "lines with tags of HTML or XML",
}
"""The flaws of a line, each with a description that follows a count."""

_PATTERNS = {
    "separators": re.compile(f"[{_SEPARATORS}]"),
    "controls": re.compile(f"[\t{''.join(re.escape(c) for c in VANISHING if c not in _ZERO_WIDTH)}]"),
    "zero_width": re.compile(f"[{_ZERO_WIDTH}]"),
    "replaced": re.compile("\ufffd"),
}
# <b>, </b>, <br/>, <p class="x">, but no link in angle brackets, and neither of x<y and y>z.
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s+[\w:-]+\s*=[^<>]*|\s*/?)>")
_ESCAPE = re.compile(r"&(?:([a-zA-Z][a-zA-Z0-9]*;)|#[0-9]{1,7};|#[xX][0-9a-fA-F]{1,6};)")


def _misread(first: int, last: int) -> str:
    """The characters that bytes from first to last become when read as Latin-1 or Windows-1252."""
    latin1 = bytes(range(first, last + 1)).decode("latin-1")
    windows = bytes(range(first, last + 1)).decode("cp1252", errors="ignore")
    return "".join(sorted({*latin1, *windows}))


_NEXT = f"[{re.escape(_misread(0x80, 0xBF))}]"
# Two bytes for accented letters (Ã¤), three for quotes and dashes (â€œ), and at least two Cyrillic letters (Ð¸Ð´).
_MISREAD = re.compile(f"(?:[ÂÃ]{_NEXT})+|â[€\x80]{_NEXT}|(?:[ÐÑ]{_NEXT}){{2,}}")

_TO_SPACE = re.compile(f"[{re.escape(''.join(c for c in SPACES if c not in ' ▁'))}]")
_TO_NOTHING = re.compile(f"[{re.escape(VANISHING + _SOFT_HYPHEN)}]")


def flaws(line: str) -> Iterator[tuple[str, int]]:
    """The keys of FLAWS that apply to a line, each with its first position in the line."""
    yield from (("escapes", found.start()) for found in islice(escapes(line), 1))
    if "<" in line and (tag := _TAG.search(line)):
        yield "tags", tag.start()
    if line.isascii() and line.isprintable():
        return
    for kind, pattern in _PATTERNS.items():
        if found := pattern.search(line):
            yield kind, found.start()
    misread = (found.start() for found in _MISREAD.finditer(line) if _read_again(found[0]))
    yield from (("misread", start) for start in islice(misread, 1))


def escapes(line: str) -> Iterator[re.Match[str]]:
    """The HTML escapes in a line: `&quot;`, `&#39;`, `&#x27;`, but no unknown name, nor one without a semicolon."""
    if "&" in line:
        yield from (found for found in _ESCAPE.finditer(line) if _unescaped(found) != found[0])


def is_decomposed(line: str) -> bool | None:
    """Whether a line has letters and accents as separate characters where a composed character exists; None if the line
    has no character that composes or decomposes."""
    if line.isascii():
        return None
    if not unicodedata.is_normalized("NFC", line):
        return True
    return None if unicodedata.is_normalized("NFD", line) else False


def repaired(line: str) -> str:
    """The line with all flaws but U+FFFD and tags repaired, in composed form (NFC), with plain spaces only and none at
    its ends."""
    while any(escapes(line)):  # again for &amp;quot;
        line = _ESCAPE.sub(_unescaped, line)
    if not line.isascii():
        line = unicodedata.normalize("NFC", _MISREAD.sub(lambda found: _read_again(found[0]) or found[0], line))
    if not line.isprintable():
        line = _TO_NOTHING.sub("", _TO_SPACE.sub(" ", line))
    return line.strip(" ")


def _unescaped(found: re.Match[str]) -> str:
    """The character that an HTML escape stands for; the escape itself if there is no such character."""
    if found[1] and found[1] not in html.entities.html5:
        return found[0]
    character = html.unescape(found[0])
    return found[0] if character == "\ufffd" else character


def _read_again(text: str) -> str | None:
    """The text that was misread as Latin-1 or Windows-1252; None if its bytes are not UTF-8."""
    try:
        return b"".join(map(_byte, text)).decode("utf-8")
    except UnicodeError:
        return None


def _byte(character: str) -> bytes:
    return character.encode("latin-1") if ord(character) < 256 else character.encode("cp1252")
