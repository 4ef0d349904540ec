"""What follows from a language's tag, however it is written."""

import pytest
from pydantic import ValidationError

from transformer_cli.config.names import trouble_of_language
from transformer_cli.config.schema import DataConfig
from transformer_cli.languages import base_language, has_thousands_of_characters, separator


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("en", "en"),
        ("pt-BR", "pt"),
        ("ZH_tw", "zh"),
        ("zh-Hant-TW", "zh"),
        ("zho", "zh"),
        ("jpn", "ja"),
        ("zha", "zha"),
    ],
)
def test_a_language_is_the_first_part_of_its_tag(tag: str, language: str) -> None:
    assert base_language(tag) == language


@pytest.mark.parametrize("tag", ["zh", "zho-Hans", "yue", "lzh", "ja", "JPN", "th", "lo", "khm", "my"])
def test_sentences_of_these_languages_stand_without_a_space(tag: str) -> None:
    assert separator(tag) == ""


@pytest.mark.parametrize("tag", ["en", "ko", "za", "vi", "und"])
def test_sentences_of_others_have_one_between_them(tag: str) -> None:
    assert separator(tag) == " "


def test_chinese_japanese_and_korean_have_more_characters_than_a_vocabulary_pieces() -> None:
    assert all(map(has_thousands_of_characters, ("zh", "ZH", "cmn", "zho", "yue-HK", "ja", "jpn", "ko", "kor")))
    assert not any(map(has_thousands_of_characters, ("en", "th", "hi", "za", "und")))


@pytest.mark.parametrize(("tag", "meant"), [("cn", "zh"), ("JP", "ja"), ("cz-CZ", "cs")])
def test_a_country_in_the_place_of_a_language_is_told_with_its_language(tag: str, meant: str) -> None:
    assert trouble_of_language(tag) == (
        f"must be a language, and {tag.lower()[:2]} is a country: its language is {meant}"
    )
    with pytest.raises(ValidationError, match=f"its language is {meant}"):
        DataConfig(target_lang=tag)


def test_a_language_that_is_called_like_a_country_is_a_language() -> None:
    # Estonian, Swedish, Breton; et, sv and br are Ethiopia, El Salvador and Brazil, too.
    assert [trouble_of_language(tag) for tag in ("et", "sv", "br", "zh-CN", "ja-JP", "und")] == [None] * 6
