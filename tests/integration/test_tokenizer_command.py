"""`transformer-cli tokenizer`: a line out for each line in, and a model that training takes as it is."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from transformer_cli import checkpoint
from transformer_cli.data.tokenizer import Tokenizer

Command = Callable[..., CompletedProcess[str]]

LINES = "ba ce di\n\nfo  gu\u2028ha\n<2de> je\n"


@pytest.fixture(scope="module")
def model(cli: Command, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "made.model"
    done = cli(
        "tokenizer", "train", "--input", small.parent / "train.src", "--input", small.parent / "train.tgt",
        "--output", path, "--vocab-size", 60, "--model-type", "bpe", "--user-defined-symbol", "<2de>",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.endswith("made.model: 60 pieces\n")
    return path


@pytest.mark.parametrize("flags", [[], ["--ids"]])
def test_lines_come_back_from_pieces_and_from_ids(cli: Command, model: Path, flags: list[str]) -> None:
    cut = cli("tokenizer", "encode", model, *flags, stdin=LINES)
    assert cut.returncode == 0, cut.stderr
    assert [len(line) > 0 for line in cut.stdout.split("\n")] == [True, False, True, True, False]
    if flags:
        ids = [int(word) for word in cut.stdout.split()]
        assert ids[:3] == Tokenizer(model.read_bytes()).encode("ba ce di")[:3]
    else:
        assert "<2de>" in cut.stdout.split()
    back = cli("tokenizer", "decode", model, *flags, stdin=cut.stdout)
    assert back.stdout == "ba ce di\n\nfo gu ha\n<2de> je\n"


def test_files_are_read_and_written(cli: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(LINES, encoding="utf-8")
    assert cli("tokenizer", "encode", model, "-i", tmp_path / "text", "-o", tmp_path / "pieces").returncode == 0
    done = cli("tokenizer", "decode", model, "-i", tmp_path / "pieces", "-o", tmp_path / "back")
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "back").read_text(encoding="utf-8") == "ba ce di\n\nfo gu ha\n<2de> je\n"
    done = cli("tokenizer", "encode", model, "-i", tmp_path / "text", "-o", tmp_path / "text")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_run_has_a_tokenizer_too(cli: Command, trained: Path) -> None:
    (proto,) = checkpoint.read(trained / "model.safetensors").tokenizers.values()
    expected = " ".join(Tokenizer(proto).encode_as_pieces("ba ce")) + "\n"
    for place in (trained, trained / "model.safetensors"):
        assert cli("tokenizer", "encode", place, stdin="ba ce\n").stdout == expected


def test_each_side_of_a_run_can_have_its_own(cli: Command, train: Command, small: Path, tmp_path: Path) -> None:
    settings = ("tokenizer.shared=false", "model.tie_embeddings=target", "training.max_steps=1")
    assert train(small, tmp_path / "run", *settings).returncode == 0
    source, target = (
        cli("tokenizer", "encode", tmp_path / "run", "--side", side, "--ids", stdin="BA\n").stdout.split()
        for side in ("source", "target")
    )
    assert source[1:] == ["1"]  # the source has no capitals
    assert "1" not in target


@pytest.mark.parametrize("word", ["x", "-1", "60", "1.5", "\u0663"])
def test_what_is_no_id_is_named_with_its_line(cli: Command, model: Path, word: str) -> None:
    done = cli("tokenizer", "decode", model, "--ids", stdin=f"4\n5 {word}\n")
    assert done.returncode == 1
    assert done.stderr == f"error: line 2: {word!r} is no id: the tokenizer has 0 to 59\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--vocab-size", 2], "--vocab-size must be at least 5, not 2"),
        (["--user-defined-symbol", "a b"], "--user-defined-symbol must be a text without spaces, not 'a b'"),
        (["--user-defined-symbol", "<s>"], "user_defined_symbols must differ from each other and from <pad>"),
        (["--vocab-size", 6], "tokenizer.vocab_size 6 is too small: the characters of the training text"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    cli: Command, small: Path, tmp_path: Path, words: list[object], message: str
) -> None:
    text = small.parent / "train.src"
    done = cli("tokenizer", "train", "--input", text, "--output", tmp_path / "x.model", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}")
    assert not (tmp_path / "x.model").exists()


def test_training_takes_a_model_as_it_is(train: Command, small: Path, model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = (f"tokenizer.model={model}", "training.max_steps=4", "training.valid_steps=2")
    assert train(small, run, *settings).returncode == 0
    assert checkpoint.read(run / "model.safetensors").tokenizers == {"shared": model.read_bytes()}
    # Its content holds for the run, not its name.
    moved = tmp_path / "moved.model"
    moved.write_bytes(model.read_bytes())
    longer = (f"tokenizer.model={moved}", "training.max_steps=6", "training.valid_steps=2")
    done = train(small, run, *longer, flags=["--resume"])
    assert done.returncode == 0, done.stderr
    moved.write_bytes(model.read_bytes() + b" ")
    done = train(small, run, *longer, "training.max_steps=8", flags=["--resume"])
    assert done.returncode == 2
    assert f"the data has changed since the run began ({moved})" in done.stderr


def test_a_dash_is_standard_input_and_output(
    cli: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cut = cli("tokenizer", "encode", model, "-i", "-", "-o", "-", stdin="ba ce\n")
    assert cut.stdout.split()
    assert cli("tokenizer", "decode", model, "-i", "-", "-o", "-", stdin=cut.stdout).stdout == "ba ce\n"
    assert list(tmp_path.iterdir()) == []


RARE = "ba \ufb01 \u96ea\n"


@pytest.mark.parametrize(
    ("flags", "back"),
    [
        ([], "ba \ufb01 \u96ea\n"),
        (["--normalization", "nfkc"], "ba fi \u96ea\n"),
        (["--character-coverage", 0.99], "ba \u2047 \u2047 \n"),
        (["--character-coverage", 0.99, "--byte-fallback"], "ba \ufb01 \u96ea\n"),
    ],
)
def test_each_option_of_training_reaches_the_model(
    cli: Command, tmp_path: Path, flags: list[object], back: str
) -> None:
    (tmp_path / "text").write_text("ba ce di fo gu ha je ki lo mu na\n" * 200 + RARE, encoding="utf-8")
    size = 330 if "--byte-fallback" in flags else 40
    words = ["--input", tmp_path / "text", "--output", tmp_path / "m", "--vocab-size", size, "--model-type", "bpe"]
    done = cli("tokenizer", "train", *words, *flags)
    assert done.returncode == 0, done.stderr
    pieces = cli("tokenizer", "encode", tmp_path / "m", "--ids", stdin=RARE).stdout
    assert cli("tokenizer", "decode", tmp_path / "m", "--ids", stdin=pieces).stdout.split() == back.split()


def test_a_sample_is_as_large_as_asked_for(cli: Command, small: Path, tmp_path: Path) -> None:
    words = ["--input", small.parent / "train.src", "--output", tmp_path / "m", "--vocab-size", 40]
    done = cli("tokenizer", "train", *words, "--sample-lines", 300, "--model-type", "bpe")
    assert "the tokenizer is trained on 300 lines, a random sample of 400" in done.stderr


def test_bytes_that_are_no_text_are_refused_or_replaced(cli: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"ba ce\n\xff di\n" * 50)
    for words in (
        ["train", "--input", tmp_path / "text", "--output", tmp_path / "m", "--vocab-size", 12],
        ["encode", model, "--input", tmp_path / "text"],
    ):
        done = cli("tokenizer", *words)
        assert done.returncode == 1
        assert "text, line 2: byte 1 of the line is 0xFF" in done.stderr
        done = cli("tokenizer", *words, "--errors", "replace")
        assert done.returncode == 0
        assert "50 lines held bytes that are not UTF-8" in done.stderr
