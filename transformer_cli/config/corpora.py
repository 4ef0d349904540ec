"""The corpus entries of the configuration (text files, tables and Hugging Face sets), and the base of every section.

This is part of the schema; like `schema.py`, it opens no file.
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

from transformer_cli.config.documents import DOCUMENTS


def _resolve(value: Any, info: ValidationInfo) -> Any:
    """Resolve a relative path against the folder of the YAML file, given as the validation context `base`."""
    if not isinstance(value, str) or not value:
        return value
    base: Path = (info.context or {}).get("base", Path())
    try:
        path = Path(value).expanduser()
    except RuntimeError:
        raise PydanticCustomError("no_home", "must be a path; ~ names no home folder here") from None
    while path.parts[:1] == ("..",):  # so that messages show /home/me/my.en and not /home/me/mine/../my.en
        base, path = base.resolve().parent, Path(*path.parts[1:])
    return base / path


def as_tuple(value: Any) -> Any:
    """Convert a list to a tuple, as frozen models hold tuples."""
    return tuple(value) if isinstance(value, list) else value


FilePath = Annotated[Path, BeforeValidator(_resolve)]
Positive = Annotated[int, Field(ge=1, le=1_000_000_000)]  # the maximum keeps sums within 64-bit integers


def conflict(key: str, message: str) -> PydanticCustomError:
    """An error about several keys at once, reported at the line of `key`."""
    # Braces would be read as fields of the template.
    return PydanticCustomError("conflict", "{message}", {"key": key, "message": message})


class Section(BaseModel):
    """The base class of all sections: frozen, strict about types, no unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


Weight = Annotated[float, Field(gt=0.0, le=1000.0)]


def _kind_of_files(value: Any) -> str:
    return "[list]" if isinstance(value, list | tuple) else "[file]"


# Tags are in brackets to distinguish them from keys in the location of an error.
Files = Annotated[
    Annotated[FilePath, Tag("[file]")]
    | Annotated[tuple[FilePath, ...], BeforeValidator(as_tuple), Field(min_length=1), Tag("[list]")],
    Discriminator(_kind_of_files),
]


class Corpus(Section):
    """Two text files, where line N of the target is the translation of line N of the source."""

    source: Files
    """File of source sentences in UTF-8, one per line; or a list of files; or a pattern with `*`, `?` or `[…]`, whose
    matches are sorted by name. Files compressed with gzip, xz, bzip2 or zstd are decompressed while reading."""
    target: Files
    """Files of the translations: as many files as in `source`, with as many lines each."""
    weight: Weight = 1.0
    """How often each pair of this corpus occurs in an epoch; with 0.5, each epoch takes another half of the corpus."""


TableFormat = Literal["tsv", "csv", "jsonl", "json", "parquet"]
_FORMATS: dict[str, TableFormat] = {
    ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet",
}  # fmt: skip
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")


def suffix_of_content(path: Path) -> str:
    """The suffix that tells what a file holds, in lower case: that before the suffix of a compression."""
    suffixes = [suffix for suffix in map(str.lower, path.suffixes) if suffix not in COMPRESSED]
    return suffixes[-1] if suffixes else ""


def language_suffix(path: Path) -> str:
    """The suffix of a file name that may be a language, written like a language tag: `zh-tw` for ref.zh_TW.gz."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return name.suffix.removeprefix(".").lower().replace("_", "-")


def _column(value: Any) -> Any:
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not number and not (isinstance(value, str) and value):
        raise PydanticCustomError("column", "must be the name of a field, or the number of a column, from 1")
    return value


Column = Annotated[str | int, PlainValidator(_column)]


class Table(Section):
    """Files whose records are pairs."""

    path: Files
    """TSV, CSV, JSON lines, JSON (a list of objects) or Parquet: a file, a list of files, or a pattern with `*`, `?` or
    `[…]`. Compressed TSV, CSV and JSON files are decompressed while reading. Only JSON is held in memory as a whole:
    write a large set as JSON lines."""
    source_field: Column
    """Field of the source sentence: its name, with dots for nested fields (`translation.de`). For a TSV or CSV without
    names in its first line: the number of the column, from 1."""
    target_field: Column
    """Field of the translation."""
    format: TableFormat | None = None
    """Format of the files. Left out: told by the suffix, `.tsv`, `.csv`, `.jsonl`, `.ndjson`, `.json` or `.parquet`,
    before that of the compression."""
    weight: Weight = 1.0
    """How often each pair of this corpus occurs in an epoch; with 0.5, each epoch takes another half of the corpus."""

    def format_of(self, path: Path) -> TableFormat | None:
        """The format of one of the files."""
        return self.format or _FORMATS.get(suffix_of_content(path))

    @model_validator(mode="after")
    def _fields_suit_the_format(self) -> Self:
        for path in self.path if isinstance(self.path, tuple) else (self.path,):
            found = self.format_of(path)
            if found is None and (document := DOCUMENTS.get(suffix_of_content(path))):
                raise conflict("path", f"{path.name} is {document}")
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
    """Whether the name of a set is a folder, not a set on the hub."""
    return hub.startswith((".", "/", "~"))


def _folder(value: Any, info: ValidationInfo) -> Any:
    return str(_resolve(value, info)) if isinstance(value, str) and is_folder(value) else value


class HubSet(Section):
    """A data set on the Hugging Face hub, or in a local folder; read with the package `datasets`."""

    hub: Annotated[str, BeforeValidator(_folder), Field(min_length=1)]
    """Name of the set, such as `owner/name`; or a folder, whose path must begin with `.`, `/` or `~`."""
    split: Annotated[str, Field(min_length=1)]
    """Split of the set, such as `train`."""
    source_field: Annotated[str, Field(min_length=1)]
    """Field of the source sentence, with dots for nested fields (`translation.de`)."""
    target_field: Annotated[str, Field(min_length=1)]
    """Field of the translation."""
    config: str | None = None
    """Configuration of the set, such as `de-en`, if it has several."""
    revision: str | None = None
    """Commit or tag of the set; left out, its latest version. Token ids are cached only with a commit, as tags and the
    latest version can change."""
    streaming: bool = False
    """Read records on demand during training, without copying the set to this machine or caching token ids. The set
    must be the only corpus of `data.train`, and each record is read once per epoch."""
    shuffle_buffer: Positive = 100_000
    """With `streaming`: number of records read ahead, which are shuffled and batched together. More records mean less
    padding and better mixing. The default takes about 10 MB of memory, twice."""
    weight: Weight = 1.0
    """How often each pair of this corpus occurs in an epoch; with 0.5, each epoch takes another half of the corpus."""


_KINDS = {
    "[text]": {"source", "target"},
    "[table]": {"path", "format"},
    "[hub]": {"hub", "split", "config", "revision", "streaming", "shuffle_buffer"},
}
_FIELDS = {"source_field", "target_field"}


def _kind_of_corpus(value: Any) -> str | None:
    """The kind of a corpus by its keys; None if they belong to several kinds or to none in particular."""
    for tag, model in (("[text]", Corpus), ("[table]", Table), ("[hub]", HubSet)):
        if isinstance(value, model):
            return tag
    if not isinstance(value, dict):
        return "[text]"
    kinds = [tag for tag, keys in _KINDS.items() if keys & value.keys()]
    if not kinds and _FIELDS & value.keys():
        return "[table]"
    if not kinds and value.keys() - {"weight"}:
        return "[text]"  # with misspelt keys
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
    """Pairs held out of the training corpora, chosen by a hash of the seed and the source text."""

    hold_out: Positive
    """Number of pairs. Pairs with equal sources stay together, so the set can have a few more."""


def _kind_of_text(value: Any) -> str:
    corpus_keys = _FIELDS.union(*_KINDS.values())
    held = isinstance(value, HoldOut) or (isinstance(value, dict) and not corpus_keys & value.keys())
    return "[hold_out]" if held else "[files]"


CorporaOrHoldOut = Annotated[
    Annotated[Corpora, Tag("[files]")] | Annotated[HoldOut, Tag("[hold_out]")], Discriminator(_kind_of_text)
]
