"""Alignments on a task whose truth is known: each word of the target is its source word in capitals."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from untrained import LINES, translator

from transformer_cli.config.schema import DecodingConfig
from transformer_cli.decoding.align import align
from transformer_cli.decoding.translator import Translation, Translator, joined

Pairs = Callable[..., Iterator[tuple[str, str]]]


@pytest.fixture(scope="module")
def copier(trained: Path) -> Translator:
    torch.set_num_threads(1)
    return Translator.load(trained, device="cpu")


@pytest.fixture(scope="module")
def translations(copier: Translator, pairs: Pairs) -> list[Translation]:
    return [best for (best,) in copier.translate([source for source, _ in pairs(60, 9)])]


def words_of(pieces: list[str]) -> list[int]:
    """The number of the word that each piece belongs to."""
    return [sum(piece.startswith("▁") for piece in pieces[: i + 1]) - 1 for i in range(len(pieces))]


def test_most_pieces_align_to_the_word_that_they_copy(copier: Translator, translations: list[Translation]) -> None:
    right = pieces = 0
    for one, alignment in zip(translations, align(copier, translations), strict=True):
        source = copier.tokenizers.source.decode(list(one.source_ids)).split()
        if one.text.split() != [word.upper() for word in source]:
            continue
        of_source = words_of(copier.tokenizers.source.pieces(one.source_ids))
        of_target = words_of(copier.tokenizers.target.pieces(one.ids))
        # A word that stands there twice may be copied from either.
        right += sum(source[of_source[i]] == source[of_target[j]] for i, j in alignment)
        pieces += len(alignment)
    assert pieces > 150
    assert right / pieces > 0.55, f"{right} of {pieces}, and by chance it would be about a fifth"


def test_there_is_a_pair_for_each_piece_in_order_and_in_range(
    copier: Translator, translations: list[Translation]
) -> None:
    for one, alignment in zip(translations, align(copier, translations), strict=True):
        assert [j for _, j in alignment] == list(range(len(one.ids)))
        assert all(0 <= i < len(one.source_ids) for i, _ in alignment)


def test_neighbours_have_no_say_in_an_alignment(copier: Translator, translations: list[Translation]) -> None:
    assert [align(copier, [one])[0] for one in translations[:20]] == align(copier, translations[:20])


def test_what_has_no_pieces_has_no_pairs(copier: Translator, translations: list[Translation]) -> None:
    empty = Translation("", 0.0, 0.0, 0, False)
    ended = replace(translations[0], text="", ids=())  # a source, of which nothing was made
    assert align(copier, []) == []
    assert align(copier, [empty, ended]) == [[], []]
    assert align(copier, [empty, translations[0], ended, translations[1]]) == [
        [],
        *align(copier, translations[:1]),
        [],
        *align(copier, translations[1:2]),
    ]


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_translation_as_long_as_learned_positions_has_its_pairs(layers: int) -> None:
    learned = translator(
        {"model": {"positions": "learned", "max_positions": 12, "decoder_layers": layers}, "data": {"max_length": 11}}
    )
    found = [best for (best,) in learned.translate(LINES[1:2], DecodingConfig(beam_size=1, max_length_b=100))]
    assert len(found[0].ids) == 12
    (alignment,) = align(learned, found)
    assert len(alignment) == 12


def test_what_was_translated_in_parts_is_aligned_part_by_part(copier: Translator) -> None:
    first, second = (best for (best,) in copier.translate(["ba ce di", "fo gu ha je"]))
    whole = joined([first, second], " ")
    one, other = align(copier, [first, second])
    moved = [(i + len(first.source_ids), j + len(first.ids)) for i, j in other]
    assert align(copier, [second, whole, first]) == [other, [*one, *moved], one]
