"""The Transformer ("Attention Is All You Need", Vaswani et al. 2017), in the order of the paper.

    B batch   S source length   T target length   D d_model   H heads   K = D // H   F ffn_dim   V vocabulary

`forward` returns hidden states and `project` their logits, so that the loss can decide how many logits exist at a time.
`model.incremental` runs the same decoder one token at a time, for translation. The model is told nothing of training,
devices or distribution: where a device needs another way to be fast, a tensor is asked where it lies.
"""

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer_cli.config.left_out import embedding_dropout
from transformer_cli.config.schema import ModelConfig
from transformer_cli.model.attention import AttentionForm, MultiHeadAttention, attention_weights
from transformer_cli.model.blocks import Dropout, Embedding, Identity, LayerNorm, Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same (section 3.5) -> (length, D), fp32.

    Computed in fp64: in fp32 the angles of late positions are off in the third digit.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (D / 2)
    angle = position * frequency  # (length, D / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # (length, D)


class SinusoidalPositions(nn.Module):
    """The fixed positional encoding of section 3.5, for any length: the table grows when a longer sequence comes."""

    table: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(256, d_model), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Encodings of the positions start … start + length - 1: (length, D)."""
        end = start + length
        if end > len(self.table):
            with torch.inference_mode(False):  # a table made while translating must serve training, too
                self.table = sinusoids(max(end, 2 * len(self.table)), self.table.shape[1]).to(self.table)
        return self.table[start:end]


class LearnedPositions(nn.Module):
    """A learned vector for each position below `max_positions`."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, start: int, length: int) -> Tensor:
        """Vectors of the positions start … start + length - 1: (length, D). ValueError beyond `max_positions`."""
        end = start + length
        if end > len(self.table):
            raise ValueError(f"a sequence of {end} pieces is longer than model.max_positions {len(self.table)}")
        return self.table[start:end]


class FeedForward(nn.Module):
    """FFN(x) = activation(x W1 + b1) W2 + b2 (section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.ffn_dim)
        self.outer = Linear(config.ffn_dim, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self.outer(self.dropout(self.activation(self.inner(x))))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with residual, dropout and LayerNorm (Figure 1, left).

    post: LayerNorm(x + Dropout(Sublayer(x)))          pre: x + Dropout(Sublayer(LayerNorm(x)))
    """

    def __init__(self, config: ModelConfig, form: AttentionForm) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads, config.attention_dropout, form)
        self.self_attention_norm = LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        """x (B, S, D), src_mask (B, 1, S) -> (B, S, D)."""
        if self.pre_norm:
            h = self.self_attention_norm(x)
            x = x + self.dropout(self.self_attention(h, h, src_mask))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.self_attention_norm(x + self.dropout(self.self_attention(x, x, src_mask)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Encoder(nn.Module):
    """A stack of encoder layers; pre-norm ends with one LayerNorm, post-norm needs none."""

    def __init__(self, config: ModelConfig, form: AttentionForm) -> None:
        super().__init__()
        layers = nn.ModuleList(EncoderLayer(config, form) for _ in range(config.encoder_layers))
        self.layers = cast(Sequence[EncoderLayer], layers)
        self.norm = LayerNorm(config.d_model) if config.norm == "pre" else Identity()
        self.checkpointing = False

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        """x (B, S, D), src_mask (B, 1, S) -> memory (B, S, D)."""
        for layer in self.layers:
            x = checkpoint(layer, x, src_mask, use_reentrant=False) if self.checkpointing else layer(x, src_mask)
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, feed-forward (Figure 1, right)."""

    def __init__(self, config: ModelConfig, form: AttentionForm) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads, config.attention_dropout, form)
        self.self_attention_norm = LayerNorm(config.d_model)
        self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads, config.attention_dropout, form)
        self.cross_attention_norm = LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, tgt_mask: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """x (B, T, D), tgt_mask (B or 1, T, T), memory (B, S, D), src_mask (B, 1, S) -> (B, T, D)."""
        if self.pre_norm:
            h = self.self_attention_norm(x)
            x = x + self.dropout(self.self_attention(h, h, tgt_mask))
            x = x + self.dropout(self.cross_attention(self.cross_attention_norm(x), memory, src_mask))
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.self_attention_norm(x + self.dropout(self.self_attention(x, x, tgt_mask)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory, src_mask)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Decoder(nn.Module):
    """A stack of decoder layers; pre-norm ends with one LayerNorm, post-norm needs none."""

    def __init__(self, config: ModelConfig, form: AttentionForm) -> None:
        super().__init__()
        layers = nn.ModuleList(DecoderLayer(config, form) for _ in range(config.decoder_layers))
        self.layers = cast(Sequence[DecoderLayer], layers)
        self.norm = LayerNorm(config.d_model) if config.norm == "pre" else Identity()
        self.checkpointing = False

    def forward(self, x: Tensor, tgt_mask: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """x (B, T, D), memory (B, S, D) -> (B, T, D)."""
        for layer in self.layers:
            if self.checkpointing:
                x = checkpoint(layer, x, tgt_mask, memory, src_mask, use_reentrant=False)
            else:
                x = layer(x, tgt_mask, memory, src_mask)
        return self.norm(x)


class Transformer(nn.Module):
    """Encoder and decoder over source and target pieces, with the output projection (Figure 1).

    `tie_embeddings: all` makes the three vocabulary matrices one parameter (section 3.4), `target` ties the target
    embedding and the output, `none` keeps three. The form of attention is the caller's choice and does not affect the
    weights. `initialise=False` leaves the weights uninitialised, for a model that is about to be loaded.
    """

    def __init__(
        self,
        config: ModelConfig,
        source_vocab: int,
        target_vocab: int,
        pad: int,
        form: AttentionForm = "fused",
        initialise: bool = True,
    ) -> None:
        super().__init__()
        if config.tie_embeddings == "all" and source_vocab != target_vocab:
            raise ValueError(f"tied embeddings need one vocabulary, not {source_vocab} and {target_vocab} pieces")
        self.config = config
        self.pad = pad
        self.source_embedding = Embedding(source_vocab, config.d_model, padding_idx=pad)
        if config.tie_embeddings == "all":
            self.target_embedding = self.source_embedding
        else:
            self.target_embedding = Embedding(target_vocab, config.d_model, padding_idx=pad)
        self.output = Linear(config.d_model, target_vocab, bias=False)
        if config.tie_embeddings != "none":
            self.output.weight = self.target_embedding.weight
        self.source_positions = self._positions()
        self.target_positions = self._positions()
        self.embedding_dropout = Dropout(embedding_dropout(config))
        self.encoder = Encoder(config, form)
        self.decoder = Decoder(config, form)
        if initialise:
            self.initialise()

    def _positions(self) -> SinusoidalPositions | LearnedPositions:
        if self.config.positions == "learned":
            return LearnedPositions(self.config.max_positions, self.config.d_model)
        return SinusoidalPositions(self.config.d_model)

    def checkpoint_activations(self) -> None:
        """Keep only the input of each layer for the backward pass, which recomputes the rest (Chen et al. 2016)."""
        self.encoder.checkpointing = self.decoder.checkpointing = True

    @torch.no_grad()
    def initialise(self) -> None:
        """Xavier for the projections, zero for their biases, standard deviation d_model^-0.5 for the other matrices.

        Queries, keys and values start smaller by sqrt(2), as if the three were one matrix of D inputs and 3 D outputs:
        attention then starts closer to a mean, and a model learns markedly sooner.
        An input embedding is multiplied by sqrt(d_model), which gives it standard deviation 1; after Xavier it would
        vanish beside the positions. The padding row starts at zero.
        """
        attentions = [module for module in self.modules() if isinstance(module, MultiHeadAttention)]
        smaller = {projection for module in attentions for projection in (module.query, module.key, module.value)}
        for module in self.modules():
            if isinstance(module, Linear) and module is not self.output:
                nn.init.xavier_uniform_(module.weight, gain=2**-0.5 if module in smaller else 1.0)
                nn.init.zeros_(module.bias)
        std = self.config.d_model**-0.5
        for name, parameter in self.named_parameters():
            if not name.startswith(("encoder.", "decoder.")):
                nn.init.normal_(parameter, std=std)
        self.source_embedding.weight[self.pad] = 0.0
        self.target_embedding.weight[self.pad] = 0.0

    def forward(self, src: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        """Hidden states of the decoder, for all target positions at once (teacher forcing).

        src (B, S) and tgt (B, T) ids, src_mask (B, 1, S), tgt_mask (B or 1, T, T) -> (B, T, D).
        """
        return self.decode(tgt, tgt_mask, self.encode(src, src_mask), src_mask)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """src (B, S), src_mask (B, 1, S) -> memory (B, S, D)."""
        x = self._embed(src, self.source_embedding, self.source_positions)
        memory: Tensor = self.encoder(x, src_mask)
        return memory

    def decode(self, tgt: Tensor, tgt_mask: Tensor, memory: Tensor, src_mask: Tensor) -> Tensor:
        """tgt (B, T), tgt_mask (B or 1, T, T), memory (B, S, D), src_mask (B, 1, S) -> hidden (B, T, D)."""
        x = self._embed(tgt, self.target_embedding, self.target_positions)
        hidden: Tensor = self.decoder(x, tgt_mask, memory, src_mask)
        return hidden

    def project(self, hidden: Tensor) -> Tensor:
        """hidden (…, D) -> logits (…, V)."""
        return self.output(hidden)

    def embed_target(self, ids: Tensor, position: int) -> Tensor:
        """Decoder input for tokens that are all at one position, without dropout: (N) ids -> (N, D)."""
        embedded = F.embedding(ids, self.target_embedding.weight)  # a module call takes twice as long
        return torch.add(self.target_positions(position, 1), embedded, alpha=math.sqrt(self.config.d_model))

    def _embed(self, ids: Tensor, embedding: Embedding, positions: SinusoidalPositions | LearnedPositions) -> Tensor:
        """(B, T) -> (B, T, D). The embedding is scaled by sqrt(d_model) (section 3.4), the position is not."""
        x = embedding(ids) * math.sqrt(self.config.d_model) + positions(0, ids.shape[1])
        return self.embedding_dropout(x)

    @torch.no_grad()
    def cross_attention_weights(self, src: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        """Weights with which each decoder layer and head of `forward` attends to the memory, in the written-out form:
        (decoder layers, B, H, T, S). For evaluation mode only."""
        weights: list[Tensor] = []

        def keep(module: MultiHeadAttention, arguments: tuple[Tensor, Tensor, Tensor]) -> None:
            x, memory, mask = arguments
            weights.append(attention_weights(module.queries(x), module.keys(memory), mask.unsqueeze(1)))

        hooks = [layer.cross_attention.register_forward_pre_hook(keep) for layer in self.decoder.layers]
        try:
            self.forward(src, src_mask, tgt, tgt_mask)  # not self(…): a compiled model would recompile for the hooks
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(weights)
