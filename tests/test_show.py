"""Every value with where it comes from, as YAML that means the same; and a JSON Schema that knows every key."""

import json
from pathlib import Path
from typing import Any

import pytest

from transformer_cli.config.load import load_config
from transformer_cli.config.schema import Config
from transformer_cli.config.show import json_schema, show_config
from transformer_cli.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))

TEXT = """\
data:
  train: [{source: a.en, target: a.de}]
  valid: {hold_out: 10}
  test:
    news: [{path: b.tsv, source_field: 1, target_field: 2}]
model:
  d_model: 64
training: {valid_steps: 25}
"""


def origins(lines: list[str]) -> dict[str, str]:
    """Key, indented as it stands and perhaps a comment -> what the comment behind it says."""
    with_comment = (line.rpartition("  # ") for line in lines if ":" in line.rpartition("  # ")[0])
    return {before.partition(":")[0]: after for before, _, after in with_comment}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(TEXT)
    return tmp_path / "small.yaml"


def test_each_value_tells_its_line_its_flag_its_default_or_what_it_is_computed_from(path: Path) -> None:
    found = origins(list(show_config(path, ["decoding.beam_size=7", "data.filters={script: true}", "data.test.x="])))
    assert {key: found[key] for key in ("name", "seed", "  train", "    hold_out", "    news", "  d_model")} == {
        "name": "computed: the name of the file",
        "seed": "default",
        "  train": f"{path}:2",
        "    hold_out": f"{path}:3",
        "    news": f"{path}:5",
        "  d_model": f"{path}:7",
    }
    assert found["  ffn_dim"] == "default"
    assert found["  valid_steps"] == f"{path}:8"
    assert found["  # save_steps"] == "computed: training.valid_steps"
    assert found["  # embedding_dropout"] == "computed: model.dropout"
    assert found["  beam_size"] == "--set decoding.beam_size=7"
    assert found["    script"] == "--set data.filters={script: true}"
    assert found["    identical"] == "default"


def test_a_computed_value_that_was_written_tells_its_line(path: Path) -> None:
    lines = list(show_config(path, ["training.save_steps=5", "model.dropout=0.3"]))
    assert origins(lines)["  save_steps"] == "--set training.save_steps=5"
    assert any(line.startswith("  # embedding_dropout: 0.3 ") for line in lines)
    within = list(show_config(path, ["model={dropout: 0.3, embedding_dropout: 0.2}"]))
    assert any(line.startswith("  embedding_dropout: 0.2 ") for line in within)


def test_an_emptied_key_is_the_default_again(path: Path) -> None:
    assert origins(list(show_config(path, ["model.d_model="])))["  d_model"] == "default"


@pytest.mark.parametrize("shipped", CONFIGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("overrides", [[], ["training.init_from=base"], ["model.dropout=0.3", "training.save_steps=7"]])
def test_what_is_shown_reads_back_to_the_same(shipped: Path, overrides: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_text("\n".join(show_config(shipped, overrides)) + "\n")
    assert load_config(copy) == load_config(shipped, overrides)


def test_what_comes_with_the_weights_to_start_from_stays_unsaid(path: Path) -> None:
    for overrides, said in ([], {"d_model"}), (["model.d_model="], set()):
        lines = list(show_config(path, ["training.init_from=base", "tokenizer.shared=true", *overrides]))
        (path.parent / "copy.yaml").write_text("\n".join(lines) + "\n")
        copy = load_config(path.parent / "copy.yaml")
        assert copy.model.model_fields_set == said
        assert copy.tokenizer.model_fields_set == {"shared", "sampling_alpha"}  # the latter is never the base's
        assert origins(lines)["  # ffn_dim"] == "from training.init_from"


def test_every_key_is_shown(path: Path) -> None:
    shown = {line.partition(":")[0].strip(" #") for line in show_config(path)}
    for name, field in Config.model_fields.items():
        section = getattr(field.annotation, "model_fields", {})
        assert {name, *section} <= shown


def test_what_is_wrong_is_told_instead(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--set model\.d_model=0: must be at least 1, not 0"):
        show_config(path, ["model.d_model=0"])


# --- the JSON Schema --------------------------------------------------------------------------------------------------


def resolved(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = node.get("$ref", "").removeprefix("#/$defs/")
    found: dict[str, Any] = schema["$defs"][name] if name else node
    return found


def test_the_schema_has_every_key_with_its_meaning() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["properties"].keys() == Config.model_fields.keys()
    for name, field in Config.model_fields.items():
        section = resolved(schema["properties"][name], schema)
        assert section["description"]
        for key, inner in getattr(field.annotation, "model_fields", {}).items():
            entry = section["properties"][key]
            assert resolved(entry, schema)["description"], key
            if inner.description:
                assert entry["description"] == " ".join(inner.description.split())


def test_the_schema_refuses_unknown_keys_and_needs_none() -> None:
    schema = json_schema()
    assert schema["required"] == []
    assert schema["additionalProperties"] is False
    assert all(section["additionalProperties"] is False for section in schema["$defs"].values())


def test_the_schema_has_choices_defaults_and_bounds() -> None:
    sections = json_schema()["$defs"]
    assert sections["ModelConfig"]["properties"]["norm"] == {
        "default": "post",
        "description": "LayerNorm after each residual sum (the paper) or before each block (easier to train deep).",
        "enum": ["post", "pre"],
        "type": "string",
    }
    metrics = sections["EvaluationConfig"]["properties"]["metrics"]
    assert (metrics["type"], metrics["minItems"], metrics["default"]) == ("array", 1, ["bleu", "chrf"])
    assert metrics["items"]["enum"] == ["bleu", "chrf", "chrf++", "ter"]
    assert sections["ModelConfig"]["properties"]["d_model"]["minimum"] == 1


@pytest.mark.parametrize("shipped", CONFIGS, ids=lambda path: path.stem)
def test_the_schema_accepts_what_is_shipped(shipped: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    from transformer_cli.config.yaml_text import Document

    jsonschema.Draft202012Validator(json.loads(json.dumps(json_schema()))).validate(Document(shipped.read_text()).value)
