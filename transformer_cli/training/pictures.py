"""Plots of a run in progress: report.html and, if configured, TensorBoard's curves.

Both are made from the files of the run, so those of a resumed run continue without a break. No error in drawing ends
training.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from transformer_cli.config.schema import TrainingConfig
from transformer_cli.data.corpus import Pair
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.page import INSTALL, can_draw, write_page
from transformer_cli.log import LOGGER
from transformer_cli.training.run_dir import RunDir

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_SHARE = 0.05  # maximum share of the time spent on drawing, except at the end of training
_FIRST_AFTER = 10.0  # seconds; a shorter run is drawn only at its end
_MEASURED = ("loss", "nll", "ppl", "lr", "grad_norm", "tokens_per_s")


def check_tensorboard(settings: TrainingConfig) -> None:
    """ConfigError if TensorBoard's curves are configured and tensorboard is not installed."""
    if settings.tensorboard and find_spec("tensorboard") is None:
        raise ConfigError(
            "training.tensorboard: tensorboard is not installed: pip install tensorboard, or set it to false"
        )


class Pictures:
    """The plots of a run; `shown` is true in the main process only, which draws them."""

    def __init__(self, run: RunDir, tensorboard: bool, shown: bool) -> None:
        self._run = run
        self._writer = _fresh_writer(run) if tensorboard and shown else None
        self._read = 0  # bytes of the metrics already passed to TensorBoard
        self._drawn = shown and can_draw()
        self._not_before = time.monotonic() + _FIRST_AFTER
        self._warned = False
        if shown and not self._drawn:
            LOGGER.info("no report.html is written, for matplotlib is not installed: %s", INSTALL)
        self.follow()

    def follow(self) -> None:
        """Pass new lines of the metrics to TensorBoard."""
        if self._writer is None or not self._run.metrics.exists():
            return
        with self._forgiven(), self._run.metrics.open("rb") as file:
            file.seek(self._read)
            for line in file.read().splitlines():
                _add(self._writer, json.loads(line))
            self._read = file.tell()
            self._writer.flush()

    def draw_if_due(self, translator: Translator) -> None:
        """Redraw report.html, unless training or the last drawing is so recent that drawing would exceed its share of
        the time."""
        self.follow()
        if time.monotonic() >= self._not_before:
            self._draw(translator, {})

    def draw_at_end(self, translator: Translator, tests: Mapping[str, Sequence[Pair]]) -> None:
        """Draw report.html with the test results."""
        self.follow()
        self._draw(translator, tests)
        if self._writer is not None:
            self._writer.close()

    def _draw(self, translator: Translator, tests: Mapping[str, Sequence[Pair]]) -> None:
        if not self._drawn:
            return
        began = time.monotonic()
        with self._forgiven():
            from transformer_cli.evaluation.history import read_history
            from transformer_cli.evaluation.report import Reported, named, report

            run = Reported(read_history(self._run.path.absolute()), translator, tests)
            write_page(self._run.report, report(named([run])))
        now = time.monotonic()
        self._not_before = now + (now - began) / _SHARE

    @contextmanager
    def _forgiven(self) -> Iterator[None]:
        """Suppress errors; warn of the first."""
        try:
            yield
        except Exception as error:  # no plot is worth ending training
            if not self._warned:
                LOGGER.warning(
                    "a picture of the run could not be drawn (%s: %s); training goes on", type(error).__name__, error
                )
            self._warned = True


def _fresh_writer(run: RunDir) -> "SummaryWriter":
    """A writer of the curves from their start, since a resumed run may have gone further before: `purge_step` makes
    readers drop all points of earlier files. The files stay: a running TensorBoard would not survive their removal."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(run.tensorboard), purge_step=0)


def _add(writer: "SummaryWriter", event: Mapping[str, Any]) -> None:
    """Write the numbers of an event under `train/…`, `valid/…`, `average/…` or `test/NAME/…`."""
    group = "average" if "averaged" in event else event["event"]
    if group == "test":
        group = f"test/{event['name']}"
    values = {key: event.get(key) for key in _MEASURED} | {
        name: score["score"] for name, score in event.get("scores", {}).items()
    }
    for name, value in values.items():
        if value is not None:
            writer.add_scalar(f"{group}/{name}", value, event["step"])
