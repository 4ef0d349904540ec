"""The proof that an exported model translates as the original does."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_cli.decoding.score import score_ids
from transformer_cli.decoding.translator import Translation, Translator
from transformer_cli.errors import UserError
from transformer_cli.export.ctranslate2 import check_folder, export, module
from transformer_cli.export.engine import CTranslate2Translator
from transformer_cli.log import LOGGER

_TIE = 1e-4  # maximum difference of two log-probabilities or scores that count as equal


def export_with_proof(
    translator: Translator, folder: Path, quantization: str | None, lines: Sequence[str]
) -> Iterator[str]:
    """Export the model if both engines translate the lines alike; yield the results of the comparison in words. Lines
    that come out differently are logged one by one.

    UserError, with no folder written, when a line comes out differently and is not a tie. The unquantized model is
    compared; for a quantized one, only the number of equal lines is reported.
    """
    check_folder(folder)
    with TemporaryDirectory() as place:
        export(translator, Path(place, "float32"), None)
        engine = CTranslate2Translator(translator, Path(place, "float32"))
        for beam_size in sorted({1, max(translator.config.decoding.beam_size, 2)}):
            found = differences(translator, engine, lines, beam_size)
            for one in found:
                level = logging.INFO if one.tie else logging.WARNING
                LOGGER.log(level, "%s", one.in_words())
            if any(not one.tie for one in found):
                raise UserError(
                    "the exported model translates some lines differently (above), so nothing is exported. A model "
                    "that has hardly been trained finds padding or the start symbol as likely as words, and the engine "
                    "searches on from them, as we do not: train it longer; if it is well trained, please report it"
                )
            yield f"beam {beam_size}: {len(lines) - len(found)} of {len(lines)} lines the same, {len(found)} ties"
    export(translator, folder, quantization)
    if quantization is None:
        return
    if quantization not in module().get_supported_compute_types("cpu"):
        yield f"in {quantization}: not compared, for this processor does not compute in it"
    else:
        engine = CTranslate2Translator(translator, folder, quantization)
        found = differences(translator, engine, lines, 1)
        yield f"in {quantization}: {len(lines) - len(found)} of {len(lines)} lines the same, greedily"


@dataclass(frozen=True)
class Difference:
    """A line that the two engines translate differently; `tie`: both translations are equally good."""

    line: str
    ours: Translation
    theirs: Translation
    tie: bool

    def in_words(self) -> str:
        """The line and both translations with their scores."""
        return (
            f"{'a tie' if self.tie else 'DIFFERENT'}: {self.line}\n  torch        {self.ours.score:.6f}  "
            f"{self.ours.text}\n  ctranslate2  {self.theirs.score:.6f}  {self.theirs.text}"
        )


def differences(ours: Translator, theirs: Translator, lines: Sequence[str], beam_size: int) -> list[Difference]:
    """The lines that come out differently with the length penalty n^1 and the same limits on both sides.

    Greedy translations tie when, at their first difference, both pieces are equally likely in our model; beam-search
    translations tie when their scores are equal.
    """
    decoding = ours.config.decoding.model_copy(
        update={
            "beam_size": beam_size,
            "n_best": 1,
            "length_penalty": 1.0,
            "length_penalty_type": "avg",
            "min_length": 0,
            "no_repeat_ngram_size": 0,
            "repetition_penalty": 1.0,
        }
    )
    found = []
    pairs = zip(lines, ours.translate(lines, decoding), theirs.translate(lines, decoding), strict=True)
    for line, (our, *_), (their, *_) in pairs:
        if our.ids != their.ids:
            tie = abs(our.score - their.score) <= _TIE
            if beam_size == 1:
                tie = _first_difference(ours, our, their) <= _TIE
            found.append(Difference(line, our, their, tie))
    return found


def _first_difference(translator: Translator, our: Translation, their: Translation) -> float:
    parts = zip(our.parts or (our,), their.parts or (their,), strict=True)
    our, their = next((ours, theirs) for ours, theirs in parts if ours.ids != theirs.ids)
    mine, other = score_ids(translator, [our.source_ids] * 2, [our.ids, their.ids])
    same = [a == b for a, b in zip(our.ids, their.ids, strict=False)]
    place = same.index(False) if False in same else len(same)
    return abs(mine.token_log_probs[place] - other.token_log_probs[place])
