"""Two systems on one set: which lines gained and lost, what lengths they are good at, and one record a line."""

import json

import pytest

from transformer_cli.config.schema import DataConfig
from transformer_cli.evaluation.comparison import compare, sentence_records, unlike_languages
from transformer_cli.evaluation.scores import Measure, corpus_scores, paired_bootstrap, sentence_scores
from transformer_cli.evaluation.sets import EvaluationSet

CHRF = Measure(["chrf", "bleu"], "13a", lowercase=False)
REFERENCES = [f"this is the sentence number {number} of {'a long ' * (number % 8)}test" for number in range(24)]
SOURCES = ["x" * (number % 8 + 1) for number in range(24)]
SET = EvaluationSet("news", [REFERENCES], SOURCES)


def changed(**lines: str) -> list[str]:
    """The references with lines in their place: `changed(_3="…")`."""
    return [lines.get(f"_{number}", reference) for number, reference in enumerate(REFERENCES)]


def test_the_lines_that_gained_and_lost_most_come_first_with_all_that_is_known_of_them() -> None:
    hypotheses = changed(_5="this is wrong", _7="this is the sentence number 7 of a long test")
    baseline = changed(_2="nothing", _9="this is the sentence number 9")
    found = compare(SET, hypotheses, baseline, CHRF)
    assert found.metric == "chrF2"
    assert [line.line for line in found.gained] == [3, 10]
    assert [line.line for line in found.lost] == [6, 8]
    first = found.gained[0]
    assert (first.source, first.references, first.baseline, first.hypothesis) == (
        SOURCES[2], [REFERENCES[2]], "nothing", REFERENCES[2],
    )  # fmt: skip
    assert first.score == pytest.approx(100)
    assert first.baseline_score == sentence_scores(["nothing"], [[REFERENCES[2]]], *CHRF)[0]["chrF2"]
    assert found.differences == paired_bootstrap(hypotheses, baseline, [REFERENCES], *CHRF)


def test_at_most_five_lines_are_named_and_none_that_stayed_equal() -> None:
    hypotheses = changed(**{f"_{number}": "wrong" for number in range(8)})
    found = compare(SET, hypotheses, REFERENCES, CHRF)
    assert found.gained == []
    assert len(found.lost) == 5


def test_a_lower_ter_is_a_gain() -> None:
    found = compare(SET, REFERENCES, changed(_4="wrong"), Measure(["ter"], "13a", lowercase=False))
    assert ([line.line for line in found.gained], found.lost) == ([5], [])
    assert found.differences[0].score.value < found.differences[0].baseline.value


def test_lines_are_scored_in_quarters_by_the_length_of_their_source() -> None:
    baseline = changed(_0="wrong", _8="wrong")  # both of length 1
    found = compare(SET, REFERENCES, baseline, CHRF)
    # Of each length from 1 to 8 there are three.
    assert [(group.shortest, group.longest, group.lines) for group in found.by_length] == [
        (1, 2, 6), (3, 4, 6), (5, 6, 6), (7, 8, 6),
    ]  # fmt: skip
    shortest = [index for index, source in enumerate(SOURCES) if len(source) <= 2]
    (by_hand, _) = corpus_scores([baseline[i] for i in shortest], [[REFERENCES[i] for i in shortest]], *CHRF)
    assert found.by_length[0].baseline_score == by_hand.value < 100
    assert [round(group.baseline_score, 6) for group in found.by_length[1:]] == [100, 100, 100]
    assert [round(group.score, 6) for group in found.by_length] == [100] * 4


def test_lines_of_one_length_stay_together_and_without_sources_references_are_measured() -> None:
    same = EvaluationSet("same", [["four"] * 10])
    (group,) = compare(same, ["four"] * 10, ["five"] * 10, CHRF).by_length
    assert (group.shortest, group.longest, group.lines) == (4, 4, 10)


def test_json_has_each_metric_with_the_baselines_and_the_rest_beside_them() -> None:
    found = compare(SET, REFERENCES, changed(_4="wrong"), CHRF)
    plain = json.loads(json.dumps(found.as_plain("old")))
    assert list(plain) == ["chrF2", "BLEU", "comparison"]
    bleu = found.differences[1]
    assert plain["BLEU"]["score"] == bleu.score.value
    assert plain["BLEU"]["baseline"]["score"] == bleu.baseline.value
    assert plain["BLEU"]["difference"] == bleu.score.value - bleu.baseline.value > 0
    assert plain["BLEU"]["p_value"] == bleu.p_value
    assert plain["comparison"].keys() == {"baseline", "metric", "by_length", "gained", "lost"}
    assert plain["comparison"]["baseline"] == "old"
    assert plain["comparison"]["gained"][0]["line"] == 5


def test_a_person_reads_scores_differences_and_the_sentences() -> None:
    found = compare(SET, REFERENCES, changed(_4="wrong words"), CHRF)
    text = "\n".join(found.in_lines("news", "new", "old"))
    assert text.startswith("news: new against old\n")
    p_value = f"{found.differences[0].p_value:.4f}"
    (row,) = (line for line in text.splitlines() if line.startswith("  chrF2  "))
    assert row.split()[1] == "100.00"
    assert row.endswith(p_value)
    assert "gained most, chrF2 of the sentence\n  line 5: " in text
    assert (
        f"    source     xxxxx\n    reference  {REFERENCES[4]}\n    old        wrong words\n    new        this" in text
    )
    assert "lost most" not in text


def test_a_record_for_each_line_has_its_texts_and_scores() -> None:
    one = EvaluationSet("news", [["A b", "C"], ["A", "D"]], ["a", "c"])
    first, second = sentence_records(one, ["A b", "E"], None, CHRF)
    assert first == {
        "set": "news",
        "index": 0,
        "source": "a",
        "references": ["A b", "A"],
        "hypothesis": "A b",
        "scores": sentence_scores(["A b"], [["A b"], ["A"]], *CHRF)[0],
    }
    assert second["index"] == 1
    with_baseline = next(sentence_records(EvaluationSet("x", one.references), ["A b", "E"], ["A", "C"], CHRF))
    assert "source" not in with_baseline
    assert (with_baseline["baseline"], with_baseline["baseline_scores"]["chrF2"]) == ("A", pytest.approx(100))


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (("en", "de"), ("en", "de"), []),
        (("und", "de"), ("en", "und"), []),
        (("en", "zh"), ("en-GB", "zh-CN"), []),
        (("en", "de"), ("en", "fr"), ["one system translates en to de and the other en to fr: a comparison on the same "
         "text says little"]),
        (("en", "de"), ("nl", "und"), ["one system translates en to de and the other nl to und: a comparison on the "
         "same text says little"]),
    ],
)  # fmt: skip
def test_systems_of_other_languages_are_told(one: tuple[str, str], other: tuple[str, str], words: list[str]) -> None:
    chosen = (DataConfig(source_lang=source, target_lang=target) for source, target in (one, other))
    assert list(unlike_languages(*chosen)) == words
