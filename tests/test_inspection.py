"""What is told of a model: parameters against arithmetic by hand, and the best of its validations."""

import json
from pathlib import Path
from typing import Any

import pytest

from transformer_cli.config.schema import ModelConfig
from transformer_cli.evaluation.history import read_history
from transformer_cli.evaluation.inspection import in_short, parameters_by_part
from transformer_cli.model.transformer import Transformer

# A projection of 16 to 16 has 16 * 16 + 16 = 272 numbers, attention four of them; a LayerNorm has 32.
ATTENTION, NORM = 4 * 272, 32
FEED_FORWARD = 16 * 32 + 32 + 32 * 16 + 16
EMBEDDING = 60 * 16
STACKS = {
    "encoder self attention": 2 * ATTENTION,
    "encoder feed forward": 2 * FEED_FORWARD,
    "encoder layer norms": 2 * 2 * NORM,
    "decoder self attention": ATTENTION,
    "decoder cross attention": ATTENTION,
    "decoder feed forward": FEED_FORWARD,
    "decoder layer norms": 3 * NORM,
}


def small(**settings: Any) -> dict[str, int]:
    config = ModelConfig(d_model=16, ffn_dim=32, num_heads=2, encoder_layers=2, decoder_layers=1, **settings)
    model = Transformer(config, 60, 60, pad=0)
    return parameters_by_part({name: p.numel() for name, p in model.named_parameters()}, config.tie_embeddings)


@pytest.mark.parametrize(
    ("tied", "embeddings"),
    [
        ("all", {"embedding of source, target and output": EMBEDDING}),
        ("target", {"source embedding": EMBEDDING, "embedding of target and output": EMBEDDING}),
        ("none", {"source embedding": EMBEDDING, "target embedding": EMBEDDING, "output": EMBEDDING}),
    ],
)
def test_parameters_by_part_equal_arithmetic_and_come_in_order(tied: str, embeddings: dict[str, int]) -> None:
    found = small(tie_embeddings=tied)
    assert found == embeddings | STACKS
    assert list(found) == [*embeddings, *STACKS]


def test_learned_positions_and_the_last_norm_of_a_pre_norm_stack_are_counted() -> None:
    found = small(norm="pre", positions="learned", max_positions=300)
    assert found["encoder layer norms"] == (2 * 2 + 1) * NORM
    assert found["decoder layer norms"] == (3 + 1) * NORM
    assert found["source positions"] == found["target positions"] == 300 * 16


def validation(step: int, loss: float | None, bleu: float, **more: Any) -> dict[str, Any]:
    scores = {"BLEU": {"score": bleu, "signature": ""}}
    return {"event": "valid", "step": step, "epoch": 1, "loss": loss, "ppl": loss, "scores": scores, **more}


def history(tmp_path: Path, *events: dict[str, Any], best_metric: str = "bleu") -> dict[str, Any]:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return in_short(read_history(tmp_path), best_metric)


def test_the_best_validation_has_the_highest_score_and_the_first_of_equal_ones(tmp_path: Path) -> None:
    events = [validation(10, 3.0, 5.0), validation(20, 2.0, 9.0), validation(30, 1.0, 9.0), validation(40, 0.5, 8.0)]
    found = history(tmp_path, *events)
    assert (found["best"]["step"], found["last"]["step"]) == (20, 40)
    assert history(tmp_path, *events, best_metric="loss")["best"]["step"] == 40


def test_below_a_score_of_1_the_loss_chooses_the_best(tmp_path: Path) -> None:
    events = [validation(10, 3.0, 0.9), validation(20, 2.0, 0.0), validation(30, None, 0.5)]
    assert history(tmp_path, *events)["best"]["step"] == 20


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(validation(10, 3.0, 5.0)) + '\n{"event": "val')
    assert in_short(read_history(tmp_path), "bleu")["last"]["step"] == 10


def test_an_average_is_told_apart(tmp_path: Path) -> None:
    found = history(tmp_path, validation(10, 3.0, 5.0), validation(10, 2.0, 9.0, averaged=[5, 10]))
    assert (found["best"]["loss"], found["average"]["averaged"]) == (3.0, [5, 10])


def test_training_is_summed_up(tmp_path: Path) -> None:
    events = [
        {"event": "train", "step": step, "epoch": step // 10, "seconds": 1.5, "tgt_tokens": 100} for step in (10, 20)
    ]
    assert history(tmp_path, *events) == {"step": 20, "epoch": 2, "seconds": 3.0, "tgt_tokens": 200}
