"""The systems that `bench_train.py` compares: the package, and the usual loop around two models of others.

These have our sizes and dropouts and no LayerNorm after the last layer, so as many parameters as ours, and begin with
the weights that their libraries give them. They give all logits at once: src (B, S), tgt_in (B, T) -> (B, T, V).
"""

import importlib
import math
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.config.schema import ModelConfig, TrainingConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.device import Precision, attention_form, autocast, keep_freed_memory
from transformer_cli.model.masks import causal_mask
from transformer_cli.model.transformer import Transformer, sinusoids
from transformer_cli.training.loss import smoothed_cross_entropy
from transformer_cli.training.step import Updater, batch_loss

OURS, PLAIN, MARIAN = "ours", "plain loop", "MarianMT"
LONGEST = 257  # positions
SEED = 1


class System(Protocol):
    """A model in training: `update` gives the smoothed loss per token, `nll` the plain sum of a batch in fp32."""

    @property
    def model(self) -> nn.Module: ...
    def update(self, batches: Sequence[Batch], rate: float) -> float: ...
    def nll(self, batch: Batch) -> float: ...


def build(
    name: str, size: ModelConfig, vocab: int, training: TrainingConfig, device: torch.device, precision: Precision
) -> System:
    """The system of a name, with fresh weights."""
    torch.manual_seed(SEED)
    if name == OURS:
        model = Transformer(size, vocab, vocab, PAD, attention_form(device, precision)).to(device)
        return Ours(model, training, device, precision)
    kind = PlainTransformer if name == PLAIN else MarianTransformer
    return Baseline(kind(size, vocab).to(device), training, device, precision)


class Ours:
    """The package as `train` uses it."""

    def __init__(
        self, model: Transformer, training: TrainingConfig, device: torch.device, precision: Precision
    ) -> None:
        keep_freed_memory()
        self.model = model
        self.updater = Updater(model, training, SEED, device, precision)
        self.step = 0

    def update(self, batches: Sequence[Batch], rate: float) -> float:
        self.step += 1
        result = self.updater.update(batches, self.step, rate)
        return result.loss / result.tokens

    def nll(self, batch: Batch) -> float:
        return float(batch_loss(self.model, batch, smoothed_cross_entropy, 0.0).nll)


class PlainTransformer(nn.Module):
    """`torch.nn.Transformer` between tied embeddings, as a tutorial writes it."""

    positions: Tensor

    def __init__(self, size: ModelConfig, vocab: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, size.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=size.d_model**-0.5)
        self.register_buffer("positions", sinusoids(LONGEST, size.d_model))
        self.dropout = nn.Dropout(size.dropout)
        self.transformer = nn.Transformer(
            d_model=size.d_model,
            nhead=size.num_heads,
            num_encoder_layers=size.encoder_layers,
            num_decoder_layers=size.decoder_layers,
            dim_feedforward=size.ffn_dim,
            dropout=size.dropout,
            batch_first=True,
        )
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.transformer.encoder.use_nested_tensor = False  # a prototype that warns
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = size.attention_dropout
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Dropout(size.activation_dropout)  # the one inside the feed-forward block

    def embed(self, ids: Tensor) -> Tensor:
        x: Tensor = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim) + self.positions[: ids.shape[1]]
        dropped: Tensor = self.dropout(x)
        return dropped

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        hidden = self.transformer(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=~causal_mask(tgt_in.shape[1], tgt_in.device)[0],  # True is masked here
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt_in == PAD,
            memory_key_padding_mask=src == PAD,
        )
        return F.linear(hidden, self.embedding.weight)


class MarianTransformer(nn.Module):
    """Hugging Face's `MarianMTModel` from random weights."""

    def __init__(self, size: ModelConfig, vocab: int) -> None:
        super().__init__()
        transformers = importlib.import_module("transformers")
        config = transformers.MarianConfig(
            vocab_size=vocab,
            d_model=size.d_model,
            encoder_layers=size.encoder_layers,
            decoder_layers=size.decoder_layers,
            encoder_attention_heads=size.num_heads,
            decoder_attention_heads=size.num_heads,
            encoder_ffn_dim=size.ffn_dim,
            decoder_ffn_dim=size.ffn_dim,
            activation_function=size.activation,
            dropout=size.dropout,
            attention_dropout=size.attention_dropout,
            activation_dropout=size.activation_dropout,
            max_position_embeddings=LONGEST,
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            use_cache=False,
        )
        self.marian = transformers.MarianMTModel(config)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        logits: Tensor = self.marian(
            input_ids=src,
            attention_mask=(src != PAD).long(),
            decoder_input_ids=tgt_in,
            decoder_attention_mask=(tgt_in != PAD).long(),
        ).logits
        return logits


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """The weights of a post-norm model with sinusoidal positions and tied embeddings under MarianMTModel's names."""
    config = model.config
    assert (config.norm, config.positions, config.tie_embeddings) == ("post", "sinusoidal", "all")
    weights = {"model.shared.weight": model.source_embedding.weight, "lm_head.weight": model.output.weight}
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_tokens.weight"] = model.source_embedding.weight
        weights[f"model.{side}.embed_positions.weight"] = sinusoids(LONGEST, config.d_model)
    parts = {
        "self_attention": "self_attn",
        "cross_attention": "encoder_attn",
        "self_attention_norm": "self_attn_layer_norm",
        "cross_attention_norm": "encoder_attn_layer_norm",
        "feed_forward_norm": "final_layer_norm",
        "feed_forward.inner": "fc1",
        "feed_forward.outer": "fc2",
    }
    projections = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    for name, parameter in model.named_parameters():
        if not name.startswith(("encoder.layers.", "decoder.layers.")):
            continue
        side, _, number, *path, kind = name.split(".")
        if path[-1] in projections:
            path[-1] = projections[path[-1]]
            path[0] = parts[path[0]]
        else:
            path = [parts[".".join(path)]]
        weights[".".join(["model", side, "layers", number, *path, kind])] = parameter
    return weights


class Baseline:
    """The usual loop around a model: all logits, PyTorch's loss, its Adam."""

    def __init__(self, model: nn.Module, training: TrainingConfig, device: torch.device, precision: Precision) -> None:
        self.model = model
        self.training = training
        self.device = device
        self.precision = precision
        self.criterion = nn.CrossEntropyLoss(
            label_smoothing=training.label_smoothing, ignore_index=PAD, reduction="sum"
        )
        self.optimizer = torch.optim.Adam(model.parameters(), betas=training.adam_betas, eps=training.adam_eps)

    def update(self, batches: Sequence[Batch], rate: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        tokens = sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
        total = 0.0
        self.model.train()
        self.optimizer.zero_grad()
        for batch in batches:
            batch = batch.to(self.device)
            with autocast(self.device, self.precision):
                logits = self.model(batch.src, batch.tgt_in)
                loss = self.criterion(logits.flatten(0, 1), batch.tgt_out.flatten()) / tokens
            loss.backward()
            total += loss.item()
        if self.training.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip_grad_norm)
        self.optimizer.step()
        return total

    def nll(self, batch: Batch) -> float:
        logits = self.model(batch.src, batch.tgt_in).flatten(0, 1)
        return float(F.cross_entropy(logits, batch.tgt_out.flatten(), ignore_index=PAD, reduction="sum"))
