import pytest

from transformer_cli.config.yaml_text import DEEPEST, Document, YamlError, to_yaml


def value_of(word: str) -> object:
    return Document(f"key: {word}").value["key"]


def same(one: object, other: object) -> bool:
    """Equal and of one type: in Python 1 == 1.0 == True."""
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1e-4", 0.0001),
        ("1e4", 10000.0),
        ("1E+4", 10000.0),
        (".5", 0.5),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("1e-09", 1e-9),
        ("0.98", 0.98),
        ("0", 0),
        ("-3", -3),
        ("+3", 3),
        ("999999999999999999", 999999999999999999),
        ("1000000000000000000", 1e18),
    ],
)
def test_numbers_are_what_a_person_means_by_them(word: str, value: object) -> None:
    assert same(value_of(word), value)


@pytest.mark.parametrize(
    "word",
    [
        "no",
        "No",
        "NO",
        "yes",
        "on",
        "off",
        "y",
        "n",
        "017",
        "00",
        "0x10",
        "0o7",
        "1_000",
        "12:30:45",
        "2024-01-01",
        "=",
        "<<",
        ".inf",
        ".nan",
        "1e",
        "nan",
        "1.2.3",
        "1-2",
        "tRue",
        "١",
    ],
)
def test_other_words_are_text_as_written(word: str) -> None:
    assert same(value_of(word), word)


@pytest.mark.parametrize(
    ("word", "value"),
    [("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None), ("# a comment", None)],
)
def test_true_false_and_null(word: str, value: object) -> None:
    assert same(value_of(word), value)


@pytest.mark.parametrize("word", ["'1e-4'", '"true"', "'null'", "''", "!!str 3"])
def test_quotes_and_the_text_tag_make_text(word: str) -> None:
    assert isinstance(value_of(word), str)


def test_keys_are_the_text_that_is_written() -> None:
    assert list(Document("{no: 1, 2016: 2, null: 3, 1.0: 4, true: 5, '': 6, ~: 7, =: 8, <<: 9}").value) == [
        "no",
        "2016",
        "null",
        "1.0",
        "true",
        "",
        "~",
        "=",
        "<<",
    ]


def test_each_value_has_the_line_of_its_key_or_item() -> None:
    document = Document("a: 1\nb:\n  c:\n    2\n  d:\n  - 3\n  - e: 4\n    f: 5\ng: {h: [6,\n  7]}\n")
    assert document.value == {"a": 1, "b": {"c": 2, "d": [3, {"e": 4, "f": 5}]}, "g": {"h": [6, 7]}}
    assert document.lines == {
        ("a",): 1,
        ("b",): 2,
        ("b", "c"): 3,
        ("b", "d"): 5,
        ("b", "d", 0): 6,
        ("b", "d", 1): 7,
        ("b", "d", 1, "e"): 7,
        ("b", "d", 1, "f"): 8,
        ("g",): 9,
        ("g", "h"): 9,
        ("g", "h", 0): 9,
        ("g", "h", 1): 10,
    }


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_blanks_and_comments_are_an_empty_document(text: str) -> None:
    assert Document(text).empty


def test_a_null_is_not_an_empty_document() -> None:
    assert not Document("~").empty


def test_a_key_given_twice_is_a_flaw_with_both_lines() -> None:
    document = Document("a:\n  b: 1\n  c: 2\n  b: 3\nd: {e: 1, e: 2}\n")
    assert document.flaws == [
        (("a", "b"), 4, "given twice, first in line 2: keep one"),
        (("d", "e"), 5, "given twice"),
    ]


def test_the_same_key_in_two_sections_is_no_flaw() -> None:
    assert Document("a: {x: 1}\nb: {x: 2}\n").flaws == []


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("!!python/object/apply:os.system ['echo']", "!!python/object/apply:os.system"),
        ("!!python/name:os.system", "!!python/name:os.system"),
        ("!mine {a: 1}", "!mine"),
        ("!!int abc", "!!int"),
        ("!!bool yes", "!!bool"),
        ("!!set {a, b}", "!!set"),
        ("!!binary aGk=", "!!binary"),
        ("!!map [1]", "!!map"),
        ("!!seq 1", "!!seq"),
    ],
)
def test_tags_are_flaws_and_run_nothing(text: str, tag: str) -> None:
    document = Document(f"a: 1\nb: {text}\n")
    assert document.flaws == [(("b",), 2, f"the tag '{tag}' is not read: write the plain value")]
    assert document.value["a"] == 1


def test_a_key_that_is_no_word_is_a_flaw_and_left_out() -> None:
    document = Document("a: 1\n[b]: 2\n? {c: d}\n: 3\n")
    assert document.value == {"a": 1}
    assert [(flaw.line, flaw.words) for flaw in document.flaws] == [
        (2, "a key must be a word, not a list or a mapping"),
        (3, "a key must be a word, not a list or a mapping"),
    ]


@pytest.mark.parametrize("text", ["a: &x 1\nb: 2\n", "a: &x {b: *x}\n", "b: *x\n", "a: &x [1]\nb: *x\n"])
def test_anchors_and_aliases_are_refused(text: str) -> None:
    with pytest.raises(YamlError, match="anchors") as caught:
        Document(text)
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3000,
        "a: " + "[" * 3000 + "]" * 3000,
        "{a: " * 3000,
        "- " * 3000 + "x",
        "\n".join(" " * depth + "a:" for depth in range(2000)),
    ],
)
def test_deep_nesting_is_refused_and_does_not_crash(text: str) -> None:
    with pytest.raises(YamlError, match="nested more than 20 levels"):
        Document(text)


def test_nesting_is_read_to_its_limit() -> None:
    assert not Document("[" * DEEPEST + "]" * DEEPEST).flaws


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a:\n\tb: 1\n", 2, 1, "a tab is used for indentation"),
        ("a:\n  b: 1\n\tc: 2\n", 3, 1, "a tab is used for indentation"),
        ("a:\n  \tb: 1\n", 2, 3, "a tab is used for indentation"),
        ("a:\t1\n", 1, 3, "a tab"),
        ("a: b: c\n", 1, 5, "`: ` cannot stand here"),
        ("a: 1\n  b: 2\n", 2, 4, "`: ` cannot stand here"),
        ("a:\n  b: 1\n c: 2\n", 3, 2, "does not fit the lines above"),
        ("- a\nb: c\n", 2, 1, "does not fit the lines above"),
        ("a: 1\n...\nb\n", 3, 1, "does not fit the lines above"),
        ("a: - b\n", 1, 4, "a list item"),
        ("a: 1\nb\nc: 2\n", 2, 1, "a colon, or the space after it, is missing here"),
        ("a: 1\nb: 2\nc 3\n", 3, 1, "a colon, or the space after it, is missing here"),
        ("x: 1\na: [1, 2\nb: 3\n", 2, 4, "opened here with ["),
        ("x: 1\na: {b: 1\nc: 3\n", 2, 4, "opened here with {"),
        ("x: 1\na: 'b\nc: 3\n", 2, 4, "the quote opened here"),
        ('a: "C:\\data"\n', 1, 8, "a backslash in double quotes"),
        ('a: "\\xzz"\n', 1, 7, "a backslash in double quotes"),
        ("a: @b\n", 1, 4, "cannot start with this character"),
        ("a: !b!c d\n", 1, 4, "cannot start with !"),
        ("a: 1\n---\nb: 2\n", 2, 1, "a second document"),
        ("a: 1\nb: x\x00y\n", 2, 5, r"the character '\x00' cannot stand here"),
        ("%YAML 2.0\n---\na: 1\n", 1, 1, "this is not YAML"),
        ('a: "\\UFFFFFFFF"\n', 1, 1, "names no character"),
    ],
)
def test_broken_grammar_has_its_place_and_plain_words(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(YamlError) as caught:
        Document(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert words in caught.value.words


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("name x\nseed: 1\n", 1, 1),
        ("---\nname x\nseed: 1\n", 2, 1),
        ("data\n  train: 1\n", 1, 1),
        ("model:\n  d_model 64\n  ffn_dim: 128\n", 2, 3),
        ("model:\n  d_model:64\n  ffn_dim: 128\n", 2, 3),
        ("model:\n  d_model 64 # wide: enough\n  ffn_dim: 128\n", 2, 3),
        ("model:\n\n  d_model 64\n\n  # heads\n  ffn_dim 4\n  num_heads: 2\n", 3, 3),
        ("data:\n  train:\n  - source a\n    target: b\n", 3, 5),
        ("data:\n  train:\n  -\n    source a\n    target: b\n", 4, 5),
        ("data:\n  train\n  - source: a\n    target: b\n", 2, 3),
    ],
)
def test_a_first_key_without_a_colon_is_shown_where_it_stands(text: str, line: int, column: int) -> None:
    # YAML complains in the line behind, up to which the key and its value are a text that goes on.
    with pytest.raises(YamlError, match="a colon, or the space after it, is missing here") as caught:
        Document(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a:\n- b\n- c\nd: e: f\n", 4),
        ("a: |\n  b\nd: e: f\n", 3),
        ("a: 'b\n  c'\n  d: e\n", 3),
        ("- a\nb: c\n", 2),
    ],
)
def test_lines_that_need_no_colon_are_not_blamed(text: str, line: int) -> None:
    with pytest.raises(YamlError) as caught:
        Document(text)
    assert "missing" not in caught.value.words
    assert caught.value.line == line


@pytest.mark.parametrize(
    "word", ["no", "on", "1e-09", "1e4", "2016", "null", "", "true", "017", "a: b", "# c", "~", "="]
)
def test_text_that_looks_like_something_else_survives_writing(word: str) -> None:
    assert Document(to_yaml({"key": word, word: "value"})).value == {"key": word, word: "value"}


@pytest.mark.parametrize("text", ["\x85", "a\u2028b", " a\n\n b ", "\ufeff", "a" + " b" * 200, "\t", "\x07", "中文 😀"])
def test_text_with_odd_characters_survives_writing(text: str) -> None:
    assert Document(to_yaml({"key": [text]})).value == {"key": [text]}


@pytest.mark.parametrize("number", [1e-9, 1e-4, 0.5, 1e22, 5e-324, 1.0, 3, -7])
def test_numbers_survive_writing(number: float) -> None:
    assert same(Document(to_yaml({"key": number})).value["key"], number)


def test_text_that_older_readers_take_for_something_else_is_quoted() -> None:
    assert to_yaml({"a": "no", "b": "12:30", "c": "plain"}) == "a: 'no'\nb: '12:30'\nc: plain\n"
