"""All that resuming needs, to and from plain values and tensors.

Random generators are not among it: they are seeded anew before each micro-batch from (seed, step, micro-batch).
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from transformer_cli.config.schema import TrainingConfig


@dataclass
class Interval:
    """Sums since the last log line."""

    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, loss: float, nll: float, tokens: int, seconds: float) -> None:
        """Add one update."""
        self.loss += loss
        self.nll += nll
        self.tokens += tokens
        self.seconds += seconds


@dataclass
class TrainingState:
    """Where a run stands."""

    step: int = 0
    epoch: int = 0
    update_in_epoch: int = 0
    seconds: float = 0.0
    best_step: int | None = None
    best_score: float | None = None
    scores: dict[str, float] = field(default_factory=dict)  # step -> best_metric, of every validation
    bad_validations: int = 0
    metrics_lines: int = 0
    skipped: int = 0  # updates whose loss or gradient was not finite
    skipped_in_a_row: int = 0
    batch_size: int | None = None  # the most that goes through the model at once, since memory ran out
    besides: list[int] = field(default_factory=list)  # steps of checkpoints that are kept only for being the best
    stopped_at: int | None = None  # step of a checkpoint that only a stop request asked for
    stream: list[dict[str, Any]] = field(default_factory=list)  # where each process stands in a streamed set
    interval: Interval = field(default_factory=Interval)
    loss_scale: dict[str, Any] = field(default_factory=dict)  # fp16 only

    @property
    def current_epoch(self) -> int:
        """The epoch that the last update belonged to, counted from 1."""
        return self.epoch + (self.update_in_epoch > 0)

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "TrainingState":
        """The state that `to_plain` described."""
        known = {f.name for f in fields(cls)}
        return cls(**{**{k: v for k, v in values.items() if k in known}, "interval": Interval(**values["interval"])})

    def advance(self, ends_epoch: bool) -> None:
        """One update further, and into the next epoch after the last."""
        self.step += 1
        self.update_in_epoch += 1
        if ends_epoch:
            self.epoch, self.update_in_epoch = self.epoch + 1, 0

    def best_steps(self, count: int, among: Collection[int]) -> list[int]:
        """Of some steps those with the best validations, best first."""
        scores = {int(step): score for step, score in self.scores.items() if int(step) in among}
        return sorted(scores, key=lambda step: (-scores[step], step))[:count]

    def record_validation(self, score: float) -> bool:
        """Note a validation's score, higher being better; True when it is the best so far (ties: the earlier)."""
        self.scores[str(self.step)] = score
        if self.best_score is None or score > self.best_score:
            self.best_step, self.best_score, self.bad_validations = self.step, score, 0
            return True
        self.bad_validations += 1
        return False

    def checkpoints_to_keep(self, saved: Collection[int], due: bool, config: TrainingConfig) -> set[int]:
        """Of the checkpoints that there are, and the one of this step, those that are to stay.

        The last that were due, and the best. One that only a stop asked for lasts until the next.
        """
        candidates = {*saved} - {self.stopped_at} | {self.step}
        is_best = self.best_step == self.step
        self.stopped_at = None if due or is_best else self.step
        self.besides = [step for step in self.besides if step != self.step] + [self.step] * (is_best and not due)
        last = sorted(candidates - {*self.besides, self.stopped_at})[-config.keep_last :]
        kept = {self.step, *last, *self.best_steps(config.keep_best, candidates)}
        self.besides = [step for step in self.besides if step in kept]
        return kept

    def go_on_from_end(self, config: TrainingConfig) -> None:
        """A run that had come to its end goes on, a limit having been raised: a checkpoint that was due only there is
        no longer one of those that are averaged."""
        if self.step % (config.save_steps or config.valid_steps) == 0 or self.step in (self.stopped_at, *self.besides):
            return
        if self.best_step == self.step:
            self.besides.append(self.step)
        else:
            self.stopped_at = self.step

    def stop_reason(self, config: TrainingConfig) -> str | None:
        """Why training is over, in the words of its limits; None while it is not."""
        if self.step >= config.max_steps:
            return f"step {self.step} of training.max_steps {config.max_steps}"
        if config.max_epochs is not None and self.epoch >= config.max_epochs:
            return f"epoch {self.epoch} of training.max_epochs {config.max_epochs}, at step {self.step}"
        if config.max_hours is not None and self.seconds >= 3600 * config.max_hours:
            return f"{self.seconds / 3600:.2f} of training.max_hours {config.max_hours}, at step {self.step}"
        if config.patience is not None and self.bad_validations >= config.patience:
            return (
                f"{self.bad_validations} validations without a new best (training.patience {config.patience}), at step "
                f"{self.step}; the best was step {self.best_step}"
            )
        return None
