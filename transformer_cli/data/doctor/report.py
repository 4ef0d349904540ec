"""Format the results of `data check`, as text or as plain values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformer_cli.config.paths import path_as_yaml
from transformer_cli.data.doctor.examination import Finding, SetReport, SideSize
from transformer_cli.data.doctor.repair import LEFT_OUT, Cleaned


def in_lines(reports: Mapping[str, SetReport]) -> Iterator[str]:
    """A few lines on each set, errors first, and a line with the totals."""
    for name, report in reports.items():
        yield f"{name}: {_plural(report.pairs, 'pair')}"
        for side, size in (("source", report.source), ("target", report.target)):
            yield f"  {side}   {_size(size, report.pairs)}"
        yield from (f"  {line}" for finding in report.findings for line in _finding(finding))
    yield f"{_plural(_count(reports, 'error'), 'error')}, {_plural(_count(reports, 'warning'), 'warning')}"


def repair_in_lines(
    done: Mapping[str, Sequence[Cleaned]], reports: Mapping[str, SetReport], config: Path | None
) -> Iterator[str]:
    """Describe the cleaned copies: the numbers of pairs written and left out, and the entry for the configuration at
    `config`, or for any if that is None."""
    folder = config and config.parent
    for name in reports:
        if name not in done:
            yield f"{name}: not written, for its errors need a person: correct them in its files, and run this again"
            if any(finding.kind == "shift" for finding in reports[name].findings):
                yield "  where the sides are shifted, a line is missing or there twice, near the first line named"
        for cleaned in done.get(name, ()):
            yield f"{name}: {_plural(cleaned.written, 'pair')} written, {_plural(cleaned.changed, 'line')} changed"
            yield from (f"  {count:>9,}  left out, {LEFT_OUT[reason]}" for reason, count in cleaned.left_out.items())
            if cleaned.written:
                source, target = (path_as_yaml(path, folder) for path in (cleaned.source, cleaned.target))
                weight = "" if cleaned.weight == 1 else f", weight: {cleaned.weight}"
                yield f"  {{source: {source}, target: {target}{weight}}}"


def as_plain(reports: Mapping[str, SetReport], done: Mapping[str, Sequence[Cleaned]] | None) -> dict[str, Any]:
    """The reports, and the cleaned copies if there are any, as plain values."""
    values: dict[str, Any] = {
        "errors": _count(reports, "error"),
        "warnings": _count(reports, "warning"),
        "sets": {name: asdict(report) for name, report in reports.items()},
    }
    if done is not None:
        values["written"] = {
            name: [asdict(one) | {"source": str(one.source), "target": str(one.target)} for one in cleaned]
            for name, cleaned in done.items()
        }
    return values


def _size(size: SideSize, pairs: int) -> str:
    each = size.characters / max(pairs, 1)
    return (
        f"{_plural(size.words, 'word')}, {_plural(size.characters, 'character')}; {each:.1f} characters a line, "
        f"{size.longest:,} in the longest"
    )


def _finding(finding: Finding) -> Iterator[str]:
    words = finding.words if finding.count is None else f"{finding.count:,} {finding.words}"
    if finding.count == 1:
        words = words.replace("s ", " ", 1)  # 1 line with, not 1 lines with
    yield f"{finding.level:<8} {words}"
    if finding.example is not None:
        side = f" ({finding.side})" if finding.side else ""
        yield f"         first: {finding.file}:{finding.line}{side}: {finding.example}"
    elif finding.file is not None:
        yield f"         {finding.file}:{finding.line}"


def _count(reports: Mapping[str, SetReport], level: str) -> int:
    return sum(finding.level == level for report in reports.values() for finding in report.findings)


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
