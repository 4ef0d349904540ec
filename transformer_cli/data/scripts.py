"""Detect the script of a line's letters, and tell which scripts a language is written in.

A script is named by the first word of the Unicode names of its letters: LATIN, CYRILLIC, CJK (Chinese characters),
HIRAGANA, HANGUL, DEVANAGARI and so on.
"""

import unicodedata
from collections import Counter
from functools import cache

from transformer_cli.languages import base_language

Scripts = frozenset[str]

_LANGUAGES = {
    "LATIN": "af az bs ca ceb cs cy da de en eo es et eu fi fil fo fr fy ga gd gl gn gsw ha haw hr ht hu id ig is it "
    "jv ku la lb ln lt lv mg mi ms mt nb nds nl nn no ny oc pl pt qu rm rn ro rw sco sk sl sm sn so sq sr ss st su sv "
    "sw tk tl tn to tr ts uz vi wa wo xh yo zu",
    "CYRILLIC": "az ba be bg bs ce cv kk kv ky mk mn os ru rue sah sr tg tt tyv udm uk uz",
    "GREEK": "el grc",
    "ARABIC": "ar arz ary azb ckb fa ks ku pa prs ps sd ug ur",
    "HEBREW": "he iw yi",
    "DEVANAGARI": "bho brx doi gom hi ks mai mr ne new sa sat sd",
    "BENGALI": "as bn bpy mni",
    "GURMUKHI": "pa",
    "GUJARATI": "gu",
    "ORIYA": "or",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "SINHALA": "si",
    "THAI": "th",
    "LAO": "lo",
    "MYANMAR": "my",
    "KHMER": "km",
    "TIBETAN": "bo dz",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
    "ETHIOPIC": "am ti",
    "CJK": "zh yue wuu lzh cmn ja ko",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
}
# Script subtags of language tags: sr-Latn, zh-Hant.
_SUBTAGS = {
    "latn": "LATIN", "cyrl": "CYRILLIC", "grek": "GREEK", "arab": "ARABIC", "hebr": "HEBREW", "deva": "DEVANAGARI",
    "beng": "BENGALI", "guru": "GURMUKHI", "gujr": "GUJARATI", "taml": "TAMIL", "thai": "THAI", "geor": "GEORGIAN",
    "armn": "ARMENIAN", "ethi": "ETHIOPIC", "hans": "CJK", "hant": "CJK", "hang": "HANGUL",
}  # fmt: skip

_FOREIGN = 4  # maximum ratio of letters in other scripts to letters in expected ones

# The weight of a letter, in letters of an alphabet: a Chinese character is a word, a Korean one a syllable.
_WORTH = {"CJK": 4, "HANGUL": 3, "HIRAGANA": 2, "KATAKANA": 2}


@cache
def expected_scripts(language: str) -> Scripts:
    """The scripts of a language, given as a tag such as `sr` or `sr-Latn`; empty for an unknown language."""
    first, others = base_language(language), language.lower().split("-")[1:]
    named = frozenset(_SUBTAGS[other] for other in others if other in _SUBTAGS)
    return named or frozenset(script for script, languages in _LANGUAGES.items() if first in languages.split())


def in_other_script(text: str, expected: Scripts) -> bool:
    """Whether more than four fifths of the letters of a text, weighted by _WORTH, are in other scripts than the
    expected ones. The limit is high because many sentences contain foreign names or code. False for a text without
    letters, and if no script is expected."""
    if not expected or (text.isascii() and "LATIN" in expected):
        return False
    right = wrong = 0
    for character, count in Counter(text).items():
        script = script_of(character)
        if script in expected:
            right += count * _WORTH.get(script, 1)
        elif script:
            wrong += count * _WORTH.get(script, 1)
    return wrong > _FOREIGN * right


def has_spaced_words(text: str, scripts: Scripts) -> bool:
    """Whether a text in a language without spaces has one between almost any two words, as a tokeniser writes it: more
    than one per six characters, each between two letters of the scripts."""
    spaces = text.count(" ")
    if 6 * spaces <= len(text) - spaces:
        return False
    neighbours = zip(text, text[1:], text[2:], strict=False)
    between = sum(
        space == " " and _is_letter_of(before, scripts) and _is_letter_of(after, scripts)
        for before, space, after in neighbours
    )
    return 6 * between > len(text) - spaces


def _is_letter_of(character: str, scripts: Scripts) -> bool:
    return script_of(character) in scripts or unicodedata.category(character).startswith("M")


@cache
def script_of(character: str) -> str:
    """The script of a letter; empty for other characters and for letters without a script."""
    if not unicodedata.category(character).startswith("L"):
        return ""
    words = unicodedata.name(character, "").replace("-", " ").split()
    if words[:1] in (["FULLWIDTH"], ["HALFWIDTH"]):
        del words[0]
    return words[0] if words and words[0] not in ("MODIFIER", "MATHEMATICAL", "MASCULINE", "FEMININE", "MICRO") else ""
