"""The records in a run's folder, read as far as possible: the run may be unfinished, killed or moved."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformer_cli.config.load import load_config
from transformer_cli.config.schema import Config
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.scores import NAMES, worth
from transformer_cli.run_files import SAMPLES_NAME, read_record

Event = Mapping[str, Any]


class Sample(NamedTuple):
    """A sentence, its reference and a translation of it."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class RunHistory:
    """The records of a run. Whatever is missing or unreadable is empty."""

    folder: Path
    config: Config | None
    trouble: str
    """Why there is no configuration; empty if there is one."""
    record: Mapping[str, Any]
    """run.json."""
    unreadable: int
    """Lines of metrics.jsonl that cannot be read, except a last one that is still being written."""
    trained: Sequence[Event]
    validated: Sequence[Event]
    averaged: Sequence[Event]
    """Validations of an average of checkpoints."""
    scores: Mapping[str, Mapping[str, Any]]
    """test/scores.json."""
    sample_files: Mapping[int, Path]
    """By step, the earliest first."""

    @property
    def text(self) -> Mapping[str, Any]:
        """The record of the text in run.json."""
        found = self.record.get("text")
        return found if isinstance(found, dict) else {}

    def samples(self, step: int) -> list[Sample]:
        """The translations kept from the validation at a step."""
        try:
            text = self.sample_files[step].read_bytes().decode(errors="replace")  # not read_text: a line may hold a CR
        except OSError:
            return []
        fields = (line.split("\t") for line in text.split("\n"))
        return [Sample(*found) for found in fields if len(found) == 3]

    def hypotheses(self, name: str) -> list[str]:
        """The translations of a test set."""
        try:
            text = (self.folder / "test" / f"{name}.hyp").read_bytes().decode(errors="replace")
        except OSError:
            return []
        return text.split("\n")[:-1]


def read_history(folder: Path) -> RunHistory:
    """Read a run directory. Missing and unreadable files are no errors."""
    config, trouble = None, ""
    try:
        config = load_config(folder / "config.yaml")
    except ConfigError as error:
        trouble = str(error)
    events, unreadable = _events(folder / "metrics.jsonl")
    validated = [event for event in events if event["event"] == "valid"]
    return RunHistory(
        folder=folder,
        config=config,
        trouble=trouble,
        record=read_record(folder),
        unreadable=unreadable,
        trained=[event for event in events if event["event"] == "train"],
        validated=[event for event in validated if "averaged" not in event],
        averaged=[event for event in validated if "averaged" in event],
        scores={name: found for name, found in _read(folder / "test" / "scores.json").items() if scores_of(found)},
        sample_files=_sample_files(folder / "samples"),
    )


def number(event: Event, key: str) -> float:
    """A value of an event; NaN where it is missing or not a number."""
    value = event.get(key)
    return float(value) if isinstance(value, (int, float)) else math.nan


def scores_of(found: Any) -> dict[str, float]:
    """The finite scores by metric, from the scores of an event or a test set."""
    if not isinstance(found, Mapping):
        return {}
    values = {name: number(score, "score") for name, score in found.items() if isinstance(score, Mapping)}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def best_validation(validated: Sequence[Event], best_metric: str) -> Event | None:
    """The validation that training chose by `best_metric`, of equal ones the first; None where there is none."""

    def its_worth(event: Event) -> float:
        score = 0.0 if best_metric == "loss" else scores_of(event.get("scores")).get(NAMES[best_metric], 0.0)
        return worth(score, number(event, "loss"))

    return max(validated, key=its_worth, default=None)


def _events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The events in all readable lines, and the number of complete lines that are unreadable."""
    try:
        *lines, unfinished = path.read_bytes().split(b"\n")
    except OSError:
        return [], 0
    found = [event for line in [*lines, unfinished] if (event := _event(line)) is not None]
    return found, sum(_event(line) is None for line in lines)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    known = isinstance(event, dict) and "event" in event and math.isfinite(number(event, "step"))
    return event if known else None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _sample_files(folder: Path) -> dict[int, Path]:
    found = ((SAMPLES_NAME.fullmatch(path.name), path) for path in folder.glob("step-*.tsv"))
    return dict(sorted((int(match[1]), path) for match, path in found if match))
