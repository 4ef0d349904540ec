"""The starting point of a run: its newest intact checkpoint, another run's weights, or random weights."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_cli import checkpoint
from transformer_cli.checkpoint import ModelFile
from transformer_cli.config.schema import Config, Section
from transformer_cli.config.yaml_text import shown
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import CheckpointError, ConfigError, NewerVersionError, NothingToDo
from transformer_cli.log import LOGGER
from transformer_cli.run_files import checkpoint_path, list_checkpoints, locate
from transformer_cli.training.run_dir import RunDir
from transformer_cli.training.state import TrainingState

# Keys that may differ when fine-tuning, because they do not affect the shape or meaning of the weights.
_FREE_MODEL = {"dropout", "attention_dropout", "activation_dropout", "embedding_dropout"}
_FREE_TOKENIZER = "sampling_alpha"


def newest_checkpoint(run: RunDir) -> Path | None:
    """The newest intact checkpoint, or None before the first. Warns of damaged ones.

    CheckpointError if all are damaged, or if the run is finished and none is left.
    """
    saved = list_checkpoints(run.path)
    for _, path in reversed(saved):
        try:
            if not checkpoint.read(path).training:
                raise CheckpointError(f"{path} is a model without a training state, and no checkpoint")
            return path
        except NewerVersionError:
            raise
        except CheckpointError as error:
            LOGGER.warning("%s; trying the one before", error)
    if saved:
        raise CheckpointError(f"no checkpoint of {run.path} can be read: start again with --overwrite")
    if run.read_record().get("finished"):
        raise CheckpointError(
            f"{run.path} is finished and its checkpoints are gone, so it cannot be resumed: start again with "
            "--overwrite, which replaces its model, or choose another folder with --run-dir"
        )
    LOGGER.info("%s has no checkpoint yet: starting from the beginning", run.path)
    return None


def refuse_if_finished(run: RunDir, record: dict[str, Any], state: TrainingState, config: Config) -> None:
    """NothingToDo if the run is finished and no limit was raised."""
    reason = state.stop_reason(config.training)
    if reason and record.get("finished"):
        raise NothingToDo(f"{run.path} is finished: {reason}. To train on, raise that limit with --set")


def threads_to_resume_with(threads: int | None, record: dict[str, Any]) -> int | None:
    """`threads`, or the run's previous number if None, whatever the environment says. Warns of a change."""
    before: int | None = record.get("threads")
    if threads is None:
        return before
    if threads != before:
        LOGGER.warning(
            "--threads %d, and the run had %s: from here on it is no longer bit for bit the unbroken run",
            threads,
            before,
        )
    return threads


def restore_best(run: RunDir, state: TrainingState) -> None:
    """Restore the best model as of `state` to `model.safetensors`; the run may have written a later one since."""
    try:
        origin = checkpoint.read(run.model).origin
    except CheckpointError:
        origin = {}
    if state.best_step is None or (origin.get("kind"), origin.get("step")) == ("best", state.best_step):
        return
    try:
        file = checkpoint.read(checkpoint_path(run.path, state.best_step))
    except CheckpointError as error:
        LOGGER.warning("the best model so far, of step %d, cannot be put back: %s", state.best_step, error)
        return
    origin = {"kind": "best", "step": state.best_step}
    checkpoint.write(run.model, replace(file, origin=origin, training={}, optimizer={}))


def weights_to_start_from(config: Config) -> ModelFile | None:
    """The model that `training.init_from` names, if any, with the configuration to train it with.

    Its tokenizers and its sections `tokenizer` and `model` replace those of `config`. ConfigError for a key of these
    that `config` sets to another value, except the dropout rates and `sampling_alpha`.
    """
    if config.training.init_from is None:
        return None
    path = locate(config.training.init_from)
    file = checkpoint.read(path)
    began = file.config
    differing = [
        line for line in _differing(config.tokenizer, began.tokenizer) if line.split(":")[0] != _FREE_TOKENIZER
    ]
    if differing:
        held = ", ".join(f"{side} {_pieces(proto)}" for side, proto in file.tokenizers.items())
        raise ConfigError(
            f"training.init_from: the vocabulary of {path} ({held}) is not the one that is asked for here:\n  "
            + "\n  ".join(f"tokenizer.{line}" for line in differing)
            + "\nIts weights fit no other. Leave the tokenizer section out to take that vocabulary, or leave out "
            "init_from to train a new one from nothing"
        )
    free = {key: getattr(config.model, key) for key in _FREE_MODEL & config.model.model_fields_set}
    if differing := [line for line in _differing(config.model, began.model) if line.split(":")[0] not in _FREE_MODEL]:
        raise ConfigError(
            f"training.init_from: the model of {path} is not the one that is asked for here:\n  "
            + "\n  ".join(f"model.{line}" for line in differing)
            + "\nLeave these keys out to take the model as it is"
        )
    model = began.model.model_copy(update=free)
    if model.positions == "learned" and config.data.max_length >= model.max_positions:
        raise ConfigError(
            f"training.init_from: the learned positions of {path} end at model.max_positions {model.max_positions}, "
            f"and data.max_length {config.data.max_length} with its end symbol needs {config.data.max_length + 1}: "
            "lower data.max_length"
        )
    tokenizer = began.tokenizer.model_copy(update={_FREE_TOKENIZER: config.tokenizer.sampling_alpha})
    return replace(file, config=config.model_copy(update={"model": model, "tokenizer": tokenizer}))


def _differing(asked: Section, there: Section) -> list[str]:
    """The keys that `asked` sets to other values than `there` has, as text."""
    return [
        f"{key}: {_told(getattr(asked, key))} here, {_told(getattr(there, key))} there"
        for key in sorted(asked.model_fields_set)
        if getattr(asked, key) != getattr(there, key)
    ]


def _told(value: Any) -> str:
    if value is None:
        return "nothing"
    return shown(str(value) if isinstance(value, Path) else value)


def _pieces(proto: bytes) -> str:
    return f"{Tokenizer(proto).vocab_size:,} pieces, SHA-256 {hashlib.sha256(proto).hexdigest()[:12]}"
