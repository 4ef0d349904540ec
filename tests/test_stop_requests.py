"""Stop requests at moments when a handler may not do what it does at others."""

import io
import os
import signal

import pytest

from transformer_cli.log import LOGGER, to_stderr
from transformer_cli.training.signals import StopRequests


class Terminal(io.RawIOBase):
    """It takes the first write only after a signal has come."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        text = bytes(data)  # type: ignore[call-overload]
        if not self.taken:
            os.kill(os.getpid(), signal.SIGTERM)
        self.taken += text
        return len(text)


def test_a_signal_that_comes_while_a_message_is_written_is_a_request_like_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(
        "sys.stderr", io.TextIOWrapper(io.BufferedWriter(terminal), encoding="utf-8", line_buffering=True)
    )
    monkeypatch.setattr(LOGGER, "handlers", [])
    to_stderr(20)
    with StopRequests() as stop:
        LOGGER.info("step 1")
    assert stop.signal == signal.SIGTERM
    assert b"step 1\n" in terminal.taken
