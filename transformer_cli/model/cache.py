"""What a decoder keeps of the words so far while it translates, so that no step computes them again.

    B sentences   W rows of a sentence (beam)   H heads   S source length   D d_model   K = D // H

The rows of a sentence share one list of places in the cache, each holding one word of one row. Where a beam splits or
dies nothing is moved: only which places each row sees.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

_LEAST_PLACES = 32  # of a sentence, for the words of all its rows


class LayerCache(NamedTuple):
    """Keys and values of one decoder layer. Words are written in place, behind those that are there."""

    together: tuple[Tensor, Tensor]  # the projections to queries, keys and values as one: (3 D, D) and (3 D)
    self_keys: Tensor  # (B, H, places, K), some still empty
    self_values: Tensor  # (B, H, places, K)
    memory_keys: Tensor  # (B, H, S, K): once a sentence, however many beams ask
    memory_values: Tensor  # (B, H, S, K)


@dataclass(frozen=True)
class DecoderState:
    """All that the next step needs: the caches of B sentences with W rows each, and what each row sees of them."""

    layers: tuple[LayerCache, ...]
    src_mask: Tensor  # (B, 1, S)
    visible: Tensor  # (B, W, filled) bool: True = this place holds an earlier word of this row
    position: int  # words that each row has

    @property
    def filled(self) -> int:
        """Places taken in the caches."""
        return self.visible.shape[2]

    def with_room(self, places: int) -> "DecoderState":
        """One with so many free places behind the filled ones.

        Where no more than half of the filled places are of use any more, rows having died, those close up instead.
        """
        keys = self.layers[0].self_keys
        if self.filled + places <= keys.shape[2]:
            return self
        used = self.visible.any(1)  # (B, filled)
        most = int(used.sum(1).max()) if self.filled else 0
        if 2 * most > self.filled:
            most, order = self.filled, None
        else:
            order = (~used).byte().argsort(dim=1, stable=True)[:, :most]  # (B, most), in the order they were filled
        length = 2 * most + max(places, _LEAST_PLACES)

        def moved(cache: Tensor) -> Tensor:
            sentences, heads, _, width = cache.shape
            larger = cache.new_zeros(sentences, heads, length, width)
            kept = cache[:, :, : self.filled]
            if order is not None:
                kept = kept.gather(2, order.view(sentences, 1, most, 1).expand(-1, heads, -1, width))
            larger[:, :, :most] = kept
            return larger

        layers = tuple(
            cache._replace(self_keys=moved(cache.self_keys), self_values=moved(cache.self_values))
            for cache in self.layers
        )
        visible = self.visible
        if order is not None:
            visible = visible.gather(2, order.unsqueeze(1).expand(-1, visible.shape[1], -1))
        return replace(self, layers=layers, visible=visible)
