"""Scores equal sacreBLEU's own, to the last digit, and what stops them is said in one sentence."""

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import pytest
import sacrebleu

from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation import scores
from transformer_cli.evaluation.scores import Score, corpus_scores, metric_tokenizer, result_line, scores_json

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
CHINESE = ["他昨天去了北京。", "这本书（2019年）很好！", "我喜欢Python语言"]
CHINESE_REFERENCES = [["他昨天去过北京。", "这本书（2019年）非常好！", "我喜欢 Python 语言。"]]


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> Iterator[None]:
    scores._warn_tokenised.cache_clear()
    scores._mecab_or_char.cache_clear()
    yield
    scores._warn_tokenised.cache_clear()
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
        (GERMAN, GERMAN_REFERENCES, "intl", False),
        (CHINESE, CHINESE_REFERENCES, "zh", False),
        (CHINESE, CHINESE_REFERENCES, "char", False),
        (["", ""], [["not", "translated"]], "13a", False),
    ],
    ids=["three references", "lower case", "no tokenizer", "German intl", "Chinese zh", "Chinese char", "empty"],
)
def test_scores_equal_the_sacrebleu_command(
    tmp_path: Path, hypotheses: list[str], references: list[list[str]], tokenize: str, lowercase: bool
) -> None:
    reference_files = [write_lines(tmp_path / f"ref{number}", lines) for number, lines in enumerate(references)]
    hypothesis_file = write_lines(tmp_path / "hyp", hypotheses)
    printed = sacrebleu_command(
        [
            *map(str, reference_files),
            *("--input", str(hypothesis_file), "--metrics", "bleu", "chrf", "--width", "12"),
            *("--tokenize", tokenize, *(["--lowercase"] if lowercase else [])),
        ]
    )
    ours = corpus_scores(hypotheses, references, ["bleu", "chrf"], tokenize, lowercase)
    assert [(score.name, round(score.value, 12), score.signature) for score in ours] == [
        (result["name"], result["score"], result["signature"]) for result in json.loads(printed)
    ]


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
    with pytest.raises(ConfigError, match=r"^there is no metric blue: choose bleu or chrf$"):
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
        f'pip install "transformer-cli[{language}]", or choose the tokenizer char'
    )


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
        'pip install "transformer-cli[ja]"',
        "BLEU counts characters instead of words (tok:char): the tokenizer ko-mecab is not installed. For words: "
        'pip install "transformer-cli[ko]"',
    ]


# --- what is said -------------------------------------------------------------------------------------------------


def test_tokenised_text_is_said_once_in_our_words_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tokenised = ["This is a line ."] * 120
    plain = ["This is a line."] * 120
    bleu(tokenised, plain)
    bleu(tokenised, plain)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        (
            "transformer_cli.evaluation.scores",
            'the hypotheses look tokenised: a quarter or more of the lines end in " .". BLEU splits plain text by '
            "itself; this score is not comparable with those of plain text",
        )
    ]
    bleu(plain, tokenised)
    assert [record.getMessage().split(":")[0] for record in caplog.records[1:]] == ["the references look tokenised"]


def test_nothing_is_said_about_plain_text_or_without_a_tokenizer_or_without_bleu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bleu(["One.", "Two.", "Three.", "Four.", "Five ."], ["One.", "Two.", "Three.", "Four.", "Five."])
    bleu(["One ."], ["One ."], tokenize="none")
    corpus_scores(["One ."], [["One ."]], ["chrf"], "13a", False)
    assert caplog.messages == []


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
