"""Mistakes that are told before PyTorch is loaded, which takes seconds.

The parts that do the work find them too, and say the same; a test keeps it the same.
"""

from pathlib import Path

from transformer_cli.errors import CheckpointError, ConfigError


def check_run(run: Path) -> None:
    """CheckpointError when there is nothing to translate with."""
    if not run.exists():
        raise CheckpointError(f"{run} does not exist: give a run directory, a model file or a checkpoint")


def check_free(folder: Path) -> None:
    """ConfigError when the folder holds a run."""
    if (folder / "run.json").exists() or (folder / "checkpoints").exists():
        raise ConfigError(
            f"{folder} already holds a run: continue it with --resume, replace it with --overwrite, or choose "
            "another folder with --run-dir"
        )
