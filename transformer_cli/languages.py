"""Properties of languages other than their scripts, by language tag."""

CHINESE = frozenset({"zh", "cmn", "yue", "wuu", "lzh"})
"""Languages written in Chinese characters alone."""

_WITHOUT_SPACES = CHINESE | {"ja", "th", "lo", "km", "my"}
_TWO_LETTERS = {
    "zho": "zh", "chi": "zh", "jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo", "khm": "km", "mya": "my", "bur": "my",
}  # fmt: skip


COUNTRIES = {
    "cn": "zh", "jp": "ja", "cz": "cs", "gr": "el", "dk": "da", "ua": "uk", "vn": "vi", "ir": "fa", "il": "he",
}  # fmt: skip
"""Countries that are taken for their languages, which have other tags."""


def base_language(tag: str) -> str:
    """The language in a BCP-47 tag, as two letters where it has them: `zh` for `zh-Hant`, `ZH_tw` and `zho`."""
    first = tag.lower().replace("_", "-").partition("-")[0]
    return _TWO_LETTERS.get(first, first)


def separator(tag: str) -> str:
    """The text between two sentences: a space, or nothing in a language without spaces."""
    return " " if has_spaces(tag) else ""


def has_spaces(tag: str) -> bool:
    """Whether a language is written with spaces between words."""
    return base_language(tag) not in _WITHOUT_SPACES


def needs_characters(tag: str) -> bool:
    """Whether BLEU must compare characters, as the language has neither spaces nor a tokenizer in sacreBLEU."""
    return base_language(tag) in {"th", "lo", "km", "my"}


def has_thousands_of_characters(tag: str) -> bool:
    """Whether text in the language can have more characters than a vocabulary has pieces."""
    return base_language(tag) in CHINESE | {"ja", "ko"}
