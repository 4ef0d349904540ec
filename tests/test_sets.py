"""The sets that `evaluate` scores: those a run names, or files given by hand."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.sets import EvaluationSet, language_of, more_hypotheses, set_from_files, sets_of_run


def corpus(folder: Path, name: str, pairs: list[tuple[str, str]]) -> str:
    """Writes two files and says in YAML where they are."""
    for side, suffix in enumerate(("src", "tgt")):
        (folder / f"{name}.{suffix}").write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return f"{{source: {folder}/{name}.src, target: {folder}/{name}.tgt}}"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with two test sets, of which the first has two corpora."""
    first = corpus(tmp_path, "first", [("a", "A"), ("b", "B")])
    second = corpus(tmp_path, "second", [("c", "C")])
    valid = corpus(tmp_path, "valid", [("v", "V"), ("w", "W")])
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "model.safetensors").touch()
    (run / "checkpoints" / "step-00000010.safetensors").touch()
    (run / "config.yaml").write_text(
        f"name: x\ndata:\n  valid: [{valid}]\n  test:\n    news: [{first}, {second}]\n    talks: [{second}]\n"
    )
    return run


NEWS = EvaluationSet("news", [["A", "B", "C"]], ["a", "b", "c"])
TALKS = EvaluationSet("talks", [["C"]], ["c"])


@pytest.mark.parametrize("part", ["", "model.safetensors", "checkpoints/step-00000010.safetensors"])
def test_a_run_or_a_file_in_it_names_its_test_sets_in_order(run: Path, part: str) -> None:
    assert sets_of_run(run / part, None, "strict") == [NEWS, TALKS]


@pytest.mark.parametrize(
    ("place", "name"),
    [("", "."), ("", "model.safetensors"), ("checkpoints", "step-00000010.safetensors"), ("checkpoints", "..")],
)
def test_the_run_is_found_from_inside_it(run: Path, place: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run / place)
    assert sets_of_run(Path(name), None, "strict") == [NEWS, TALKS]


def test_without_test_sets_it_is_the_validation_set(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().split("  test:")[0])
    assert sets_of_run(run, None, "strict") == [EvaluationSet("valid", [["V", "W"]], ["v", "w"])]


def test_lines_held_out_of_a_text_that_has_changed_since_training_are_not_taken(run: Path) -> None:
    # Others would be held out now, and training has seen them.
    text = corpus(run.parent, "train", [(f"s{i}", f"T{i}") for i in range(20)])
    config = f"name: x\ndata:\n  train: [{text}]\n  valid: {{hold_out: 2}}\n  cache_dir: {run.parent}/cache\n  test: "
    (run / "config.yaml").write_text(config + "{mine: {hold_out: 3}}")
    files = [run.parent / "train.src", run.parent / "train.tgt"]
    data = [{"key": "data.train", "path": str(file), "sha256": sha256(file.read_bytes()).hexdigest()} for file in files]
    (run / "run.json").write_text(json.dumps({"data": data}))
    (held_out,) = sets_of_run(run, None, "strict")
    assert (held_out.name, len(held_out.references[0])) == ("mine", 3)

    for changed in ("one line, which does not even fit the source\n", files[1].read_text().replace("T7", "other")):
        files[1].write_text(changed)
        with pytest.raises(DataError, match=r"train\.tgt has changed since training, .* --source and --reference"):
            sets_of_run(run, None, "strict")
    # Sets with files of their own do not depend on it.
    own = corpus(run.parent, "own", [("a", "A")])
    (run / "config.yaml").write_text(f"{config}{{mine: [{own}]}}")
    assert sets_of_run(run, None, "strict")[0].references == [["A"]]


def test_a_limit_counts_lines_of_each_set(run: Path) -> None:
    assert sets_of_run(run, 1, "strict") == [EvaluationSet("news", [["A"]], ["a"]), TALKS]


def test_bytes_that_are_not_utf8_are_refused_or_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "second.src").write_bytes(b"c\xff\n")
    with pytest.raises(DataError, match=r"second\.src, line 1: byte 2 of the line is 0xFF"):
        sets_of_run(run, None, "strict")
    assert sets_of_run(run, None, "replace")[1] == EvaluationSet("talks", [["C"]], ["c\ufffd"])


def test_a_model_file_by_itself_names_no_sets(tmp_path: Path) -> None:
    model = tmp_path / "alone" / "deep" / "model.safetensors"
    model.parent.mkdir(parents=True)
    model.touch()
    with pytest.raises(ConfigError, match=r"model\.safetensors is not in a run directory.*--source and --reference"):
        sets_of_run(model, None, "strict")


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def test_files_make_a_set_named_after_the_first_reference(file: Callable[[str, str], Path]) -> None:
    source, one, two = file("in.en", "a\nb\n"), file("ref.de", "A\nB\n"), file("ref2.de", "X\nY\n")
    assert set_from_files([one, two], None, "strict", source) == EvaluationSet(
        "ref.de", [["A", "B"], ["X", "Y"]], ["a", "b"]
    )
    assert set_from_files([one, two], 1, "strict", source) == EvaluationSet("ref.de", [["A"], ["X"]], ["a"])


def test_translations_that_are_there_may_come_with_their_source(file: Callable[[str, str], Path]) -> None:
    hypothesis, source, reference = file("hyp", "x\ny\n"), file("in.en", "a\nb\n"), file("ref.de", "A\nB\n")
    alone = set_from_files([reference], None, "strict", hypothesis=hypothesis)
    assert alone == EvaluationSet("ref.de", [["A", "B"]], None, ["x", "y"])
    both = set_from_files([reference], None, "strict", source, hypothesis)
    assert both == EvaluationSet("ref.de", [["A", "B"]], ["a", "b"], ["x", "y"])


def test_other_translations_must_be_as_many(file: Callable[[str, str], Path]) -> None:
    one = EvaluationSet("news", [["A", "B"]])
    assert more_hypotheses(file("two", "x\ny\n"), one, None, "strict") == ["x", "y"]
    with pytest.raises(DataError, match=r"three has 3 lines and the set news has 2: they must be parallel"):
        more_hypotheses(file("three", "x\ny\nz\n"), one, None, "strict")


def test_a_reference_with_another_number_of_lines_is_named_with_both_counts(file: Callable[[str, str], Path]) -> None:
    source, good, bad = file("in.en", "a\nb\n"), file("good.de", "A\nB\n"), file("bad.de", "A\nB\nC\n")
    with pytest.raises(DataError, match=r"in\.en has 2 lines and .*bad\.de has 3"):
        set_from_files([good, bad], None, "strict", source)


def test_a_line_ends_at_a_line_feed_alone(file: Callable[[str, str], Path]) -> None:
    odd, plain = file("odd", "ba\u2028ce\ndi\x85fo\ngu\x0bha\n"), file("plain", "a\nb\nc\n")
    assert set_from_files([plain], None, "strict", odd).sources == ["ba\u2028ce", "di\x85fo", "gu\x0bha"]


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("ref.zh", "zh"),
        ("ref.ZH", "zh"),
        ("ref.zh-TW", "zh-tw"),
        ("ref.ja", "ja"),
        ("ref.ko", "ko"),
        ("ref.zh.gz", "zh"),
        ("ref.zh_CN.zst", "zh-cn"),
        ("ref.cmn", "cmn"),
        ("ref.yue", "yue"),
        ("ref.jpn.XZ", "jpn"),
        ("ref.gz", "und"),
        ("ref.de.gz", "und"),
        ("ref.de", "und"),
        ("zh", "und"),
        ("news.zh.txt", "und"),
    ],
)
def test_the_suffix_tells_the_languages_that_need_their_own_tokenizer(name: str, language: str) -> None:
    assert language_of(Path("folder.ja", name)) == language
