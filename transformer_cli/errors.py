"""The exceptions that a user can cause, each with its exit code.

A message says what is wrong, where (file, line, key) and what to do next; it is printed unchanged, without a
traceback. Internal invariants are `assert`s instead.
"""

import signal


class UserError(Exception):
    """An error that the user can fix. Exit code 1: the run failed."""

    exit_code = 1


class ConfigError(UserError):
    """The command or the configuration is wrong. Exit code 2."""

    exit_code = 2


class DataError(UserError):
    """A text file cannot be used as it is."""


class LineError(DataError):
    """A line of the input, by its number from 1, cannot be used as it is; `problem` continues "line N"."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"line {number} {problem}")
        self.number = number
        self.problem = problem


class CheckpointError(UserError):
    """A model file or checkpoint is missing, damaged, foreign or too new."""


class NewerVersionError(CheckpointError):
    """The file is intact, but was written by a newer transformer_cli."""


class NothingToDo(UserError):
    """A finished run was asked to continue. Exit code 3."""

    exit_code = 3


class ProcessError(UserError):
    """An error that a process reports itself, since the main process does not report the same one. Exit code 1."""


class Stopped(UserError):
    """A signal stopped the run. Exit code 128 + its number, as in a shell."""

    def __init__(self, number: signal.Signals, message: str = "") -> None:
        super().__init__(f"stopped by {number.name}" + (f". {message}" if message else ""))
        self.signal = number
        self.exit_code = 128 + number
