"""`transformer-cli report`."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_cli.run_files import REPORT_NAME, holds_run


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Left out: report.html in the first.", show_default=False),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Folder for the curves as pictures, too.", show_default=False)
    ] = None,
) -> None:
    """Draw a page on a run, or on several with their curves in the same charts; print its name.

    The page needs nothing but itself: curves, scores, translations and how they changed, the best and the worst,
    attention, settings, environment. Training keeps one in the run directory.

    Example: transformer-cli report runs/demo
    """
    from transformer_cli.errors import CheckpointError, ConfigError

    for run in runs:
        if not run.is_dir() or not holds_run(run):
            raise CheckpointError(
                f"{run} is not a run directory: name the folder that training wrote, such as runs/NAME"
            )
    target = output or runs[0] / REPORT_NAME

    from transformer_cli.evaluation.page import check_installed
    from transformer_cli.streams import check_output

    check_output(target, [])
    if png is not None and png.exists() and not png.is_dir():
        raise ConfigError(f"--png {png} is a file: name a folder, which may be a new one")
    check_installed()

    from transformer_cli.evaluation.drawing import as_png
    from transformer_cli.evaluation.page import write_page
    from transformer_cli.evaluation.report import drawings, load_run, named
    from transformer_cli.evaluation.report import report as page_on
    from transformer_cli.log import LOGGER

    LOGGER.info("reading and drawing, which takes some seconds a run")
    reported = named([load_run(run) for run in dict.fromkeys(runs)])
    write_page(target, page_on(reported))
    print(target)
    if png is not None:
        png.mkdir(parents=True, exist_ok=True)
        for picture in drawings(reported):
            file = png / f"{picture.name}.png"
            as_png(picture, file)
            print(file)
