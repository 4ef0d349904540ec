"""Incremental decoding for translation: the Transformer decoder one token at a time, with a key/value cache.

    B sentences   W rows of a sentence (beam)   N = B * W   H heads   S source length   D d_model   K = D // H

A row is a hypothesis. The rows of a sentence share a list of places in the cache; a place holds one token of one row.
When a hypothesis forks or is dropped, no place moves: only the mask of places that each row may attend to changes. The
keys and values of the encoder memory are cached once per sentence, and the rows are its queries.

A step consists of many small operations, so their number matters as much as their size. To make each as cheap as
possible on CPU, the weight matrices are laid out once (`products`), the memory keys are stored transposed, batch and
heads are one dimension, as `bmm` expects, and a sentence alone has the projections folded into its memory.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.model.attention import whole_lanes
from transformer_cli.model.blocks import LayerNorm, Linear
from transformer_cli.model.products import Product
from transformer_cli.model.transformer import DecoderLayer, Transformer

# d_model from which the products of a layer, with few rows, are faster in bf16 on CPU.
_BF16_FROM_WIDTH = 256
# Source length, in whole lanes, up to which a sentence alone is faster on CPU with `FoldedMemory`.
_FOLDED_UP_TO = 32
_LEAST_ROOM = 32  # minimum number of places to add at a time
# Sentences encoded together on CPU. They come sorted by length: few have less padding than all.
_ENCODED_TOGETHER = 64


class LayerCache(NamedTuple):
    """Key/value cache of one decoder layer. New tokens are written in place, after the existing ones."""

    own: Tensor  # (B * H, 2, places, K): keys and values of the target tokens; the last places may be empty
    memory_keys: Tensor  # (B * H, K, S): transposed, once per sentence for all rows; S in whole lanes
    memory_values: Tensor  # (B * H, S, K)


class FoldedMemory(NamedTuple):
    """Keys and values of the memory for one decoder layer and one sentence, times the projections of cross-attention:

        (x Wq + bq) K^T = x (Wq K^T) + bq K^T          (A V) Wo = A (V Wo)

    Two products take the place of four. With more sentences each would need matrices of its own.
    """

    keys: Tensor  # (D, H * S): Wq K^T / sqrt(d_k) of each head
    bias: Tensor  # (H * S): bq K^T / sqrt(d_k) + source bias
    values: Tensor  # (H * S, D): V Wo of each head


@dataclass(frozen=True)
class DecoderState:
    """State between steps: the caches of B sentences with W rows each, and the places visible to each row."""

    layers: tuple[LayerCache, ...]
    source_bias: Tensor  # (B * H, 1, S in whole lanes): 0 where the source has a token, else the lowest finite number
    sentences: int  # B
    width: int  # W
    filled: int  # places in use in the caches
    visible: Tensor | None  # (B, W, filled) bool: True = this place holds an earlier token of this row; None: all do
    position: int  # tokens in each row so far
    folded: tuple[FoldedMemory, ...] = ()  # of each layer, or empty

    def with_room(self, places: int) -> "DecoderState":
        """Return a state with at least `places` free places after the filled ones, itself or one with new caches.

        If dropped rows have left no more than half of the filled places visible, only the visible ones are copied.
        """
        if whole_lanes(self.filled + places) <= self.layers[0].own.shape[2]:
            return self
        most, visible, order = self.filled, self.visible, None
        if visible is not None:
            used = visible.any(1)  # (B, filled)
            most = int(used.sum(1).max())
            if 2 * most > self.filled:
                most = self.filled
            else:
                order = (~used).byte().argsort(dim=1, stable=True)[:, :most]  # (B, most), in the order they were filled
                visible = visible.gather(2, order.unsqueeze(1).expand(-1, self.width, -1))
        length = whole_lanes(2 * most + max(places, _LEAST_ROOM))

        groups, _, _, size = self.layers[0].own.shape
        if order is not None:
            order = order.repeat_interleave(groups // self.sentences, dim=0)
            order = order.view(groups, 1, most, 1).expand(-1, 2, -1, size)

        def moved(own: Tensor) -> Tensor:
            kept = own[:, :, : self.filled]
            if order is not None:
                kept = kept.gather(2, order)
            larger = own.new_zeros(groups, 2, length, size)
            larger[:, :, :most] = kept
            return larger

        layers = tuple(cache._replace(own=moved(cache.own)) for cache in self.layers)
        return replace(self, layers=layers, filled=most, visible=visible)


class _Norm(NamedTuple):
    """Layer normalisation without the overhead of a module call, which costs as much as the operation itself."""

    shape: Sequence[int]
    weight: Tensor  # (D)
    bias: Tensor  # (D)
    eps: float

    @classmethod
    def of(cls, norm: LayerNorm, dtype: torch.dtype) -> "_Norm":
        return cls(norm.weight.shape, norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self)


class _Layer:
    """A decoder layer (Figure 1) with weights laid out for few rows and 1 / sqrt(K) folded into the query projections.

    It has three dtypes: of the residual stream and the norms, of attention, and of the products with the weights.
    """

    def __init__(self, layer: DecoderLayer, stream: torch.dtype, attention: torch.dtype, products: torch.dtype) -> None:
        own, cross, inner = layer.self_attention, layer.cross_attention, layer.feed_forward
        self.pre_norm = layer.pre_norm
        self.heads = own.num_heads
        self.cross = cross
        self.attention_dtype = attention
        width, scale = own.query.out_features, (own.num_heads / own.query.out_features) ** 0.5
        self.own_in = _scaled_queries(width, scale, own.query, own.key, own.value, dtype=products)
        self.own_out = Product(own.output.weight, own.output.bias, products)
        self.cross_in = _scaled_queries(width, scale, cross.query, dtype=products)
        self.cross_bias = cross.output.bias
        self.cross_out = Product(cross.output.weight, cross.output.bias, products)
        self.ffn_in = Product(inner.inner.weight, inner.inner.bias, products)
        self.ffn_out = Product(inner.outer.weight, inner.outer.bias, products)
        self.activation: Callable[[Tensor], Tensor] = inner.activation
        self.own_norm = _Norm.of(layer.self_attention_norm, stream)
        self.cross_norm = _Norm.of(layer.cross_attention_norm, stream)
        self.ffn_norm = _Norm.of(layer.feed_forward_norm, stream)

    def empty_cache(self, sentences: int, places: int) -> LayerCache:
        """Cache without target tokens, with room for `places` source tokens (in whole lanes) of each sentence."""
        size = self.cross.key.out_features // self.heads
        own = self.cross.key.weight.new_empty(sentences * self.heads, 2, 0, size, dtype=self.attention_dtype)
        keys = own.new_empty(sentences * self.heads, size, places)
        values = own.new_empty(sentences * self.heads, places, size)
        return LayerCache(own, keys, values)

    def remember(self, memory: Tensor, cache: LayerCache, first: int) -> None:
        """Cache the keys and values of memory (B', S, D), which is that of the sentences from `first` on."""
        groups = slice(first * self.heads, (first + len(memory)) * self.heads)
        keys, values = cache.memory_keys[groups], cache.memory_values[groups]
        length = memory.shape[1]
        keys[:, :, :length] = self.cross.keys(memory).transpose(2, 3).flatten(0, 1)
        values[:, :length] = self.cross.values(memory).flatten(0, 1)
        keys[:, :, length:] = 0.0  # whatever is there has a weight of zero, but must be finite
        values[:, length:] = 0.0

    def fold(self, cache: LayerCache, source: Tensor) -> FoldedMemory:
        """The cached memory of one sentence with the projections folded in. `source` is the bias (H, 1, S)."""
        query, output = self.cross.query, self.cross.output
        heads, size, _ = cache.memory_keys.shape
        scaled = cache.memory_keys * size**-0.5
        keys = query.weight.view(heads, size, -1).transpose(1, 2) @ scaled  # (H, D, S)
        bias = torch.baddbmm(source, query.bias.view(heads, 1, size), scaled)  # (H, 1, S)
        values = cache.memory_values @ output.weight.t().view(heads, size, -1)  # (H, S, D)
        return FoldedMemory(keys.transpose(0, 1).flatten(1), bias.flatten(), values.flatten(0, 1))

    def step(
        self,
        x: Tensor,
        cache: LayerCache,
        filled: int,
        visible: Tensor | None,
        source: Tensor,
        folded: FoldedMemory | None,
    ) -> Tensor:
        """Process the newest token of each row and cache it at the places from `filled` on: x (N, D) -> (N, D).

        `visible` and `source` are biases added to the attention scores. `visible` is broadcast to (B * H, W, places),
        with filled + W places rounded up to whole lanes; None makes all visible. `source` is (B * H, 1, S). `folded`
        takes the place of the memory in the cache and of `source`.
        """
        h = self.own_norm(x) if self.pre_norm else x
        groups, _, _, size = cache.own.shape  # B * H, K
        width = x.shape[0] * self.heads // groups
        projected = self._to_attend(self.own_in(h)).view(-1, width, 3, self.heads, size)
        projected = projected.permute(0, 3, 2, 1, 4).reshape(groups, 3, width, size)
        cache.own.narrow(2, filled, width).copy_(projected.narrow(1, 1, 2))
        keys, values = cache.own.narrow(2, 0, whole_lanes(filled + width)).unbind(1)
        x = x + self.own_out(self._joined(_attend(projected.select(1, 0), keys.transpose(1, 2), values, visible)))
        x, h = (x, self.cross_norm(x)) if self.pre_norm else (normed := self.own_norm(x), normed)
        if folded is None:
            q = self._to_attend(self.cross_in(h)).view(-1, width, self.heads, size).transpose(1, 2)
            q = q.reshape(groups, width, size)
            x = x + self.cross_out(self._joined(_attend(q, cache.memory_keys, cache.memory_values, source)))
        else:
            scores = torch.addmm(folded.bias, h, folded.keys).view(width, self.heads, -1)  # (W, H, S)
            x = x + torch.addmm(self.cross_bias, scores.softmax(-1).view(width, -1), folded.values)
        x, h = (x, self.ffn_norm(x)) if self.pre_norm else (normed := self.cross_norm(x), normed)
        x = x + self.ffn_out(self.activation(self.ffn_in(h)))
        return x if self.pre_norm else self.ffn_norm(x)

    def _to_attend(self, x: Tensor) -> Tensor:
        return x if x.dtype == self.attention_dtype else x.to(self.attention_dtype)

    def _joined(self, attended: Tensor) -> Tensor:
        """Concatenate the heads of each row: (B * H, W, K) -> (N, D)."""
        _, width, size = attended.shape
        return attended.view(-1, self.heads, width, size).transpose(1, 2).reshape(-1, self.heads * size)


def _scaled_queries(outputs: int, factor: float, *layers: Linear, dtype: torch.dtype) -> Product:
    """Layers of the same input as one product with concatenated outputs, of which the first are multiplied."""
    weight, bias = torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers])
    weight[:outputs] *= factor
    bias[:outputs] *= factor
    return Product(weight, bias, dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of scaled q (B * H, W, K) over k (B * H, K, S) and v (B * H, S, K) -> (B * H, W, K).

    The bias, broadcast to (B * H, W, S), is added to the scores in the matrix product. For few queries this is faster
    on CPU than the fused kernel.
    """
    scores = torch.bmm(q, k) if bias is None else torch.baddbmm(bias, q, k)  # (B * H, W, S)
    return torch.bmm(scores.softmax(-1), v)  # (B * H, W, K)


def _bias(mask: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """Mask (B, W or 1, S), True = may attend -> bias to add to the scores (B * H, W or 1, S in whole lanes): 0 or the
    lowest finite number."""
    mask = F.pad(mask, (0, whole_lanes(mask.shape[2]) - mask.shape[2]))
    bias = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    return bias.unsqueeze(1).expand(-1, heads, -1, -1).flatten(0, 1)


class IncrementalDecoder:
    """A trained model as a `StepModel` of `decoding.search`. It copies weights: make a new one when they change."""

    @torch.no_grad()
    def __init__(self, model: Transformer, dtype: torch.dtype | None = None) -> None:
        """`dtype`, by default the model's own, is that of the matrix products; it replaces autocast, which converts
        every matrix at every step. On CPU half precision is used only where it is faster: norms, sums and attention
        are in fp32, and so are the products of a narrow model except the output projection.
        """
        weight, config = model.output.weight, model.config
        dtype = dtype or weight.dtype
        self.model = model
        self.autocast = torch.autocast(weight.device.type, dtype, enabled=dtype != weight.dtype)
        self.stream_dtype, self.attention_dtype, products = weight.dtype, dtype, dtype
        on_host = weight.is_cpu
        if on_host and dtype.itemsize == 2:
            self.stream_dtype = self.attention_dtype = torch.float32
            products = dtype if config.d_model >= _BF16_FROM_WIDTH else torch.float32
        self.layers = [
            _Layer(layer, self.stream_dtype, self.attention_dtype, products) for layer in model.decoder.layers
        ]
        norm = model.decoder.norm
        self.norm = _Norm.of(norm, self.stream_dtype) if isinstance(norm, LayerNorm) else None
        self.output = Product(weight, None, dtype)
        self.foldable = on_host and products == weight.dtype == torch.float32
        self.encoded_together = _ENCODED_TOGETHER if on_host else sys.maxsize

    def start(self, src: Tensor, src_mask: Tensor) -> DecoderState:
        """Encode once: src (B, S), src_mask (B, 1, S) -> the state of B sentences with one row each and no token."""
        sentences, length = src.shape
        layers = tuple(layer.empty_cache(sentences, whole_lanes(length)) for layer in self.layers)
        for first in range(0, sentences, self.encoded_together):
            part = slice(first, first + self.encoded_together)
            mask = src_mask[part]
            # Where all are encoded together, as on a GPU, nothing waits for the device.
            longest = length if len(mask) == sentences else int(mask.any(0).nonzero().max()) + 1
            with self.autocast:
                memory = self.model.encode(src[part, :longest], mask[:, :, :longest])
                for layer, cache in zip(self.layers, layers, strict=True):
                    layer.remember(memory, cache, first)
        bias = _bias(src_mask, self.model.config.num_heads, self.attention_dtype)
        state = DecoderState(layers, bias, sentences, 1, 0, None, 0)
        if self.foldable and sentences == 1 and bias.shape[2] <= _FOLDED_UP_TO:
            folded = (layer.fold(cache, bias) for layer, cache in zip(self.layers, layers, strict=True))
            return replace(state, folded=tuple(folded))
        return state

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The newest token of each row (B, W) -> logits of the next token (B, W, V), and the state after the step.

        The caches are written in place: the given state cannot be used again.
        """
        state = state.with_room(state.width)
        filled = state.filled + state.width
        places = whole_lanes(filled)
        visible = self._visible(state, tokens.device)
        if places == state.position + 1:  # every place holds a token of the row
            bias = None
        elif visible is None:
            bias = state.source_bias.new_zeros(places)
            bias[filled:] = torch.finfo(bias.dtype).min
        else:
            bias = _bias(visible, self.model.config.num_heads, self.attention_dtype)
        x = self.model.embed_target(tokens.flatten(), state.position).to(self.stream_dtype)  # (N, D)
        folded = state.folded or repeat(None)
        for layer, cache, of_layer in zip(self.layers, state.layers, folded, strict=False):
            x = layer.step(x, cache, state.filled, bias, state.source_bias, of_layer)
        x = x if self.norm is None else self.norm(x)
        logits = self.output(x)
        state = replace(state, filled=filled, visible=visible, position=state.position + 1)
        return logits.view(*tokens.shape, -1), state

    def reorder(self, state: DecoderState, rows: Tensor) -> DecoderState:
        """Keep only the given rows: (B', W') indices of current rows, one line for each remaining sentence.

        A row may occur several times (the hypothesis forks) or not at all (it is dropped). All rows of a line must
        belong to the same sentence; if all sentences remain, their order must not change. The caches are changed in
        place, and only where a sentence moves.
        """
        visible = state.visible
        if visible is not None:
            visible = visible.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)
        changed = replace(state, sentences=len(rows), width=rows.shape[1], visible=visible)
        if len(rows) == state.sentences:
            return changed
        came_from = rows[:, 0].div(state.width, rounding_mode="floor")  # (B')
        to = (came_from != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
        came_from = came_from[to]

        def moved(each_head: Tensor) -> Tensor:
            sentences = each_head.view(state.sentences, self.model.config.num_heads, *each_head.shape[1:])
            if len(to):
                sentences.index_copy_(0, to, sentences.index_select(0, came_from))
            return sentences[: len(rows)].flatten(0, 1)

        layers = tuple(LayerCache(*map(moved, cache)) for cache in state.layers)
        return replace(changed, layers=layers, source_bias=moved(state.source_bias))

    def _visible(self, state: DecoderState, device: torch.device) -> Tensor | None:
        """`DecoderState.visible` of the next state, which includes the newest token of each row."""
        if state.visible is None and state.width == 1:
            return None
        shape = state.sentences, state.width, state.filled
        earlier = torch.ones(shape, dtype=torch.bool, device=device) if state.visible is None else state.visible
        itself = torch.eye(state.width, dtype=torch.bool, device=device).expand(state.sentences, -1, -1)
        return torch.cat([earlier, itself], dim=2)  # (B, W, filled + W)
