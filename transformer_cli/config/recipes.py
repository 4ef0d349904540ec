"""Choose the settings that `init` writes, by the size of the corpus.

Up to 120,000 pairs the settings suit a laptop: training takes at most about three quarters of an hour on two cores.
More text takes a day there, or needs a GPU. Small corpora need small models (on Multi30k's 29,000 pairs, 2 million
parameters are published as better than 49 million), much dropout and a small vocabulary; more text changes all three.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate


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


@dataclass(frozen=True)
class Vocabulary:
    """The settings of `tokenizer` that depend on the characters of the text."""

    size: int
    characters: int
    """Characters with a piece of their own."""
    coverage: float
    """Share of the text that those characters make up."""

    @property
    def byte_fallback(self) -> bool:
        """Whether to use bytes for rare characters; their 256 pieces are too many for a small vocabulary."""
        return self.size >= _BYTES_FROM


_BYTES_FROM = 2_000
_STEP = 500
_RARE = 0.9995  # SentencePiece's default coverage, advised for scripts with thousands of characters


def vocabulary_for(usual: int, counts: Mapping[str, int], many: bool) -> Vocabulary:
    """The vocabulary for a text, from the counts of its characters: of the `usual` size, unless the characters leave
    too little room for longer pieces.

    Every character has a piece, except the rarest where there are `many` different ones in the language, or too many
    in the text for that size.
    """
    coverage = _RARE if many else 1.0
    if _least(usual, _characters(counts, coverage)) > usual:
        coverage = _RARE
    characters = _characters(counts, coverage)
    size = usual
    while _least(size, characters) > size:
        size += _STEP - size % _STEP
    return Vocabulary(size, characters, coverage)


def _characters(counts: Mapping[str, int], coverage: float) -> int:
    """How many of the most frequent characters make up this share of a text."""
    most_frequent = sorted(counts.values(), reverse=True)
    wanted = coverage * sum(most_frequent)
    return next((n for n, total in enumerate(accumulate(most_frequent), start=1) if total >= wanted), 0)


def _least(size: int, characters: int) -> int:
    """The pieces that a vocabulary of a size needs: those of the characters, a fifth as many longer ones, bytes."""
    return characters + characters // 5 + (256 if size >= _BYTES_FROM else 0)
