"""The sets that `evaluate` scores: lines, each with one or more references."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from transformer_cli.config.corpora import language_suffix
from transformer_cli.config.load import load_config
from transformer_cli.config.schema import Config, HoldOut
from transformer_cli.data.cache import Cache, cache_folder
from transformer_cli.data.corpus import files_of
from transformer_cli.data.lines import Errors, read_lines
from transformer_cli.data.split import Splits
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.scores import has_own_tokenizer, named_set
from transformer_cli.run_files import MODEL_NAME, holds_run, read_record


@dataclass(frozen=True)
class EvaluationSet:
    """Lines to translate, existing translations, and references, one list per reference set.

    `sources` is None where only translations are known, `hypotheses` where they are still to be made.
    """

    name: str
    references: list[list[str]]
    sources: list[str] | None = None
    hypotheses: list[str] | None = None


def sets_of_run(run: Path, limit: int | None, errors: Errors) -> list[EvaluationSet]:
    """The test sets named in a run's configuration, or its validation set, `valid`, where there are none.

    `run` is the run directory or a file in it.
    """
    config = config_of_run(run)
    if config is None:
        raise ConfigError(f"{run} is not in a run directory, which would name test sets: give --source and --reference")
    evaluated = [*config.data.test.values()] or [config.data.valid]
    if any(isinstance(part, HoldOut) for part in evaluated):
        _refuse_changed_text(run, config)
    splits = Splits(config, errors)
    return [
        EvaluationSet(name, [[pair.target for pair in pairs[:limit]]], [pair.source for pair in pairs[:limit]])
        for name, pairs in (splits.tests() or {"valid": splits.valid()}).items()
    ]


def _refuse_changed_text(run: Path, config: Config) -> None:
    """DataError when the text that lines are held out of has changed since training."""
    folder = folder_of_run(run)
    assert folder is not None
    then = [file["sha256"] for file in read_record(folder).get("data", ()) if file["key"] == "data.train"]
    hash_of = Cache(config.data.cache_dir or cache_folder()).file_hash
    now = {path: hash_of(path) for corpus in config.data.train for path in files_of(corpus)}
    if then and (changed := [str(path) for path, found in now.items() if found not in then]):
        raise DataError(
            f"{', '.join(changed)} has changed since training, and what would be held out of it now was partly "
            "trained on: put it back, or give text with --source and --reference"
        )


def config_of_run(run: Path) -> Config | None:
    """The configuration of a run directory, with its paths; `run` is the directory or a file in it. None elsewhere."""
    folder = folder_of_run(run)
    return None if folder is None else load_config(folder / "config.yaml")


def folder_of_run(run: Path) -> Path | None:
    """The run directory `run`, or the one that contains the file `run`; None elsewhere."""
    folders = [run] if run.is_dir() else run.absolute().parents[:2]
    return next((folder for folder in folders if (folder / "config.yaml").is_file() and _is_run(folder)), None)


def _is_run(folder: Path) -> bool:
    """Whether the folder holds a run, or at least the model copied from one."""
    return holds_run(folder) or (folder / MODEL_NAME).is_file()


def set_from_files(
    references: Sequence[Path],
    limit: int | None,
    errors: Errors,
    source: Path | None = None,
    hypothesis: Path | None = None,
) -> EvaluationSet:
    """A set named after its first reference. DataError when the files differ in their number of lines."""
    files = [path for path in (hypothesis, source, *references) if path is not None]
    texts = iter(_parallel(files, limit, errors))
    hypotheses = next(texts) if hypothesis is not None else None
    sources = next(texts) if source is not None else None
    return EvaluationSet(references[0].name, list(texts), sources, hypotheses)


def set_by_name(
    name: str, pair: str, limit: int | None, errors: Errors, hypothesis: Path | None = None
) -> EvaluationSet:
    """One of sacreBLEU's test sets. ConfigError when it does not exist, DataError when it cannot be downloaded."""
    source, references = named_set(name, pair)
    return replace(set_from_files(references, limit, errors, source, hypothesis), name=name)


def more_hypotheses(path: Path, one: EvaluationSet, limit: int | None, errors: Errors) -> list[str]:
    """Other translations of a set. DataError when the file has a different number of lines."""
    lines = list(islice(read_lines(path, errors), limit))
    if len(lines) != len(one.references[0]):
        raise DataError(
            f"{path} has {len(lines):,} lines and the set {one.name} has {len(one.references[0]):,}: they must be "
            "parallel"
        )
    return lines


def _parallel(files: Sequence[Path], limit: int | None, errors: Errors) -> Iterator[list[str]]:
    count = None
    for path in files:
        lines = list(islice(read_lines(path, errors), limit))
        count = len(lines) if count is None else count
        if len(lines) != count:
            raise DataError(f"{files[0]} has {count:,} lines and {path} has {len(lines):,}: they must be parallel")
        yield lines


def language_of(reference: Path) -> str:
    """The language in a file's suffix, if BLEU has a special tokenizer for it, as for Chinese; else `und`."""
    suffix = language_suffix(reference)
    return suffix if has_own_tokenizer(suffix) else "und"
