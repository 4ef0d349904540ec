"""Examine the text of an experiment: each kind of flaw with its count, first position and an example.

A set (train, valid, a test set) is read once, record by record. In memory are the lengths of the lines, 8 bytes per
pair, and the hashes for finding duplicates, another 8 to 16; of the validation and test sets also the sources.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from typing import Literal

from transformer_cli.config.schema import AnyCorpus
from transformer_cli.data.alignment import Shift, find_shift
from transformer_cli.data.corpus import FileRecords, Pair, records_by_file
from transformer_cli.data.doctor.characters import FLAWS, flaws, is_decomposed
from transformer_cli.data.doctor.punctuation import Punctuation, rare_in_training
from transformer_cli.data.filters import SeenPairs, has_equal_sides, length_ratio
from transformer_cli.data.formats import Record
from transformer_cli.data.lines import Errors
from transformer_cli.data.scripts import expected_scripts, has_spaced_words, in_other_script
from transformer_cli.data.tokenizer import canonical, is_blank
from transformer_cli.errors import DataError
from transformer_cli.languages import has_spaces
from transformer_cli.log import Progress

USUAL_RATIO = 3.0  # ratio of lengths above which a pair is reported
_LONGEST = 10_000  # characters of a line; a longer one is a whole text, or has lost its line ends
TRAIN = "train"
SideName = Literal["source", "target"]
_CHUNK = 10_000  # records examined at a time
_EXAMPLE = 80  # characters of an example

_SPELLINGS = {
    True: "lines not in composed form (NFC)",
    False: "lines in composed form (NFC)",
}
_TOKENISED = "lines tokenised, with spaces between words: a model trained on them expects and writes such spaces"


@dataclass
class Finding:
    """A kind of flaw in a set, or in one file of it."""

    level: Literal["error", "warning"]
    kind: str
    words: str
    """Description of the flaw; follows `count`, if there is one."""
    count: int | None = None
    file: str | None = None
    side: SideName | None = None
    line: int | None = None
    """Number of the first line that has the flaw, or of the first record in a file without lines."""
    example: str | None = None


@dataclass
class SideSize:
    """The amount of text on one side."""

    words: int = 0
    characters: int = 0
    longest: int = 0
    """Length of the longest line in characters."""


@dataclass
class SetReport:
    """The size of a set and its findings."""

    pairs: int = 0
    source: SideSize = field(default_factory=SideSize)
    target: SideSize = field(default_factory=SideSize)
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Number of errors: findings that make the set unusable without a correction."""
        return sum(finding.level == "error" for finding in self.findings)


def examine(
    sets: Mapping[str, Sequence[AnyCorpus]],
    languages: tuple[str, str],
    errors: Errors = "strict",
    max_length: int | None = None,
) -> dict[str, SetReport]:
    """Report on each set; text that cannot be read becomes an error in its report.

    Sources that also occur in another set are counted as `overlap`: the set `train` is compared with all others, and
    each of these with those before it. In `train`, pairs with more than `max_length` words on a side are counted,
    in the others the lines with punctuation that is rare there.
    """
    evaluated: dict[str, str] = {}  # source -> the first set it stands in
    reports, punctuation = {}, {}
    with Progress(None, unit="pair") as progress:
        for name in sorted(sets, key=lambda name: name == TRAIN):
            examiner = _Examiner(name, languages, evaluated, max_length if name == TRAIN else None, progress)
            for corpus in sets[name]:
                examiner.read(corpus, errors)
            reports[name] = examiner.finished()
            punctuation[name] = examiner.punctuation
    if training := punctuation.pop(TRAIN, None):
        for name, sides in punctuation.items():
            reports[name].findings += _rare_in_training(sides, training)
    return {name: reports[name] for name in sets}


class _Examiner:
    """Examines the records of one set."""

    def __init__(
        self,
        name: str,
        languages: tuple[str, str],
        evaluated: dict[str, str],
        max_length: int | None,
        progress: Progress,
    ) -> None:
        self._name, self._languages, self._evaluated, self._progress = name, languages, evaluated, progress
        self._max_length = max_length
        self._scripts = expected_scripts(languages[0]), expected_scripts(languages[1])
        self._without_spaces = not has_spaces(languages[0]), not has_spaces(languages[1])
        self._seen = SeenPairs()
        self._report = SetReport()
        self.punctuation: dict[SideName, Punctuation] = {"source": Punctuation(), "target": Punctuation()}
        self._counted: dict[tuple[str, str, str, str | None], Finding] = {}

    def read(self, corpus: AnyCorpus, errors: Errors) -> None:
        try:
            for part in records_by_file(corpus, errors):
                self._part(part)
        except DataError as error:
            self._report.findings.append(Finding("error", "unreadable", str(error)))

    def finished(self) -> SetReport:
        report = self._report
        report.findings += _without_one_spelling(self._counted)
        if report.pairs == 0 and not report.errors:
            report.findings.append(Finding("error", "no_pairs", "there are no pairs"))
        report.findings.sort(key=lambda finding: finding.level)
        return report

    def _part(self, part: FileRecords) -> None:
        lengths = array("I"), array("I")
        records = _Readable(part.records)
        while chunk := list(islice(records, _CHUNK)):
            for record in chunk:
                self._report.pairs += 1
                self._side(part, record, "source", record.source)
                self._side(part, record, "target", record.target)
                self._pair(part, record)
                lengths[0].append(len(record.source))
                lengths[1].append(len(record.target))
            new = self._seen.add([Pair(record.source, record.target) for record in chunk])
            for record in compress(chunk, ~new):
                if not _is_empty(record):
                    self._count(part, record, "duplicates", "duplicates of earlier pairs")
            self._progress.advance(len(chunk))
        self._forget_few_tokenised(part, len(lengths[0]))
        if records.error is not None:
            examined = f"{len(lengths[0]):,} {part.unit}{'' if len(lengths[0]) == 1 else 's'}"
            raise DataError(f"{records.error}. Only what stands before was examined: {examined}") from records.error
        if shift := find_shift(*lengths):
            self._report.findings.append(_in_words(shift, part, len(lengths[0])))

    def _forget_few_tokenised(self, part: FileRecords, lines: int) -> None:
        """Drop the count of tokenised lines where they are not most of a file, as some plain lines look like them."""
        for file, side in ((part.source, "source"), (part.target, "target")):
            key = ("tokenised", _TOKENISED, file, side)
            found = self._counted.get(key)
            if found is not None and 2 * (found.count or 0) <= lines:
                del self._counted[key]

    def _side(self, part: FileRecords, record: Record, side: SideName, text: str) -> None:
        size, index = getattr(self._report, side), ("source", "target").index(side)
        size.words += len(text.split())
        size.characters += len(text)
        size.longest = max(size.longest, len(text))
        if len(text) > _LONGEST:
            self._count(part, record, "long", f"lines of over {_LONGEST:,} characters", side)
        self.punctuation[side].add(part.target if side == "target" else part.source, record.number, text)
        for kind, place in flaws(text):
            self._count(part, record, kind, FLAWS[kind], side, place)
        if in_other_script(text, self._scripts[index]):
            words = f"lines in a script that the language {self._languages[index]} is not written in"
            self._count(part, record, "script", words, side)
        if self._without_spaces[index] and has_spaced_words(text, self._scripts[index]):
            self._count(part, record, "tokenised", _TOKENISED, side)
        if (decomposed := is_decomposed(text)) is not None:
            self._count(part, record, "spelling", _SPELLINGS[decomposed], side)

    def _pair(self, part: FileRecords, record: Record) -> None:
        if _is_empty(record):
            self._count(part, record, "empty", "pairs with an empty side")
            return
        pair = Pair(record.source, record.target)
        if has_equal_sides(pair):
            self._count(part, record, "identical", "pairs with equal sides")
        if length_ratio(pair) > USUAL_RATIO:
            self._count(part, record, "length_ratio", f"pairs with one side over {USUAL_RATIO:g} times the other")
        if self._max_length is not None and max(len(text.split()) for text in pair) > self._max_length:
            # A word takes at least one piece. The exact number depends on the tokenizer and is counted in training.
            words = f"pairs with over {self._max_length:,} words on a side, which is over data.max_length in pieces"
            self._count(part, record, "too_long", words)
        source = canonical(record.source)
        if self._evaluated.get(source, self._name) != self._name:
            self._count(part, record, "overlap", f"pairs whose source stands in {self._evaluated[source]} too")
        if self._name != TRAIN:
            self._evaluated.setdefault(source, self._name)

    def _count(
        self, part: FileRecords, record: Record, kind: str, words: str, side: SideName | None = None, place: int = 0
    ) -> None:
        """Count a flaw of a pair, or of one side of it. The first occurrence gives the example: the text around
        `place`."""
        file = part.target if side == "target" else part.source
        key = (kind, words, file, side)
        if key not in self._counted:
            text = f"{record.source} → {record.target}" if side is None else getattr(record, side)
            self._counted[key] = Finding("warning", kind, words, 0, file, side, record.number, _shortened(text, place))
        found = self._counted[key]
        assert found.count is not None
        found.count += 1


class _Readable:
    """The records before the first unreadable one. Its error is stored, so that a chunk of records before it is not
    lost."""

    def __init__(self, records: Iterator[Record]) -> None:
        self._records = records
        self.error: DataError | None = None

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        try:
            return next(self._records)
        except DataError as error:
            self.error = error
            raise StopIteration from None


def _is_empty(record: Record) -> bool:
    return is_blank(record.source) or is_blank(record.target)


def _shortened(text: str, place: int) -> str:
    """The excerpt of a text around a position, with unprintable characters escaped."""
    start = max(0, min(place - _EXAMPLE // 2, len(text) - _EXAMPLE))
    shown = text[start : start + _EXAMPLE]
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return f"{'…' if start else ''}{escaped}{'…' if start + _EXAMPLE < len(text) else ''}"


def _without_one_spelling(counted: Mapping[tuple[str, str, str, str | None], Finding]) -> Iterator[Finding]:
    """The findings, with spelling (NFC or not) reported only for files that mix both, and then the rarer one."""
    for (kind, words, file, side), finding in counted.items():
        if kind != "spelling":
            yield finding
            continue
        other = counted.get((kind, next(way for way in _SPELLINGS.values() if way != words), file, side))
        if other is not None and (finding.count, finding.words) < (other.count, other.words):
            yield replace(finding, words=f"{words}, and {other.count:,} {other.words.removeprefix('lines ')}")


def _rare_in_training(
    sides: Mapping[SideName, Punctuation], training: Mapping[SideName, Punctuation]
) -> Iterator[Finding]:
    """The marks of a set that training seldom has, as findings."""
    for side, found in sides.items():
        for mark in rare_in_training(found, training[side]):
            words = (
                f"lines with {mark} (U+{ord(mark):04X}): {found.share(mark):.1%} of all, but of {TRAIN} "
                f"{training[side].share(mark):.1%}; if {TRAIN} writes something else for it, write the same in both"
            )
            file, line, text = found.first[mark]
            example = _shortened(text, text.index(mark))
            yield Finding("warning", "punctuation", words, found.lines[mark], file, side, line, example)


def _in_words(shift: Shift, part: FileRecords, count: int) -> Finding:
    """A shift among `count` records as a finding: an error, or a warning if its offset is unknown."""
    stretch = f"from about {part.unit} {shift.first:,} to {shift.last:,}"
    if shift.offset is None:
        where = f"in all {count:,} {part.unit}s" if (shift.first, shift.last) == (1, count) else stretch
        words = (
            f"{where} the lengths of the sides have nothing to do with each other: are they of the same text, in the "
            "same order?"
        )
        return Finding("warning", "unrelated", words, file=part.source, line=shift.first)
    words = (
        f"{stretch} the sides are shifted: there each source fits the target {abs(shift.offset)} {part.unit}"
        f"{'s' if abs(shift.offset) > 1 else ''} {'after' if shift.offset > 0 else 'before'} its own"
    )
    return Finding("error", "shift", words, file=part.source, line=shift.first)
