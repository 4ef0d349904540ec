"""`transformer-cli score`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer_cli.cli import options
from transformer_cli.run_files import locate


def score(
    run: options.Run,
    source: Annotated[Path, typer.Option(help="Sentences, one a line.", show_default=False)],
    target: Annotated[Path, typer.Option(help="Their translations, line by line.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; - is standard output.", show_default=False)
    ] = None,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="Plain numbers, or JSON objects with every piece's.")
    ] = "text",
    batch_size: options.BatchSize = options.DEFAULT_BATCH_SIZE,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    errors: options.TextErrors = "strict",
) -> None:
    """Say how likely a model finds given translations: one log-probability a line.

    It is the sum over the pieces and the end symbol, with no length penalty. JSON lines have the keys index, log_prob,
    pieces and token_log_probs, the last one longer for the end symbol.

    Example: transformer-cli score runs/demo --source test.en --target test.de
    """
    from transformer_cli import streams
    from transformer_cli.config.schema import Corpus
    from transformer_cli.data.corpus import read_pairs

    locate(run)
    for path in (source, target):
        streams.check_input(path)
    written = None if output == Path("-") else output
    if written is not None:
        streams.check_output(written, [source, target])

    from transformer_cli.decoding.score import score as score_pairs
    from transformer_cli.decoding.translator import Translator
    from transformer_cli.device import set_threads
    from transformer_cli.log import Progress

    set_threads(threads)
    translator = Translator.load(run, device, precision)
    pairs = read_pairs([Corpus(source=source, target=target)], errors)
    bar = Progress(None, unit="line", shown=not streams.is_shown_with(written))
    with streams.output_stream(written) as stream, bar as progress:
        for index, found in enumerate(score_pairs(translator, pairs, batch_size)):
            line = repr(found.log_prob)
            if output_format == "jsonl":
                values = {
                    "index": index,
                    "log_prob": found.log_prob,
                    "pieces": translator.tokenizers.target.pieces(found.ids),
                    "token_log_probs": found.token_log_probs,
                }
                line = json.dumps(values, ensure_ascii=False)
            stream.write(line + "\n")
            progress.advance()
