"""How a command ends: an error is one message on stderr and an exit code, never a traceback."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from transformer_cli.errors import UserError

INTERRUPTED = 130


class CommandGroup(TyperGroup):
    """Runs a command and turns what it raises into exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            # The reader of our output, such as `head`, has seen enough. Python would complain again when it closes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from error
        except OSError as error:
            # A full disk, a folder that may not be written to.
            print(f"error: {error.strerror}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
            raise typer.Exit(UserError.exit_code) from error
