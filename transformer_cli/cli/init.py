"""`transformer-cli init`."""

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer_cli.cli import options
from transformer_cli.errors import ConfigError

if TYPE_CHECKING:
    from transformer_cli.project import Files

# Suffixes that look like language tags and are hardly ever meant as such. Some are the codes of languages (bak is
# Bashkir, new is Newar): whoever has a text in one gives the option, or adds the script (bak_Cyrl).
_NO_LANGUAGE = {
    "src", "tgt", "trg", "ref", "hyp", "sys", "in", "out", "trn", "dev", "val", "tst",
    "raw", "tok", "bpe", "sp", "spm", "seg", "tc", "lc",
    "txt", "dat", "log", "lst", "tab", "md", "rst", "tex", "xml", "sgm", "htm", "rtf",
    "new", "old", "bak", "tmp",
}  # fmt: skip
_TABLES = {"tsv", "csv", "json", "jsonl", "parquet"}


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.", show_default=False)],
    template: Annotated[
        Literal["demo", "copy", "reverse"] | None,
        typer.Option(
            help="What to write without --source: demo (English and German sentences), copy or reverse (made-up words, "
            "learnt in a minute or two). Left out: demo.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="Your own text: sentences, one a line.", show_default=False)
    ] = None,
    target: Annotated[Path | None, typer.Option(help="Their translations, line by line.", show_default=False)] = None,
    source_lang: Annotated[
        str | None, typer.Option(help="Language of --source. Left out: its suffix.", show_default=False)
    ] = None,
    target_lang: Annotated[
        str | None, typer.Option(help="Language of --target. Left out: its suffix.", show_default=False)
    ] = None,
    valid_source: Annotated[
        Path | None, typer.Option(help="Validation text. Left out: lines held out.", show_default=False)
    ] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Its translations.", show_default=False)] = None,
    test_source: Annotated[
        Path | None, typer.Option(help="Test text. Left out: lines held out.", show_default=False)
    ] = None,
    test_target: Annotated[Path | None, typer.Option(help="Its translations.", show_default=False)] = None,
) -> None:
    """Write a ready folder: a configuration, for a template or for your own two files.

    Your files are named in the configuration, not copied; lines for validation and test are held out of training.

    Example: transformer-cli init first --template reverse
    """
    from transformer_cli import project

    options.check_names(folder, source, target, valid_source, valid_target, test_source, test_target)
    if source is None or target is None:
        if any((source, target, source_lang, target_lang, valid_source, valid_target, test_source, test_target)):
            raise ConfigError("your own text needs both --source and --target")
        config = project.write_template(folder, template or "demo")
    else:
        if template is not None:
            raise ConfigError("--template brings its own text: leave it out, or --source and --target")
        for path in filter(None, (source, target, valid_source, valid_target, test_source, test_target)):
            _refuse_unless_lines(path)
        text = project.OwnText(
            train=project.Files(source, target),
            source_lang=_language("--source-lang", source_lang, source),
            target_lang=_language("--target-lang", target_lang, target),
            valid=_both("valid", valid_source, valid_target),
            test=_both("test", test_source, test_target),
        )
        config = project.write_own(folder, text)
    from transformer_cli.log import LOGGER

    if source is not None:
        LOGGER.info("Look at it:   transformer-cli data check %s", shlex.quote(str(config)))
    LOGGER.info("Train on it:  transformer-cli train %s", shlex.quote(str(config)))


def _both(split: str, source: Path | None, target: Path | None) -> "Files | None":
    from transformer_cli.project import Files

    if source is None and target is None:
        return None
    if source is None or target is None:
        raise ConfigError(f"--{split}-source and --{split}-target go together")
    return Files(source, target)


def _refuse_unless_lines(path: Path) -> None:
    """ConfigError for a file whose suffix says that it is no text with a sentence in each line."""
    from transformer_cli.config.corpora import language_suffix
    from transformer_cli.config.documents import DOCUMENTS

    suffix = language_suffix(path)
    if suffix in _TABLES:
        raise ConfigError(
            f"{path} is a table, and init takes two files with a sentence in each line: write its columns to such "
            "files (of tab-separated text, cut -f 1 and cut -f 2 do that), or run init with any two files and replace "
            "their entry under train by {path: FILE, source_field: 1, target_field: 2}"
        )
    if document := DOCUMENTS.get(f".{suffix}"):
        raise ConfigError(f"{path} is {document}")


def _language(option: str, given: str | None, path: Path) -> str:
    """The language given, or else the suffix of the file if it is a language, or else the answer of the user at a
    terminal. ConfigError when there is none."""
    from transformer_cli.config.corpora import language_suffix

    suffix = language_suffix(path)
    if given is None and re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]+)?", suffix) and suffix not in _NO_LANGUAGE:
        given = suffix
    if given is None and sys.stdin is not None and sys.stdin.isatty():
        print(f"Language of {path} (such as en, de, zh): ", end="", file=sys.stderr, flush=True)
        given = sys.stdin.readline().strip() or None
    if given is None:
        raise ConfigError(
            f"the language of {path} cannot be told from its suffix: give it with {option} (such as en, de, zh)"
        )
    options.check_language(option, given)
    return given
