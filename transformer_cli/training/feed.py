"""The source of updates: a prepared dataset, planned an epoch at a time, or a stream.

With a prepared dataset all processes have the same plan and share the parts of each update. With a stream each process
reads its own part and plans its own updates, smaller by the number of processes; one that reaches its end before the
others computes an empty batch. In both cases an update is the sum over all processes.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from transformer_cli.config.schema import Config
from transformer_cli.data.batching import Plan, Update, plan_epoch
from transformer_cli.data.dataset import TokenDataset, joined
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.stream import Position, Stream, Window
from transformer_cli.data.subword_sampling import Sampler
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.log import LOGGER
from transformer_cli.training.distributed import Processes
from transformer_cli.training.state import TrainingState
from transformer_cli.training.step import update_size


class Feed(Protocol):
    """The updates of a run. All processes call its methods at the same steps."""

    shared_by: Processes
    """The processes that share the parts of one update."""
    counts: FilterCounts | None
    """Pairs read and filtered out, if known before training."""
    longest_source: int | None
    """Pieces of the longest source, if known before training."""

    @property
    def dataset(self) -> TokenDataset:
        """The dataset of the next update."""

    def plan(self, state: TrainingState) -> Sequence[Update]:
        """The updates planned of `dataset`; none where a process has no part of a stream left."""

    def next(self, state: TrainingState) -> tuple[TokenDataset, Update]:
        """The next update and the dataset that it indexes; an update of a stream may have no pairs."""

    def advance(self, state: TrainingState) -> bool:
        """Count the update as done; return whether this process has another one in this epoch."""

    def end_epoch(self, state: TrainingState) -> None:
        """Called when all processes have reached the end of an epoch, or of training."""

    def positions(self) -> list[dict[str, Any]]:
        """The position of each process as JSON-ready values, in the main process only; empty if the counters of the
        state suffice."""

    def close(self) -> None:
        """Stop reading."""


class Planned:
    """Updates of a prepared dataset."""

    def __init__(
        self, dataset: TokenDataset, counts: FilterCounts, config: Config, sampler: Sampler | None, group: Processes
    ) -> None:
        self.dataset = dataset
        self.longest_source: int | None = int(dataset.source.lengths(np.arange(len(dataset))).max())
        self.counts: FilterCounts | None = counts
        self.shared_by = group
        self._config = config
        self._sampler = sampler
        self._plan: tuple[int, Plan] | None = None  # epoch and its plan

    def plan(self, state: TrainingState) -> Sequence[Update]:
        """See `Feed`."""
        return self._of(state.epoch)

    def next(self, state: TrainingState) -> tuple[TokenDataset, Update]:
        """See `Feed`."""
        update = self._of(state.epoch)[state.update_in_epoch]
        if self._sampler is None:
            return self.dataset, update
        return self._sampler.sampled(self.dataset, update, (state.epoch,))

    def advance(self, state: TrainingState) -> bool:
        """See `Feed`."""
        return state.update_in_epoch + 1 < len(self._of(state.epoch))

    def end_epoch(self, state: TrainingState) -> None:
        """See `Feed`."""

    def positions(self) -> list[dict[str, Any]]:
        """See `Feed`."""
        return []

    def close(self) -> None:
        """See `Feed`."""

    def _of(self, epoch: int) -> Plan:
        if self._plan is None or self._plan[0] != epoch:
            settings, seed = self._config.training, self._config.seed
            plan = plan_epoch(self.dataset, update_size(self._config.training), settings.batch_type, seed, epoch)
            self._plan = epoch, plan
        return self._plan[1]


class Streamed:
    """Updates of this process's part of a stream; a thread reads the next window during training on the current one."""

    shared_by = Processes()
    longest_source: int | None = None

    def __init__(
        self,
        stream: Stream,
        tokenizers: Tokenizers,
        config: Config,
        sampler: Sampler | None,
        threads: int,
        group: Processes,
        state: TrainingState,
    ) -> None:
        """Start at the position in `state`. DataError if no process has a pair left in the epoch."""
        self.counts: FilterCounts | None = None
        self._stream = stream
        self._tokenizers = tokenizers
        self._config = config
        self._sampler = sampler
        self._threads = threads
        self._group = group
        self._size = max(update_size(config.training) // group.count, 1)
        self._background = ThreadPoolExecutor(1, "stream")
        saved = state.stream[group.rank] if state.stream else None
        position = Position(state.epoch) if saved is None else Position.from_plain(saved["place"])
        if saved is None or position.epoch != state.epoch:
            self._begin(Position(state.epoch))
        else:
            self._begin(position)
            self._number = saved["update"]

    def plan(self, state: TrainingState) -> Sequence[Update]:
        """See `Feed`."""
        return () if self._plan is None else self._plan

    def next(self, state: TrainingState) -> tuple[TokenDataset, Update]:
        """See `Feed`."""
        if self._position.epoch != state.epoch:
            self._begin(Position(state.epoch))
        if self._plan is None:
            return self.dataset, []
        update = self._plan[self._number]
        if self._sampler is None:
            return self.dataset, update
        return self._sampler.sampled(self.dataset, update, (state.epoch, self._position.window, self._group.rank))

    def advance(self, state: TrainingState) -> bool:
        """See `Feed`."""
        self._number += 1
        if self._plan is not None and self._number == len(self._plan):
            self._turn()
        return self._plan is not None

    def end_epoch(self, state: TrainingState) -> None:
        """See `Feed`."""
        whole = "" if state.update_in_epoch == 0 else " so far"
        counts = FilterCounts(*map(int, self._group.sum(list(asdict(self._counts).values()))))
        LOGGER.info("epoch %d%s: %s", state.current_epoch, whole, counts.summary(self._config.data))
        self._stream.report()

    def positions(self) -> list[dict[str, Any]]:
        """See `Feed`."""
        own = {"place": self._position.to_plain(), "update": self._number}
        return [json.loads(words) for words in self._group.gather(json.dumps(own).encode())]

    def close(self) -> None:
        """See `Feed`."""
        self._stream.close()
        self._background.shutdown(wait=False)

    def _begin(self, position: Position) -> None:
        """Move to the first window with pairs at or after a position. DataError if no process finds one."""
        self._position, self._end, self._counts = position, position, position.counts
        self._windows = self._stream.windows(
            position, self._tokenizers, self._threads, self._group.rank, self._group.count
        )
        self._ahead = self._background.submit(self._read)
        self._turn()
        if not any(self._group.sum([float(self._plan is not None)])):
            raise DataError("data.train: no pair is left to train on in the stream")

    def _turn(self) -> None:
        """Move to the next window, or to an empty one at the end of this process's part."""
        window, self._plan = self._ahead.result()
        self._number = 0
        self.dataset = joined([]) if window is None else window.dataset
        if window is not None:
            self._end, self._counts = window.end, window.end.counts
        # At the end of its part, the position of a process is after its last window, which is done.
        self._position = self._end if window is None or self._plan is None else window.begin
        if self._plan is not None:
            self._ahead = self._background.submit(self._read)

    def _read(self) -> tuple[Window | None, Plan | None]:
        """The next window that holds pairs, with its plan; if none does, the last one, if any, without a plan."""
        window = None
        for window in self._windows:
            if len(window.dataset):
                return window, self._planned(window)
        return window, None

    def _planned(self, window: Window) -> Plan:
        epoch, number = window.begin.epoch, window.begin.window
        chance = np.random.SeedSequence([self._config.seed, epoch, number, self._group.rank])
        seed = int(chance.generate_state(1, np.uint64)[0])
        return plan_epoch(window.dataset, self._size, self._config.training.batch_type, seed, epoch)


def check_processes(state: TrainingState, group: Processes) -> None:
    """ConfigError if a streamed run is resumed with another number of processes than its checkpoint has."""
    if state.stream and len(state.stream) != group.count:
        raise ConfigError(
            f"data.train has streaming: true, and the run was begun by {_processes(len(state.stream))} with places of "
            f"their own in the shards, and not by {_processes(group.count)}: resume with as many as before (torchrun "
            "--nproc-per-node), or start a new run with --run-dir or --overwrite"
        )


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"
