"""`transformer-cli inspect`."""

import json
from typing import Annotated

import typer

from transformer_cli.cli import options
from transformer_cli.run_files import locate


def inspect(
    run: options.Run,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Tell what a model is and how it came about: architecture, parameters, tokenizer, validations, scores, origin.

    Example: transformer-cli inspect runs/demo
    """
    from transformer_cli.streams import output_stream

    file = locate(run)

    from transformer_cli.evaluation.inspection import inspect_model

    found = inspect_model(file)
    with output_stream(None) as stream:  # paths may be in any script
        if as_json:
            print(json.dumps(found.as_plain(), ensure_ascii=False, indent=1), file=stream)
        else:
            for line in found.in_lines():
                print(line, file=stream)
