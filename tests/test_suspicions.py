"""What makes a score doubtful is told with its count and its first line; plain text that belongs together is not."""

import json
import os
import random
from pathlib import Path

import pytest

from transformer_cli.evaluation.scores import Measure
from transformer_cli.evaluation.suspicions import suspicions, suspicions_of_references

DATA = Path(os.environ.get("TRANSFORMER_CLI_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
BLEU = Measure(["bleu", "chrf"], "13a", lowercase=False)
GERMAN = ["Der Hund schläft.", "Die Katze sieht den Vogel.", "Heute regnet es.", "Wir gehen nach Hause."]
ENGLISH = ["The dog sleeps.", "The cat sees the bird.", "It is raining today.", "We are going home."]


def told(
    hypotheses: list[str],
    references: list[str] = GERMAN,
    sources: list[str] | None = None,
    language: str = "de",
    measure: Measure = BLEU,
) -> list[str]:
    return list(suspicions(hypotheses, [references], sources, language, measure))


def test_plain_translations_raise_no_suspicion() -> None:
    assert told(GERMAN, sources=ENGLISH) == []
    assert told(["Ein Hund schläft.", "", "Es regnet.", "Heim gehen wir."], language="und") == []


def test_one_line_in_five_with_a_space_before_its_stop_is_no_tokenised_text() -> None:
    lines = ["Eins.", "Zwei.", "Drei.", "Vier.", "Fünf ."]
    assert told(lines, lines) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Der Hund schläft .", 'the hypotheses look tokenised: 1 of 4 lines (the first: line 3) end in " ." or hold'),
        ("ein gut @-@ er Hund", 'the hypotheses look tokenised: 1 of 4 lines (the first: line 3) end in " ." or hold'),
        ("\u2581Der \u2581Hu nd", "the hypotheses look cut into subwords: 1 of 4 lines (the first: line 3) hold"),
        ("Der Hu@@ nd schläft.", "the hypotheses look cut into subwords: 1 of 4 lines (the first: line 3) hold"),
        (
            "Er sagt: &quot;Ja.&quot;",
            "the hypotheses hold HTML escapes such as &quot; in 1 of 4 lines (the first: line",
        ),
        ("Das ist Tom&#39;s Hund.", "the hypotheses hold HTML escapes such as &quot; in 1 of 4 lines (the first: line"),
        ("Собака спит дома.", "the hypotheses are not in the script of de: 1 of 4 lines (the first: line 3). Are they"),
    ],
)
def test_text_that_is_not_plain_is_told_with_its_first_line(line: str, words: str) -> None:
    (found,) = told([*GERMAN[:2], line, GERMAN[3]])
    assert found.startswith(words)


def test_references_are_looked_at_too() -> None:
    bad = ["Der Hund schläft .", *GERMAN[1:]]
    (found,) = told(GERMAN, bad)
    assert found.startswith("the references look tokenised: 1 of 4 lines (the first: line 1)")
    assert list(suspicions_of_references(bad, Measure(["bleu"], "13a", lowercase=False))) == [found]


def test_with_the_tokenizer_none_tokenised_text_is_expected() -> None:
    lines = ["Der Hund schläft ."] * 4
    assert told(lines, lines, measure=Measure(["bleu"], "none", lowercase=False)) == []


def test_without_a_known_language_the_script_is_that_of_the_references() -> None:
    russian = ["Собака спит.", "Кошка видит птицу.", "Сегодня дождь.", "Мы идём домой."]
    (found,) = told(GERMAN, russian, language="und")
    assert found.startswith("the hypotheses are in another script than the references: 4 of 4 lines (the first: line 1")
    assert told(russian, russian, language="und") == []


def test_a_name_in_latin_letters_is_in_the_script_of_its_reference() -> None:
    assert told(["GPU"] * 4, ["這是 GPU"] * 4, language="und") == []


def test_hypotheses_equal_to_the_source_are_told_unless_the_reference_is_so_too() -> None:
    (found,) = told([ENGLISH[0], *GERMAN[1:3], ENGLISH[3]], sources=ENGLISH)
    assert found == (
        "the hypotheses are the source itself in 2 of 4 lines (the first: line 1): they are not translated there"
    )
    assert told(["Nokia 3310"] * 4, ["Nokia 3310"] * 4, sources=["Nokia 3310"] * 4) == []


def test_ter_of_text_without_spaces_is_told_to_say_little() -> None:
    lines = ["这是一个没有空格的很长的中文句子，它的词数不清楚。"] * 4
    (found,) = told(lines, lines, language="zh", measure=Measure(["bleu", "ter"], "zh", lowercase=False))
    assert found.startswith("TER compares words between spaces, and the references have none in 4 of 4 lines")
    assert told(lines, lines, language="zh", measure=Measure(["bleu"], "zh", lowercase=False)) == []


@pytest.mark.parametrize(
    "lines",
    [
        ["我喜欢狗。", "他在家。", "今天下雨。", "GPU"],
        ["犬が好きです。", "家にいます。", "雨です。", "はい"],
        ["ผมชอบหมา", "เขาอยู่บ้าน", "วันนี้ฝนตก", "ใช่"],
    ],
    ids=["Chinese", "Japanese", "Thai"],
)
def test_words_between_spaces_say_little_of_text_without_them(lines: list[str]) -> None:
    # A whole clause would be one word: not one of them alike is a BLEU of 0.
    for tokenize in ("13a", "intl"):
        (found,) = told(lines, lines, language="und", measure=Measure(["bleu"], tokenize, lowercase=False))
        assert found.startswith(
            f"BLEU with tok:{tokenize} compares words between spaces, and the references have none in"
        )
        assert "--target-lang" in found
    for measure in (Measure(["bleu"], "char", lowercase=False), Measure(["chrf"], "13a", lowercase=False)):
        assert told(lines, lines, language="und", measure=measure) == []


def test_korean_and_german_have_spaces() -> None:
    measure = Measure(["bleu", "ter"], "13a", lowercase=False)
    korean = ["나는 개를 좋아한다.", "그는 집에 있다.", "오늘 비가 온다.", "네."]
    assert told(korean, korean, language="ko", measure=measure) == []
    assert told(GERMAN, GERMAN, language="de", measure=measure) == []


def made_up(count: int) -> tuple[list[str], list[str]]:
    """Lines of 1 to 40 words, and others nearly as long."""
    generator = random.Random(1)
    lengths = [generator.randint(1, 40) for _ in range(count)]
    one = [" ".join(["wort"] * length) for length in lengths]
    other = [" ".join(["word"] * max(1, length + generator.randint(-1, 1))) for length in lengths]
    return one, other


def test_lines_out_of_step_are_told_with_where_they_begin() -> None:
    references, hypotheses = made_up(300)
    assert told(hypotheses, references) == []
    lost = hypotheses[:100] + hypotheses[101:] + ["word"]
    (found,) = told(lost, references)
    assert found.startswith("hypotheses and references seem out of step: from line ")
    first = int(found.split("from line ")[1].split()[0])
    assert 98 <= first <= 106
    assert "line N of the hypotheses fits line N+1 of the references. Look for a line that is missing" in found
    (found,) = told(references, references, sources=lost)
    assert found.startswith("sources and references seem out of step: ")


def test_lines_of_another_text_are_told_as_a_whole() -> None:
    references, hypotheses = made_up(300)
    random.Random(2).shuffle(hypotheses)
    assert told(hypotheses, references) == [
        "the lengths of hypotheses and references have nothing to do with each other: are they of the same text, in "
        "the same order?"
    ]


def test_published_translations_raise_no_suspicion_until_a_line_of_them_is_lost() -> None:
    folder = DATA / "bleu-check"
    if not folder.is_dir():
        pytest.skip("no data set bleu-check")
    for case in json.loads((folder / "expected.json").read_text(encoding="utf-8"))["cases"]:
        name = case["name"]
        hypotheses, *references = (
            (folder / f"{name}.{suffix}").read_bytes().decode().removesuffix("\n").split("\n")
            for suffix in ("hyp", *(f"ref{number}" for number in range(case["refs"])))
        )
        measure = Measure(["bleu"], case["options"].get("tokenize", "13a"), lowercase=False)
        found = told(hypotheses, references[0], language="und", measure=measure)
        if name == "enzh-13a-wrong":
            assert [words.partition(" compares")[0] for words in found] == ["BLEU with tok:13a"]
            continue
        assert found == [], name
        if len(hypotheses) == 400 and name.startswith(("zhen", "deen")):
            lost = [*hypotheses[:100], *hypotheses[101:], ""]
            (one,) = told(lost, references[0], language="und")
            assert "line N of the hypotheses fits line N+1 of the references" in one, name
