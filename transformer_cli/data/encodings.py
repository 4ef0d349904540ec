"""Guess the encoding of text that is not UTF-8, to name it in an error."""

import codecs

# Encodings of several bytes a character, each with characters that are common in its languages: at least 0.18 of the
# characters beyond ASCII. In text decoded by a wrong one of these, they are at most 0.001.
_CHINESE = "的一是不了在人有我他中大上到子和你地出道也"
_JAPANESE = "のにはをたがでてとしれさいるかなもっこ。、"
_MULTI_BYTE = {
    "GB18030": _CHINESE + "这来个们说国为时",
    "BIG5": _CHINESE + "這來個們說國為時",
    "SHIFT_JIS": _JAPANESE,
    "EUC-JP": _JAPANESE,
    "CP949": "이다의는에을를가은한고하로지도기서사아그나시",
}
_LEAST = 0.05
# Almost any bytes can be read as these, so that they are tried last.
_LATIN = "CP1252", "äöüßÄÖÜéèêëáàâãåæøíìîïóòôõúùûñçÉÀ“”„’‘–«»"
_CYRILLIC = "CP1251", "оеаинтсрвлкмдпу"
_LEAST_OF_ALPHABET = 0.4

_FEW = 20  # characters beyond ASCII; a guess from fewer is unsure


def likely_encoding(sample: bytes) -> tuple[str, bool] | None:
    """The encoding of a sample that is not UTF-8, as iconv names it, and whether that is sure. None if nothing fits, or
    if most of the characters beyond ASCII are UTF-8, so that only a few bytes are bad.

    Tried in this order: those of Chinese, Japanese and Korean; an alphabet with Latin letters, if most characters are
    ASCII; else one with Cyrillic letters. The sample may end within a character.
    """
    as_utf8 = [character for character in sample.decode("utf-8", "replace") if not character.isascii()]
    if 2 * as_utf8.count("\ufffd") < len(as_utf8):
        return None
    shares = {encoding: _share(sample, encoding, common) for encoding, common in _MULTI_BYTE.items()}
    best = max(shares, key=lambda encoding: shares[encoding])
    if shares[best] >= _LEAST:
        return best, len(as_utf8) >= _FEW
    encoding, common = _LATIN if 2 * sum(byte < 0x80 for byte in sample) > len(sample) else _CYRILLIC
    return (encoding, False) if _share(sample, encoding, common) >= _LEAST_OF_ALPHABET else None


def _share(sample: bytes, encoding: str, common: str) -> float:
    """The share of the common characters in those beyond ASCII of a decoded sample; 0 if it cannot be decoded."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return 0.0
    beyond = [character for character in text if not character.isascii()]
    return sum(character in common for character in beyond) / max(len(beyond), 1)
