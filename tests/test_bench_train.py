"""The speed comparison: what it counts, and that its baselines are honest."""

import importlib
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transformer_cli.config.schema import ModelConfig, TrainingConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.dataset import Sequences, TokenDataset
from transformer_cli.data.tokenizer import PAD
from transformer_cli.model.transformer import Transformer

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.append(str(SCRIPTS))
bench = importlib.import_module("bench_train")
systems = importlib.import_module("bench_systems")

CPU = torch.device("cpu")
V = 50
TINY = ModelConfig(d_model=16, ffn_dim=32, num_heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0)
NAMES = [systems.OURS, systems.PLAIN, systems.MARIAN]


def build(name: str) -> Any:
    if name == systems.MARIAN:
        pytest.importorskip("transformers")
    return systems.build(name, TINY, V, TrainingConfig(), CPU, "fp32")


def batch(rows: int, seed: int) -> Batch:
    """Random ids, the last word of each second row padding."""
    ids = torch.randint(4, V, (3, rows, 6), generator=torch.Generator().manual_seed(seed))
    ids[:, ::2, -1] = PAD
    return Batch(*ids)


def test_tokens_are_counted_with_end_symbols_and_without_padding() -> None:
    src = torch.tensor([[7, 8, 9, 3], [7, 3, 0, 0]])
    tgt_in = torch.tensor([[2, 5, 6], [2, 5, 0]])
    tgt_out = torch.tensor([[5, 6, 3], [5, 3, 0]])
    assert bench.count_tokens([Batch(src, tgt_in, tgt_out)]) == (6, 5)
    assert bench.count_tokens([Batch(src, tgt_in, tgt_out)] * 2) == (12, 10)


def test_the_work_is_six_operations_for_each_parameter_that_multiplies_and_token() -> None:
    model = Transformer(ModelConfig(d_model=4, ffn_dim=8, num_heads=2, encoder_layers=1, decoder_layers=1), 10, 10, PAD)
    attention = 4 * (4 * 4 + 4)
    feed_forward = 4 * 8 + 8 + 8 * 4 + 4
    norm = 4 + 4
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm + 10 * 4  # the output matrix; no embedding
    assert bench.work(model, bench.Tokens(source=3, target=5)) == 6 * (3 * encoder + 5 * decoder)


def test_one_batch_updates_hold_the_same_pairs_once_each_and_keep_the_budget() -> None:
    lengths = np.random.default_rng(1).integers(1, 12, 60)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    side = Sequences(np.ones(starts[-1], dtype=np.uint32), starts)
    dataset = TokenDataset(side, side)
    planned = [[np.array([3, 4, 5]), np.array([40, 41])], [np.arange(10, 30)]]
    dealt = bench.one_batch_updates(planned, dataset, budget=48)
    assert all(len(update) == 1 for update in dealt)
    assert all(len(part) * dataset.sizes(part).max() <= 48 for (part,) in dealt)
    assert sorted(np.concatenate([part for (part,) in dealt])) == [3, 4, 5, *range(10, 30), 40, 41]


@pytest.mark.parametrize("name", NAMES)
def test_all_systems_have_as_many_parameters_to_train(name: str) -> None:
    counts = [
        sum(parameter.numel() for parameter in build(each).model.parameters() if parameter.requires_grad)
        for each in (systems.OURS, name)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_begins_near_that_of_a_uniform_guess_and_falls(name: str) -> None:
    system, batches = build(name), [batch(8, seed=1), batch(4, seed=2)]
    losses = [system.update(batches, rate=0.003) for _ in range(60)]
    assert math.log(V) - 0.1 < losses[0] < math.log(V) + 1.0
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_an_update_has_the_mean_loss_of_all_tokens_of_its_micro_batches(name: str) -> None:
    parts = [batch(9, seed=1), batch(2, seed=2)]
    tokens = [bench.count_tokens([part]).target for part in parts]
    losses = [build(name).update([part], rate=0.0) for part in parts]
    mean = sum(loss * count for loss, count in zip(losses, tokens, strict=True)) / sum(tokens)
    assert build(name).update(parts, rate=0.0) == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("name", [systems.PLAIN, systems.MARIAN])
def test_padding_does_not_change_a_baseline(name: str) -> None:
    system, one = build(name), batch(3, seed=1)
    system.model.eval()
    padded = Batch(*(torch.cat([ids, ids.new_zeros(3, 2)], dim=1) for ids in one))
    with torch.no_grad():
        assert system.nll(padded) == pytest.approx(system.nll(one), rel=1e-5)


def test_a_ratio_is_the_median_over_turns_of_what_was_measured_side_by_side() -> None:
    def column(*seconds: float) -> Any:
        turns = [bench.Turn(bench.Tokens(100, 100), clock, clock, clock) for clock in seconds]
        return bench.Column("", "fp32", "", [], None, turns)

    assert bench.ratio(column(1.0, 2.0, 5.0), column(2.0, 3.0, 40.0)) == "2.00"


@pytest.mark.slow
def test_the_script_prints_one_table(pairs: Callable[..., Iterator[tuple[str, str]]], tmp_path: Path) -> None:
    for side, name in enumerate(("source", "target")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in pairs(300, 1)), encoding="utf-8")
    options = "--source source --target target --vocab-size 60 --batch-size 512 --threads 1 --precision fp32 "
    options += "--updates 1 --turns 1 --learn 2 --first-update"
    command = [sys.executable, str(SCRIPTS / "bench_train.py"), *options.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "plain loop fp32" in lines[0]
    assert "ours fp32" in lines[0]
    assert len({len(line) for line in lines}) == 1
    measures = [line.split("|")[1].strip() for line in lines[2:]]
    assert "target tokens per CPU-second" in measures
    assert "valid NLL per token after 2 updates" in measures
    assert "first update, s" in measures
