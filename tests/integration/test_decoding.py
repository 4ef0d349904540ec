"""`translate` with all its options, `score` and `export` as commands; and the contract: the translation of a line is
its own, whatever the batch."""

import itertools
import json
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_cli.config.schema import DecodingConfig
from transformer_cli.decoding.translator import Translator
from transformer_cli.model import incremental
from transformer_cli.model.transformer import Transformer

Command = Callable[..., CompletedProcess[str]]
Pairs = Callable[..., Iterator[tuple[str, str]]]


@pytest.fixture(scope="module")
def flat(trained: Path) -> Path:
    """A model after a few updates, for which many translations are nearly as good: what leaks between lines shows."""
    return trained / "checkpoints" / "step-00000150.safetensors"


@pytest.fixture(scope="module")
def other(train: Command, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a vocabulary of its own, trained on the same words for two updates."""
    run = tmp_path_factory.mktemp("other") / "run"
    assert train(small, run, "training.max_steps=2", "tokenizer.vocab_size=50").returncode == 0
    return run


@pytest.fixture(scope="module")
def sources(pairs: Pairs) -> list[str]:
    """Lines of one to nine words and three of sixty in their midst."""
    words = [source for source, _ in pairs(32, 3)]
    long = " ".join(source for source, _ in pairs(60, 4)).split()
    return [*words[:8], " ".join(long[:60]), *words[8:], " ".join(long[60:120]), " ".join(long[120:180])]


def text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def translated(cli: Command, *arguments: object, stdin: str = "") -> list[dict[str, Any]]:
    done = cli("translate", *arguments, "--format", "jsonl", stdin=stdin)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# C13: the same whatever the batch


@pytest.mark.parametrize(
    "flags",
    [
        ("--beam-size", 1),
        ("--beam-size", 4),
        ("--beam-size", 4, "--n-best", 4),
        ("--beam-size", 3, "--no-repeat-ngram-size", 2, "--min-length", 4, "--repetition-penalty", 1.2),
        ("--sample", "--n-best", 2, "--top-p", 0.9),
    ],
    ids=["greedy", "beam", "n-best", "constraints", "samples"],
)
def test_no_line_depends_on_the_batch_or_the_order(
    cli: Command, flat: Path, sources: list[str], flags: tuple[object, ...]
) -> None:
    settings = (*flags, "--max-length-a", 1, "--max-length-b", 6)
    alone = translated(cli, flat, *settings, "--batch-size", 1, stdin=text(sources))
    ties = 0

    def compare(found: list[dict[str, Any]]) -> None:
        nonlocal ties
        assert [one["index"] for one in found] == [one["index"] for one in alone]
        for one, expected in zip(found, alone, strict=True):
            if one["pieces"] == expected["pieces"]:
                assert one["log_prob"] == pytest.approx(expected["log_prob"], abs=1e-4)
            else:
                ties += 1
                assert abs(one["score"] - expected["score"]) < 1e-5

    for batch_size in (7, 64, 256):
        compare(translated(cli, flat, *settings, "--batch-size", batch_size, stdin=text(sources)))
    order = torch.randperm(len(sources), generator=torch.Generator().manual_seed(1)).tolist()
    shuffled = translated(cli, flat, *settings, "--batch-size", 8, stdin=text([sources[i] for i in order]))
    for one in shuffled:
        one["index"] = order[one["index"]]
    compare(sorted(shuffled, key=lambda one: int(one["index"])))
    print(f"{' '.join(map(str, flags))}: {ties} near-ties among {4 * len(alone)} translations")
    assert ties <= 2


# C14: the length penalty


@pytest.mark.parametrize("kind", ["wu", "avg", "none"])
def test_scores_are_by_the_formula_in_the_help_and_alpha_favours_length(
    cli: Command, flat: Path, sources: list[str], kind: str
) -> None:
    def lp(n: int, alpha: float) -> float:
        return float({"wu": ((5 + n) / 6) ** alpha, "avg": n**alpha, "none": 1.0}[kind])

    alphas = (0, 0.6, 1.0, 2.0)
    by_alpha = {}
    for alpha in alphas:
        settings = ("--beam-size", 4, "--n-best", 4, "--length-penalty", alpha, "--length-penalty-type", kind)
        found = translated(cli, flat, *settings, stdin=text(sources[:8]))
        by_alpha[alpha] = [[one for one in found if one["index"] == i] for i in range(8)]
        for one in found:
            assert one["score"] == pytest.approx(one["log_prob"] / lp(one["n"], alpha), abs=1e-4)
            assert one["n"] == len(one["pieces"]) + (not one["truncated"]), "the end symbol counts"
            assert alpha or one["score"] == one["log_prob"]
    for lists in by_alpha.values():
        assert all(one["score"] >= two["score"] for pool in lists for one, two in pairwise(pool))
        for pool in lists:  # one fixed pool, ranked anew
            winners = [max(pool, key=lambda one, a=alpha: one["log_prob"] / lp(one["n"], a)) for alpha in alphas]
            assert all(one["n"] <= two["n"] for one, two in pairwise(winners))


def test_the_help_tells_the_formulas_and_what_they_count(program: Command) -> None:
    done = program("translate", "--help", env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})
    words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.stdout).split())
    assert "score = log-probability / lp(n); n counts the pieces and the end symbol." in words
    assert "a larger alpha favours longer translations" in words
    assert "wu ((5 + n) / 6)^alpha, avg n^alpha, none 1" in words


# C20: no step computes the prefix again


@pytest.mark.parametrize("steps", [100, 400])
def test_a_step_costs_one_word_of_each_row_and_the_source_is_encoded_once(
    cli: Command, flat: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    rows, encoded = [], []
    step, encode = incremental._Layer.step, Transformer.encode

    def counted_step(self: Any, x: Tensor, *arguments: Any) -> Tensor:
        rows.append(len(x))
        return step(self, x, *arguments)

    def counted_encode(self: Transformer, src: Tensor, src_mask: Tensor) -> Tensor:
        encoded.append(len(src))
        return encode(self, src, src_mask)

    monkeypatch.setattr(incremental._Layer, "step", counted_step)
    monkeypatch.setattr(Transformer, "encode", counted_encode)
    limits = ("--min-length", steps, "--max-length-a", 0, "--max-length-b", steps)
    (found,) = translated(cli, flat, "--beam-size", 1, *limits, stdin="ba ce di\n")
    assert (found["n"], found["truncated"]) == (steps, True)
    assert encoded == [1]
    assert rows == [1] * 2 * steps  # two layers


# Each option


def test_a_translation_has_its_least_length(cli: Command, flat: Path, sources: list[str]) -> None:
    found = translated(cli, flat, "--min-length", 9, "--max-length-a", 1, stdin=text(sources[:8]))
    assert min(len(one["pieces"]) for one in found) == 9
    assert min(len(one["pieces"]) for one in translated(cli, flat, stdin=text(sources[:8]))) < 9


@pytest.mark.parametrize("n", [1, 2])
def test_no_ngram_comes_twice(cli: Command, flat: Path, sources: list[str], n: int) -> None:
    def repeated(*flags: object) -> int:
        found = translated(cli, flat, *flags, stdin=text(sources))
        grams = [Counter(tuple(one["pieces"][i : i + n]) for i in range(len(one["pieces"]) - n + 1)) for one in found]
        return sum(count > 1 for one in grams for count in one.values())

    assert repeated() > 0
    assert repeated("--no-repeat-ngram-size", n) == 0


def test_the_repetition_penalty_makes_repetitions_rarer(cli: Command, flat: Path, sources: list[str]) -> None:
    def share_of_first_uses(*flags: object) -> float:
        found = [one["pieces"] for one in translated(cli, flat, *flags, stdin=text(sources))]
        return sum(len(set(pieces)) for pieces in found) / sum(map(len, found))

    assert share_of_first_uses("--repetition-penalty", 3) > share_of_first_uses()


def test_translations_begin_with_a_prefix_for_all_or_one_for_each(cli: Command, flat: Path, tmp_path: Path) -> None:
    source = "ba ce\ndi fo gu\n\nha\n"
    done = cli("translate", flat, "--prefix", "QI RO", stdin=source)
    assert done.returncode == 0
    first, second, empty, last = done.stdout.splitlines()
    assert all(line.startswith("QI RO") for line in (first, second, last))
    assert empty == ""
    (tmp_path / "prefixes").write_text("QI\n\nRO\nSU TA\n")
    done = cli("translate", flat, "--prefix-file", tmp_path / "prefixes", stdin=source)
    first, second, empty, last = done.stdout.splitlines()
    assert first.startswith("QI")
    assert second == cli("translate", flat, "di fo gu").stdout.rstrip("\n")
    assert empty == ""
    assert last.startswith("SU TA")


def test_too_few_or_many_prefixes_and_a_prefix_file_that_is_not_there_are_told(
    cli: Command, flat: Path, tmp_path: Path
) -> None:
    (tmp_path / "prefixes").write_text("QI\n")
    done = cli("translate", flat, "ba", "ce", "--prefix-file", tmp_path / "prefixes")
    assert (done.returncode, done.stdout[:2], len(done.stdout.splitlines())) == (1, "QI", 1)
    assert done.stderr == (
        "error: there are prefixes for 1 lines, and there are more lines: each needs one, which may be empty\n"
    )
    (tmp_path / "prefixes").write_text("QI\nRO\n")
    done = cli("translate", flat, "ba", "--prefix-file", tmp_path / "prefixes")
    assert (done.returncode, done.stdout[:2]) == (1, "QI")
    assert "prefixes has more lines than there are lines to translate" in done.stderr
    done = cli("translate", flat, "ba", "--prefix-file", tmp_path / "nowhere")
    assert done.returncode == 1
    assert "nowhere: No such file or directory" in done.stderr
    done = cli("translate", flat, "ba", "--prefix-file", tmp_path / "prefixes", "-o", tmp_path / "prefixes")
    assert done.returncode == 2
    assert "it would be lost" in done.stderr


def test_samples_follow_the_seed(cli: Command, flat: Path, sources: list[str]) -> None:
    def drawn(*flags: object) -> str:
        done = cli("translate", flat, "--sample", *flags, stdin=text(sources))
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert drawn() == drawn("--seed", 1) == drawn("--seed", 1, "--batch-size", 3)
    assert drawn("--seed", 2) != drawn("--seed", 1)
    assert drawn("--temperature", 3) != drawn()
    assert drawn("--top-p", 0.3) != drawn()
    greedy = cli("translate", flat, "--beam-size", 1, stdin=text(sources)).stdout
    assert drawn("--top-k", 1) == greedy
    several = translated(cli, flat, "--sample", "--n-best", 5, "--temperature", 2, "ba ce di fo")
    assert len({one["text"] for one in several}) >= 4
    scores = [one["score"] for one in several]
    assert scores == sorted(scores, reverse=True)


def test_a_run_and_itself_translate_as_the_run_and_with_another_checkpoint_otherwise(
    cli: Command, trained: Path, flat: Path, sources: list[str]
) -> None:
    alone = translated(cli, flat, stdin=text(sources))
    twice = translated(cli, flat, "--ensemble", flat, stdin=text(sources))
    assert [one["score"] for one in twice] == pytest.approx([one["score"] for one in alone], abs=1e-4)
    both = translated(cli, flat, "--ensemble", trained, "--ensemble", flat, stdin=text(sources))
    assert [one["text"] for one in both] != [one["text"] for one in alone]


def test_an_ensemble_of_different_vocabularies_is_refused_by_name(cli: Command, flat: Path, other: Path) -> None:
    done = cli("translate", flat, "di", "--ensemble", other)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{other} has other tokenizers than {flat}: the models of an ensemble need one vocabulary" in done.stderr
    done = cli("translate", flat, "di", "--ensemble", other / "nowhere")
    assert done.returncode == 1
    assert "nowhere does not exist" in done.stderr


def test_alignments_are_pharaohs_pairs_beside_the_pieces(cli: Command, flat: Path) -> None:
    found = translated(cli, flat, "--alignments", "--n-best", 2, "ba ce di", "", "fo")
    assert len(found) == 5
    for one in found:
        pairs = [tuple(map(int, pair.split("-"))) for pair in one["alignment"].split()]
        assert [j for _, j in pairs] == list(range(len(one["pieces"])))
        assert all(0 <= i < len(one["source_pieces"]) for i, _ in pairs)
    assert (found[2]["source_pieces"], found[2]["alignment"]) == ([], "")


def test_a_paragraph_is_translated_sentence_by_sentence(
    cli: Command, train: Command, small: Path, flat: Path, tmp_path: Path
) -> None:
    source = "Ba ce. Di fo! Gu\n\nha\n"
    done = cli("translate", flat, "--split-sentences", stdin=source)
    assert done.returncode == 0
    parts = cli("translate", flat, "Ba ce.", "Di fo!", "Gu", "ha").stdout.splitlines()
    # So small a model may have no words for a sentence, for which the paragraph has no space either.
    assert len([*filter(None, parts[:3])]) > 1
    assert done.stdout.splitlines() == [" ".join(filter(None, parts[:3])), "", parts[3]]
    assert cli("translate", flat, "--split-sentences", "--batch-size", 1, stdin=source).stdout == done.stdout
    # A run that gives several translations gives the best alone.
    settings = ("training.max_steps=1", "decoding={n_best: 2, max_length_a: 1.0, max_length_b: 1}")
    assert train(small, tmp_path / "run", *settings).returncode == 0
    done = cli("translate", tmp_path / "run", "--split-sentences", "Ba ce. Di.")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert "|||" not in done.stdout


REFUSALS = {
    "text and a file": (["di", "--input", "x"], "give sentences as arguments or a file with --input, not both"),
    "two kinds of prefix": (
        ["--prefix", "A", "--prefix-file", "x"],
        "--prefix-file and --prefix both say how translations begin: give one of them",
    ),
    **{
        f"{flag} without samples": ([flag, value], f"{flag} says how to draw: it needs --sample")
        for flag, value in (("--temperature", "2"), ("--top-k", "3"), ("--top-p", "0.5"), ("--seed", "0"))
    },
    "a beam of samples": (
        ["--sample", "--beam-size", "3"],
        "--beam-size is for searching, and --sample draws (--n-best): leave one of them out",
    ),
    **{
        f"{flag} of sentences": (
            [flag, *value, "--split-sentences", "--format", "jsonl"],
            f"{flag} is for whole lines, and --split-sentences takes them apart: leave one of them out",
        )
        for flag, value in (("--prefix", ["A"]), ("--prefix-file", ["x"]), ("--alignments", []), ("--n-best", ["1"]))
    },
    **{
        f"{flag} of the engine": (
            [flag, *value, "--engine", "ctranslate2", "--format", "jsonl"],
            f"{flag} is not there with --engine ctranslate2: leave one of them out",
        )
        for flag, value in (
            ("--sample", []),
            ("--prefix", ["A"]),
            ("--prefix-file", ["x"]),
            ("--ensemble", ["x"]),
            ("--alignments", []),
        )
    },
    "int8 without the engine": (["--precision", "int8"], "--precision int8 needs --engine ctranslate2"),
    "alignments in plain text": (["--alignments"], "--alignments needs --format jsonl, which has room for them"),
}


@pytest.mark.parametrize(("flags", "message"), REFUSALS.values(), ids=REFUSALS)
def test_flags_that_do_not_go_together_are_refused(
    cli: Command, tmp_path: Path, flags: list[str], message: str
) -> None:
    done = cli("translate", tmp_path / "nowhere", *flags)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--min-length", -1], "error: --min-length must be at least 0, not -1\n"),
        (["--no-repeat-ngram-size", -1], "error: --no-repeat-ngram-size must be at least 0, not -1\n"),
        (["--repetition-penalty", 0.5], "error: --repetition-penalty must be at least 1, not 0.5\n"),
    ],
)
def test_a_constraint_that_cannot_be_is_refused_by_its_flag(
    cli: Command, flat: Path, flags: list[object], message: str
) -> None:
    done = cli("translate", flat, "di", *flags)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


# Long lines and long jobs


def test_a_line_longer_than_any_in_training_is_named_and_not_cut(cli: Command, flat: Path) -> None:
    long = " ".join(["ba ce di fo"] * 12)
    done = cli("translate", flat, "--format", "jsonl", stdin=f"ba\n\n{long}\nce\n")
    assert done.returncode == 0
    translator = Translator.load(flat, device="cpu")
    pieces, most = len(translator.tokenizers.source.encode(long)), translator.longest_source
    assert most is not None
    assert most < translator.config.data.max_length == 64
    assert f"line 3 has {pieces} pieces, more than any line in training (at most {most})" in done.stderr
    assert "--split-sentences translates sentence by sentence" in done.stderr
    assert done.stderr.count("more than any line") == 1
    assert len(done.stdout.splitlines()) == 4


def test_of_lines_that_are_split_the_one_with_too_long_a_sentence_is_named(cli: Command, flat: Path) -> None:
    long = f"Ba {' '.join(['ba ce di fo'] * 12)}."
    text = f"Ba. Ce.\n\nDi fo. {long} Gu.\n{'Ba ce. ' * 60}\n"
    done = cli("translate", flat, "--split-sentences", stdin=text)
    assert done.returncode == 0
    translator = Translator.load(flat, device="cpu")
    pieces, most = len(translator.tokenizers.source.encode(long)), translator.longest_source
    assert f"line 3 has a sentence of {pieces} pieces, more than any in training (at most {most})" in done.stderr
    assert done.stderr.count("more than any") == 1
    assert len(done.stdout.splitlines()) == 4


def test_an_interrupt_leaves_whole_lines_in_the_file(flat: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("di fo gu\n" * 20_000)
    program = [sys.executable, "-m", "transformer_cli", "translate", flat, "--batch-size", "2", "--threads", "1"]
    streams = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    process = subprocess.Popen([*program, *streams], stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not ((tmp_path / "out").exists() and (tmp_path / "out").stat().st_size) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.read().endswith(b"interrupted\n")
    assert process.wait() == 130
    written = (tmp_path / "out").read_text()
    assert written.endswith("\n")
    assert len(set(written.splitlines())) == 1
    assert 0 < len(written.splitlines()) < 20_000


def test_memory_does_not_grow_with_the_lines(other: Path) -> None:
    translator = Translator.load(other, device="cpu")
    decoding = DecodingConfig(beam_size=1, max_length_a=0.0, max_length_b=1)
    answers = translator.translate(itertools.repeat("ba", 20_000), decoding, 250)
    tracemalloc.start()
    try:
        assert sum(1 for _ in islice(answers, 6000)) == 6000
        early = tracemalloc.get_traced_memory()[0]
        assert sum(1 for _ in islice(answers, 12_000)) == 12_000
        late = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert late - early < 500_000, "12,000 translations kept would be several megabytes"


# score


def test_scores_of_the_command_are_those_of_the_search(
    cli: Command, flat: Path, sources: list[str], tmp_path: Path
) -> None:
    found = translated(cli, flat, "--n-best", 3, stdin=text(sources[:8] + sources[9:20]))
    lines = [(sources[:8] + sources[9:20])[one["index"]] for one in found]
    (tmp_path / "src").write_text(text(lines))
    (tmp_path / "tgt").write_text(text([one["text"] for one in found]))
    arguments = ("score", flat, "--source", tmp_path / "src", "--target", tmp_path / "tgt")
    done = cli(*arguments, "--format", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    scored = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(one) for one in scored] == [["index", "log_prob", "pieces", "token_log_probs"]] * len(found)
    assert [one["index"] for one in scored] == list(range(len(found)))
    same = 0
    for one, expected in zip(scored, found, strict=True):
        assert len(one["token_log_probs"]) == len(one["pieces"]) + 1
        if one["pieces"] == expected["pieces"] and not expected["truncated"]:
            same += 1
            assert one["log_prob"] == pytest.approx(expected["log_prob"], abs=1e-5)
            assert one["token_log_probs"] == pytest.approx(expected["token_log_probs"], abs=1e-5)
    assert same > len(found) / 3
    plain = cli(*arguments)
    assert [float(line) for line in plain.stdout.splitlines()] == [one["log_prob"] for one in scored]
    one_by_one = cli(*arguments, "--batch-size", 1, "-o", tmp_path / "out")
    assert (one_by_one.returncode, one_by_one.stdout) == (0, "")
    alone = [float(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert alone == pytest.approx([one["log_prob"] for one in scored], abs=1e-4)


def test_what_cannot_be_scored_is_told(cli: Command, train: Command, small: Path, flat: Path, tmp_path: Path) -> None:
    (tmp_path / "src").write_text("ba\nce\n\n")
    (tmp_path / "tgt").write_text("BA\n")
    arguments = ("--source", tmp_path / "src", "--target", tmp_path / "tgt")
    done = cli("score", flat, *arguments)
    assert done.returncode == 1
    assert "src has 3 lines and" in done.stderr
    assert "tgt has 1" in done.stderr
    done = cli("score", flat, "--source", tmp_path / "src", "--target", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nowhere: No such file or directory" in done.stderr
    done = cli("score", flat, *arguments, "-o", tmp_path / "tgt")
    assert done.returncode == 2
    assert "it would be lost" in done.stderr
    settings = ("model.positions=learned", "model.max_positions=65", "training.max_steps=1")
    assert train(small, tmp_path / "run", *settings).returncode == 0
    (tmp_path / "tgt").write_text("BA\n" + "CE " * 40 + "\n\n")
    done = cli("score", tmp_path / "run", *arguments)
    assert done.returncode == 1
    assert re.search(r"error: line 2 has \d+ pieces.*take at most 64: leave the pair out", done.stderr)


# CTranslate2


def test_the_engine_is_exported_once_and_translates_the_same(
    cli: Command, trained: Path, sources: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("ctranslate2")
    run = tmp_path / "run"
    run.mkdir()
    (run / "model.safetensors").write_bytes((trained / "model.safetensors").read_bytes())
    for flags in ((), ("--beam-size", 1), ("--length-penalty-type", "avg"), ("--n-best", 2), ("--precision", "fp32")):
        ours = translated(cli, run, *flags, stdin=text(sources))
        theirs = cli("translate", run, *flags, "--engine", "ctranslate2", "--format", "jsonl", stdin=text(sources))
        assert theirs.returncode == 0, theirs.stderr
        assert theirs.stderr.count(f"exporting the model to {run / 'ctranslate2'}") == (not flags)
        found = [json.loads(line) for line in theirs.stdout.splitlines()]
        assert [one["score"] for one in found] == pytest.approx([one["score"] for one in ours], abs=1e-4)
        differing = sum(one["text"] != two["text"] for one, two in zip(ours, found, strict=True))
        assert differing <= 1
    done = cli("translate", run, "--engine", "ctranslate2", "--precision", "int8", stdin=text(sources))
    assert (done.returncode, len(done.stdout.splitlines())) == (0, len(sources))


def test_the_export_for_the_engine_is_whole_whatever_it_computes_in(
    cli: Command, trained: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ctranslate2")
    for name, precision in (("one", "auto"), ("two", "int8")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes((trained / "model.safetensors").read_bytes())
        done = cli("translate", tmp_path / name, "di", "--engine", "ctranslate2", "--precision", precision)
        assert done.returncode == 0, done.stderr
    one, two = (tmp_path / name / "ctranslate2" / "model.bin" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("flag", ["--min-length", "--no-repeat-ngram-size"])
def test_what_the_engine_understands_otherwise_is_refused_before_anything_is_lost(
    cli: Command, flat: Path, tmp_path: Path, flag: str
) -> None:
    pytest.importorskip("ctranslate2")
    (tmp_path / "out").write_text("of yesterday")
    done = cli("translate", flat, "di", flag, 2, "--engine", "ctranslate2", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert f"{flag} 2 gives other scores with --engine ctranslate2" in done.stderr
    assert (tmp_path / "out").read_text() == "of yesterday"


def test_a_run_is_exported_with_its_proof(cli: Command, trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    done = cli("export", trained, "-o", tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'out'}\n"), done.stderr
    assert re.search(r"beam 1: (\d+) of 40 lines the same, \d ties\n", done.stderr)
    assert re.search(r"beam 4: (\d+) of 40 lines the same, \d ties\n", done.stderr)
    assert (tmp_path / "out" / "model.bin").is_file()
    again = cli("export", trained, "-o", tmp_path / "out")
    assert again.returncode == 2
    assert "is not empty: name a new folder, or remove it first" in again.stderr


def test_a_model_file_alone_is_exported_with_text_for_the_proof(cli: Command, trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    model = tmp_path / "alone.safetensors"
    model.write_bytes((trained / "model.safetensors").read_bytes())
    done = cli("export", model, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "alone.safetensors is not in a run directory, which would name a validation set: give --text" in done.stderr
    (tmp_path / "text").write_text("ba ce\n\ndi fo gu\n")
    done = cli("export", model, "-o", tmp_path / "out", "--text", tmp_path / "text", "--quantization", "int8")
    assert done.returncode == 0, done.stderr
    assert re.search(r"in int8: \d of 3 lines the same, greedily\n", done.stderr)


def test_a_model_that_has_hardly_been_trained_is_not_exported_and_the_error_says_why(
    cli: Command, other: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ctranslate2")
    done = cli("export", other, "-o", tmp_path / "out")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("beam 1: ")
    assert "\nwarning: DIFFERENT: " in done.stderr
    assert "so nothing is exported. A model that has hardly been trained" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_ctranslate2_one_line_says_what_to_install(
    cli: Command, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for arguments in (
        ("export", trained, "-o", tmp_path / "out"),
        ("translate", trained / "model.safetensors", "di", "--engine", "ctranslate2"),
    ):
        done = cli(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.endswith("error: CTranslate2 is not installed: pip install ctranslate2\n")
    assert not (tmp_path / "out").exists()
    assert not (trained / "ctranslate2").exists()
