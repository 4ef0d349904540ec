"""Stop requests: SIGTERM, SIGUSR1 (which batch systems send before the end of a time slot), SIGHUP and Ctrl-C.

A request waits for the current step and its checkpoint; where nothing would be lost, it ends the run at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from transformer_cli.errors import Stopped
from transformer_cli.log import LOGGER

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGINT", "SIGHUP") if hasattr(signal, name)]
_HANGUP = getattr(signal, "SIGHUP", None)


class StopRequests:
    """Context in which a signal is a stop request, recorded in `signal`.

    Outside the main thread, which alone may handle signals, it leaves all handlers as they are.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._waits = True
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "StopRequests":
        try:
            for number in _SIGNALS:
                if number == _HANGUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue  # started by nohup
                self._before[number] = signal.signal(number, self._handle)
        except ValueError:  # not the main thread of the program
            self._before.clear()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Context in which a stop request raises Stopped; so does one recorded before."""
        self._waits = False
        try:
            if self.signal is not None:
                raise Stopped(self.signal)
            yield
        finally:
            self._waits = True

    def _handle(self, number: int, _: FrameType | None) -> None:
        again = self.signal is not None
        if again and number == signal.SIGINT:
            raise KeyboardInterrupt  # whoever presses Ctrl-C twice does not want to wait
        if again:
            return
        self.signal = signal.Signals(number)
        if not self._waits:
            raise Stopped(self.signal)
        # The signal may come while something is being written, and a stream does not take more until that is done. Then
        # this is not said; that the run was stopped, and by what, is said at its end.
        with suppress(RuntimeError):
            LOGGER.info("%s: finishing this step and saving (Ctrl-C leaves at once)", self.signal.name)
