"""`init`: a ready folder with a configuration and the text it names."""

import random
from pathlib import Path
from typing import Literal

from transformer_cli.errors import ConfigError

Template = Literal["copy", "reverse"]

# Few words and many orders: nothing but position tells what comes next, so a wrong mask or position shows at once.
_WORDS = [consonant + vowel for consonant in "bdklmn" for vowel in "aeiou"]
_SIZES = {"train": 5000, "valid": 200, "test": 200}

_CONFIG = """\
# The {template} task: the target is the source{reversed}, in capitals. Learnt in a minute or two on a laptop; if this
# does not reach a BLEU above 95, something is broken. The data: transformer-cli init DIR --template {template}
name: {template}-task
seed: 1
data:
  train: [{{source: data/train.src, target: data/train.tgt}}]
  valid: [{{source: data/valid.src, target: data/valid.tgt}}]
  test:
    test: [{{source: data/test.src, target: data/test.tgt}}]
  max_length: 64
tokenizer: {{vocab_size: 120, model_type: bpe}}
model: {{d_model: 64, ffn_dim: 128, num_heads: 4, encoder_layers: 2, decoder_layers: 2, dropout: 0.0}}
training:
  batch_size: 1024
  max_steps: {max_steps}
  warmup_steps: 200
  label_smoothing: 0.1
  valid_steps: 200
  patience: null
decoding: {{beam_size: 4}}
"""


def write_template(folder: Path, template: Template) -> Path:
    """Make a folder from a template; returns its config.yaml. ConfigError if the folder has anything in it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} already exists and is not an empty folder: choose another")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    sources = _made_up_lines(sum(_SIZES.values()))
    start = 0
    for split, size in _SIZES.items():
        chosen = sources[start : start + size]
        start += size
        for side, lines in (("src", chosen), ("tgt", [_answer(line, template) for line in chosen])):
            text = "".join(line + "\n" for line in lines)
            (folder / "data" / f"{split}.{side}").write_text(text, encoding="utf-8", newline="\n")
    config = folder / "config.yaml"
    config.write_text(template_config(template), encoding="utf-8")
    return config


def template_config(template: Template) -> str:
    """The configuration that a template comes with."""
    return _CONFIG.format(
        template=template,
        reversed="" if template == "copy" else " backwards",
        max_steps={"copy": 1000, "reverse": 1500}[template],
    )


def _made_up_lines(count: int) -> list[str]:
    """Different lines of three to ten words, always the same ones."""
    generator = random.Random(1)
    lines: dict[str, None] = {}  # a set that keeps its order
    while len(lines) < count:
        words = [generator.choice(_WORDS) for _ in range(generator.randint(3, 10))]
        lines[" ".join(words)] = None
    return list(lines)


def _answer(line: str, template: Template) -> str:
    words = line.upper().split()
    return " ".join(words if template == "copy" else reversed(words))
