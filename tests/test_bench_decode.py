"""The decoding comparison: its systems translate the same, and what it times is what it says."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer_cli.config.schema import Config
from transformer_cli.data.corpus import Pair
from transformer_cli.data.tokenizer import BOS, EOS, PAD, train_tokenizers
from transformer_cli.decoding.translator import Translation, Translator
from transformer_cli.model.masks import padding_mask, target_mask
from transformer_cli.model.transformer import Transformer

sys.path.append(str(Path(__file__).parents[1] / "scripts"))
bench = importlib.import_module("bench_decode")
systems = importlib.import_module("bench_systems")

LINES = ["ba ce di", "fo", "gu ha je ki lo", "", "pe qi"]


@pytest.fixture(scope="module")
def translator() -> Translator:
    config = Config.model_validate(
        {
            "name": "x",
            "tokenizer": {"vocab_size": 45, "model_type": "bpe"},
            "model": {"d_model": 16, "ffn_dim": 32, "num_heads": 2, "encoder_layers": 2, "decoder_layers": 2},
        }
    )
    tokenizers = train_tokenizers(lambda: (Pair(line, line.upper()) for line in LINES if line), config.tokenizer)
    vocabulary = tokenizers.source.vocab_size
    torch.manual_seed(3)
    model = Transformer(config.model, vocabulary, vocabulary, PAD).eval()
    return Translator(model, tokenizers, config, torch.device("cpu"), "fp32")


def test_marian_with_our_weights_gives_our_logits(translator: Translator) -> None:
    pytest.importorskip("transformers")
    model = translator.model
    marian = systems.MarianTransformer(model.config, model.output.out_features).eval()
    missing, unexpected = marian.marian.load_state_dict(systems.marian_weights(model), strict=False)
    assert unexpected == []
    assert set(missing) <= {"final_logits_bias"}
    src = torch.tensor([[7, 8, 9, EOS], [5, EOS, PAD, PAD]])
    tgt = torch.tensor([[BOS, 5, 6], [BOS, 9, 8]])
    with torch.inference_mode():
        ours = model.project(model(src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD)))
        theirs = marian(src, tgt)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


def test_generate_gives_our_greedy_translations(translator: Translator) -> None:
    pytest.importorskip("transformers")
    lines = [line for line in LINES if line]
    ours = bench.with_translator(translator)(lines, 1, 2)
    theirs = bench.with_generate(translator)(lines, 1, 2)
    assert [one.ids for one in theirs] == [one.ids for one in ours]
    assert [one.n for one in theirs] == [one.n for one in ours]


def test_ctranslate2_by_itself_gives_our_greedy_translations(translator: Translator, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    lines = [line for line in LINES if line]
    bench.export(translator, tmp_path / "exported", None)
    ours = bench.with_translator(translator)(lines, 1, 2)
    theirs = bench.with_ctranslate2(translator, tmp_path / "exported", "float32")(lines, 1, 2)
    assert [(one.text, one.n) for one in theirs] == [(one.text, one.n) for one in ours]


def test_every_system_gets_the_same_turns_and_the_rate_is_of_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    calls = []

    def system(name: str, seconds: list[float]) -> Any:
        turns = iter([100.0, *seconds])  # the first warms up

        def translate(lines: list[str], beam: int, batch: int) -> list[Translation]:
            nonlocal clock
            calls.append((name, beam, batch))
            clock += next(turns)
            return [Translation("A B C D", 0.0, 0.0, 5, False) for _ in lines]

        return translate

    monkeypatch.setattr(bench.time, "process_time", lambda: clock)
    both = {"one": system("one", [2.0, 1.0, 9.0]), "other": system("other", [4.0, 4.0, 4.0])}
    args = argparse.Namespace(turns=3, batch_size=64, device="cpu")
    results = bench.race(both, ["x"] * 8, ["A B C D"] * 8, "de", args, 5)
    assert calls == [("one", 5, 64), ("other", 5, 64)] * 4
    assert results["one"] == (8 / 2.0, 5.0, pytest.approx(100.0), 8)
    assert results["other"].rate == 8 / 4.0
