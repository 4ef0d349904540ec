"""report.html: one page on one or several runs, for a person to look at."""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from transformer_cli.config.show import differences
from transformer_cli.data.corpus import Pair
from transformer_cli.data.filters import REASONS
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import UserError
from transformer_cli.evaluation.attention import attention_of_samples, stepper
from transformer_cli.evaluation.curves import colour_of, curves, lengths
from transformer_cli.evaluation.drawing import Bars, Chart, Picture, as_svg, variable_of
from transformer_cli.evaluation.history import RunHistory, Sample, best_validation, number, read_history, scores_of
from transformer_cli.evaluation.page import facts, note, page, section, table
from transformer_cli.evaluation.scores import NAMES, Interval, Measure, corpus_scores, metric_tokenizer
from transformer_cli.evaluation.sentences import Rated, Story, extremes, stories
from transformer_cli.evaluation.sets import sets_of_run

_SAME = 0.005  # maximum difference between a recomputed score and the one in the file
_COUNTED = {"read": "pairs read", **REASONS, "kept": "trained on"}
_OF_LENGTHS = {"mean": "mean", "median": "median", "most_of_99": "99 in 100 have at most", "longest": "longest"}


class Reported(NamedTuple):
    """A run's records, with its model and test sets where they are available; notes say what is missing."""

    history: RunHistory
    translator: Translator | None
    tests: Mapping[str, Sequence[Pair]]
    notes: Sequence[str] = ()


def load_run(folder: Path) -> Reported:
    """A run directory with its model and test sets, as far as they are available."""
    folder = folder.absolute()  # `.` has no name
    translator, tests, notes = None, {}, []
    try:
        translator = Translator.load(folder, "cpu", "fp32")
    except UserError as error:
        notes.append(f"No attention is shown: {error}.")
    try:
        for one in sets_of_run(folder, None, "replace"):
            assert one.sources is not None
            tests[one.name] = [Pair(*pair) for pair in zip(one.sources, one.references[0], strict=True)]
    except UserError as error:
        notes.append(f"The test sets cannot be read: {error}.")
    history = read_history(folder)
    if history.unreadable:
        notes.append(f"{history.unreadable:,} lines of metrics.jsonl cannot be read and are left out.")
    return Reported(history, translator, tests, notes)


def named(runs: Sequence[Reported]) -> dict[str, Reported]:
    """Runs by name: the names of their folders, or the paths where these names are not unique."""
    names = [run.history.folder.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.history.folder) for run in runs]
    return dict(zip(names, runs, strict=True))


def drawings(runs: Mapping[str, Reported]) -> list[Picture]:
    """Every curve and histogram of the page."""
    histories = {name: run.history for name, run in runs.items()}
    return [*curves(histories), *lengths(histories)]


def report(runs: Mapping[str, Reported]) -> str:
    """The page, as HTML."""
    tested = {name: _tested(run) for name, run in runs.items()}
    pictures = drawings(runs)
    parts = {
        "overview": ("Overview", _overview(runs)),
        "curves": ("Curves", _charts([picture for picture in pictures if isinstance(picture, Chart)])),
        "scores": ("Scores", _scores(runs, tested)),
        "samples": ("Translations from validation to validation", _each(runs, _samples)),
        "sentences": ("Best and worst sentences", _extremes(runs, tested)),
        "attention": ("Attention", _attention(runs)),
        "text": ("Text", _text(runs, [picture for picture in pictures if isinstance(picture, Bars)])),
        "configuration": ("Configuration, where it is not the default", _configuration(runs)),
        "environment": ("Environment", _each(runs, _environment)),
    }
    links = "".join(f'<a href="#{name}">{escape(title.split(",")[0])}</a>' for name, (title, _) in parts.items())
    title = ", ".join(runs)
    drawn = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return page(
        f"Report: {title}",
        f"<header><h1>{escape(title)}</h1>{note(f'drawn {drawn}')}</header>"
        f'<nav aria-label="Parts of this page">{links}</nav><main>'
        + "".join(section(name, title, content) for name, (title, content) in parts.items())
        + "</main>",
    )


def _each(runs: Mapping[str, Reported], make: Any) -> str:
    """The same part for every run, under its name where there are several."""
    return "".join(_heading(name, runs) + make(run.history) for name, run in runs.items())


def _heading(name: str, runs: Mapping[str, Reported]) -> str:
    return f"<h3>{_swatch(name, runs)}{escape(name)}</h3>" if len(runs) > 1 else ""


def _swatch(name: str, runs: Mapping[str, Reported]) -> str:
    colour = variable_of(colour_of(list(runs).index(name)))
    return f'<span class="swatch" style="background: {colour}"></span>' if len(runs) > 1 else ""


# Overview


def _overview(runs: Mapping[str, Reported]) -> str:
    columns = [_in_short(run.history) for run in runs.values()]
    rows = [[fact, *(escape(column[fact]) for column in columns)] for fact in columns[0]]
    remarks = "".join(
        note(f"{name}: {words}" if len(runs) > 1 else words) for name, run in runs.items() for words in run.notes
    )
    return table(["run", *_heads(runs, runs)], rows, "The runs in short") + remarks


def _heads(some: Iterable[str], runs: Mapping[str, Reported]) -> list[str]:
    return [_swatch(name, runs) + escape(name) for name in some]


def _in_short(run: RunHistory) -> dict[str, str]:
    last = run.trained[-1] if run.trained else {}
    seconds, tokens = (_sum(number(event, key) for event in run.trained) for key in ("seconds", "tgt_tokens"))
    return {
        "state": _state(run),
        "steps": _figure(number(last, "step")),
        "epoch": _figure(number(last, "epoch")),
        "training time": str(timedelta(seconds=round(seconds))),
        "target tokens": f"{tokens:,.0f}",
        "best validation": _best(run),
        "test": _first_test(run),
    }


def _first_test(run: RunHistory) -> str:
    for name, found in run.scores.items():
        metric, value = next(iter(scores_of(found).items()))
        return f"{name}: {metric} {value:.2f}"
    return "none yet"


def _sum(values: Iterator[float]) -> float:
    return sum(value for value in values if math.isfinite(value))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "none"


def _best(run: RunHistory) -> str:
    best_metric = "loss" if run.config is None else run.config.training.best_metric
    best = best_validation(run.validated, best_metric)
    if best is None:
        return "none yet"
    scores = scores_of(best.get("scores"))
    metric = NAMES.get(best_metric, "")
    value = f"{metric} {scores[metric]:.2f}" if metric in scores else f"loss {number(best, 'loss'):.4f}"
    return f"{value} at step {number(best, 'step'):,.0f}"


def _state(run: RunHistory) -> str:
    match run.record.get("finished"):
        case {"reason": str(reason)}:
            return f"finished: {reason}"
    return "not finished"


# Curves


def _charts(pictures: Sequence[Picture]) -> str:
    figures = "".join(map(_chart, pictures))
    return f'<div class="charts">{figures}</div>' if figures else note("Nothing has been measured yet.")


def _chart(picture: Picture) -> str:
    legend = ""
    if isinstance(picture, Chart):
        entries = "".join(
            f'<li><span class="key {kind}" style="color: {variable_of(colour)}"></span>{escape(label)}</li>'
            for label, colour, kind in picture.legend()
        )
        legend = f'<ul class="legend">{entries}</ul>'
    return (
        f"<figure><figcaption>{escape(picture.title)}{legend}</figcaption>"
        f'<div role="img" aria-label="{escape(_told(picture))}">{as_svg(picture)}</div></figure>'
    )


def _told(picture: Picture) -> str:
    """A description of a picture, for readers who cannot see it."""
    if isinstance(picture, Bars):
        most = max(range(len(picture.counts)), key=picture.counts.__getitem__) * picture.width
        return f"{picture.title}: most lines have {most} to {most + picture.width - 1} pieces"
    lines = []
    for one in picture.series:
        known = [pair for pair in zip(one.steps, one.values, strict=True) if math.isfinite(pair[1])]
        (first, before), (last, after) = known[0], known[-1]
        what = f"{one.run} {one.label}".strip()
        lines.append(f"{what} {before:.4g} at step {first:,.0f}, {after:.4g} at step {last:,.0f}")
    return f"{picture.title} by step: {'; '.join(lines)}"


# Scores and sentences


def _tested(run: Reported) -> dict[str, list[Sample]]:
    """The test sets whose text is available, with their translations."""
    found = {}
    for name, pairs in run.tests.items():
        hypotheses = run.history.hypotheses(name)
        if len(hypotheses) == len(pairs):
            found[name] = [Sample(*pair, text) for pair, text in zip(pairs, hypotheses, strict=True)]
    return found


def _measure(run: RunHistory) -> Measure:
    assert run.config is not None
    settings = run.config.evaluation
    return Measure(
        settings.metrics, settings.tokenize or metric_tokenizer(run.config.data.target_lang), settings.lowercase
    )


def _scores(runs: Mapping[str, Reported], tested: Mapping[str, Mapping[str, list[Sample]]]) -> str:
    rows = []
    for name, run in runs.items():
        for which, found in run.history.scores.items():
            intervals = _intervals(run.history, tested[name].get(which, []))
            for metric, value in scores_of(found).items():
                again, interval = intervals.get(metric, (math.nan, Interval(0.0, 0.0)))
                around = f"{interval.mean:.2f} ± {interval.half:.2f}" if abs(again - value) < _SAME else "not known"
                signature = f"<code>{escape(str(found[metric].get('signature', '')))}</code>"
                rows.append([_swatch(name, runs) + escape(f"{name}: {which}" if len(runs) > 1 else which)])
                rows[-1] += [escape(metric), f"{value:.2f}", around, signature]
    if not rows:
        return note("There are test scores once training has ended.")
    head = ["set", "score", "value", "95 % interval", "signature"]
    return table(head, rows, "Scores of the test sets", numbers=(2, 3))


def _intervals(run: RunHistory, samples: Sequence[Sample]) -> dict[str, tuple[float, Interval]]:
    """The recomputed score of each metric, and its interval."""
    if not samples or run.config is None:
        return {}
    references = [[one.reference for one in samples]]
    try:
        scores = corpus_scores([one.hypothesis for one in samples], references, *_measure(run), intervals=True)
    except UserError:
        return {}  # such as a tokenizer that is not on this machine
    return {score.name: (score.value, score.interval) for score in scores if score.interval is not None}


def _samples(run: RunHistory) -> str:
    told = stories(run)
    words = "Words that were not in the translation of the validation above are marked."
    return (note(words) + "".join(map(_story, told))) if told else note("samples/ holds no translations.")


def _story(story: Story) -> str:
    rows = {"source": escape(story.source), "reference": escape(story.reference)}
    for step, parts in story.versions:
        text = "".join(f"<mark>{escape(part)}</mark>" if new else escape(part) for part, new in parts)
        rows[f"step {step:,}"] = text or '<span class="faint">(nothing)</span>'
    return facts(rows)


def _extremes(runs: Mapping[str, Reported], tested: Mapping[str, Mapping[str, list[Sample]]]) -> str:
    parts = []
    for name, run in runs.items():
        parts.append(_heading(name, runs))
        sets = {which: found for which, found in tested[name].items() if which in run.history.scores}
        if not sets and run.history.sample_files:
            step = max(run.history.sample_files)
            sets = {f"samples of the validation at step {step:,}": run.history.samples(step)}
        sets = {which: found for which, found in sets.items() if found} if run.history.config else {}
        if not sets:
            parts.append(note("No translations are kept, or there is no configuration to score them by."))
        for which, samples in sets.items():
            measure = _measure(run.history)
            metric = NAMES[measure.metrics[0]]
            try:
                best, worst = (_rated(found, metric) for found in extremes(samples, measure))
            except UserError as error:
                parts.append(note(f"{which}: {error}"))
                continue
            parts.append(note(f"{which}, {len(samples):,} sentences by their {metric}"))
            parts.append(f'<div class="sides"><div><h3>Best</h3>{best}</div><div><h3>Worst</h3>{worst}</div></div>')
    return "".join(parts)


def _rated(found: Sequence[Rated], metric: str) -> str:
    return "".join(
        facts(
            {
                "source": escape(one.sample.source),
                "reference": escape(one.sample.reference),
                f"{metric} {one.score:.1f}": escape(one.sample.hypothesis) or '<span class="faint">(nothing)</span>',
            }
        )
        for one in found
    )


def _attention(runs: Mapping[str, Reported]) -> str:
    shown = []
    for name, run in runs.items():
        if run.translator is not None and run.history.sample_files:
            found = attention_of_samples(run.translator, run.history.samples(max(run.history.sample_files)))
            shown += [one._replace(name=f"{name}: {one.name}") if len(runs) > 1 else one for one in found]
    return stepper(shown) if shown else note("There is no model, or samples/ holds no sentence to look at.")


# Text, configuration and environment


def _text(runs: Mapping[str, Reported], histograms: Sequence[Bars]) -> str:
    known = {name: run.history.text for name, run in runs.items() if run.history.text}
    if not known:
        return note("The run has not noted it.")
    head = ["", *_heads(known, runs)]
    columns = [_of_text(text) for text in known.values()]
    labels = dict.fromkeys(label for column in columns for label in column)
    rows = [[label, *(column.get(label, "") for column in columns)] for label in labels]
    return table(head, rows, "Size of the text", range(1, len(head))) + _charts(histograms)


def _of_text(text: Mapping[str, Any]) -> dict[str, str]:
    counts = text.get("counts", {})
    found = {words: f"{counts[key]:,}" for key, words in _COUNTED.items() if counts.get(key) or key in ("read", "kept")}
    for side, sizes in text.get("lengths", {}).items():
        found |= {f"{side} pieces, {words}": f"{sizes[key]:,.4g}" for key, words in _OF_LENGTHS.items()}
    return found | {f"{name} pairs": f"{size:,}" for name, size in text.get("sets", {}).items()}


def _configuration(runs: Mapping[str, Reported]) -> str:
    found = {name: differences(run.history.config) for name, run in runs.items() if run.history.config is not None}
    trouble = "".join(
        note(f"{name}: {run.history.trouble}") for name, run in runs.items() if run.history.config is None
    )
    if not found:
        return trouble
    keys = dict.fromkeys(key for settings in found.values() for key in settings)
    head = ["key", "default", *_heads(found, runs)]
    rows = []
    for key in keys:
        default = next(settings[key][1] for settings in found.values() if key in settings)
        values = [settings[key][0] if key in settings else default for settings in found.values()]
        rows.append([f"<code>{escape(key)}</code>", *(_plain(value) for value in (default, *values))])
    return table(head, rows, "Settings that are not the default") + trouble


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"<code>{escape(text)}</code>"


def _environment(run: RunHistory) -> str:
    record = run.record
    if not record:
        return note("run.json is not there or cannot be read.")
    command = record.get("command")
    versions = record.get("versions")
    known = {
        "command": " ".join(map(str, command)) if isinstance(command, list) else "",
        "started": str(record.get("started", "")),
        "git commit": str(record.get("git_commit") or "none: the working directory was not under git"),
        "device": f"{record.get('device')}, threads: {record.get('threads')}, processes: {record.get('processes')}",
        "platform": str(record.get("platform", "")),
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else "",
    }
    data = record.get("data")
    files = [file for file in data if isinstance(file, dict)] if isinstance(data, list) else []
    rows = [
        [
            escape(str(file.get("key"))),
            f"<code>{escape(str(file.get('path')))}</code>",
            f"{file['bytes']:,}" if isinstance(file.get("bytes"), int) else "",
            f"<code>{escape(str(file.get('sha256') or ''))}</code>",
        ]
        for file in files
    ]
    listed = table(["data", "file", "bytes", "SHA-256"], rows, "Files of data", numbers=(2,)) if rows else ""
    return facts({name: escape(text) for name, text in known.items() if text}) + listed
