"""Which script a line is in, and which lines are in one that their language is not written in."""

import pytest

from transformer_cli.data.scripts import expected_scripts, has_spaced_words, in_other_script, script_of


@pytest.mark.parametrize(
    ("letters", "script"),
    [
        ("aßéÆＡ", "LATIN"),
        ("йЁќ", "CYRILLIC"),
        ("αώ", "GREEK"),
        ("中㐀豈𠀀", "CJK"),
        ("ひ", "HIRAGANA"),
        ("カｶー", "KATAKANA"),
        ("한ㄱ", "HANGUL"),
        ("عپ", "ARABIC"),
        ("א", "HEBREW"),
        ("कऴ", "DEVANAGARI"),
        ("ก", "THAI"),
        ("አ", "ETHIOPIC"),
        ("1 .,!?-_—“😀\u0301\u200d\ufeff𝐀ªº", ""),
    ],
)
def test_letters_have_a_script_and_nothing_else_has(letters: str, script: str) -> None:
    assert {script_of(letter) for letter in letters} == {script}


@pytest.mark.parametrize(
    ("language", "scripts"),
    [
        ("de", {"LATIN"}),
        ("pt-BR", {"LATIN"}),
        ("ru", {"CYRILLIC"}),
        ("sr", {"CYRILLIC", "LATIN"}),
        ("sr-Latn", {"LATIN"}),
        ("zh", {"CJK"}),
        ("zh-Hant-TW", {"CJK"}),
        ("ja", {"CJK", "HIRAGANA", "KATAKANA"}),
        ("jpn", {"CJK", "HIRAGANA", "KATAKANA"}),
        ("ko", {"CJK", "HANGUL"}),
        ("el", {"GREEK"}),
        ("he", {"HEBREW"}),
        ("hi", {"DEVANAGARI"}),
        ("und", set()),
        ("tlh", set()),
    ],
)
def test_languages_are_written_in_the_scripts_we_know_of(language: str, scripts: set[str]) -> None:
    assert expected_scripts(language) == scripts


@pytest.mark.parametrize(
    ("language", "text", "wrong"),
    [
        ("ru", "Собака бежит.", False),
        ("ru", "A dog is running.", True),
        ("ru", "Я читаю The New York Times.", False),
        ("de", "Собака бежит.", True),
        ("de", "Der Hund heißt Шарик.", False),
        ("de", "A dog is running.", False),  # the script is right, the language another matter
        ("zh", "使用 ``asyncio`` 库。", False),
        ("zh", "A dog is running.", True),
        ("ja", "日本語です", False),
        ("ko", "안녕하세요", False),
        ("en", "こんにちは", True),
        ("en", "1 + 1 = 2", False),
        ("ru", "1 + 1 = 2", False),
        ("ru", "", False),
        ("und", "Собака dog 犬", False),
    ],
)
def test_a_line_is_wrong_when_four_fifths_of_it_are_in_another_script(language: str, text: str, wrong: bool) -> None:
    assert in_other_script(text, expected_scripts(language)) is wrong


def test_four_letters_of_another_script_to_one_are_still_right_and_five_are_not() -> None:
    greek = expected_scripts("el")
    assert not in_other_script("α" + "b" * 4, greek)
    assert in_other_script("α" + "b" * 5, greek)
    # A Chinese character weighs as much as four letters.
    chinese = expected_scripts("zh")
    assert not in_other_script("中" + "b" * 16, chinese)
    assert in_other_script("中" + "b" * 17, chinese)


@pytest.mark.parametrize(
    ("language", "text", "spaced"),
    [
        ("zh", "我们 一起 去 了 公园 。", True),
        ("zh", "我们一起去了公园。", False),
        ("zh", "我们在 Django 1.3 中使用 Python 和 SQL 。", False),
        ("ja", "多く の 動物 が 人間 に よ っ て 滅ぼ さ れ た 。", True),
        ("ja", "多くの動物が 人間によって滅ぼされた。", False),
        ("th", "ฉัน ไป ที่ สวน กับ เพื่อน", True),
        ("th", "ฉันไปที่สวนกับเพื่อน วันนี้อากาศดีมาก", False),
    ],
)
def test_words_with_spaces_between_them_are_seen_in_languages_without(language: str, text: str, spaced: bool) -> None:
    assert has_spaced_words(text, expected_scripts(language)) is spaced
