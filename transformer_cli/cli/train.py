"""`transformer-cli train`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from transformer_cli.cli import options
from transformer_cli.run_files import refuse_if_taken


def train(
    config: Annotated[Path, typer.Argument(help="The YAML file that describes the experiment.", show_default=False)],
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the run. Left out: runs/NAME.", show_default=False)
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="Change one setting; may be repeated.", show_default=False
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that is in the folder.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Try everything up to the first step, say what training will take, and stop."),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="CPU threads. Left out: as many as there are cores, or, with --resume, as the run had.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Train a tokenizer and a model, keep the best, and test it.

    The last line on stdout is the score of the first test set, or of the validation set if there is none.

    Example: transformer-cli train config.yaml --set decoding.beam_size=5
    """
    from transformer_cli.config.load import load_training_config
    from transformer_cli.errors import ConfigError

    if resume and overwrite:
        raise ConfigError("--resume goes on with a run and --overwrite replaces it: give one of them")
    if check and (resume or overwrite):
        raise ConfigError("--check starts nothing and writes nothing: leave --resume and --overwrite out")
    settings = load_training_config(config, set_ or [])
    folder = run_dir or Path("runs", settings.name)
    options.check_names(config, folder)

    if check:
        from transformer_cli.training.check import check as check_training

        for line in check_training(settings, folder, threads):
            print(line)
        return

    if not resume and not overwrite:
        refuse_if_taken(folder)

    from transformer_cli.evaluation.scores import result_line, result_table
    from transformer_cli.log import LOGGER
    from transformer_cli.training.loop import train as run_training

    result = run_training(settings, folder, resume=resume, overwrite=overwrite, threads=threads, command=sys.argv)
    if result is None:
        return  # one of several processes; the main one prints the result

    for sample in result.samples:
        LOGGER.info(
            "\n  source     %s\n  reference  %s\n  model      %s",
            sample.source,
            sample.reference,
            sample.hypothesis or "(nothing)",
        )
    LOGGER.info('\nTranslate with it:  transformer-cli translate %s "…"\n', shlex.quote(str(folder)))
    if len(result.scores) > 1:
        for line in result_table(result.scores):
            print(line)
    print(result_line(result.kind, next(iter(result.scores.values()))))
