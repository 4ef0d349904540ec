"""Write copies of parallel text with the flaws repaired that need no human; pairs stay aligned."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from transformer_cli.config.corpora import language_suffix
from transformer_cli.config.names import LANGUAGE_TAG
from transformer_cli.config.schema import AnyCorpus, Corpus, DataConfig, FilterConfig
from transformer_cli.data.corpus import Pair, files_of, read_corpus, read_pairs
from transformer_cli.data.doctor.characters import repaired
from transformer_cli.data.doctor.examination import TRAIN, USUAL_RATIO, SetReport
from transformer_cli.data.filters import REASONS, FilterCounts, SeenPairs, drop_chosen, drop_empty
from transformer_cli.data.lines import Errors
from transformer_cli.data.tokenizer import canonical
from transformer_cli.errors import ConfigError, DataError

LEFT_OUT = {"not_utf8": "with U+FFFD or bytes that are not UTF-8", **REASONS}
"""Why pairs are left out of a copy, each reason in words that follow a count."""


@dataclass
class Cleaned:
    """The cleaned copy of a corpus, and what was changed."""

    source: Path
    target: Path
    weight: float
    """The weight of the corpus, which is that of its copy too."""
    changed: int = 0
    """Number of lines changed, on both sides together; lines of pairs left out are counted too."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of pairs left out, by reason, a key of LEFT_OUT."""
    written: int = 0
    """Number of pairs written."""


def refuse_what_is_read_once(sets: Mapping[str, Sequence[AnyCorpus]]) -> None:
    """Raise ConfigError for a pipe, as the text is read twice: once to be examined, once to be written."""
    for path in (path for corpora in sets.values() for corpus in corpora for path in files_of(corpus)):
        if path.exists() and not path.is_file():
            raise ConfigError(f"--fix reads {path} twice, and it is no plain file: save the text to a file first")


def write_cleaned(
    sets: Mapping[str, Sequence[AnyCorpus]],
    reports: Mapping[str, SetReport],
    languages: tuple[str, str],
    folder: Path,
    errors: Errors,
) -> dict[str, list[Cleaned]]:
    """Write a cleaned copy of each corpus, except in sets whose report has errors. From the set `train`, pairs with an
    empty side and those that any filter of `data.filters` rejects are left out; from the evaluation sets, none. If
    `errors` is `replace`, pairs with U+FFFD are left out of all sets, as nobody can tell what stood there.

    ConfigError if the folder exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--fix {folder}: it exists and is not an empty folder: choose another")
    usable = {name: corpora for name, corpora in sets.items() if not reports[name].errors}
    if usable:
        folder.mkdir(parents=True, exist_ok=True)
    evaluated = {
        canonical(repaired(pair.source))
        for name, corpora in usable.items()
        for pair in (read_pairs(corpora, errors) if name != TRAIN else ())
    }
    filters = FilterConfig(length_ratio=USUAL_RATIO, identical=True, duplicates=True, overlap=True, script=True)
    data = DataConfig(source_lang=languages[0], target_lang=languages[1], filters=filters)
    done: dict[str, list[Cleaned]] = {}
    taken: set[str] = set()
    for name, corpora in usable.items():
        done[name] = []
        seen = SeenPairs()
        for corpus in corpora:
            stem = _free_stem(name, len(corpora) > 1, taken)
            source, target = _suffixes(corpus, languages)
            cleaned = Cleaned(folder / f"{stem}.{source}", folder / f"{stem}.{target}", corpus.weight)
            pairs = read_corpus(corpus, errors)
            if errors == "replace":
                pairs = _readable(pairs, cleaned)
            pairs = _repaired(pairs, cleaned)
            counts = FilterCounts()
            if name == TRAIN:
                pairs = drop_chosen(drop_empty(pairs, counts), data, evaluated, seen, counts)
            _write(pairs, cleaned)
            cleaned.left_out |= {reason: count for reason in REASONS if (count := getattr(counts, reason))}
            done[name].append(cleaned)
    return done


def _free_stem(name: str, numbered: bool, taken: set[str]) -> str:
    """The name of a copy without its suffix, which is added to those taken: the name of the set, or with the next free
    number if it is to be numbered or the name is taken. The name of one set may be that of another with a number."""
    stems = chain(() if numbered else (name,), (f"{name}.{number}" for number in count(1)))
    stem = next(stem for stem in stems if stem.casefold() not in taken)  # some file systems take A and a for one name
    taken.add(stem.casefold())
    return stem


def _suffixes(corpus: AnyCorpus, languages: tuple[str, str]) -> tuple[str, str]:
    """The suffixes of the copies: the languages, or those that the names of the files end in. If these do not tell the
    sides apart, `source` and `target`."""
    files = (corpus.source, corpus.target) if isinstance(corpus, Corpus) else ((), ())
    source, target = (
        _language_of(side) if language == "und" else language for side, language in zip(files, languages, strict=True)
    )
    return (source, target) if source != target and source and target else ("source", "target")


def _language_of(files: Path | tuple[Path, ...]) -> str:
    """The language in the suffix of the first file; empty if there is none."""
    first = files if isinstance(files, Path) else next(iter(files), Path())
    suffix = language_suffix(first)
    return suffix if re.match(LANGUAGE_TAG, suffix) else ""


def _readable(pairs: Iterable[Pair], cleaned: Cleaned) -> Iterator[Pair]:
    for pair in pairs:
        if "\ufffd" in pair.source or "\ufffd" in pair.target:
            cleaned.left_out["not_utf8"] = cleaned.left_out.get("not_utf8", 0) + 1
        else:
            yield pair


def _repaired(pairs: Iterable[Pair], cleaned: Cleaned) -> Iterator[Pair]:
    for pair in pairs:
        new = Pair(repaired(pair.source), repaired(pair.target))
        cleaned.changed += (new.source != pair.source) + (new.target != pair.target)
        yield new


def _write(pairs: Iterable[Pair], cleaned: Cleaned) -> None:
    try:
        with ExitStack() as stack:
            source, target = (
                stack.enter_context(path.open("x", encoding="utf-8", newline="\n"))
                for path in (cleaned.source, cleaned.target)
            )
            for pair in pairs:
                source.write(pair.source + "\n")
                target.write(pair.target + "\n")
                cleaned.written += 1
    except OSError as error:
        raise DataError(f"cannot write {cleaned.source.parent}: {error.strerror}") from error
