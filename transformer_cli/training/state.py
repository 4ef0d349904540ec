"""The progress of a run, which its checkpoints store as plain values.

It needs no random generator states: generators are seeded before each micro-batch from (seed, step, micro-batch, and
the rank if there are several processes).
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from transformer_cli.config.left_out import save_steps
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
    """Counters and scores of a run, as of its last update."""

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
    batch_size: int | None = None  # maximum size of a micro-batch, once memory has run out
    besides: list[int] = field(default_factory=list)  # steps of checkpoints that were not due, kept only as best
    stopped_at: int | None = None  # step of a checkpoint made only for a stop request
    stream: list[dict[str, Any]] = field(default_factory=list)  # position of each process in a streamed set
    interval: Interval = field(default_factory=Interval)
    loss_scale: dict[str, Any] = field(default_factory=dict)  # fp16 only

    @property
    def current_epoch(self) -> int:
        """The epoch of the last update, counted from 1."""
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
        """Count an update and, if it ends the epoch, the epoch."""
        self.step += 1
        self.update_in_epoch += 1
        if ends_epoch:
            self.epoch, self.update_in_epoch = self.epoch + 1, 0

    def best_steps(self, count: int, among: Collection[int]) -> list[int]:
        """The `count` steps of `among` with the best validations, best first."""
        scores = {int(step): score for step, score in self.scores.items() if int(step) in among}
        return sorted(scores, key=lambda step: (-scores[step], step))[:count]

    def record_validation(self, score: float) -> bool:
        """Record a validation's score, higher is better; True if it is the best so far (a tie is not)."""
        self.scores[str(self.step)] = score
        if self.best_score is None or score > self.best_score:
            self.best_step, self.best_score, self.bad_validations = self.step, score, 0
            return True
        self.bad_validations += 1
        return False

    def checkpoints_to_keep(self, saved: Collection[int], due: bool, config: TrainingConfig) -> set[int]:
        """Steps of the checkpoints to keep, of those saved and the one of this step: the last ones that were due, and
        the best.

        A checkpoint made only for a stop request is kept until the next one. Updates `stopped_at` and `besides`.
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
        """Continue a run that had ended, after a limit was raised: a checkpoint that was due only as the end is not
        averaged any more."""
        if self.step % save_steps(config) == 0 or self.step in (self.stopped_at, *self.besides):
            return
        if self.best_step == self.step:
            self.besides.append(self.step)
        else:
            self.stopped_at = self.step

    def may_run_out_of_patience(self, config: TrainingConfig) -> bool:
        """Whether a validation of this step comes next and may be the last."""
        return (
            config.patience is not None
            and self.bad_validations + 1 >= config.patience
            and self.step % config.valid_steps == 0
        )

    def stop_reason(self, config: TrainingConfig) -> str | None:
        """The limit that has ended training, in words; None if none has."""
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
