"""The values that keys stand for when they are left out and others give them."""

from transformer_cli.config.schema import ModelConfig, TrainingConfig


def embedding_dropout(model: ModelConfig) -> float:
    """`model.embedding_dropout`, or `model.dropout`."""
    return model.dropout if model.embedding_dropout is None else model.embedding_dropout


def noam_factor(training: TrainingConfig) -> float:
    """`training.noam_factor`, or 1, which is the paper's."""
    return 1.0 if training.noam_factor is None else training.noam_factor


def save_steps(training: TrainingConfig) -> int:
    """`training.save_steps`, or `training.valid_steps`."""
    return training.save_steps or training.valid_steps
