"""Choose the settings that `init` writes, by the size of the corpus.

Up to 120,000 pairs the settings suit a laptop: training takes at most about three quarters of an hour on two cores.
More text takes a day there, or needs a GPU. Small corpora need small models (on Multi30k's 29,000 pairs, 2 million
parameters are published as better than 49 million), much dropout and a small vocabulary; more text changes all three.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """The settings that depend on the amount of training text."""

    up_to_pairs: float
    vocab_size: int
    d_model: int
    ffn_dim: int
    num_heads: int
    layers: int
    dropout: float
    batch_size: int
    noam_factor: float
    warmup_steps: int
    max_steps: int
    valid_steps: int

    @property
    def byte_fallback(self) -> bool:
        """Whether to use bytes for rare characters; their 256 pieces are too many for a small vocabulary."""
        return self.vocab_size >= 4000


RECIPES = (
    Recipe(5_000, 500, 128, 256, 4, 3, 0.3, 2048, 0.6, 300, 2_000, 200),
    Recipe(15_000, 1_000, 128, 256, 4, 4, 0.2, 2048, 0.6, 300, 3_000, 250),
    Recipe(40_000, 4_000, 128, 512, 4, 4, 0.2, 4096, 0.8, 500, 2_500, 250),
    Recipe(120_000, 8_000, 128, 512, 4, 4, 0.1, 4096, 0.8, 500, 2_500, 250),
    Recipe(1_000_000, 8_000, 256, 1024, 4, 6, 0.1, 8192, 1.0, 2_000, 40_000, 1_000),
    Recipe(float("inf"), 32_000, 512, 2048, 8, 6, 0.1, 16384, 1.0, 4_000, 100_000, 2_000),
)


def recipe_for(pairs: int) -> Recipe:
    """The recipe for a number of training pairs."""
    return next(recipe for recipe in RECIPES if pairs <= recipe.up_to_pairs)
