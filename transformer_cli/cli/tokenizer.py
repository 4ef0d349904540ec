"""`transformer-cli tokenizer train`, `encode` and `decode`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer_cli.cli import options
from transformer_cli.run_files import locate

if TYPE_CHECKING:
    from transformer_cli.data.tokenizer import Tokenizer

Model = Annotated[Path, typer.Argument(help="A .model file, a run directory or a model file.", show_default=False)]
Input = Annotated[
    Path | None, typer.Option("--input", "-i", help="File to read. Left out, or -: standard input.", show_default=False)
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="File to write. Left out, or -: standard output.", show_default=False),
]
Ids = Annotated[bool, typer.Option("--ids", help="Numbers instead of pieces.")]
Side = Annotated[
    Literal["source", "target"], typer.Option(help="Which of a run's tokenizers, where it has one for each side.")
]


def train(
    input_: Annotated[
        list[Path], typer.Option("--input", "-i", help="Text file; may be repeated.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .model file to write.", show_default=False)],
    vocab_size: Annotated[int, typer.Option(help="Pieces, the four special ones included.")] = 8000,
    model_type: Annotated[
        Literal["unigram", "bpe", "char", "word"], typer.Option(help="How pieces are found.")
    ] = "unigram",
    byte_fallback: Annotated[bool, typer.Option("--byte-fallback", help="Spell unknown characters as bytes.")] = False,
    normalization: Annotated[
        Literal["clean", "identity", "nfkc", "nmt_nfkc"], typer.Option(help="What happens to text before it is cut.")
    ] = "clean",
    character_coverage: Annotated[
        float, typer.Option(help="Share of the text's characters that get a piece of their own.")
    ] = 1.0,
    user_defined_symbol: Annotated[
        list[str] | None,
        typer.Option(help="Text that is one piece wherever it stands; may be repeated.", show_default=False),
    ] = None,
    sample_lines: Annotated[int, typer.Option(help="Most lines to train on, a random sample of a larger text.")] = (
        400_000
    ),
    errors: options.TextErrors = "strict",
) -> None:
    """Train a SentencePiece model that `tokenizer.model` can name in a configuration.

    Example: transformer-cli tokenizer train --input train.en --input train.de --output both.model --vocab-size 16000
    """
    from transformer_cli.config.load import tokenizer_settings
    from transformer_cli.data.lines import read_lines
    from transformer_cli.data.tokenizer import train_tokenizer
    from transformer_cli.log import LOGGER
    from transformer_cli.streams import check_input, check_output

    settings = tokenizer_settings(
        vocab_size=vocab_size,
        model_type=model_type,
        byte_fallback=byte_fallback,
        normalization=normalization,
        character_coverage=character_coverage,
        user_defined_symbols=user_defined_symbol or (),
        sample_lines=sample_lines,
    )
    for path in input_:
        check_input(path)
    check_output(output, input_)
    tokenizer = train_tokenizer((line for path in input_ for line in read_lines(path, errors)), settings)
    output.write_bytes(tokenizer.proto)
    LOGGER.info("%s: %s pieces", output, f"{tokenizer.vocab_size:,}")


def encode(
    model: Model,
    input_: Input = None,
    output: Output = None,
    ids: Ids = False,
    side: Side = "source",
    errors: options.TextErrors = "strict",
) -> None:
    """Cut lines of text into pieces, a line for each.

    Example: transformer-cli tokenizer encode runs/demo --input test.en
    """
    from transformer_cli.streams import input_lines, output_stream

    tokenizer = _load(model, side)
    input_, output = _checked(input_, output)
    with output_stream(output) as stream:
        for line in input_lines(input_, errors):
            cut = map(str, tokenizer.encode(line)) if ids else tokenizer.encode_as_pieces(line)
            stream.write(" ".join(cut) + "\n")


def decode(
    model: Model,
    input_: Input = None,
    output: Output = None,
    ids: Ids = False,
    side: Side = "source",
) -> None:
    """Put lines of pieces together to text again, a line for each.

    Example: transformer-cli tokenizer decode runs/demo --input test.pieces
    """
    from transformer_cli.streams import input_lines, output_stream

    tokenizer = _load(model, side)
    input_, output = _checked(input_, output)
    with output_stream(output) as stream:
        for number, line in enumerate(input_lines(input_, "strict"), start=1):
            pieces = line.split(" ") if line else []
            text = tokenizer.decode(_numbers(pieces, number, tokenizer)) if ids else tokenizer.decode_pieces(pieces)
            stream.write(text + "\n")


def _checked(input_: Path | None, output: Path | None) -> tuple[Path | None, Path | None]:
    """The same paths with None for `-`, after checking that they can be read and written."""
    from transformer_cli.streams import check_input, check_output

    input_, output = (None if path == Path("-") else path for path in (input_, output))
    if input_ is not None:
        check_input(input_)
    if output is not None:
        check_output(output, [] if input_ is None else [input_])
    return input_, output


def _load(model: Path, side: str) -> "Tokenizer":
    """The tokenizer in a .model file, or of one side of a run."""
    path = locate(model)
    from transformer_cli.data.tokenizer import Tokenizers, read_tokenizer

    if path.suffix != ".safetensors":
        return read_tokenizer(path)
    from transformer_cli import checkpoint

    tokenizers = Tokenizers.of(checkpoint.read(path).tokenizers)
    return tokenizers.source if side == "source" else tokenizers.target


def _numbers(words: list[str], line: int, tokenizer: "Tokenizer") -> list[int]:
    from transformer_cli.errors import DataError

    for word in words:
        if not (word.isascii() and word.isdigit() and int(word) < tokenizer.vocab_size):
            raise DataError(f"line {line}: {word!r} is no id: the tokenizer has 0 to {tokenizer.vocab_size - 1:,}")
    return [int(word) for word in words]
