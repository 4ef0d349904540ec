"""`transformer-cli data check`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_cli.cli import options

if TYPE_CHECKING:
    from transformer_cli.config.schema import AnyCorpus


def check(
    config: Annotated[
        Path | None,
        typer.Argument(help="The YAML file whose text to check; none with --source.", show_default=False),
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Two files instead: sentences.", show_default=False)] = None,
    target: Annotated[Path | None, typer.Option(help="And their translations.", show_default=False)] = None,
    source_lang: Annotated[
        str | None, typer.Option(help="Language of --source, to tell lines in another script.", show_default=False)
    ] = None,
    target_lang: Annotated[str | None, typer.Option(help="Language of --target.", show_default=False)] = None,
    fix: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write cleaned copies into a new folder. Of the training text, pairs are left out as all data.filters "
            "would.",
            show_default=False,
        ),
    ] = None,
    errors: options.TextErrors = "strict",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Tell what is wrong with a text before training on it: counts, lengths, duplicates, empty and misplaced lines.

    Each kind of flaw comes with its count, its first line and an example. The exit code is 1 when there are errors, 0
    when there are only warnings.

    Example: transformer-cli data check config.yaml
    """
    from transformer_cli.errors import ConfigError
    from transformer_cli.streams import output_stream

    options.check_names(config, source, target, fix)
    sets: dict[str, tuple[AnyCorpus, ...]] = {}
    max_length = None
    if config is not None:
        if any((source, target, source_lang, target_lang)):
            raise ConfigError("a configuration names the files and languages: give it, or --source and --target")
        sets, languages, errors, max_length = _of_config(config, errors)
    elif source is None and target is None:
        raise ConfigError("nothing to check: give a configuration, or --source and --target")
    elif source is None or target is None:
        raise ConfigError(f"--{'source' if source is None else 'target'} is missing: name the files of both sides")
    else:
        from transformer_cli.config.schema import Corpus

        sets = {"train": (Corpus(source=source, target=target),)}
        languages = _language("--source-lang", source_lang), _language("--target-lang", target_lang)

    from transformer_cli.data.doctor import report
    from transformer_cli.data.doctor.examination import examine
    from transformer_cli.data.doctor.repair import refuse_what_is_read_once, write_cleaned

    if fix is not None:
        refuse_what_is_read_once(sets)
    reports = examine(sets, languages, errors, max_length)
    done = None if fix is None else write_cleaned(sets, reports, languages, fix, errors)
    with output_stream(None) as stream:  # examples may be in any script
        if as_json:
            print(json.dumps(report.as_plain(reports, done), ensure_ascii=False, indent=1), file=stream)
        else:
            for line in report.in_lines(reports):
                print(line, file=stream)
            for line in () if done is None else report.repair_in_lines(done, reports, config):
                print(line, file=stream)
    if any(one.errors for one in reports.values()):
        raise typer.Exit(1)


def _of_config(
    config: Path, errors: options.TextErrors
) -> "tuple[dict[str, tuple[AnyCorpus, ...]], tuple[str, str], options.TextErrors, int]":
    """The sets of a configuration that have files of their own, its languages, the treatment of bad bytes, and the
    maximum number of pieces in a line."""
    from transformer_cli.config.load import load_config
    from transformer_cli.config.schema import HoldOut
    from transformer_cli.errors import ConfigError

    data = load_config(config).data
    parts = {"train": data.train, "valid": data.valid, **{f"test.{name}": part for name, part in data.test.items()}}
    sets = {name: part for name, part in parts.items() if not isinstance(part, HoldOut) and part}
    if not sets:
        raise ConfigError(f"{config} names no text: data.train is needed")
    replace = "replace" in (errors, data.errors)
    return sets, (data.source_lang, data.target_lang), "replace" if replace else "strict", data.max_length


def _language(option: str, given: str | None) -> str:
    if given is not None:
        options.check_language(option, given)
    return given or "und"
