"""Mistakes that PyTorch has no part in are told before it is loaded, which takes seconds on a busy machine."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

FILES = ("--hypothesis", "test.src", "--reference")

# The words of a command, its exit code, and what it says.
MISTAKES = [
    (["train", "nowhere.yaml"], 2, "nowhere.yaml: no such file"),
    (["train", "wrong.yaml"], 2, "model.d_mode: unknown key; did you mean model.d_model?"),
    (["train", "config.yaml", "--set", "training.max_steps=many"], 2, "must be a whole number, not 'many'"),
    (["train", "config.yaml", "--threads", "many"], 2, "must be a whole number"),
    (["train", "config.yaml", "--run-dir", "run"], 2, "run already holds a run: continue it with --resume"),
    (["train", "config.yaml", "--resume", "--overwrite"], 2, "give one of them"),
    (["train", "config.yaml", "--set", "data.train=[{source: no.src, target: test.tgt}]"], 2, "no such file: "),
    (["translate", "nowhere", "di"], 1, "nowhere does not exist: give a run directory"),
    (["translate", "empty", "di"], 1, "empty holds no model.safetensors: it is not a run directory, or its training"),
    (["evaluate", "empty"], 1, "empty holds no model.safetensors"),
    (["translate", "run", "--input", "no.src"], 1, "cannot read no.src: No such file or directory"),
    (["translate", "run", "--input", "."], 1, "cannot read .: Is a directory"),
    (["translate", "run", "di", "--input", "test.src"], 2, "not both"),
    (["translate", "run", "di", "--output", "no/file"], 2, "there is no folder no"),
    (["translate", "run", "--input", "test.src", "--output", "test.src"], 2, "which is to be read: it would be lost"),
    (["translate", "run", "di", "--beam-size", "0"], 2, "--beam-size must be at least 1, not 0"),
    (["translate", "run", "di", "--n-best", "3", "--beam-size", "2"], 2, "--n-best 3 needs a --beam-size of at least"),
    (["translate", "run"], 1, "there is no standard input: give sentences as arguments, or a file with --input"),
    (["evaluate", "nowhere"], 1, "nowhere does not exist: give a run directory"),
    (["evaluate", "run", "--source", "no.src", "--reference", "test.tgt"], 1, "cannot read no.src"),
    (["evaluate", "run", "--source", "test.src", "--reference", "train.tgt"], 1, "they must be parallel"),
    (["evaluate", "run", "--output", "-"], 2, "--output - would mix translations and scores on standard output"),
    (["evaluate", "run", "--tokenize", "bogus"], 2, "BLEU has no tokenizer bogus"),
    (["evaluate", "run", "--length-penalty", "-1"], 2, "--length-penalty must be at least 0, not -1.0"),
    (["evaluate", "run"], 1, "cannot read"),
    (["evaluate", *FILES, "train.tgt"], 1, "they must be parallel"),
    (["evaluate", *FILES, "test.tgt", "--output", "-"], 2, "name a file"),
    (["evaluate", *FILES, "test.tgt"], 0, ""),
    (["init", "mine", "--source", "no.en", "--target", "no.de"], 1, "cannot read no.en: No such file or directory"),
    (
        ["init", "mine", "--source", "test.src", "--target", "test.tgt"],
        2,
        "cannot be told from its suffix: give it with",
    ),
    (["init", "run", "--template", "copy"], 2, "run already exists and is not an empty folder"),
    (["init", "toy", "--template", "copy"], 0, "Train on it"),
]

SCRIPT = """
import contextlib, io, json, sys
from transformer_cli.cli import app
sys.stdin = None
for words in json.loads(sys.argv[1]):
    told, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stderr(told):
            app(words)
    except SystemExit as end:
        code = end.code
    print(json.dumps([words, code, "torch" in sys.modules, told.getvalue()]))
"""


def test_mistakes_are_told_without_torch(project: Callable[..., Path], tmp_path: Path) -> None:
    config = project(tmp_path)
    (tmp_path / "wrong.yaml").write_text(config.read_text().replace("d_model", "d_mode"))
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "model.safetensors").touch()
    (tmp_path / "empty").mkdir()
    # As a run keeps it, the paths absolute; its test set has been deleted.
    (run / "config.yaml").write_text(config.read_text().replace("test.src", "/gone.src"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([words for words, _, _ in MISTAKES])],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "Traceback" not in done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(told) == len(MISTAKES)
    for (words, code, message), found in zip(MISTAKES, told, strict=True):
        assert found[:3] == [words, code, False]
        assert message in found[3]
        assert "Value error" not in found[3]
        assert "Input should" not in found[3]
