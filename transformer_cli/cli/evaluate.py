"""`transformer-cli evaluate`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_cli.cli import options
from transformer_cli.run_files import locate

if TYPE_CHECKING:
    from transformer_cli.decoding.translator import Translator


class Metric(StrEnum):
    """The scores to choose from."""

    BLEU = "bleu"
    CHRF = "chrf"


def evaluate(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run directory, a model file or a checkpoint; none with --hypothesis.", show_default=False
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="Lines to translate, instead of the run's test sets.", show_default=False)
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="Their translations; repeat it for several references.", show_default=False),
    ] = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="Translations to score, made by any program.", show_default=False)
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
    batch_size: options.BatchSize = 256,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    errors: options.TextErrors = "strict",
) -> None:
    """Translate test sets and score them, or score translations that are there already.

    Scores are sacreBLEU's, with its signature, on plain detokenised text. Without --source the run's test sets are
    used, or its validation set if it has none.

    Example: transformer-cli evaluate runs/demo --source test.en --reference test.de
    """

    references = reference or []
    _check_combination(run, source, references, hypothesis)

    from transformer_cli.config.schema import EvaluationConfig
    from transformer_cli.decoding.lines import check_output, output_stream, write_lines
    from transformer_cli.errors import ConfigError
    from transformer_cli.evaluation import sets
    from transformer_cli.evaluation.scores import corpus_scores, metric_tokenizer, result_line, scores_json

    if run is not None:
        locate(run)
    if output == Path("-"):
        raise ConfigError("--output - would mix translations and scores on standard output: name a file")
    if output is not None:
        check_output(output, [path for path in (source, hypothesis, *references) if path is not None])
    flags = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "length_penalty_type": length_penalty_type,
        "max_length_a": max_length_a,
        "max_length_b": max_length_b,
        "n_best": 1,
    }
    options.check_decoding(flags)
    if tokenize is not None:
        corpus_scores(["x"], [["x"]], ["bleu"], tokenize, lowercase)
    lines = hypothesis or source
    if lines is None:
        assert run is not None
        chosen = sets.sets_of_run(run, limit, errors)
    else:
        chosen = [sets.set_from_files(lines, references, limit, errors)]
    if output is not None and len(chosen) > 1:
        raise ConfigError(
            f"--output takes one set, and the run has {len(chosen)}: name one by --source and --reference"
        )

    translator = None if run is None else _load(run, device, precision, threads)
    settings, language = EvaluationConfig(), "und"
    if translator is not None:
        settings, language = translator.config.evaluation, translator.config.data.target_lang
    if language == "und" and references:
        language = sets.language_of(references[0])
    metrics = metric or settings.metrics
    tokenizer = tokenize or settings.tokenize or metric_tokenizer(target_lang or language)
    lower = lowercase or settings.lowercase
    corpus_scores(["x"], [["x"]], metrics, tokenizer, lower)  # what cannot be computed is better known before the work
    scores = {}
    for one in chosen:
        hypotheses = one.lines
        if translator is not None:
            decoding = options.decoding_from(translator.config.decoding, flags)
            hypotheses = [best[0].text for best in translator.translate(one.lines, decoding, batch_size)]
        if output is not None:
            write_lines(output, hypotheses)
        scores[one.name] = corpus_scores(hypotheses, one.references, metrics, tokenizer, lower)
    with output_stream(None) as stream:  # a set may be named in any script
        if as_json:
            print(json.dumps({name: scores_json(found) for name, found in scores.items()}), file=stream)
        else:
            for name, found in scores.items():
                print(result_line(name, found), file=stream)


def _check_combination(run: Path | None, source: Path | None, references: list[Path], hypothesis: Path | None) -> None:
    from transformer_cli.errors import ConfigError

    if run is None and hypothesis is None:
        raise ConfigError("nothing to evaluate: give a run, or --hypothesis and --reference")
    if run is not None and hypothesis is not None:
        raise ConfigError("a run makes its own translations and --hypothesis has them already: give one of them")
    if hypothesis is not None and source is not None:
        raise ConfigError("--hypothesis is scored as it is and needs no --source")
    if (hypothesis is not None or source is not None) and not references:
        raise ConfigError("--reference is missing: the file of right translations")
    if hypothesis is None and source is None and references:
        raise ConfigError("--source is missing: the file whose translations are in --reference")


def _load(run: Path, device: str, precision: options.Precision, threads: int | None) -> "Translator":
    from transformer_cli.decoding.translator import Translator
    from transformer_cli.device import set_threads

    set_threads(threads)
    return Translator.load(run, device, precision)
