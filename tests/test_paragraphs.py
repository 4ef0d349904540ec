"""Lines of several sentences are cut at the ends of sentences and nowhere else, and nothing gets lost on the way."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from untrained import translator

from transformer_cli.decoding.paragraphs import split_sentences, translate_paragraphs
from transformer_cli.decoding.translator import Line, Translation, Translator
from transformer_cli.errors import DataError

# Where a line is cut: |
ENGLISH = [
    "The dog sleeps.| The cat does not.| Why?| Nobody knows!| Really",
    "Dr. Smith and Mrs. Jones met Prof. Miller vs. St. John Inc. on Monday.| They left.",
    "J. R. R. Tolkien wrote it.| (He was British.)| So was she.",
    'He asked: "Who is there?"| Nobody answered.| "I am."| She left.',
    'He said: "Dr. Smith is here."| “Mr. X?”| (St. John.)| Yes.',
    "“Who is there?”| Nobody answered.| ‘I am.’| She left.",
    "It costs 3.50 or 4.5 million, e.g. here or i.e. there.| Go to example.com now.",
    "What?!| No…| Well...| Then not.",
    "He said no. but then he went, and asked why? nobody answered.",  # no capital follows
    "Version 2.0 is out.| 300 people came.",
]
GERMAN = [
    "Der Hund schläft.| Die Katze nicht.| Warum?",
    "Wir treffen uns am 3. Mai um 12. Uhr.| Danach gehen wir.",
    "Am 24. Dezember kommt Hr. K. Müller mit Dr. Schmidt.| Er bringt z.B. Äpfel und ca. 3 Birnen, bzw. Nr. 5.",
    "Er sagte: „Ich komme.“| Dann ging er.| »Wirklich?«| Ja.",
    "Im Jahr 1990.| Dann nicht mehr.",
    "Gehst du?| Über die Straße!| Äpfel sind gut.",
]
CHINESE_AND_JAPANESE = [
    "狗在睡觉。|猫没有。|为什么？|没有人知道！|真的吗",
    "他说：“你好。”|然后走了。",
    "犬は寝ています。|猫は寝ていません。|なぜですか？|「そうです。」|彼は行きました！",
    "价格是3.50元。|三个人来了。",
    "什么？！|没有。",
]

OTHER_SCRIPTS = [
    "完了｡|次｡",
    "値は３．５です．|次に進む．",
    "مرحبا؟| كيف حالك؟| أنا بخير.",
    "یہ کیا ہے؟| یہ کتاب ہے۔| ہاں۔",
    "你好吗?|我很好!|你呢?",
    "वह गया।|मैं आया।",
    "नमस्ते।| आप कैसे हैं।| ठीक॥",
    "እንዴት ነህ።| ደህና።",
    "ဟုတ်ကဲ့။| မဟုတ်ဘူး။",
    "Կարելի՞ Անի։| Այո։",
]


@pytest.mark.parametrize("marked", ENGLISH + GERMAN + CHINESE_AND_JAPANESE + OTHER_SCRIPTS)
def test_a_line_is_cut_at_the_ends_of_its_sentences(marked: str) -> None:
    sentences = [sentence.strip() for sentence in marked.split("|")]
    assert split_sentences(marked.replace("|", "")) == sentences


def test_full_stops_of_wide_scripts_may_have_spaces_too() -> None:
    assert split_sentences("狗。 猫。\u3000鸟") == ["狗。", "猫。", "鸟"]


@pytest.mark.parametrize("line", ["", "   ", "\t", "\u200b", "\u3000"])
def test_a_blank_line_is_one_sentence_that_is_blank(line: str) -> None:
    assert split_sentences(line) == [line]


def test_a_line_of_marks_alone_stays_together() -> None:
    assert split_sentences("...") == ["..."]
    assert split_sentences("Why? \u200b") == ["Why? \u200b"]


text = st.text(st.sampled_from("aA.?!…。！？ \t\u00a0\u3000\u200b\"'“”„«»()」1é你3"), max_size=40) | st.text()


@given(text)
@example(". a. B. c。D? \u200b")
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_but_spaces_between_sentences(line: str) -> None:
    sentences = split_sentences(line)
    assert "".join("".join(sentences).split()) == "".join(line.split())
    if len(sentences) > 1:
        assert all(sentence.strip() == sentence for sentence in sentences)
        assert all(sentence for sentence in sentences)


def test_the_time_to_split_grows_like_the_line() -> None:
    """A second for each megabyte, and not its square."""
    line = "Mr. Gh. Ab cd? Ef. " * 60_000
    began = time.process_time()
    assert len(split_sentences(line)) == 3 * 60_000
    assert time.process_time() - began < 10


# Translating


@pytest.fixture(scope="module")
def untrained() -> Translator:
    return translator()


PARAGRAPHS = ["Ba ce. Di fo! Gu", "", "Ha je", "   ", "Ki? Lo. Mu na. Pe.", "Qi"]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_a_paragraph_is_joined_from_its_sentences_in_order(untrained: Translator, batch_size: int) -> None:
    decoding = untrained.config.decoding
    found = list(translate_paragraphs(untrained, PARAGRAPHS, decoding, batch_size))
    assert len(found) == len(PARAGRAPHS)
    for line, (joined,) in zip(PARAGRAPHS, found, strict=True):
        parts: list[Translation] = [next(untrained.translate([one]))[0] for one in split_sentences(line)]
        assert joined.text == " ".join(part.text for part in parts)
        assert joined.ids == tuple(i for part in parts for i in part.ids)
        assert joined.source_ids == tuple(i for part in parts for i in part.source_ids)
        assert joined.n == sum(part.n for part in parts) == len(joined.token_log_probs)
        assert joined.log_prob == pytest.approx(sum(part.log_prob for part in parts), abs=1e-4)
        assert joined.score == pytest.approx(sum(part.score for part in parts), abs=1e-4)
        assert joined.truncated == any(part.truncated for part in parts)


@pytest.mark.parametrize(
    ("language", "separator"), [("zh-TW", ""), ("ja", ""), ("TH", ""), ("de", " "), ("en-GB", " ")]
)
def test_sentences_are_joined_as_the_target_language_writes_them(language: str, separator: str) -> None:
    own = translator({"data": {"target_lang": language}})
    ((joined,),) = translate_paragraphs(own, ["Ba ce. Di fo."], own.config.decoding, 64)
    parts = [best.text for (best,) in own.translate(["Ba ce.", "Di fo."])]
    assert all(parts)
    assert joined.text == separator.join(parts)


def test_one_paragraph_is_answered_before_the_next_is_read(untrained: Translator) -> None:
    read = []

    def lines() -> Iterator[str]:
        for line in PARAGRAPHS:
            read.append(line)
            yield line

    answers = translate_paragraphs(untrained, lines(), untrained.config.decoding, 1)
    next(answers)
    assert read == PARAGRAPHS[:1]
    assert len(list(answers)) == len(PARAGRAPHS) - 1


def test_no_lines_give_none(untrained: Translator) -> None:
    assert list(translate_paragraphs(untrained, [], untrained.config.decoding, 64)) == []


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_a_sentence_that_is_too_long_for_memory_is_named_by_its_line(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, search = translator(), Translator._search

    def with_little(self: Translator, searched: Any, lines: list[Line], *rest: Any) -> Any:
        if max(len(line.source) for line in lines) > 10:
            raise MemoryError("no room")
        return search(self, searched, lines, *rest)

    monkeypatch.setattr(Translator, "_search", with_little)
    fine = ["ba. Ce. Di.", "", "fo! Gu? Ha."] * 5
    for long in ("bababababab. Ce.", "Ce. bababababab. Di", "Ce. Di. Babababababab"):
        with pytest.raises(DataError, match=r"^line 16 has 1\d pieces"):
            list(translate_paragraphs(own, [*fine, long, "ba"], own.config.decoding, batch_size))
