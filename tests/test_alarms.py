"""Alarms: silent while a model learns, and each names what was seen, the likely cause and what to try."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

from transformer_cli.config.load import load_config
from transformer_cli.config.recipes import RECIPES
from transformer_cli.config.schema import Config, DecodingConfig, ModelConfig, TrainingConfig
from transformer_cli.data.corpus import Pair
from transformer_cli.data.dataset import Sequences, TokenDataset
from transformer_cli.data.tokenizer import BOS, EOS, PAD, UNK
from transformer_cli.model.masks import padding_mask, target_mask
from transformer_cli.model.transformer import Transformer
from transformer_cli.project import Template, template_config
from transformer_cli.training.alarms import Alarms, gradient_norms
from transformer_cli.training.validate import Validation

V = 100  # ln 100 = 4.61
WELL = {"encoder layer 1": 1.0, "decoder layer 1": 2.0}


def config(precision: str = "fp32", width: int = 64, norm: str = "post", **training: Any) -> Config:
    settings = {"warmup_steps": 200, "valid_steps": 100, "max_steps": 2000} | training
    return Config(
        name="x",
        precision=precision,  # type: ignore[arg-type]
        model=ModelConfig(d_model=width, num_heads=4, norm=norm),  # type: ignore[arg-type]
        training=TrainingConfig(**settings),
    )


def alarms(**settings: Any) -> Alarms:
    return Alarms(config(**settings), V)


def dataset(source: Sequence[int], target: Sequence[int]) -> TokenDataset:
    def one(ids: Sequence[int]) -> Sequences:
        return Sequences(np.array(ids, dtype=np.uint32), np.array([0, len(ids)], dtype=np.int64))

    return TokenDataset(one(source), one(target))


KNOWN = dataset([4] * 100, [4] * 100)


def validation(
    nll: float = 1.0,
    hypotheses: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
) -> Validation:
    """Twenty lines, all different and translated rightly where nothing else is said."""
    sources = sources or [f"source {i}" for i in range(20)]
    references = references or [f"target {i}" for i in range(20)]
    pairs = [Pair(source, reference) for source, reference in zip(sources, references, strict=True)]
    return Validation(nll, nll, 100, [], DecodingConfig(), pairs, list(hypotheses or references))


def told_at_validation(hypotheses: Sequence[str], step: int = 400, **text: Sequence[str]) -> list[str]:
    return alarms().at_validation(step, validation(hypotheses=hypotheses, **text))


# --- Gradients --------------------------------------------------------------------------------------------------------


class Stack(nn.Module):
    """Names as in the Transformer: two weights in encoder layer 2, one in decoder layer 1, and the output."""

    def __init__(self) -> None:
        super().__init__()
        for side, layers in (("encoder", 2), ("decoder", 1)):
            part = nn.Module()
            part.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(layers))
            self.add_module(side, part)
        self.output = nn.Linear(1, 1, bias=False)

    def set_gradients(self, **values: float) -> None:
        for name, parameter in self.named_parameters():
            short = name.replace(".layers.", "_").replace(".", "_")
            parameter.grad = torch.full_like(parameter, values[short]) if short in values else None


def test_gradients_are_gathered_by_layer_and_make_up_the_whole() -> None:
    model = Stack()
    model.set_gradients(encoder_1_weight=3.0, encoder_1_bias=4.0, decoder_0_weight=12.0, output_weight=84.0)
    # sqrt(9 + 16) = 5, and sqrt(25 + 144 + 7056) = 85
    assert gradient_norms(model, 85.0) == pytest.approx(
        {"encoder layer 2": 5.0, "decoder layer 1": 12.0, "the embeddings and the output": 84.0}
    )


def test_clipped_gradients_have_the_lengths_they_had_before() -> None:
    model = Stack()
    model.set_gradients(encoder_0_weight=3.0, decoder_0_bias=4.0)
    total = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    assert total == pytest.approx(5.0)
    assert gradient_norms(model, total) == pytest.approx({"encoder layer 1": 3.0, "decoder layer 1": 4.0}, rel=1e-5)


def test_gradients_that_are_none_or_nothing_or_not_finite_are_given_as_they_stand() -> None:
    model = Stack()
    model.set_gradients()
    assert gradient_norms(model, 1.0) == {}
    model.set_gradients(encoder_0_weight=0.0)
    assert gradient_norms(model, 0.0) == {"encoder layer 1": 0.0}
    model.set_gradients(encoder_0_weight=2.0, decoder_0_weight=math.inf)
    assert gradient_norms(model, math.inf) == {"encoder layer 1": 2.0, "decoder layer 1": math.inf}


def after_usual_gradients(lines: int, **settings: Any) -> Alarms:
    watching = alarms(**settings)
    for line in range(lines):
        assert watching.at_log(50 * line, 1.0, 0, WELL) == []
    return watching


def test_a_gradient_a_hundred_times_its_usual_length_has_exploded() -> None:
    assert after_usual_gradients(10).at_log(900, 1.0, 0, WELL | {"decoder layer 1": 199.0}) == []
    (message,) = after_usual_gradients(10).at_log(900, 1.0, 0, WELL | {"decoder layer 1": 201.0})
    assert message == (
        "step 900: the gradient of decoder layer 1 exploded, from a usual length of 2 to 2e+02: halve "
        "training.noam_factor or double warmup_steps; norm: pre is calmer than post, and keep clip_grad_norm at 1"
    )


def test_what_is_usual_must_be_known_and_small_gradients_may_grow() -> None:
    huge = dict.fromkeys(WELL, 1e6)
    assert after_usual_gradients(9).at_log(900, 1.0, 0, huge) == []
    converged = alarms()
    for line in range(10):
        converged.at_log(line, 1.0, 0, {"encoder layer 1": 1e-4, "decoder layer 1": 1e-4})
    assert converged.at_log(10, 1.0, 0, {"encoder layer 1": 9.0, "decoder layer 1": 9.0}) == []


def test_a_gradient_that_is_no_number_is_told_by_layer_but_in_fp16_belongs_to_the_scaling() -> None:
    (message,) = alarms(norm="pre").at_log(50, 1.0, 0, WELL | {"decoder layer 1": math.nan})
    assert message == (
        "step 50: the gradient of decoder layer 1 is no finite number: halve training.noam_factor or double "
        "warmup_steps"
    )
    (message,) = alarms().at_log(50, 1.0, 0, dict.fromkeys(WELL, math.inf))
    assert "the gradient of every layer is no finite number" in message
    assert alarms(precision="fp16").at_log(50, 1.0, 0, dict.fromkeys(WELL, math.inf)) == []


def test_a_layer_has_vanished_when_three_lines_in_a_row_find_it_far_below_the_highest() -> None:
    # The threshold is 1e-5 of the highest layer; the embeddings do not count.
    low = {"encoder layer 1": 1.9e-5, "decoder layer 1": 2.0}
    watching = alarms()
    assert watching.at_log(50, 1.0, 0, low) == watching.at_log(100, 1.0, 0, low) == []
    (message,) = watching.at_log(150, 1.0, 0, low)
    assert (
        "the gradient of encoder layer 1 has all but vanished (1.9e-05, that of decoder layer 1 is 2.0e+00)" in message
    )
    assert "norm: pre is calmer than post, or use fewer layers" in message

    interrupted = alarms()
    for norms in (low, low, WELL, low, low):
        assert interrupted.at_log(50, 1.0, 0, norms) == []
    for norms in (WELL | {"encoder layer 1": 2.1e-5}, WELL | {"the embeddings and the output": 1e-9}):
        watching = alarms()
        assert [watching.at_log(50, 1.0, 0, norms) for _ in range(5)] == [[]] * 5


@pytest.mark.parametrize(
    ("precision", "step", "skipped", "told"),
    [
        ("fp32", 100, 3, False),
        ("fp32", 100, 4, True),
        ("bf16", 1000, 12, False),
        ("bf16", 1000, 13, True),
        ("fp16", 50, 20, False),
        ("fp16", 1000, 31, True),
    ],
)
def test_steps_are_skipped_too_often_above_one_in_a_hundred(
    precision: str, step: int, skipped: int, told: bool
) -> None:
    messages = alarms(precision=precision).at_log(step, 1.0, skipped, WELL)
    assert [f"{skipped} steps so far were skipped" in message for message in messages] == [True] * told


def test_an_alarm_is_told_again_after_ten_looks_then_after_twenty() -> None:
    watching = alarms()
    told = [look for look in range(1, 60) if watching.at_log(look, 1.0, look + 100, WELL)]
    assert told == [1, 12, 33]


def test_an_alarm_that_was_well_in_between_is_told_again() -> None:
    watching = alarms()
    empty = validation(hypotheses=[""] * 20)
    assert len(watching.at_validation(400, empty)) == 1
    for step in range(500, 1500, 100):
        assert watching.at_validation(step, validation()) == []
    assert len(watching.at_validation(1500, empty)) == 1


def copy_batches(generator: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    while True:
        words = torch.randint(4, V, (32, 8), generator=generator)
        end, begin = torch.full((32, 1), EOS), torch.full((32, 1), BOS)
        yield torch.cat([words, end], 1), torch.cat([begin, words], 1), torch.cat([words, end], 1)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("layers", [1, 4])
def test_a_training_that_goes_well_raises_none_from_its_first_update_on(norm: str, layers: int) -> None:
    torch.manual_seed(1)
    settings = ModelConfig(
        d_model=32, ffn_dim=64, num_heads=2, encoder_layers=layers, decoder_layers=layers, norm=norm, dropout=0.0  # type: ignore[arg-type]
    )  # fmt: skip
    model = Transformer(settings, V, V, pad=PAD).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, betas=(0.9, 0.98))
    watching = Alarms(config(width=32, norm=norm), V)
    losses: list[float] = []
    for step, (src, tgt_in, tgt_out) in enumerate(copy_batches(torch.Generator().manual_seed(1)), 1):
        logits = model.project(model(src, padding_mask(src, PAD), tgt_in, target_mask(tgt_in, PAD)))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt_out.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        total = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        losses.append(loss.item())
        norms = gradient_norms(model, total)
        assert len(norms) == 2 * layers + 1
        assert watching.at_log(step, losses[-1], 0, norms) == []
        if step == 50:
            break
    assert losses[-1] < losses[0] - 0.5


# --- The learning rate ------------------------------------------------------------------------------------------------


def told_at_start(**settings: Any) -> list[str]:
    return alarms(**settings).at_start(KNOWN, KNOWN)


def test_the_usual_rates_are_in_range() -> None:
    base = Config(name="base")
    big = Config(name="big", model=ModelConfig(d_model=1024, num_heads=16))
    recipes = [
        config(
            width=r.d_model, noam_factor=r.noam_factor, warmup_steps=r.warmup_steps, max_steps=r.max_steps
        )
        for r in RECIPES
    ]  # fmt: skip
    for usual in (base, big, *recipes):
        assert Alarms(usual, V).at_start(KNOWN, KNOWN) == []


@pytest.mark.parametrize("template", get_args(Template))
def test_the_templates_are_in_range(template: Template, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(template_config(template), encoding="utf-8")
    assert Alarms(load_config(path), V).at_start(KNOWN, KNOWN) == []


def test_a_rate_above_what_the_width_stands_is_told() -> None:
    constant = {"lr_schedule": "constant", "warmup_steps": 0}
    # 2 / 64 = 0.03125
    assert told_at_start(learning_rate=0.031, **constant) == []
    (message,) = told_at_start(learning_rate=0.032, **constant)
    assert message == (
        "the highest learning rate, 3.2e-02, is more than a model of d_model 64 usually stands (3.1e-02): the loss may "
        "jump up or stay high; halve training.learning_rate or double warmup_steps; norm: pre is calmer than post"
    )
    # noam: 64^-0.5 * 200^-0.5 = 0.00884, times 4 = 0.0354
    assert told_at_start(noam_factor=3.5) == []
    assert "halve training.noam_factor" in told_at_start(noam_factor=4.0)[0]


def test_a_rate_near_nothing_is_told_unless_a_trained_model_is_tuned() -> None:
    constant = {"lr_schedule": "constant", "warmup_steps": 0}
    assert told_at_start(learning_rate=2e-5, **constant) == []
    (message,) = told_at_start(learning_rate=1e-5, **constant)
    assert message == (
        "the highest learning rate, 1.0e-05, is so low that a model of d_model 64 will hardly learn: raise "
        "training.learning_rate or lower warmup_steps, to a rate of 2e-03 or more"
    )
    assert told_at_start(learning_rate=1e-5, init_from="runs/other", **constant) == []


def test_a_warm_up_longer_than_training_is_told() -> None:
    assert told_at_start(warmup_steps=2000) == []
    (message,) = told_at_start(warmup_steps=2001)
    assert message.startswith(
        "training.warmup_steps 2001 is more than max_steps 2000: the learning rate never comes to"
    )


# --- Text -------------------------------------------------------------------------------------------------------------


def test_more_than_one_unknown_piece_in_a_hundred_is_told_by_text_and_side() -> None:
    one, two = [UNK] + [4] * 99, [UNK] * 2 + [4] * 98
    assert alarms().at_start(dataset(one, one), dataset(one, one)) == []
    assert alarms().at_start(dataset([], []), KNOWN) == []
    training, validation_ = alarms().at_start(dataset(one, two), dataset(two, one))
    assert training == (
        "2.0% of the pieces of the training target are unknown (⁇), characters without a piece: try "
        "tokenizer.byte_fallback: true, or a higher tokenizer.character_coverage or vocab_size"
    )
    assert validation_.startswith("2.0% of the pieces of the validation source are unknown")


# --- The loss ---------------------------------------------------------------------------------------------------------


def told_of_losses(losses: Sequence[tuple[float, float]], apart: int = 100, **settings: Any) -> list[list[str]]:
    """Training and validation nll at each validation; what is told at each."""
    watching = alarms(**settings)
    told = []
    for number, (train, valid) in enumerate(losses, 1):
        watching.at_log(apart * number, train, 0, WELL)
        told.append(watching.at_validation(apart * number, validation(valid)))
    return told


def test_a_loss_that_stays_high_for_three_validations_after_the_warm_up_is_told() -> None:
    # Validations at 300, 400, 500 and 600 come after the warm-up; half of ln 100 is 2.30.
    flat = [(3.4, 3.4)] * 6
    *before, (message,) = told_of_losses(flat)
    assert before == [[]] * 5
    assert message == (
        "step 600: the training loss has hardly fallen for 3 validations (nll 3.40, now 3.40; 4.61 is the loss of a "
        "model that knows nothing): see that line N of the target files translates line N of the source files, and "
        "that the lr in the log is neither tiny (a long warmup_steps) nor too high (training.noam_factor)"
    )
    assert told_of_losses(flat, warmup_steps=400) == [[]] * 6
    assert told_of_losses([(2.3, 2.3)] * 9) == [[]] * 9  # low: it has learnt
    assert told_of_losses([(4 * 0.99**i, 4.0) for i in range(9)]) == [[]] * 9  # falls by three in a hundred
    assert told_of_losses(flat, apart=10, warmup_steps=1) == [[]] * 6  # thirty steps are nothing


def test_a_validation_loss_that_rises_while_training_goes_on_is_overfitting() -> None:
    rising = [(2.0, 2.0), (1.5, 1.8), (1.2, 1.86), (1.0, 1.86), (0.8, 1.9)]
    *before, (message,) = told_of_losses(rising)
    assert before == [[]] * 4
    assert message == (
        "step 500: the validation loss rises (nll 1.80 at step 200, now 1.90) while the training loss falls (from 1.50 "
        "to 0.80): too little text for the model; more text, more dropout, a smaller d_model, or fewer steps (a "
        "smaller patience)"
    )


def test_a_validation_loss_that_wavers_or_rises_with_that_of_training_is_none() -> None:
    wavering = [(2.0, 2.0), (1.5, 1.8), (1.2, 1.84), (1.0, 1.9), (0.8, 1.84), (0.7, 1.9), (0.6, 1.84)]
    assert told_of_losses(wavering) == [[]] * 7
    both = [(2.0, 2.0), (1.5, 1.8), (1.6, 1.9), (1.7, 1.9), (1.8, 1.9)]
    assert told_of_losses(both) == [[]] * 5


def test_the_training_loss_is_the_mean_since_the_last_validation_and_without_one_nothing_is_judged() -> None:
    watching = alarms()
    for number in range(1, 7):
        for nll in (3.0, math.nan, 3.8):
            watching.at_log(100 * number, nll, 0, WELL)
        told = watching.at_validation(100 * number, validation())
    assert "(nll 3.40, now 3.40;" in told[0]
    watching = alarms()
    assert all(watching.at_validation(100 * number, validation(3.4)) == [] for number in range(1, 9))


# --- Translations -----------------------------------------------------------------------------------------------------

ODD = {
    "have one and the same translation": ["the same"] * 12 + [f"target {i}" for i in range(8)],
    "have an empty translation": ["", " "] * 3 + [f"target {i}" for i in range(14)],
    "are copied from source to translation": [f"source {i}" for i in range(8)] + [f"target {i}" for i in range(12)],
    "have a translation that repeats": ["go on on on on on.", "nnnnnnnn", "你好 你好 你好 你好 你好"] * 2
    + [f"target {i}" for i in range(14)],
}  # fmt: skip


@pytest.mark.parametrize(("words", "lines"), ODD.items(), ids=ODD)
def test_odd_translations_are_told_with_their_share(words: str, lines: list[str]) -> None:
    (message,) = told_at_validation(lines)
    assert words in message
    assert message.startswith("step 400: ")
    assert "% of the validation lines (0% of the references) " in message or "(5% of the references)" in message


@pytest.mark.parametrize(("words", "lines"), ODD.items(), ids=ODD)
def test_what_references_are_like_translations_may_be_too(words: str, lines: list[str]) -> None:
    assert told_at_validation(lines, references=lines) == []


def test_copies_are_right_where_the_references_are_copies() -> None:
    words = [f"ba {i}" for i in range(20)]
    assert told_at_validation(words, references=words, sources=words) == []


@pytest.mark.parametrize("lines", ODD.values(), ids=ODD)
def test_translations_are_not_judged_before_the_warm_up_is_over_or_in_the_first_two_validations(
    lines: list[str],
) -> None:
    odd = validation(hypotheses=lines)
    assert alarms().at_validation(200, odd) == []
    assert alarms(warmup_steps=1).at_validation(200, odd) == []
    assert alarms(warmup_steps=1, valid_steps=1).at_validation(99, odd) == []
    assert alarms(warmup_steps=400).at_validation(400, odd) == []
    assert len(alarms(warmup_steps=400).at_validation(500, odd)) == 1


def test_half_of_the_lines_may_be_odd_in_no_way_and_a_few_lines_say_nothing() -> None:
    assert told_at_validation(["the same"] * 10 + [f"target {i}" for i in range(10)]) == []
    assert told_at_validation([""] * 4 + [f"target {i}" for i in range(16)]) == []
    assert told_at_validation([f"source {i}" for i in range(6)] + [f"target {i}" for i in range(14)]) == []
    few = [str(i) for i in range(9)]
    assert told_at_validation([""] * 9, references=few, sources=few) == []


@pytest.mark.parametrize(
    ("line", "odd"),
    [
        ("nnnnnnnn", True),
        ("nnnnnnn", False),
        ("it was a very very very good day", False),
        ("very very very very good", False),  # not at the end
        ("so, ha ha ha ha ha!", True),
        ("so, ha ha ha!", False),
        ("a b a b a b a b", False),  # three times and a half, the spaces between them
        ("a b a b a b a b a b", True),
        ("x" + "abcdefghijklmnopqrstuvwxyz0123456789ABCD" * 4, True),
        ("x" + "abcdefghijklmnopqrstuvwxyz0123456789ABCDE" * 4, False),  # forty-one characters
        ("", False),
    ],
)
def test_a_loop_is_the_same_two_to_forty_characters_four_times_at_the_end(line: str, odd: bool) -> None:
    others = [f"target {i}" for i in range(15)]
    told = told_at_validation([line] * 5 + others, references=[f"other {i}" for i in range(20)])
    assert any("repeats a few words" in message for message in told) == odd


@pytest.mark.parametrize(
    "phrase",
    ["has hardly fallen", "exploded", "no finite number", "all but vanished", "one and the same translation", "empty",
     "copied", "over and over", "validation loss rises", "line N of the", "noam_factor", "warmup_steps",
     "clip_grad_norm", "the decoder ignores the source", "byte_fallback: true", "too little text for the model"],
)  # fmt: skip
def test_the_readme_explains_what_is_warned_of_in_the_same_words(phrase: str) -> None:
    root = Path(__file__).parents[1]
    table = (root / "README.md").read_text(encoding="utf-8").split("## When it does not learn")[1].split("\n## ")[0]
    assert phrase in table
    # What the program says stands in its source over several lines.
    source = re.sub(r'"\s+f?"', "", (root / "transformer_cli/training/alarms.py").read_text(encoding="utf-8"))
    assert phrase in source
