"""`transformer-cli config show` and `config schema`."""

import json
from pathlib import Path
from typing import Annotated

import typer


def show(
    config: Annotated[Path, typer.Argument(help="The YAML file.", show_default=False)],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="Change one setting; may be repeated.", show_default=False
        ),
    ] = None,
) -> None:
    """Print every setting with where its value comes from: a line of the file, --set, the default, or other keys.

    What is printed is itself a configuration, with absolute paths.

    Example: transformer-cli config show config.yaml --set decoding.beam_size=5
    """
    from transformer_cli.config.show import show_config
    from transformer_cli.streams import output_stream

    lines = list(show_config(config, set_ or []))
    with output_stream(None) as stream:  # names may be in any script
        for line in lines:
            print(line, file=stream)


def schema() -> None:
    """Print the JSON Schema of the configuration, by which editors complete and check the YAML.

    Most editors read it by a first line such as "# yaml-language-server: $schema=config.schema.json" in the YAML.

    Example: transformer-cli config schema
    """
    from transformer_cli.config.show import json_schema
    from transformer_cli.streams import output_stream

    with output_stream(None) as stream:
        print(json.dumps(json_schema(), indent=1), file=stream)
