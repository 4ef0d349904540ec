"""Word alignment by cross-attention: the source piece that each piece of a translation attends to most.

The attention of the last layer but one, averaged over its heads, aligns words best (Garg et al. 2019).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_cli.data.batching import pad_sequences
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.decoding.translator import Translation, Translator
from transformer_cli.model.masks import padding_mask, target_mask

Alignment = list[tuple[int, int]]


def align(translator: Translator, translations: Sequence[Translation]) -> list[Alignment]:
    """For each piece of each translation, in order: (number of the source piece, number of the piece), both from 0. A
    translation joined from parts is aligned part by part."""
    found = iter(_align(translator, [part for one in translations for part in one.parts or (one,)]))
    aligned: list[Alignment] = []
    for one in translations:
        aligned.append([])
        sources = pieces = 0  # in the parts before this one
        for part in one.parts or (one,):
            aligned[-1] += [(sources + i, pieces + j) for i, j in next(found)]
            sources += len(part.source_ids)
            pieces += len(part.ids)
    return aligned


@torch.inference_mode()
def _align(translator: Translator, translations: Sequence[Translation]) -> list[Alignment]:
    real = [one for one in translations if one.ids]
    if not real:
        return [[] for _ in translations]
    src, cross = _cross_attention(translator, real, [one.ids[:-1] for one in real])  # teacher forcing
    weights = cross[max(len(cross) - 2, 0)].mean(1)  # (B, T, S)
    words = padding_mask(src, PAD) & (src != EOS).unsqueeze(1)  # the end symbol is not a piece of the source
    sources = iter(weights.masked_fill(~words, -1.0).argmax(2).tolist())
    return [[(i, j) for j, i in enumerate(next(sources)[: len(one.ids)])] if one.ids else [] for one in translations]


@torch.inference_mode()
def cross_attention(translator: Translator, translation: Translation) -> Tensor:
    """The weights (layers, heads, T, S) of each step of a translation on each piece of its source. The last step is the
    end symbol's, and the last weight of a step is on the source's end symbol."""
    _, cross = _cross_attention(translator, [translation], [translation.ids])
    return cross[:, 0].float().cpu()


def _cross_attention(
    translator: Translator, translations: Sequence[Translation], before: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor]:
    """The sources (B, S), and the weights (layers, B, heads, T, S) with `before` as the decoder's input."""
    translator.model.eval()
    src = pad_sequences([one.source_ids for one in translations], suffix=EOS).to(translator.device)
    tgt = pad_sequences(before, prefix=BOS).to(translator.device)
    with translator.autocast():
        masks = padding_mask(src, PAD), target_mask(tgt, PAD)
        return src, translator.model.cross_attention_weights(src, masks[0], tgt, masks[1])
