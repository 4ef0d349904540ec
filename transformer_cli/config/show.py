"""Show a configuration: every value with its origin, the differences from the defaults, and the JSON Schema."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_cli.config.left_out import embedding_dropout, save_steps
from transformer_cli.config.load import load_with_places
from transformer_cli.config.schema import Config, Section
from transformer_cli.config.yaml_text import Loc, printable, to_yaml

_INDENT = "  "
_ONE_OF_KINDS = ("valid",)  # keys that hold either a section (`hold_out`) or a list
_COLUMN = 48  # column of the comments, unless a value is longer
_OF_BASE = (("tokenizer",), ("model",))  # sections whose keys, if left out, are those of `training.init_from`
_NEVER_OF_BASE = "sampling_alpha"

# Keys whose value, if left out, is computed from other keys: the value, and its origin.
_COMPUTED: dict[Loc, Callable[[Config], tuple[Any, str]]] = {
    ("model", "embedding_dropout"): lambda config: (embedding_dropout(config.model), "model.dropout"),
    ("training", "save_steps"): lambda config: (save_steps(config.training), "training.valid_steps"),
}


def show_config(path: Path, overrides: Sequence[str] = ()) -> Iterator[str]:
    """Lines of YAML with every key and, as a comment, the origin of its value: a line of the file, a `--set`, the
    default, or the keys it is computed from. They can be loaded as a configuration again, which is equal: a key whose
    value is computed, or taken from `training.init_from`, is itself a comment.

    Raises ConfigError with all errors.
    """
    config, places = load_with_places(path, overrides)
    return _section(config, (), config, places)


def _section(section: Section, around: Loc, config: Config, places: Mapping[Loc, str]) -> Iterator[str]:
    """The lines of a section at the location `around`."""
    plain = section.model_dump()
    for key, value in section:
        loc = (*around, key)
        if isinstance(value, Section):
            lines = list(_section(value, loc, config, places))
            is_empty = all(line.lstrip().startswith("#") for line in lines)
            yield _line(f"{key}: {{}}" if is_empty else f"{key}:", around)
            yield from lines
        elif loc == ("data", "test") and value:
            yield _line(f"{key}:", around)
            for name, part in plain[key].items():
                yield from _value(name, part, loc, _place((*loc, name), places))
        elif loc == ("name",) and loc not in places:
            yield from _value(key, value, around, "computed: the name of the file")
        elif key in section.model_fields_set:
            yield from _value(key, plain[key], around, _place(loc, places))
        elif config.training.init_from is not None and around in _OF_BASE and key != _NEVER_OF_BASE:
            yield _with_source(f"# {key}:", around, "from training.init_from")
        elif loc in _COMPUTED:
            computed, source = _COMPUTED[loc](config)
            yield _with_source(f"# {to_yaml({key: computed}).rstrip()}", around, f"computed: {source}")
        else:
            yield from _value(key, plain[key], around, "default")


def _value(key: str, value: Any, around: Loc, source: str) -> Iterator[str]:
    first, *rest = to_yaml({key: value}).splitlines()
    yield _with_source(first, around, source)
    yield from (_line(line, around) for line in rest)


def _with_source(text: str, around: Loc, source: str) -> str:
    return f"{_line(text, around):<{_COLUMN}}  # {printable(source)}"


def _line(text: str, around: Loc) -> str:
    return _INDENT * len(around) + text


def _place(loc: Loc, places: Mapping[Loc, str]) -> str:
    """The place of a value or of its nearest enclosing value that has one, as with `--set model={d_model: 64}`."""
    while loc not in places:
        loc = loc[:-1]
    return places[loc]


def differences(config: Config) -> dict[str, tuple[Any, Any]]:
    """The plain value and the default of every setting that differs from its default, by dotted key."""
    return dict(_differences(config, ()))


def _differences(section: Section, around: Loc) -> Iterator[tuple[str, tuple[Any, Any]]]:
    plain = section.model_dump(mode="json")
    for key, value in section:
        loc = (*around, key)
        field = type(section).model_fields[key]
        if isinstance(value, Section) and key not in _ONE_OF_KINDS:
            yield from _differences(value, loc)
        elif not field.is_required() and value != (default := field.get_default(call_default_factory=True)):
            yield ".".join(map(str, loc)), (plain[key], default)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the configuration file, with the docstring of each key as its description."""
    schema = _plain(Config.model_json_schema())
    # `name` defaults to the name of the file.
    schema["required"] = [key for key in schema.get("required", []) if key != "name"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _plain(node: Any) -> Any:
    """Simplify pydantic's schema: drop generated titles, line breaks in descriptions and the defaults of whole
    sections, and rename `minLength` of arrays to `minItems`."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: _plain(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    if isinstance(found.get("description"), str):
        found["description"] = " ".join(found["description"].split())
    if "$ref" in found:
        found.pop("default", None)
    if found.get("type") == "array" and "minLength" in found:
        found["minItems"] = found.pop("minLength")
    return found
