"""`transformer-cli export`."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer_cli.cli import options
from transformer_cli.run_files import locate

_PARITY_LINES = 200


def export(
    run: options.Run,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.", show_default=False)],
    _format: Annotated[Literal["ctranslate2"], typer.Option("--format", help="What to write.")] = "ctranslate2",
    quantization: Annotated[
        Literal["int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16"] | None,
        typer.Option(help="Number format of the weights. Left out: float32.", show_default=False),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(help="Sentences for the proof. Left out: the run's validation set.", show_default=False),
    ] = None,
    threads: options.Threads = None,
    errors: options.TextErrors = "strict",
) -> None:
    """Write a trained model for another engine, and prove that it translates the same there.

    Both translate 200 sentences, greedily and with the run's beam, in float32. Lines that come out differently are
    shown with both scores; if one of them is not as good as a tie, nothing is exported.

    Example: transformer-cli export runs/demo -o demo-ctranslate2
    """
    from transformer_cli.data.lines import read_lines
    from transformer_cli.data.split import Splits
    from transformer_cli.errors import ConfigError
    from transformer_cli.evaluation.sets import config_of_run

    locate(run)
    if text is not None:
        lines = list(islice(read_lines(text, errors), _PARITY_LINES))
    elif (config := config_of_run(run)) is not None:
        lines = [pair.source for pair in Splits(config, errors).valid()[:_PARITY_LINES]]
    else:
        raise ConfigError(f"{run} is not in a run directory, which would name a validation set: give --text")

    if not any(line.strip() for line in lines):
        raise ConfigError(f"{text or 'the validation set'} has no line with text: the proof needs sentences (--text)")

    from transformer_cli.decoding.translator import Translator
    from transformer_cli.device import set_threads
    from transformer_cli.export.proof import export_with_proof
    from transformer_cli.log import LOGGER

    set_threads(threads)
    translator = Translator.load(run, "cpu", "fp32")
    for line in export_with_proof(translator, output, quantization, lines):
        LOGGER.info("%s", line)
    print(output)
