"""Tables of every kind give the same pairs, one a record; what has not the two texts is named and never skipped."""

import json
import logging
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from transformer_cli.config.schema import Corpus, HubSet, Table
from transformer_cli.data.corpus import Pair, read_pairs
from transformer_cli.data.formats import Record, read_hub, read_table
from transformer_cli.errors import DataError
from transformer_cli.log import LOGGER, to_stderr

DATA = Path(os.environ.get("TRANSFORMER_CLI_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

# Quotes, commas, tabs as TSV cannot hold them, the words of missing values, other line ends, and nothing at all.
PAIRS = [
    ("one", "eins"),
    ('"two', 'zwei, "drei"'),
    ("NA", "null"),
    ("None", "NaN"),
    ("", "leer"),
    ("a\u2028b\rc", " Räume "),
]
RECORDS = [{"en": source, "de": target, "id": number} for number, (source, target) in enumerate(PAIRS)]
NESTED = [{"translation": {"en": source, "de": target}, "id": "x"} for source, target in PAIRS]


def as_csv(rows: list[tuple[str, str]]) -> str:
    return "".join(",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) + "\r\n" for row in rows)


def as_parquet(path: Path, records: list[dict[str, Any]]) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(records), path, row_group_size=2)


def as_tsv(rows: list[tuple[str, str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


WRITERS: dict[str, Callable[[Path], object]] = {
    "names.tsv": lambda path: path.write_bytes(as_tsv([("en", "de"), *PAIRS]).encode()),
    "names.csv": lambda path: path.write_bytes(as_csv([("en", "de"), *PAIRS]).encode("utf-8-sig")),
    "names.jsonl": lambda path: path.write_bytes("".join(json.dumps(record) + "\n" for record in RECORDS).encode()),
    "names.json": lambda path: path.write_text(json.dumps(RECORDS, indent=2)),
    "inside.json": lambda path: path.write_text(json.dumps({"version": [1], "data": NESTED, "more": [{}]})),
    "inside.jsonl": lambda path: path.write_text("".join(json.dumps(record) + "\n" for record in NESTED)),
    "numbers.tsv": lambda path: path.write_bytes(as_tsv(PAIRS).encode()),
    "numbers.csv": lambda path: path.write_bytes(as_csv(PAIRS).encode()),
    "names.parquet": lambda path: as_parquet(path, RECORDS),
    "inside.parquet": lambda path: as_parquet(path, NESTED),
}
FIELDS: dict[str, tuple[str | int, str | int]] = {
    "names": ("en", "de"),
    "inside": ("translation.en", "translation.de"),
    "numbers": (1, 2),
}


def table(path: Path, source: str | int = "en", target: str | int = "de") -> Table:
    return Table(path=path, source_field=source, target_field=target)


def refusal(path: Path, content: str, source: str | int = "en", target: str | int = "de") -> str:
    path.write_text(content, encoding="utf-8", newline="")
    with pytest.raises(DataError) as caught:
        list(read_table(table(path, source, target), path))
    return str(caught.value)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_pairs(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    assert list(read_pairs([table(path, *FIELDS[path.stem])])) == [Pair(*pair) for pair in PAIRS]


def test_the_real_files_all_read_alike() -> None:
    folder = DATA / "formats"
    if not folder.is_dir():
        pytest.skip("the files of several formats are not here")
    plain = list(read_pairs([Corpus(source=folder / "multi30k-2k.en", target=folder / "multi30k-2k.de")]))
    assert len(plain) == 2000
    for name, fields, count in (
        ("multi30k-2k.csv", FIELDS["names"], 2000),
        ("multi30k-2k.tsv", FIELDS["numbers"], 2000),
        ("multi30k-2k.flat.jsonl", FIELDS["names"], 2000),
        ("multi30k-2k.flat.parquet", FIELDS["names"], 2000),
        ("multi30k-2k.translation.jsonl", FIELDS["inside"], 2000),
        ("multi30k-2k.translation.parquet", FIELDS["inside"], 2000),
        ("shard-*.parquet", FIELDS["inside"], 2000),
        ("multi30k-200.array.json", FIELDS["inside"], 200),
        ("multi30k-200.field.json", FIELDS["inside"], 200),
    ):
        assert list(read_pairs([table(folder / name, *fields)])) == plain[:count], name


def test_the_nasty_tables_give_their_records_or_the_right_error() -> None:
    folder = DATA / "nasty"
    if not folder.is_dir():
        pytest.skip("the nasty files are not here")
    assert len(list(read_pairs([table(folder / "quotes.tsv", 1, 2)]))) == 14
    assert len(list(read_pairs([table(folder / "quotes.csv")]))) == 5
    for name, fields, line in (
        ("tabs.tsv", (1, 2), 7),
        ("one-column.tsv", (1, 2), 13),
        ("bad.jsonl", ("translation.en", "translation.de"), 7),
    ):
        with pytest.raises(DataError, match=rf"{name}, line {line}: "):
            list(read_pairs([table(folder / name, *fields)]))


# Lines and numbers


@pytest.mark.parametrize(
    ("name", "content", "numbers"),
    [
        ("t.csv", 'en,de\n"a\nb",c\nd,"e\r\n\r\nf"\ng,h\n', [2, 4, 7]),
        (
            "t.jsonl",
            '{"en": "a\\nb", "de": "c"}\n{"en": "d", "de": "e\\r\\n\\nf"}\n{"en": "g", "de": "h"}\n',
            [1, 2, 3],
        ),
        ("t.json", '[{"en": "a\\nb", "de": "c"},\n{"en": "d", "de": "e\\n\\nf"}, {"en": "g", "de": "h"}]', [1, 2, 3]),
    ],
)
def test_a_line_feed_in_a_field_becomes_a_space_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: str, numbers: list[int]
) -> None:
    path = tmp_path / name
    path.write_text(content, newline="")
    texts = [("a b", "c"), ("d", "e  f"), ("g", "h")]
    found = list(read_table(table(path), path))
    assert found == [Record(number, *pair) for number, pair in zip(numbers, texts, strict=True)]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 fields held a line feed; a space stands in its place"
    ]


def test_the_numbers_of_a_tsv_count_its_lines_the_one_of_names_included(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("de\tid\ten\nA\t1\ta\nB\t2\tb\n")
    assert list(read_table(table(path), path)) == [Record(2, "a", "A"), Record(3, "b", "B")]
    path.write_text("A\ta\nB\tb\n")
    assert list(read_table(table(path, 2, 1), path)) == [Record(1, "a", "A"), Record(2, "b", "B")]


def test_an_empty_table_has_no_records(tmp_path: Path) -> None:
    for name, content in (("t.tsv", ""), ("t.csv", ""), ("t.jsonl", ""), ("t.json", "[]"), ("u.json", '{"data": [ ]}')):
        (tmp_path / name).write_text(content)
        if name != "u.json":
            assert list(read_table(table(tmp_path / name), tmp_path / name)) == []


def test_a_csv_reads_as_rfc_4180_has_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('x,"say ""no""",""\n,"a,b",it"s\r\n', newline="")
    assert list(read_table(table(path, 1, 2), path)) == [Record(1, "x", 'say "no"'), Record(2, "", "a,b")]
    assert [record.target for record in read_table(table(path, 1, 3), path)] == ["", 'it"s']


# Refusals


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "en\tde\na\tb\nc\n", "line 3: 1 column, and the first line has 2: correct the line"),
        ("t.tsv", "en\tde\na\tb\tc\n", "line 2: 3 columns, and the first line has 2: correct the line"),
        ("t.tsv", "a\tb\n", "no column is named en in the first line, which holds a, b. Where it holds no names, "),
        ("t.csv", "en,de,en\n", "several columns are named en in the first line, which holds en, de, en."),
        ("t.csv", 'en,de\n"a,b\nc,d\n', "line 2: a quote opens here and is not closed as it should be"),
        ("t.csv", 'en,de\n"a"x,b\n', "line 2: a quote opens here and is not closed as it should be"),
        ("t.jsonl", '{"en": "a", "de": "b"}\n{"en": "a",\n', "line 2: this is no JSON (Expecting property name"),
        ("t.jsonl", '{"en": "a", "de": "b"}\n\n', "line 2: this is no JSON (it is blank); correct the line"),
        ("t.jsonl", '{"en": "a"}\n', "line 1: there is no field de; there are en"),
        ("t.jsonl", '{"en": "a", "x": {"de": ""}}\n', "line 1: there is no field de; there are en, x, x.de"),
        ("t.jsonl", '{"en": "a", "de": null}\n', "line 1: de is null, which is no text"),
        ("t.jsonl", '{"en": "a", "de": 123}\n', "line 1: de is 123, which is no text"),
        ("t.jsonl", "null\n", "line 1: there is no field en; there is null"),
        ("t.jsonl", '{"en": "\\ud800", "de": ""}\n', "line 1: \\ud800 to \\udfff are halves of characters"),
        ("t.jsonl", "[" * 100_000 + "\n", "line 1: this is no JSON (it is nested too deep)"),
        ("t.jsonl", '{"en": ' + "9" * 6000 + "}\n", "line 1: this is no JSON (a number in it has too many digits)"),
        ("t.json", '[{"en": "a", "de": "b"},\n {"en": "c"}]', "record 2: there is no field de; there are en"),
        ("t.json", '[{"en": "a", "de": "b"}\n {"en": "c"}]', "line 2: this is no JSON (Expecting ',' delimiter)"),
        ("t.json", '[{"en": "a", "de": "b"},\n x]', "line 2: this is no JSON (Expecting value)"),
        ("t.json", '[{"en": "a", "de": "b"},\n', "line 1: this is no JSON (Expecting value)"),
        ("t.json", '[{"en": "a", "de": "b"}', "line 1: this is no JSON (Expecting ',' delimiter)"),
        ("t.json", '{"en": "a"}\n{"en": "b"}\n', "line 2: this is no JSON (Extra data); correct it, or for an object"),
        ("t.json", '{"en": "a", "de": "b"}', "there is no list of objects in it; for an object a line"),
        ("t.json", '[{"en": "a", "de": "b"}]\n[{"en": "c"}]', "line 2: this is no JSON (Extra data)"),
        ("t.json", '{"data": [{"en": "a", "de": "b"}]}\n{"data": [{}]}', "line 2: this is no JSON (Extra data)"),
        ("t.json", '{"data": [{"en": "a", "de": "b"}]', "line 1: this is no JSON (Expecting ',' delimiter)"),
        ("t.json", '"text"', "there is no list of objects in it"),
        ("t.json", "", "line 1: this is no JSON (Expecting value)"),
        ("t.json", "[" * 100_000, "this is no JSON (it is nested too deep)"),
        ("t.parquet", "PAR1 or not", "is damaged, or no Parquet file"),
    ],
)  # fmt: skip
def test_what_is_no_pair_is_named_with_its_place(tmp_path: Path, name: str, content: str, message: str) -> None:
    said = refusal(tmp_path / name, content)
    assert said.startswith(str(tmp_path / name))
    assert message in said


def test_a_column_beyond_the_last_is_an_error(tmp_path: Path) -> None:
    assert "there is no column 3: the first line has 2" in refusal(tmp_path / "t.tsv", "a\tb\n", 1, 3)


def test_the_error_of_a_parquet_file_tells_what_fields_there_are(tmp_path: Path) -> None:
    as_parquet(tmp_path / "t.parquet", NESTED)
    with pytest.raises(DataError, match=r"record 1: there is no field en; there are translation, .*translation\.en"):
        list(read_pairs([table(tmp_path / "t.parquet")]))


@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.jsonl", "t.json"])
def test_other_encodings_are_found_out_in_tables_too(tmp_path: Path, name: str) -> None:
    content = {"t.tsv": "en\tde\n", "t.csv": "en,de\n", "t.jsonl": "{}\n", "t.json": "[{}]\n"}[name]
    (tmp_path / name).write_bytes(content.encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        list(read_pairs([table(tmp_path / name)]))


def test_a_bad_byte_in_a_json_document_is_named_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'[\n{"en": "M\xfc", "de": "\\ud83d\\ude00 \\ud83d"}\n]')
    with pytest.raises(DataError, match=r"t\.json, line 2: byte 10 of the line is 0xFC"):
        list(read_table(table(path), path))
    assert list(read_table(table(path), path, "replace")) == [Record(1, "M\ufffd", "\U0001f600 \ufffd")]


def test_a_bad_byte_far_into_a_long_document_has_the_right_line(tmp_path: Path) -> None:
    records = "".join(f'{{"en": "ä{i}", "de": "b"}},\n' for i in range(10_000))
    path = tmp_path / "t.json"
    path.write_bytes(b"[" + records.encode() + b'{"en": "\xff')
    with pytest.raises(DataError, match=r"line 10001: byte 9 of the line is 0xFF"):
        list(read_table(table(path), path))


# Memory


@pytest.mark.parametrize("name", ["t.jsonl", "t.csv", "t.parquet"])
def test_a_file_is_never_held(tmp_path: Path, name: str) -> None:
    path, records = tmp_path / name, [{"en": f"some words {i}", "de": "einige Wörter" * 3} for i in range(60_000)]
    if name == "t.jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif name == "t.csv":
        path.write_text(as_csv([("en", "de"), *((record["en"], record["de"]) for record in records)]))
    else:
        as_parquet(path, records[:3])  # so that it is loaded before memory is measured
        list(read_table(table(path), path))
        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    del records
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_table(table(path), path)) == 60_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


# Data sets


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for data sets, and a cache that is not the person's own."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


def hub(folder: Path, streaming: bool = False, **fields: str) -> HubSet:
    chosen = {"source_field": "translation.en", "target_field": "translation.de", "split": "train"} | fields
    return HubSet.model_validate({"hub": str(folder), "streaming": streaming} | chosen)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_folder_of_data_files_is_a_set(sets: Path, streaming: bool) -> None:
    (sets / "mine").mkdir()
    as_parquet(sets / "mine" / "train-0.parquet", NESTED)
    as_parquet(sets / "mine" / "validation-0.parquet", NESTED[:1])
    found = list(read_hub(hub(sets / "mine", streaming)))
    assert [(record.source, record.target) for record in found] == PAIRS
    assert [record.number for record in found] == list(range(1, len(PAIRS) + 1))
    assert len(list(read_pairs([hub(sets / "mine", streaming, split="validation")]))) == 1


def test_a_set_that_was_saved_is_a_set(sets: Path) -> None:
    import datasets

    whole = datasets.Dataset.from_list(RECORDS)
    whole.save_to_disk(sets / "one")
    datasets.DatasetDict({"train": whole, "test": whole.select([0])}).save_to_disk(sets / "two")
    flat = {"source_field": "en", "target_field": "de"}
    for folder, split, count in (("one", "train", 6), ("two", "train", 6), ("two", "test", 1)):
        pairs = list(read_pairs([hub(sets / folder, split=split, **flat)]))
        assert pairs == [Pair(*pair) for pair in PAIRS[:count]]


def test_what_is_wrong_with_a_set_is_one_error(sets: Path) -> None:
    (sets / "mine").mkdir()
    as_parquet(sets / "mine" / "train-0.parquet", NESTED)
    with pytest.raises(DataError, match=r"record 1: there is no field en; there are .*translation\.en"):
        list(read_hub(hub(sets / "mine", source_field="en")))
    with pytest.raises(DataError, match=r"the set .*mine cannot be read: .*split"):
        list(read_hub(hub(sets / "mine", split="dev")))
    with pytest.raises(DataError, match=r"the set .*nowhere cannot be read: "):
        list(read_hub(hub(sets / "nowhere")))


def test_a_quote_of_a_csv_that_is_never_closed_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("en,de\n" + 'the "cat,die Katze\n' + '"the dog,der Hund\n' + "one,eins\n" * 10_100)
    with pytest.raises(DataError, match=r"t\.csv, line 3: a quote opens here and is not closed"):
        list(read_table(Table(path=path, source_field="en", target_field="de"), path))


@pytest.mark.parametrize("streaming", [False, True])
def test_the_file_that_a_set_cannot_be_read_for_is_named(
    sets: Path, streaming: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    (sets / "mine").mkdir()
    as_parquet(sets / "mine" / "train-0.parquet", NESTED)
    whole = (sets / "mine" / "train-0.parquet").read_bytes()
    (sets / "mine" / "train-1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"the set .*mine cannot be read: .*mine/train-1\.parquet"):
        list(read_hub(hub(sets / "mine", streaming)))
    assert "Failed to read" not in capfd.readouterr().err, "it stands in the error"


def test_a_quiet_program_shows_no_bar_of_the_library(sets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import datasets

    (sets / "mine").mkdir()
    as_parquet(sets / "mine" / "train-0.parquet", NESTED)
    before = list(LOGGER.handlers)
    to_stderr(logging.WARNING)
    try:
        assert len(list(read_hub(hub(sets / "mine")))) == len(PAIRS)
    finally:
        LOGGER.handlers[:] = before
        datasets.enable_progress_bars()
    assert capfd.readouterr().err == ""


def test_nothing_of_datasets_is_imported_for_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import subprocess
    import sys

    (tmp_path / "t.jsonl").write_text('{"en": "a", "de": "b"}\n')
    code = (
        "import sys, pathlib; from transformer_cli.config.schema import Table;"
        "from transformer_cli.data.corpus import read_pairs;"
        "t = Table(path=pathlib.Path(sys.argv[1]), source_field='en', target_field='de');"
        "assert len(list(read_pairs([t]))) == 1; assert not {'datasets', 'pyarrow'} & set(sys.modules)"
    )
    with caplog.at_level(logging.DEBUG):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "t.jsonl")], check=True)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_columns_of_a_csv_may_be_parted_by_semicolons_or_tabs(tmp_path: Path, mark: str) -> None:
    rows = [("en", "de, Deutsch; so"), ("One; two, three", "Eins\tund"), ("a", 'sagt "b"')]
    lines = [mark.join('"{}"'.format(cell.replace('"', '""')) for cell in row) for row in rows]
    (tmp_path / "a.csv").write_text("".join(line + "\n" for line in lines))
    table = Table(path=tmp_path / "a.csv", source_field="en", target_field="de, Deutsch; so")
    assert [(r.source, r.target) for r in read_table(table, tmp_path / "a.csv", "strict")] == rows[1:]


@pytest.mark.parametrize(
    ("content", "fields", "pairs"),
    [
        # The second row has no comma, or another number of commas.
        ("Hallo, Welt;Hello, world\nJa;Yes\n", (1, 2), [("Hallo, Welt", "Hello, world"), ("Ja", "Yes")]),
        ("a, b;c\nd;e, f, g\n", (1, 2), [("a, b", "c"), ("d", "e, f, g")]),
        ("a; b,c\nd,e\n", (1, 2), [("a; b", "c"), ("d", "e")]),
        # With commas the second row is no row, for a quote does not end where its cell does.
        ('a, b;c\n"x, y";z\n', (1, 2), [("a, b", "c"), ("x, y", "z")]),
        # Either mark gives even rows, and one alone the columns.
        ("en;de, formal\na;b, c\n", ("en", "de, formal"), [("a", "b, c")]),
        ("a, b;c;d\ne, f;g;h\n", (1, 3), [("a, b", "d"), ("e, f", "h")]),
    ],
)
def test_where_several_marks_may_part_the_columns_of_a_csv_that_does_which_gives_even_rows(
    tmp_path: Path, content: str, fields: tuple[str | int, str | int], pairs: list[tuple[str, str]]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    assert [(one.source, one.target) for one in read_table(table(path, *fields), path)] == pairs


def test_a_blank_line_of_a_csv_is_an_error_in_its_place_whatever_may_part_the_columns(tmp_path: Path) -> None:
    said = refusal(tmp_path / "a.csv", "a, b;c\n\nd;e\n", 1, 2)
    assert said.endswith("line 2: 1 column, and the first line has 2: correct the line")


@pytest.mark.parametrize(
    ("content", "marks", "count"),
    [
        ("Hallo, Welt;Hello, world\nJa, gut;Yes, fine\n", "commas and semicolons", "more than one"),
        ("a;b\tc\n", "semicolons and tabs", "more than one"),
        ("a,b;c\td\n" * 20 + "a;b\n", "commas and semicolons and tabs", "more than one"),
        ("a, b;c\nd\n", "commas and semicolons", "none"),
        ('a, b;c\n"d"x;e\n', "commas and semicolons", "none"),
    ],
)
def test_a_csv_whose_columns_several_marks_may_part_is_not_guessed_at(
    tmp_path: Path, content: str, marks: str, count: str
) -> None:
    assert refusal(tmp_path / "a.csv", content, 1, 2) == (
        f"{tmp_path}/a.csv, line 1: {marks} stand outside of quotes, and {count} of them gives the first rows equal "
        "numbers of columns, so that nobody can tell which parts them: put the cells in quotes, or convert the file to "
        "TSV"
    )


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_the_first_record_of_a_csv_may_have_several_lines_and_come_from_a_pipe(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "a.csv"
    os.mkfifo(path)
    content = f'"en,;\n\r\n""text"{mark}"de"\n"a"{mark}"b"\n'
    Thread(target=lambda: path.write_text(content, newline=""), daemon=True).start()
    assert list(read_table(table(path, 1, 2), path)) == [Record(1, 'en,;  "text', "de"), Record(4, "a", "b")]


@pytest.mark.parametrize(("quoted", "told"), [(10, 1), (9, 1), (8, 0)])
def test_a_tsv_whose_fields_are_in_quotes_keeps_them_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, quoted: int, told: int
) -> None:
    lines = ['"one"\t"eins"'] * quoted + ["one\teins"] * (10 - quoted)
    (tmp_path / "a.tsv").write_text("".join(line + "\n" for line in lines))
    table = Table(path=tmp_path / "a.tsv", source_field=1, target_field=2)
    assert len([*read_table(table, tmp_path / "a.tsv", "strict")]) == 10
    assert sum("if they are none, add format: csv" in message for message in caplog.messages) == told
