"""The command line: one file a command, each of which parses, calls one function and prints one result.

Heavy packages are imported inside the commands, so that `--help` answers at once.
"""

from typing import Annotated

import typer

from transformer_cli import __version__
from transformer_cli.cli.evaluate import evaluate
from transformer_cli.cli.exits import as_command
from transformer_cli.cli.init import init
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


for command in (init, train, translate, evaluate):
    app.command()(as_command(command))


def main() -> None:
    """The `transformer-cli` program."""
    app()
