"""Read text files, tables and data sets as pairs, one at a time and in order."""

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from transformer_cli.config.paths import matching
from transformer_cli.config.schema import AnyCorpus, Corpus, HubSet, Table
from transformer_cli.data.alignment import Shift, find_shift
from transformer_cli.data.formats import Record, read_hub, read_table, unit_of
from transformer_cli.data.lines import Errors, read_lines
from transformer_cli.errors import DataError

# Minimum gain of a shift (see alignment.py), lower than usual: the numbers of lines differ, so there is a shift.
_SURE_ENOUGH = 15.0


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class FileRecords(NamedTuple):
    """The records of one file, or of a source file and its target file."""

    source: str
    """Name of the source file."""
    target: str
    """Name of the target file; the same for a table or data set."""
    unit: str
    """What record numbers count: `line` or `record`."""
    records: Iterator[Record]


def read_pairs(corpora: Sequence[AnyCorpus], errors: Errors = "strict") -> Iterator[Pair]:
    """The pairs of the corpora, one corpus after another. Raises DataError like `read_corpus`."""
    for corpus in corpora:
        yield from read_corpus(corpus, errors)


def read_corpus(corpus: AnyCorpus, errors: Errors = "strict") -> Iterator[Pair]:
    """The pairs of one corpus, file by file. DataError if a file cannot be read, or a source and a target file differ
    in their number of lines; both are read to the end, and the error gives both numbers."""
    for file in records_by_file(corpus, errors):
        for _, source, target in file.records:
            yield Pair(source, target)


def records_by_file(corpus: AnyCorpus, errors: Errors = "strict") -> Iterator[FileRecords]:
    """The files of a corpus, each with its numbered records. Raises DataError like `read_corpus`."""
    match corpus:
        case HubSet():
            yield FileRecords(corpus.hub, corpus.hub, "record", read_hub(corpus))
        case Table():
            for path in _matching(corpus.path):
                yield FileRecords(str(path), str(path), unit_of(corpus, path), read_table(corpus, path, errors))
        case Corpus():
            for source, target in _file_pairs(corpus):
                yield FileRecords(str(source), str(target), "line", _aligned(source, target, errors))


def files_of(corpus: AnyCorpus) -> list[Path]:
    """The files of a corpus: source files before target files, the files of a local set, none for a set on the hub."""
    match corpus:
        case HubSet():
            folder = Path(corpus.hub)
            return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_absolute() else []
        case Table():
            return _matching(corpus.path)
        case Corpus():
            pairs = _file_pairs(corpus)
            return [source for source, _ in pairs] + [target for _, target in pairs]


def _matching(files: Path | tuple[Path, ...]) -> list[Path]:
    """The files named, in the order of the list; files that match one pattern are sorted by name."""
    found: list[Path] = []
    for named in files if isinstance(files, tuple) else (files,):
        if not (fitting := matching(named)):
            raise DataError(f"no file fits {named}")
        found += fitting
    return found


def _file_pairs(corpus: Corpus) -> list[tuple[Path, Path]]:
    sources, targets = _matching(corpus.source), _matching(corpus.target)
    if len(sources) != len(targets):
        listed = (", ".join(path.name for path in paths[:20]) for paths in (sources, targets))
        raise DataError(
            f"{len(sources)} files of sources and {len(targets)} of targets cannot be paired, first with first and so "
            f"on: {' | '.join(listed)}"
        )
    stars = [_stars(named, paths) for named, paths in ((corpus.source, sources), (corpus.target, targets))]
    if stars[0] and set(stars[0]) == set(stars[1]):
        partner = dict(zip(stars[1], targets, strict=True))
        return [(source, partner[star]) for star, source in zip(stars[0], sources, strict=True)]
    if set(stars[0]) & set(stars[1]):
        odd = min(set(stars[0]) - set(stars[1]))
        raise DataError(f"{sources[stars[0].index(odd)]} has no partner among the files of {corpus.target}")
    return list(zip(sources, targets, strict=True))


def _stars(named: Path | tuple[Path, ...], paths: list[Path]) -> list[str]:
    """The text that the only `*` of a pattern matches in each file; empty unless the pattern has exactly one `*` and no
    other wildcard."""
    if not isinstance(named, Path) or str(named).count("*") != 1 or re.search(r"[?\[]", str(named)) or paths == [named]:
        return []
    before, after = map(len, str(named).split("*"))
    return [str(path)[before : len(str(path)) - after] for path in paths]


def _first_suspicious(source: Path, target: Path) -> str:
    """The line where two files of different length seem to diverge, as the end of a sentence; empty if unknown."""
    if not (source.is_file() and target.is_file()):
        return ""  # a pipe cannot be read again
    lengths = array("I"), array("I")
    for pair in zip(read_lines(source, "replace"), read_lines(target, "replace"), strict=False):
        for side, line in zip(lengths, pair, strict=True):
            side.append(len(line))
    shift = find_shift(*lengths, sure=_SURE_ENOUGH)
    if shift == Shift(1, len(lengths[0]), None):
        return ". By the lengths of the lines, they are not of the same text"
    return f". By the lengths of the lines, they part at about line {shift.first}" if shift else ""


def _aligned(source: Path, target: Path, errors: Errors) -> Iterator[Record]:
    sources, targets = read_lines(source, errors), read_lines(target, errors)
    for number, (one, other) in enumerate(zip_longest(sources, targets), 1):
        if one is None or other is None:
            shorter, longer = number - 1, number + sum(1 for _ in (targets if one is None else sources))
            lengths = (shorter, longer) if one is None else (longer, shorter)
            raise DataError(
                f"{source} has {lengths[0]} lines and {target} has {lengths[1]}: line N of the one must be the "
                f"translation of line N of the other{_first_suspicious(source, target)}"
            )
        yield Record(number, one, other)
