"""Parse and write a small, predictable subset of YAML, with the line of every value.

Unquoted words mean what a configuration needs: `1e-4` is a number, `no` is Norwegian. Features that invite mistakes or
attacks are rejected: duplicate keys, anchors and aliases, tags, a second document, deep nesting.
"""

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, NamedTuple

import yaml

Loc = tuple[str | int, ...]
"""The path to a value: keys of mappings and indices of lists."""

DEEPEST = 20
"""Maximum nesting; a configuration has six levels."""


class YamlError(Exception):
    """Text that is not YAML, or uses a rejected feature, so that nothing of it can be read. Line and column count from
    1."""

    def __init__(self, line: int, column: int, words: str):
        super().__init__(words)
        self.line, self.column, self.words = line, column, words


class Flaw(NamedTuple):
    """An invalid value or key in text that is otherwise readable."""

    loc: Loc
    line: int
    words: str


class Unusable:
    """The placeholder for a value with a flaw."""

    def __repr__(self) -> str:
        return "…"


class Document:
    """The plain values of a text, the line of each (of its key, in a mapping), and the flaws.

    `value` consists of dict, list, str, int, float, bool and None, and of Unusable where there is a flaw. Keys are the
    text as written, so that `no`, `2016` and `null` can be names. `empty` is true if there is nothing but whitespace
    and comments. Raises YamlError.
    """

    def __init__(self, text: str):
        self.lines: dict[Loc, int] = {}
        self.flaws: list[Flaw] = []
        node = _compose(text)
        self.empty = node is None
        self.value: Any = self._plain(node, ()) if node else None

    def _plain(self, node: yaml.Node, loc: Loc) -> Any:
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self._placed(item, (*loc, index), item) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            if node.tag == f"{_TAG}str":
                return node.value
            if (word := _WORDS.get(node.tag)) and re.fullmatch(word.pattern, node.value):
                return word.convert(node.value)
        tag = node.tag.replace(_TAG, "!!")
        self.flaws.append(Flaw(loc, _line(node), f"the tag {tag!r} is not read: write the plain value"))
        return Unusable()

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.flaws.append(Flaw(loc, _line(key), "a key must be a word, not a list or a mapping"))
                continue
            here = (*loc, key.value)
            if key.value in values:
                first = self.lines[here]
                words = "given twice" if first == _line(key) else f"given twice, first in line {first}: keep one"
                self.flaws.append(Flaw(here, _line(key), words))
            values[key.value] = self._placed(value, here, key)
        return values

    def _placed(self, node: yaml.Node, loc: Loc, shown: yaml.Node) -> Any:
        self.lines[loc] = _line(shown)
        return self._plain(node, loc)


def to_yaml(value: dict[str, Any]) -> str:
    """YAML of plain values and paths, one key per line in the given order; `Document` reads the same values back."""
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=float("inf")
    )


# --- The types of unquoted words --------------------------------------------------------------------------------------


class _Word(NamedTuple):
    pattern: str
    convert: Callable[[str], Any]


_TAG = "tag:yaml.org,2002:"

# Anything else is text. In YAML 1.1, `no` would be false, `017` fifteen, `12:30` a number in base 60 and `1e-4` text.
# An integer of more than 18 digits, too long for any key, counts as a float, so the schema rejects it.
_WORDS = {
    f"{_TAG}null": _Word(r"|~|null|Null|NULL", lambda _: None),
    f"{_TAG}bool": _Word(r"true|True|TRUE|false|False|FALSE", lambda word: word.lower() == "true"),
    f"{_TAG}int": _Word(r"[-+]?(0|[1-9][0-9]{0,17})", int),
    f"{_TAG}float": _Word(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
}


class _Loader(yaml.SafeLoader):
    """SafeLoader's grammar, with only the types of _WORDS."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that we or other YAML readers would take for another type."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _word in _WORDS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_word.pattern})\Z"), None)
    _Dumper.add_implicit_resolver(_tag, re.compile(rf"(?:{_word.pattern})\Z"), None)


def _represent(dumper: yaml.SafeDumper, text: str | PurePath) -> yaml.ScalarNode:
    # In any other style PyYAML folds U+0085 and U+2028, and they are not read back as written.
    style = None if str(text).isprintable() else '"'
    return dumper.represent_scalar(f"{_TAG}str", str(text), style)


_Dumper.add_representer(str, _represent)
_Dumper.add_multi_representer(PurePath, _represent)


# --- Grammar, and messages for syntax errors --------------------------------------------------------------------------


def _compose(text: str) -> yaml.Node | None:
    try:
        _refuse_references(text)
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise _explained(error, text) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        raise YamlError(line, column, f"the character {text[error.position]!r} cannot stand here: remove it") from None
    except (ValueError, OverflowError):
        raise YamlError(1, 1, "somewhere in the text an escape such as \\UFFFFFFFF names no character") from None


def _refuse_references(text: str) -> None:
    """Reject anchors, aliases, a second document and deep nesting before PyYAML's recursive composer meets them."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if depth > DEEPEST:
            raise _at(event.start_mark, f"nested more than {DEEPEST} levels deep")
        if documents > 1:
            raise _at(event.start_mark, "a second document (---) starts here: keep one")
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            words = "anchors (&) and aliases (*) are not read: write the value out, or quote text that starts so"
            raise _at(event.start_mark, words)


_NO_COLON = "a key must be followed by `: ` and its value: a colon, or the space after it, is missing here"

# A part of PyYAML's message, our message instead, and whether to point to the start of the construct.
_PLAIN_WORDS = (
    (r"'\t' that cannot start", "a tab; YAML takes only spaces here", False),
    ("cannot start any token", "text cannot start with this character: put the text in quotes", False),
    ("mapping values are not allowed", "`: ` cannot stand here: check the indentation, or quote the text", False),
    ("could not find expected ':'", _NO_COLON, True),
    ("sequence entries are not allowed", "a list item `- ` cannot stand here: check the indentation", False),
    ("expected ',' or ']'", "the list opened here with [ is not closed with ], or lacks a comma", True),
    ("expected ',' or '}'", "the mapping opened here with { is not closed with }, or lacks a comma", True),
    ("found unexpected end of stream", "the quote opened here is not closed", True),
    ("escape", "a backslash in double quotes starts an escape: use single quotes", False),
    ("expected <block end>", "does not fit the lines above: check indentation and quotes", False),
    ("expected '<document start>'", "does not fit the lines above: check indentation and quotes", False),
    ("undefined tag handle", "text cannot start with !: put it in quotes", False),
)


def _explained(error: yaml.MarkedYAMLError, text: str) -> YamlError:
    mark, problem = error.problem_mark, error.problem or ""
    assert mark is not None, "PyYAML's scanner and parser set it"
    start = error.context_mark or mark
    lines = text.split("\n")
    for number, line in enumerate(lines[start.line : mark.line + 1], start.line + 1):
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent:
            return YamlError(number, indent.index("\t") + 1, "a tab is used for indentation; YAML takes only spaces")
    late = "mapping values are not allowed" in problem or "expected <block end>" in problem
    if late and (place := _missing_colon(lines[: mark.line + 1])):
        return YamlError(*place, _NO_COLON)
    for part, words, at_start in _PLAIN_WORDS:
        if part in problem:
            return _at(start if at_start else mark, words)
    return _at(mark, f"this is not YAML ({problem})")


def _missing_colon(lines: list[str]) -> tuple[int, int] | None:
    """Line and column of a key without a colon that causes an error in the last of these lines, if there is one.

    YAML takes such a key for text that continues on the next line, and reports the error only there.
    """
    place, deepest = None, _text_of(lines[-1])[0]
    for number in range(len(lines) - 1, 0, -1):
        column, words = _text_of(lines[number - 1])
        if not words:
            continue
        if column > deepest or re.search(r"^---|^%|:(\s|$)|[\"'\[\]{}]", words):
            break
        place, deepest = (number, column + 1), column
    return place


def _text_of(line: str) -> tuple[int, str]:
    """The column where the text of a line begins, and the text, without list dashes and comment."""
    text = re.sub(r"(^|\s)#.*", "", line).rstrip()
    words = re.sub(r"^(\s|-(?=\s|$))+", "", text)
    return len(text) - len(words), words


def _at(mark: Any, words: str) -> YamlError:
    return YamlError(mark.line + 1, mark.column + 1, words)


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


# --- Values in messages -----------------------------------------------------------------------------------------------


def dotted(loc: Loc) -> str:
    """Format a location as `data.train[0].source`; a key that is not a plain word is quoted."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(r"[\w.+-]+", part) else repr(part))
    return text


def shown(value: Any) -> str:
    """Format a value as in YAML, shortened to 80 characters."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case list() | tuple():
            text = f"[{', '.join(map(shown, value))}]"
        case dict():
            text = f"{{{', '.join(f'{dotted((key,))}: {shown(inner)}' for key, inner in value.items())}}}"
        case _:
            text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def printable(text: str) -> str:
    """Text for one line of an error message: as it is if printable, else its repr."""
    return text if text.isprintable() else repr(text)
