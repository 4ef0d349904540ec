from collections.abc import Iterator
from typing import Any

import pytest

from transformer_cli.config.hints import KEYS, PEERS, meant, siblings, suggest
from transformer_cli.config.schema import Config


def test_keys_are_those_of_the_schema() -> None:
    def keys(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for name, value in values.items():
            yield prefix + name
            if isinstance(value, dict):
                yield from keys(value, f"{prefix}{name}.")

    assert sorted(KEYS) == sorted([*keys(Config(name="x").model_dump()), "data.valid.hold_out"])


@pytest.mark.parametrize("key", PEERS)
def test_every_target_of_a_hint_is_in_the_schema(key: str) -> None:
    assert key in KEYS


@pytest.mark.parametrize("name", sorted({name for names in PEERS.values() for name in names.split()}))
def test_every_peers_name_leads_to_valid_keys_and_is_none_itself(name: str) -> None:
    assert name not in KEYS
    assert meant(name)
    assert set(meant(name)) <= {key for key, names in PEERS.items() if name in names.split()}


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("training.d_model", "d_model belongs to model: write model.d_model"),
        ("d_model", "d_model belongs to model: write model.d_model"),
        ("optim.d_model", "d_model belongs to model: write model.d_model"),
        ("trianing.max_steps", "max_steps belongs to training: write training.max_steps"),
        ("training.seed", "seed belongs at the top level: write seed"),
        ("data.model", "model belongs at the top level: write model"),
    ],
)
def test_a_key_in_the_wrong_place_is_sent_to_the_right_one(key: str, hint: str) -> None:
    assert suggest(key) == hint


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("training.warmup_step", "training.warmup_steps"),
        ("training.lable_smoothing", "training.label_smoothing"),
        ("training.batch-size", "training.batch_size"),
        ("training.batchSize", "training.batch_size"),
        ("model.dmodel", "model.d_model"),
        ("model.nheads", "model.num_heads"),
        ("model.droput", "model.dropout"),
        ("decoding.beamsize", "decoding.beam_size"),
        ("data.vaild", "data.valid"),
        ("data.tset", "data.test"),
        ("data.tset.test.hold_out", "data.test.test.hold_out"),
        ("data.tests.wmt14", "data.test.wmt14"),
        ("trianing", "training"),
        ("devcie", "device"),
        ("model.warmup_step", "training.warmup_steps"),
        ("data.train[0].sorce", "data.train[0].source"),
        ("data.train[2].src", "data.train[2].source"),
        ("data.test.flickr2016[0].tgt", "data.test.flickr2016[0].target"),
        ("data.test.flickr2016[0].trg", "data.test.flickr2016[0].target"),
    ],
)
def test_a_misspelling_leads_to_the_nearest_key(key: str, near: str) -> None:
    assert suggest(key) == f"did you mean {near}?"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("hidden_size", "model.d_model"),
        ("encoder-embed-dim", "model.d_model"),
        ("updates", "training.max_steps"),
        ("train_steps", "training.max_steps"),
        ("max_update", "training.max_steps"),
        ("max-tokens", "training.batch_size"),
        ("--max-tokens", "training.batch_size"),
        ("maxTokens", "training.batch_size"),
        ("accum_count", "training.gradient_accumulation_steps"),
        ("beam_alpha", "decoding.length_penalty"),
        ("fp16", "precision"),
        ("ff_size", "model.ffn_dim"),
        ("lr", "training.learning_rate"),
        ("dim-vocabs", "tokenizer.vocab_size"),
        ("random_seed", "seed"),
        ("optim", "training"),
        ("testing", "decoding"),
    ],
)
@pytest.mark.parametrize("section", ["", "training.", "model.encoder."])
def test_a_peers_name_is_translated_wherever_it_stands(section: str, name: str, key: str) -> None:
    assert suggest(section + name) == f"here it is called {key}"


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("layers", "model.encoder_layers and model.decoder_layers"),
        ("num_layers", "model.encoder_layers and model.decoder_layers"),
        ("optimizer-params", "training.adam_betas and training.adam_eps"),
        ("lenpen", "decoding.length_penalty and decoding.length_penalty_type"),
    ],
)
def test_a_peers_name_for_several_keys_names_them_all(name: str, keys: str) -> None:
    assert suggest(name) == f"here it is set by {keys}"


@pytest.mark.parametrize("key", ["foo", "training.foo", "model.", "", "data.train[0].colour", "...", "training.x.y"])
def test_nothing_is_suggested_where_nothing_is_near(key: str) -> None:
    assert suggest(key) is None


def test_dots_in_a_key_are_no_nesting() -> None:
    assert suggest("training.max_steps") == "a key has no dots in the file: write max_steps under training"


def test_an_item_of_a_list_cannot_be_set() -> None:
    assert suggest("data.train[0].source") == "an item cannot be set alone: set the whole of data.train"


def test_siblings_are_the_names_of_the_same_section() -> None:
    assert siblings("evaluation.foo") == ("metrics", "valid_beam_size", "tokenize", "lowercase")
    of_any_kind = {"source", "target", "path", "format", "source_field", "target_field", "hub", "split", "weight"}
    assert set(siblings("data.train[0].foo")) > of_any_kind
    assert siblings("optim.foo") == ()
    assert siblings("foo") == tuple(Config.model_fields)
