"""The recipes fit the configuration, and every size of corpus has one."""

from itertools import pairwise

import pytest

from transformer_cli.config.recipes import RECIPES, Recipe, Vocabulary, recipe_for, vocabulary_for
from transformer_cli.config.schema import ModelConfig


def test_every_size_of_corpus_has_the_first_recipe_that_reaches_it() -> None:
    assert recipe_for(1) is RECIPES[0]
    for smaller, larger in pairwise(RECIPES):
        assert recipe_for(int(smaller.up_to_pairs)) is smaller
        assert recipe_for(int(smaller.up_to_pairs) + 1) is larger
    assert recipe_for(10**12) is RECIPES[-1]


def test_more_text_never_means_a_smaller_model_or_fewer_pieces() -> None:
    for smaller, larger in pairwise(RECIPES):
        assert smaller.up_to_pairs < larger.up_to_pairs
        assert smaller.vocab_size <= larger.vocab_size
        assert smaller.d_model <= larger.d_model
        assert smaller.dropout >= larger.dropout


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_makes_a_model(recipe: Recipe) -> None:
    ModelConfig(d_model=recipe.d_model, ffn_dim=recipe.ffn_dim, num_heads=recipe.num_heads, dropout=recipe.dropout)
    assert recipe.warmup_steps < recipe.max_steps
    assert recipe.max_steps % recipe.valid_steps == 0


def alike(characters: int, each: int = 1000) -> dict[str, int]:
    return {chr(0x4E00 + i): each for i in range(characters)}


@pytest.mark.parametrize(
    ("usual", "characters", "many", "expected"),
    [
        (500, 100, False, Vocabulary(500, 100, 1.0)),
        (500, 416, False, Vocabulary(500, 416, 1.0)),  # 416 and 83 longer pieces
        (500, 418, False, Vocabulary(1000, 418, 0.9995)),
        (1000, 1500, True, Vocabulary(2500, 1500, 0.9995)),  # 1,500 + 300 + 256 do not fit into 2,000
        (1000, 2500, True, Vocabulary(3500, 2499, 0.9995)),  # 2,499 + 499 + 256 bytes
        (1000, 3000, True, Vocabulary(4000, 2999, 0.9995)),  # 2,999 + 599 + 256 bytes
        (4000, 3200, True, Vocabulary(4500, 3199, 0.9995)),  # 3,199 + 639 + 256 do not fit into 4,000
        (32_000, 5000, True, Vocabulary(32_000, 4998, 0.9995)),
    ],
)
def test_every_character_has_a_piece_and_longer_pieces_have_room(
    usual: int, characters: int, many: bool, expected: Vocabulary
) -> None:
    assert vocabulary_for(usual, alike(characters), many) == expected


def test_characters_that_occur_hardly_ever_do_not_enlarge_a_vocabulary() -> None:
    text = alike(100) | {chr(0x3041 + i): 1 for i in range(450)}  # of 0.45 %, 0.05 % may have none
    assert vocabulary_for(500, text, many=False) == Vocabulary(1000, 500, 0.9995)
    assert vocabulary_for(500, text | alike(100, 10_000), many=False).size == 500


def test_bytes_are_for_vocabularies_of_two_thousand_pieces_or_more() -> None:
    assert [vocabulary_for(recipe.vocab_size, {"a": 1}, False).byte_fallback for recipe in RECIPES] == [
        recipe.vocab_size >= 2000 for recipe in RECIPES
    ]
    assert vocabulary_for(500, {}, False) == Vocabulary(500, 0, 1.0)
