"""`transformer-cli translate`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer_cli.cli import options
from transformer_cli.cli.early import check_run


def translate(
    run: options.Run,
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences to translate, each in quotes.", show_default=False)
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="File to translate line by line; - is standard input.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; - is standard output.", show_default=False)
    ] = None,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="Plain lines, or one JSON object a translation.")
    ] = "text",
    scores: Annotated[
        bool, typer.Option("--scores", help="Lines of text ||| score ||| log-probability ||| n.")
    ] = False,
    beam_size: options.BeamSize = None,
    n_best: options.NBest = None,
    length_penalty: options.LengthPenalty = None,
    length_penalty_type: options.LengthPenaltyType = None,
    max_length_a: options.MaxLengthA = None,
    max_length_b: options.MaxLengthB = None,
    batch_size: options.BatchSize = 64,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    errors: options.TextErrors = "strict",
) -> None:
    """Translate sentences, a file, or what comes through a pipe; one line out for each line in.

    With --n-best above 1 the lines are index ||| text ||| score, the index counting input lines from 0. Settings that
    are not given are the run's.

    Example: transformer-cli translate runs/demo "The small dog sleeps."
    """
    from transformer_cli.decoding import lines
    from transformer_cli.errors import ConfigError

    source = None if input_ == Path("-") else input_
    target = None if output == Path("-") else output
    if text and input_ is not None:
        raise ConfigError("give sentences as arguments or a file with --input, not both")
    check_run(run)
    if source is not None:
        lines.check_input(source)
    if target is not None:
        lines.check_output(target, [] if source is None else [source])
    at_terminal = not text and source is None and lines.standard_input().isatty()
    flags = {
        "beam_size": beam_size,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "length_penalty_type": length_penalty_type,
        "max_length_a": max_length_a,
        "max_length_b": max_length_b,
    }
    options.check_decoding(flags)

    from transformer_cli.decoding.translator import Translator
    from transformer_cli.device import set_threads
    from transformer_cli.log import LOGGER, Progress

    set_threads(threads)
    translator = Translator.load(run, device, precision)
    decoding = options.decoding_from(translator.config.decoding, flags)
    if at_terminal:
        print("Type a sentence and press Enter; end with Ctrl-D. (--help shows other ways.)", file=sys.stderr)
    sentences = lines.argument_lines(text, errors) if text else lines.input_lines(source, errors)
    shown = not text and not at_terminal
    cut = 0
    with lines.output_stream(target) as stream, Progress(None, unit="line", shown=shown) as progress:
        # One line at a time where somebody waits for each.
        for index, found in enumerate(translator.translate(sentences, decoding, 1 if at_terminal else batch_size)):
            if output_format == "jsonl":
                written: Iterator[str] = lines.json_lines(index, found)
            else:
                written = lines.text_lines(index, found, numbered=decoding.n_best > 1, scores=scores)
            stream.writelines(line + "\n" for line in written)
            stream.flush()
            progress.advance()
            cut += found[0].truncated
    if cut:
        LOGGER.warning("%d translations were cut at their length limit (--max-length-a, --max-length-b)", cut)
