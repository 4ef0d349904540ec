"""`transformer-cli translate`."""

import os
from collections.abc import Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer_cli.cli import options
from transformer_cli.run_files import locate

if TYPE_CHECKING:
    from transformer_cli.config.schema import DecodingConfig
    from transformer_cli.decoding.translator import Translator


def translate(
    context: typer.Context,
    run: options.Run,
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences to translate, each in quotes.", show_default=False)
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="File to translate line by line; - is standard input.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; - is standard output.", show_default=False)
    ] = None,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="Plain lines, or one JSON object a translation.")
    ] = "text",
    alignments: Annotated[
        bool,
        typer.Option("--alignments", help="With --format jsonl: which source piece each piece comes from (i-j)."),
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of one sentence: draw what each layer and head attends to, to a name that ends in .png or .html.",
            show_default=False,
        ),
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Lines of text ||| score ||| log-probability ||| n.")
    ] = False,
    beam_size: options.BeamSize = None,
    n_best: options.NBest = None,
    length_penalty: options.LengthPenalty = None,
    length_penalty_type: options.LengthPenaltyType = None,
    max_length_a: options.MaxLengthA = None,
    max_length_b: options.MaxLengthB = None,
    min_length: Annotated[
        int | None, typer.Option(help="Pieces before which a translation does not end.", show_default=False)
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(help="No sequence of so many pieces comes twice.", show_default=False)
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Above 1, pieces that are there already become less likely.", show_default=False),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="Text that each translation begins with.", show_default=False)
    ] = None,
    prefix_file: Annotated[
        Path | None, typer.Option(help="The same, a line for each line of input.", show_default=False)
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw translations at random (--n-best of them) instead of searching.")
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=100.0, help="With --sample: above 1 more surprising, below 1 less.", show_default="1"
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="With --sample: draw from the k likeliest pieces.", show_default="all"),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1.0,
            help="With --sample: draw from the fewest pieces that are together so probable.",
            show_default="1",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="With --sample: another number draws others.", show_default="1")
    ] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option(help="Another run to translate with together; may be repeated.", show_default=False),
    ] = None,
    split_sentences: Annotated[
        bool,
        typer.Option("--split-sentences", help="Translate a line of several sentences one by one, and join them."),
    ] = False,
    engine: Annotated[
        Literal["torch", "ctranslate2"],
        typer.Option(help="What computes; ctranslate2 is exported to the run's folder the first time."),
    ] = "torch",
    batch_size: options.BatchSize = options.DEFAULT_BATCH_SIZE,
    device: options.Device = "auto",
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16", "int8"],
        typer.Option(help="Number format; auto is fp32 on CPU and bf16 on a GPU that has it; int8 is ctranslate2's."),
    ] = "auto",
    threads: options.Threads = None,
    errors: options.TextErrors = "strict",
) -> None:
    """Translate sentences, a file, or what comes through a pipe; one line out for each line in.

    With --n-best above 1 the lines are index ||| text ||| score, the index counting input lines from 0. Settings that
    are not given are the run's.

    Example: transformer-cli translate runs/demo "The small dog sleeps."
    """
    from transformer_cli import streams

    source = None if input_ == Path("-") else input_
    target = None if output == Path("-") else output
    read = [path for path in (source, prefix_file) if path is not None]
    _check_combination(options.given(context))
    if attention is not None:
        _check_attention(attention, text or [])
    words = [streams.argument_line(word, f"argument {number}", errors) for number, word in enumerate(text or [], 1)]
    prefix = None if prefix is None else streams.argument_line(prefix, "--prefix", errors)
    for one in (run, *(ensemble or [])):
        locate(one)
    for path in read:
        streams.check_input(path)
    if target is not None:
        streams.check_output(target, read)
    at_terminal = not words and source is None and streams.standard_input().isatty()
    flags = {
        "beam_size": beam_size,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "length_penalty_type": length_penalty_type,
        "max_length_a": max_length_a,
        "max_length_b": max_length_b,
        "min_length": min_length,
        "no_repeat_ngram_size": no_repeat_ngram_size,
        "repetition_penalty": repetition_penalty,
    }
    if sample and n_best is not None:
        flags["beam_size"] = n_best  # the beam size must be at least n_best
    if split_sentences:
        flags["n_best"] = 1
    options.check_decoding(flags)

    from transformer_cli.decoding.align import align
    from transformer_cli.decoding.lines import LongLines, json_lines, text_lines
    from transformer_cli.decoding.paragraphs import translate_paragraphs
    from transformer_cli.decoding.sampling import Sampling
    from transformer_cli.decoding.translator import Translator
    from transformer_cli.device import set_threads
    from transformer_cli.errors import ConfigError, DataError
    from transformer_cli.log import LOGGER, Progress

    if attention is not None:
        from transformer_cli.evaluation.attention import attention_of, check_drawable, draw_attention

    set_threads(threads)
    # The export is in full precision, whatever the engine computes in.
    own = "fp32" if engine == "ctranslate2" or precision == "int8" else precision
    translator = Translator.load(run, device, own, ensemble or [])
    if attention is not None:
        check_drawable(translator, words[0])
    decoding = options.decoding_from(translator.config.decoding, flags)
    if ensemble and decoding.repetition_penalty != 1.0:
        raise ConfigError(
            f"--repetition-penalty {decoding.repetition_penalty} changes what one model finds, and with --ensemble "
            "there are several: leave one of them out"
        )
    if engine == "ctranslate2":
        translator = _with_ctranslate2(translator, run, precision, decoding, output_format == "jsonl")
    for word in filter(os.path.isfile, words):
        LOGGER.warning("%s is a file, and its name is translated: for its lines give --input FILE", word)
    if at_terminal:
        LOGGER.info("Type a sentence and press Enter; end with Ctrl-D. (--help shows other ways.)")
    sentences = iter(words) if words else streams.input_lines(source, errors)
    prefixes = streams.input_lines(prefix_file, errors) if prefix_file else repeat(prefix) if prefix else None
    drawn = Sampling(temperature or 1.0, top_k or 0, top_p or 1.0, 1 if seed is None else seed) if sample else None
    together = 1 if at_terminal else batch_size  # one line at a time where a person waits for each
    long = LongLines(translator.longest_source or translator.config.data.max_length, split_sentences)
    if split_sentences:
        translations = translate_paragraphs(translator, sentences, decoding, together, drawn, long.note)
    else:
        translations = translator.translate(sentences, decoding, together, drawn, prefixes)
    cut = 0
    bar = Progress(None, unit="line", shown=not words and not at_terminal and not streams.is_shown_with(target))
    with streams.output_stream(target) as stream, bar as progress:
        for index, found in enumerate(translations):
            if output_format == "jsonl":
                aligned = align(translator, found) if alignments else None
                written = json_lines(index, found, translator.tokenizers, aligned)
            else:
                written = text_lines(index, found, numbered=decoding.n_best > 1, scores=scores)
            stream.writelines(line + "\n" for line in written)
            stream.flush()
            progress.advance()
            best = found[0]
            cut += best.truncated
            if not split_sentences:
                long.note(index + 1, len(best.source_ids))
    if attention is not None:
        draw_attention(attention_of(translator, best, words[0]), attention)
    long.tell()
    if prefix_file is not None and prefixes is not None and next(prefixes, None) is not None:
        raise DataError(f"{prefix_file} has more lines than there are lines to translate: do they belong together?")
    if cut:
        LOGGER.warning("translations cut at their length limit (--max-length-a, --max-length-b): %d", cut)


def _check_combination(given: Mapping[str, object]) -> None:
    """ConfigError for flags that do not go together; `given` has the flags that were given and their values."""
    from transformer_cli.errors import ConfigError

    def refuse(names: Iterable[str], why: str) -> None:
        for name in names:
            if name in given:
                raise ConfigError(f"{name} {why}")

    if "text" in given and "--input" in given:
        raise ConfigError("give sentences as arguments or a file with --input, not both")
    if "--prefix" in given:
        refuse(["--prefix-file"], "and --prefix both say how translations begin: give one of them")
    if "--sample" in given:
        refuse(["--beam-size"], "is for searching, and --sample draws (--n-best): leave one of them out")
    else:
        refuse(["--temperature", "--top-k", "--top-p", "--seed"], "says how to draw: it needs --sample")
    if "--split-sentences" in given:
        refuse(
            ["--prefix", "--prefix-file", "--alignments", "--attention", "--n-best"],
            "is for whole lines, and --split-sentences takes them apart: leave one of them out",
        )
    engine = given.get("--engine")
    if engine == "ctranslate2":
        refuse(
            ["--sample", "--prefix", "--prefix-file", "--ensemble", "--alignments", "--attention"],
            "is not there with --engine ctranslate2: leave one of them out",
        )
    if given.get("--precision") == "int8" and engine != "ctranslate2":
        raise ConfigError("--precision int8 needs --engine ctranslate2")
    if "--alignments" in given and given.get("--format") != "jsonl":
        raise ConfigError("--alignments needs --format jsonl, which has room for them")


def _check_attention(path: Path, text: list[str]) -> None:
    """ConfigError unless there is one sentence, a writable file for the picture, and matplotlib."""
    from transformer_cli.errors import ConfigError
    from transformer_cli.evaluation.page import check_installed, check_picture
    from transformer_cli.streams import check_output

    if len(text) != 1:
        raise ConfigError(f"--attention draws one sentence, given as an argument in quotes; there are {len(text)}")
    check_picture(path)
    check_output(path, [], "--attention")
    check_installed()


def _with_ctranslate2(
    translator: "Translator", run: Path, precision: str, decoding: "DecodingConfig", token_log_probs: bool
) -> "Translator":
    from transformer_cli.export.ctranslate2 import beside
    from transformer_cli.export.engine import CTranslate2Translator, check_decoding

    check_decoding(decoding, token_log_probs)
    names = {"auto": "float32", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}
    return CTranslate2Translator(translator, beside(translator, run), names[precision], token_log_probs)
