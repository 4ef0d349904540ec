"""Pairs become flat arrays of ids; a pair that must go takes both of its sides along and is counted."""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from transformer_cli.data import dataset
from transformer_cli.data.corpus import Pair
from transformer_cli.data.dataset import Sequences, TokenDataset, encode_pairs
from transformer_cli.data.filters import FilterCounts, drop_empty
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers


class Lengths:
    """A tokenizer whose pieces are words and whose ids are their lengths; `_` is a word without any piece."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def encode_flat(self, texts: Sequence[str], threads: int) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        self.calls.append(len(texts))
        lists = [[len(word) for word in text.split() if word != "_"] for text in texts]
        ids = [id_ for ids in lists for id_ in ids]
        return np.array(ids, dtype=np.uint16), np.cumsum([0, *map(len, lists)])


def tokenizers() -> Tokenizers:
    return Tokenizers(cast(Tokenizer, Lengths()), cast(Tokenizer, Lengths()))


def as_lists(sequences: Sequences) -> list[list[int]]:
    return [sequences[i].tolist() for i in range(len(sequences))]


def indices(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64)


def test_ids_lie_end_to_end() -> None:
    found = encode_pairs([Pair("a bb", "ccc"), Pair("dddd", "a a a")], tokenizers(), FilterCounts())
    assert found.source.ids.tolist() == [1, 2, 4]
    assert found.source.starts.tolist() == [0, 2, 3]
    assert found.target.ids.tolist() == [3, 1, 1, 1]
    assert found.target.starts.tolist() == [0, 1, 4]
    assert found.source.ids.dtype == np.uint16
    assert as_lists(found.source) == [[1, 2], [4]]
    assert as_lists(found.target) == [[3], [1, 1, 1]]
    assert len(found) == 2


def test_a_pair_without_pieces_on_one_side_goes_as_a_whole_and_is_counted() -> None:
    counts = FilterCounts()
    pairs = [Pair("a", "b"), Pair("_", "xx"), Pair("xx", "_ _"), Pair("_", "_"), Pair("ccc", "dddd")]
    found = encode_pairs(pairs, tokenizers(), counts)
    assert as_lists(found.source) == [[1], [3]]
    assert as_lists(found.target) == [[1], [4]]
    assert counts == FilterCounts(read=0, empty=3, too_long=0)


def test_a_pair_beyond_the_limit_on_one_side_goes_as_a_whole_and_is_counted() -> None:
    counts = FilterCounts()
    pairs = [Pair("a b c", "x y z"), Pair("a b c d", "x"), Pair("a", "x y z w"), Pair("a", "x")]
    found = encode_pairs(pairs, tokenizers(), counts, max_length=3)
    assert as_lists(found.source) == [[1, 1, 1], [1]]
    assert as_lists(found.target) == [[1, 1, 1], [1]]
    assert counts == FilterCounts(read=0, empty=0, too_long=2)


def test_without_a_limit_nothing_is_too_long() -> None:
    counts = FilterCounts()
    assert len(encode_pairs([Pair("a " * 5000, "b")], tokenizers(), counts)) == 1
    assert counts.too_long == 0


def test_the_counts_of_all_filters_add_up() -> None:
    counts = FilterCounts()
    pairs = [Pair("a", "b"), Pair("", "b"), Pair("_", "b"), Pair("a b c", "b"), Pair("c", "d")]
    found = encode_pairs(drop_empty(pairs, counts), tokenizers(), counts, max_length=2)
    assert counts == FilterCounts(read=5, empty=2, too_long=1)
    assert len(found) == counts.kept == 2


def test_pairs_are_read_a_chunk_at_a_time_and_the_chunk_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [Pair(f"{'a' * i} " * i, f"{'b' * i} " * (9 - i)) for i in range(10)]
    whole = encode_pairs(pairs, tokenizers(), FilterCounts(), max_length=7)
    monkeypatch.setattr(dataset, "_CHUNK", 3)
    taken: list[int] = []

    def counted() -> Iterator[Pair]:
        for number, pair in enumerate(pairs):
            taken.append(number)
            yield pair

    source, target = Lengths(), Lengths()
    chunked = encode_pairs(
        counted(), Tokenizers(cast(Tokenizer, source), cast(Tokenizer, target)), FilterCounts(), max_length=7
    )
    assert source.calls == target.calls == [3, 3, 3, 1]
    assert taken == list(range(10))
    for found, expected in ((chunked.source, whole.source), (chunked.target, whole.target)):
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.starts.tolist() == expected.starts.tolist()


def test_no_pair_gives_an_empty_dataset() -> None:
    found = encode_pairs([], tokenizers(), FilterCounts())
    assert len(found) == len(found.source) == len(found.target) == 0
    assert found.sizes(indices()).tolist() == []


def test_lengths_count_pieces_and_sizes_the_longer_side_with_its_end_symbol() -> None:
    pairs = [Pair("a", "b b b"), Pair("a a", "b"), Pair("a a", "b b")]
    found = encode_pairs(pairs, tokenizers(), FilterCounts())
    assert found.source.lengths(indices(0, 1, 2)).tolist() == [1, 2, 2]
    assert found.target.lengths(indices(2, 0)).tolist() == [2, 3]
    assert found.sizes(indices(0, 1, 2)).tolist() == [4, 3, 3]
    assert found.sizes(indices(2, 2, 0)).tolist() == [3, 3, 4]


def test_an_id_beyond_16_bits_is_kept() -> None:
    ids = np.array([70_000, 4_000_000_000], dtype=np.uint32)
    sequences = Sequences(ids, np.array([0, 1, 2], dtype=np.int64))
    found = TokenDataset(sequences, sequences)
    assert as_lists(found.source) == [[70_000], [4_000_000_000]]
