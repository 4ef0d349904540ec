"""Small Transformers with random weights, sentences of random ids, and the logits of the whole at once."""

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from transformer_cli.config.schema import ModelConfig
from transformer_cli.model.attention import AttentionForm
from transformer_cli.model.masks import padding_mask, target_mask
from transformer_cli.model.transformer import Transformer

PAD, BOS, EOS = 0, 2, 3
V = 23
SMALL = ModelConfig(d_model=16, ffn_dim=32, num_heads=4, encoder_layers=2, decoder_layers=3, dropout=0.0)

both_forms = pytest.mark.parametrize("form", get_args(AttentionForm))
both_norms = pytest.mark.parametrize("norm", ["post", "pre"])
every_tie = pytest.mark.parametrize("tie", ["all", "target", "none"])


def small(**changes: Any) -> ModelConfig:
    return ModelConfig(**SMALL.model_dump() | changes)


def build(config: ModelConfig, form: AttentionForm = "fused") -> Transformer:
    """With no weight left at a special value: biases and pad rows are not zero and gains are not 1."""
    torch.manual_seed(1)
    model = Transformer(config, V, V, PAD, form)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def words(*lengths: int) -> Tensor:
    """Random sentences of these lengths, padded to the longest."""
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(EOS + 1, V, (len(lengths), max(lengths)), generator=generator)
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths).unsqueeze(1), PAD)


def logits_of(model: Transformer, src: Tensor, tgt: Tensor) -> Tensor:
    return model.project(model(src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD)))
