"""What `evaluate` scores: sets of lines with one or more references for each line."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transformer_cli.config.load import load_config
from transformer_cli.config.schema import Config
from transformer_cli.data.lines import Errors, read_lines
from transformer_cli.data.split import Text
from transformer_cli.errors import ConfigError, DataError

_SCRIPT_NEEDS_ITS_TOKENIZER = ("zh", "ja", "ko")


@dataclass(frozen=True)
class EvaluationSet:
    """Lines, which are sources to translate or translations to score, and their references, one list a reference."""

    name: str
    lines: list[str]
    references: list[list[str]]


def sets_of_run(run: Path, limit: int | None, errors: Errors) -> list[EvaluationSet]:
    """The test sets named in a run's configuration, or its validation set, `valid`, where there are none.

    `run` is the run directory or a file in it.
    """
    config = config_of_run(run)
    if config is None:
        raise ConfigError(f"{run} is not in a run directory, which would name test sets: give --source and --reference")
    text = Text(config, errors)
    return [
        EvaluationSet(name, [pair.source for pair in pairs[:limit]], [[pair.target for pair in pairs[:limit]]])
        for name, pairs in (text.tests() or {"valid": text.valid()}).items()
    ]


def config_of_run(run: Path) -> Config | None:
    """The configuration with its paths that stands in a run directory; `run` is it or a file in it. None elsewhere."""
    folders = [run] if run.is_dir() else run.absolute().parents[:2]
    found = [folder / "config.yaml" for folder in folders if (folder / "config.yaml").is_file()]
    return load_config(found[0]) if found else None


def set_from_files(lines: Path, references: Sequence[Path], limit: int | None, errors: Errors) -> EvaluationSet:
    """A set named after its first reference. DataError when the files do not have equally many lines."""
    first = list(islice(read_lines(lines, errors), limit))
    others = [list(islice(read_lines(path, errors), limit)) for path in references]
    for path, reference in zip(references, others, strict=True):
        if len(reference) != len(first):
            raise DataError(
                f"{lines} has {len(first):,} lines and {path} has {len(reference):,}: they must be parallel"
            )
    return EvaluationSet(references[0].name, first, others)


def language_of(reference: Path) -> str:
    """The language in a file's suffix where the metrics must know it (zh, ja, ko), else `und`."""
    suffix = reference.suffix.removeprefix(".").lower()
    return suffix if suffix.split("-")[0] in _SCRIPT_NEEDS_ITS_TOKENIZER else "und"
