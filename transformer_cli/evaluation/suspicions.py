"""Warnings that a score may mislead: text that is not plain, and lines that do not belong together.

Each is a sentence with the number of lines and the first of them as an example. None changes a score.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from transformer_cli.data.alignment import Shift, find_shift
from transformer_cli.data.doctor.characters import escapes
from transformer_cli.data.scripts import Scripts, expected_scripts, in_other_script, script_of
from transformer_cli.evaluation.scores import Measure

_MANY = 0.25  # share of the lines, for signs that plain text has occasionally, too
_SOME = 0.1  # for signs that a few lines have because of names and numbers
_FEW = 0.01  # for signs that plain text hardly ever has
_LONG_WORD = 20  # characters; in a language with spaces, a longer line has one

_BY_SPACES = ("13a", "intl")  # tokenizers of BLEU
_WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_TOKENISED = re.compile(r" \.\s*$| @-@ ")
_SUBWORD = re.compile(r"\u2581|@@(?= |$)")

_Lines = Sequence[str]


def suspicions(
    hypotheses: _Lines, references: Sequence[_Lines], sources: _Lines | None, language: str, measure: Measure
) -> Iterator[str]:
    """Warnings, in words, about hypotheses and what they are scored against.

    `language` is the target language, `und` if it is unknown. With the tokenizer `none`, tokenised text is expected.
    """
    yield from _not_plain("hypotheses", hypotheses, measure.tokenize)
    for reference in references:
        yield from suspicions_of_references(reference, measure)
    yield from _in_other_script(hypotheses, references, language)
    if sources is not None:
        yield from _equal_to_the_source(hypotheses, references, sources)
    yield from _shifted(hypotheses, references[0], sources)


def suspicions_of_references(references: _Lines, measure: Measure) -> Iterator[str]:
    """Warnings about references, which need no hypotheses."""
    yield from _not_plain("references", references, measure.tokenize)
    by_spaces = "bleu" in measure.metrics and measure.tokenize in _BY_SPACES
    if (by_spaces or "ter" in measure.metrics) and (found := _share(references, _is_without_spaces, _MANY)):
        if by_spaces:
            yield (
                f"BLEU with tok:{measure.tokenize} compares words between spaces, and the references have none in "
                f"{found}: name their language if it is Chinese, Japanese or Korean (--target-lang, data.target_lang), "
                "or take the tokenizer char (--tokenize, evaluation.tokenize)"
            )
        if "ter" in measure.metrics:
            yield f"TER compares words between spaces, and the references have none in {found}: it says little there"


def suspicions_of_script(what: str, lines: _Lines, language: str) -> Iterator[str]:
    """A warning if the lines are not in a script of the language."""
    expected = expected_scripts(language)
    if found := _share(lines, lambda line: in_other_script(line, expected), _SOME):
        yield f"the {what} are not in the script of {language}: {found}. Are they the right file?"


def _is_without_spaces(line: str) -> bool:
    if len(line) > _LONG_WORD:
        return " " not in line
    scripts = [script for character in line if (script := script_of(character))]
    return 2 * sum(script in _WITHOUT_SPACES for script in scripts) > len(scripts)


def _not_plain(what: str, lines: _Lines, tokenize: str) -> Iterator[str]:
    if tokenize != "none" and (found := _share(lines, _TOKENISED.search, _MANY)):
        yield (
            f'the {what} look tokenised: {found} end in " ." or hold " @-@ ". Metrics split plain text by themselves; '
            "this score is not comparable with those of plain text"
        )
    if found := _share(lines, _SUBWORD.search, _FEW):
        yield f"the {what} look cut into subwords: {found} hold \u2581 or @@. Put the pieces together before scoring"
    if found := _share(lines, lambda line: any(escapes(line)), _FEW):
        yield f"the {what} hold HTML escapes such as &quot; in {found}. Turn them into characters on both sides"


def _in_other_script(hypotheses: _Lines, references: Sequence[_Lines], language: str) -> Iterator[str]:
    if expected_scripts(language):
        yield from suspicions_of_script("references", references[0], language)
        yield from suspicions_of_script("hypotheses", hypotheses, language)
        return
    odd = [
        number
        for number, (line, reference) in enumerate(zip(hypotheses, references[0], strict=True), 1)
        if in_other_script(line, _scripts(reference))
    ]
    if len(odd) >= _SOME * len(hypotheses) and odd:
        yield (
            f"the hypotheses are in another script than the references: {_told(odd, len(hypotheses))}. Are they the "
            "right files?"
        )


def _scripts(line: str) -> Scripts:
    return frozenset(script for script in map(script_of, set(line)) if script)


def _equal_to_the_source(hypotheses: _Lines, references: Sequence[_Lines], sources: _Lines) -> Iterator[str]:
    """Copies of the source that no reference has; names and numbers may be the same in both languages."""
    copied = [
        number
        for number, (hypothesis, source, *wanted) in enumerate(zip(hypotheses, sources, *references, strict=True), 1)
        if source.strip() and hypothesis.strip() == source.strip() and source.strip() not in map(str.strip, wanted)
    ]
    if copied and len(copied) >= _SOME * len(sources):
        yield f"the hypotheses are the source itself in {_told(copied, len(sources))}: they are not translated there"


def _shifted(hypotheses: _Lines, references: _Lines, sources: _Lines | None) -> Iterator[str]:
    pairs = [("hypotheses", hypotheses, "references", references)]
    if sources is not None:
        pairs.append(("sources", sources, "references", references))
    for what, lines, other, others in pairs:
        if shift := find_shift([len(line) for line in lines], [len(line) for line in others]):
            if shift == Shift(1, len(lines), None):
                yield (
                    f"the lengths of {what} and {other} have nothing to do with each other: are they of the same text, "
                    "in the same order?"
                )
                continue
            if shift.offset is None:
                where = f"lines {shift.first} to {shift.last} have lengths that do not go together"
            else:
                where = (
                    f"from line {shift.first} to line {shift.last}, line N of the {what} fits line "
                    f"N{shift.offset:+d} of the {other}"
                )
            yield f"{what} and {other} seem out of step: {where}. Look for a line that is missing or there twice"


def _share(lines: _Lines, odd: Callable[[str], object], least: float) -> str:
    """`N of M lines (the first: line K)` if at least the share `least` is odd, else an empty string."""
    found = [number for number, line in enumerate(lines, 1) if odd(line)]
    return _told(found, len(lines)) if found and len(found) >= least * len(lines) else ""


def _told(found: Sequence[int], count: int) -> str:
    return f"{len(found):,} of {count:,} lines (the first: line {found[0]})"
