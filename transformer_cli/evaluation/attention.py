"""Attention for display: how much each step of a translation attends to each piece of the source, by layer and head.

In a page, the weights are data, which a short script shows as a table of one layer and head at a time.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformer_cli.data.tokenizer import EOS
from transformer_cli.decoding.align import cross_attention
from transformer_cli.decoding.translator import Translation, Translator
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.history import Sample
from transformer_cli.evaluation.page import page, section, wide, write_page

_SENTENCES = 4  # in a report
_LONGEST = 18  # pieces of a sentence up to which its table is easy to read
_MOST = 128  # pieces up to which the labels of a drawing are legible


class Attention(NamedTuple):
    """Cross-attention weights (layers, heads, rows, columns) of a sentence; rows are the pieces of the translation,
    columns those of the source, both with the end symbol."""

    name: str
    rows: list[str]
    columns: list[str]
    weights: NDArray[np.float64]


def check_drawable(translator: Translator, text: str) -> None:
    """ConfigError when a sentence is too long for its attention to be drawn."""
    most = min(_MOST, translator.positions - 1)
    if (pieces := len(translator.tokenizers.source.encode(text))) > most:
        raise ConfigError(
            f"--attention draws a sentence of at most {most} pieces, and this one has {pieces:,}: give a shorter one"
        )


def attention_of(translator: Translator, translation: Translation, name: str) -> Attention:
    """The cross-attention of a translation, with its pieces."""
    source, target = translator.tokenizers.source, translator.tokenizers.target
    return Attention(
        name,
        target.pieces([*translation.ids, EOS]),
        source.pieces([*translation.source_ids, EOS]),
        cross_attention(translator, translation).double().numpy(),
    )


def attention_of_samples(translator: Translator, samples: Sequence[Sample]) -> list[Attention]:
    """The attention of a few sentences: the first short ones, or the least long where there are not enough."""
    encode = translator.tokenizers.source.encode
    lengths = [len(encode(one.source)) for one in samples]
    order = sorted(range(len(samples)), key=lambda index: max(lengths[index] - _LONGEST, 0))
    chosen = [samples[index].source for index in order if lengths[index]][:_SENTENCES]
    one_each = translator.config.decoding.model_copy(update={"n_best": 1})
    found = zip(chosen, translator.translate(chosen, one_each), strict=True)
    return [attention_of(translator, best, source) for source, (best,) in found]


def draw_attention(attention: Attention, path: Path) -> None:
    """Draw every layer and head to a .png, or to an .html that also has a table to step through."""
    from transformer_cli.evaluation.drawing import attention_as_png, attention_as_svg

    if path.suffix.lower() == ".png":
        attention_as_png(attention.weights, attention.rows, attention.columns, path)
        return
    svg = attention_as_svg(attention.weights, attention.rows, attention.columns)
    drawn = f'<div class="all" role="img" aria-label="The weights of every layer and head, drawn">{svg}</div>'
    body = (
        f"<header><h1>Attention</h1><p>{escape(attention.name)}</p></header><main>"
        + section("attention", "Layer by layer, head by head", stepper([attention]))
        + section("all", "All layers and heads", wide(drawn, "All layers and heads"))
        + "</main>"
    )
    write_page(path, page(f"Attention: {attention.name}", body))


def stepper(attentions: Sequence[Attention]) -> str:
    """HTML from which the page's script makes a table: the weights in percent, and controls for sentence, layer and
    head."""
    data = [
        {"rows": one.rows, "columns": one.columns, "weights": np.rint(100 * one.weights).astype(int).tolist()}
        for one in attentions
    ]
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    options = "".join(f"<option>{escape(one.name)}</option>" for one in attentions)
    grid = '<table class="weights" id="weights"><caption aria-live="polite"></caption><thead></thead><tbody></tbody>'
    return (
        "<p>How much the model attends to each piece of the source (across) when it writes each piece of the "
        "translation (down), in percent.</p>"
        f'<div class="controls"><label>Sentence <select id="sentence">{options}</select></label>'
        '<label>Layer <select id="layer"></select></label><label>Head <select id="head"></select></label>'
        '<button type="button" id="before">Previous</button><button type="button" id="after">Next</button></div>'
        f"<noscript><p>The table is made by a script, and scripts are switched off here.</p></noscript>"
        f"{wide(grid + '</table>', 'Attention weights')}"
        f'<script type="application/json" id="attention-data">{plain}</script>'
    )
