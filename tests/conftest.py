"""What several tests share: a made-up corpus, the command line, and one model trained by it."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
from typer.testing import CliRunner

from transformer_cli.cli import app

Pairs = Sequence[tuple[str, str]]
Command = Callable[..., CompletedProcess[str]]

WORDS = ["ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "qi", "ro", "su", "ta"]
SPLITS = {"train": (400, 1), "valid": (20, 2), "test": (10, 3)}  # pairs, seed

# So small that twenty steps take about a second, and the same on every CPU. What a test wants otherwise it sets.
CONFIG = """\
seed: 7
precision: fp32
data:
  train: [{source: train.src, target: train.tgt}]
  valid: [{source: valid.src, target: valid.tgt}]
  test:
    test: [{source: test.src, target: test.tgt}]
  max_length: 64
tokenizer: {vocab_size: 60, model_type: bpe}
model: {d_model: 16, ffn_dim: 32, num_heads: 2, encoder_layers: 1, decoder_layers: 1}
training: {batch_type: sentences, batch_size: 32, max_steps: 20, warmup_steps: 200, valid_steps: 10, log_steps: 5}
decoding: {max_length_a: 1.0, max_length_b: 6}
"""

TINY = (
    "model={d_model: 64, ffn_dim: 128, num_heads: 4, encoder_layers: 2, decoder_layers: 2, dropout: 0.1}",
    "training.batch_size=64",
    "training.warmup_steps=200",
)


def made_up_pairs(count: int, seed: int, unrelated: bool = False) -> Iterator[tuple[str, str]]:
    """One to nine words and the same in capitals; or, unrelated to them, eight words that nothing tells."""
    generator = random.Random(seed)
    for _ in range(count):
        source = generator.choices(WORDS, k=generator.randint(1, 9))
        target = generator.choices(WORDS, k=8) if unrelated else source
        yield " ".join(source), " ".join(target).upper()


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache stays as it is; the tests of a session share one, as runs do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def pairs() -> Callable[..., Iterator[tuple[str, str]]]:
    """`pairs(count, seed)`, see `made_up_pairs`."""
    return made_up_pairs


@pytest.fixture(scope="session")
def tiny() -> tuple[str, ...]:
    """Settings of the model that learns the made-up task in a few hundred steps."""
    return TINY


@pytest.fixture(scope="session")
def project() -> Callable[..., Path]:
    """`project(folder, train=pairs, …)` writes a corpus, made up where no pairs are given, and returns its
    config.yaml."""

    def write(folder: Path, **given: Pairs) -> Path:
        folder.mkdir(exist_ok=True)
        for split, (count, seed) in SPLITS.items():
            chosen = list(given.get(split, ())) or list(made_up_pairs(count, seed))
            for side, suffix in enumerate(("src", "tgt")):
                text = "".join(pair[side] + "\n" for pair in chosen)
                (folder / f"{split}.{suffix}").write_text(text, encoding="utf-8", newline="\n")
        config = folder / "config.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        return config

    return write


@pytest.fixture(scope="session")
def small(project: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration to train by in about a second."""
    return project(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def cli() -> Command:
    """Runs a command in this process, which saves seconds of importing: `cli("translate", run, "di fo")`."""

    def run(*arguments: object, stdin: str | bytes = "") -> CompletedProcess[str]:
        torch.set_num_threads(1)
        # An exception that is no exit code is the test's to see.
        words = [str(word) for word in arguments]
        result = CliRunner().invoke(app, words, input=stdin, catch_exceptions=False)
        return CompletedProcess(words, result.exit_code, result.stdout_bytes.decode(), result.stderr_bytes.decode())

    return run


@pytest.fixture(scope="session")
def program() -> Command:
    """Runs a command as a person does, in a process of its own."""

    def run(
        *arguments: object, stdin: bytes = b"", cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> CompletedProcess[str]:
        words = [sys.executable, "-m", "transformer_cli", *map(str, arguments)]
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            check=False,
        )
        return CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def train(cli: Command) -> Command:
    """`train(config, run_dir, "section.key=value", …, flags=["--resume"])` in this process."""

    def run(config: Path, run_dir: Path, *settings: str, flags: Sequence[object] = ()) -> CompletedProcess[str]:
        chosen = [word for setting in settings for word in ("--set", setting)]
        return cli("train", config, "--run-dir", run_dir, *chosen, *flags)

    return run


@pytest.fixture(scope="session")
def training(
    program: Command, project: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, CompletedProcess[str]]:
    """A run directory and what its training printed: the model that the tests of the commands share. Two test sets,
    six validations, of which three are kept."""
    folder = tmp_path_factory.mktemp("made-up")
    project(
        folder,
        train=list(made_up_pairs(4000, 1)),
        valid=list(made_up_pairs(40, 2)),
        test=list(made_up_pairs(40, 3)),
    )
    settings = (
        *TINY,
        "data.test.again=[{source: valid.src, target: valid.tgt}, {source: test.src, target: test.tgt}]",
        "model.dropout=0.0",
        "training.max_steps=180",
        "seed=3",
        "training.noam_factor=0.5",
        "training.valid_steps=30",
        "training.log_steps=20",
        "training.keep_last=2",
        "training.average_last=2",
    )
    chosen = [word for setting in settings for word in ("--set", setting)]
    # As it stands in a README: relative names, and the run in runs/NAME.
    done = program("train", "config.yaml", "--threads", 1, *chosen, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "config", done


@pytest.fixture(scope="session")
def trained(training: tuple[Path, CompletedProcess[str]]) -> Path:
    """The run directory of `training`; tests only read it."""
    return training[0]
