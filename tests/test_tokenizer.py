"""Text to ids and back: what `clean` makes of text, against Python's own NFC; sizes, specials and refusals."""

import hashlib
import logging
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise, permutations, product
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_cli.config.schema import TokenizerConfig
from transformer_cli.data import tokenizer as module
from transformer_cli.data.corpus import Pair
from transformer_cli.data.lines import read_lines
from transformer_cli.data.tokenizer import (
    BOS,
    EOS,
    PAD,
    SPACES,
    UNK,
    VANISHING,
    Tokenizer,
    Tokenizers,
    clean_rules,
    is_blank,
    read_tokenizer,
    read_tokenizers,
    train_tokenizer,
    train_tokenizers,
)
from transformer_cli.errors import ConfigError, DataError

DATA = Path(os.environ.get("TRANSFORMER_CLI_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

COLOURS = ["red green blue", "one two three", "dogs chase cats", "birds sing songs"] * 5


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def truth(text: str) -> str:
    """The rules of `clean`, one after the other."""
    text = nfc(text)
    text = "".join(character for character in text if character not in VANISHING)
    text = "".join(" " if character in SPACES else character for character in text)
    return re.sub(" +", " ", text).strip(" ")


# Normalisation

TEXT = (
    "The quick brown fox. Zwölf Boxkämpfer jagen Eva über den großen Sylter Deich! «Où est l’œuf ?», çà et là, naïf. "
    "Đừng nói những điều bạn không nghĩ: ế Ậ ờ ữ ẵ ỵ. Ἀρχὴ ἥμισυ παντός ᾶ ᾷ ῥ ΐ Ώ ᾂ. Ёлка йод. Ō ṻ ǭ ệ Å. "
    "今天天气很好。你好，世界！（真的吗？）「是」；ＡＢＣ１２３％ ガギグパ がぎぐぱ 한국어를 읽는다 값 क़ ज़ ड़ "
    "שלום العَرَبِيَّة أُ ؤ آ 0123456789 "
)
EMOJI = ["👩‍👩‍👧", "🏳️‍🌈", "👍🏽", "❤️", "می\u200cخواهم"]
LETTERS = "aeiouyncszAEOU" + "αεηιουω" + "ا"
MARKS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u0309\u030a\u030c\u031b\u0323\u0327\u0328"
VOWELS = "\u064b\u064e\u064f\u0650\u0651\u0653\u0654\u0655"
MARKED = ["".join(parts) for parts in product(LETTERS[:-1], MARKS, MARKS)] + [
    "".join(parts) for parts in product("ايو", VOWELS, VOWELS)
]


def spellings(character: str) -> set[str]:
    """Composed, decomposed and half composed."""
    decomposed = nfd(character)
    return {character, decomposed, nfc(decomposed[:2]) + decomposed[2:]}


CLUSTERS = sorted({text for letter in TEXT if not unicodedata.combining(letter) for text in spellings(letter)}) + EMOJI
texts = st.lists(
    st.one_of(st.sampled_from(CLUSTERS), st.sampled_from(MARKED), st.sampled_from(SPACES), st.sampled_from(VANISHING))
).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = [TEXT, *EMOJI, *MARKED] * 2
    return train_tokenizer(lines, TokenizerConfig(vocab_size=8000, model_type="bpe", character_coverage=1.0))


@pytest.fixture(scope="module")
def normalizer() -> sentencepiece.SentencePieceNormalizer:
    """The table alone, as SentencePiece applies it."""
    sentencepiece.set_min_log_level(2)
    return sentencepiece.SentencePieceNormalizer(
        norm_map=list(clean_rules().items()), add_dummy_prefix=False, escape_whitespaces=False
    )


@settings(deadline=None, max_examples=300)
@given(text=texts)
def test_decoding_gives_back_the_normalised_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == truth(text)


@settings(deadline=None, max_examples=300)
@given(text=texts)
def test_normalising_twice_changes_nothing_more(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(tokenizer.decode(tokenizer.encode(text))) == tokenizer.encode(text)


@settings(deadline=None, max_examples=300)
@given(text=texts)
def test_blank_is_what_encodes_to_nothing(tokenizer: Tokenizer, text: str) -> None:
    assert is_blank(text) == (tokenizer.encode(text) == [])
    assert is_blank(text) == (truth(text) == "")


def every_character() -> Iterator[str]:
    return (chr(code) for code in range(1, 0x110000) if unicodedata.category(chr(code)) not in ("Cs", "Cn"))


def marked_texts() -> Iterator[str]:
    yield from MARKED
    # Letters that compose with no mark.
    yield from ("q" + first + second for first, second in product(MARKS, repeat=2))
    yield from ("ب" + first + second for first, second in product(VOWELS, repeat=2))
    points = [chr(code) for code in (*range(0x5B0, 0x5BD), 0x5C1, 0x5C2)]
    yield from ("ש" + first + second for first, second in permutations(points, 2))


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(lambda: every_character(), id="each character"),
        pytest.param(lambda: map(nfd, every_character()), id="each character decomposed"),
        pytest.param(lambda: marked_texts(), id="two marks in any order"),
        pytest.param(lambda: map(nfd, marked_texts()), id="two marks decomposed"),
        pytest.param(lambda: (spelling for c in every_character() for spelling in spellings(c)), id="half composed"),
    ],
)
def test_the_table_is_nfc_with_one_kind_of_space(
    normalizer: sentencepiece.SentencePieceNormalizer, texts: object
) -> None:
    originals = list(texts())  # type: ignore[operator]
    normalised = normalizer.normalize(originals)
    assert [pair for pair in zip(originals, normalised, strict=True) if pair[1] != truth(pair[0])] == []
    assert normalizer.normalize(normalised) == normalised


def test_each_kind_of_space_is_one_and_each_control_character_none() -> None:
    for character in every_character():
        category = unicodedata.category(character)
        if category in ("Zs", "Zl", "Zp"):
            assert character in SPACES
        elif category == "Cc":
            assert (character in SPACES) != (character in VANISHING)
    rules = clean_rules()
    for character in "\u200c\u200d\ufe0f\u00ad\u200e，！？（）":
        assert character not in SPACES + VANISHING
        assert character not in rules


def test_spaces_collapse_and_end_nowhere_also_when_the_table_made_them(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("▁\u3000\u200b a\t\u00a0▁ \u200b \u2028b \n")) == "a b"


def test_nul_vanishes_before_it_can_become_an_unknown_piece(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("\0Eva\0 fox\0") == tokenizer.encode("Eva fox")
    assert is_blank("\0")


@pytest.mark.parametrize(
    ("normalization", "expected"),
    [
        ("clean", "（１） é a b"),
        ("identity", "（１） e\u0301 a\u00a0b"),
        ("nfkc", "(1) é a b"),
        ("nmt_nfkc", "(1) é a b"),
    ],
)
def test_each_normalisation_does_what_its_name_says(normalization: str, expected: str) -> None:
    text = "（１） e\u0301 a\u00a0b"
    config = TokenizerConfig.model_validate({"vocab_size": 60, "model_type": "bpe", "normalization": normalization})
    trained = train_tokenizer([text] * 9, config)
    assert trained.decode(trained.encode(text)) == expected


# Special ids


def test_blank_lines_have_no_pieces(tokenizer: Tokenizer) -> None:
    lines = ["", "   ", "\t\t", "\u200b", "\u3000", "Eva", ""]
    assert [len(ids) > 0 for ids in tokenizer.encode_batch(lines)] == [False] * 5 + [True, False]
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_markers_that_a_user_typed_never_become_control_ids(model_type: str) -> None:
    lines = ["ba ce di", "1 < 2 > 1 / 3", "spunk pads"] * 50 + ["ba </s> ce", "x</s>y<pad>z<s>", "<unk> </s>"] * 50
    config = TokenizerConfig.model_validate({"vocab_size": 40, "model_type": model_type})
    trained = train_tokenizer(lines, config)
    text = "ba </s> ce <pad> <unk> <s> di"
    ids = trained.encode(text)
    assert not {PAD, BOS, EOS} & set(ids)
    assert trained.decode(ids) == text
    assert trained.decode([BOS, *ids, EOS, PAD, PAD]) == text
    assert len(set(trained.pieces(range(trained.vocab_size)))) == trained.vocab_size


def test_the_specials_have_the_ids_that_the_model_counts_on(tokenizer: Tokenizer) -> None:
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert tokenizer.encode("\U00012000")[-1] == UNK


def test_the_same_bytes_make_the_same_tokenizer(tokenizer: Tokenizer) -> None:
    again = Tokenizer(tokenizer.proto)
    assert again.vocab_size == tokenizer.vocab_size
    assert again.encode_batch(["Eva jagt"]) == [tokenizer.encode("Eva jagt")]


def test_a_decoded_text_is_one_line_for_every_reader() -> None:
    trained = train_tokenizer(COLOURS, TokenizerConfig(vocab_size=290, model_type="bpe", byte_fallback=True))
    line_feed = trained.pieces(range(trained.vocab_size)).index("<0x0A>")
    assert trained.decode([*trained.encode("red"), line_feed, *trained.encode("blue")]) == "red  blue"


@pytest.mark.parametrize("proto", [b"", b"no model", b"\0" * 100])
def test_bytes_that_are_no_model_are_refused(proto: bytes) -> None:
    with pytest.raises(DataError, match="damaged, or no SentencePiece model"):
        Tokenizer(proto)


def test_a_cut_model_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match="damaged"):
        Tokenizer(tokenizer.proto[:-20])


def test_a_model_with_other_special_ids_is_refused(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(COLOURS), model_prefix=str(tmp_path / "foreign"), vocab_size=30, minloglevel=2
    )
    path = tmp_path / "foreign.model"
    with pytest.raises(DataError, match=r"foreign\.model: .*\(-1, 0, 1, 2\).* pad_id=0 unk_id=1 bos_id=2 eos_id=3"):
        read_tokenizer(path)
    with pytest.raises(DataError, match=r"cannot read .*nothing\.model: No such file"):
        read_tokenizer(tmp_path / "nothing.model")


def test_a_character_or_a_word_is_a_piece() -> None:
    def pieces(model_type: str, text: str) -> list[str]:
        config = TokenizerConfig.model_validate({"vocab_size": 40, "model_type": model_type})
        return train_tokenizer(COLOURS, config).encode_as_pieces(text)

    assert pieces("char", "red dogs") == ["▁", "r", "e", "d", "▁", "d", "o", "g", "s"]
    assert pieces("word", "red dogs") == ["▁red", "▁dogs"]


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char", "word"])
def test_a_symbol_of_the_user_is_one_piece_and_comes_back(model_type: str) -> None:
    config = TokenizerConfig.model_validate(
        {"vocab_size": 60, "model_type": model_type, "user_defined_symbols": ["<2de>", 'a,"b']}
    )
    trained = train_tokenizer([*COLOURS, 'red a,"b'] * 3, config)
    text = '<2de> red a,"b dogs'
    pieces = trained.encode_as_pieces(text)
    assert [piece.removeprefix("▁") for piece in pieces].count("<2de>") == 1
    assert [piece.removeprefix("▁") for piece in pieces].count('a,"b') == 1
    assert trained.decode(trained.encode(text)) == trained.decode_pieces(pieces) == text
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


def test_pieces_come_back_to_text_and_an_unknown_one_is_the_text_itself(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.encode_as_pieces("Eva 𒀀")
    assert pieces[-1] == "𒀀"
    assert tokenizer.decode_pieces(pieces) == "Eva 𒀀"
    assert tokenizer.decode_pieces([]) == ""


def test_a_flat_batch_holds_what_each_text_alone_gives(tokenizer: Tokenizer) -> None:
    lines = ["Eva jagt", "", "\u200b", "fox\0es", "今天"]
    for threads in (1, 3):
        ids, starts = tokenizer.encode_flat(lines, threads)
        assert [ids[a:b].tolist() for a, b in pairwise(starts)] == [tokenizer.encode(line) for line in lines]
        assert ids.dtype == np.uint16


def test_given_models_are_read_for_one_or_both_sides(tmp_path: Path) -> None:
    paths = []
    for size in (25, 30):
        paths.append(tmp_path / f"{size}.model")
        paths[-1].write_bytes(train_tokenizer(COLOURS, TokenizerConfig(vocab_size=size)).proto)
    assert read_tokenizers(TokenizerConfig()) is None
    shared = read_tokenizers(TokenizerConfig(model=paths[0]))
    assert shared is not None
    assert shared.source is shared.target
    both = read_tokenizers(TokenizerConfig(shared=False, model=paths[0], target_model=paths[1]))
    assert both is not None
    assert (both.source.vocab_size, both.target.vocab_size) == (25, 30)
    again = Tokenizers.unpacked(both.packed())
    assert again.protos() == both.protos()
    assert Tokenizers.unpacked(shared.packed()).protos() == shared.protos()


def test_half_characters_are_refused_by_name(tokenizer: Tokenizer) -> None:
    text = b"caf\xe9".decode("utf-8", "surrogateescape")
    for encode in (lambda: tokenizer.encode(text), lambda: tokenizer.encode_batch(["fine", text])):
        with pytest.raises(DataError, match=r"U\+DCE9"):
            encode()


# Sizes


@pytest.mark.parametrize(("model_type", "largest"), [("unigram", 31), ("bpe", 110)])
def test_a_vocabulary_too_large_for_the_text_takes_what_there_is_and_says_so(
    model_type: str, largest: int, caplog: pytest.LogCaptureFixture
) -> None:
    def size(vocab_size: int) -> int:
        config = TokenizerConfig.model_validate({"vocab_size": vocab_size, "model_type": model_type})
        return train_tokenizer(COLOURS, config).vocab_size

    assert size(32000) == largest
    assert [record.getMessage() for record in caplog.records] == [
        f"tokenizer.vocab_size is 32,000, but the text has only enough words for {largest} pieces, so that is its size"
    ]
    assert size(largest) == largest
    assert size(30) == 30
    assert len(caplog.records) == 1


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.parametrize(("byte_fallback", "minimum"), [(False, 21), (True, 277)])
def test_a_vocabulary_too_small_for_the_characters_is_refused_with_the_minimum(
    model_type: str, byte_fallback: bool, minimum: int
) -> None:
    def train(vocab_size: int) -> Tokenizer:
        return train_tokenizer(
            COLOURS,
            TokenizerConfig.model_validate(
                {"vocab_size": vocab_size, "model_type": model_type, "byte_fallback": byte_fallback}
            ),
        )

    with pytest.raises(ConfigError, match=rf"tokenizer\.vocab_size 10 is too small.*need {minimum};"):
        train(10)
    assert train(minimum).vocab_size == minimum


@pytest.mark.parametrize(("model_type", "vocab_size"), [("unigram", 1000), ("bpe", 8000)])
def test_real_text_gets_exactly_the_size_asked_for(
    model_type: str, vocab_size: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = DATA / "multi30k"
    if not folder.is_dir():
        pytest.skip("Multi30k is not here")
    lines = [line for name in ("train.en", "train.de") for line in list(read_lines(folder / name))[:4000]]
    config = TokenizerConfig.model_validate(
        {"vocab_size": vocab_size, "model_type": model_type, "character_coverage": 1.0}
    )
    trained = train_tokenizer(lines, config)
    assert trained.vocab_size == vocab_size
    assert not caplog.records
    assert [trained.decode(ids) for ids in trained.encode_batch(lines)] == [truth(line) for line in lines]


def test_bytes_stand_in_for_characters_without_a_piece() -> None:
    trained = train_tokenizer(COLOURS, TokenizerConfig(vocab_size=280, byte_fallback=True))
    assert UNK not in trained.encode("𒀀 的")
    assert trained.decode(trained.encode("𒀀 的")) == "𒀀 的"


# Training


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_the_same_text_gives_the_same_bytes(model_type: str) -> None:
    config = TokenizerConfig.model_validate({"vocab_size": 300, "model_type": model_type})
    lines = [f"{first} {second}{third}" for first, second, third in product(COLOURS[:4], COLOURS[:4], COLOURS[:4])]
    assert train_tokenizer(lines, config).proto == train_tokenizer(lines, config).proto


@pytest.mark.parametrize("lines", [[], ["", " ", "\u200b"]])
def test_no_text_is_an_error_and_not_a_crash(lines: list[str]) -> None:
    with pytest.raises(DataError, match="no text to train the tokenizer on"):
        train_tokenizer(lines, TokenizerConfig())


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_lines_without_end_are_left_out_and_counted(model_type: str, caplog: pytest.LogCaptureFixture) -> None:
    config = TokenizerConfig.model_validate({"vocab_size": 30, "model_type": model_type})
    trained = train_tokenizer([*COLOURS, "x" * 1_000_000, "y " * 40_000], config)
    assert caplog.messages == ["2 lines of more than 65,535 bytes were not used to train the tokenizer"]
    assert trained.encode("x")[-1] == UNK


def test_a_line_of_thousands_of_bytes_is_used(caplog: pytest.LogCaptureFixture) -> None:
    trained = train_tokenizer([*COLOURS, "x" * 20_000], TokenizerConfig(vocab_size=30, model_type="bpe"))
    assert UNK not in trained.encode("x")
    assert not caplog.messages


def test_a_line_with_the_character_that_sentencepiece_uses_inside_is_not_lost() -> None:
    trained = train_tokenizer([*COLOURS, *["x ▅ y"] * 5], TokenizerConfig(vocab_size=30, model_type="bpe"))
    assert UNK not in trained.encode("x y")
    assert UNK in trained.encode("▅")


def test_a_text_beyond_the_limit_is_sampled_the_same_way_each_time(caplog: pytest.LogCaptureFixture) -> None:
    lines = [COLOURS[number % 4] + str(number) for number in range(1000)]
    config = TokenizerConfig(vocab_size=40, sample_lines=200)
    with caplog.at_level(logging.INFO):
        first = train_tokenizer(lines, config)
    assert caplog.messages == [
        "the tokenizer is trained on 200 lines, a random sample of 1,000 (tokenizer.sample_lines)"
    ]
    # In another process, too: SentencePiece's own sample would be another there.
    script = (
        "import hashlib, sys; from transformer_cli.config.schema import TokenizerConfig; "
        "from transformer_cli.data.tokenizer import train_tokenizer; "
        "config = TokenizerConfig(vocab_size=40, sample_lines=200); "
        "print(hashlib.sha256(train_tokenizer(sys.stdin.read().splitlines(), config).proto).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == hashlib.sha256(first.proto).hexdigest()


@pytest.mark.parametrize("size", [1, 3, 10, 40])
def test_each_line_is_as_likely_in_a_sample_as_any_other(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"%d" % number for number in range(40)]
    times = Counter[bytes]()
    for seed in range(2000):
        monkeypatch.setattr(module, "_SEED", seed)
        kept = module._sample(iter(lines), size)
        assert len(set(kept)) == size
        times.update(kept)
    expected = 2000 * size / 40
    # Six standard deviations of a count.
    assert all(abs(times[line] - expected) <= 6 * (expected * (1 - size / 40)) ** 0.5 for line in lines)


def test_of_fewer_lines_than_wanted_all_are_taken_in_their_order() -> None:
    lines = [b"b", b"a", b"c"]
    assert module._sample(iter(lines), 3) == module._sample(iter(lines), 4) == lines
    assert module._sample(iter([]), 4) == []


def test_an_error_while_reading_comes_out_as_it_is() -> None:
    error = DataError("train.en, line 2: not UTF-8")

    def lines() -> Iterator[str]:
        yield "one"
        raise error

    with pytest.raises(DataError) as caught:
        train_tokenizer(lines(), TokenizerConfig())
    assert caught.value is error


def test_nothing_goes_to_the_streams(capfd: pytest.CaptureFixture[str]) -> None:
    module._normalizer.cache_clear()
    train_tokenizer(COLOURS, TokenizerConfig(vocab_size=30))
    with pytest.raises(ConfigError):
        train_tokenizer(COLOURS, TokenizerConfig(vocab_size=10))
    with pytest.raises(DataError):
        Tokenizer(b"no model")
    assert capfd.readouterr() == ("", "")


def test_a_shared_tokenizer_knows_both_sides_and_separate_ones_their_own() -> None:
    def pairs() -> Iterable[Pair]:
        return [Pair("rot gelb", "黄 红"), Pair("gelb rot", "红 黄")] * 9

    shared = train_tokenizers(pairs, TokenizerConfig(vocab_size=20, model_type="bpe"))
    assert shared.source is shared.target
    assert UNK not in shared.source.encode("rot 红")
    separate = train_tokenizers(pairs, TokenizerConfig(vocab_size=20, model_type="bpe", shared=False))
    assert UNK in separate.source.encode("rot 红")
    assert UNK not in separate.source.encode("rot gelb")
    assert UNK not in separate.target.encode("黄 红")
