"""`init` writes a folder that one can train in at once, and never writes over anything."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from transformer_cli.config.load import load_training_config
from transformer_cli.config.recipes import recipe_for
from transformer_cli.config.schema import HoldOut
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.prepared import Preparation
from transformer_cli.data.split import Splits
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.project import Files, OwnText, Template, write_own, write_template

TOYS: tuple[Template, ...] = tuple(template for template in get_args(Template) if template != "demo")


def lines(folder: Path, name: str) -> list[str]:
    text = (folder / "data" / name).read_bytes().decode()
    assert text.endswith("\n")
    return text.split("\n")[:-1]


@pytest.mark.parametrize("template", TOYS)
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


def test_the_demo_has_three_test_sets_and_the_first_is_the_whole(tmp_path: Path) -> None:
    config = load_training_config(write_template(tmp_path, "demo"))
    assert list(config.data.test) == ["all", "seen", "new"]
    tests = Splits(config).tests()
    assert tests["all"] == tests["seen"] + tests["new"]
    assert len(tests["new"]) >= 0.3 * len(tests["all"])
    assert not {pair.source for pair in tests["all"]} & {pair.source for pair in Splits(config).train(FilterCounts())}


# --- a person's own text ----------------------------------------------------------------------------------------------


def own(folder: Path, pairs: int, **given: Files) -> OwnText:
    for side in ("en", "de"):
        text = "".join(f"sentence {i} of {side}\n" for i in range(pairs))
        (folder / f"my.{side}").write_text(text, encoding="utf-8")
    train = Files(folder / "my.en", folder / "my.de")
    return OwnText(train, "en", "de", given.get("valid"), given.get("test"))


@pytest.mark.parametrize(
    ("pairs", "held_out"),
    [
        (300, 30),  # never above a tenth
        (600, 50),  # at least 50
        (4_000, 200),  # a twentieth
        (40_000, 1_000),  # at most 1,000
    ],
)
def test_a_twentieth_is_held_out_for_validation_and_for_test(tmp_path: Path, pairs: int, held_out: int) -> None:
    config = load_training_config(write_own(tmp_path / "mine", own(tmp_path, pairs)))
    assert config.data.valid == HoldOut(hold_out=held_out)
    assert config.data.test == {"test": HoldOut(hold_out=held_out)}


def test_files_that_are_given_are_named_and_nothing_is_held_out_for_them(tmp_path: Path) -> None:
    other = Files(tmp_path / "my.de", tmp_path / "my.en")
    config = load_training_config(write_own(tmp_path / "mine", own(tmp_path, 1000, valid=other, test=other)))
    named = {"train": config.data.train, "valid": config.data.valid, **config.data.test}
    files = {
        key: [path.resolve().name for corpus in part for path in (corpus.source, corpus.target)]
        for key, part in named.items()
        if not isinstance(part, HoldOut)
    }
    assert files == {"train": ["my.en", "my.de"], "valid": ["my.de", "my.en"], "test": ["my.de", "my.en"]}


def test_the_numbers_are_those_of_the_recipe_for_what_is_left_to_train_on(tmp_path: Path) -> None:
    config = load_training_config(write_own(tmp_path / "mine", own(tmp_path, 5_500)))  # 4,950 are left
    recipe = recipe_for(4_950)
    assert (config.tokenizer.vocab_size, config.model.d_model, config.model.encoder_layers) == (
        recipe.vocab_size,
        recipe.d_model,
        recipe.layers,
    )
    assert config.training.max_steps == recipe.max_steps
    assert recipe != recipe_for(5_500)


def test_the_text_is_named_relative_to_the_folder_where_both_can_be_moved_together(tmp_path: Path) -> None:
    text = write_own(tmp_path / "mine", own(tmp_path, 1000)).read_text(encoding="utf-8")
    assert "{source: ../my.en, target: ../my.de}" in text


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("翻译", "翻译"),
        ("中文 run", "中文-run"),
        ("über.1", "über.1"),
        ("+_.a", "a"),
        ("???", "own"),
        ("हिन्दी", "हिन्दी"),
        ("汉" * 85, "汉" * 50),
    ],
)
def test_a_run_is_named_like_the_folder_in_letters_of_any_script(tmp_path: Path, folder: str, name: str) -> None:
    assert load_training_config(write_own(tmp_path / folder, own(tmp_path, 1000))).name == name


@pytest.mark.parametrize("name", ["a b", "über", "x: y", 'quo"te', "#1", "汉语"])
def test_folders_with_any_name_work(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    config = load_training_config(write_own(folder / name, own(folder, 1000)))
    assert config.data.train[0].source.resolve() == folder / "my.en"


def test_too_little_text_is_refused_and_little_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataError, match="9 pairs with text on both sides: too few"):
        write_own(tmp_path / "mine", own(tmp_path, 9))
    assert not (tmp_path / "mine").exists()
    write_own(tmp_path / "mine", own(tmp_path, 499))
    assert "BLEU will mean little" in caplog.text


def test_text_that_cannot_be_used_leaves_no_folder(tmp_path: Path) -> None:
    text = own(tmp_path, 1000)
    (tmp_path / "my.de").write_bytes(b"\xff\n" * 1000)
    with pytest.raises(DataError, match=r"my\.de"):
        write_own(tmp_path / "mine", text)
    assert not (tmp_path / "mine").exists()


def test_chinese_gets_pieces_for_most_characters_and_others_for_all(tmp_path: Path) -> None:
    text = own(tmp_path, 1000)
    assert load_training_config(write_own(tmp_path / "de", text)).tokenizer.character_coverage == 1.0
    chinese = replace(text, target_lang="zh-Hant")
    assert load_training_config(write_own(tmp_path / "zh", chinese)).tokenizer.character_coverage == 0.9995
    japanese = replace(text, source_lang="JPN")
    assert load_training_config(write_own(tmp_path / "jpn", japanese)).tokenizer.character_coverage == 0.9995


@pytest.mark.parametrize("many", [2500, 3500])
def test_text_of_many_characters_gets_a_vocabulary_that_can_be_trained(tmp_path: Path, many: int) -> None:
    text = own(tmp_path, 6000)
    lines = ("".join(chr(0x4E00 + (7 * i + j) % many) for j in range(7)) for i in range(6000))
    (tmp_path / "my.de").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    config = load_training_config(write_own(tmp_path / "zh", replace(text, target_lang="zh")))
    trained = Preparation(config, threads=1, writable=False).tokenizers()
    assert many < trained.target.vocab_size <= config.tokenizer.vocab_size


def test_the_same_file_on_both_sides_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = own(tmp_path, 1000)
    write_own(tmp_path / "mine", replace(text, train=Files(text.train.source, text.train.source)))
    assert "source and target are the same file" in caplog.text
