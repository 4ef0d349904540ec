"""Options that several commands share."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from transformer_cli.config.schema import DecodingConfig

Run = Annotated[Path, typer.Argument(help="A run directory, a model file or a checkpoint.", show_default=False)]
BeamSize = Annotated[int | None, typer.Option(help="Hypotheses kept alive; 1 is greedy search.", show_default=False)]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        help="Alpha in score = log-probability / lp(n); n counts the pieces and the end symbol. 0 leaves the "
        "log-probability, a larger alpha favours longer translations.",
        show_default=False,
    ),
]
LengthPenaltyType = Annotated[
    Literal["wu", "avg", "none"] | None,
    typer.Option(help="lp(n): wu ((5 + n) / 6)^alpha, avg n^alpha, none 1.", show_default=False),
]
NBest = Annotated[int | None, typer.Option(help="Translations given for each line.", show_default=False)]
MaxLengthA = Annotated[
    float | None, typer.Option(help="At most max-length-a x source pieces + max-length-b steps.", show_default=False)
]
MaxLengthB = Annotated[int | None, typer.Option(help="See --max-length-a.", show_default=False)]
DEFAULT_BATCH_SIZE = 256  # as in `decoding.translator`, whose import would load PyTorch for --help
BatchSize = Annotated[int, typer.Option(min=1, max=1_000_000, help="Most sentences translated together.")]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")]
Precision = Annotated[
    Literal["auto", "fp32", "bf16", "fp16"],
    typer.Option(help="Number format; auto is fp32 on CPU and bf16 on a GPU that has it."),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="CPU threads. Left out: as many as there are cores.", show_default=False),
]
TextErrors = Annotated[
    Literal["strict", "replace"],
    typer.Option(help="What to do with bytes that are not UTF-8: stop and name them, or put U+FFFD in their place."),
]


def given(context: typer.Context) -> dict[str, Any]:
    """What stands on the command line, by the long name of the option or the name of the argument; no defaults."""
    found = {}
    for parameter in context.command.params:
        assert parameter.name is not None
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "COMMANDLINE":
            found[parameter.opts[0]] = context.params[parameter.name]
    return found


def check_names(*paths: Path | None) -> None:
    """ConfigError for a path that is not UTF-8, as a configuration and the record of a run could not name it."""
    from transformer_cli.errors import ConfigError

    for path in paths:
        if path is not None and any("\ud800" <= character <= "\udfff" for character in str(path.absolute())):
            raise ConfigError(f"the name of {str(path.absolute())!r} is not UTF-8: rename it, or take another folder")


def check_language(option: str, tag: str) -> None:
    """ConfigError when the value of an option is not a language tag."""
    from transformer_cli.config.names import trouble_of_language
    from transformer_cli.errors import ConfigError

    if trouble := trouble_of_language(tag):
        raise ConfigError(f"{option} {trouble}")


def check_decoding(flags: Mapping[str, Any]) -> None:
    """ConfigError for flags that are invalid whatever the run's settings are."""
    from transformer_cli.config.schema import DecodingConfig

    decoding_from(DecodingConfig(beam_size=1_000_000_000), flags)  # large enough for any n_best


def decoding_from(settings: "DecodingConfig", flags: Mapping[str, Any]) -> "DecodingConfig":
    """A run's settings, overridden by the flags that were given. ConfigError for invalid ones."""
    from transformer_cli.config.load import override_decoding

    return override_decoding(settings, {key: value for key, value in flags.items() if value is not None})
