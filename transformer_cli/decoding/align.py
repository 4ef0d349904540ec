"""Which piece of the source each piece of a translation comes from, read off the attention between the two.

The attention of the last layer but one, its heads averaged, follows the words best (Garg et al. 2019).
"""

from collections.abc import Sequence

import torch

from transformer_cli.data.batching import pad_sequences
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.decoding.translator import Translation, Translator
from transformer_cli.model.masks import padding_mask, target_mask

Alignment = list[tuple[int, int]]


@torch.inference_mode()
def align(translator: Translator, translations: Sequence[Translation]) -> list[Alignment]:
    """For each piece of each translation, in order, (number of the source piece, its own number), both from 0."""
    real = [one for one in translations if one.ids]
    if not real:
        return [[] for _ in translations]
    translator.model.eval()
    src = pad_sequences([one.source_ids for one in real], suffix=EOS).to(translator.device)
    tgt = pad_sequences([one.ids[:-1] for one in real], prefix=BOS).to(translator.device)  # what each piece came after
    with translator.autocast():
        maps = translator.model.attention_maps(src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD))
    weights = maps.cross[max(len(maps.cross) - 2, 0)].mean(1)  # (B, T, S)
    words = padding_mask(src, PAD) & (src != EOS).unsqueeze(1)  # the end of the source is no piece of it
    sources = iter(weights.masked_fill(~words, -1.0).argmax(2).tolist())
    return [[(i, j) for j, i in enumerate(next(sources)[: len(one.ids)])] if one.ids else [] for one in translations]
