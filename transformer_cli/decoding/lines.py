"""The lines that `translate` writes for a line of input, and what it says of long ones."""

import json
from collections.abc import Iterable, Iterator
from itertools import repeat

from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.align import Alignment
from transformer_cli.decoding.translator import Translation
from transformer_cli.log import LOGGER

_LONG_LINES_NAMED = 10


def text_lines(index: int, translations: Iterable[Translation], numbered: bool, scores: bool) -> Iterator[str]:
    """Lines of plain text for one input line, one per translation.

    A line is the text alone; with `scores`, `text ||| score ||| log-probability ||| n`; if `numbered`, `index ||| text
    ||| score`, and with `scores` also `||| log-probability ||| n`. The index counts input lines from 0.
    """
    for t in translations:
        fields = [str(index)] if numbered else []
        fields.append(t.text)
        if numbered or scores:
            fields.append(f"{t.score:.4f}")
        if scores:
            fields += [f"{t.log_prob:.4f}", str(t.n)]
        yield " ||| ".join(fields)


def json_lines(
    index: int,
    translations: Iterable[Translation],
    tokenizers: Tokenizers,
    alignments: Iterable[Alignment] | None = None,
) -> Iterator[str]:
    """One JSON object per translation: index, text, score, log_prob, n, truncated, pieces and token_log_probs.

    With alignments also source_pieces, and alignment in Pharaoh format: `i-j` for source piece i and piece j, from 0.
    """
    aligned = repeat(None) if alignments is None else alignments
    for t, alignment in zip(translations, aligned, strict=False):
        values = {
            "index": index,
            "text": t.text,
            "score": t.score,
            "log_prob": t.log_prob,
            "n": t.n,
            "truncated": t.truncated,
            "pieces": tokenizers.target.pieces(t.ids),
            "token_log_probs": t.token_log_probs,
        }
        if alignment is not None:
            values["source_pieces"] = tokenizers.source.pieces(t.source_ids)
            values["alignment"] = " ".join(f"{i}-{j}" for i, j in alignment)
        yield json.dumps(values, ensure_ascii=False)


class LongLines:
    """Warns of lines longer than any in training, which a model may translate badly; names the first ten."""

    def __init__(self, longest: int, split: bool = False) -> None:
        """`longest`: the pieces of the longest source in training. With `split`, each line counts by its longest
        sentence."""
        self._longest = longest
        self._words = (
            "line %d has a sentence of %d pieces, more than any in training (at most %d): its translation may be poor"
            if split
            else "line %d has %d pieces, more than any line in training (at most %d): its translation may be poor. "
            "--split-sentences translates sentence by sentence"
        )
        self._count = 0

    def note(self, number: int, pieces: int) -> None:
        """Note a line by its number from 1 and the pieces in it, or in its longest sentence."""
        if pieces <= self._longest:
            return
        self._count += 1
        if self._count <= _LONG_LINES_NAMED:
            LOGGER.warning(self._words, number, pieces, self._longest)

    def tell(self) -> None:
        """Warn of their number, if not all were named."""
        if self._count > _LONG_LINES_NAMED:
            LOGGER.warning("%d lines were longer than any in training", self._count)
