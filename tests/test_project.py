"""`init` writes a folder that one can train in at once, and never writes over anything."""

from pathlib import Path
from typing import get_args

import pytest

from transformer_cli.config.load import load_training_config
from transformer_cli.errors import ConfigError
from transformer_cli.project import Template, write_template

TEMPLATES: tuple[Template, ...] = get_args(Template)


def lines(folder: Path, name: str) -> list[str]:
    text = (folder / "data" / name).read_bytes().decode()
    assert text.endswith("\n")
    return text.split("\n")[:-1]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_folder_holds_a_configuration_that_finds_its_text(tmp_path: Path, template: Template) -> None:
    path = write_template(tmp_path / "a" / "b", template)
    assert path == tmp_path / "a" / "b" / "config.yaml"
    config = load_training_config(path)
    assert config.name == f"{template}-task"
    assert config.data.train[0].source == tmp_path / "a" / "b" / "data" / "train.src"
    found = {str(p.relative_to(path.parent)) for p in path.parent.rglob("*") if p.is_file()}
    text = {f"data/{split}.{side}" for split in ("train", "valid", "test") for side in ("src", "tgt")}
    assert found == {"config.yaml"} | text


@pytest.mark.parametrize(
    ("template", "answer"),
    [("copy", lambda words: words), ("reverse", lambda words: words[::-1])],
)
def test_the_target_is_what_the_template_says(tmp_path: Path, template: Template, answer: object) -> None:
    assert callable(answer)
    write_template(tmp_path, template)
    for split in ("train", "valid", "test"):
        for source, target in zip(lines(tmp_path, f"{split}.src"), lines(tmp_path, f"{split}.tgt"), strict=True):
            assert target.split() == answer(source.upper().split())


def test_no_line_is_in_two_sets_and_none_comes_twice(tmp_path: Path) -> None:
    write_template(tmp_path, "copy")
    sets = [lines(tmp_path, f"{split}.src") for split in ("train", "valid", "test")]
    together = [line for one in sets for line in one]
    assert len(together) == len(set(together)) == 5400


def test_the_same_text_comes_every_time(tmp_path: Path) -> None:
    write_template(tmp_path / "one", "copy")
    write_template(tmp_path / "two", "copy")
    assert lines(tmp_path / "one", "train.src") == lines(tmp_path / "two", "train.src")


def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigError, match="already exists and is not an empty folder"):
        write_template(tmp_path, "copy")
    with pytest.raises(ConfigError, match="already exists and is not an empty folder"):
        write_template(tmp_path / "mine", "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
