"""The starting point of a run: its newest intact checkpoint, another run's weights, or random weights."""

import hashlib
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from transformer_cli import checkpoint
from transformer_cli.checkpoint import ModelFile
from transformer_cli.config.left_out import embedding_dropout, noam_factor, save_steps
from transformer_cli.config.schema import Config, HoldOut, Section
from transformer_cli.config.yaml_text import shown
from transformer_cli.data.split import sets_beside_training
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import CheckpointError, ConfigError, NewerVersionError, NothingToDo
from transformer_cli.log import LOGGER
from transformer_cli.run_files import checkpoint_path, holds_run, list_checkpoints, locate
from transformer_cli.training.run_dir import RunDir
from transformer_cli.training.state import TrainingState

# Keys of `training` that may change on resuming; any other change would make it another run.
_FREE_TRAINING = {
    "max_steps", "max_epochs", "max_hours", "patience", "log_steps", "valid_steps", "save_steps", "keep_last",
    "keep_best", "average_last", "activation_checkpointing", "init_from", "tensorboard",
}  # fmt: skip
# Each of these may change, too, but not their product, which is the size of an update.
_UPDATE_SIZE = ("batch_size", "gradient_accumulation_steps")
# Compared by content, if at all.
_FILES = {"data.train", "data.valid", "data.test", "data.cache_dir", "tokenizer.model", "tokenizer.target_model"}
_FREE_SECTIONS = {"device", "decoding", "evaluation", "name"}

# What keys left out stand for changes nothing when it is written out.
_EFFECTIVE: dict[str, Callable[[Config], Any]] = {
    "model.embedding_dropout": lambda config: embedding_dropout(config.model),
    "training.noam_factor": lambda config: noam_factor(config.training),
    "training.save_steps": lambda config: save_steps(config.training),
}

# Keys that may differ when fine-tuning, because they do not affect the shape or meaning of the weights.
_FREE_MODEL = {"dropout", "attention_dropout", "activation_dropout", "embedding_dropout"}
_FREE_TOKENIZER = "sampling_alpha"

S = TypeVar("S", bound=Section)


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
    if holds_run(run.path):
        LOGGER.info("%s has no checkpoint yet: starting from the beginning", run.path)
    else:
        LOGGER.warning("there is no run in %s: starting from the beginning", run.path.absolute())
    return None


def resumed_config(config: Config, began: Config) -> Config:
    """The configuration to resume with: `config`, in which the values of the run replace precision `auto` and, with
    `init_from`, the keys of `tokenizer` and `model` that `config` does not set.

    `began` is the configuration in the checkpoint, since config.yaml may have been edited. ConfigError names every
    changed key that must not change.
    """
    if config.precision == "auto":
        config = config.model_copy(update={"precision": began.precision})
    if config.training.init_from is not None:
        came_along = {
            "tokenizer": _overridden(began.tokenizer, config.tokenizer),
            "model": _overridden(began.model, config.model),
        }
        config = config.model_copy(update=came_along)
    changed = [
        f"{key}: {old!r} in the run, {new!r} now"
        for (key, old), (_, new) in zip(_fixed(began), _fixed(config), strict=True)
        if old != new and not _are_effectively_equal(key, began, config)
    ]
    if config.training.lr_schedule == "cosine" and began.training.max_steps != config.training.max_steps:
        changed.append(
            f"training.max_steps: {began.training.max_steps} in the run, {config.training.max_steps} now (the cosine "
            "schedule depends on it)"
        )
    if changed:
        listed = "\n  ".join(changed)
        raise ConfigError(
            f"the run cannot be resumed with another configuration:\n  {listed}\nSet these back, or start a new run "
            "with --run-dir or --overwrite"
        )
    for (key, old), (_, new) in zip(_limits(began), _limits(config), strict=True):
        if old != new and not _are_effectively_equal(f"training.{key}", began, config):
            LOGGER.info("training.%s is %s from here on; it was %s", key, new, old)
    return config


def _are_effectively_equal(key: str, one: Config, other: Config) -> bool:
    return key in _EFFECTIVE and _EFFECTIVE[key](one) == _EFFECTIVE[key](other)


def _overridden(section: S, by: S) -> S:
    """A copy of a section in which the keys set in another one replace its own."""
    return section.model_copy(update={key: getattr(by, key) for key in by.model_fields_set})


def _limits(config: Config) -> list[tuple[str, Any]]:
    """The training settings that may change. A change is logged, because a forgotten --set reverts it."""
    return [(key, value) for key, value in config.training if key in _FREE_TRAINING and key != "init_from"]


def _fixed(config: Config) -> Iterator[tuple[str, Any]]:
    """The values that must not change, without data files, which are compared by content."""
    sets = sets_beside_training(config)
    yield "data", {key: part.hold_out for key, part in sets.items() if isinstance(part, HoldOut)}
    for section, value in config:
        if section in _FREE_SECTIONS:
            continue
        if not isinstance(value, Section):
            yield section, value
            continue
        for key, inner in value:
            if (section == "training" and (key in _FREE_TRAINING or key in _UPDATE_SIZE)) or (
                f"{section}.{key}" in _FILES
            ):
                continue
            yield f"{section}.{key}", inner
    yield "training." + " x ".join(_UPDATE_SIZE), math.prod(getattr(config.training, key) for key in _UPDATE_SIZE)


def check_data_unchanged(record: dict[str, Any], files: list[dict[str, Any]]) -> None:
    """ConfigError if a tokenizer or data file differs in content or entry from what the run began with."""
    began = record.get("data")
    if began is None:
        LOGGER.warning("run.json does not tell what data the run began with; going on with the present files")
        return
    before, now = (
        [(file["key"], file["bytes"], file["sha256"], file.get("entry")) for file in listed]
        for listed in (began, files)
    )
    if before == now:
        return
    names = [file["path"] for file, old, new in zip(files, before, now, strict=False) if old != new]
    raise ConfigError(
        f"the data has changed since the run began ({', '.join(names) or 'another number of files'}): put it back to "
        "resume, or start a new run with --run-dir or --overwrite"
    )


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
    if differing := _differing(config.tokenizer, began.tokenizer, {_FREE_TOKENIZER}):
        held = ", ".join(f"{side} {_pieces(proto)}" for side, proto in file.tokenizers.items())
        raise ConfigError(
            f"training.init_from: the vocabulary of {path} ({held}) is not the one that is asked for here:\n  "
            + "\n  ".join(f"tokenizer.{line}" for line in differing)
            + "\nIts weights fit no other. Leave the tokenizer section out to take that vocabulary, or leave out "
            "init_from to train a new one from nothing"
        )
    free = {key: getattr(config.model, key) for key in _FREE_MODEL & config.model.model_fields_set}
    if differing := _differing(config.model, began.model, _FREE_MODEL):
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


def _differing(asked: Section, there: Section, free: Collection[str]) -> list[str]:
    """The keys, but the free ones, that `asked` sets to other values than `there` has, as text."""
    return [
        f"{key}: {_told(getattr(asked, key))} here, {_told(getattr(there, key))} there"
        for key in sorted(asked.model_fields_set - {*free})
        if getattr(asked, key) != getattr(there, key)
    ]


def _told(value: Any) -> str:
    if value is None:
        return "nothing"
    return shown(str(value) if isinstance(value, Path) else value)


def _pieces(proto: bytes) -> str:
    return f"{Tokenizer(proto).vocab_size:,} pieces, SHA-256 {hashlib.sha256(proto).hexdigest()[:12]}"
