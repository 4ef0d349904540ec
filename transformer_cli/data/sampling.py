"""Subword sampling: the text of training pairs cut into other pieces each epoch (Kudo 2018; Provilkov et al. 2020).

Chance is seeded by (seed, epoch, pair, side) before each text: whoever cuts it, in whatever order and after whatever
interruption, cuts it the same way.
"""

import hashlib

import numpy as np

from transformer_cli.data.batching import Update
from transformer_cli.data.dataset import Sequences, TokenDataset
from transformer_cli.data.tokenizer import Ids, Tokenizer, Tokenizers


class Sampler:
    """Cuts the pairs of updates anew."""

    def __init__(self, tokenizers: Tokenizers, alpha: float, seed: int, max_length: int) -> None:
        """`alpha` is SentencePiece's; what comes out longer than `max_length` pieces is left as it was. DataError if
        the tokenizers have but one way to cut a text."""
        self._tokenizers = tokenizers
        self._alpha = alpha
        self._seed = seed
        self._max_length = max_length
        for tokenizer in (tokenizers.source, tokenizers.target):
            tokenizer.sample(b"", alpha, seed)

    def sampled(self, dataset: TokenDataset, update: Update, epoch: int) -> tuple[TokenDataset, Update]:
        """The pairs of an update with other pieces, as a dataset of their own, and the update in their numbers.

        Their lengths are the new ones, so that `micro_batches` keeps its budget; the update itself was planned by the
        old ones, and grows as they do.
        """
        assert dataset.source_text is not None
        assert dataset.target_text is not None
        indices = np.concatenate(update)
        sides = (
            self._cut(self._tokenizers.source, dataset.source, dataset.source_text, indices.tolist(), epoch, 0),
            self._cut(self._tokenizers.target, dataset.target, dataset.target_text, indices.tolist(), epoch, 1),
        )
        ends = np.cumsum([len(group) for group in update])
        return TokenDataset(*sides), np.split(np.arange(len(indices)), ends[:-1])

    def _cut(
        self, tokenizer: Tokenizer, plain: Sequences, text: Sequences, indices: list[int], epoch: int, side: int
    ) -> Sequences:
        found: list[Ids] = []
        for index in indices:
            ids = tokenizer.sample(text[index].tobytes(), self._alpha, self._derived_seed(epoch, index, side))
            fits = 0 < len(ids) <= self._max_length
            found.append(np.array(ids, dtype=plain.ids.dtype) if fits else plain[index])
        return Sequences(np.concatenate(found), np.cumsum([0, *map(len, found)]))

    def _derived_seed(self, *parts: int) -> int:
        digest = hashlib.blake2b(repr((self._seed, *parts)).encode(), digest_size=4).digest()
        return int.from_bytes(digest, "little")
