"""What every command has in common: the level of its messages, and its exit codes.

An error is one message on stderr and an exit code, with a traceback only on request. Where torchrun has started several
processes, an error that all of them share is printed once on each machine.
"""

import inspect
import logging
import os
import sys
import traceback as tracebacks
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from transformer_cli.cli.stderr import drop
from transformer_cli.errors import ProcessError, Stopped, UserError

INTERRUPTED = 130

_COMMON = {
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")],
    "traceback": Annotated[bool, typer.Option("--traceback", help="Show where in the program an error arose.")],
}


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """The function with the common options after its own, and with its errors turned into exit codes."""

    @wraps(function)
    def command(*, quiet: bool, verbose: bool, traceback: bool, **own: Any) -> None:
        from transformer_cli.log import to_stderr

        quiet = quiet or _process("RANK") > 0
        level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
        to_stderr(level, _process("RANK"))
        try:
            function(**own)
        except Stopped as error:
            _say(str(error), error)
            raise typer.Exit(error.exit_code) from error
        except UserError as error:
            _say(f"error: {error}", error, traceback)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            _say("interrupted", error)
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            drop(sys.stdout)  # its reader, such as `head`, has closed the pipe
            raise typer.Exit(0) from error
        except OSError as error:
            # Such as a full disk or a folder without write permission.
            file = f": {error.filename}" if error.filename else ""
            _say(f"error: {error.strerror or error}{file}", error, traceback)
            raise typer.Exit(UserError.exit_code) from error
        except typer.Exit:
            raise
        except Exception as error:
            where = "" if traceback else "; with --traceback it says where"
            _say(f"error: {type(error).__name__}: {error}. This is a fault of the program{where}", error, traceback)
            raise typer.Exit(UserError.exit_code) from error

    signature = inspect.signature(function)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in _COMMON.items()
    ]
    command.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    command.__annotations__ = {**function.__annotations__, **_COMMON}
    return command


def _process(variable: str) -> int:
    """The rank of this process among all (RANK) or on its machine (LOCAL_RANK)."""
    number = os.environ.get(variable, "")
    return int(number) if number.isdecimal() else 0


def _say(words: str, error: BaseException, traceback: bool = False) -> None:
    """Print the final message. Faults of the program and ProcessErrors are printed by every process that has one, other
    errors once per machine."""
    is_of_all = isinstance(error, (UserError, OSError, KeyboardInterrupt)) and not isinstance(error, ProcessError)
    if _process("LOCAL_RANK") > 0 and is_of_all:
        return
    if traceback:
        tracebacks.print_exception(error)
    print(words, file=sys.stderr)
