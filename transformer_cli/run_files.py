"""The layout of a run's folder. This module does not import PyTorch, which takes seconds to load."""

import json
import os
import re
from pathlib import Path
from typing import Any

from transformer_cli.errors import CheckpointError, ConfigError

RECORD_NAME = "run.json"
MODEL_NAME = "model.safetensors"
CHECKPOINTS = "checkpoints"
TEST = "test"
REPORT_NAME = "report.html"
SAMPLES_NAME = re.compile(r"step-(\d{8,})\.tsv")
_CHECKPOINT_NAME = re.compile(r"step-(\d{8,})\.safetensors")


def checkpoint_path(run_dir: Path, step: int) -> Path:
    """The path of the checkpoint of a step."""
    return run_dir / CHECKPOINTS / f"step-{step:08d}.safetensors"


def list_checkpoints(run_dir: Path) -> list[tuple[int, Path]]:
    """(step, path) of every checkpoint of a run, earliest first."""
    folder = run_dir / CHECKPOINTS
    if not folder.is_dir():
        return []
    found = ((_CHECKPOINT_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def holds_run(folder: Path) -> bool:
    """Whether a run was started here."""
    return (folder / RECORD_NAME).exists() or (folder / CHECKPOINTS).exists()


def read_record(run_dir: Path) -> dict[str, Any]:
    """The content of `run.json`; empty if the file is missing or damaged."""
    try:
        content = json.loads((run_dir / RECORD_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically: readers find the old content or the new, never a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def refuse_if_taken(folder: Path) -> None:
    """ConfigError when the folder holds a run."""
    if holds_run(folder):
        raise ConfigError(
            f"{folder} already holds a run: continue it with --resume, replace it with --overwrite, or choose "
            "another folder with --run-dir"
        )


def locate(run: Path) -> Path:
    """The file that RUN names: a model file or checkpoint itself, or a run directory's model. CheckpointError when
    there is none."""
    if run.is_file():
        return run
    if not run.exists():
        raise CheckpointError(f"{run} does not exist: give a run directory, a model file or a checkpoint")
    model = run / MODEL_NAME
    if not model.is_file():
        raise CheckpointError(f"{run} holds no {MODEL_NAME}: {_instead_of(run)}")
    return model


def _instead_of(run: Path) -> str:
    """Words on what to name instead of a folder without a model."""
    usual = Path("runs", run.absolute().name)
    if (usual / MODEL_NAME).is_file():
        return f"the run is in {usual}"
    if saved := list_checkpoints(run):
        return f"its training has not validated yet; a checkpoint can be named instead, such as {saved[-1][1]}"
    return "it is not a run directory, or its training has not validated yet"
