"""Messages and progress on stderr, and the files in which a run keeps them.

Results go to stdout and are printed by the commands; everything else goes through here.
"""

import json
import logging
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tqdm import tqdm

LOGGER = logging.getLogger("transformer_cli")

_BAR = "{n_fmt}/{total_fmt} |{bar}| {remaining}{postfix}"  # short, so that 80 columns have room for the rest


OF_ONE_PROCESS = {"of_one_process": True}
"""The `extra` of a message that concerns only the process that logs it, and is not the same for all."""

ABOUT_TEXT = {"about_text": True}
"""The `extra` of a warning about the training text, which is logged again where the text comes from the cache."""


class _Stderr(logging.Handler):
    """Plain messages on stderr, above a progress bar if there is one."""

    def __init__(self, level: int, process: int) -> None:
        super().__init__(level)
        self.process = process

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        if self.process > 0:
            if not hasattr(record, "of_one_process"):
                return
            prefix = f"process {self.process}: {prefix}"
        tqdm.write(prefix + record.getMessage(), file=sys.stderr)


def to_stderr(level: int, process: int = 0) -> None:
    """Show messages of this level and above from now on. Called once, by the command line.

    Of several processes, the first shows all its messages, and the others only those marked `OF_ONE_PROCESS`.
    """
    for handler in LOGGER.handlers:
        if isinstance(handler, _Stderr):
            LOGGER.removeHandler(handler)
    LOGGER.addHandler(_Stderr(level, process))
    LOGGER.setLevel(logging.DEBUG)


def _stderr_tells_its_size() -> bool:
    """Some pseudo-terminals report zero rows and columns, with which tqdm would show nothing."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except OSError:
        return False


def is_quiet() -> bool:
    """Whether only warnings and errors are shown."""
    return any(isinstance(handler, _Stderr) and handler.level > logging.INFO for handler in LOGGER.handlers)


class RunLog(logging.Handler):
    """Writes messages to a file, with the time. Messages before the file is opened wait until then."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        self.waiting: list[str] = []
        self.file: IO[str] | None = None

    def open(self, path: Path) -> None:
        """Append to this file from now on, the waiting messages first."""
        self.file = path.open("a", encoding="utf-8")
        self.file.writelines(self.waiting)
        self.file.flush()
        self.waiting.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message, or let it wait."""
        line = self.format(record) + "\n"
        if self.file is None:
            self.waiting.append(line)
        else:
            self.file.write(line)
            self.file.flush()

    def __enter__(self) -> "RunLog":
        LOGGER.setLevel(logging.DEBUG)  # also where `to_stderr` was not called
        LOGGER.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        LOGGER.removeHandler(self)
        if self.file is not None:
            if error is not None:
                self.file.write(f"{type(error).__name__}: {error}\n")
            self.file.close()


class Metrics:
    """`metrics.jsonl`: one JSON object per line, written to the file at once."""

    def __init__(self, path: Path, keep_lines: int) -> None:
        """Continue after the first `keep_lines` lines; later ones, from an interrupted run, are removed."""
        self.path = path
        old = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        kept = old[:keep_lines]
        if kept != old:
            os.truncate(path, sum(map(len, kept)))
        self.lines = len(kept)

    def write(self, event: str, values: Mapping[str, Any]) -> None:
        """Append one event."""
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(_finite({"event": event, **values}), ensure_ascii=False, allow_nan=False) + "\n")
        self.lines += 1


def _finite(value: Any) -> Any:
    """The value with None for infinity and NaN, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Progress:
    """A progress bar at a terminal; elsewhere, log lines tell the same."""

    def __init__(self, total: int | None, initial: int = 0, unit: str = "step", shown: bool = True) -> None:
        self.total = (total or 0) - initial
        self.done = 0
        self.began = time.monotonic()
        sized = _stderr_tells_its_size()
        self.bar = tqdm(
            total=total,
            initial=initial,
            unit=unit,
            file=sys.stderr,
            disable=not (shown and sys.stderr.isatty()) or is_quiet(),
            dynamic_ncols=sized,
            ncols=None if sized else 80,
            nrows=None if sized else 24,
            bar_format=_BAR if total else None,
        )

    def advance(self, by: int = 1) -> None:
        """Move the bar on."""
        self.done += by
        self.bar.update(by)

    def log(self, where: str, note: str) -> None:
        """Show a note on the progress: at the end of the bar, or without a bar as a line with the time left."""
        self.bar.set_postfix_str(note.replace("  ", " "), refresh=False)
        left = (time.monotonic() - self.began) / max(self.done, 1) * (self.total - self.done)
        # A run's log file gets the line at either level; at a terminal the bar shows it.
        level = logging.INFO if self.bar.disable else logging.DEBUG
        LOGGER.log(level, "%s  %s  %s left", where, note, tqdm.format_interval(left))

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.close()  # so that an error message starts on its own line
