"""`transformer-cli evaluate`."""

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transformer_cli.cli import options
from transformer_cli.run_files import locate

if TYPE_CHECKING:
    from transformer_cli.decoding.translator import Translator
    from transformer_cli.evaluation.comparison import Comparison
    from transformer_cli.evaluation.scores import Measure, Score


class Metric(StrEnum):
    """The scores to choose from."""

    BLEU = "bleu"
    CHRF = "chrf"
    CHRF_PLUS_PLUS = "chrf++"
    TER = "ter"


# Options that say how to translate.
_TRANSLATING = (
    "--beam-size",
    "--length-penalty",
    "--length-penalty-type",
    "--max-length-a",
    "--max-length-b",
    "--batch-size",
    "--device",
    "--precision",
    "--threads",
)


def evaluate(
    context: typer.Context,
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run directory, a model file or a checkpoint; none with --hypothesis.", show_default=False
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            help="Lines to translate, instead of the run's test sets; with --hypothesis what they translate.",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="Their translations; repeat it for several references.", show_default=False),
    ] = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="Translations to score, made by any program; - for a pipe.", show_default=False)
    ] = None,
    test_set: Annotated[
        list[str] | None,
        typer.Option(
            help="A test set of sacreBLEU's, such as wmt14/full, fetched at the first use; may be repeated.",
            show_default=False,
        ),
    ] = None,
    lang_pair: Annotated[
        str | None,
        typer.Option(help="Its languages, such as en-de. Left out: those of the run.", show_default=False),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN_B|FILE",
            help="Another run, or a file of translations, to compare with: paired bootstrap, what gained and lost.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[Metric] | None,
        typer.Option(help="Score to compute; may be repeated.", show_default=False),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="BLEU's tokenizer: 13a, intl, zh, char, none, ja-mecab, ko-mecab … Left out: by target language.",
            show_default=False,
        ),
    ] = None,
    intervals: Annotated[bool, typer.Option("--intervals", help="Also mean and 95 % interval, by bootstrap.")] = False,
    sentences: Annotated[
        Path | None,
        typer.Option(
            help="File for each line's scores, a JSON object a line; - is standard output.", show_default=False
        ),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU without regard to case.")] = False,
    target_lang: Annotated[
        str | None, typer.Option(help="Language of the translations, which chooses the tokenizer.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the translations.", show_default=False)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first lines.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with unrounded scores.")] = False,
    beam_size: options.BeamSize = None,
    length_penalty: options.LengthPenalty = None,
    length_penalty_type: options.LengthPenaltyType = None,
    max_length_a: options.MaxLengthA = None,
    max_length_b: options.MaxLengthB = None,
    batch_size: options.BatchSize = options.DEFAULT_BATCH_SIZE,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    errors: options.TextErrors = "strict",
) -> None:
    """Translate test sets and score them, or score translations that are there already.

    Scores are sacreBLEU's, with its signature, on plain detokenised text. Without --source or --test-set the run's test
    sets are used, or its validation set if it has none. What makes scores doubtful, such as tokenised text or lines out
    of step, is told on stderr. With --compare a positive difference is a higher score than RUN_B's.

    Example: transformer-cli evaluate runs/demo --source test.en --reference test.de
    """

    references, names = reference or [], test_set or []
    if hypothesis == Path("-"):
        hypothesis = Path("/dev/stdin")
    _check_combination(run, source, references, hypothesis, names)
    other = compare if compare is not None and _is_run(compare) else None
    if run is None and other is None:
        _refuse_translating(options.given(context))
    _check_languages(lang_pair, target_lang, names)
    _check_writing(output, sentences, as_json, [source, hypothesis, compare, *references])
    flags = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "length_penalty_type": length_penalty_type,
        "max_length_a": max_length_a,
        "max_length_b": max_length_b,
        "n_best": 1,
    }
    options.check_decoding(flags)

    from transformer_cli.errors import ConfigError
    from transformer_cli.evaluation import comparison, sets
    from transformer_cli.evaluation.scores import corpus_scores
    from transformer_cli.evaluation.suspicions import suspicions
    from transformer_cli.log import LOGGER
    from transformer_cli.streams import output_stream, write_lines

    for folder in (run, other):
        if folder is not None:
            locate(folder)
    if tokenize is not None:
        corpus_scores(["x"], [["x"]], ["bleu"], tokenize, lowercase)
    pair = _pair(run, lang_pair) if names else ""
    if names:
        chosen = [sets.set_by_name(name, pair, limit, errors, hypothesis) for name in names]
    elif references:
        chosen = [sets.set_from_files(references, limit, errors, source, hypothesis)]
    else:
        assert run is not None
        chosen = sets.sets_of_run(run, limit, errors)
    if len(chosen) > 1:
        of_one = {"--output": output, "--hypothesis": hypothesis, "--compare with a file": None if other else compare}
        _refuse_several(len(chosen), of_one)
    if other is not None and chosen[0].sources is None:
        raise ConfigError(f"--source is missing: what {other} is to translate")
    baseline = None
    if compare is not None and other is None:
        baseline = sets.more_hypotheses(compare, chosen[0], limit, errors)

    translator, rival = (None if one is None else _load(one, device, precision, threads) for one in (run, other))
    if translator is not None and rival is not None:
        for words in comparison.unlike_languages(translator.config.data, rival.config.data):
            LOGGER.warning("%s", words)
    language = target_lang or _language(pair, translator, references)
    measure = _measure(translator, language, metric, tokenize, lowercase, target_lang is not None)

    def translations(by: "Translator", one: sets.EvaluationSet) -> list[str]:
        assert one.sources is not None
        decoding = options.decoding_from(by.config.decoding, flags)
        return [best[0].text for best in by.translate(one.sources, decoding, batch_size)]

    scores: dict[str, list[Score]] = {}
    compared: dict[str, Comparison] = {}
    records: list[dict[str, Any]] = []
    for one in chosen:
        hypotheses = one.hypotheses if translator is None else translations(translator, one)
        assert hypotheses is not None
        if output is not None:
            write_lines(output, hypotheses)
        for words in suspicions(hypotheses, one.references, one.sources, language, measure):
            LOGGER.warning("%s: %s", one.name, words)
        if rival is not None:
            baseline = translations(rival, one)
        if baseline is not None:
            compared[one.name] = comparison.compare(one, hypotheses, baseline, measure)
        else:
            scores[one.name] = corpus_scores(hypotheses, one.references, *measure, intervals)
        if sentences is not None:
            records += list(comparison.sentence_records(one, hypotheses, baseline, measure))

    lines = _result(scores, compared, run or hypothesis or Path(), compare, as_json)
    told = [json.dumps(record, ensure_ascii=False) for record in records]
    if sentences == Path("-"):
        print("\n".join(lines), file=sys.stderr)
        lines = told
    with output_stream(None) as stream:  # a set may be named in any script
        for line in lines:
            print(line, file=stream)
    if sentences is not None and sentences != Path("-"):
        write_lines(sentences, told)


def _refuse_several(sets: int, given: Mapping[str, object]) -> None:
    """ConfigError for flags that take only one set."""
    from transformer_cli.errors import ConfigError

    for flag, value in given.items():
        if value is not None:
            raise ConfigError(f"{flag} takes one set, and there are {sets}: name one by --source and --reference")


def _language(pair: str, translator: "Translator | None", references: list[Path]) -> str:
    """The target language, from the test set, the run or the name of the reference file, in this order."""
    from transformer_cli.evaluation.sets import language_of

    language = pair.partition("-")[2] or "und"
    if language == "und" and translator is not None:
        language = translator.config.data.target_lang
    return language_of(references[0]) if language == "und" and references else language


def _measure(
    translator: "Translator | None",
    language: str,
    metric: list[Metric] | None,
    tokenize: str | None,
    lowercase: bool,
    language_is_given: bool,
) -> "Measure":
    """How to score: by the options, else the run's settings, else the language. ConfigError for scores that cannot be
    computed, before any work is done."""
    from transformer_cli.config.schema import EvaluationConfig
    from transformer_cli.errors import ConfigError
    from transformer_cli.evaluation.scores import Measure, corpus_scores, metric_tokenizer

    settings = EvaluationConfig() if translator is None else translator.config.evaluation
    measure = Measure(
        metrics=list(dict.fromkeys(metric or settings.metrics)),
        tokenize=tokenize or (None if language_is_given else settings.tokenize) or metric_tokenizer(language),
        lowercase=lowercase or settings.lowercase,
    )
    if Metric.BLEU not in measure.metrics and (tokenize or lowercase):
        raise ConfigError("--tokenize and --lowercase concern BLEU, which is not among the metrics: leave them out")
    corpus_scores(["x"], [["x"]], *measure)
    return measure


def _result(
    scores: "Mapping[str, list[Score]]",
    compared: "Mapping[str, Comparison]",
    run: Path,
    compare: Path | None,
    as_json: bool,
) -> list[str]:
    """The lines to print: for each set its scores, or the comparison of two systems on it."""
    from transformer_cli.evaluation.scores import result_table, scores_json

    if as_json:
        plain = {name: scores_json(found) for name, found in scores.items()}
        return [json.dumps(plain | {name: found.as_plain(str(compare)) for name, found in compared.items()})]
    if not compared:
        return result_table(scores)
    assert compare is not None
    called = _short_names(run, compare)
    return [line for label, found in compared.items() for line in found.in_lines(label, *called)]


def _is_run(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".safetensors"


def _short_names(one: Path, other: Path) -> tuple[str, str]:
    names = one.absolute().name, other.absolute().name
    return (str(one), str(other)) if names[0] == names[1] else names


def _pair(run: Path | None, given: str | None) -> str:
    """The language pair of sacreBLEU's test sets. ConfigError when it is unknown."""
    from transformer_cli.errors import ConfigError
    from transformer_cli.evaluation.sets import config_of_run

    config = None if run is None or given else config_of_run(run)
    pair = given or (f"{config.data.source_lang}-{config.data.target_lang}" if config else "")
    if not pair or "und" in pair.split("-"):
        raise ConfigError("--lang-pair is missing: the languages of --test-set, such as en-de")
    return pair


def _check_combination(
    run: Path | None, source: Path | None, references: list[Path], hypothesis: Path | None, names: list[str]
) -> None:
    from transformer_cli.errors import ConfigError

    if run is None and hypothesis is None:
        raise ConfigError("nothing to evaluate: give a run, or --hypothesis and --reference")
    if run is not None and hypothesis is not None:
        raise ConfigError("a run makes its own translations and --hypothesis has them already: give one of them")
    if names:
        if source is not None or references:
            raise ConfigError("--test-set has its own source and references: give it, or --source and --reference")
        return
    if (hypothesis is not None or source is not None) and not references:
        raise ConfigError("--reference is missing: the file of right translations")
    if hypothesis is None and source is None and references:
        raise ConfigError("--source is missing: the file whose translations are in --reference")


def _refuse_translating(given: Mapping[str, object]) -> None:
    """ConfigError for an option that says how to translate."""
    from transformer_cli.errors import ConfigError

    for flag in given:
        if flag in _TRANSLATING:
            raise ConfigError(f"{flag} says how to translate, and the translations are there already: leave it out")


def _check_languages(lang_pair: str | None, target_lang: str | None, names: list[str]) -> None:
    from transformer_cli.errors import ConfigError

    if lang_pair is not None and not names:
        raise ConfigError("--lang-pair is for --test-set: the language of other text is given by --target-lang")
    if target_lang is not None:
        options.check_language("--target-lang", target_lang)


def _check_writing(output: Path | None, sentences: Path | None, as_json: bool, read: list[Path | None]) -> None:
    from transformer_cli.errors import ConfigError
    from transformer_cli.streams import check_output

    if output == Path("-"):
        raise ConfigError("--output - would mix translations and scores on standard output: name a file")
    if sentences == Path("-") and as_json:
        raise ConfigError("--sentences - and --json would mix on standard output: name a file for --sentences")
    if output is not None and sentences is not None and output.absolute() == sentences.absolute():
        raise ConfigError(f"--output and --sentences are both {output}: name two files")
    for flag, path in (("--output", output), ("--sentences", sentences)):
        if path is not None and path != Path("-"):
            check_output(path, [one for one in read if one is not None], flag)


def _load(run: Path, device: str, precision: options.Precision, threads: int | None) -> "Translator":
    from transformer_cli.decoding.translator import Translator
    from transformer_cli.device import set_threads

    set_threads(threads)
    return Translator.load(run, device, precision)
