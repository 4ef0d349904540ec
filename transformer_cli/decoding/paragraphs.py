"""Lines of several sentences: cut at the ends of sentences, translated one by one, joined again.

A model that was trained on sentences translates a paragraph badly, or stops after its first sentence. An end is a full
stop, question or exclamation mark with what closes behind it, before a space and no small letter; one of Chinese and
Japanese needs no space. Behind initials, numbers of one or two digits and a few abbreviations a full stop ends nothing.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.tokenizer import SPACES, VANISHING, is_blank
from transformer_cli.decoding.sampling import Sampling
from transformer_cli.decoding.translator import Translation, Translator, joined
from transformer_cli.errors import LineError

_CLOSING = "\"'”’“‘»«)\\]）」』】"  # German quotes close with what opens English ones
_WIDE = "。！？"
_END = re.compile(rf"[{_WIDE}]+[{_CLOSING}]*\s*|[.!?…]+[{_CLOSING}]*\s+")
_WORDS = "Mr|Mrs|Ms|Hr|Fr|Dr|Prof|St|Nr|No|Fig|Abb|Abs|Art|vs|ca|bzw|vgl|evtl|Sr|Jr|Inc|Ltd|Co"
_ABBREVIATION = re.compile(rf"(?:^|[\s(\"'“‘„‚«»])(?:[^\W\d_]|\d{{1,2}}|[^\W\d_]\.[^\W\d_]|{_WORDS})\.$")
_LONGEST = 10  # characters that tell an abbreviation, and what stands before it


def split_sentences(text: str) -> list[str]:
    """The sentences of a line, without the spaces around them; the line itself, if it is blank."""
    if is_blank(text):
        return [text]
    sentences = []
    start, last = 0, len(text.rstrip(SPACES + VANISHING))
    for end in _END.finditer(text):
        mark = end.group().strip()
        if mark[0] not in _WIDE:
            if text[end.end() : end.end() + 1].islower():
                continue
            if mark == "." and _ABBREVIATION.search(text[max(end.start() - _LONGEST, 0) : end.start() + 1]):
                continue
        if end.end() < last:
            sentences.append(text[start : end.end()].strip())
            start = end.end()
    return [*sentences, text[start:].strip()]


def translate_paragraphs(
    translator: Translator,
    lines: Iterable[str],
    decoding: DecodingConfig,
    batch_size: int,
    sampling: Sampling | None = None,
    note: Callable[[int, int], None] | None = None,
) -> Iterator[list[Translation]]:
    """`Translator.translate`, sentence by sentence: for each line the one translation joined from its sentences'.

    Its log-probability, score and n are their sums. `note` is told the number of each line, from 1, and the pieces of
    its longest sentence. DataError names a line by its number among the lines.
    """
    counts: deque[int] = deque()  # sentences of each line that is under way
    lines_done = sentences_done = 0

    def sentences() -> Iterator[str]:
        for line in lines:
            parts = split_sentences(line)
            counts.append(len(parts))
            yield from parts

    found = translator.translate(sentences(), decoding, batch_size, sampling)
    try:
        for first in found:
            parts = [first[0], *(next(found)[0] for _ in range(counts[0] - 1))]
            lines_done += 1
            sentences_done += counts.popleft()
            if note is not None:
                note(lines_done, max(len(part.source_ids) for part in parts))
            yield [joined(parts, translator.separator)]
    except LineError as error:
        number = lines_done
        while sentences_done < error.number:
            number += 1
            sentences_done += counts.popleft()
        raise LineError(number, error.problem) from error
