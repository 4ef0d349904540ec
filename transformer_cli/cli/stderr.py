"""Output that can no longer be written: the terminal is closed, the reader gone, the disk full.

Without standard error the program works on.
"""

import os
import sys
from typing import IO


class _Stderr:
    """The stream; from the first error on, what is written is dropped."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write, or drop the text."""
        try:
            return self.stream.write(text)
        except OSError:
            drop(self.stream)
            return len(text)

    def flush(self) -> None:
        """Flush, or drop what waits."""
        try:
            self.stream.flush()
        except OSError:
            drop(self.stream)


def drop(stream: IO[str]) -> None:
    """Drop what the stream could not write, and what it is given from now on. It holds the former, and the interpreter
    flushes it at its end: that must not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def guard_stderr() -> None:
    """Go on without a word where there is no standard error, or not any longer. Called once, at the program's start."""
    # Libraries write to descriptors 1 and 2, which must not become a file of ours where the program has none.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    stream = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = _Stderr(stream)
