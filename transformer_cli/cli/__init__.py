"""The command line: one module per command or group. A command parses, calls one function and prints one result.

Heavy packages are imported inside the commands, so that `--help` answers at once.
"""

import gc
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from transformer_cli import __version__
from transformer_cli.cli import config, tokenizer
from transformer_cli.cli.data import check
from transformer_cli.cli.evaluate import evaluate
from transformer_cli.cli.exits import as_command
from transformer_cli.cli.export import export
from transformer_cli.cli.init import init
from transformer_cli.cli.inspect import inspect
from transformer_cli.cli.report import report
from transformer_cli.cli.score import score
from transformer_cli.cli.stderr import drop, guard_stderr
from transformer_cli.cli.train import train
from transformer_cli.cli.translate import translate

app = typer.Typer(
    name="transformer-cli",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train a translation model on your own text, translate with it, and score it.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"transformer-cli {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    pass


# Pydantic's words in the parser's errors about a value, and what to say instead.
_WORDS = (
    (r"^Value error, ", ""),
    (r"^Input should be a valid integer.*", "must be a whole number"),
    (r"^Input should be a valid number.*", "must be a number"),
    (r"^Input should be greater than or equal to ", "must be at least "),
    (r"^Input should ", "must "),
)


class _Command(TyperCommand):
    """A command whose errors about a value are in plain words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            for theirs, ours in _WORDS:
                error.message = re.sub(theirs, ours, error.message)
            raise


for command in (init, train, translate, evaluate, report, inspect, score, export):
    app.command(cls=_Command)(as_command(command))

_GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "data": ("Look at the text before training on it.", {"check": check}),
    "tokenizer": (
        "Train, use and look at a tokenizer.",
        {"train": tokenizer.train, "encode": tokenizer.encode, "decode": tokenizer.decode},
    ),
    "config": ("Look at a configuration.", {"show": config.show, "schema": config.schema}),
}
for name, (about, commands) in _GROUPS.items():
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=about)
    for verb, function in commands.items():
        group.command(verb, cls=_Command)(as_command(function))
    app.add_typer(group, name=name)


def main() -> None:
    """The `transformer-cli` program."""
    # Loading the packages creates some hundred thousand objects, none of them garbage. Python's collector would scan
    # them again and again, for 0.15 seconds of start-up. Training and translating create no cyclic garbage.
    gc.set_threshold(50_000)
    guard_stderr()
    sys.exit(_run())


def _run() -> int:
    """Run the command and write out what it printed, while an error can still be told; return the exit code."""
    code = 0
    try:
        try:
            app()
        except SystemExit as ended:  # typer makes 1 of a broken pipe
            code = 0 if isinstance(ended.__context__, BrokenPipeError) else int(ended.code or 0)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        drop(sys.stdout)
        if code == 0 and not isinstance(error, BrokenPipeError):
            print(f"error: cannot write standard output: {error.strerror}", file=sys.stderr)
            code = 1
    return code
