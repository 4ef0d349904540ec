"""Two systems on one set: which is better and how surely, on which lengths of sentence, and on which lines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from transformer_cli.config.schema import DataConfig
from transformer_cli.evaluation.scores import (
    LOWER_IS_BETTER,
    NAMES,
    Difference,
    Measure,
    corpus_scores,
    in_words,
    paired_bootstrap,
    scores_json,
    sentence_scores,
)
from transformer_cli.evaluation.sets import EvaluationSet

_SHOWN = 5  # lines that gained most, and as many that lost most
_GROUPS = 4


@dataclass(frozen=True)
class ChangedLine:
    """A line whose scores differ between the systems, by its number from 1."""

    line: int
    source: str | None
    references: list[str]
    baseline: str
    hypothesis: str
    baseline_score: float
    score: float


@dataclass(frozen=True)
class LengthGroup:
    """Lines of similar length in characters, and their score in each system."""

    shortest: int
    longest: int
    lines: int
    baseline_score: float
    score: float


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison; `gained` and `lost` are by the first metric, largest difference first."""

    metric: str
    """The name of the first metric, which scores lines and groups."""
    differences: list[Difference]
    by_length: list[LengthGroup]
    gained: list[ChangedLine]
    lost: list[ChangedLine]

    def as_plain(self, baseline: str) -> dict[str, Any]:
        """For JSON: each metric as in `scores_json`, with baseline, difference and p-value; the rest under
        `comparison`."""
        plain: dict[str, Any] = {}
        for found in self.differences:
            name = found.score.name
            plain[name] = scores_json([found.score])[name] | {
                "baseline": scores_json([found.baseline])[name],
                "difference": found.score.value - found.baseline.value,
                "p_value": found.p_value,
            }
        rest = {key: value for key, value in asdict(self).items() if key != "differences"}
        return plain | {"comparison": {"baseline": baseline, **rest}}

    def in_lines(self, label: str, name: str, baseline: str) -> Iterator[str]:
        """Lines for a person; `name` and `baseline` are the names of the systems."""
        yield f"{label}: {name} against {baseline}"
        rows = [["", name, baseline, "difference", "p"]]
        for found in self.differences:
            words = [in_words(score).removeprefix(f"{score.name} ") for score in (found.score, found.baseline)]
            change = f"{found.score.value - found.baseline.value:+.2f}"
            rows.append([found.score.name, *words, change, f"{found.p_value:.4f}"])
        yield from _table(rows)
        yield from (f"  {found.score.name} {found.score.signature}" for found in self.differences)
        yield f"{self.metric} by length of the line in characters"
        yield from _table(
            [["", "lines", name, baseline, "difference"]]
            + [
                [
                    f"{group.shortest}-{group.longest}",
                    f"{group.lines:,}",
                    f"{group.score:.2f}",
                    f"{group.baseline_score:.2f}",
                    f"{group.score - group.baseline_score:+.2f}",
                ]
                for group in self.by_length
            ]
        )
        for what, lines in (("gained", self.gained), ("lost", self.lost)):
            if lines:
                yield f"{what} most, {self.metric} of the sentence"
            for changed in lines:
                yield f"  line {changed.line}: {changed.baseline_score:.2f} -> {changed.score:.2f}"
                texts = {"source": changed.source, "reference": changed.references[0]}
                texts |= {baseline: changed.baseline, name: changed.hypothesis}
                width = max(map(len, texts))
                yield from (f"    {key:<{width}}  {text}" for key, text in texts.items() if text is not None)


def unlike_languages(one: DataConfig, baseline: DataConfig) -> Iterator[str]:
    """A warning, if two systems are known to translate between different languages."""
    pairs = [(data.source_lang, data.target_lang) for data in (one, baseline)]
    subtags = [[tag.split("-")[0].lower() for tag in pair] for pair in pairs]
    if any("und" not in both and both[0] != both[1] for both in zip(*subtags, strict=True)):
        shown = [f"{source} to {target}" for source, target in pairs]
        yield f"one system translates {shown[0]} and the other {shown[1]}: a comparison on the same text says little"


def compare(one: EvaluationSet, hypotheses: Sequence[str], baseline: Sequence[str], measure: Measure) -> Comparison:
    """Compare two translations of a set; a positive difference is a higher score than the baseline's."""
    first = Measure(measure.metrics[:1], measure.tokenize, measure.lowercase)
    name = NAMES[first.metrics[0]]
    before, after = (
        [row[name] for row in sentence_scores(lines, one.references, *first)] for lines in (baseline, hypotheses)
    )
    sign = -1 if first.metrics[0] in LOWER_IS_BETTER else 1
    gains = [sign * (new - old) for old, new in zip(before, after, strict=True)]
    order = sorted(range(len(gains)), key=lambda index: -gains[index])  # ties in the order of lines

    def line(index: int) -> ChangedLine:
        return ChangedLine(
            line=index + 1,
            source=None if one.sources is None else one.sources[index],
            references=[reference[index] for reference in one.references],
            baseline=baseline[index],
            hypothesis=hypotheses[index],
            baseline_score=before[index],
            score=after[index],
        )

    def score(lines: Sequence[str], indices: Sequence[int]) -> float:
        references = [[reference[index] for index in indices] for reference in one.references]
        return corpus_scores([lines[index] for index in indices], references, *first)[0].value

    return Comparison(
        metric=name,
        differences=paired_bootstrap(hypotheses, baseline, one.references, *measure),
        by_length=list(_by_length(one, hypotheses, baseline, score)),
        gained=[line(index) for index in order[:_SHOWN] if gains[index] > 0],
        lost=[line(index) for index in order[::-1][:_SHOWN] if gains[index] < 0],
    )


def _by_length(
    one: EvaluationSet,
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    score: Callable[[Sequence[str], Sequence[int]], float],
) -> Iterator[LengthGroup]:
    """Groups of about the same number of lines; lines of one length stay together."""
    lengths = [len(line) for line in one.sources or one.references[0]]
    ordered = sorted(lengths)
    # The shortest length of each group, and one beyond the longest of all.
    bounds = [*sorted({ordered[len(ordered) * group // _GROUPS] for group in range(_GROUPS)}), ordered[-1] + 1]
    for low, high in pairwise(bounds):
        chosen = [index for index, length in enumerate(lengths) if low <= length < high]
        there = [lengths[index] for index in chosen]
        yield LengthGroup(min(there), max(there), len(chosen), score(baseline, chosen), score(hypotheses, chosen))


def sentence_records(
    one: EvaluationSet, hypotheses: Sequence[str], baseline: Sequence[str] | None, measure: Measure
) -> Iterator[dict[str, Any]]:
    """A record for JSON per line: set, index from 0, source where it is known, references, hypothesis, scores and, when
    two systems are compared, baseline and baseline_scores."""
    scores = sentence_scores(hypotheses, one.references, *measure)
    others = None if baseline is None else sentence_scores(baseline, one.references, *measure)
    for index, (hypothesis, *references) in enumerate(zip(hypotheses, *one.references, strict=True)):
        record: dict[str, Any] = {"set": one.name, "index": index}
        if one.sources is not None:
            record["source"] = one.sources[index]
        record |= {"references": references, "hypothesis": hypothesis, "scores": scores[index]}
        if baseline is not None and others is not None:
            record |= {"baseline": baseline[index], "baseline_scores": others[index]}
        yield record


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
