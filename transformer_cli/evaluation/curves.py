"""The charts of one or several runs: measurements by step, with one chart per quantity for all runs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from transformer_cli.evaluation.drawing import COLOURS, Bars, Chart, Series
from transformer_cli.evaluation.history import Event, RunHistory, number, scores_of

_LOSSES = {"loss": "Loss", "ppl": "Perplexity"}
_OF_TRAINING = {
    "lr": "Learning rate",
    "grad_norm": "Gradient norm",
    "tokens_per_s": "Throughput (target tokens a second)",
}


def curves(runs: Mapping[str, RunHistory]) -> list[Chart]:
    """Charts of runs by their names; quantities that no run has measured are left out."""
    metrics = dict.fromkeys(
        metric for run in runs.values() for event in run.validated for metric in scores_of(event.get("scores"))
    )
    charts = [Chart(key, title, list(_series(runs, key)), key == "ppl") for key, title in _LOSSES.items()]
    charts += [Chart(metric, metric, list(_series(runs, metric))) for metric in metrics]
    charts += [Chart(key, title, list(_series(runs, key))) for key, title in _OF_TRAINING.items()]
    return [chart for chart in charts if chart.series]


def lengths(runs: Mapping[str, RunHistory]) -> Iterator[Bars]:
    """Histograms of the lengths of training lines, for each run and side where they are known."""
    for name, run in runs.items():
        for side, colour in (("source", COLOURS[0]), ("target", COLOURS[1])):
            if known := run.text.get("lengths", {}).get(side):
                title = f"Lines of the {side}" + (f", {name}" if len(runs) > 1 else "")
                yield Bars(
                    f"{name.strip('/').replace('/', '_')}_{side}_lengths",
                    title,
                    known["width"],
                    known["counts"],
                    colour,
                )


def colour_of(place: int) -> str:
    """The colour of a run by its position among the runs."""
    return COLOURS[place % len(COLOURS)]


def _series(runs: Mapping[str, RunHistory], key: str) -> Iterator[Series]:
    for place, (name, run) in enumerate(runs.items()):
        validation = colour_of(place if len(runs) > 1 else place + 1)  # a single run uses two colours
        kinds: tuple[tuple[str, Sequence[Event], str, Literal["line", "points", "mark"]], ...] = (
            ("training", run.trained, colour_of(place), "line"),
            ("validation", run.validated, validation, "points"),
            ("average of checkpoints", run.averaged, validation, "mark"),
        )
        for words, events, colour, kind in kinds:
            found = [(number(event, "step"), _value(event, key)) for event in events]
            if any(math.isfinite(value) for _, value in found):
                steps, values = zip(*found, strict=True)
                yield Series(name if len(runs) > 1 else "", words, steps, values, colour, kind)


def _value(event: Event, key: str) -> float:
    return number(event, key) if key in event else scores_of(event.get("scores")).get(key, math.nan)
