"""The log-probability of given translations, computed with the whole target at once (teacher forcing)."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from transformer_cli.data.batching import pad_sequences
from transformer_cli.data.corpus import Pair
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.decoding.hypotheses import NO_PROBABILITIES
from transformer_cli.decoding.translator import DEFAULT_BATCH_SIZE, Translator, windows
from transformer_cli.device import OutOfMemory, attempt
from transformer_cli.errors import LineError, UserError
from transformer_cli.log import LOGGER
from transformer_cli.model.masks import padding_mask, target_mask

_BATCHES_IN_WINDOW = 8  # batches in which pairs are sorted by length together
_LOGITS = 1 << 24  # in memory at a time: 64 MB


@dataclass(frozen=True)
class Score:
    """The score of a translation: `token_log_probs` has an entry for each of `ids` and one for the end symbol."""

    ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    log_prob: float


def score(translator: Translator, pairs: Iterable[Pair], batch_size: int = DEFAULT_BATCH_SIZE) -> Iterator[Score]:
    """The scores of the pairs, in order. They equal those of a search without a repetition penalty wherever the text
    encodes to the pieces found.

    When memory runs out, fewer pairs are scored at a time. LineError for a pair that exceeds learned positions or does
    not fit into memory, UserError when the model gives NaN.
    """
    cells = _LOGITS // translator.tokenizers.target.vocab_size
    first = 1
    for window in windows(pairs, batch_size * _BATCHES_IN_WINDOW):
        sources = translator.tokenizers.source.encode_batch([pair.source for pair in window])
        targets = translator.tokenizers.target.encode_batch([pair.target for pair in window])
        _check_positions(translator, sources, targets, first)
        first += len(window)
        scores: dict[int, Score] = {}
        waiting = sorted(range(len(window)), key=lambda i: -max(len(sources[i]), len(targets[i])))
        while waiting:
            longest = max(len(sources[waiting[0]]), len(targets[waiting[0]])) + 1
            size = max(1, min(batch_size, cells // longest))
            batch = waiting[:size]
            sides = [sources[i] for i in batch], [targets[i] for i in batch]
            found = attempt(partial(score_ids, translator, *sides), translator.device)
            if not isinstance(found, OutOfMemory):
                scores |= zip(batch, found, strict=True)
                waiting = waiting[size:]
                continue
            if len(batch) == 1:
                number = first - len(window) + batch[0]
                raise LineError(number, f"has {longest - 1} pieces, which do not fit into memory{found.missing}")
            cells = len(batch) * longest // 2
            LOGGER.warning("out of memory with %d pairs at once: from here on about half as many", len(batch))
        if not all(math.isfinite(one.log_prob) for one in scores.values()):
            raise UserError(NO_PROBABILITIES)
        yield from (scores[i] for i in range(len(window)))


def _check_positions(
    translator: Translator, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], first: int
) -> None:
    config = translator.config.model
    if config.positions == "sinusoidal":
        return
    for number, sides in enumerate(zip(sources, targets, strict=True), start=first):
        if (longest := max(map(len, sides))) + 1 > config.max_positions:
            raise LineError(
                number,
                f"has {longest} pieces, and this model's learned positions (model.max_positions "
                f"{config.max_positions}) take at most {config.max_positions - 1}: leave the pair out",
            )


@torch.inference_mode()
def score_ids(
    translator: Translator, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[Score]:
    """The scores of pairs of piece ids, computed as one batch."""
    device = translator.device
    translator.model.eval()
    src = pad_sequences(sources, suffix=EOS).to(device)  # (B, S)
    tgt_in = pad_sequences(targets, prefix=BOS).to(device)  # (B, T)
    tgt_out = pad_sequences(targets, suffix=EOS).to(device)
    with translator.autocast():
        hidden = translator.model(src, padding_mask(src, PAD), tgt_in, target_mask(tgt_in, PAD))
        log_probs = translator.model.project(hidden).log_softmax(-1, dtype=torch.float32)  # (B, T, V)
    of_gold = log_probs.gather(2, tgt_out.unsqueeze(2)).squeeze(2)  # (B, T)
    scores = []
    for ids, row in zip(targets, of_gold.tolist(), strict=True):
        token_log_probs = tuple(row[: len(ids) + 1])
        scores.append(Score(tuple(ids), token_log_probs, sum(token_log_probs)))
    return scores
