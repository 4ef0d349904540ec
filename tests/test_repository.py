"""The repository itself: imports point one way, every dependency has one door, and what is shipped loads."""

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer_cli.config.load import load_config
from transformer_cli.data.demo import make_demo
from transformer_cli.project import Template, template_config

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "transformer_cli"
MODULES = sorted(PACKAGE.rglob("*.py"))

BELOW_THE_LOOP = {
    "checkpoint",
    "config",
    "data",
    "decoding",
    "device",
    "errors",
    "evaluation",
    "languages",
    "log",
    "model",
    "run_files",
    "streams",
    "training",
}
AROUND = {"device", "errors", "languages", "log", "run_files"}
MAY_IMPORT = {
    "": set(),
    "__main__": {"cli"},
    "errors": set(),
    "languages": set(),
    "log": set(),
    "run_files": {"errors"},
    "streams": {"data.lines", "errors"},
    "device": {"config.schema", "errors", "model.blocks"},
    "checkpoint": {"config", "errors", "log", "device", "run_files"},
    "project": {"data", "config", "errors", "languages", "log", "device"},
    "config": {"config", "errors", "log", "device", "languages"},
    "data": {"data", "config", "errors", "languages", "log", "device"},
    "model": {"model", "config.schema", "config.left_out"},
    # Searching knows no model.
    "decoding.hypotheses": {"errors"},
    "decoding.constraints": {"decoding.hypotheses"},
    "decoding.search": {"decoding.constraints", "decoding.hypotheses"},
    "decoding.sampling": {"decoding.constraints", "decoding.hypotheses", "decoding.search"},
    "decoding.ensemble": {"decoding.search"},
    "decoding": {"checkpoint", "config", "model", "data", "decoding"} | AROUND,
    "evaluation.scores": {"errors", "languages", "log", "device"},
    "evaluation": {"checkpoint", "config", "data", "decoding", "evaluation"} | AROUND,
    "export": {"checkpoint", "config", "model", "data.tokenizer", "decoding", "errors", "export", "log", "run_files"},
    "training": BELOW_THE_LOOP,
    "cli": BELOW_THE_LOOP | {"cli", "export", "project"},
}
DOORS = {
    "typer": {"cli"},
    "pydantic": {"config"},
    "pydantic_core": {"config"},
    "yaml": {"config"},
    "sentencepiece": {"data.tokenizer"},
    "sacrebleu": {"evaluation.scores"},
    "safetensors": {"checkpoint"},
    "tqdm": {"log"},
    "matplotlib": {"evaluation.drawing"},
    "torch.utils.tensorboard": {"training.pictures"},
    "datasets": {"data.formats"},
    "torch.distributed": {"training.distributed"},
    "pyarrow": {"data.compression", "data.formats", "data.cache"},
}


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            # `from package import module` names a module, too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(module: str, allowed: set[str]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in allowed)


def own_modules(path: Path) -> Iterator[str]:
    for module in imported(path):
        name = module.removeprefix("transformer_cli.")
        place = PACKAGE.joinpath(*name.split("."))
        if module.startswith("transformer_cli.") and (place.with_suffix(".py").is_file() or place.is_dir()):
            yield name


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    name = name_of(path)
    rule = next(key for key in (name, name.split(".")[0]) if key in MAY_IMPORT)
    wrong = {module for module in own_modules(path) if not within(module, MAY_IMPORT[rule])}
    assert not wrong, f"{name} may import {sorted(MAY_IMPORT[rule])}"


def test_the_command_line_calls_only_the_loop_and_the_check_of_training() -> None:
    found = {m for path in (PACKAGE / "cli").glob("*.py") for m in own_modules(path) if m.startswith("training.")}
    assert found == {"training.loop", "training.check"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_dependency_has_one_door(path: Path) -> None:
    name = name_of(path)
    wrong = {
        module
        for module in imported(path)
        for dependency, door in DOORS.items()
        if within(module, {dependency}) and not within(name, door)
    }
    assert not wrong


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_attention_is_our_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for theirs in ("nn.Transformer", "nn.MultiheadAttention", "multi_head_attention_forward"):
        assert theirs not in text.replace("`nn.Transformer`", "")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_are_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 420


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_configuration_loads(path: Path) -> None:
    config = load_config(path)
    assert config.data.train
    assert config.data.valid


@pytest.mark.parametrize(("name", "template"), [("copy_task", "copy"), ("demo_en_de", "demo")])
def test_the_configuration_is_the_one_that_init_writes(name: str, template: Template) -> None:
    assert (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8") == template_config(template)


def test_the_reference_of_the_configuration_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("config_reference", ROOT / "scripts" / "config_reference.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / "configs" / "README.md").read_text(encoding="utf-8") == script.reference()


def test_the_top_level_holds_what_a_reader_expects() -> None:
    tracked = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    made = {"demo", "runs", "transformer_cli.egg-info", "build"}
    expected = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "transformer_cli", "configs", "tests", "scripts"}
    assert tracked - made == expected


def test_the_demo_translates_sentences_that_it_was_not_trained_on() -> None:
    sentences = re.findall(r'^\t\t"(.*)"', (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    corpus = make_demo()
    assert len(sentences) == 3
    assert set(sentences) <= {english for english, _ in corpus.test_seen + corpus.test_new}
    assert not set(sentences) & {english for english, _ in corpus.train + corpus.valid}


def test_the_readme_names_the_two_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_files_of_the_package_that_are_no_python_are_installed_with_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["setuptools"]["package-data"]
    named = {PACKAGE.parent.joinpath(*package.split("."), name) for package, names in shipped.items() for name in names}
    others = {path for path in PACKAGE.rglob("*.*") if path.suffix not in (".py", ".pyc")}
    assert named == others
