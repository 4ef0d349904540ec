"""Read the pieces of a SentencePiece model, with their scores and kinds, and the model type.

SentencePiece's own package tells neither the model type nor which pieces are user-defined. The model is a
protocol-buffer message, of which only the fields needed here are read.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """The kind of a piece."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class ModelType(IntEnum):
    """The segmentation algorithm of a model."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


class Piece(NamedTuple):
    """A piece of a vocabulary. `score` is a log-probability; in a BPE model it ranks the merges, the first highest."""

    text: str
    score: float
    kind: Kind


class Vocabulary(NamedTuple):
    """The type of a model and its pieces, indexed by id."""

    model_type: ModelType
    pieces: list[Piece]


def read_vocabulary(proto: bytes) -> Vocabulary:
    """The vocabulary of a `.model` file that SentencePiece has accepted."""
    model_type, pieces = ModelType.UNIGRAM, []
    for number, value in _fields(proto):
        if number == 1:
            found = dict(_fields(value))
            score = struct.unpack("<f", found.get(2, bytes(4)))[0]
            pieces.append(Piece(found[1].decode(), score, Kind(_number(found.get(3, b"\1")))))
        elif number == 2:
            model_type = ModelType(_number(dict(_fields(value)).get(3, b"\1")))
    return Vocabulary(model_type, pieces)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message: the number of each, and its encoded value."""
    place = 0
    while place < len(message):
        start, place = place, _behind_number(message, place)
        number, form = divmod(_number(message[start:place]), 8)
        start = place
        if form == 0:
            place = _behind_number(message, place)
        elif form == 2:
            place = _behind_number(message, place)
            start, place = place, place + _number(message[start:place])
        else:
            place += {1: 8, 5: 4}[form]
        yield number, message[start:place]


def _behind_number(message: bytes, place: int) -> int:
    while message[place] & 0x80:
        place += 1
    return place + 1


def _number(encoded: bytes) -> int:
    return sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(encoded))
