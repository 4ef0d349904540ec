"""Write configs/README.md, the reference of the configuration, from the schema: python scripts/config_reference.py."""

import sys
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from transformer_cli.config.schema import Config, Corpus, HubSet, Table

TARGET = Path(__file__).parents[1] / "configs" / "README.md"

BEGINNING = """\
# The configuration

Each experiment is one YAML file; the files beside this one are examples that load. A key left out has the default
shown here. `--set section.key=VALUE` changes one for one run, an empty VALUE resets it. Relative paths count from the
folder of the YAML file. An unknown key is an error that names the nearest valid one, and the names that other toolkits
use are answered with the name used here.

Made from `transformer_cli/config/schema.py` by `python scripts/config_reference.py`; a test keeps it true.
"""

CORPORA: dict[str, type[BaseModel]] = {
    "An entry of data.train, valid or test: text": Corpus,
    "An entry of data.train, valid or test: a table": Table,
    "An entry of data.train, valid or test: a data set": HubSet,
}


def reference() -> str:
    """The whole text."""
    top = [(name, field) for name, field in Config.model_fields.items() if not is_section(field)]
    parts = [BEGINNING, "## Top level\n", *(entry(name, field) for name, field in top)]
    for name, field in Config.model_fields.items():
        if is_section(field):
            section = field.annotation
            assert isinstance(section, type)
            assert issubclass(section, BaseModel)
            parts += [f"\n## {name}\n", f"{section.__doc__}\n"]
            parts += entries(section)
        if name == "data":
            for title, corpus in CORPORA.items():
                parts += [f"\n### {title}\n", f"{corpus.__doc__}\n"]
                parts += entries(corpus)
    return "\n".join(parts) + "\n"


def entries(section: type[BaseModel], prefix: str = "") -> list[str]:
    """Each key of a section; those of a section inside it with the name of that in front."""
    lines = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            lines += [f"- **`{prefix}{name}`**  \n  {field.annotation.__doc__}"]
            lines += entries(field.annotation, f"{prefix}{name}.")
        else:
            lines.append(entry(prefix + name, field))
    return lines


def is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def entry(name: str, field: FieldInfo) -> str:
    words = " ".join((field.description or "").split())
    return f"- **`{name}`** {allowed(field)}{default(field)}  \n  {words}"


def allowed(field: FieldInfo) -> str:
    choices = [choice for choice in options(field.annotation) if choice is not None]
    return " | ".join(f"`{choice}`" for choice in choices) + ", " if choices else ""


def options(annotation: Any) -> list[Any]:
    """The literal values of a type, through unions and lists."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if isinstance(annotation, UnionType) or get_origin(annotation) is tuple:
        return [choice for part in get_args(annotation) for choice in options(part)]
    return []


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "no default"
    value = field.default
    if value is None:
        return "default: left out"
    if isinstance(value, bool):
        return f"default `{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"default `[{', '.join(map(str, value))}]`"
    return f"default `{value}`"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
    print(f"wrote {TARGET}", file=sys.stderr)
