"""Convert text to token ids and back: the SentencePiece model, its training and its normalisation.

This is the only module that imports SentencePiece. The bytes of `Tokenizer.proto` contain everything needed to encode
and decode text, the normalisation included.
"""

import base64
import io
import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, islice, permutations, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from transformer_cli.config.schema import TokenizerConfig
from transformer_cli.data.corpus import Pair
from transformer_cli.errors import ConfigError, DataError, UserError
from transformer_cli.log import ABOUT_TEXT, LOGGER

Ids = NDArray[np.unsignedinteger[Any]]

# Besides the tokenizer, these versions determine the pieces of a text.
LIBRARIES = f"sentencepiece {sentencepiece.__version__}, Unicode {unicodedata.unidata_version}"

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
SPACE = "\u2581"  # as SentencePiece writes it

# `clean` replaces each of these by a space: Unicode's space separators, the control characters that move the cursor,
# the line and paragraph separators, and U+2581, which SentencePiece uses for a space.
SPACES = (
    " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
    "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
    "\u2581"
)
# `clean` removes these: the other control characters, and the zero-width characters that join nothing. ZWJ and ZWNJ,
# which shape emoji and words, stay.
VANISHING = "".join(chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in SPACES) + (
    "\u200b\u2060\ufeff"
)

# Fixed training settings. The number of threads is a constant because the pieces of a unigram model depend on it. Lines
# over the limit are far too long for a model to learn from, and words of a million letters overflow the training.
_THREADS = 4
_LONGEST_LINE = 65_535  # bytes
_SEED = 1  # of the sample
_SILENT = 2  # log level: errors only, which are raised as exceptions as well

_blank = re.compile(f"[{re.escape(SPACES + VANISHING)}]*").fullmatch
_CLEANED = str.maketrans(dict.fromkeys(SPACES, " ") | dict.fromkeys(VANISHING, ""))


def is_blank(text: str) -> bool:
    """Whether the normalisation `clean` makes the text empty."""
    return _blank(text) is not None


def canonical(text: str) -> str:
    """A form equal for texts that differ only in what `clean` normalises: composition, spaces, removed characters."""
    composed = text if text.isascii() else _nfc(text)
    return " ".join(composed.translate(_CLEANED).split())


class Tokenizer:
    """A SentencePiece model: text to ids and back."""

    def __init__(self, proto: bytes) -> None:
        """`proto`: the bytes of a `.model` file. DataError if they are none, or its special ids are not PAD … EOS."""
        self._model = model = sentencepiece.SentencePieceProcessor()
        try:
            model.load_from_serialized_proto(proto)
        except RuntimeError as error:
            raise DataError("the tokenizer is damaged, or no SentencePiece model") from error
        special = (model.pad_id(), model.unk_id(), model.bos_id(), model.eos_id())
        if special != (PAD, UNK, BOS, EOS):
            raise DataError(
                f"the tokenizer has the ids {special} for padding, unknown, start and end, and they must be "
                f"{(PAD, UNK, BOS, EOS)}: train it with `transformer-cli tokenizer train`, or elsewhere with pad_id=0 "
                "unk_id=1 bos_id=2 eos_id=3"
            )
        self.proto = proto
        self.vocab_size: int = model.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without start and end symbols; empty if the text normalises to nothing. DataError if it
        contains lone surrogates."""
        ids: list[int] = self._model.encode(_utf8(text))
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` each text; faster than one call per text."""
        ids: list[list[int]] = self._model.encode([_utf8(text) for text in texts], num_threads=1)
        return ids

    def encode_flat(self, texts: Sequence[str], threads: int = 1) -> tuple[Ids, NDArray[np.int64]]:
        """Like `encode_batch`, but concatenated: the ids of all texts, and the start of each text plus the last end."""
        lists = self._model.encode([_utf8(text) for text in texts], num_threads=threads)
        starts = np.zeros(len(lists) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=starts[1:])
        dtype = np.uint16 if self.vocab_size <= 2**16 else np.uint32
        ids: Ids = np.fromiter(chain.from_iterable(lists), dtype, starts[-1])
        return ids, starts

    def encode_as_pieces(self, text: str) -> list[str]:
        """The pieces of a text, as SentencePiece spells them (`▁` is a space); an unknown one is the text itself."""
        pieces: list[str] = self._model.encode(_utf8(text), out_type=str)
        return pieces

    def decode_pieces(self, pieces: Sequence[str]) -> str:
        """The text of pieces, always one line."""
        text: str = self._model.decode(list(pieces))
        return " ".join(text.splitlines())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, always one line. Padding, start and end are dropped; an unknown piece is ` ⁇ `."""
        text: str = self._model.decode(list(ids))
        # With `byte_fallback` or `identity` there are pieces for line ends, which a model might emit.
        return " ".join(text.splitlines())

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of the ids, as SentencePiece spells them (`▁` is a space)."""
        return [self._model.id_to_piece(id_) for id_ in ids]


def _utf8(text: str) -> bytes:
    """The text as UTF-8 for SentencePiece. NUL is removed here because a normalisation rule cannot contain it."""
    try:
        return text.replace("\0", "").encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the text {text[:60]!r} is not Unicode: U+{ord(text[error.start]):04X} is half a character, as comes of "
            "text that is not UTF-8; convert it"
        ) from error


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizer of each side; the same object if both share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def of(cls, protos: Mapping[str, bytes]) -> "Tokenizers":
        """Restore tokenizers from the result of `protos`."""
        loaded = {side: Tokenizer(proto) for side, proto in protos.items()}
        return cls(loaded.get("source") or loaded["shared"], loaded.get("target") or loaded["shared"])

    def protos(self) -> dict[str, bytes]:
        """The bytes of the SentencePiece models: `shared`, or `source` and `target`."""
        if self.source is self.target:
            return {"shared": self.source.proto}
        return {"source": self.source.proto, "target": self.target.proto}

    def packed(self) -> bytes:
        """Serialise the models as JSON text."""
        return json.dumps({side: base64.b64encode(proto).decode() for side, proto in self.protos().items()}).encode()

    @classmethod
    def unpacked(cls, text: bytes) -> "Tokenizers":
        """Restore tokenizers from the result of `packed`."""
        return cls.of({side: base64.b64decode(proto) for side, proto in json.loads(text).items()})


def train_tokenizers(pairs: Callable[[], Iterable[Pair]], config: TokenizerConfig) -> Tokenizers:
    """Train one tokenizer for both sides, or one for each side, which reads the pairs twice."""
    if config.shared:
        shared = train_tokenizer((line for pair in pairs() for line in pair), config)
        return Tokenizers(source=shared, target=shared)
    return Tokenizers(
        source=train_tokenizer((pair.source for pair in pairs()), config),
        target=train_tokenizer((pair.target for pair in pairs()), config),
    )


def train_tokenizer(lines: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer. The same lines give the same bytes on any machine with the same versions of Python (because of
    its Unicode tables) and SentencePiece.

    If the text has too few different words for `vocab_size`, there are fewer pieces, and a warning is logged.
    ConfigError if `vocab_size` is too small for the characters, DataError if there is no text at all.
    """
    text = _TrainingText(lines)
    sample = _sample(iter(text), config.sample_lines)
    if text.too_long:
        LOGGER.warning(
            "%s lines of more than %s bytes were not used to train the tokenizer",
            f"{text.too_long:,}",
            f"{_LONGEST_LINE:,}",
            extra=ABOUT_TEXT,
        )
    if not sample:
        raise DataError("there is no text to train the tokenizer on: no line of the training files can be used")
    if text.used > len(sample):
        LOGGER.info(
            "the tokenizer is trained on %s lines, a random sample of %s (tokenizer.sample_lines)",
            f"{len(sample):,}",
            f"{text.used:,}",
        )
    proto = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=proto,
            normalizer=_normalizer(config.normalization),
            vocab_size=config.vocab_size,
            hard_vocab_limit=False,
            model_type=config.model_type,
            byte_fallback=config.byte_fallback,
            character_coverage=config.character_coverage,
            user_defined_symbols=list(config.user_defined_symbols),
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_piece=SPECIAL_PIECES[PAD],
            unk_piece=SPECIAL_PIECES[UNK],
            bos_piece=SPECIAL_PIECES[BOS],
            eos_piece=SPECIAL_PIECES[EOS],
            max_sentence_length=_LONGEST_LINE,
            num_threads=_THREADS,
            minloglevel=_SILENT,
        )
    except RuntimeError as error:
        raise _reason(error, config) from error
    tokenizer = Tokenizer(proto.getvalue())
    if tokenizer.vocab_size < config.vocab_size:
        LOGGER.warning(
            "tokenizer.vocab_size is %s, but the text has only enough words for %s pieces, so that is its size",
            f"{config.vocab_size:,}",
            f"{tokenizer.vocab_size:,}",
            extra=ABOUT_TEXT,
        )
    return tokenizer


def read_tokenizers(config: TokenizerConfig) -> Tokenizers | None:
    """Read the models named by `tokenizer.model` and `target_model`; None if they are not set."""
    if config.model is None:
        return None
    source = read_tokenizer(config.model)
    return Tokenizers(source, source if config.target_model is None else read_tokenizer(config.target_model))


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a `.model` file. DataError if it cannot be read or used."""
    try:
        return Tokenizer(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


class _TrainingText:
    """The non-blank lines as input for SentencePiece; counts the lines used and those too long, which SentencePiece
    would silently drop."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.used = 0
        self.too_long = 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            if is_blank(line):
                continue
            # SentencePiece skips lines with U+2585, which it uses internally.
            encoded = _utf8(line.replace("\u2585", " "))
            if len(encoded) > _LONGEST_LINE:
                self.too_long += 1
            else:
                self.used += 1
                yield encoded


def _sample(lines: Iterator[bytes], size: int) -> list[bytes]:
    """A uniform random sample of `size` lines, the same for the same lines; SentencePiece's own sample differs from
    process to process. (Algorithm L, Li 1994: it draws how many lines to skip.)"""
    chance = Random(_SEED)
    kept = list(islice(lines, size))
    scale = 1.0
    while True:
        scale *= math.exp(math.log(1.0 - chance.random()) / size)
        passed_over = int(math.log(1.0 - chance.random()) / math.log1p(-scale)) if scale < 1.0 else 0
        following = next(islice(lines, passed_over, None), None)
        if following is None:
            return kept
        kept[chance.randrange(size)] = following


def _reason(error: RuntimeError, config: TokenizerConfig) -> UserError:
    """Turn an error of SentencePiece's training into one that says what to change."""
    if too_small := re.search(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)", str(error)):
        minimum, spelt = int(too_small[1]), config.byte_fallback
        return ConfigError(
            f"tokenizer.vocab_size {config.vocab_size} is too small: the characters of the training text"
            f"{', 256 bytes' if spelt else ''} and the special pieces already need {minimum}; raise it to {minimum} or "
            f"more, {'set tokenizer.byte_fallback to false, ' if spelt else ''}or lower tokenizer.character_coverage "
            "so that rare characters have no piece of their own"
        )
    return DataError(f"SentencePiece cannot train on this text: {error}")


@cache
def _normalizer(name: str) -> sentencepiece.SentencePieceNormalizer:
    sentencepiece.set_min_log_level(_SILENT)
    # These are the defaults, but SentencePiece 0.2.2, which may be installed independently of us, takes them as false.
    made = partial(
        sentencepiece.SentencePieceNormalizer,
        add_dummy_prefix=True,
        escape_whitespaces=True,
        remove_extra_whitespaces=True,
    )
    if name != "clean":
        return made(rule_name=name)
    return made(norm_map=list(clean_rules().items()))


def clean_rules() -> dict[str, str]:
    """The normalisation `clean` as a table, text -> replacement. SentencePiece applies the longest matching entry and
    continues after it. It also merges runs of spaces and strips the ends, without a rule here.

    Canonical composition (NFC) has infinitely many cases. The table has these: every way to write a composed character,
    letters with up to two marks in any order, two marks on anything, and Korean syllables.
    """
    rules: dict[str, str] = {}
    for text in _decomposed_texts():
        # Composed text needs no rule, and neither does text that shorter rules already compose.
        if not unicodedata.is_normalized("NFC", text) and _apply(rules, text) != _nfc(text):
            rules[text] = _nfc(text)
    rules |= dict.fromkeys(SPACES, " ") | dict.fromkeys(VANISHING, "")
    del rules[" "], rules["\0"]  # a rule must change something, and cannot hold NUL
    return rules


def _apply(rules: dict[str, str], text: str) -> str:
    """Apply the rules to a text as SentencePiece does: the longest match first, left to right."""
    result = ""
    while text:
        length = next((length for length in (4, 3, 2, 1) if text[:length] in rules), 0)
        result += rules[text[:length]] if length else text[0]
        text = text[length or 1 :]
    return result


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


_CHARACTERS = range(0x30000)  # no code point beyond composes or decomposes
_SYLLABLES = range(0xAC00, 0xD7A4)  # of Korean
# Hebrew and Arabic vowel signs do not compose, but can stand between a letter and marks that do.
_VOWEL_SIGNS = {chr(code) for code in (*range(0x5B0, 0x5BD), 0x5C7, *range(0x64B, 0x653), 0x670)}


def _decomposed_texts() -> Iterator[str]:
    """Candidates for rules; shorter ones come first, as they can make longer ones unnecessary."""
    families = defaultdict(list)  # letter -> the characters that decompose into it, or into it and marks
    for character in map(chr, _CHARACTERS):
        decomposed = _nfd(character)
        if decomposed != character and ord(character) not in _SYLLABLES:
            yield character
            families[decomposed[0]].append(character)
    composing = {mark for family in families.values() for character in family for mark in _nfd(character)[1:]}
    yield from _mark_pairs()
    for letter, family in families.items():
        blocks = {_block(mark) for character in family for mark in _nfd(character)[1:]}
        marks = [mark for mark in sorted(composing | _VOWEL_SIGNS) if _block(mark) in blocks]
        yield from (beginning + mark for beginning, mark in product([letter, *family], marks))
        yield from (letter + first + second for first, second in product(marks, repeat=2))
        for beginning, character in product([letter, *family], family):
            yield from _spellings(beginning, character)
    for syllable in map(chr, _SYLLABLES):
        jamo = _nfd(syllable)  # leading consonant, vowel and sometimes a final consonant
        yield jamo
        yield _nfc(jamo[:2]) + jamo[2:]


def _mark_pairs() -> Iterator[str]:
    blocks = defaultdict(list)
    for character in map(chr, _CHARACTERS):
        if unicodedata.combining(character):
            blocks[_block(character)].append(character)
    for marks in blocks.values():
        yield from (first + second for first, second in product(marks, repeat=2))


def _block(character: str) -> int:
    """The index of the character's block of 256 code points. Marks on one letter belong to one script, and so to nearby
    code points."""
    return ord(character) >> 8


def _spellings(beginning: str, character: str) -> Iterator[str]:
    """Every canonically equivalent spelling of the character that starts with `beginning`, followed by the missing
    marks in any order."""
    missing = Counter(_nfd(character)[1:])
    missing.subtract(_nfd(beginning)[1:])
    if min(missing.values(), default=0) < 0:
        return
    for marks in permutations(missing.elements()):
        spelling = beginning + "".join(marks)
        if _nfd(spelling) == _nfd(character):
            yield spelling
