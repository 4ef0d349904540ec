"""What each piece of a translation attends to in its source, and by that which piece of it it comes from.

The attention of the last layer but one, its heads averaged, follows the words best (Garg et al. 2019).
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
    """For each piece of each translation, in order, (number of the source piece, its own number), both from 0. One that
    was put together from parts is aligned part by part."""
    found = iter(_align(translator, [part for one in translations for part in one.parts or (one,)]))
    aligned: list[Alignment] = []
    for one in translations:
        aligned.append([])
        sources = pieces = 0  # of the parts before
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
    src, cross = _cross_attention(translator, real, [one.ids[:-1] for one in real])  # what each piece came after
    weights = cross[max(len(cross) - 2, 0)].mean(1)  # (B, T, S)
    words = padding_mask(src, PAD) & (src != EOS).unsqueeze(1)  # the end of the source is no piece of it
    sources = iter(weights.masked_fill(~words, -1.0).argmax(2).tolist())
    return [[(i, j) for j, i in enumerate(next(sources)[: len(one.ids)])] if one.ids else [] for one in translations]


@torch.inference_mode()
def cross_attention(translator: Translator, translation: Translation) -> Tensor:
    """The weights (layers, heads, T, S) with which each step of a translation, the end symbol's being the last, attends
    to the pieces of its source and their end symbol."""
    _, cross = _cross_attention(translator, [translation], [translation.ids])
    return cross[:, 0].float().cpu()


def _cross_attention(
    translator: Translator, translations: Sequence[Translation], before: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor]:
    """The sources (B, S), and the weights (layers, B, heads, T, S) after these pieces of the translations."""
    translator.model.eval()
    src = pad_sequences([one.source_ids for one in translations], suffix=EOS).to(translator.device)
    tgt = pad_sequences(before, prefix=BOS).to(translator.device)
    with translator.autocast():
        maps = translator.model.attention_maps(src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD))
    return src, maps.cross
