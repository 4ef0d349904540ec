"""Learning rates: pure functions of the step, which counts optimizer updates from 1.

The rate of step k is the one that update k uses.
"""

import math

from transformer_cli.config.left_out import noam_factor
from transformer_cli.config.schema import Config


def noam(step: int, d_model: int, factor: float, warmup: int) -> float:
    """factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) ("Attention Is All You Need", section 5.3)."""
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def inverse_sqrt(step: int, peak: float, warmup: int) -> float:
    """Linear to the peak, then peak * sqrt(warmup / step); without warm-up peak / sqrt(step)."""
    if step < warmup:
        return peak * step / warmup
    return peak * math.sqrt(max(warmup, 1) / step)


def cosine(step: int, peak: float, warmup: int, max_steps: int) -> float:
    """Linear to the peak, then half a cosine down to zero, which it reaches at the step after the last."""
    if step < warmup:
        return peak * step / warmup
    progress = (step - warmup) / max(max_steps + 1 - warmup, 1)
    return peak * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))


def constant(step: int, peak: float, warmup: int) -> float:
    """Linear to the peak, then constant."""
    return peak * min(1.0, step / warmup) if warmup else peak


def learning_rate(step: int, config: Config) -> float:
    """The learning rate of a step in a configuration."""
    training = config.training
    if training.lr_schedule == "noam":
        return noam(step, config.model.d_model, noam_factor(training), training.warmup_steps)
    assert training.learning_rate is not None  # the schema guarantees it
    if training.lr_schedule == "inverse_sqrt":
        return inverse_sqrt(step, training.learning_rate, training.warmup_steps)
    if training.lr_schedule == "cosine":
        return cosine(step, training.learning_rate, training.warmup_steps, training.max_steps)
    return constant(step, training.learning_rate, training.warmup_steps)


def peak_rate(config: Config) -> float:
    """The highest rate of a run, at the end of its warm-up or at its last step if that comes first."""
    return learning_rate(max(1, min(config.training.warmup_steps, config.training.max_steps)), config)
