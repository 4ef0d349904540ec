"""What a person can look at while a run goes on: report.html, and TensorBoard's curves where they are asked for.

Both are made from what the run has written, so that those of a resumed run go on without a seam. Nothing that goes
wrong in drawing ends training.
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

_SHARE = 0.05  # most of the time that may go into drawing, the end of training excepted
_FIRST_AFTER = 10.0  # seconds; a run that is over sooner is drawn at its end only
_MEASURED = ("loss", "nll", "ppl", "lr", "grad_norm", "tokens_per_s")


def check_tensorboard(settings: TrainingConfig) -> None:
    """ConfigError where curves for TensorBoard are asked for and cannot be written."""
    if settings.tensorboard and find_spec("tensorboard") is None:
        raise ConfigError(
            'training.tensorboard: tensorboard is not installed: pip install "transformer-cli[tensorboard]", or set it '
            "to false"
        )


class Pictures:
    """The pictures of a run; `shown` in the main process only."""

    def __init__(self, run: RunDir, tensorboard: bool, shown: bool) -> None:
        self._run = run
        self._writer = _fresh_writer(run) if tensorboard and shown else None
        self._read = 0  # bytes of the metrics that TensorBoard has
        self._drawn = shown and can_draw()
        self._not_before = time.monotonic() + _FIRST_AFTER
        self._warned = False
        if shown and not self._drawn:
            LOGGER.info("no report.html is written, for matplotlib is not installed: %s", INSTALL)
        self.follow()

    def follow(self) -> None:
        """Give TensorBoard what the metrics have and it does not."""
        if self._writer is None or not self._run.metrics.exists():
            return
        with self._forgiven(), self._run.metrics.open("rb") as file:
            file.seek(self._read)
            for line in file.read().splitlines():
                _add(self._writer, json.loads(line))
            self._read = file.tell()
            self._writer.flush()

    def draw_if_due(self, translator: Translator) -> bytes:
        """Draw report.html anew, unless training has only begun, or that was done so lately that drawing would take a
        good part of the time."""
        self.follow()
        if time.monotonic() >= self._not_before:
            self._draw(translator, {})
        return b""

    def draw_at_end(self, translator: Translator, tests: Mapping[str, Sequence[Pair]]) -> None:
        """Draw report.html with what the tests have found."""
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
        """What goes wrong is told once."""
        try:
            yield
        except Exception as error:  # whatever it is, training is worth more
            if not self._warned:
                LOGGER.warning(
                    "a picture of the run could not be drawn (%s: %s); training goes on", type(error).__name__, error
                )
            self._warned = True


def _fresh_writer(run: RunDir) -> "SummaryWriter":
    """The curves are written anew, since a run that is resumed may have gone further before: a reader drops all that
    earlier files hold. These stay, for a TensorBoard that is looking on would not get over their loss."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(run.tensorboard), purge_step=0)


def _add(writer: "SummaryWriter", event: Mapping[str, Any]) -> None:
    """The numbers of an event under `train/…`, `valid/…`, `average/…` or `test/NAME/…`."""
    group = "average" if "averaged" in event else event["event"]
    if group == "test":
        group = f"test/{event['name']}"
    values = {key: event.get(key) for key in _MEASURED} | {
        name: score["score"] for name, score in event.get("scores", {}).items()
    }
    for name, value in values.items():
        if value is not None:
            writer.add_scalar(f"{group}/{name}", value, event["step"])
