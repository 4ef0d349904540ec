"""Decoding speed beside Hugging Face's `generate` and CTranslate2: the same weights, lines, beam, limits and threads.

    python scripts/bench_decode.py --train-minutes 10
    python scripts/bench_decode.py --source train.en --target train.de --test-source test.en --test-target test.de
    python scripts/bench_decode.py --run runs/multi30k --test-source test.en --test-target test.de --threads 1

Without files it takes the built-in corpus. Without --run a small model (4+4 layers, d_model 128, 8,000 pieces) is
trained for --train-minutes first. Each system translates the test lines in turn, --turns times; the rate is the
median's, in lines per CPU-second of the process (on a GPU, per second by the clock). Lines are sorted by length and
batched alike; how many come out as they do from us in fp32 is told, too. `generate` has our weights and positions, so
that all systems have the same work: the mean of steps a line, which stands in the table, shows it. BLEU is sacreBLEU's.
A system whose package is missing (extras `bench` and `ctranslate2`) is left out and named.
"""

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from bench_systems import MarianTransformer, marian_weights
from bench_train import note

from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.batching import pad_sequences
from transformer_cli.data.demo import make_demo
from transformer_cli.data.lines import read_lines
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.decoding.translator import DEFAULT_BATCH_SIZE, Translation, Translator
from transformer_cli.evaluation.scores import corpus_scores, metric_tokenizer
from transformer_cli.export.ctranslate2 import export, module

LIMIT = 60  # most steps of a line, everywhere
ALPHA = 1.0  # of n^alpha, which all can rank by
OURS, OURS_BF16, THEIRS, THEIRS_INT8, GENERATE = "ours fp32", "ours bf16", "CT2 fp32", "CT2 int8", "generate"
Translate = Callable[[Sequence[str], int, int], list[Translation]]  # lines, beam, batch -> the best of each


def decoding(beam: int) -> DecodingConfig:
    return DecodingConfig(
        beam_size=beam, length_penalty=ALPHA, length_penalty_type="avg", max_length_a=0.0, max_length_b=LIMIT
    )


def with_translator(translator: Translator) -> Translate:
    """Ours."""

    def translate(lines: Sequence[str], beam: int, batch: int) -> list[Translation]:
        return [best[0] for best in translator.translate(lines, decoding(beam), batch)]

    return translate


def with_ctranslate2(translator: Translator, folder: Path, kind: str) -> Translate:
    """CTranslate2 by itself: `translate --engine ctranslate2` asks it for more, to find exactly what we find."""
    engine = module().Translator(
        str(folder),
        device=translator.device.type,
        compute_type=kind,
        inter_threads=1,
        intra_threads=torch.get_num_threads(),
    )
    source, target = translator.tokenizers.source, translator.tokenizers.target
    ids_of = {piece: i for i, piece in enumerate(target.pieces(range(target.vocab_size)))}

    def translate(lines: Sequence[str], beam: int, batch: int) -> list[Translation]:
        found = engine.translate_batch(
            [[*source.pieces(ids), "</s>"] for ids in source.encode_batch(list(lines))],
            max_batch_size=batch,
            beam_size=beam,
            length_penalty=ALPHA,
            max_input_length=0,
            max_decoding_length=LIMIT,
            min_decoding_length=0,
            suppress_sequences=[["<pad>"], ["<s>"]],
            return_scores=True,
        )
        translations = []
        for one in found:
            ids = tuple(ids_of[piece] for piece in one.hypotheses[0])
            n = min(len(ids) + 1, LIMIT)
            translations.append(Translation(target.decode(ids), 0.0, one.scores[0], n, n == LIMIT, ids))
        return translations

    return translate


def with_generate(translator: Translator) -> Translate:
    """Hugging Face's MarianMTModel with the translator's weights."""
    marian = MarianTransformer(translator.config.model, translator.tokenizers.target.vocab_size).marian.eval()
    marian.load_state_dict(marian_weights(translator.model), strict=False)
    marian.to(translator.device)
    tokenizers = translator.tokenizers

    @torch.inference_mode()
    def translate(lines: Sequence[str], beam: int, batch: int) -> list[Translation]:
        sources = tokenizers.source.encode_batch(list(lines))
        order = sorted(range(len(lines)), key=lambda i: -len(sources[i]))
        found: dict[int, Translation] = {}
        while chunk := order[:batch]:
            order = order[batch:]
            src = pad_sequences([sources[i] for i in chunk], suffix=EOS).to(translator.device)
            output = marian.generate(
                input_ids=src,
                attention_mask=(src != PAD).long(),
                num_beams=beam,
                max_new_tokens=LIMIT,
                length_penalty=ALPHA,
                do_sample=False,
                use_cache=True,
                bad_words_ids=[[PAD], [BOS]],
            )
            for i, ids in zip(chunk, output.tolist(), strict=True):
                words = [piece for piece in ids[1:] if piece not in (PAD, BOS)]
                pieces = words[: words.index(EOS)] if EOS in words else words
                n = min(len(pieces) + 1, LIMIT)
                found[i] = Translation(tokenizers.target.decode(pieces), 0.0, 0.0, n, n == LIMIT, tuple(pieces))
        return [found[i] for i in range(len(lines))]

    return translate


def clock(device: str) -> float:
    """Seconds that count: of the processor, or by the clock where a GPU works. Translations end on the CPU, so that
    none is still being computed."""
    return time.process_time() if device == "cpu" else time.perf_counter()


class Result(NamedTuple):
    """What a system did with the test lines in one setting."""

    rate: float  # lines per second
    steps: float  # a line
    bleu: float
    same: int  # lines with the text that the first system gives them


def race(
    systems: dict[str, Translate], lines: Sequence[str], references: Sequence[str], language: str, args: Any, beam: int
) -> dict[str, Result]:
    """Each system in turn, so that what else the machine does falls on all."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    results: dict[str, Result] = {}
    reference: list[str] = []
    for turn in range(args.turns + 1):
        for name, translate in systems.items():
            started = clock(args.device)
            found = translate(lines, beam, args.batch_size)
            if turn:  # the first warms up
                seconds[name].append(clock(args.device) - started)
            hypotheses = [one.text for one in found]
            reference = hypotheses if name == next(iter(systems)) else reference
            same = sum(one == other for one, other in zip(hypotheses, reference, strict=True))
            (bleu,) = corpus_scores(hypotheses, [references], ["bleu"], metric_tokenizer(language), False)
            results[name] = Result(0.0, sum(one.n for one in found) / len(found), bleu.value, same)
    return {name: result._replace(rate=len(lines) / median(seconds[name])) for name, result in results.items()}


def latency(translate: Translate, lines: Sequence[str], beam: int, device: str) -> float:
    """Median milliseconds for one line alone."""
    times = []
    for line in lines:
        started = clock(device)
        translate([line], beam, 1)
        times.append(clock(device) - started)
    return 1000 * median(times)


def step_seconds(translator: Translator, line: str, steps: int) -> float:
    """Milliseconds for each step of a translation of exactly so many, with a beam of 5."""
    settings = decoding(5).model_copy(update={"min_length": steps, "max_length_b": steps})
    started = clock(translator.device.type)
    list(translator.translate([line] * 16, settings))
    return 1000 * (clock(translator.device.type) - started) / steps


def start_up(run: Path, line: str, threads: int) -> tuple[float, float]:
    """Median CPU-seconds of `translate` for one sentence, and of `import torch` alone."""

    def median_of(command: list[str]) -> float:
        times = []
        for _ in range(5):
            before = _children()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times.append(_children() - before)
        return median(times)

    program = [sys.executable, "-m", "transformer_cli", "translate", str(run), line, "--threads", str(threads)]
    return median_of(program), median_of([sys.executable, "-c", "import torch"])


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(args: argparse.Namespace, folder: Path) -> Path:
    """A small model, trained through the command line for a few minutes."""
    config = {
        "name": "bench",
        "data": {
            "source_lang": args.source.suffix.removeprefix("."),
            "target_lang": args.target.suffix.removeprefix("."),
            "train": [{"source": str(args.source.absolute()), "target": str(args.target.absolute())}],
            "valid": {"hold_out": 200},
        },
        "model": {"d_model": 128, "ffn_dim": 256, "num_heads": 4, "encoder_layers": 4, "decoder_layers": 4},
        "training": {
            "max_steps": 1_000_000,
            "max_hours": args.train_minutes / 60,
            "noam_factor": 0.8,
            "warmup_steps": 500,
            "valid_steps": 250,
        },
        "device": args.device,
    }
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    run = folder / "run"
    words = ["train", str(folder / "config.yaml"), "--run-dir", str(run), "--threads", str(args.threads)]
    subprocess.run([sys.executable, "-m", "transformer_cli", *words], check=True, stdout=subprocess.DEVNULL)
    return run


def compare(run: Path, args: argparse.Namespace, folder: Path) -> None:
    """Print the tables for a trained model."""
    lines, references = (list(islice(read_lines(path), args.lines)) for path in (args.test_source, args.test_target))
    ours = Translator.load(run, args.device, "fp32")
    systems = {OURS: with_translator(ours), OURS_BF16: with_translator(Translator.load(run, args.device, "bf16"))}
    if importlib.util.find_spec("ctranslate2") is None:
        note("CTranslate2 is left out: pip install ctranslate2 brings it in")
    else:
        export(ours, folder / "exported", None)
        for name, kind in ((THEIRS, "float32"), (THEIRS_INT8, "int8")):
            systems[name] = with_ctranslate2(ours, folder / "exported", kind)
    if importlib.util.find_spec("transformers") is None:
        note("generate is left out: pip install transformers brings it in")
    else:
        systems[GENERATE] = with_generate(ours)
    print(
        f"| {'beam':>4} | {'system':<9} | {'lines/s':>8} | to CT2 fp32 | to generate | same text | steps/line |  BLEU |"
    )
    print(f"|{'-' * 5}:|{'-' * 11}|{'-' * 9}:|{'-' * 12}:|{'-' * 12}:|{'-' * 10}:|{'-' * 11}:|{'-' * 6}:|")
    for beam in (5, 1):
        results = race(systems, lines, references, ours.config.data.target_lang, args, beam)
        for name, found in results.items():
            to = [f"{found.rate / results[base].rate:.2f}" if base in results else "" for base in (THEIRS, GENERATE)]
            row = f"{found.rate:8.0f} | {to[0]:>11} | {to[1]:>11} | {found.same:9,}"
            print(f"| {beam:4} | {name:<9} | {row} | {found.steps:10.2f} | {found.bleu:5.2f} |", flush=True)
    few = lines[:: max(len(lines) // 40, 1)]
    for beam in (5, 1):
        times = {name: latency(translate, few, beam, args.device) for name, translate in systems.items()}
        base = times.get(THEIRS, times[OURS])
        shown = ", ".join(f"{name} {time:.1f} ms ({time / base:.1f} x)" for name, time in times.items())
        print(f"one line, beam {beam}: {shown}", flush=True)
    steps = {count: step_seconds(ours, lines[0], count) for count in (50, 100, 200, 400)}
    by_length = ", ".join(f"{value:.2f} of {count}" for count, value in steps.items())
    print(f"16 lines, beam 5, ms for each step: {by_length}", flush=True)
    whole, torch_alone = start_up(run, lines[0], args.threads)
    print(f"translate of one sentence: {whole:.2f} CPU-s, of which import torch {torch_alone:.2f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--source", type=Path, metavar="FILE", help="training text, without --run")
    add("--target", type=Path, metavar="FILE", help="its translations")
    add("--test-source", type=Path, metavar="FILE", help="text to translate")
    add("--test-target", type=Path, metavar="FILE", help="its translations")
    add("--run", type=Path, metavar="RUN", help="a trained model, post-norm with sinusoidal positions")
    add("--train-minutes", type=float, default=10, metavar="N")
    add("--lines", type=int, default=1000, metavar="N")
    add("--batch-size", type=int, default=DEFAULT_BATCH_SIZE, metavar="N", help="lines translated together")
    add("--turns", type=int, default=3, metavar="N")
    add("--threads", type=int, default=torch.get_num_threads(), metavar="N")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    files = [args.test_source, args.test_target] + ([args.source, args.target] if args.run is None else [])
    if None in files and (args.run is not None or files.count(None) < len(files)):
        parser.error("--test-source and --test-target go with a --run, or with --source and --target to train on")
    return args


def write_made_text(args: argparse.Namespace, folder: Path) -> None:
    """The built-in corpus as the files to train on and to translate."""
    made = make_demo()
    for name, pairs in (("", made.train), ("test_", [*made.test_seen, *made.test_new])):
        for side, language in (("source", "en"), ("target", "de")):
            path = folder / f"{name}text.{language}"
            path.write_text("".join(pair[language == "de"] + "\n" for pair in pairs), encoding="utf-8", newline="\n")
            setattr(args, f"{name}{side}", path)


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    with TemporaryDirectory() as place:
        if args.test_source is None:
            write_made_text(args, Path(place))
        compare(args.run or train(args, Path(place)), args, Path(place))


if __name__ == "__main__":
    main()
