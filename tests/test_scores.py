"""Scores equal sacreBLEU's own, to the last digit, and what stops them is said in one sentence."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import pytest
import sacrebleu

from transformer_cli.errors import ConfigError, DataError, Stopped
from transformer_cli.evaluation import scores
from transformer_cli.evaluation.scores import (
    Interval,
    Score,
    corpus_scores,
    metric_tokenizer,
    named_set,
    paired_bootstrap,
    result_line,
    result_table,
    scores_json,
    sentence_scores,
)

DATA = Path(os.environ.get("TRANSFORMER_CLI_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
VERSION = f"version:{sacrebleu.__version__}"

# A correct translation in several disguises, and a wrong one.
HYPOTHESES = [
    "the quick fox jumps over a lazy dog",
    "nothing matches here at all",
    "we will meet at 10:30 tomorrow .",
    "Prices rose by 3.5 % in May .",
]
REFERENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "completely different words instead",
    "We will meet at 10:30 tomorrow.",
    "Prices rose by 3.5% in May.",
]

ENGLISH = [
    "The cat sat on the mat, didn't it?",
    "",
    "He paid $1,234.56 for &quot;two&quot; tickets.  ",
    "A line separator\u2028and a\ttab stay inside the line.",
    "All of this is RIGHT.",
]
ENGLISH_REFERENCES = [
    [
        "The cat was sitting on the mat, wasn't it?",
        "This one was not translated.",
        "He paid $1,234.56 for two tickets.",
        "A line separator\u2028and one\ttab stay in the line.",
        "all of this is right.",
    ],
    ["The cat sat on a mat, did it not?", "", 'He bought "two" tickets for $1,234.56.', "", "All this is right."],
    ["", "", "Two tickets cost him $1,234.56.", "Nothing here breaks the line.", ""],
]
GERMAN = ["Der Hund läuft über die Straße.", "Ich weiß es nicht, sagte sie.", "Größe: 3,5 m²"]
GERMAN_REFERENCES = [["Ein Hund läuft über die Straße.", "Ich weiß nicht, sagte sie.", "Die Größe ist 3,5 m²."]]
JAPANESE = ["彼は昨日、北京に行きました。", "この本（2019年）はとても良い！", "私はPython言語が好きです"]
JAPANESE_REFERENCES = [["彼は昨日北京へ行った。", "この本（2019年）は非常に良い！", "私は Python 言語が好きです。"]]
CHINESE = ["他昨天去了北京。", "这本书（2019年）很好！", "我喜欢Python语言"]
CHINESE_REFERENCES = [["他昨天去过北京。", "这本书（2019年）非常好！", "我喜欢 Python 语言。"]]


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> Iterator[None]:
    scores._mecab_or_char.cache_clear()
    yield
    scores._mecab_or_char.cache_clear()


def without_mecab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ko_mecab.MeCab", None)


def bleu(hypotheses: list[str], references: list[str], tokenize: str = "13a", lowercase: bool = False) -> float:
    (score,) = corpus_scores(hypotheses, [references], ["bleu"], tokenize, lowercase)
    return score.value


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8"))
    return path


def sacrebleu_command(arguments: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "SACREBLEU_FORMAT"}
    command = [sys.executable, "-m", "sacrebleu", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True).stdout


# --- the numbers --------------------------------------------------------------------------------------------------


def test_published_cases_score_exactly_as_recorded() -> None:
    folder = DATA / "bleu-check"
    if not folder.is_dir():
        pytest.skip("no data set bleu-check")
    recorded = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    if recorded["sacrebleu"] != sacrebleu.__version__:
        pytest.skip(f"bleu-check was recorded with sacreBLEU {recorded['sacrebleu']}")
    found, expected = {}, {}
    for case in recorded["cases"]:
        name, options = case["name"], case["options"]
        hypotheses = lines_of(folder / f"{name}.hyp")
        assert len(hypotheses) == case["lines"]
        of_bleu, of_chrf = corpus_scores(
            hypotheses,
            [lines_of(folder / f"{name}.ref{number}") for number in range(case["refs"])],
            ["bleu", "chrf"],
            options.get("tokenize", "13a"),
            options.get("lowercase", False),
        )
        found[name] = (round(of_bleu.value, 4), of_bleu.signature, round(of_chrf.value, 4))
        expected[name] = (case["bleu"], case["signature"], case["chrf2"])
    assert found == expected
    assert len(found) == 16


def test_bleu_is_of_the_corpus_and_of_plain_text() -> None:
    right = round(bleu(HYPOTHESES, REFERENCES), 2)
    wrong = {
        "mean over sentences": sum(
            sacrebleu.sentence_bleu(hypothesis, [reference]).score
            for hypothesis, reference in zip(HYPOTHESES, REFERENCES, strict=True)
        )
        / 4,
        "mean over batches": (bleu(HYPOTHESES[:2], REFERENCES[:2]) + bleu(HYPOTHESES[2:], REFERENCES[2:])) / 2,
        "no tokenizer": bleu(HYPOTHESES, REFERENCES, tokenize="none"),
        "lower case": bleu(HYPOTHESES, REFERENCES, lowercase=True),
        "files swapped": bleu(REFERENCES, HYPOTHESES),
    }
    assert right == 61.60
    assert {name: round(value, 2) for name, value in wrong.items()} == {
        "mean over sentences": 52.06,
        "mean over batches": 54.88,
        "no tokenizer": 20.66,
        "lower case": 66.79,
        "files swapped": 61.06,
    }


def test_precisions_and_brevity_penalty_by_hand() -> None:
    # Six words: 5 of 6 unigrams, 4 of 5 bigrams, 3 of 4 trigrams and 2 of 3 4-grams match; the reference has 7 words.
    by_hand = 100 * math.exp(1 - 7 / 6) * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert bleu(["a b c d e x"], ["a b c d e f g"]) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(
    ("hypotheses", "references", "tokenize", "lowercase"),
    [
        (ENGLISH, ENGLISH_REFERENCES, "13a", False),
        (ENGLISH, ENGLISH_REFERENCES, "13a", True),
        (ENGLISH, ENGLISH_REFERENCES[:1], "none", False),
        (GERMAN, GERMAN_REFERENCES, "13a", False),
        (GERMAN, GERMAN_REFERENCES, "intl", False),
        (CHINESE, CHINESE_REFERENCES, "zh", False),
        (CHINESE, CHINESE_REFERENCES, "char", False),
        (JAPANESE, JAPANESE_REFERENCES, "ja-mecab", False),
        (JAPANESE, JAPANESE_REFERENCES, "char", False),
        (["", ""], [["not", "translated"]], "13a", False),
    ],
    ids=[
        "three references", "lower case", "no tokenizer", "German 13a", "German intl", "Chinese zh", "Chinese char",
        "Japanese mecab", "Japanese char", "empty",
    ],
)  # fmt: skip
def test_scores_and_their_intervals_equal_the_sacrebleu_command(
    tmp_path: Path, hypotheses: list[str], references: list[list[str]], tokenize: str, lowercase: bool
) -> None:
    if tokenize == "ja-mecab":
        pytest.importorskip("MeCab", reason="the extra ja is not installed")
    reference_files = [write_lines(tmp_path / f"ref{number}", lines) for number, lines in enumerate(references)]
    hypothesis_file = write_lines(tmp_path / "hyp", hypotheses)
    command = [
        *map(str, reference_files),
        *("--input", str(hypothesis_file), "--metrics", "bleu", "chrf", "ter", "--width", "12"),
        *("--tokenize", tokenize, *(["--lowercase"] if lowercase else [])),
    ]
    ours = corpus_scores(hypotheses, references, ["bleu", "chrf", "ter"], tokenize, lowercase)
    assert [(score.name, round(score.value, 12), score.signature, score.interval) for score in ours] == [
        (result["name"], result["score"], result["signature"], None)
        for result in json.loads(sacrebleu_command(command))
    ]
    # Four times as many, for sacreBLEU's command breaks off where a resample scores exactly 0.
    write_lines(hypothesis_file, hypotheses := hypotheses * 4)
    references = [lines * 4 for lines in references]
    for path, lines in zip(reference_files, references, strict=True):
        write_lines(path, lines)
    ours = corpus_scores(hypotheses, references, ["bleu", "chrf", "ter"], tokenize, lowercase, intervals=True)
    assert [(score.name, round(score.value, 12), score.signature, score.interval) for score in ours] == [
        (
            result["name"],
            result["score"],
            result["signature"],
            (result.get("confidence_mean", 0), result.get("confidence_var", 0)),
        )
        for result in json.loads(sacrebleu_command([*command, "--confidence"]))
    ]


def test_the_interval_of_a_few_lines_may_hold_scores_of_zero() -> None:
    (chrf,) = corpus_scores(ENGLISH, ENGLISH_REFERENCES, ["chrf"], "13a", False, intervals=True)
    assert chrf.value == corpus_scores(ENGLISH, ENGLISH_REFERENCES, ["chrf"], "13a", False)[0].value
    assert chrf.interval is not None
    assert 0 < chrf.interval.half < chrf.interval.mean
    assert "|bs:1000|seed:12345|" in chrf.signature


def test_chrf_plus_plus_counts_words_too_as_the_command_does(tmp_path: Path) -> None:
    files = [str(write_lines(tmp_path / "ref", ENGLISH_REFERENCES[0])), "-i", str(write_lines(tmp_path / "h", ENGLISH))]
    printed = sacrebleu_command([*files, "--metrics", "chrf", "--chrf-word-order", "2", "--width", "12"])
    (ours,) = corpus_scores(ENGLISH, ENGLISH_REFERENCES[:1], ["chrf++"], "13a", False)
    theirs = json.loads(printed)
    assert (ours.name, round(ours.value, 12), ours.signature) == ("chrF2++", theirs["score"], theirs["signature"])
    assert "|nw:2|" in ours.signature


def test_ter_by_hand() -> None:
    # One word is to be replaced and one to be added, in a reference of five words.
    (ter,) = corpus_scores(["a b x d"], [["a b c d e"]], ["ter"], "13a", False)
    assert ter.value == pytest.approx(100 * 2 / 5)


def english_lines(count: int) -> tuple[list[str], list[str], list[str]]:
    """References, translations with a word wrong in every third line, and with one missing in every second."""
    words = ["the", "a", "small", "old", "dog", "cat", "house", "sees", "likes", "finds", "under", "near", "red"]
    references = [" ".join(words[(7 * i + 3 * k * k + i * k) % 13] for k in range(6 + i % 7)) for i in range(count)]
    wrong = [line.replace(" dog", " horse") if i % 3 == 0 else line for i, line in enumerate(references)]
    short = [line.partition(" ")[2] if i % 2 else line for i, line in enumerate(references)]
    return references, wrong, short


def test_the_paired_bootstrap_equals_the_sacrebleu_command(tmp_path: Path) -> None:
    references, ours, baseline = english_lines(40)
    files = [
        write_lines(tmp_path / name, lines) for name, lines in zip("rbo", (references, baseline, ours), strict=True)
    ]
    command = [str(files[0]), "-i", *map(str, files[1:]), "-m", "bleu", "chrf", "ter", "--paired-bs", "-w", "6"]
    printed = " ".join(sacrebleu_command([*command, "--format", "latex"]).split())
    found = paired_bootstrap(ours, baseline, [references], ["bleu", "chrf", "ter"], "13a", False)
    assert [difference.score.name for difference in found] == ["BLEU", "chrF2", "TER"]
    for difference in found:
        for score in (difference.score, difference.baseline):
            assert score.interval is not None
            assert f"{score.value:.6f}" in printed
            assert f"{score.interval.mean:.6f}" in printed
            assert f"{score.interval.half:.6f}" in printed
            assert "|bs:1000|seed:12345|" in score.signature
        equal = difference.score.value == difference.baseline.value  # the command then gives the least p there is
        assert difference.p_value == 1.0 if equal else f"p = {difference.p_value:.4f}" in printed
    assert any(difference.p_value > 0.01 for difference in found), "all too sure to tell p-values apart"


def test_a_system_does_not_differ_from_itself() -> None:
    references, ours, _ = english_lines(20)
    for metric in ("bleu", "chrf", "ter"):
        (found,) = paired_bootstrap(ours, ours, [references], [metric], "13a", False)
        assert (found.score, found.p_value) == (found.baseline, 1.0)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_sentence_scores_equal_the_sacrebleu_command(tmp_path: Path, metric: str) -> None:
    hypotheses = [*ENGLISH, "Two words"]  # too few for n-grams of four
    references = [[*lines, "Two words more"] for lines in ENGLISH_REFERENCES]
    files = [str(write_lines(tmp_path / f"r{i}", lines)) for i, lines in enumerate(references)]
    command = [*files, "-i", str(write_lines(tmp_path / "hyp", hypotheses)), "-m", metric, "-sl", "-b", "-w", "12"]
    theirs = [float(line) for line in sacrebleu_command(command).split()]
    ours = [row[scores.NAMES[metric]] for row in sentence_scores(hypotheses, references, [metric], "13a", False)]
    assert [round(value, 12) for value in ours] == theirs


def test_lower_case_changes_bleu_and_leaves_chrf() -> None:
    mixed = corpus_scores(["THE CAT sat down."], [["the cat sat down."]], ["bleu", "chrf"], "13a", False)
    lower = corpus_scores(["THE CAT sat down."], [["the cat sat down."]], ["bleu", "chrf"], "13a", True)
    assert lower[0].value == pytest.approx(100)
    assert mixed[0].value < 100
    assert mixed[1] == lower[1]


def test_scores_come_in_the_order_asked_for_with_their_signatures() -> None:
    chrf, of_bleu = corpus_scores(["a b c d"], [["a b c d"], ["x"]], ["chrf", "bleu"], "char", True)
    assert (chrf.name, chrf.signature) == ("chrF2", f"nrefs:2|case:mixed|eff:yes|nc:6|nw:0|space:no|{VERSION}")
    assert (of_bleu.name, of_bleu.signature) == ("BLEU", f"nrefs:2|case:lc|eff:no|tok:char|smooth:exp|{VERSION}")


# --- what cannot be scored ----------------------------------------------------------------------------------------


def test_a_reference_set_of_another_length_is_refused_with_both_counts() -> None:
    with pytest.raises(DataError) as refused:
        corpus_scores(["a", "b", "c"], [["a", "b", "c"], ["a", "b"]], ["chrf"], "13a", False)
    assert str(refused.value) == (
        "3 hypotheses cannot be scored against the 2 lines of reference set 2: line N of one must belong to line N of "
        "the other"
    )


def test_no_lines_are_refused() -> None:
    with pytest.raises(DataError, match=r"^no lines to score: hypotheses and references are empty$"):
        corpus_scores([], [[]], ["bleu"], "13a", False)


def test_an_unknown_metric_or_tokenizer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"^there is no metric blue: choose bleu, chrf, chrf\+\+, ter$"):
        corpus_scores(["a"], [["a"]], ["blue"], "13a", False)
    with pytest.raises(ConfigError, match=r"^BLEU has no tokenizer 13b: choose one of none, zh, 13a, "):
        corpus_scores(["a"], [["a"]], ["bleu"], "13b", False)


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_a_tokenizer_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, language: str) -> None:
    without_mecab(monkeypatch)
    with pytest.raises(ConfigError) as refused:
        corpus_scores(["a"], [["a"]], ["bleu"], f"{language}-mecab", False)
    assert str(refused.value) == (
        f"BLEU's tokenizer {language}-mecab cannot be used: install it with "
        f'pip install "sacrebleu[{language}]", or choose the tokenizer char'
    )


def test_a_request_to_stop_is_no_failure_of_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(sacrebleu.BLEU):  # type: ignore[misc]
        def __init__(self, **_: object) -> None:
            raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(scores, "BLEU", Interrupted)
    with pytest.raises(Stopped):
        corpus_scores(["a"], [["a"]], ["bleu"], "13a", False)


@pytest.mark.parametrize("failure", [URLError("no route to host"), SystemExit(1)], ids=["offline", "certificate"])
@pytest.mark.parametrize("tokenize", ["spm", "flores101", "flores200"])
def test_a_tokenizer_whose_model_cannot_be_fetched_says_where_it_belongs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tokenize: str, failure: BaseException
) -> None:
    def download_file(url: str, path: str) -> None:
        raise failure

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", download_file)
    with pytest.raises(ConfigError) as refused:
        corpus_scores(["a"], [["a"]], ["bleu"], tokenize, False)
    message = str(refused.value)
    assert message.startswith(f"BLEU's tokenizer {tokenize} cannot be used: sacreBLEU downloads a model for it into ")
    assert f"({type(failure).__name__}: {failure})" in message


def test_a_tokenizer_whose_model_is_damaged_says_to_delete_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "flores200sacrebleuspm").write_bytes(b"half a mod")
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"flores200 cannot be used: .* delete a damaged one"):
        corpus_scores(["a"], [["a"]], ["bleu"], "flores200", False)


# --- the tokenizer of a language ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("zh", "zh"),
        ("zh-Hant-TW", "zh"),
        ("ZH_cn", "zh"),
        ("cmn", "zh"),
        ("yue-HK", "zh"),
        ("zha", "13a"),  # Zhuang, in Latin letters
        ("de", "13a"),
        ("en-CN", "13a"),
        ("und", "13a"),
    ],
)
def test_the_first_subtag_of_a_language_chooses_the_tokenizer(language: str, tokenizer: str) -> None:
    assert metric_tokenizer(language) == tokenizer


def test_japanese_and_korean_take_mecab_when_it_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scores, "_bleu", lambda tokenize, lowercase: None)
    assert [metric_tokenizer(tag) for tag in ("ja", "jpn", "ja-JP", "ko")] == ["ja-mecab"] * 3 + ["ko-mecab"]
    assert caplog.messages == []


def test_without_mecab_characters_are_counted_and_said_once_a_language(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_mecab(monkeypatch)
    assert [metric_tokenizer(tag) for tag in ("ja", "ja-JP", "ko", "ja", "ko-KR")] == ["char"] * 5
    assert caplog.messages == [
        "BLEU counts characters instead of words (tok:char): the tokenizer ja-mecab is not installed. For words: "
        'pip install "sacrebleu[ja]"',
        "BLEU counts characters instead of words (tok:char): the tokenizer ko-mecab is not installed. For words: "
        'pip install "sacrebleu[ko]"',
    ]


# --- how it is written --------------------------------------------------------------------------------------------

EXAMPLE = [
    Score("BLEU", 95.3149, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"),
    Score("chrF2", 97.396, "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0"),
]


def test_the_result_line_has_two_decimals_and_the_first_signature() -> None:
    line = "test BLEU 95.31 chrF2 97.40 nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    assert result_line("test", EXAMPLE) == line
    assert result_line("valid", EXAMPLE[1:]) == (
        "valid chrF2 97.40 nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0"
    )


def test_json_keeps_every_digit() -> None:
    assert json.loads(json.dumps(scores_json(EXAMPLE))) == {
        "BLEU": {"score": 95.3149, "signature": EXAMPLE[0].signature},
        "chrF2": {"score": 97.396, "signature": EXAMPLE[1].signature},
    }


def test_an_interval_stands_beside_its_score_and_under_sacrebleus_names_in_json() -> None:
    score = Score("BLEU", 25.8766, "nrefs:1|bs:1000", Interval(25.8837, 1.756))
    assert result_line("news", [score]) == "news BLEU 25.88 (25.88 ± 1.76) nrefs:1|bs:1000"
    assert scores_json([score]) == {
        "BLEU": {
            "score": 25.8766,
            "signature": "nrefs:1|bs:1000",
            "confidence_mean": 25.8837,
            "confidence_var": 1.756,
        }
    }


def test_several_sets_make_one_table_with_columns_in_line() -> None:
    rows = result_table({"news": EXAMPLE, "long talks": [Score("BLEU", 5.0, "s"), Score("chrF2", 100.0, "t")]})
    assert rows == [
        f"news       BLEU 95.31 chrF2 97.40  {EXAMPLE[0].signature}",
        "long talks BLEU 5.00  chrF2 100.00 s",
    ]
    assert result_table({"test": EXAMPLE}) == [result_line("test", EXAMPLE)]


# --- test sets by name --------------------------------------------------------------------------------------------


def test_a_named_set_is_found_in_sacrebleus_folder(tmp_path: Path) -> None:
    folder = tmp_path / "wmt14" / "full"
    folder.mkdir(parents=True)
    source, reference = (write_lines(folder / f"wmt14_full.en-de.{name}", [name]) for name in ("src", "ref"))
    for name in ("docid", "genre", "origlang"):
        write_lines(folder / f"wmt14_full.en-de.{name}", ["x"])
    script = (
        "from transformer_cli.evaluation.scores import named_set\n"
        "source, references = named_set('wmt14/full', 'en-de')\n"
        "print(source, *references)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "SACREBLEU": str(tmp_path)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout == f"{source} {reference}\n"


def test_an_unknown_set_or_pair_is_refused_with_those_near_it() -> None:
    with pytest.raises(ConfigError, match=r"^sacreBLEU has no test set wmt14/all: of that name there are wmt14/full, "):
        named_set("wmt14/all", "en-de")
    with pytest.raises(ConfigError, match=r"^sacreBLEU has no test set x: `sacrebleu --list` shows them all$"):
        named_set("x", "en-de")
    with pytest.raises(
        ConfigError, match=r"^the test set wmt14/full has no language pair en-xx: --lang-pair is one of "
    ):
        named_set("wmt14/full", "en-xx")


@pytest.mark.parametrize("failure", [URLError("no route to host"), SystemExit(1)], ids=["offline", "certificate"])
def test_a_set_that_cannot_be_fetched_says_where_it_belongs(
    monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def get_source_file(name: str, pair: str) -> str:
        raise failure

    monkeypatch.setattr(scores, "get_source_file", get_source_file)
    with pytest.raises(DataError) as refused:
        named_set("wmt14/full", "en-de")
    message = str(refused.value)
    assert message.startswith("the test set wmt14/full is not on this machine, and fetching it failed (")
    assert f"({type(failure).__name__}: {failure}). Go online once, or copy its folder " in message
    assert message.endswith("/wmt14/full from a machine that has it")
