"""The run directory: its files, and what starting, resuming and overwriting do to them.

config.yaml  as resolved, absolute paths        run.json  versions, device, command, data, threads
model.safetensors  the model to use             train.log  metrics.jsonl
checkpoints/step-00000250.safetensors           samples/step-00000250.tsv           test/NAME.hyp  test/scores.json
report.html  a page with plots                  tensorboard/  if configured
"""

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from transformer_cli import __version__
from transformer_cli.checkpoint import remove_unfinished
from transformer_cli.config.corpora import CorporaOrHoldOut
from transformer_cli.config.load import dump_config
from transformer_cli.config.schema import Config, HoldOut, HubSet
from transformer_cli.data.corpus import Pair, files_of
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.filters import FilterCounts
from transformer_cli.errors import ConfigError
from transformer_cli.log import LOGGER
from transformer_cli.run_files import (
    CHECKPOINTS,
    MODEL_NAME,
    RECORD_NAME,
    REPORT_NAME,
    SAMPLES_NAME,
    TEST,
    holds_run,
    list_checkpoints,
    read_record,
    refuse_if_taken,
    replace_text,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_OURS = (
    "config.yaml", RECORD_NAME, MODEL_NAME, "train.log", "metrics.jsonl", CHECKPOINTS, "samples", TEST, REPORT_NAME,
    "tensorboard",
)  # fmt: skip


class RunDir:
    """Paths and records of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.record = path / RECORD_NAME
        self.model = path / MODEL_NAME
        self.log = path / "train.log"
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples"
        self.test = path / TEST
        self.report = path / REPORT_NAME
        self.tensorboard = path / "tensorboard"
        self._is_locked = False
        self._descriptor: int | None = None  # of the lock

    def refuse_if_unusable(self) -> None:
        """ConfigError if the path or a parent is a file, or if files other than a run's have the names of ours."""
        file = next((path for path in (self.path, *self.path.parents) if path.exists()), self.path)
        if file.exists() and not file.is_dir():
            raise ConfigError(f"{file} is a file: choose another folder with --run-dir")
        foreign = [name for name in _OURS if (self.path / name).exists()]
        if foreign and not holds_run(self.path):
            raise ConfigError(
                f"{self.path} holds {', '.join(foreign)} but no run (there is no {RECORD_NAME}), and a run would "
                "replace that: choose another folder with --run-dir"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training in the folder, at once if it is there, else from `make` on. ConfigError if
        another process is training in it."""
        try:
            if self.path.exists():
                self._lock()
            yield
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._is_locked, self._descriptor = False, None

    def make(self) -> None:
        """Make and lock the folder, if `locked` has not found it. ConfigError if another process has begun a run in it
        since."""
        if not self._is_locked:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock()
            refuse_if_taken(self.path)

    def _lock(self) -> None:
        self._is_locked = True
        if fcntl is None:
            return
        self._descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process is training in {self.path}: wait for its end, or choose another folder with --run-dir"
            ) from None
        except OSError as error:  # a file system without locks
            LOGGER.debug("%s cannot be locked (%s)", self.path, error.strerror)

    def create(self, config: Config, record: dict[str, Any]) -> None:
        """Start a new run: remove the files of an earlier one; other files are not touched."""
        remove_unfinished(self.path)
        for name in _OURS:
            old = self.path / name
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink(missing_ok=True)
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_record(record)  # first: it marks the folder as a run's
        replace_text(self.config, dump_config(config))
        self.samples.mkdir()

    def read_record(self) -> dict[str, Any]:
        """The content of `run.json`; empty if it is missing or damaged."""
        return read_record(self.path)

    def write_record(self, record: dict[str, Any]) -> None:
        """Replace `run.json`."""
        replace_text(self.record, json.dumps(record, indent=1, ensure_ascii=False) + "\n")

    def samples_path(self, step: int) -> Path:
        """The path of the sample translations of a validation."""
        return self.samples / f"step-{step:08d}.tsv"

    def go_on(self, config: Config, record: dict[str, Any], step: int) -> None:
        """Resume after a step: remove later samples and checkpoints, which may be damaged or incomplete."""
        remove_unfinished(self.path)
        replace_text(self.config, dump_config(config))
        self.write_record(record)
        self.samples.mkdir(exist_ok=True)
        latest = self.samples_path(step).name
        for path in self.samples.glob("step-*.tsv"):
            is_later = (len(path.name), path.name) > (len(latest), latest)  # more digits are more steps
            if is_later and SAMPLES_NAME.fullmatch(path.name):
                path.unlink()
        for later, path in list_checkpoints(self.path):
            if later > step:
                path.unlink()

    def prune_checkpoints(self, kept: Collection[int]) -> None:
        """Keep the checkpoints of these steps only."""
        for step, path in list_checkpoints(self.path):
            if step not in kept:
                path.unlink()


def data_files(config: Config, file_hash: Callable[[Path], str]) -> list[dict[str, Any]]:
    """Path, size and SHA-256 of every configured tokenizer and every data file that training depends on, with the rest
    of its entry. A remote set of the Hub has only its name and entry. A streamed file has no hash: hashing reads it."""
    files: list[dict[str, Any]] = [
        {"key": "tokenizer", "path": str(path), "bytes": path.stat().st_size, "sha256": file_hash(path)}
        for path in (config.tokenizer.model, config.tokenizer.target_model)
        if path is not None
    ]
    parts: list[tuple[str, CorporaOrHoldOut]] = [("data.train", config.data.train), ("data.valid", config.data.valid)]
    if config.data.filters.overlap:  # then the training text depends on the test sets, too
        parts += [("data.test", part) for part in config.data.test.values()]
    for key, part in parts:
        for corpus in () if isinstance(part, HoldOut) else part:
            paths = files_of(corpus)
            names = {"source", "target", "path"} | ({"hub"} if paths else set())
            entry = corpus.model_dump(exclude=names, exclude_defaults=True)
            if isinstance(corpus, HubSet) and not paths:
                files.append({"key": key, "path": corpus.hub, "bytes": None, "sha256": None, "entry": entry})
            for path in paths:
                size = path.stat().st_size
                digest = None if corpus is config.data.stream else file_hash(path)
                files.append({"key": key, "path": str(path), "bytes": size, "sha256": digest})
                files[-1] |= {"entry": entry} if entry else {}
    return files


def describe_environment(command: Sequence[str], device: str, threads: int, processes: int) -> dict[str, Any]:
    """The part of `run.json` on how the run was made."""
    packages = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic")
    return {
        "command": list(command),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "device": device,
        "threads": threads,
        "processes": processes,
        "adam": "fused",
        "git_commit": _git_commit(),
        "platform": platform.platform(),
        "versions": {
            "transformer_cli": __version__,
            "python": platform.python_version(),
            **{package: metadata.version(package) for package in packages},
        },
    }


def describe_text(dataset: TokenDataset, counts: FilterCounts, sets: Mapping[str, Sequence[Pair]]) -> dict[str, Any]:
    """The part of `run.json` on the text: counts of pairs, and lengths in pieces."""
    return {
        "counts": asdict(counts) | {"kept": counts.kept},
        "lengths": {side: column.length_statistics() for side, column in dataset.columns().items()},
        "sets": {name: len(pairs) for name, pairs in sets.items()},
    }


def _git_commit() -> str | None:
    """The commit of the working directory, if it is under git."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
