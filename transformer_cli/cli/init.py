"""`transformer-cli init`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.", show_default=False)],
    template: Annotated[
        Literal["copy", "reverse"], typer.Option(help="copy or reverse: made-up words, learnt in a minute or two.")
    ] = "copy",
) -> None:
    """Write a ready folder: config.yaml and a corpus to train on.

    Example: transformer-cli init first --template reverse
    """
    from transformer_cli.project import write_template

    config = write_template(folder, template)
    print(f"Train on it:  transformer-cli train {config}", file=sys.stderr)
