"""Load a YAML file and `--set` overrides into a frozen `Config` with absolute paths, or report all errors at once.

The YAML text becomes plain values, each with its place in the file. The overrides change these values, and the schema
validates them. Each error becomes one line in plain words, with its place.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from transformer_cli.config import hints
from transformer_cli.config.corpora import FilePath
from transformer_cli.config.paths import trouble_of, trouble_of_set
from transformer_cli.config.schema import Config, DecodingConfig, TokenizerConfig
from transformer_cli.config.yaml_text import Document, Loc, Unusable, YamlError, dotted, printable, shown, to_yaml
from transformer_cli.errors import ConfigError

# Parts of pydantic's error locations that are not keys: a key of a mapping, and the tags of unions.
_MARKS = ("[key]", "[files]", "[hold_out]", "[text]", "[table]", "[hub]", "[file]", "[list]")
CORPORA = "a list of {source: FILE, target: FILE}"
PART = f"{CORPORA}, or {{hold_out: NUMBER}}"
_FILES = {"source", "target", "path", "hub"}  # keys of a corpus that name files


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration. `overrides` are the `section.key=VALUE` of `--set`; the last one for a key wins.

    Raises ConfigError with all errors, one per line.
    """
    return load_with_places(path, overrides)[0]


def load_with_places(path: Path, overrides: Sequence[str] = ()) -> tuple[Config, dict[Loc, str]]:
    """Like `load_config`, and also the place of every value that was set: `FILE:LINE`, or the `--set`."""
    draft = _read(path, overrides)
    return _accepted(draft, _validate(draft)), {loc: place.shown for loc, place in draft.places.items()}


def load_training_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration for training: like `load_config`, but the data must be given and its files must exist.

    Raises ConfigError with all errors, one per line.
    """
    draft = _read(path, overrides)
    config = _validate(draft)
    _check_data(draft)
    return _accepted(draft, config)


def dump_config(config: Config) -> str:
    """YAML with every key, in the order of the schema; loading it gives an equal `Config`."""
    return to_yaml(config.model_dump())


def config_from_plain(values: Mapping[str, Any]) -> Config:
    """The configuration stored in a model file as plain values. ConfigError if this version cannot read it."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(str(error)) from error


def tokenizer_settings(**values: Any) -> TokenizerConfig:
    """Tokenizer settings from command-line flags. ConfigError if they are invalid."""
    try:
        return TokenizerConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_about_flag(error.errors()[0])) from error


def override_decoding(settings: DecodingConfig, changes: Mapping[str, Any]) -> DecodingConfig:
    """Decoding settings with some keys changed by command-line flags. ConfigError if they are invalid."""
    try:
        return DecodingConfig.model_validate({**settings.model_dump(), **changes})
    except ValidationError as error:
        detail = error.errors()[0]
        if detail["type"] == "conflict":
            words = detail["ctx"]["message"]
            for key in DecodingConfig.model_fields:
                words = words.replace(f"{key} ", f"--{key.replace('_', '-')} ")
            raise ConfigError(words) from error
        raise ConfigError(_about_flag(detail)) from error


def _about_flag(detail: ErrorDetails) -> str:
    if detail["type"] == "conflict":
        words: str = detail["ctx"]["message"]
        return words
    flag = "--" + str(detail["loc"][0]).replace("_", "-").replace("symbols", "symbol")  # repeatable
    return f"{flag} {_wanted(detail, detail['loc'])}, not {shown(detail['input'])}"


# --- An unvalidated configuration -------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """The place of a value. Places sort by (group, position): the lines of the file, then the overrides in order."""

    group: int
    position: int
    shown: str
    key: str = ""
    """The key of an override, which messages then need not repeat."""


@dataclass
class _Draft:
    """Plain values, their places, and the errors so far."""

    path: Path
    tree: dict[str, Any] = field(default_factory=dict)
    places: dict[Loc, _Place] = field(default_factory=dict)
    errors: list[tuple[_Place, str]] = field(default_factory=list)
    meant: set[str] = field(default_factory=set)
    """Keys that unknown keys probably stand for; they are not reported as missing."""

    def line(self, number: int) -> _Place:
        """The place of a line of the file; 0 is the whole file."""
        return _Place(0, number, f"{self.path}:{number}" if number else str(self.path))

    def report(self, loc: Loc, words: str, at: _Place | None = None) -> None:
        """Add an error about `loc`; `at` defaults to the place of the value or of its nearest enclosing value."""
        place = at or self.nearest(loc)
        key = dotted(loc)
        subject = "" if key in ("", place.key) else f"{key}: "
        self.errors.append((place, f"{place.shown}: {subject}{words}"))

    def nearest(self, loc: Loc) -> _Place:
        while loc and loc not in self.places:
            loc = loc[:-1]
        return self.places.get(loc, self.line(0))


def _read(path: Path, overrides: Sequence[str]) -> _Draft:
    draft = _Draft(path)
    text = _text(path)
    try:
        document = Document(text)
    except YamlError as error:
        raise ConfigError(f"{path}:{error.line}: column {error.column}: {error.words}") from None
    if document.empty:
        raise ConfigError(f"{path}: the file is empty; it needs at least a data section")
    draft.places = {loc: draft.line(line) for loc, line in document.lines.items()}
    for flaw in document.flaws:
        draft.report(flaw.loc, flaw.words, draft.line(flaw.line))
    if isinstance(document.value, dict):
        draft.tree = document.value
    elif not isinstance(document.value, Unusable):
        draft.report((), f"must hold `key: value` lines at the top, not {shown(document.value)}")
    for index, override in enumerate(overrides):
        _override(draft, index, override)
    return draft


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; give the YAML file in it") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        raise ConfigError(f"{path}:{line}: not UTF-8 text (byte 0x{byte:02x}); save the file as UTF-8") from None


def _accepted(draft: _Draft, config: Config | None) -> Config:
    if draft.errors:
        ordered = sorted(draft.errors, key=lambda error: error[0][:2])
        raise ConfigError("\n".join(words for _, words in ordered))
    assert config is not None, "a refused configuration has errors"
    return config


# --- Overrides --------------------------------------------------------------------------------------------------------


def _override(draft: _Draft, index: int, override: str) -> None:
    """Apply one `section.key=VALUE` to the draft; an empty VALUE removes the key."""
    key, equals, value = override.partition("=")
    key = key.strip()
    place = _Place(1, index, f"--set {printable(override)}", key)
    loc = _path_of(key)
    if not equals:
        draft.errors.append((place, f"{place.shown}: has no `=`; write section.key=VALUE"))
    elif loc is None:
        draft.errors.append((place, f"{place.shown}: {_unknown(key)}"))
        draft.meant.update(hints.meant(key))
    else:
        try:
            _put(draft, loc, Document(value), place)
        except YamlError as error:
            draft.errors.append((place, f"{place.shown}: {error.words}"))


def _path_of(key: str) -> Loc | None:
    if key in hints.KEYS:
        return tuple(key.split("."))
    if key.startswith("data.test."):  # its keys are free names, which may have dots
        name = key.removeprefix("data.test.")
        held_out = name.removesuffix(".hold_out")
        return ("data", "test", name) if held_out == name else ("data", "test", held_out, "hold_out")
    return None


def _put(draft: _Draft, loc: Loc, document: Document, place: _Place) -> None:
    parent: Any = draft.tree
    for depth, part in enumerate(loc[:-1], 1):
        draft.places.setdefault(loc[:depth], place)
        if isinstance(parent.get(part), list):
            parent[part] = {}  # `data.valid` may be a list or a mapping
        parent = parent.setdefault(part, {})
        if not isinstance(parent, dict):
            return  # the schema rejects the value here
    draft.places = {other: known for other, known in draft.places.items() if other[: len(loc)] != loc}
    if document.empty:
        parent.pop(loc[-1], None)
        return
    draft.places[loc] = place
    parent[loc[-1]] = document.value
    for flaw in document.flaws:
        draft.report((*loc, *flaw.loc), flaw.words)


# --- Validation by the schema -----------------------------------------------------------------------------------------


def _validate(draft: _Draft) -> Config | None:
    """Validate the draft. Returns the configuration, or None after reporting the schema's errors.

    Unknown keys are reported and removed, and the rest is validated again, because pydantic does not check a section
    with an unknown key for conflicts. Invalid values are kept: removing them could cause conflicts with defaults.
    """
    tree = {"name": draft.path.stem, **draft.tree}
    try:
        return Config.model_validate(tree, context={"base": _base(draft)})
    except ValidationError as error:
        details = [
            ErrorDetails({**detail, "loc": tuple(part for part in detail["loc"] if part not in _MARKS)})
            for detail in error.errors(include_url=False)
        ]
    unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
    for detail in unknown:
        _report_unknown(draft, detail["loc"], detail["input"])
        _take_out(draft.tree, detail["loc"])
    if unknown:
        return _validate(draft)
    for detail in details:
        if not isinstance(detail["input"], Unusable):
            _report_refused(draft, detail)
    return None


def _base(draft: _Draft) -> Path:
    return draft.path.absolute().parent


def _take_out(tree: Any, loc: Loc) -> None:
    for part in loc[:-1]:
        tree = tree[part]
    del tree[loc[-1]]


def _report_unknown(draft: _Draft, loc: Loc, value: Any) -> None:
    """Report an unknown key, and those of the keys below it that would still be unknown after renaming it."""
    key = dotted(loc)
    keys = hints.meant(key)
    draft.report(loc, _unknown(key))
    draft.meant.update(keys)
    for name, inner in value.items() if isinstance(value, dict) else ():
        if not any(near == "data.test" or f"{near}.{name}" in hints.KEYS for near in keys):
            _report_unknown(draft, (*loc, name), inner)


def _unknown(key: str) -> str:
    if hint := hints.suggest(key):
        return f"unknown key; {hint}"
    if names := hints.siblings(key):
        return f"unknown key; known here: {', '.join(names)}"
    return "unknown key"


def _report_refused(draft: _Draft, detail: ErrorDetails) -> None:
    loc, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    if kind == "conflict":
        _report_conflict(draft, loc, context["key"], context["message"])
    elif loc == ("name",) and "name" not in draft.tree:
        words = f"left out, and the file's own name {shown(detail['input'])} will not do: add a name of {_WANTED_NAME}"
        draft.report(loc, words)
    elif kind == "missing" and isinstance(loc[-1], str):
        if dotted(loc) not in draft.meant:
            draft.report(loc, "missing")
    elif kind == "union_tag_not_found" and any(key.startswith(f"{dotted(loc)}.") for key in draft.meant):
        pass  # its keys are misspelt, which is reported already
    elif kind == "missing":  # an item of a list of fixed length
        draft.report(loc[:-1], f"{_wanted_list(loc[:-1])}, not {shown(detail['input'])}")
    else:
        draft.report(loc, f"{_wanted(detail, loc)}, not {shown(detail['input'])}{_remedy(detail)}")


def _report_conflict(draft: _Draft, loc: Loc, key: str, message: str) -> None:
    """Report conflicting keys at the place of `key` or, if it was not set, of another key that the message names."""
    named = [(*loc, *word.split(".")) for word in (key, *re.findall(r"[a-z_]+(?:\.[a-z_]+)*", message))]
    place = next((draft.places[other] for other in named if other in draft.places), None)
    # A message about several sections names its keys in full.
    draft.report(named[0] if loc else (), message, place)


_NUMBERS = {
    "int_type": re.compile(r"[-+]?(?:0|[1-9][0-9]*)"),
    "float_type": re.compile(r"[-+]?(?:0|[1-9][0-9]*)(\.[0-9]*)?(e[-+]?[0-9]+)?", re.IGNORECASE),
}
_WANTED_NAME = "letters, digits and . _ + - (at most 100, a letter or digit first)"
_WANTED_LANGUAGE = "a language tag such as en or pt-BR"

_WANTED = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "is_instance_of": "must be a file name",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:.10g}",
    "less_than_equal": "must be at most {le:.10g}",
    "literal_error": "must be {expected}",
}


def _wanted(detail: ErrorDetails, loc: Loc) -> str:
    match detail["type"]:
        case "tuple_type" | "too_short" | "too_long":
            return "must be a file name or a list of them" if loc[-1] in _FILES and len(loc) > 3 else _wanted_list(loc)
        case "union_tag_not_found":
            return (
                "must name one kind of text: source and target (files of lines), path (a table) or hub (a Hugging Face "
                "data set)"
            )
        case "dict_type":
            return f"must be names with {PART} each"
        case "model_type" if isinstance(loc[-1], int):
            return f"must be {CORPORA.removeprefix('a list of ')}"
        case "model_type":
            return "must be a mapping of keys to values"
        case "string_pattern_mismatch" if loc[-2:-1] == ("user_defined_symbols",):
            return "must be a text without spaces"
        case "string_pattern_mismatch" | "string_too_long" | "string_unicode":
            return f"must be {_WANTED_LANGUAGE if str(loc[-1]).endswith('_lang') else _WANTED_NAME}"
        case kind if kind in _WANTED:
            return _WANTED[kind].format(**detail.get("ctx", {})).replace("'", "")
        case _:
            return detail["msg"]


def _wanted_list(loc: Loc) -> str:
    section, name = str(loc[0]), str(loc[1])
    if name == "user_defined_symbols":
        return "must be a list of texts without spaces"
    default = Config.model_fields[section].annotation.model_fields[name].default  # type: ignore[union-attr]
    if default:
        return f"must be a list such as [{', '.join(map(str, default))}]"
    return f"must be {CORPORA if name == 'train' else PART}"


def _remedy(detail: ErrorDetails) -> str:
    found = detail["input"]
    if found is None:
        return "; give it a value or leave it out"
    if detail["type"] == "string_type" and isinstance(found, bool | int | float):
        return "; put it in quotes"
    number = _NUMBERS.get(detail["type"])
    if number and isinstance(found, str) and number.fullmatch(found):
        return "; write it without quotes"
    if detail["type"] == "int_type" and isinstance(found, float) and found.is_integer() and abs(found) < 1e15:
        return f"; write {int(found)}"
    return ""


# --- The data ---------------------------------------------------------------------------------------------------------


def _check_data(draft: _Draft) -> None:
    """Report missing data. Looks at the plain values, since there may be no valid `Config` because of other errors."""
    data = draft.tree.get("data", {})
    if not isinstance(data, dict):
        return
    for name in ("train", "valid"):
        if data.get(name, []) == [] and f"data.{name}" not in draft.meant:
            draft.report(("data", name), f"needed to train; give {CORPORA if name == 'train' else PART}")
    adapter: TypeAdapter[Path] = TypeAdapter(FilePath)
    tokenizer = draft.tree.get("tokenizer")
    models = tokenizer if isinstance(tokenizer, dict) else {}
    given = [(("tokenizer", key), models[key]) for key in ("model", "target_model") if isinstance(models.get(key), str)]
    for loc, name in (*given, *_named_files(data, ("data",))):
        try:
            path = adapter.validate_python(name, context={"base": _base(draft)})
        except ValidationError:
            continue  # the schema reports it
        if trouble := trouble_of_set(name, path) if loc[-1] == "hub" else trouble_of(path):
            draft.report(loc, trouble)


def _named_files(value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _named_files(inner, (*loc, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _named_files(inner, (*loc, index))
    elif isinstance(value, str) and value and _FILES & set(loc[-2:]) and int in map(type, loc[-3:-1]):
        yield loc, value
