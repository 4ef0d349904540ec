"""On a GPU: what the CPU computes, in every precision and form; a run there, stopped, resumed and used on the CPU.

`TRANSFORMER_CLI_DEVICE=cpu pytest -m gpu` runs the same on the CPU, to test the tests.
"""

import copy
import os
import signal
from collections.abc import Callable
from itertools import cycle, islice, pairwise
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import torch
import untrained
from runs import metrics
from small_models import PAD, V, both_forms, both_norms, build, logits_of, small, words
from torch import Tensor

from transformer_cli.config.schema import ModelConfig, TrainingConfig
from transformer_cli.data.batching import plan_epoch
from transformer_cli.data.dataset import Sequences, TokenDataset
from transformer_cli.decoding.score import score_ids
from transformer_cli.decoding.translator import Translator
from transformer_cli.device import DTYPES, Precision, attention_form, autocast
from transformer_cli.model.transformer import Transformer
from transformer_cli.training.loss import fused_cross_entropy, smoothed_cross_entropy
from transformer_cli.training.step import Updater

DEVICE = torch.device(os.environ.get("TRANSFORMER_CLI_DEVICE", "cuda"))
CPU = torch.device("cpu")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="there is no CUDA device"),
]

SIZE = ModelConfig(d_model=64, ffn_dim=128, num_heads=4, encoder_layers=2, decoder_layers=2, dropout=0.0)


def pairs(count: int = 400) -> TokenDataset:
    """Random targets of 1 to 12 pieces, each source the same backwards."""
    random = np.random.default_rng(3)
    starts = np.concatenate([[0], np.cumsum(random.integers(1, 13, count))]).astype(np.int64)
    target = random.integers(4, V, starts[-1]).astype(np.uint32)
    source = np.concatenate([target[a:b][::-1] for a, b in pairwise(starts)])
    return TokenDataset(Sequences(source, starts), Sequences(target, starts))


PAIRS = pairs()
UPDATES = plan_epoch(PAIRS, 1024, "tokens", seed=1, epoch=0)


def updater(device: torch.device, precision: Precision = "fp32", **training: Any) -> Updater:
    torch.manual_seed(1)
    model = Transformer(SIZE, V, V, PAD, attention_form(device, precision)).to(device)
    return Updater(model, TrainingConfig(**training), seed=7, device=device, precision=precision)


def gradient(of: Updater) -> Tensor:
    """Without that of the biases of keys, which is nothing but rounding."""
    named = of.model.named_parameters()
    return torch.cat([p.grad.cpu().flatten() for name, p in named if p.grad is not None and "key.bias" not in name])


@both_norms
@both_forms
def test_the_model_computes_what_it_does_on_the_cpu(form: Any, norm: str) -> None:
    model = build(small(norm=norm), form)
    src, tgt = words(3, 9, 1), words(7, 2, 5)
    expected = logits_of(model, src, tgt)
    found = logits_of(copy.deepcopy(model).to(DEVICE), src.to(DEVICE), tgt.to(DEVICE)).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@both_forms
def test_the_model_in_half_the_bits_is_close(form: Any, precision: Precision) -> None:
    model = build(small(), form)
    src, tgt = words(3, 9, 1), words(7, 2, 5)
    expected = torch.log_softmax(logits_of(model, src, tgt), -1)
    with autocast(DEVICE, precision):
        logits = logits_of(copy.deepcopy(model).to(DEVICE), src.to(DEVICE), tgt.to(DEVICE))
    found = torch.log_softmax(logits.float().cpu(), -1)
    assert float((found - expected).abs().mean().detach()) < 0.05
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_fused_loss_has_the_value_and_the_gradients_of_the_plain_one(precision: Precision) -> None:
    torch.manual_seed(2)
    hidden, weight = torch.randn(5, 7, 64, device=DEVICE), torch.randn(300, 64, device=DEVICE)
    target = torch.randint(1, 300, (5, 7), device=DEVICE)
    target[2, 3:] = PAD
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for cross_entropy in (smoothed_cross_entropy, fused_cross_entropy):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        with autocast(DEVICE, precision):
            sums = cross_entropy(h, w, target, PAD, 0.1)
        torch.autograd.backward(sums.loss)
        assert h.grad is not None
        assert w.grad is not None
        found.append((sums.loss.detach().float(), h.grad, w.grad))
    tolerance = 1e-5 if precision == "fp32" else 2e-2
    for plain, fused in zip(*found, strict=True):
        assert float((fused - plain).norm() / plain.norm()) < tolerance


def test_an_update_has_the_gradient_it_has_on_the_cpu() -> None:
    here, there = updater(CPU), updater(DEVICE)
    one, other = (of.train_on(PAIRS, UPDATES[0], step=1, rate=1e-3) for of in (here, there))
    assert (other.tokens, other.skipped) == (one.tokens, False)
    assert other.loss == pytest.approx(one.loss, rel=1e-5)
    assert float((gradient(there) - gradient(here)).norm() / gradient(here).norm()) < 1e-4


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training_learns_in_each_precision(precision: Precision, checkpointing: bool) -> None:
    of = updater(DEVICE, precision, label_smoothing=0.0)
    if checkpointing:
        of.model.checkpoint_activations()
    results = [
        of.train_on(PAIRS, update, step, rate=2e-3) for step, update in enumerate(islice(cycle(UPDATES), 200), start=1)
    ]
    assert sum(result.skipped for result in results) <= (3 if precision == "fp16" else 0)
    first, last = results[0], results[-1]
    assert last.nll / last.tokens < 0.75 * first.nll / first.tokens


@pytest.mark.parametrize("beam", [1, 4])
def test_a_translation_is_the_cpus_whatever_it_is_translated_with(beam: int) -> None:
    at_home = untrained.translator()
    abroad = Translator(copy.deepcopy(at_home.model).to(DEVICE), at_home.tokenizers, at_home.config, DEVICE, "fp32")
    decoding = at_home.config.decoding.model_copy(update={"beam_size": beam})
    lines = untrained.LINES * 3
    expected = list(at_home.translate(lines, decoding))
    for size in (1, 7, 64):
        for ours, theirs in zip(abroad.translate(lines, decoding, size), expected, strict=True):
            assert ours[0].score == pytest.approx(theirs[0].score, abs=1e-4)
            assert ours[0].text == theirs[0].text or abs(ours[0].score - theirs[0].score) < 1e-5


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_finds_translations_as_likely_as_the_cpu_thinks_them(precision: Precision) -> None:
    at_home = untrained.translator()
    model = copy.deepcopy(at_home.model).to(DEVICE, DTYPES[precision])
    abroad = Translator(model, at_home.tokenizers, at_home.config, DEVICE, precision)
    found = [best[0] for best in abroad.translate(untrained.LINES)]
    scores = score_ids(at_home, [one.source_ids for one in found], [one.ids for one in found])
    for one, expected in zip(found, scores, strict=True):
        n = len(one.token_log_probs)
        assert one.token_log_probs == pytest.approx(expected.token_log_probs[:n], abs=0.15)


@pytest.fixture(scope="module")
def run(train: Callable[..., CompletedProcess[str]], small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty updates on the device, saved at 10 and 20."""
    folder = tmp_path_factory.mktemp("gpu") / "run"
    done = train(small, folder, f"device={DEVICE.type}", "training.save_steps=10")
    assert done.returncode == 0, done.stderr
    return folder


def test_a_run_of_the_device_translates_there_and_on_the_cpu(run: Path, cli: Callable[..., Any]) -> None:
    found = [
        cli("translate", run, "ba ce di", "fo", "--device", device, "--precision", "fp32", "--format", "jsonl")
        for device in (DEVICE.type, "cpu")
    ]
    assert [done.returncode for done in found] == [0, 0]
    assert [len(done.stdout.splitlines()) for done in found] == [2, 2]


def test_a_run_that_was_stopped_goes_on(
    run: Path, train: Callable[..., CompletedProcess[str]], small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Updater.update, iter(range(1, 100))

    def update(*arguments: Any, **named: Any) -> Any:
        if next(calls) == 10:
            signal.raise_signal(signal.SIGTERM)
        return original(*arguments, **named)

    settings = [f"device={DEVICE.type}", "training.save_steps=10", "training.log_steps=1"]
    with monkeypatch.context() as patch:
        patch.setattr(Updater, "update", update)
        assert train(small, tmp_path / "run", *settings).returncode == 143
    done = train(small, tmp_path / "run", *settings, flags=["--resume"])
    assert done.returncode == 0, done.stderr
    losses = [event["loss"] for event in metrics(tmp_path / "run") if event["event"] == "train"]
    assert len(losses) == 20
    expected = [event["loss"] for event in metrics(run) if event["event"] == "train"]  # each of five updates
    assert np.mean(losses[15:]) == pytest.approx(expected[-1], rel=1e-2)


def test_compiled_it_learns_the_same(
    train: Callable[..., CompletedProcess[str]], project: Callable[..., Path], pairs: Any, tmp_path: Path
) -> None:
    # Where both sides are equal, sources and targets have the same shapes, and it is compiled once.
    config = project(tmp_path, train=[(target, target) for _, target in pairs(400, 1)])
    for name in ("true", "false"):
        settings = (f"device={DEVICE.type}", f"training.compile={name}", "model.dropout=0.0")
        done = train(config, tmp_path / name, *settings)
        assert done.returncode == 0, done.stderr
    compiled, plain = (
        [event["loss"] for event in metrics(tmp_path / name) if event["event"] == "train"] for name in ("true", "false")
    )
    assert compiled == pytest.approx(plain, rel=1e-2)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="only a GPU can be made to run out of memory like this")
def test_a_batch_too_large_for_memory_is_computed_in_parts_with_the_same_gradient() -> None:
    random = np.random.default_rng(5)
    starts = np.arange(0, 4001, 20, dtype=np.int64)
    ids = random.integers(4, V, starts[-1]).astype(np.uint32)
    dataset = TokenDataset(Sequences(ids, starts), Sequences(ids, starts))
    every = [np.arange(len(dataset))]
    whole = updater(DEVICE, batch_size=8192)
    whole.train_on(dataset, every, step=1, rate=1e-3)
    torch.cuda.reset_peak_memory_stats()
    again = updater(DEVICE, batch_size=8192)
    before = torch.cuda.memory_allocated()
    again.train_on(dataset, every, step=1, rate=1e-3)
    needed = torch.cuda.max_memory_allocated() - before
    tight = updater(DEVICE, batch_size=8192)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 0.6 * needed) / total)
    try:
        tight.train_on(dataset, every, step=1, rate=1e-3)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert tight.batch_size < 8192
    assert float((gradient(tight) - gradient(whole)).norm() / gradient(whole).norm()) < 1e-5
