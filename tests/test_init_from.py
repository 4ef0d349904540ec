"""`training.init_from`: what comes along with the weights, what may differ, and how a misfit is refused."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer_cli import checkpoint
from transformer_cli.config.load import dump_config, load_config
from transformer_cli.config.schema import Config, ModelConfig, TokenizerConfig
from transformer_cli.data.corpus import Pair
from transformer_cli.data.tokenizer import PAD, Tokenizers, train_tokenizers
from transformer_cli.decoding.translator import load_model
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.model.transformer import Transformer
from transformer_cli.run_files import checkpoint_path
from transformer_cli.training.resume import weights_to_start_from

MODEL = {"d_model": 16, "ffn_dim": 24, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.3}


@pytest.fixture(scope="module")
def proto(small: Path) -> bytes:
    """The bytes of a tokenizer of 40 pieces."""
    lines = small.with_name("train.src").read_text(encoding="utf-8").splitlines()
    pairs = [Pair(line, line) for line in lines]
    tokenizers = train_tokenizers(lambda: pairs, TokenizerConfig(vocab_size=40, model_type="bpe"))
    return tokenizers.source.proto


@pytest.fixture
def base(tmp_path: Path, proto: bytes) -> Callable[..., Path]:
    """`base(norm="pre")` writes a model of that kind and returns its file."""

    def write(**changes: Any) -> Path:
        sections = {"tokenizer": {"vocab_size": 40, "model_type": "bpe"}, "model": MODEL | changes}
        rest = {"name": "base", "seed": 5, "precision": "bf16", "data": {"max_length": 49}}
        config = Config.model_validate(rest | sections)
        torch.manual_seed(1)
        model = Transformer(config.model, 40, 40, PAD)
        path = tmp_path / "base" / "model.safetensors"
        file = checkpoint.ModelFile(config, {"shared": proto}, dict(model.named_parameters()), {"kind": "best"})
        checkpoint.write(path, file)
        return path

    return write


def config_from(path: Path, **sections: Any) -> Config:
    """A configuration to fine-tune by, with nothing but what is given here."""
    training = {"init_from": str(path)} | sections.pop("training", {})
    return Config.model_validate({"name": "tuned", "training": training} | sections)


def refusal(config: Config) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        weights_to_start_from(config)
    return str(caught.value).split("\n")


# --- what comes along -----------------------------------------------------------------------------------------------


def test_without_init_from_there_is_nothing_to_start_from() -> None:
    assert weights_to_start_from(Config(name="x")) is None


def test_the_tokenizer_and_the_model_come_with_the_weights_and_all_else_stays(base: Callable[..., Path]) -> None:
    path = base(norm="pre")
    asked = config_from(path, seed=9, data={"max_length": 99}, training={"noam_factor": 3.0}, decoding={"beam_size": 7})
    found = weights_to_start_from(asked)
    assert found is not None
    there = checkpoint.read(path)
    assert found.tokenizers == there.tokenizers
    assert found.weights.keys() == there.weights.keys()
    assert all(torch.equal(found.weights[name], weight) for name, weight in there.weights.items())
    assert found.config.tokenizer == there.config.tokenizer
    assert found.config.model == there.config.model
    assert found.config.model.norm == "pre"
    taken = {"tokenizer": there.config.tokenizer, "model": there.config.model}
    assert found.config == asked.model_copy(update=taken)
    assert (found.config.seed, found.config.precision, found.config.training.noam_factor) == (9, "auto", 3.0)


@pytest.mark.parametrize("place", ["a run", "its model", "a checkpoint"])
def test_it_names_a_run_or_a_file(base: Callable[..., Path], place: str) -> None:
    path = base()
    file = checkpoint.read(path)
    saved = checkpoint_path(path.parent, 5)
    checkpoint.write(saved, replace(file, training={"step": 5}, optimizer={"x.exp_avg": torch.ones(2)}))
    named = {"a run": path.parent, "its model": path, "a checkpoint": saved}[place]
    found = weights_to_start_from(config_from(named))
    assert found is not None
    assert found.config.model == file.config.model


def test_what_was_found_can_be_loaded(base: Callable[..., Path]) -> None:
    found = weights_to_start_from(config_from(base(), model={"dropout": 0.0}))
    assert found is not None
    model = load_model(found, Tokenizers.of(found.tokenizers), "fused")
    assert model.config.dropout == 0.0
    assert {name: p.shape for name, p in model.named_parameters()} == {
        name: weight.shape for name, weight in found.weights.items()
    }


def test_a_place_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        weights_to_start_from(config_from(tmp_path / "nowhere"))


def test_the_configuration_that_a_run_writes_down_fits_the_same_weights(
    base: Callable[..., Path], tmp_path: Path
) -> None:
    """There every key is set, those too that were taken over."""
    found = weights_to_start_from(config_from(base(norm="pre"), model={"dropout": 0.0}))
    assert found is not None
    written = tmp_path / "config.yaml"
    written.write_text(dump_config(found.config), encoding="utf-8")
    again = weights_to_start_from(load_config(written))
    assert again is not None
    assert again.config == found.config


# --- what may differ ------------------------------------------------------------------------------------------------


def test_each_dropout_may_be_another_and_is_the_models_where_it_is_left_out(base: Callable[..., Path]) -> None:
    path = base(attention_dropout=0.2)
    rates = {"dropout": 0.4, "activation_dropout": 0.15, "embedding_dropout": 0.05}
    found = weights_to_start_from(config_from(path, model=rates))
    assert found is not None
    there = checkpoint.read(path).config.model
    assert found.config.model == there.model_copy(update=rates)
    assert found.config.model.attention_dropout == 0.2


def test_keys_that_say_what_is_there_are_no_difference(base: Callable[..., Path]) -> None:
    config = config_from(base(), tokenizer={"vocab_size": 40, "model_type": "bpe", "shared": True}, model=MODEL)
    found = weights_to_start_from(config)
    assert found is not None
    assert found.config == config


# --- what may not ---------------------------------------------------------------------------------------------------


def test_another_vocabulary_is_refused_with_both_sizes_a_hash_and_the_way_out(
    base: Callable[..., Path], proto: bytes
) -> None:
    path = base()
    assert refusal(config_from(path, tokenizer={"vocab_size": 8000, "model_type": "unigram"})) == [
        f"training.init_from: the vocabulary of {path} (shared 40 pieces, SHA-256 "
        f"{hashlib.sha256(proto).hexdigest()[:12]}) is not the one that is asked for here:",
        "  tokenizer.model_type: 'unigram' here, 'bpe' there",
        "  tokenizer.vocab_size: 8000 here, 40 there",
        "Its weights fit no other. Leave the tokenizer section out to take that vocabulary, or leave out init_from to "
        "train a new one from nothing",
    ]


def test_of_two_tokenizers_both_are_named(base: Callable[..., Path], proto: bytes) -> None:
    path = base()
    checkpoint.write(path, replace(checkpoint.read(path), tokenizers={"source": proto, "target": proto}))
    digest = hashlib.sha256(proto).hexdigest()[:12]
    first = refusal(config_from(path, tokenizer={"vocab_size": 50}))[0]
    assert f"(source 40 pieces, SHA-256 {digest}, target 40 pieces, SHA-256 {digest})" in first


def test_another_width_is_refused_by_name_with_both_sizes(base: Callable[..., Path]) -> None:
    path = base()
    assert refusal(config_from(path, model={"d_model": 32, "decoder_layers": 3, "dropout": 0.4})) == [
        f"training.init_from: the model of {path} is not the one that is asked for here:",
        "  model.d_model: 32 here, 16 there",
        "  model.decoder_layers: 3 here, 2 there",
        "Leave these keys out to take the model as it is",
    ]


FREE = {"dropout", "attention_dropout", "activation_dropout", "embedding_dropout"}
OTHER = {
    "d_model": 64,
    "ffn_dim": 64,
    "num_heads": 4,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "norm": "pre",
    "positions": "learned",
    "activation": "gelu",
    "tie_embeddings": "none",
    "max_positions": 512,
}


def test_every_key_of_the_model_is_either_free_or_not() -> None:
    assert FREE | set(OTHER) == set(ModelConfig.model_fields)


@pytest.mark.parametrize("key", sorted(OTHER))
def test_any_other_key_of_the_model_is_refused(base: Callable[..., Path], key: str) -> None:
    lines = refusal(config_from(base(), model={key: OTHER[key]}))
    assert lines[1].startswith(f"  model.{key}: {OTHER[key]!r} here, ")
    assert len(lines) == 3


def test_pairs_longer_than_learned_positions_are_refused(base: Callable[..., Path]) -> None:
    """The schema cannot see it: there the positions are those of the default."""
    path = base(positions="learned", max_positions=50)
    assert weights_to_start_from(config_from(path, data={"max_length": 49})) is not None
    assert refusal(config_from(path, data={"max_length": 50})) == [
        f"training.init_from: the learned positions of {path} end at model.max_positions 50, and data.max_length 50 "
        "with its end symbol needs 51: lower data.max_length"
    ]
