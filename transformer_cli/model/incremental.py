"""The decoder of a Transformer one word at a time, for translation: no step computes the earlier words again.

    B sentences   W rows of a sentence (beam)   N = B * W   H heads   S source length   D d_model   K = D // H

The rows of a sentence share one list of places in the cache, each holding one word of one row. Where a beam splits or
dies nothing is moved: only which places each row sees. The memory's keys and values are kept once a sentence, with its
rows as the queries.

Few rows are multiplied with large matrices here, for which the matrices are kept the other way round than a layer has
them: on a processor the products are then up to twice as fast.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.model.blocks import LayerNorm, Linear
from transformer_cli.model.transformer import DecoderLayer, Transformer

_SMALL_PRODUCT = 400  # multiplications
_LANES = 16  # a softmax over fewer numbers, or over a few more, takes PyTorch several times as long on a processor


class LayerCache(NamedTuple):
    """Keys and values of one decoder layer. Words are written in place, behind those that are there."""

    self_keys: Tensor  # (B, H, places, K), some still empty
    self_values: Tensor  # (B, H, places, K)
    memory_keys: Tensor  # (B, H, S, K): once a sentence, however many beams ask; S in whole lanes
    memory_values: Tensor  # (B, H, S, K)


@dataclass(frozen=True)
class DecoderState:
    """All that the next step needs: the caches of B sentences with W rows each, and what each row sees of them."""

    layers: tuple[LayerCache, ...]
    source_bias: Tensor  # (B, 1, 1, S): 0 where the source has a word; S rounded up to whole lanes
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
        if _whole_lanes(self.filled + places) <= keys.shape[2]:
            return self
        used = self.visible.any(1)  # (B, filled)
        most = int(used.sum(1).max()) if self.filled else 0
        if 2 * most > self.filled:
            most, order = self.filled, None
        else:
            order = (~used).byte().argsort(dim=1, stable=True)[:, :most]  # (B, most), in the order they were filled
        length = _whole_lanes(2 * most + max(places, 2 * _LANES))

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


class _Product(NamedTuple):
    """y = x W^T + b, with W^T in memory."""

    weight: Tensor  # (in, out)
    bias: Tensor  # (out)

    @classmethod
    def of(cls, *layers: Linear) -> "_Product":
        """Several layers of one input as one, their outputs side by side."""
        weight = torch.cat([layer.weight for layer in layers]).t().contiguous()
        return cls(weight, torch.cat([layer.bias for layer in layers]))

    def to(self, dtype: torch.dtype) -> "_Product":
        """In another number format."""
        return _Product(self.weight.to(dtype), self.bias.to(dtype))

    def scaled(self, outputs: int, factor: float) -> "_Product":
        """With the first outputs multiplied by a factor."""
        self.weight[:, :outputs] *= factor
        self.bias[:outputs] *= factor
        return self

    def __call__(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


class _Layer:
    """A decoder layer (Figure 1), its matrices ready for few rows; the queries come scaled by 1 / sqrt(K)."""

    def __init__(self, layer: DecoderLayer, dtype: torch.dtype) -> None:
        own, cross, inner = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.pre_norm = layer.pre_norm
        self.heads = own.num_heads
        self.cross = cross
        width, scale = own.query.out_features, (own.num_heads / own.query.out_features) ** 0.5
        self.own_in = _Product.of(own.query, own.key, own.value).scaled(width, scale).to(dtype)
        self.own_out = _Product.of(own.output).to(dtype)
        self.cross_in = _Product.of(cross.query).scaled(width, scale).to(dtype)
        self.cross_out = _Product.of(cross.output).to(dtype)
        self.ffn_in = _Product.of(inner.inner).to(dtype)
        self.ffn_out = _Product.of(inner.outer).to(dtype)
        self.activation: Callable[[Tensor], Tensor] = inner.activation
        self.own_norm: LayerNorm = layer.self_attention_norm
        self.cross_norm: LayerNorm = layer.cross_attention_norm
        self.ffn_norm: LayerNorm = layer.feed_forward_norm

    def start(self, memory: Tensor) -> LayerCache:
        """No word yet: memory (B, S, D) -> the cache of B sentences."""
        more = (0, 0, 0, _whole_lanes(memory.shape[1]) - memory.shape[1])
        keys, values = F.pad(self.cross.keys(memory), more), F.pad(self.cross.values(memory), more)  # (B, H, S, K)
        keys, values = keys.contiguous(), values.contiguous()
        return LayerCache(keys[:, :, :0], values[:, :, :0], keys, values)

    def step(self, x: Tensor, cache: LayerCache, filled: int, visible: Tensor | None, source: Tensor) -> Tensor:
        """The newest word of each row, which takes the places from `filled` on: x (N, D) -> (N, D).

        What each row sees, as what is added to the scores: visible (B, 1, W, places) or None for all, source
        (B, 1, 1, S); the places are filled + W rounded up to whole lanes.
        """
        h = self.own_norm(x) if self.pre_norm else x
        sentences, heads, *_ = cache.self_keys.shape
        width = len(x) // sentences
        q, k, v = self.own_in(h).view(sentences, width, 3, heads, -1).permute(2, 0, 3, 1, 4)  # (B, H, W, K)
        cache.self_keys.narrow(2, filled, width).copy_(k)
        cache.self_values.narrow(2, filled, width).copy_(v)
        places = _whole_lanes(filled + width)
        keys, values = cache.self_keys.narrow(2, 0, places), cache.self_values.narrow(2, 0, places)
        x = x + self.own_out(_attend(q, keys, values, visible))
        x, h = (x, self.cross_norm(x)) if self.pre_norm else (normed := self.own_norm(x), normed)
        q = self.cross_in(h).view(sentences, width, heads, -1).transpose(1, 2)
        x = x + self.cross_out(_attend(q, cache.memory_keys, cache.memory_values, source))
        x, h = (x, self.ffn_norm(x)) if self.pre_norm else (normed := self.cross_norm(x), normed)
        x = x + self.ffn_out(self.activation(self.ffn_in(h)))
        return x if self.pre_norm else self.ffn_norm(x)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of scaled q (B, H, W, K) over k and v (B, H, S, K), bias (B, 1, W or 1, S) added to scores -> (N, D).

    Two products are faster than the fused kernel on a processor, but for a single row in bf16, and for matrices so
    small that PyTorch multiplies them in a loop of its own.
    """
    sentences, heads, width, size = q.shape
    if (width == 1 and q.dtype != torch.float32) or width * size * k.shape[2] < _SMALL_PRODUCT:
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0).transpose(1, 2)
    else:
        scores = torch.bmm(q.reshape(-1, width, size), k.flatten(0, 1).transpose(1, 2))  # (B * H, W, S)
        if bias is not None:
            scores.view(sentences, heads, width, -1).add_(bias)
        attended = torch.bmm(scores.softmax(-1).to(v.dtype), v.flatten(0, 1))  # (B * H, W, K)
        if width > 1:
            attended = attended.view(sentences, heads, width, size).transpose(1, 2)
    return attended.reshape(sentences * width, heads * size)


def _whole_lanes(length: int) -> int:
    return -(-length // _LANES) * _LANES


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What a mask (…, S), True = may attend, adds to scores (…, S in whole lanes): 0, or the lowest number."""
    mask = F.pad(mask, (0, _whole_lanes(mask.shape[-1]) - mask.shape[-1]))
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


class IncrementalDecoder:
    """A trained model behind the protocol of `decoding.search`. It has the weights of the moment it was made."""

    @torch.no_grad()
    def __init__(self, model: Transformer, dtype: torch.dtype | None = None) -> None:
        """`dtype` is the number format of the products where it is not the model's own, as under autocast, which would
        convert every matrix at every step."""
        dtype = dtype or model.output.weight.dtype
        self.model = model
        self.layers = [_Layer(layer, dtype) for layer in model.decoder.layers]
        self.output = model.output.weight.t().contiguous().to(dtype)  # (D, V)

    def start(self, src: Tensor, src_mask: Tensor) -> DecoderState:
        """Encode once: src (B, S), src_mask (B, 1, S) -> the state of B sentences with one row each and no word yet."""
        memory = self.model.encode(src, src_mask)
        layers = tuple(layer.start(memory) for layer in self.layers)
        bias = _bias(src_mask.unsqueeze(1), layers[0].memory_keys.dtype)
        visible = torch.empty(len(src), 1, 0, dtype=torch.bool, device=src.device)
        return DecoderState(layers, bias, visible, 0)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The newest word of each row, (B, W) -> logits of the next, (B, W, V), and the longer state.

        The caches are written in place: the state given cannot be used again.
        """
        sentences, width = tokens.shape
        state = state.with_room(width)
        itself = torch.eye(width, dtype=torch.bool, device=tokens.device).expand(sentences, -1, -1)
        visible = torch.cat([state.visible, itself], dim=2)  # (B, W, filled + W)
        # A row sees as many places as it has words: if there are no more, it sees all.
        all_seen = _whole_lanes(visible.shape[2]) == state.position + 1
        bias = None if all_seen else _bias(visible.unsqueeze(1), state.source_bias.dtype)
        x = self.model.target_words(tokens.flatten(), state.position)  # (N, D)
        for layer, cache in zip(self.layers, state.layers, strict=True):
            x = layer.step(x, cache, state.filled, bias, state.source_bias)
        logits = (self.model.decoder.norm(x) @ self.output).view(sentences, width, -1)
        return logits, replace(state, visible=visible, position=state.position + 1)

    def reorder(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """Go on with these rows only: (B', W') numbers of present rows, one line a sentence that stays.

        A row may be named several times (its beam splits) or not at all (it dies). All rows of a line must belong to
        the same sentence, and the sentences must keep their order.
        """
        width = state.visible.shape[1]
        visible = state.visible.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
        if len(rows) == len(state.source_bias):  # sentences keep their order: all there means none moved
            return replace(state, visible=visible)
        sentences = rows[:, 0].div(width, rounding_mode="floor")  # (B')
        layers = tuple(LayerCache(*(tensor.index_select(0, sentences) for tensor in cache)) for cache in state.layers)
        bias = state.source_bias.index_select(0, sentences)
        return replace(state, layers=layers, source_bias=bias, visible=visible)
