"""What has to be known of a language beside its scripts, by its tag."""

CHINESE = frozenset({"zh", "cmn", "yue", "wuu", "lzh"})
"""Languages written in Chinese characters alone."""

_WITHOUT_SPACES = CHINESE | {"ja", "th", "lo", "km", "my"}
_TWO_LETTERS = {
    "zho": "zh", "chi": "zh", "jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo", "khm": "km", "mya": "my", "bur": "my",
}  # fmt: skip


def base_language(tag: str) -> str:
    """The language in a BCP-47 tag, in two letters where it has them: `zh` of `zh-Hant`, `ZH_tw` and `zho`."""
    first = tag.lower().replace("_", "-").partition("-")[0]
    return _TWO_LETTERS.get(first, first)


def separator(tag: str) -> str:
    """What stands between two sentences."""
    return "" if base_language(tag) in _WITHOUT_SPACES else " "


def has_thousands_of_characters(tag: str) -> bool:
    """Whether a text in it has more characters than a vocabulary can have pieces."""
    return base_language(tag) in CHINESE | {"ja", "ko"}
