"""Subword sampling: segment the training text differently each epoch, with the pieces of the same tokenizer.

Unigram models draw from all segmentations of a word (Kudo 2018, "Subword Regularization"); BPE models leave out merges
(Provilkov et al. 2020, "BPE-Dropout"). SentencePiece does both, but its randomness depends on the process. Here it
depends on (seed, epoch, pair, side) alone, so that a text is segmented in the same way by any process, in any order and
after any interruption.
"""

import hashlib
import math
from bisect import bisect
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random

import numpy as np

from transformer_cli.data.batching import Update
from transformer_cli.data.dataset import Sequences, TokenDataset
from transformer_cli.data.tokenizer import SPACE, Ids, Tokenizer, Tokenizers
from transformer_cli.data.vocabulary import Kind, ModelType, read_vocabulary
from transformer_cli.errors import ConfigError

_WORDS = 20_000  # words whose lattices are cached
_LONGEST_CACHED = 20  # characters; longer ones hardly recur: without spaces, as in Chinese, a whole line is one word

_Scores = dict[str, tuple[float, int]]  # text of a piece -> its score and id
# For each position in a word: the pieces that end there, as (start, id), and the cumulative sums of their weights.
_Lattice = list[tuple[list[tuple[int, int]], list[float]]]


class Sampler:
    """Draws new segmentations for the pairs of updates."""

    def __init__(self, tokenizers: Tokenizers, alpha: float, seed: int, max_length: int) -> None:
        """`alpha`: see `tokenizer.sampling_alpha`. A text whose sample is longer than `max_length` pieces keeps its
        original segmentation. ConfigError if a tokenizer has only one segmentation of a text."""
        self._source = _Cutter(tokenizers.source, alpha)
        self._target = _Cutter(tokenizers.target, alpha)
        self._seed = seed
        self._max_length = max_length

    def sampled(self, dataset: TokenDataset, update: Update, place: tuple[int, ...]) -> tuple[TokenDataset, Update]:
        """A new dataset of the pairs of an update, with sampled pieces, and the update as indices into that dataset.

        `place` identifies the pass over the dataset: the epoch, and for a stream also the window and the rank. The new
        dataset has the new lengths, so that `micro_batches` keeps to its budget. The update was planned with the
        original lengths, and may exceed its size.
        """
        indices = np.concatenate(update).tolist()
        source = self._cut(self._source, dataset.source, indices, (*place, 0))
        target = self._cut(self._target, dataset.target, indices, (*place, 1))
        ends = np.cumsum([len(group) for group in update])
        return TokenDataset(source, target), np.split(np.arange(len(indices)), ends[:-1])

    def _cut(self, cutter: "_Cutter", plain: Sequences, indices: list[int], place: tuple[int, ...]) -> Sequences:
        found: list[Ids] = []
        for index in indices:
            ids = cutter.cut(plain[index].tolist(), self._chance(*place, index))
            found.append(np.array(ids, plain.ids.dtype) if len(ids) <= self._max_length else plain[index])
        return Sequences(np.concatenate(found), np.cumsum([0, *map(len, found)]))

    def _chance(self, *parts: int) -> Random:
        digest = hashlib.blake2b(repr((self._seed, *parts)).encode(), digest_size=8).digest()
        return Random(int.from_bytes(digest, "little"))


class _Cutter:
    """Draws a segmentation for each word of a text. Unknown pieces, bytes and user-defined symbols stay as they are."""

    def __init__(self, tokenizer: Tokenizer, alpha: float) -> None:
        model_type, pieces = read_vocabulary(tokenizer.proto)
        if model_type not in (ModelType.UNIGRAM, ModelType.BPE):
            raise ConfigError(
                "tokenizer.sampling_alpha needs a unigram or bpe model: one of characters or words has one way to cut "
                "a text"
            )
        self._texts = [piece.text if piece.kind is Kind.NORMAL else None for piece in pieces]
        scores = {text: (pieces[id_].score, id_) for id_, text in enumerate(self._texts) if text is not None}
        self._words = (_Unigram if model_type is ModelType.UNIGRAM else _Merges)(scores, alpha)

    def cut(self, ids: list[int], chance: Random) -> list[int]:
        found: list[int] = []
        begin = 0
        for end in range(1, len(ids) + 1):
            if end == len(ids) or self._begins(ids[end]) or self._texts[ids[begin]] is None:
                word = ids[begin:end]
                text = "".join(self._texts[id_] or "" for id_ in word)
                found += self._words.cut(text, chance) or word
                begin = end
        return found

    def _begins(self, id_: int) -> bool:
        """Whether a piece begins a word, or is one that is never resegmented."""
        text = self._texts[id_]
        return text is None or text.startswith(SPACE)


class _Unigram:
    """Draws a segmentation of a word with probability proportional to the product of its pieces' probabilities, raised
    to the power alpha: weights are summed forward over the word, and pieces sampled backward."""

    def __init__(self, scores: _Scores, alpha: float) -> None:
        self._scores = scores
        self._alpha = alpha
        self._longest = max(map(len, scores))
        self._cached_lattice = lru_cache(_WORDS)(self._new_lattice)

    def cut(self, word: str, chance: Random) -> list[int]:
        lattice = (self._cached_lattice if len(word) <= _LONGEST_CACHED else self._new_lattice)(word)
        found = []
        place = len(word)
        while place:
            pieces, shares = lattice[place]
            place, id_ = pieces[bisect(shares, chance.random() * shares[-1])]
            found.append(id_)
        return found[::-1]

    def _new_lattice(self, word: str) -> _Lattice:
        lattice: _Lattice = [([], [])]
        totals = [0.0]  # for each position, the log of the summed weights of all segmentations up to it
        for end in range(1, len(word) + 1):
            pieces, weights = [], []
            for start in range(max(end - self._longest, 0), end):
                if (piece := self._scores.get(word[start:end])) is not None and totals[start] > -math.inf:
                    pieces.append((start, piece[1]))
                    weights.append(totals[start] + self._alpha * piece[0])
            most = max(weights, default=-math.inf)
            shares = list(accumulate(math.exp(weight - most) for weight in weights))
            totals.append(most + math.log(shares[-1]) if shares else most)
            lattice.append((pieces, shares))
        return lattice


class _Merges:
    """Applies BPE merges to the characters of a word, best first; at each step each merge is left out with probability
    alpha."""

    def __init__(self, scores: _Scores, alpha: float) -> None:
        self._scores = scores
        self._alpha = alpha

    def cut(self, word: str, chance: Random) -> list[int]:
        """Segment a word; empty if a character has no piece of its own, as in a truncated vocabulary."""
        symbols = list(word)
        if not all(symbol in self._scores for symbol in symbols):
            return []
        while True:
            best: tuple[float, int] | None = None
            for place, (left, right) in enumerate(pairwise(symbols)):
                merged = self._scores.get(left + right)
                if merged is None or chance.random() < self._alpha:
                    continue
                if best is None or merged[0] > best[0]:
                    best = merged[0], place
            if best is None:
                return [self._scores[symbol][1] for symbol in symbols]
            place = best[1]
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
