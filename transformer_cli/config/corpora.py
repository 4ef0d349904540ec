"""The corpus entries of the configuration: text files, tables and Hugging Face sets; and what every section shares.

Like `schema.py`, whose part this is, it opens no file.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError


def _resolve(value: Any, info: ValidationInfo) -> Any:
    """A relative path counts from the folder of the YAML file, given as the validation context `base`."""
    if not isinstance(value, str) or not value:
        return value
    base: Path = (info.context or {}).get("base", Path())
    try:
        return base / Path(value).expanduser()
    except RuntimeError:
        raise PydanticCustomError("no_home", "must be a path; ~ names no home folder here") from None


def as_tuple(value: Any) -> Any:
    """A list as the tuple that a frozen model holds."""
    return tuple(value) if isinstance(value, list) else value


FilePath = Annotated[Path, BeforeValidator(_resolve)]
Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]  # so that no sum of them goes beyond a machine's numbers


def conflict(key: str, message: str) -> PydanticCustomError:
    """An error about several keys at once; `key` is the one whose line is shown."""
    # Braces would be read as fields of the template.
    return PydanticCustomError("conflict", "{message}", {"key": key, "message": message})


class Section(BaseModel):
    """What all sections share: frozen, strict about types, no unknown key."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


Weight = Annotated[float, Field(gt=0.0, le=1000.0)]


def _kind_of_files(value: Any) -> str:
    return "[list]" if isinstance(value, list | tuple) else "[file]"


# The tags stand in brackets so that error messages can tell them from keys.
Files = Annotated[
    Annotated[FilePath, Tag("[file]")]
    | Annotated[tuple[FilePath, ...], BeforeValidator(as_tuple), Field(min_length=1), Tag("[list]")],
    Discriminator(_kind_of_files),
]


class Corpus(Section):
    """Text files, line N of one the translation of line N of the other."""

    source: Files
    """File of source sentences, UTF-8, one a line; or a list of files, or a name with `*`, `?` or `[…]` for all that
    fit it, in the order of their names. Files compressed by gzip, xz, bzip2 or zstd are read as they are."""
    target: Files
    """Files of their translations: as many, and as many lines in each."""
    weight: Weight = 1.0
    """How often the pairs of this corpus stand in an epoch; with 0.5 another half each epoch."""


TableFormat = Literal["tsv", "csv", "jsonl", "json", "parquet"]
_FORMATS: dict[str, TableFormat] = {
    ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet",
}  # fmt: skip
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")


def language_suffix(path: Path) -> str:
    """What may be a language in a file's name, as a tag has it: `zh-tw` of ref.zh_TW.gz."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.suffix.removeprefix(".").lower().replace("_", "-")


def _column(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not number and not (isinstance(value, str) and value):
        raise PydanticCustomError("column", "must be the name of a field, or the number of a column, from 1")
    return value


Column = Annotated[str | int, PlainValidator(_column)]


class Table(Section):
    """Files in which each record is a pair."""

    path: Files
    """TSV, CSV, JSON lines, JSON (a list of objects) or Parquet: a file, a list, or a name with `*`, `?` or `[…]`."""
    source_field: Column
    """The field of the source sentence: a name, with dots for one inside another (`translation.de`). In a TSV or CSV
    whose first line holds no names: the number of the column, from 1."""
    target_field: Column
    """The field of its translation."""
    format: TableFormat | None = None
    """Left out: by the suffix, `.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`, under that of a compressed file."""
    weight: Weight = 1.0
    """How often the pairs of this corpus stand in an epoch; with 0.5 another half each epoch."""

    def format_of(self, path: Path) -> TableFormat | None:
        """The format of one of the files."""
        suffixes = [suffix for suffix in path.suffixes if suffix.lower() not in COMPRESSED]
        return self.format or (_FORMATS.get(suffixes[-1].lower()) if suffixes else None)

    @model_validator(mode="after")
    def _fields_suit_the_format(self) -> Self:
        for path in self.path if isinstance(self.path, tuple) else (self.path,):
            found = self.format_of(path)
            if found is None:
                raise conflict(
                    "path", f"{path.name} does not tell its format: add format: tsv, csv, jsonl, json or parquet"
                )
            numbers = [isinstance(field, int) for field in (self.source_field, self.target_field)]
            if any(numbers) and (found not in ("tsv", "csv") or not all(numbers)):
                raise conflict(
                    "source_field",
                    "columns have numbers in a tsv or csv whose first line holds no names, and then both source_field "
                    "and target_field are numbers; else both are names",
                )
        return self


def is_folder(hub: str) -> bool:
    """Whether the name of a set is that of a folder, and not of a set on the hub."""
    return hub.startswith((".", "/", "~"))


def _folder(value: Any, info: ValidationInfo) -> Any:
    return str(_resolve(value, info)) if isinstance(value, str) and is_folder(value) else value


class HubSet(Section):
    """A data set of the Hugging Face hub, or a folder that holds one; read through the package `datasets`."""

    hub: Annotated[str, BeforeValidator(_folder), Field(min_length=1)]
    """Its name, such as `owner/name`, or a folder, which is written with `./` or `/` in front."""
    split: Annotated[str, Field(min_length=1)]
    """Its part to read, such as `train`."""
    source_field: Annotated[str, Field(min_length=1)]
    """The field of the source sentence, with dots for one inside another (`translation.de`)."""
    target_field: Annotated[str, Field(min_length=1)]
    """The field of its translation."""
    config: str | None = None
    """Which of several configurations of the set, such as `de-en`."""
    revision: str | None = None
    """Commit or tag of the set. Without it the set may be another one tomorrow."""
    streaming: bool = False
    """Read as it is needed, in training too: over the network without a copy on this machine, and without keeping token
    ids. Such a set is the only one of `data.train`, each record once an epoch."""
    shuffle_buffer: Positive = 100_000
    """With `streaming`: records that are read ahead, shuffled and put into batches together. As many pairs take some 10
    MB of memory, twice; with more there is less padding and a better mixture."""
    weight: Weight = 1.0
    """How often the pairs of this corpus stand in an epoch; with 0.5 another half each epoch."""


_KINDS = {
    "[text]": {"source", "target"},
    "[table]": {"path", "format"},
    "[hub]": {"hub", "split", "config", "revision", "streaming", "shuffle_buffer"},
}
_FIELDS = {"source_field", "target_field"}


def _kind_of_corpus(value: Any) -> str | None:
    """The kind of a corpus by the keys that are there; None if they are those of several kinds, or tell nothing."""
    for tag, model in (("[text]", Corpus), ("[table]", Table), ("[hub]", HubSet)):
        if isinstance(value, model):
            return tag
    if not isinstance(value, dict):
        return "[text]"
    kinds = [tag for tag, keys in _KINDS.items() if keys & value.keys()]
    if not kinds and _FIELDS & value.keys():
        return "[table]"
    if not kinds and value.keys() - {"weight"}:
        return "[text]"  # whose keys are misspelt
    return kinds[0] if len(kinds) == 1 else None


AnyCorpus = Corpus | Table | HubSet
Corpora = Annotated[
    tuple[
        Annotated[
            Annotated[Corpus, Tag("[text]")] | Annotated[Table, Tag("[table]")] | Annotated[HubSet, Tag("[hub]")],
            Discriminator(_kind_of_corpus),
        ],
        ...,
    ],
    BeforeValidator(as_tuple),
]


class HoldOut(Section):
    """Lines of the training corpora, kept out of training; chosen by a hash of the seed and the source text."""

    hold_out: Positive
    """How many; equal sources stay together, so it can be a few more."""


def _kind_of_part(value: Any) -> str:
    corpus_keys = _FIELDS.union(*_KINDS.values())
    held = isinstance(value, HoldOut) or (isinstance(value, dict) and not corpus_keys & value.keys())
    return "[hold_out]" if held else "[files]"


Part = Annotated[
    Annotated[Corpora, Tag("[files]")] | Annotated[HoldOut, Tag("[hold_out]")], Discriminator(_kind_of_part)
]
