"""Which words of a translation are new, which sentences are shown, and which are the best and the worst."""

from pathlib import Path

import pytest

from transformer_cli.evaluation.history import Sample, read_history
from transformer_cli.evaluation.scores import Measure
from transformer_cli.evaluation.sentences import changes, evenly, extremes, stories

BLEU = Measure(["bleu"], "13a", lowercase=False)


def new_parts(before: str, after: str) -> list[str]:
    parts = list(changes(before, after))
    assert "".join(text for text, _ in parts) == after
    return [text for text, new in parts if new]


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ("the dog sleeps .", "the dog sleeps .", []),
        ("the dog sleeps .", "the cat sleeps .", ["cat"]),
        ("the dog", "the big old dog", ["big old"]),
        ("the big old dog", "the dog", []),
        ("", "a dog", ["a dog"]),
        ("a dog", "", []),
        ("I do not", "I don't", ["don't"]),
        ("E-Mail", "E-Mails", ["E-Mails"]),
        ("我是男人。", "我是女人。", ["女"]),
        ("我的iPad好", "我的iPhone好", ["iPhone"]),
        ("ฉันรัก", "ฉันรอ", ["อ"]),
    ],
)
def test_words_that_were_not_there_are_new_and_without_spaces_characters(
    before: str, after: str, new: list[str]
) -> None:
    assert new_parts(before, after) == new


def test_values_are_chosen_evenly_with_the_first_and_the_last() -> None:
    assert evenly(range(10), 4) == [0, 3, 6, 9]
    assert evenly([5, 7], 4) == [5, 7]
    assert evenly([], 4) == []


def test_the_best_and_the_worst_are_those_by_score_and_no_sentence_is_both() -> None:
    samples = [
        Sample("s one", "the dog sleeps in the house", "the dog sleeps in the house"),
        Sample("s two", "the dog sleeps in the house", "the dog sleeps in the garden"),
        Sample("s three", "the dog sleeps in the house", "a cat eats"),
    ]
    best, worst = extremes(samples, BLEU)
    assert [one.sample.source for one in best] == ["s one"]
    assert [one.sample.source for one in worst] == ["s three"]
    assert best[0].score == pytest.approx(100.0)


def test_a_metric_that_is_better_the_lower_is_turned_round() -> None:
    samples = [Sample("a", "one two three", "one two three"), Sample("b", "one two three", "four five six")]
    best, worst = extremes(samples, Measure(["ter"], "13a", lowercase=False))
    assert ([one.sample.source for one in best], [one.sample.source for one in worst]) == (["a"], ["b"])


def test_of_equal_sentences_the_longer_comes_first() -> None:
    samples = [Sample("s" * size, "a b c d e", "a b c d e") for size in (1, 3, 2, 1)]
    best, _ = extremes(samples, BLEU)
    assert [one.sample.source for one in best] == ["sss", "ss"]


def test_a_sentence_is_followed_through_the_validations(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    for step, words in ((10, "a"), (20, "a b"), (30, "a b")):
        (tmp_path / "samples" / f"step-{step:08d}.tsv").write_text(f"s\tr\t{words}\n")
    (story,) = stories(read_history(tmp_path))
    assert (story.source, story.reference) == ("s", "r")
    assert story.versions == [
        (10, [("a", False)]),
        (20, [("a", False), (" ", False), ("b", True)]),
        (30, [("a b", False)]),
    ]


def test_a_validation_whose_samples_are_gone_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    for step, content in ((10, "s\tr\ta\n"), (20, ""), (30, "s\tr\tb\n")):
        (tmp_path / "samples" / f"step-{step:08d}.tsv").write_text(content)
    (story,) = stories(read_history(tmp_path))
    assert [step for step, _ in story.versions] == [10, 30]
