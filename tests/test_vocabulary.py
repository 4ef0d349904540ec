"""The pieces of a model as SentencePiece itself tells them, where it does."""

import pytest
import sentencepiece

from transformer_cli.config.schema import TokenizerConfig
from transformer_cli.data.tokenizer import train_tokenizer
from transformer_cli.data.vocabulary import Kind, ModelType, read_vocabulary

LINES = ["red green blue", "one two three", "dogs chase cats", "birds sing 今天"] * 5


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "word", "char"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_texts_scores_and_kinds_are_those_of_the_model(model_type: str, byte_fallback: bool) -> None:
    config = TokenizerConfig.model_validate(
        {
            "vocab_size": 300,
            "model_type": model_type,
            "byte_fallback": byte_fallback,
            "user_defined_symbols": ["<2de>"],
        }
    )
    tokenizer = train_tokenizer(LINES, config)
    vocabulary = read_vocabulary(tokenizer.proto)
    assert vocabulary.model_type is ModelType[model_type.upper()]
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.proto)
    ids = range(model.get_piece_size())
    assert [piece.text for piece in vocabulary.pieces] == [model.id_to_piece(id_) for id_ in ids]
    assert [piece.score for piece in vocabulary.pieces] == pytest.approx([model.get_score(id_) for id_ in ids])
    kinds = [piece.kind for piece in vocabulary.pieces]
    assert kinds[:5] == [Kind.CONTROL, Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, Kind.USER_DEFINED]
    assert [kind is Kind.BYTE for kind in kinds] == [model.is_byte(id_) for id_ in ids]
    assert kinds.count(Kind.NORMAL) > 10
