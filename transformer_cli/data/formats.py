"""Read tables and data sets whose records are pairs: TSV, CSV, JSON lines, JSON, Parquet, and sets read by `datasets`.

Every reader yields records in order, one at a time; none but that of a JSON document holds the whole file in memory. A
text is one line: a line feed inside a field becomes a space, and the number of such fields is logged. A field that is
missing, null or not text is an error that names the record; no record is skipped. In a TSV, quotes and "NA" have no
special meaning.
"""

import csv
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from itertools import islice, tee
from pathlib import Path
from typing import Any, NamedTuple

from transformer_cli.config.schema import HubSet, Table
from transformer_cli.data.json_text import json_lines, json_objects
from transformer_cli.data.lines import Errors, read_lines
from transformer_cli.errors import DataError
from transformer_cli.log import ABOUT_TEXT, LOGGER, is_quiet

_BATCH = 1000  # records of a Parquet file or data set converted to Python objects at a time
_SHARD = 100_000  # records per shard when a set saved by `datasets` is streamed
_NEARLY_ALL = 0.9
_LARGEST_FIELD = 1 << 24  # characters in a CSV field; a larger one has an unclosed quote
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs"}  # what may part the columns of a CSV
_ROWS_COMPARED = 20  # rows whose cells are counted to tell which of several marks does
_LINES_AHEAD = 1000  # lines that may be read for that: quoted cells have several, and those of an unclosed quote no end


class Record(NamedTuple):
    """The texts of a record and its number, counted from 1: its first line in a file of lines, else its index."""

    number: int
    source: str
    target: str


def read_table(table: Table, path: Path, errors: Errors = "strict") -> Iterator[Record]:
    """The records of one file of a table. DataError if it cannot be read, or a record lacks one of the two texts."""
    fields = _Fields(str(path), unit_of(table, path), str(table.source_field), str(table.target_field))
    match table.format_of(path):
        case "tsv":
            yield from _of_columns(_tsv_rows(read_lines(path, errors), str(path)), table, fields)
        case "csv":
            yield from _of_columns(_csv_rows(read_lines(path, errors), table, str(path)), table, fields)
        case "jsonl":
            yield from map(fields.record, json_lines(path, errors))
        case "json":
            yield from map(fields.record, json_objects(path, errors))
        case "parquet":
            yield from map(fields.record, enumerate(_parquet_rows(path, fields), 1))
    fields.report()


def unit_of(table: Table, path: Path) -> str:
    """What the record numbers of a file count: `line` or `record`."""
    return "line" if table.format_of(path) in ("tsv", "csv", "jsonl") else "record"


def read_hub(hub: HubSet) -> Iterator[Record]:
    """The records of a Hugging Face set. DataError if it cannot be loaded, or a record lacks one of the two texts."""
    fields = _Fields(f"{hub.hub} ({hub.split})", "record", hub.source_field, hub.target_field)
    yield from map(fields.record, enumerate(_hub_rows(hub), 1))
    fields.report()


class _Fields:
    """Extracts the two texts of records, and counts the fields whose line feeds were replaced."""

    def __init__(self, name: str, unit: str, source: str, target: str) -> None:
        self.name, self.unit, self.source, self.target = name, unit, source, target
        self.broken = 0

    def record(self, numbered: tuple[int, Any]) -> Record:
        number, values = numbered
        return Record(number, self._text(values, self.source, number), self._text(values, self.target, number))

    def report(self) -> None:
        _report_broken(self.name, self.broken)

    def line(self, text: str) -> str:
        """The text as one line, with line feeds replaced by spaces."""
        if "\n" in text:
            self.broken += 1
            return re.sub("\r?\n", " ", text)
        return text

    def _text(self, values: Any, field: str, number: int) -> str:
        try:
            found = _value(values, field)
        except KeyError:
            raise DataError(
                f"{self.name}, {self.unit} {number}: there is no field {field}; there {_names(values)}"
            ) from None
        if not isinstance(found, str):
            shown = "null" if found is None else str(found)
            raise DataError(f"{self.name}, {self.unit} {number}: {field} is {shown[:60]}, which is no text")
        return self.line(found)


def _report_broken(name: str, broken: int) -> None:
    if broken:
        LOGGER.warning(
            "%s: %s fields held a line feed; a space stands in its place", name, f"{broken:,}", extra=ABOUT_TEXT
        )


def _value(values: Any, field: str) -> Any:
    """The value of a field, which may be nested: `outer.inner`. KeyError if there is none."""
    if isinstance(values, dict):
        if field in values:
            return values[field]
        outer, dot, inner = field.partition(".")
        if dot and outer in values:
            return _value(values[outer], inner)
    raise KeyError(field)


def _names(values: Any) -> str:
    """The fields that a record does have, as the end of an error message."""
    if not isinstance(values, dict):
        return f"is {'null' if values is None else str(values)[:60]}"
    names = [
        f"{name}.{inner}" for name, value in values.items() for inner in (value if isinstance(value, dict) else ())
    ]
    return f"are {', '.join([*values, *names][:12])}" if values else "are none"


def _of_columns(rows: Iterator[tuple[int, list[str]]], table: Table, fields: _Fields) -> Iterator[Record]:
    """The records of rows. All rows must have as many cells as the first, which holds the column names unless the
    columns are given by number."""
    beginning = next(rows, None)
    if beginning is None:
        return
    number, first = beginning
    source, target = (_column(field, first, fields.name) for field in (table.source_field, table.target_field))
    if isinstance(table.source_field, int):
        yield Record(number, fields.line(first[source]), fields.line(first[target]))
    for number, cells in rows:
        if len(cells) != len(first):
            raise DataError(
                f"{fields.name}, line {number}: {len(cells)} column{'s' if len(cells) > 1 else ''}, and the first line "
                f"has {len(first)}: correct the line"
            )
        yield Record(number, fields.line(cells[source]), fields.line(cells[target]))


def _column(field: str | int, first: list[str], name: str) -> int:
    """The index of a column given by its name in the first row or by its number. DataError if there is no such column,
    or several have the name."""
    if isinstance(field, int):
        if field > len(first):
            raise DataError(f"{name}: there is no column {field}: the first line has {len(first)}")
        return field - 1
    if first.count(field) != 1:
        shown = ", ".join(cell[:30] for cell in first[:12])
        raise DataError(
            f"{name}: {'no column is' if field not in first else 'several columns are'} named {field} in the first "
            f"line, which holds {shown}. Where it holds no names, source_field and target_field are numbers, from 1"
        )
    return first.index(field)


def _tsv_rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, list[str]]]:
    """The cells between the tabs of each line, with its number. Quotation marks are text; a warning if all cells have
    them."""
    number = quoted = 0
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        quoted += all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
        yield number, cells
    if number and quoted >= _NEARLY_ALL * number:
        LOGGER.warning(
            "%s: the fields are in quotation marks, which a TSV takes as text: if they are none, add format: csv",
            name,
            extra=ABOUT_TEXT,
        )


def _csv_rows(lines: Iterable[str], table: Table, name: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV (RFC 4180), each with the number of its first line. Semicolons or tabs may take the place of
    commas: see `_delimiter`."""
    csv.field_size_limit(_LARGEST_FIELD)
    # The csv module ends a row at a lone carriage return, so something takes its place that UTF-8 text cannot hold.
    stand_in = "\ud800"
    (every,) = tee((line.replace("\r", stand_in) + "\n" for line in lines), 1)
    reader = csv.reader(every, delimiter=_delimiter(copy(every), table, name), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"{name}, line {number}: a quote opens here and is not closed as it should be: a field with quotes "
                "in it stands in quotes, each of its own doubled"
            ) from error
        if row is None:
            return
        yield number, [cell.replace(stand_in, "\r") for cell in row] or [""]


def _delimiter(lines: Iterator[str], table: Table, name: str) -> str:
    """The mark that parts the columns, told by the first record: a comma if none does. If several marks do, it is that
    which gives the next rows the same number of cells, among them the columns of the table; DataError if that does not
    tell. `lines` is an iterator made by `tee`, from copies of which the beginning is read once for each mark."""
    marks = [mark for mark in _MARKS if any(len(row) > 1 for row in _first_rows(copy(lines), mark, 1))]
    if len(marks) < 2:
        return marks[0] if marks else ","
    found = {mark: _first_rows(copy(lines), mark, _ROWS_COMPARED) for mark in marks}
    even = [mark for mark, rows in found.items() if len({len(row) for row in rows}) == 1]
    chosen = [mark for mark in even if _has_columns(found[mark][0], table)] or even
    if len(chosen) == 1:
        return chosen[0]
    shown = " and ".join(_MARKS[mark] for mark in marks)
    raise DataError(
        f"{name}, line 1: {shown} stand outside of quotes, and {'more than one' if even else 'none'} of them gives the "
        "first rows equal numbers of columns, so that nobody can tell which parts them: put the cells in quotes, or "
        "convert the file to TSV"
    )


def _first_rows(lines: Iterator[str], mark: str, count: int) -> list[list[str]]:
    """The first rows of a CSV that are not blank, if the mark parts its columns; none if the quotes are wrong then."""
    reader = csv.reader(islice(lines, _LINES_AHEAD), delimiter=mark, strict=True)
    try:
        return [row for row in islice(reader, count) if row]
    except csv.Error:
        return []


def _has_columns(first: list[str], table: Table) -> bool:
    fields = (table.source_field, table.target_field)
    return all(field <= len(first) if isinstance(field, int) else field in first for field in fields)


def _parquet_rows(path: Path, fields: _Fields) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            columns = _needed(file.schema_arrow.names, (fields.source, fields.target))
            for batch in file.iter_batches(_BATCH, columns=columns):
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        reason = str(error).split("\n")[0]
        raise DataError(f"{path} is damaged, or no Parquet file ({reason})") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _needed(names: list[str], fields: tuple[str, str]) -> list[str]:
    """The columns that contain the fields; all columns if a field is missing, so that the error can list them."""
    found = {name for name in names for field in fields if field == name or field.startswith(f"{name}.")}
    return sorted(found) if len({field.partition(".")[0] for field in fields} - found) == 0 else names


class HubStream:
    """A Hugging Face set whose shards are read on demand. DataError if it cannot be loaded."""

    def __init__(self, hub: HubSet) -> None:
        self._hub = hub
        self._name = f"{hub.hub} ({hub.split})"
        with _errors_of(hub):
            self._rows = _opened(hub).with_format("arrow")
            self.shards: int = self._rows.num_shards
        self._broken = 0

    def records(self, shard: int, start: int = 0, step: int = 1) -> Iterator[Record]:
        """Every `step`-th record of a shard, from record `start` on; shard and record count from 0. Skipped records are
        read but not converted to Python objects. Raises DataError like `read_hub`, naming the record by its number in
        the shard, from 1."""
        name = self._name + (f", shard {shard + 1} of {self.shards}" if self.shards > 1 else "")
        fields = _Fields(name, "record", self._hub.source_field, self._hub.target_field)
        with _errors_of(self._hub):
            tables = self._rows.shard(self.shards, shard).iter(_BATCH)
        first = 0  # index of the table's first record
        while True:
            with _errors_of(self._hub):
                if (table := next(tables, None)) is None:
                    break
                values = table.slice(start - first).to_pylist()[::step] if start - first < len(table) else []
            first += len(table)
            yield from map(fields.record, zip(range(start + 1, first + 1, step), values, strict=True))
            start += step * len(values)
        self._broken += fields.broken

    def report(self) -> None:
        """Log the number of fields whose line feeds were replaced, in shards read to the end since the last report."""
        _report_broken(self._name, self._broken)
        self._broken = 0


def _hub_rows(hub: HubSet) -> Iterator[Any]:
    with _errors_of(hub):
        batches = _opened(hub).iter(_BATCH)
    while True:
        with _errors_of(hub):
            if (batch := next(batches, None)) is None:
                return
        names = list(batch)
        yield from (dict(zip(names, values, strict=True)) for values in zip(*batch.values(), strict=True))


def _library(hub: HubSet) -> Any:
    """Import the package `datasets`; without progress bars if the log is quiet. DataError if it is not installed."""
    try:
        import datasets  # 0.8 s
    except ImportError as error:
        raise DataError(
            f"the set {hub.hub} is read by the package datasets, which is not installed: pip install datasets"
        ) from error
    if is_quiet():
        datasets.disable_progress_bars()
    return datasets


def _opened(hub: HubSet) -> Any:
    datasets = _library(hub)
    folder = Path(hub.hub)
    if hub.revision is None and not folder.is_absolute():
        LOGGER.warning("%s: no revision is named, so that another version of the set may be read next time", hub.hub)
    if any((folder / name).is_file() for name in ("state.json", "dataset_dict.json")):
        rows = datasets.load_from_disk(hub.hub)
        rows = rows[hub.split] if isinstance(rows, datasets.DatasetDict) else rows
        if hub.streaming:
            rows = rows.to_iterable_dataset(num_shards=max(-(-len(rows) // _SHARD), 1))
    else:
        rows = datasets.load_dataset(
            hub.hub, hub.config, split=hub.split, revision=hub.revision, streaming=hub.streaming
        )
    if rows.column_names:  # usually known in advance; columns that are not needed may be images or audio
        rows = rows.select_columns(_needed(rows.column_names, (hub.source_field, hub.target_field)))
    return rows


class _LibraryLog(logging.Handler):
    """Collects the errors that `datasets` logs, which name a file where its exceptions do not; passes on the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())
        else:
            LOGGER.log(record.levelno, "%s", record.getMessage(), extra=ABOUT_TEXT)


@contextmanager
def _errors_of(hub: HubSet) -> Iterator[None]:
    library, told = logging.getLogger("datasets"), _LibraryLog()
    try:
        _library(hub)  # importing it installs its own log handler, so import it first
        handlers, library.handlers = library.handlers, [told]
        try:
            yield
        finally:
            library.handlers = handlers
    except DataError:
        raise
    except StopIteration as error:
        raise DataError(f"the set {hub.hub} holds no records in its split {hub.split}") from error
    except Exception as error:  # errors of the network, the hub, Arrow and loaders have no common base class
        first: BaseException = error  # the root cause, often hidden behind an uninformative exception
        while first.__cause__ is not None:
            first = first.__cause__
        reason = told.errors[-1] if told.errors else str(first) or type(first).__name__
        raise DataError(f"the set {hub.hub} cannot be read: {reason}") from error
    for message in told.errors:
        LOGGER.warning("%s", message, extra=ABOUT_TEXT)
