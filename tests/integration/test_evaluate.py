"""`transformer-cli evaluate`: sacreBLEU's numbers for a run's own sets, for files, and for what others translated."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from transformer_cli.decoding.translator import Translator

Command = Callable[..., CompletedProcess[str]]

# Four sentences for which the usual mistakes give other numbers: 52.06 is the mean over sentences, 54.88 over batches
# of two, 20.66 comes without tokenisation, 66.79 in lower case, 61.06 with the files swapped.
HYPOTHESES = """\
the quick fox jumps over a lazy dog
nothing matches here at all
we will meet at 10:30 tomorrow .
Prices rose by 3.5 % in May .
"""
REFERENCES = """\
The quick brown fox jumps over the lazy dog.
completely different words instead
We will meet at 10:30 tomorrow.
Prices rose by 3.5% in May.
"""
BLEU = 61.60360074787949


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "hyp").write_text(HYPOTHESES)
    (folder / "ref").write_text(REFERENCES)
    (folder / "ref2").write_text(REFERENCES.replace("quick brown", "fast").lower())
    (folder / "three").write_text("".join(REFERENCES.splitlines(keepends=True)[:3]))
    (folder / "empty").touch()
    return folder


@pytest.fixture(scope="module")
def made_up(trained: Path) -> Path:
    """The folder of the corpus that the run was trained on."""
    return trained.parents[1]


def sacrebleu(*arguments: object, metrics: tuple[str, ...] = ("bleu", "chrf")) -> Any:
    """What the sacrebleu command says, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *map(str, arguments), "-m", *metrics, "-w", "4", "--format", "json"],
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def signature_of(line: str) -> str:
    return line.split()[-1]


# Translations that are there already


def test_the_program_gives_the_corpus_bleu_of_four_sentences(program: Command, texts: Path) -> None:
    done = program("evaluate", "--hypothesis", texts / "hyp", "--reference", texts / "ref", env={"LC_ALL": "C"})
    assert done.returncode == 0
    *signature, version = signature_of(done.stdout).split("|")
    assert done.stdout.startswith("ref BLEU 61.60 chrF2 62.91 ")
    assert signature == ["nrefs:1", "case:mixed", "eff:no", "tok:13a", "smooth:exp"]
    assert version.startswith("version:")
    assert "the hypotheses look tokenised" in done.stderr


def test_a_file_name_of_any_script_is_printed_under_any_locale(program: Command, texts: Path, tmp_path: Path) -> None:
    shutil.copy(texts / "ref", tmp_path / "r\u00e9f\u4f60")
    locale = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = program("evaluate", "--hypothesis", texts / "hyp", "--reference", tmp_path / "r\u00e9f\u4f60", env=locale)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("r\u00e9f\u4f60 BLEU 61.60 ")


def test_it_says_what_the_sacrebleu_command_says(cli: Command, texts: Path) -> None:
    for references in (["ref"], ["ref", "ref2"]):
        flags = [word for name in references for word in ("--reference", texts / name)]
        ours = json.loads(cli("evaluate", "--hypothesis", texts / "hyp", *flags, "--json").stdout)["ref"]
        theirs = sacrebleu(*(texts / name for name in references), "-i", texts / "hyp")
        assert [score["name"] for score in theirs] == list(ours) == ["BLEU", "chrF2"]
        for score in theirs:
            assert round(ours[score["name"]]["score"], 4) == score["score"]
            assert ours[score["name"]]["signature"] == score["signature"]


def test_json_is_one_object_unrounded(cli: Command, texts: Path) -> None:
    done = cli("evaluate", "--hypothesis", texts / "hyp", "--reference", texts / "ref", "--json")
    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    assert list(found) == ["ref"]
    assert list(found["ref"]) == ["BLEU", "chrF2"]
    assert all(set(score) == {"score", "signature"} for score in found["ref"].values())
    assert found["ref"]["BLEU"]["score"] == pytest.approx(BLEU, abs=1e-9)


def test_several_references_are_one_set_and_any_of_them_may_be_matched(cli: Command, texts: Path) -> None:
    one = cli("evaluate", "--hypothesis", texts / "ref2", "--reference", texts / "ref")
    two = cli("evaluate", "--hypothesis", texts / "ref2", "--reference", texts / "ref", "--reference", texts / "ref2")
    assert "BLEU 100.00" not in one.stdout
    assert two.stdout.startswith("ref BLEU 100.00 chrF2 100.00 nrefs:2|")


@pytest.mark.parametrize(
    ("flags", "start", "tok", "case"),
    [
        (["--tokenize", "none"], "ref BLEU 20.66 ", "none", "mixed"),
        (["--lowercase"], "ref BLEU 66.79 ", "13a", "lc"),
        (["--tokenize", "intl"], "ref BLEU ", "intl", "mixed"),
        (["--tokenize", "char"], "ref BLEU ", "char", "mixed"),
        (["--target-lang", "zh"], "ref BLEU ", "zh", "mixed"),
        (["--target-lang", "zh-TW"], "ref BLEU ", "zh", "mixed"),
        (["--target-lang", "de"], "ref BLEU 61.60 ", "13a", "mixed"),
        (["--target-lang", "zh", "--tokenize", "13a"], "ref BLEU 61.60 ", "13a", "mixed"),
    ],
)
def test_tokenizer_and_case_are_chosen_by_flags_and_stand_in_the_signature(
    cli: Command, texts: Path, flags: list[str], start: str, tok: str, case: str
) -> None:
    done = cli("evaluate", "--hypothesis", texts / "hyp", "--reference", texts / "ref", *flags)
    assert done.returncode == 0
    assert done.stdout.startswith(start)
    assert f"|case:{case}|" in done.stdout
    assert f"|tok:{tok}|" in done.stdout


def test_the_suffix_of_the_reference_tells_the_tokenizer_where_nothing_else_does(
    cli: Command, texts: Path, tmp_path: Path
) -> None:
    shutil.copy(texts / "ref", tmp_path / "ref.zh")
    shutil.copy(texts / "ref", tmp_path / "ref.fr")
    hypothesis = ("evaluate", "--hypothesis", texts / "hyp", "--reference")
    assert "|tok:zh|" in cli(*hypothesis, tmp_path / "ref.zh").stdout
    assert "|tok:13a|" in cli(*hypothesis, tmp_path / "ref.fr").stdout
    assert "|tok:13a|" in cli(*hypothesis, tmp_path / "ref.zh", "--target-lang", "en").stdout


@pytest.mark.parametrize(
    ("metrics", "names"), [(["bleu"], ["BLEU"]), (["chrf"], ["chrF2"]), (["chrf", "bleu"], ["chrF2", "BLEU"])]
)
def test_the_metrics_asked_for_come_in_their_order(
    cli: Command, texts: Path, metrics: list[str], names: list[str]
) -> None:
    flags = [word for metric in metrics for word in ("--metric", metric)]
    done = cli("evaluate", "--hypothesis", texts / "hyp", "--reference", texts / "ref", *flags)
    assert [word for word in done.stdout.split() if word in ("BLEU", "chrF2")] == names
    assert json.loads(
        cli("evaluate", "--hypothesis", texts / "hyp", "--reference", texts / "ref", *flags, "--json").stdout
    )["ref"].keys() == set(names)


def test_a_limit_scores_the_first_lines_alone(cli: Command, texts: Path) -> None:
    done = cli("evaluate", "--hypothesis", texts / "hyp", "--reference", texts / "three", "--limit", 3, "--json")
    scored = json.loads(done.stdout)["three"]["BLEU"]["score"]
    (texts / "hyp3").write_text("".join(HYPOTHESES.splitlines(keepends=True)[:3]))
    whole = cli("evaluate", "--hypothesis", texts / "hyp3", "--reference", texts / "three", "--json")
    assert scored == json.loads(whole.stdout)["three"]["BLEU"]["score"]


def test_only_a_line_feed_ends_a_line(cli: Command, tmp_path: Path) -> None:
    odd = b"ba\xe2\x80\xa8ce\ndi\xc2\x85fo\ngu\x0bha\nje\x0cki\nlo\x1cmu\nna\rpe\nqi ro\r\nsu ta\n"
    (tmp_path / "odd").write_bytes(odd)
    (tmp_path / "plain").write_text("ba ce\ndi fo\ngu ha\nje ki\nlo mu\nna pe\nqi ro\nsu ta\n")
    done = cli("evaluate", "--hypothesis", tmp_path / "odd", "--reference", tmp_path / "plain", "--metric", "chrf")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("plain chrF2 ")


def test_every_metric_is_what_the_sacrebleu_command_says(cli: Command, texts: Path) -> None:
    flags = [word for metric in ("bleu", "chrf", "chrf++", "ter") for word in ("--metric", metric)]
    files = ("--hypothesis", texts / "hyp", "--reference", texts / "ref")
    found = json.loads(cli("evaluate", *files, *flags, "--intervals", "--json").stdout)["ref"]
    assert list(found) == ["BLEU", "chrF2", "chrF2++", "TER"]
    for theirs in (
        *sacrebleu(texts / "ref", "-i", texts / "hyp", "--confidence", metrics=("bleu", "chrf", "ter")),
        sacrebleu(texts / "ref", "-i", texts / "hyp", "--confidence", "--chrf-word-order", "2", metrics=("chrf",)),
    ):
        ours = found[theirs["name"]]
        assert ours["signature"] == theirs["signature"]
        for key in ("score", "confidence_mean", "confidence_var"):
            assert round(ours[key], 4) == theirs[key], key


def test_the_result_line_shows_intervals_when_asked(cli: Command, texts: Path) -> None:
    files = ("--hypothesis", texts / "hyp", "--reference", texts / "ref", "--metric", "bleu")
    done = cli("evaluate", *files, "--intervals")
    assert re.match(r"ref BLEU 61\.60 \(\d+\.\d\d ± \d+\.\d\d\) nrefs:1\|bs:1000\|seed:12345\|", done.stdout)


def test_a_record_a_line_goes_to_a_file_or_to_standard_output(cli: Command, texts: Path, tmp_path: Path) -> None:
    files = ("--hypothesis", texts / "hyp", "--source", texts / "ref2", "--reference", texts / "ref")
    done = cli("evaluate", *files, "--sentences", tmp_path / "lines.jsonl")
    assert done.stdout.startswith("ref BLEU 61.60 ")
    records = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [record["index"] for record in records] == [0, 1, 2, 3]
    assert [record["hypothesis"] for record in records] == HYPOTHESES.splitlines()
    assert records[0].keys() == {"set", "index", "source", "references", "hypothesis", "scores"}
    assert records[0]["scores"].keys() == {"BLEU", "chrF2"}
    piped = cli("evaluate", *files, "--sentences", "-")
    assert piped.stdout == (tmp_path / "lines.jsonl").read_text()
    assert done.stdout in piped.stderr


def test_two_files_are_compared_as_sacrebleus_paired_test_does(cli: Command, texts: Path) -> None:
    files = ("--hypothesis", texts / "hyp", "--reference", texts / "ref", "--compare", texts / "ref2")
    found = json.loads(cli("evaluate", *files, "--json").stdout)["ref"]
    latex = subprocess.run(
        [
            *(sys.executable, "-m", "sacrebleu", texts / "ref", "-i", texts / "ref2", texts / "hyp"),
            *("-m", "bleu", "chrf", "--paired-bs", "--format", "latex", "-w", "4"),
        ],
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout
    for name in ("BLEU", "chrF2"):
        assert f"{found[name]['score']:.4f}" in latex
        assert f"{found[name]['baseline']['score']:.4f}" in latex
        assert f"p = {found[name]['p_value']:.4f}" in latex
    text = cli("evaluate", *files).stdout
    assert text.startswith("ref: hyp against ref2\n")
    assert "gained most, BLEU of the sentence\n  line " in text


def test_what_is_suspicious_is_a_warning_with_the_name_of_the_set(cli: Command, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "hyp").write_text(HYPOTHESES.replace("lazy", "&quot;lazy&quot;"))
    done = cli("evaluate", "--hypothesis", tmp_path / "hyp", "--reference", texts / "ref")
    assert (
        "warning: ref: the hypotheses hold HTML escapes such as &quot; in 1 of 4 lines (the first: line 1)"
        in done.stderr
    )
    source = ("--source", tmp_path / "hyp")
    done = cli("evaluate", "--hypothesis", tmp_path / "hyp", "--reference", texts / "ref", *source)
    assert "warning: ref: the hypotheses are the source itself in 4 of 4 lines (the first: line 1)" in done.stderr


def test_a_test_set_of_sacrebleus_is_scored_by_name(
    program: Command, trained: Path, made_up: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "wmt14" / "full"
    folder.mkdir(parents=True)
    for field in ("src", "ref", "docid", "genre", "origlang"):
        shutil.copy(made_up / ("test.src" if field == "src" else "test.tgt"), folder / f"wmt14_full.en-de.{field}")
    named = ("--test-set", "wmt14/full", "--lang-pair", "en-de")
    done = program("evaluate", trained, *named, env={"SACREBLEU": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wmt14/full BLEU ")
    hypothesis = ("--hypothesis", trained / "test" / "test.hyp")
    assert program("evaluate", *hypothesis, *named, env={"SACREBLEU": str(tmp_path)}).stdout == done.stdout


def test_a_test_set_without_a_network_is_one_message(program: Command, texts: Path, tmp_path: Path) -> None:
    environment = {"SACREBLEU": str(tmp_path), "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    named = ("--test-set", "wmt14/full", "--lang-pair", "en-de")
    done = program("evaluate", "--hypothesis", texts / "hyp", *named, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the test set wmt14/full is not on this machine, and fetching it failed (")
    assert done.stderr.endswith(f"copy its folder {tmp_path}/wmt14/full from a machine that has it\n")


# A run


def test_the_test_scores_of_training_come_out_again(cli: Command, training: tuple[Path, CompletedProcess[str]]) -> None:
    run, done = training
    again = cli("evaluate", run, "--threads", 1)
    assert again.returncode == 0
    assert again.stdout.splitlines() == done.stdout.splitlines()[:2]
    as_json = json.loads(cli("evaluate", run, "--json", "--threads", 1).stdout)
    assert as_json == json.loads((run / "test" / "scores.json").read_text())
    assert list(as_json) == ["test", "again"]


def test_the_test_scores_are_what_sacrebleu_says_of_the_translations_kept(trained: Path, made_up: Path) -> None:
    scores = json.loads((trained / "test" / "scores.json").read_text())["test"]
    for theirs in sacrebleu(made_up / "test.tgt", "-i", trained / "test" / "test.hyp"):
        assert round(scores[theirs["name"]]["score"], 4) == theirs["score"]
        assert scores[theirs["name"]]["signature"] == theirs["signature"]


@pytest.mark.parametrize("part", ["model.safetensors", "checkpoints/step-00000180.safetensors"])
def test_a_file_of_the_run_is_scored_on_the_sets_of_the_run(cli: Command, trained: Path, part: str) -> None:
    done = cli("evaluate", trained / part, "--limit", 5)
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["test", "again"]


def test_files_are_translated_and_scored(cli: Command, trained: Path, made_up: Path, tmp_path: Path) -> None:
    files = ("--source", made_up / "test.src", "--reference", made_up / "test.tgt")
    done = cli("evaluate", trained, *files, "--output", tmp_path / "out")
    assert done.returncode == 0
    assert done.stdout == "test.tgt " + cli("evaluate", trained).stdout.splitlines()[0].removeprefix("test  ") + "\n"
    assert (tmp_path / "out").read_bytes() == (trained / "test" / "test.hyp").read_bytes()
    by_hand = cli("evaluate", "--hypothesis", tmp_path / "out", "--reference", made_up / "test.tgt")
    assert by_hand.stdout == done.stdout


def test_several_references_and_a_limit_go_with_a_run_too(cli: Command, trained: Path, made_up: Path) -> None:
    files = ("--source", made_up / "test.src", "--reference", made_up / "test.tgt", "--reference", made_up / "test.src")
    done = cli("evaluate", trained, *files, "--limit", 3)
    assert done.returncode == 0
    assert done.stdout.startswith("test.tgt BLEU ")
    assert " nrefs:2|" in done.stdout


def test_a_translation_made_by_flags_is_scored(cli: Command, trained: Path, made_up: Path, tmp_path: Path) -> None:
    flags = ("--beam-size", 1, "--max-length-a", 0, "--max-length-b", 2, "--batch-size", 3, "--device", "cpu")
    files = ("--source", made_up / "test.src", "--reference", made_up / "test.tgt")
    assert cli("evaluate", trained, *files, *flags, "--output", tmp_path / "out").returncode == 0
    translated = cli("translate", trained, "--input", made_up / "test.src", *flags)
    assert (tmp_path / "out").read_text() == translated.stdout


def test_a_greedy_translation_is_scored_as_the_validation_of_that_step_was(
    cli: Command, trained: Path, made_up: Path, tmp_path: Path
) -> None:
    events = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    valid = next(event for event in events if event["event"] == "valid" and event["step"] == 180)
    assert valid["decoding"]["beam_size"] == 1
    model = trained / "checkpoints" / "step-00000180.safetensors"
    for batch_size in (1, 64):
        out = tmp_path / f"out{batch_size}"
        flags = ("--beam-size", 1, "--batch-size", batch_size)
        assert cli("translate", model, "--input", made_up / "valid.src", "--output", out, *flags).returncode == 0
        (bleu, chrf) = sacrebleu(made_up / "valid.tgt", "-i", out)
        assert bleu["score"] == pytest.approx(valid["scores"]["BLEU"]["score"], abs=0.01)
        assert chrf["score"] == pytest.approx(valid["scores"]["chrF2"]["score"], abs=0.01)


def test_the_settings_and_the_language_of_the_run_choose_the_score(
    cli: Command, train: Command, small: Path, tmp_path: Path
) -> None:
    settings = (
        "training.max_steps=1",
        "data.target_lang=zh",
        "evaluation={metrics: [chrf, bleu], lowercase: true}",
    )
    done = train(small, tmp_path / "run", *settings)
    assert done.returncode == 0
    assert done.stdout.startswith("test chrF2 ")
    assert cli("evaluate", tmp_path / "run").stdout == done.stdout
    bleu = cli("evaluate", tmp_path / "run", "--metric", "bleu").stdout
    assert "|case:lc|" in bleu
    assert "|tok:zh|" in bleu
    reference = ("--source", small.with_name("test.src"), "--reference", small.with_name("test.tgt"))
    assert "|tok:zh|" in cli("evaluate", tmp_path / "run", *reference, "--metric", "bleu").stdout
    assert "|tok:13a|" in cli("evaluate", tmp_path / "run", "--target-lang", "en", "--metric", "bleu").stdout


def test_two_runs_are_compared_on_the_sets_of_the_first(cli: Command, trained: Path, tmp_path: Path) -> None:
    early = trained / "checkpoints" / "step-00000150.safetensors"
    done = cli("evaluate", trained, "--compare", early, "--threads", 1, "--sentences", tmp_path / "lines")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"test: {trained.name} against step-00000150.safetensors\n")
    assert f"\nagain: {trained.name} against " in done.stdout
    found = json.loads(cli("evaluate", trained, "--compare", early, "--threads", 1, "--json").stdout)
    alone = json.loads(cli("evaluate", early, "--threads", 1, "--json").stdout)
    assert list(found) == ["test", "again"]
    for name in found:
        assert found[name]["BLEU"]["baseline"]["score"] == alone[name]["BLEU"]["score"]
    records = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert {"source", "baseline", "baseline_scores"} < records[0].keys()
    assert [record["set"] for record in records] == ["test"] * 40 + ["again"] * 80


def test_a_run_is_compared_with_translations_in_a_file(cli: Command, trained: Path, made_up: Path) -> None:
    files = ("--source", made_up / "test.src", "--reference", made_up / "test.tgt")
    done = cli("evaluate", trained, *files, "--compare", trained / "test" / "test.hyp", "--threads", 1, "--json")
    assert json.loads(done.stdout)["test.tgt"]["BLEU"]["difference"] == 0


def test_without_a_test_set_it_is_the_validation_set(cli: Command, train: Command, small: Path, tmp_path: Path) -> None:
    done = train(small, tmp_path / "run", "training.max_steps=1", "data.test=")
    assert done.returncode == 0
    assert done.stdout.startswith("valid BLEU ")
    assert done.stdout.count("\n") == 1
    assert cli("evaluate", tmp_path / "run").stdout == done.stdout


# Wrong combinations


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "nothing to evaluate: give a run, or --hypothesis and --reference"),
        (["RUN", "--hypothesis", "hyp"], 2, "give one of them"),
        (["RUN", "--reference", "ref"], 2, "--source is missing"),
        (["RUN", "--source", "hyp"], 2, "--reference is missing"),
        (["--hypothesis", "hyp"], 2, "--reference is missing"),
        (["--source", "hyp", "--reference", "ref"], 2, "nothing to evaluate: give a run"),
        (["RUN", "--output", "out"], 2, "--output takes one set, and there are 2: name one by --source"),
        (["RUN", "--output", "-"], 2, "--output - would mix translations and scores on standard output: name a file"),
        (["--hypothesis", "hyp", "--reference", "ref", "--output", "-"], 2, "--output - would mix"),
        (["RUN", "--beam-size", 0], 2, "--beam-size must be at least 1, not 0"),
        (["--hypothesis", "hyp", "--reference", "ref", "--tokenize", "x"], 2, "BLEU has no tokenizer x: choose one of"),
        (["--hypothesis", "hyp", "--reference", "ref", "--metric", "x"], 2, "--metric"),
        (["--hypothesis", "hyp", "--reference", "ref", "--limit", 0], 2, "--limit"),
        (["--hypothesis", "hyp", "--reference", "three"], 1, "hyp has 4 lines and "),
        (
            ["--hypothesis", "hyp", "--reference", "ref", "--reference", "three"],
            1,
            "three has 3: they must be parallel",
        ),
        (["--hypothesis", "hyp", "--reference", "nowhere"], 1, "nowhere: No such file or directory"),
        (["--hypothesis", "empty", "--reference", "empty"], 1, "no lines to score"),
        (["nowhere"], 1, "nowhere does not exist"),
        (["RUN", "--compare", "hyp"], 2, "--compare with a file takes one set, and there are 2: name one by --source"),
        (["RUN", "--compare", "gone.safetensors"], 1, "gone.safetensors does not exist"),
        (["--hypothesis", "hyp", "--reference", "ref", "--compare", "RUN"], 2, "--source is missing: what "),
        (["--hypothesis", "hyp", "--reference", "ref", "--compare", "three"], 1, "three has 3 lines and the set ref"),
        (["--hypothesis", "hyp", "--reference", "ref", "--compare", "gone"], 1, "gone: No such file or directory"),
        (
            ["--hypothesis", "hyp", "--reference", "ref", "--sentences", "-", "--json"],
            2,
            "would mix on standard output",
        ),
        (["--hypothesis", "hyp", "--reference", "ref", "--sentences", "ref"], 2, "--sentences is ref, which is to be"),
        (["--hypothesis", "hyp", "--test-set", "wmt14/full"], 2, "--lang-pair is missing: the languages of --test-set"),
        (["RUN", "--test-set", "wmt14/full"], 2, "--lang-pair is missing"),
        (["RUN", "--test-set", "wmt14/full", "--reference", "ref"], 2, "--test-set has its own source and references"),
        (["RUN", "--test-set", "x", "--lang-pair", "en-de"], 2, "sacreBLEU has no test set x"),
    ],
)
def test_what_cannot_be_evaluated_is_said_in_one_message(
    cli: Command,
    trained: Path,
    texts: Path,
    arguments: list[object],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(texts)
    done = cli("evaluate", *(trained if word == "RUN" else word for word in arguments))
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert not (texts / "out").exists()
    assert not (texts / "-").exists()


def test_what_would_fail_at_the_end_fails_before_the_work(
    cli: Command, trained: Path, made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "translate", None)  # it must not come so far
    source, reference = tmp_path / "src", tmp_path / "ref"
    shutil.copy(made_up / "test.src", source)
    shutil.copy(made_up / "test.tgt", reference)
    files = ("--source", source, "--reference", reference)
    for flags, message in (
        (("--output", reference), f"--output is {reference}, which is to be read"),
        (("--output", source), f"--output is {source}, which is to be read"),
        (("--output", tmp_path / "no" / "file"), "there is no folder"),
        (("--tokenize", "bogus"), "BLEU has no tokenizer bogus"),
    ):
        done = cli("evaluate", trained, *files, *flags)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
    assert reference.read_bytes() == (made_up / "test.tgt").read_bytes()


def test_a_model_away_from_its_run_needs_files(cli: Command, trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained / "model.safetensors", tmp_path / "alone.safetensors")
    done = cli("evaluate", tmp_path / "alone.safetensors")
    assert done.returncode == 2
    assert "is not in a run directory" in done.stderr


def test_a_test_set_that_is_gone_is_named(cli: Command, trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained / "model.safetensors", tmp_path)
    config = (trained / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(config.replace("test.src", "gone.src"))
    done = cli("evaluate", tmp_path)
    assert done.returncode == 1
    assert f"gone.src: {os.strerror(2)}" in done.stderr


def test_bytes_that_are_not_utf8_are_refused_or_replaced(cli: Command, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "hyp").write_bytes(HYPOTHESES.encode().replace(b"quick", b"qu\xffick"))
    flags = ("--hypothesis", tmp_path / "hyp", "--reference", texts / "ref")
    done = cli("evaluate", *flags)
    assert done.returncode == 1
    assert "hyp, line 1: byte 7 of the line is 0xFF" in done.stderr
    assert cli("evaluate", *flags, "--errors", "replace").returncode == 0


def test_bytes_that_are_not_utf8_in_the_sets_of_a_run_are_refused_or_replaced(
    cli: Command, trained: Path, made_up: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad").write_bytes((made_up / "test.tgt").read_bytes() + b"QU\xff\n")
    (tmp_path / "src").write_text((made_up / "test.src").read_text() + "qu\n")
    shutil.copy(trained / "model.safetensors", tmp_path)
    config = (trained / "config.yaml").read_text()
    config = config.replace(str(made_up / "test.tgt"), str(tmp_path / "bad"))
    (tmp_path / "config.yaml").write_text(config.replace(str(made_up / "test.src"), str(tmp_path / "src")))
    done = cli("evaluate", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "bad, line 41: byte 3 of the line is 0xFF" in done.stderr
    done = cli("evaluate", tmp_path, "--errors", "replace")
    assert done.returncode == 0
    assert done.stdout.startswith("test  BLEU ")
    assert "1 lines held bytes that are not UTF-8" in done.stderr


# Options that would have no effect


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--lang-pair", "en-zh"],
            "--lang-pair is for --test-set: the language of other text is given by --target-lang",
        ),
        (["--target-lang", "d"], "--target-lang must be a language tag such as en or pt-BR, not 'd'"),
        (["--beam-size", 8], "--beam-size says how to translate, and the translations are there already"),
        (["--length-penalty", 0.5], "--length-penalty says how to translate"),
        (["--length-penalty-type", "wu"], "--length-penalty-type says how to translate"),
        (["--precision", "bf16"], "--precision says how to translate"),
        (["--batch-size", 8], "--batch-size says how to translate"),
        (["--batch-size", 256], "--batch-size says how to translate"),  # as without it
        (["--device", "auto"], "--device says how to translate"),
        (
            ["--metric", "chrf", "--lowercase"],
            "--tokenize and --lowercase concern BLEU, which is not among the metrics",
        ),
        (["--metric", "ter", "--tokenize", "intl"], "--tokenize and --lowercase concern BLEU"),
        (["--output", "x", "--sentences", "x"], "--output and --sentences are both x: name two files"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    cli: Command, texts: Path, words: list[object], message: str
) -> None:
    done = cli("evaluate", "--hypothesis", texts / "hyp", "--reference", texts / "ref", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_language_that_is_given_chooses_the_tokenizer_whatever_the_runs_configuration_says(
    cli: Command, train: Command, small: Path, tmp_path: Path
) -> None:
    settings = ("evaluation.tokenize=intl", "training.max_steps=1")
    assert train(small, tmp_path / "run", *settings).returncode == 0
    for words, tokenizer in (([], "intl"), (["--target-lang", "zh"], "zh"), (["--target-lang", "de"], "13a")):
        assert f"|tok:{tokenizer}|" in cli("evaluate", tmp_path / "run", *words).stdout


def test_translations_are_made_as_translate_makes_them(cli: Command, trained: Path, tmp_path: Path) -> None:
    source, reference = trained.parents[1] / "test.src", trained.parents[1] / "test.tgt"
    flags = ["--beam-size", 4, "--length-penalty", 3, "--length-penalty-type", "wu", "--precision", "bf16"]
    words = ["--source", source, "--reference", reference, "--output", tmp_path / "made", *flags]
    done = cli("evaluate", trained, *words)
    assert done.returncode == 0, done.stderr
    alone = cli("translate", trained, "--input", source, *flags).stdout
    assert (tmp_path / "made").read_text() == alone
    plain = cli("translate", trained, "--input", source, "--scores", *flags[:2]).stdout
    assert plain != cli("translate", trained, "--input", source, "--scores", *flags).stdout, "the flags did something"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_scores_are_printed_also_where_the_file_of_sentences_cannot_be_written(cli: Command, texts: Path) -> None:
    words = ["--hypothesis", texts / "hyp", "--reference", texts / "ref"]
    done = cli("evaluate", *words, "--sentences", "/dev/full")
    assert done.returncode == 1
    assert done.stdout.startswith("ref BLEU 61.60 ")
    assert "cannot write /dev/full: No space left on device" in done.stderr


def test_quiet_leaves_the_scores_where_sentences_take_standard_output(cli: Command, texts: Path) -> None:
    done = cli("evaluate", "--hypothesis", texts / "hyp", "--reference", texts / "ref", "--sentences", "-", "--quiet")
    assert len(done.stdout.splitlines()) == 4
    assert "ref BLEU 61.60 " in done.stderr
