"""Models that have learnt nothing, with their tokenizers, in less than a tenth of a second."""

from typing import Any

import torch

from transformer_cli.config.schema import Config
from transformer_cli.data.corpus import Pair
from transformer_cli.data.tokenizer import PAD, train_tokenizers
from transformer_cli.decoding.translator import Translator
from transformer_cli.model.transformer import Transformer

LINES = ["ba ce di", "fo", "gu ha je ki lo mu na", "pe qi", "ro su ta ba ce di fo gu ha je", "ki lo"]


def translator(sections: dict[str, Any] | None = None) -> Translator:
    """A model that has learnt nothing, with its tokenizers."""
    model = {"d_model": 16, "ffn_dim": 32, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    values: dict[str, Any] = {
        "name": "x",
        "tokenizer": {"vocab_size": 50, "model_type": "bpe"},
        "model": model,
        "decoding": {"max_length_a": 0.5, "max_length_b": 4},  # it would hardly ever end by itself
    }
    for section, changes in (sections or {}).items():
        values[section] = {**values.get(section, {}), **changes}
    config = Config.model_validate(values)
    tokenizers = train_tokenizers(lambda: (Pair(line, line.upper()) for line in LINES), config.tokenizer)
    torch.manual_seed(2)
    vocabularies = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    return Translator(
        Transformer(config.model, *vocabularies, pad=PAD), tokenizers, config, torch.device("cpu"), "fp32"
    )
