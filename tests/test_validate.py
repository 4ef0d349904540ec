"""What one validation is worth beside another, and how it does with little memory."""

import math
from typing import Any

import pytest
import torch
from untrained import LINES, translator

from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.corpus import Pair
from transformer_cli.errors import UserError
from transformer_cli.evaluation.scores import Score
from transformer_cli.training import validate as module
from transformer_cli.training.loss import LossSums
from transformer_cli.training.state import TrainingState
from transformer_cli.training.step import batch_loss
from transformer_cli.training.validate import Validation, Validator


def validation(loss: float, bleu: float, chrf: float = 50.0) -> Validation:
    scores = [Score("BLEU", bleu, ""), Score("chrF2", chrf, "")]
    return Validation(loss, loss, 1, scores, DecodingConfig(), [], [])


def test_from_1_on_the_score_decides_whatever_the_loss() -> None:
    assert validation(9.0, 1.0).by("bleu") == 1.0
    assert validation(9.0, 31.25).by("bleu") == 31.25
    assert validation(9.0, 31.25, 40.5).by("chrf") == 40.5
    assert validation(9.0, 31.25).by("loss") == -9.0


def test_chrf_is_not_taken_for_chrf_plus_plus() -> None:
    scores = [Score("chrF2++", 30.0, ""), Score("chrF2", 40.0, "")]
    assert Validation(2.0, 2.0, 1, scores, DecodingConfig(), [], []).by("chrf") == 40.0


@pytest.mark.parametrize("bleu", [0.0, 0.3, 0.999])
def test_below_1_the_loss_decides(bleu: float) -> None:
    assert validation(4.5, bleu).by("bleu") == -4.5
    assert validation(4.5, 20.0, bleu).by("chrf") == -4.5


def test_a_score_of_1_is_better_than_any_below_whatever_the_loss() -> None:
    assert validation(100.0, 1.0).by("bleu") > validation(0.001, 0.999).by("bleu")


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_the_worst(loss: float) -> None:
    assert validation(loss, 0.5).by("bleu") == validation(loss, 30.0).by("loss") == -math.inf


def test_while_bleu_is_noise_a_falling_loss_keeps_patience_up() -> None:
    state, best = TrainingState(), []
    for step, (loss, bleu) in enumerate([(5.0, 0.4), (4.0, 0.0), (4.5, 0.9), (4.6, 1.2), (3.0, 0.2), (4.7, 1.3)], 1):
        state.step = step
        state.record_validation(validation(loss, bleu).by("bleu"))
        best.append((state.best_step, state.bad_validations))
    assert best == [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (6, 0)]


# --- memory that runs out -------------------------------------------------------------------------------------------


def test_where_memory_runs_out_the_same_losses_come_of_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    untrained = translator()
    validator = Validator(untrained.config, untrained.tokenizers, [Pair(line, line.upper()) for line in LINES])
    whole = validator.validate(untrained)
    rows = []

    def small(model: object, batch: Batch, *rest: Any) -> LossSums:
        rows.append(len(batch.src))
        if len(batch.src) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return batch_loss(model, batch, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "batch_loss", small)
    parts = validator.validate(untrained)
    assert max(rows) > 2
    assert (parts.loss, parts.nll) == (pytest.approx(whole.loss, rel=1e-6), pytest.approx(whole.nll, rel=1e-6))
    assert parts.tokens == whole.tokens


def test_a_pair_of_the_validation_set_that_does_not_fit_is_told_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    untrained = translator()
    validator = Validator(untrained.config, untrained.tokenizers, [Pair("ba ce", "BA CE")])

    def none_fits(*_: object) -> object:
        raise MemoryError("no room")

    monkeypatch.setattr(module, "batch_loss", none_fits)
    with pytest.raises(UserError, match=r"data\.valid: a pair of \d+ pieces does not fit into memory: leave such"):
        validator.validate(untrained)


def test_a_large_vocabulary_makes_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    untrained = translator()
    validator = Validator(untrained.config, untrained.tokenizers, [Pair(line, line.upper()) for line in LINES])
    cells: list[int] = []

    def counted(model: object, batch: Batch, *rest: Any) -> LossSums:
        cells.append(batch.tgt_in.numel())
        return batch_loss(model, batch, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "batch_loss", counted)
    monkeypatch.setattr(module, "_LOGITS", 40 * untrained.tokenizers.target.vocab_size)
    pairs = validator.pairs
    Validator(untrained.config, untrained.tokenizers, pairs).validate(untrained)
    assert len(cells) > 1
    assert max(cells) <= 40


@pytest.mark.parametrize(
    ("languages", "told"),
    [
        (("en", "de"), []),
        (("zh", "de"), ["the sources are not in the script of zh: 6 of 6 lines (the first: line 1)"]),
        (("und", "ru"), ["the references are not in the script of ru: 6 of 6 lines (the first: line 1)"]),
    ],
)
def test_languages_that_the_text_is_not_written_in_are_warned_of(
    languages: tuple[str, str], told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    one = translator({"data": {"source_lang": languages[0], "target_lang": languages[1]}})
    Validator(one.config, one.tokenizers, [Pair(line, line.upper()) for line in LINES])
    assert caplog.messages == [f"data.valid: {words}. Are they the right file?" for words in told]
