import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_cli.config.load import dump_config, load_config, load_training_config
from transformer_cli.config.schema import Config, Corpus, HoldOut
from transformer_cli.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: configurations in it are named without a folder in the messages."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, *overrides: str) -> Config:
    Path("config.yaml").write_text(text, encoding="utf-8")
    return load_config(Path("config.yaml"), overrides)


def errors(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, *overrides)
    return str(caught.value).split("\n")


def training_errors(text: str, *overrides: str) -> list[str]:
    Path("config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_training_config(Path("config.yaml"), overrides)
    return str(caught.value).split("\n")


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_the_rest_has_its_default(folder: Path) -> None:
    config = read("name: a\ndata: {source_lang: no}\ntraining: {adam_eps: 1e-8, label_smoothing: .2}\n")
    assert (config.name, config.data.source_lang) == ("a", "no")
    assert (config.training.adam_eps, config.training.label_smoothing) == (1e-8, 0.2)
    assert config.model == Config(name="a").model


def test_the_name_left_out_is_that_of_the_file(folder: Path) -> None:
    assert read("seed: 3").name == "config"


def test_a_file_name_that_is_no_name_is_said(folder: Path) -> None:
    Path("my config.yaml").write_text("seed: 3\n")
    with pytest.raises(ConfigError) as caught:
        load_config(Path("my config.yaml"))
    assert str(caught.value) == (
        "my config.yaml: name: left out, and the file's own name 'my config' will not do: add a name of letters, "
        "digits and . _ + - (at most 100, a letter or digit first)"
    )
    assert load_config(Path("my config.yaml"), ["name=mine"]).name == "mine"


def test_relative_paths_count_from_the_folder_of_the_file_and_become_absolute(folder: Path) -> None:
    (folder / "sub").mkdir()
    Path("sub/a.yaml").write_text("data: {train: [{source: x.en, target: /y.de}]}\n")
    config = load_config(Path("sub/a.yaml"), ["data.valid=[{source: v.en, target: ../v.de}]"])
    assert config.data.train == (Corpus(source=folder / "sub/x.en", target=Path("/y.de")),)
    assert config.data.valid == (Corpus(source=folder / "sub/v.en", target=folder / "v.de"),)


def test_a_byte_order_mark_and_windows_line_ends_are_tolerated(folder: Path) -> None:
    Path("a.yaml").write_bytes(b"\xef\xbb\xbfname: x\r\nmodel:\r\n  d_model: 64\r\n")
    assert load_config(Path("a.yaml")).model.d_model == 64


def test_test_sets_keep_their_order_and_may_have_any_name(folder: Path) -> None:
    config = read("data: {test: {no: [], 2016: [], null: [], 1e4: [], a.b: []}}\n")
    assert list(config.data.test) == ["no", "2016", "null", "1e4", "a.b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.yaml: the file is empty; it needs at least a data section"),
        (b"# nothing\n", "a.yaml: the file is empty; it needs at least a data section"),
        (b"- a\n- b\n", "a.yaml: must hold `key: value` lines at the top, not ['a', 'b']"),
        (b"train\n", "a.yaml: must hold `key: value` lines at the top, not 'train'"),
        (b"~\n", "a.yaml: must hold `key: value` lines at the top, not null"),
        (b"!!python/object:os.system {}\n", "a.yaml:1: the tag '!!python/object:os.system' is not read: write the "
        "plain value"),
        (b"a: 1\nb: caf\xe9\n", "a.yaml:2: not UTF-8 text (byte 0xe9); save the file as UTF-8"),
        (b"\xff\xfea\x00", "a.yaml:1: not UTF-8 text (byte 0xff); save the file as UTF-8"),
        (b"model:\n\td_model: 3\n", "a.yaml:2: column 1: a tab is used for indentation; YAML takes only spaces"),
        (b"[" * 5000, "a.yaml:1: column 21: nested more than 20 levels deep"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_configuration_is_one_clear_error(folder: Path, content: bytes, message: str) -> None:
    Path("a.yaml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(Path("a.yaml"))
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_a_missing_file_and_a_folder_are_told_apart(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^no\.yaml: no such file$"):
        load_config(Path("no.yaml"))
    with pytest.raises(ConfigError, match="is a folder; give the YAML file in it"):
        load_config(folder)


def test_reading_a_configuration_imports_no_torch() -> None:
    code = "import sys, transformer_cli.config.load; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


# --- Overrides --------------------------------------------------------------------------------------------------------


def test_overrides_are_read_as_yaml_and_the_last_one_wins(folder: Path) -> None:
    config = read(
        "training: {max_steps: 3, patience: 2}\n",
        "training.max_steps=7",
        "training.adam_eps=1e-4",
        "training.patience=null",
        "evaluation.lowercase=true",
        "data.source_lang=no",
        "training.max_steps= 8 ",
        "seed=5",
    )
    assert (config.training.max_steps, config.training.adam_eps, config.training.patience) == (8, 1e-4, None)
    assert (config.evaluation.lowercase, config.data.source_lang, config.seed) == (True, "no", 5)


def test_lists_and_mappings_are_replaced_not_merged(folder: Path) -> None:
    text = "evaluation: {metrics: [bleu, chrf]}\nmodel: {d_model: 64, norm: pre}\ndata: {test: {a: [], b: []}}\n"
    config = read(text, "evaluation.metrics=[bleu]", "model={d_model: 32}", "data.test={c: []}")
    assert config.evaluation.metrics == ("bleu",)
    assert (config.model.d_model, config.model.norm) == (32, "post")
    assert list(config.data.test) == ["c"]


def test_an_empty_value_resets_to_the_default(folder: Path) -> None:
    text = "name: x\nmodel: {d_model: 64}\ndecoding: {beam_size: 9}\ndata: {test: {a: [], b: []}}\n"
    config = read(text, "model.d_model=", "decoding=", "name= ", "data.test.a=", "training.patience=")
    assert config == Config.model_validate({"name": "config", "data": {"test": {"b": []}}})


def test_one_test_set_is_set_by_its_name_dots_included(folder: Path) -> None:
    config = read("data: {test: {a: []}}\n", "data.test.b.c=[{source: /s, target: /t}]")
    assert config.data.test == {"a": (), "b.c": (Corpus(source=Path("/s"), target=Path("/t")),)}
    held_out = read("data: {test: {a: {hold_out: 9}}}\n", "data.test.a.hold_out=5", "data.test.b.c.hold_out=7")
    assert held_out.data.test == {"a": HoldOut(hold_out=5), "b.c": HoldOut(hold_out=7)}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.max_steps", "has no `=`; write section.key=VALUE"),
        ("training.warmup_step=3", "unknown key; did you mean training.warmup_steps?"),
        ("training.warmup_step=", "unknown key; did you mean training.warmup_steps?"),
        ("training.d_model=3", "unknown key; d_model belongs to model: write model.d_model"),
        ("lr=1", "unknown key; here it is called training.learning_rate"),
        ("evaluation.foo=1", "unknown key; known here: metrics, valid_beam_size, tokenize, lowercase"),
        ("data.train[0].source=x", "unknown key; an item cannot be set alone: set the whole of data.train"),
        ("training.max_steps=two", "must be a whole number, not 'two'"),
        ("training.max_steps=[1", "the list opened here with [ is not closed with ], or lacks a comma"),
        ("training.max_steps=*a", "anchors (&) and aliases (*) are not read: write the value out, or quote text that "
         "starts so"),
        ("training.max_steps=!!python/name:os.system", "the tag '!!python/name:os.system' is not read: write the plain "
         "value"),
        ("data.train=[{source: a}]", "data.train[0].target: missing"),
        ("model={d_model: 2, d_model: 4, num_heads: 1}", "model.d_model: given twice"),
        ("model={warmup_steps: 2}", "model.warmup_steps: unknown key; warmup_steps belongs to training: write "
         "training.warmup_steps"),
        ("model.num_heads=7", "d_model 512 cannot be shared equally by num_heads 7: make d_model a multiple of "
         "num_heads"),
    ],
)  # fmt: skip
def test_an_error_in_an_override_names_the_override(folder: Path, override: str, message: str) -> None:
    assert errors("name: x\n", override) == [f"--set {override}: {message}"]


def test_a_line_break_in_an_override_does_not_break_its_error_in_two(folder: Path) -> None:
    assert errors("name: x\n", "seed=a\n b") == [r"--set 'seed=a\n b': must be a whole number, not 'a b'"]


def test_a_section_that_is_no_mapping_is_not_papered_over_by_an_override(folder: Path) -> None:
    message = "config.yaml:1: model: must be a mapping of keys to values, not 3"
    assert errors("model: 3\n", "model.d_model=64") == [message]


# --- All errors at once -----------------------------------------------------------------------------------------------


def test_all_errors_come_at_once_the_files_by_line_and_then_the_overrides(folder: Path) -> None:
    text = """\
name: x
training:
  warmup_step: 3
  max_steps: two
model:
  d_model: 64
  num_heads: 6
optim:
  d_model: 64
tokenizer:
  vocab_size: 3
  vocab_size: 4
"""
    assert errors(text, "seed=x", "foo=1", "decoding.n_best=9") == [
        "config.yaml:3: training.warmup_step: unknown key; did you mean training.warmup_steps?",
        "config.yaml:4: training.max_steps: must be a whole number, not 'two'",
        "config.yaml:7: model.num_heads: d_model 64 cannot be shared equally by num_heads 6: make d_model a multiple "
        "of num_heads",
        "config.yaml:8: optim: unknown key; here it is called training",
        "config.yaml:9: optim.d_model: unknown key; d_model belongs to model: write model.d_model",
        "config.yaml:12: tokenizer.vocab_size: given twice, first in line 11: keep one",
        "config.yaml:12: tokenizer.vocab_size: must be at least 5, not 4",
        "--set seed=x: must be a whole number, not 'x'",
        "--set foo=1: unknown key; known here: name, seed, device, precision, data, tokenizer, model, training, "
        "decoding, evaluation",
        "--set decoding.n_best=9: n_best 9 needs a beam_size of at least as many, not 4",
    ]


def test_an_unknown_key_does_not_hide_a_conflict_of_its_section_or_of_two_sections(folder: Path) -> None:
    text = "foo: 1\nmodel: {dmodel: 3, num_heads: 7}\ntraining: {best_metric: chrf}\n"
    assert len(errors(text)) == 3
    text = "foo: 1\nmodel: {dmodel: 3}\nevaluation: {metrics: [chrf]}\ntraining: {best_metric: bleu}\n"
    assert errors(text)[2] == "config.yaml:4: training.best_metric bleu is not among evaluation.metrics (chrf)"


def test_a_bad_value_invents_no_conflict(folder: Path) -> None:
    text = "training: {lr_schedule: cosine, learning_rate: high}\nmodel: {d_model: !!x 9, num_heads: 3}\n"
    assert errors(text) == [
        "config.yaml:1: training.learning_rate: must be a number, not 'high'",
        "config.yaml:2: model.d_model: the tag '!!x' is not read: write the plain value",
    ]


def test_a_misspelt_required_key_is_not_reported_missing_as_well(folder: Path) -> None:
    text = "data:\n  train:\n  - {sorce: a, target: b}\n  vaild: []\n"
    assert training_errors(text) == [
        "config.yaml:3: data.train[0].sorce: unknown key; did you mean data.train[0].source?",
        f"config.yaml:3: data.train[0].target: no such file: {folder}/b; relative paths count from the folder of the "
        "YAML file",
        "config.yaml:4: data.vaild: unknown key; did you mean data.valid?",
    ]


def test_keys_under_an_unknown_one_are_reported_unless_its_right_name_puts_them_right(folder: Path) -> None:
    assert errors("trianing:\n  max_steps: 3\n  lr: 1\n") == [
        "config.yaml:1: trianing: unknown key; did you mean training?",
        "config.yaml:3: trianing.lr: unknown key; here it is called training.learning_rate",
    ]


def test_a_misspelt_key_of_a_test_set_is_told_once(folder: Path) -> None:
    assert errors("data:\n  test: {flickr: {hold_outt: 5}}\n") == [
        "config.yaml:2: data.test.flickr.hold_outt: unknown key; did you mean data.test.flickr.hold_out?"
    ]


def test_the_names_of_test_sets_under_a_misspelt_test_are_no_unknown_keys(folder: Path) -> None:
    assert errors("data:\n  tset: {flickr: {hold_out: 5}}\n") == [
        "config.yaml:2: data.tset: unknown key; did you mean data.test?"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  d_model: 100\n", "config.yaml:2: model.num_heads: d_model 100 cannot be shared equally by "
         "num_heads 8: make d_model a multiple of num_heads"),
        ("seed: 1\nmodel:\n  num_heads: 7\n", "config.yaml:3: model.num_heads: d_model 512 cannot be shared equally "
         "by num_heads 7: make d_model a multiple of num_heads"),
        ("tokenizer:\n  shared: false\n", "config.yaml:2: model.tie_embeddings all needs one vocabulary: set "
         "tokenizer.shared to true, or tie_embeddings to target or none"),
    ],
)  # fmt: skip
def test_a_conflict_is_shown_at_a_key_that_was_written(folder: Path, text: str, message: str) -> None:
    assert errors(text) == [message]


# --- Plain words ------------------------------------------------------------------------------------------------------

CORPORA = "a list of {source: FILE, target: FILE}"
PART = f"{CORPORA}, or {{hold_out: NUMBER}}"
ONE_KIND = (
    "must name one kind of text: source and target (files of lines), path (a table) or hub (a Hugging Face data set)"
)
COLUMNS = (
    "columns have numbers in a tsv or csv whose first line holds no names, and then both source_field and target_field "
    "are numbers; else both are names"
)
NAME = "letters, digits and . _ + - (at most 100, a letter or digit first)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {encoder_layers: two}", "model.encoder_layers: must be a whole number, not 'two'"),
        ("model: {encoder_layers: '2'}", "model.encoder_layers: must be a whole number, not '2'; write it without "
         "quotes"),
        ("model: {encoder_layers: true}", "model.encoder_layers: must be a whole number, not true"),
        ("model: {encoder_layers: 2.5}", "model.encoder_layers: must be a whole number, not 2.5"),
        ("training: {max_steps: 1e4}", "training.max_steps: must be a whole number, not 10000.0; write 10000"),
        ("model: {encoder_layers: [2, 3]}", "model.encoder_layers: must be a whole number, not [2, 3]"),
        ("model: {encoder_layers: }", "model.encoder_layers: must be a whole number, not null; give it a value or "
         "leave it out"),
        ("model: {dropout: '0.1'}", "model.dropout: must be a number, not '0.1'; write it without quotes"),
        ("model: {dropout: false}", "model.dropout: must be a number, not false"),
        ("training: {max_hours: 1e999}", "training.max_hours: must be a finite number, not inf"),
        ("model: {norm: middle}", "model.norm: must be post or pre, not 'middle'"),
        ("model: {activation: 3}", "model.activation: must be relu, gelu or swish, not 3"),
        ("tokenizer: {shared: yes}", "tokenizer.shared: must be true or false, not 'yes'"),
        ("tokenizer: {shared: 1}", "tokenizer.shared: must be true or false, not 1"),
        ("seed: -1", "seed: must be at least 0, not -1"),
        ("seed: 017", "seed: must be a whole number, not '017'"),
        ("seed: 4294967296", "seed: must be less than 4294967296, not 4294967296"),
        ("model: {d_model: 0}", "model.d_model: must be at least 1, not 0"),
        ("model: {d_model: 4294967296}", "model.d_model: must be at most 1000000, not 4294967296"),
        ("tokenizer: {vocab_size: 2147483648}", "tokenizer.vocab_size: must be at most 1000000, not 2147483648"),
        ("training: {max_steps: 99999999999}", "training.max_steps: must be at most 1000000000, not 99999999999"),
        ("decoding: {max_length_a: 1e308}", "decoding.max_length_a: must be at most 1000, not 1e+308"),
        ("model: {dropout: 1}", "model.dropout: must be less than 1, not 1"),
        ("training: {adam_eps: 0}", "training.adam_eps: must be more than 0, not 0"),
        ("tokenizer: {character_coverage: 1.5}", "tokenizer.character_coverage: must be at most 1, not 1.5"),
        ("tokenizer: {character_coverage: 0.9}", "tokenizer.character_coverage: must be at least 0.98, not 0.9"),
        ("training: {adam_betas: [0.9]}", "training.adam_betas: must be a list such as [0.9, 0.98], not [0.9]"),
        ("training: {adam_betas: [0.9, 0.98, 0]}", "training.adam_betas: must be a list such as [0.9, 0.98], not "
         "[0.9, 0.98, 0]"),
        ("training: {adam_betas: 0.9}", "training.adam_betas: must be a list such as [0.9, 0.98], not 0.9"),
        ("training: {adam_betas: [0.9, 1]}", "training.adam_betas[1]: must be less than 1, not 1"),
        ("tokenizer: {user_defined_symbols: <2de>}", "tokenizer.user_defined_symbols: must be a list of texts without "
         "spaces, not '<2de>'"),
        ("evaluation: {metrics: bleu}", "evaluation.metrics: must be a list such as [bleu, chrf], not 'bleu'"),
        ("evaluation: {metrics: []}", "evaluation.metrics: must be a list such as [bleu, chrf], not []"),
        ("evaluation: {metrics: [x]}", "evaluation.metrics[0]: must be bleu, chrf, chrf++ or ter, not 'x'"),
        ("data: {train: a.en}", f"data.train: must be {CORPORA}, not 'a.en'"),
        ("data: {train: {source: a, target: b}}", f"data.train: must be {CORPORA}, not {{source: 'a', target: 'b'}}"),
        ("data: {train: [a.en]}", "data.train[0]: must be {source: FILE, target: FILE}, not 'a.en'"),
        ("data: {train: [{source: a}]}", "data.train[0].target: missing"),
        ("data: {train: [{source: 3, target: b}]}", "data.train[0].source: must be a file name, not 3"),
        ("data: {train: [{source: '', target: b}]}", "data.train[0].source: must be a file name, not ''"),
        ("data: {train: [{source: {a: b}, target: b}]}", "data.train[0].source: must be a file name, not {a: 'b'}"),
        ("data: {train: [{source: [], target: b}]}", "data.train[0].source: must be a file name or a list of them, not "
         "[]"),
        ("data: {train: [{source: [a, 3], target: b}]}", "data.train[0].source[1]: must be a file name, not 3"),
        ("data: {train: [{source: a, target: b, weight: 0}]}", "data.train[0].weight: must be more than 0, not 0"),
        ("data: {train: [{source: a, target: b, path: c}]}", f"data.train[0]: {ONE_KIND}, not {{source: 'a', target: "
         "'b', path: 'c'}"),
        ("data: {train: [{path: a.tsv, hub: b}]}", f"data.train[0]: {ONE_KIND}, not {{path: 'a.tsv', hub: 'b'}}"),
        ("data: {train: [{weight: 2}]}", f"data.train[0]: {ONE_KIND}, not {{weight: 2}}"),
        ("data: {train: [{}]}", f"data.train[0]: {ONE_KIND}, not {{}}"),
        ("data: {train: [{path: a.tsv, source_field: 1}]}", "data.train[0].target_field: missing"),
        ("data: {train: [{source_field: a, target_field: b}]}", "data.train[0].path: missing"),
        ("data: {train: [{path: a.tsv, source_field: 0, target_field: 2}]}", "data.train[0].source_field: must be the "
         "name of a field, or the number of a column, from 1, not 0"),
        ("data: {train: [{path: a.txt, source_field: a, target_field: b}]}", "data.train[0].path: a.txt does not tell "
         "its format: add format: tsv, csv, jsonl, json or parquet"),
        ("data: {train: [{path: book.xlsx, source_field: a, target_field: b}]}", "data.train[0].path: book.xlsx is an "
         'Excel workbook: save it as "CSV UTF-8"'),
        ("data: {train: [{path: a.gz, source_field: a, target_field: b}]}", "data.train[0].path: a.gz does not tell "
         "its format: add format: tsv, csv, jsonl, json or parquet"),
        ("data: {train: [{path: a.tsv, source_field: 1, target_field: b}]}", f"data.train[0].source_field: {COLUMNS}"),
        ("data: {train: [{path: a.jsonl, source_field: 1, target_field: 2}]}", f"data.train[0].source_field: "
         f"{COLUMNS}"),
        ("data: {train: [{path: a, format: xml, source_field: a, target_field: b}]}", "data.train[0].format: must be "
         "tsv, csv, jsonl, json or parquet, not 'xml'"),
        ("data: {train: [{hub: a/b, source_field: a, target_field: b}]}", "data.train[0].split: missing"),
        ("data: {test: [a]}", f"data.test: must be names with {PART} each, not ['a']"),
        ("data: {test: {a: b}}", f"data.test.a: must be {PART}, not 'b'"),
        ("data: {valid: {source: a, target: b}}", f"data.valid: must be {PART}, not {{source: 'a', target: 'b'}}"),
        ("data: {test: {source: a}}", f"data.test.source: must be {PART}, not 'a'"),
        ("data: {valid: {hold_out: 0}}", "data.valid.hold_out: must be at least 1, not 0"),
        ("data: {test: {a: {hold_out: x}}}", "data.test.a.hold_out: must be a whole number, not 'x'"),
        ("data: {valid: {holdout: 5}}", "data.valid.holdout: unknown key; did you mean data.valid.hold_out?"),
        ("data: {test: {a b: []}}", f"data.test.'a b': must be {NAME}, not 'a b'"),
        ("data: {source_lang: Klingon language}", "data.source_lang: must be a language tag such as en or pt-BR, not "
         "'Klingon language'"),
        ("data: {source_lang: true}", "data.source_lang: must be text, not true; put it in quotes"),
        ("name: 2016", "name: must be text, not 2016; put it in quotes"),
        ("name: a/b", f"name: must be {NAME}, not 'a/b'"),
        ("model: 3", "model: must be a mapping of keys to values, not 3"),
        ("model:", "model: must be a mapping of keys to values, not null; give it a value or leave it out"),
        ("foo bar: 1", "'foo bar': unknown key; known here: name, seed, device, precision, data, tokenizer, model, "
         "training, decoding, evaluation"),
        ("seed: " + "x" * 200, "seed: must be a whole number, not '" + "x" * 78 + "…"),
        ('seed: "a\\nb\\e"', r"seed: must be a whole number, not 'a\nb\x1b'"),
    ],
)  # fmt: skip
def test_a_refused_value_is_said_in_plain_words_and_shown(folder: Path, text: str, message: str) -> None:
    assert errors(f"# a comment\n{text}\n") == [f"config.yaml:2: {message}"]


def test_keys_that_are_no_words_are_unknown_keys(folder: Path) -> None:
    lines = errors("1: x\nnull: x\n~: y\n'': z\n[a]: b\n")
    assert [line.partition("; ")[0] for line in lines] == [
        "config.yaml:1: 1: unknown key",
        "config.yaml:2: null: unknown key",
        "config.yaml:3: '~': unknown key",
        "config.yaml:4: '': unknown key",
        "config.yaml:5: a key must be a word, not a list or a mapping",
    ]


def test_a_missing_key_of_an_item_has_the_line_of_the_item(folder: Path) -> None:
    text = "data:\n  train:\n  - source: a\n    target: b\n  -\n    target: c\n"
    assert errors(text) == ["config.yaml:6: data.train[1].source: missing"]


# --- Data to train on -------------------------------------------------------------------------------------------------

DATA = """\
data:
  train:
  - {source: a.en, target: a.de}
  valid:
  - source: v.en
    target: v.de
"""


def write(*names: str) -> None:
    for name in names:
        Path(name).write_text("x\n")


def test_a_configuration_whose_files_are_there_is_accepted(folder: Path) -> None:
    write("config.yaml", "a.en", "a.de", "v.en", "v.de")
    Path("config.yaml").write_text(DATA)
    assert load_training_config(Path("config.yaml")) == load_config(Path("config.yaml"))


def test_lists_names_with_a_star_and_tables_are_files_too(folder: Path) -> None:
    write("b.1.en", "b.2.en", "b.1.de", "b.2.de", "t.tsv")
    text = """\
data:
  train:
  - {source: b.*.en, target: [b.1.de, b.2.de]}
  - {path: "[st].tsv", source_field: 1, target_field: 2}
  - {path: t.tsv.bin, format: tsv, source_field: 1, target_field: 2}
  - {source: c.*.en, target: [b.1.de, b.3.de]}
  - {hub: ./sets/mine, split: train, source_field: a, target_field: b}
  valid: [{hub: owner/name, split: train, source_field: a, target_field: b}]
"""
    ending = "relative paths count from the folder of the YAML file"
    assert training_errors(text) == [
        f"config.yaml:5: data.train[2].path: no such file: {folder}/t.tsv.bin; {ending}",
        f"config.yaml:6: data.train[3].source: no file fits {folder}/c.*.en; {ending}",
        f"config.yaml:6: data.train[3].target[1]: no such file: {folder}/b.3.de; {ending}",
        f"config.yaml:7: data.train[4].hub: no such folder: {folder}/sets/mine; {ending}",
    ]


def test_files_that_are_not_there_join_the_other_errors_in_order(folder: Path) -> None:
    write("a.en", "v.en")
    os.mkdir("v.de")
    assert training_errors(DATA + "  max_length: long\n  test: {t: [{source: /no/t.en, target: v.en/t.de}]}\n") == [
        f"config.yaml:3: data.train[0].target: no such file: {folder}/a.de; relative paths count from the folder of "
        "the YAML file",
        f"config.yaml:6: data.valid[0].target: not a plain file: {folder}/v.de",
        "config.yaml:7: data.max_length: must be a whole number, not 'long'",
        "config.yaml:8: data.test.t[0].source: no such file: /no/t.en; relative paths count from the folder of the "
        "YAML file",
        f"config.yaml:8: data.test.t[0].target: no such file: {folder}/v.en/t.de; relative paths count from the folder "
        "of the YAML file",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_an_error(folder: Path) -> None:
    write("a.en", "a.de", "v.en", "v.de")
    os.chmod("a.en", 0)
    message = f"config.yaml:3: data.train[0].source: cannot be read (Permission denied): {folder}/a.en"
    assert training_errors(DATA) == [message]


def test_a_file_name_that_no_system_takes_is_an_error(folder: Path) -> None:
    write("a.en", "a.de", "v.en")
    long = "x" * 300
    assert training_errors(DATA.replace("v.de", long)) == [
        f"config.yaml:6: data.valid[0].target: cannot be read (File name too long): {folder}/{long}"
    ]
    assert "embedded null byte" in training_errors(DATA.replace("v.de", r'"\0"'))[0]


def test_a_file_from_an_override_is_an_error_of_the_override(folder: Path) -> None:
    write("v.en", "v.de")
    override = "data.train=[{source: v.en, target: no.de}]"
    assert training_errors(DATA, override) == [
        f"--set {override}: data.train[0].target: no such file: {folder}/no.de; relative paths count from the folder "
        "of the YAML file"
    ]


@pytest.mark.parametrize("text", ["seed: 1\n", "data: {}\n", "data: {train: [], valid: []}\n"])
def test_training_needs_data_to_train_and_to_validate_on(folder: Path, text: str) -> None:
    assert [line.partition(": ")[2] for line in training_errors(text)] == [
        f"data.train: needed to train; give {CORPORA}",
        f"data.valid: needed to train; give {PART}",
    ]
    assert read(text).data.train == ()


def test_data_that_is_wrong_is_not_said_to_be_missing(folder: Path) -> None:
    assert training_errors("data: 3\n") == ["config.yaml:1: data: must be a mapping of keys to values, not 3"]


# --- Case C17: misspelt keys and numbers read as text -----------------------------------------------------------------


def test_scientific_notation_is_a_number(folder: Path) -> None:
    config = read("training:\n  adam_eps: 1e-9\n  label_smoothing: 1e-1\n")
    assert (config.training.adam_eps, config.training.label_smoothing) == (1e-9, 0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training:\n  warmup_step: 200\n", "config.yaml:2: training.warmup_step: unknown key; did you mean "
         "training.warmup_steps?"),
        ("training:\n  d_model: 64\n", "config.yaml:2: training.d_model: unknown key; d_model belongs to model: write "
         "model.d_model"),
        ("model:\n  encoder_layers: two\n", "config.yaml:2: model.encoder_layers: must be a whole number, not 'two'"),
        ("model:\n  d_model: 64\n  num_heads: 6\n", "config.yaml:3: model.num_heads: d_model 64 cannot be shared "
         "equally by num_heads 6: make d_model a multiple of num_heads"),
        ("data:\n  train: [{target: a.de}]\n", "config.yaml:2: data.train[0].source: missing"),
    ],
)  # fmt: skip
def test_each_mistake_names_its_line_its_key_and_the_right_one(folder: Path, text: str, message: str) -> None:
    assert errors(text) == [message]


def test_two_mistakes_are_reported_in_one_go(folder: Path) -> None:
    assert errors("training:\n  warmup_step: 200\nmodel:\n  d_model: 64\n  num_heads: 6\n") == [
        "config.yaml:2: training.warmup_step: unknown key; did you mean training.warmup_steps?",
        "config.yaml:5: model.num_heads: d_model 64 cannot be shared equally by num_heads 6: make d_model a multiple "
        "of num_heads",
    ]


# --- Writing ----------------------------------------------------------------------------------------------------------

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True) | st.sampled_from(
    ["no", "on", "off", "yes", "true", "null", "1e-09", "1e4", "017", "0x10", "2016", "1.5", "12", "2024-01-01"]
)
paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map(lambda text: Path("/") / text)
files = paths | st.lists(paths, min_size=1, max_size=2)
sizes = st.integers(1, 10**9)
weights = {"weight": st.floats(0, 1000, exclude_min=True)}
texts = st.fixed_dictionaries({"source": files, "target": files}, optional=weights)
fields = st.tuples(st.text(min_size=1), st.text(min_size=1)) | st.tuples(st.integers(1, 99), st.integers(1, 99))
tables = st.builds(
    lambda path, fields: {"path": path, "source_field": fields[0], "target_field": fields[1], "format": "tsv"},
    files,
    fields,
)
hubs = st.fixed_dictionaries(
    {"hub": st.sampled_from(["/a/b", "owner/name"]), "split": names, "source_field": names, "target_field": names},
    optional={"revision": names, "config": names, "shuffle_buffer": sizes},
)
corpora = st.lists(texts | tables | hubs, max_size=3)
streams = hubs.map(lambda hub: [hub | {"streaming": True}])
above_zero = st.floats(0, exclude_min=True, allow_infinity=False)
shares = st.floats(0, 1, exclude_max=True)

configs = st.fixed_dictionaries(
    {
        "name": names,
        "seed": st.integers(0, 2**32 - 1),
        "data": st.fixed_dictionaries(
            {"source_lang": st.sampled_from(["no", "on", "en", "zh-Hant"])},
            optional={
                "train": corpora | streams,
                "valid": corpora,
                "test": st.dictionaries(names, corpora, max_size=3),
            },
        ),
        "tokenizer": st.fixed_dictionaries({"byte_fallback": st.booleans(), "vocab_size": st.integers(5, 10**6)}),
        "model": st.fixed_dictionaries({"dropout": shares, "embedding_dropout": st.none() | shares}),
        "training": st.fixed_dictionaries(
            {
                "lr_schedule": st.just("cosine"),
                "learning_rate": above_zero,
                "adam_betas": st.tuples(shares, shares),
                "adam_eps": above_zero,
                "clip_grad_norm": st.none() | above_zero,
                "patience": st.none() | sizes,
            }
        ),
        "evaluation": st.fixed_dictionaries(
            {
                "metrics": st.sampled_from([("bleu",), ("chrf", "bleu")]),
                "tokenize": st.none() | st.sampled_from(["13a", "none", "zh"]),
            }
        ),
    }
).map(Config.model_validate)


@given(config=configs)
@settings(deadline=None, max_examples=60)
def test_what_is_written_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, config: Config) -> None:
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert load_config(path) == config


def test_every_key_is_written_in_the_order_of_the_schema_with_absolute_paths(folder: Path) -> None:
    config = read("data: {train: [{source: a, target: b}], source_lang: no}\ntraining: {adam_eps: 1e-9}\n")
    lines = dump_config(config).splitlines()

    def keys(model: Any) -> list[str]:
        return list(type(model).model_fields)

    assert [line.partition(":")[0] for line in lines if line[0] != " "] == keys(config)
    start = lines.index("training:") + 1
    written = [line.strip().partition(":")[0] for line in lines[start : lines.index("decoding:")] if ":" in line]
    assert written == keys(config.training)
    assert f"  - source: {folder}/a" in lines
    assert "  source_lang: 'no'" in lines
