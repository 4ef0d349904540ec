"""The recipes fit the configuration, and every size of corpus has one."""

from itertools import pairwise

import pytest

from transformer_cli.config.recipes import RECIPES, Recipe, recipe_for
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
def test_every_recipe_makes_a_model_and_bytes_start_at_four_thousand_pieces(recipe: Recipe) -> None:
    ModelConfig(d_model=recipe.d_model, ffn_dim=recipe.ffn_dim, num_heads=recipe.num_heads, dropout=recipe.dropout)
    assert recipe.byte_fallback == (recipe.vocab_size >= 4000)
    assert recipe.warmup_steps < recipe.max_steps
    assert recipe.max_steps % recipe.valid_steps == 0
