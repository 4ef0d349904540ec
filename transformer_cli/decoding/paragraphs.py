"""Lines of several sentences: split into sentences, translated one by one, joined again.

A model trained on sentences translates a paragraph badly, or stops after its first sentence. A sentence ends at a full
stop, question mark, exclamation mark or ellipsis of any script, with any closing quotes and brackets, if a space
follows and then no lower-case letter. Chinese, Japanese and Indian marks need no space. A full stop after an initial, a
number of one or two digits or one of a few abbreviations does not end a sentence. Greek's question mark is a semicolon
elsewhere, and ends none.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.tokenizer import SPACES, VANISHING, is_blank
from transformer_cli.decoding.sampling import Sampling
from transformer_cli.decoding.translator import Translation, Translator, joined
from transformer_cli.errors import LineError

_CLOSING = "\"'”’“‘»«)\\]）」』】"  # closing quotes in German are opening quotes in English
_WIDE = "。！？｡．।॥"  # Chinese and Japanese marks, and those of India's scripts
_NARROW = ".!?…؟۔։።፧။។"  # the Latin marks, and those of Arabic, Urdu, Armenian, Ethiopic, Burmese and Khmer
_CJK = "\u3040-\u30ff\u3400-\u9fff"  # kana and Chinese characters, between which half-width marks need no space
_END = re.compile(
    rf"(?:[{_WIDE}](?!(?<=．)\d))+[{_CLOSING}]*\s*|[{_NARROW}]+[{_CLOSING}]*\s+|(?<=[{_CJK}])[!?]+(?=[{_CJK}])"
)
_WORDS = "Mr|Mrs|Ms|Hr|Fr|Dr|Prof|St|Nr|No|Fig|Abb|Abs|Art|vs|ca|bzw|vgl|evtl|Sr|Jr|Inc|Ltd|Co"
_ABBREVIATION = re.compile(rf"(?:^|[\s(\"'“‘„‚«»])(?:[^\W\d_]|\d{{1,2}}|[^\W\d_]\.[^\W\d_]|{_WORDS})\.$")
_LONGEST = 10  # characters of an abbreviation and the one before it


def split_sentences(text: str) -> list[str]:
    """The sentences of a line, without surrounding spaces; for a blank line, the line itself."""
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
    """`Translator.translate` sentence by sentence: for each line, one translation joined from those of its sentences.

    Its log-probability, score and n are sums over the sentences. `note` is called with the number of each line, from 1,
    and the pieces in its longest sentence. A LineError has the number of the line, not of the sentence.
    """
    counts: deque[int] = deque()  # sentences of each line that is not finished
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
