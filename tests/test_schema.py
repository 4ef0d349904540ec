from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from transformer_cli.config.schema import (
    Config,
    Corpus,
    DataConfig,
    DecodingConfig,
    EvaluationConfig,
    FilterConfig,
    HoldOut,
    HubSet,
    ModelConfig,
    Section,
    Table,
    TokenizerConfig,
    TrainingConfig,
)

MODELS: list[type[BaseModel]] = [
    Config,
    Corpus,
    Table,
    HubSet,
    HoldOut,
    FilterConfig,
    DataConfig,
    TokenizerConfig,
    ModelConfig,
    TrainingConfig,
    DecodingConfig,
    EvaluationConfig,
]

# The base model of "Attention Is All You Need" and, where small data wants something else, our own choice.
DEFAULTS = {
    "name": "x",
    "seed": 1,
    "device": "auto",
    "precision": "auto",
    "data": {
        "source_lang": "und",
        "target_lang": "und",
        "train": (),
        "valid": (),
        "test": {},
        "max_length": 256,
        "filters": {
            "length_ratio": None,
            "identical": False,
            "duplicates": False,
            "overlap": False,
            "script": False,
        },
        "errors": "strict",
        "cache_dir": None,
    },
    "tokenizer": {
        "vocab_size": 8000,
        "model_type": "unigram",
        "shared": True,
        "byte_fallback": False,
        "normalization": "clean",
        "character_coverage": 1.0,
        "user_defined_symbols": (),
        "sample_lines": 400_000,
        "model": None,
        "target_model": None,
        "sampling_alpha": None,
    },
    "model": {
        "d_model": 512,
        "ffn_dim": 2048,
        "num_heads": 8,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "norm": "post",
        "positions": "sinusoidal",
        "activation": "relu",
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "embedding_dropout": None,  # as dropout
        "tie_embeddings": "all",
        "max_positions": 1024,
    },
    "training": {
        "batch_type": "tokens",
        "batch_size": 4096,
        "gradient_accumulation_steps": 1,
        "activation_checkpointing": False,
        "compile": False,
        "init_from": None,
        "max_steps": 20000,
        "max_epochs": None,
        "max_hours": None,
        "lr_schedule": "noam",
        "noam_factor": None,  # 1
        "learning_rate": None,
        "warmup_steps": 4000,
        "label_smoothing": 0.1,
        "adam_betas": (0.9, 0.98),
        "adam_eps": 1e-9,
        "weight_decay": 0.0,
        "clip_grad_norm": 1.0,
        "valid_steps": 500,
        "save_steps": None,  # as valid_steps
        "log_steps": 50,
        "tensorboard": False,
        "keep_last": 5,
        "keep_best": 1,
        "average_last": 5,
        "best_metric": "bleu",
        "patience": 10,
    },
    "decoding": {
        "beam_size": 4,
        "length_penalty": 0.6,
        "length_penalty_type": "wu",
        "max_length_a": 2.0,
        "max_length_b": 10,
        "n_best": 1,
        "min_length": 0,
        "no_repeat_ngram_size": 0,
        "repetition_penalty": 1.0,
    },
    "evaluation": {
        "metrics": ("bleu", "chrf"),
        "valid_beam_size": 1,
        "tokenize": None,
        "lowercase": False,
    },
}


def conflict(**sections: Any) -> tuple[tuple[int | str, ...], str, str]:
    """Where the one conflict of a configuration is noted, the key it names, and its message."""
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"name": "x", **sections})
    (error,) = caught.value.errors()
    assert error["type"] == "conflict"
    return error["loc"], error["ctx"]["key"], error["msg"]


def test_every_default_is_the_documented_one() -> None:
    assert Config(name="x").model_dump() == DEFAULTS


@pytest.mark.parametrize("model", MODELS)
def test_every_section_and_key_says_what_it_is(model: type[BaseModel]) -> None:
    assert model.__doc__
    for name, field in model.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            assert field.description, name


def test_the_models_listed_here_are_all_there_are() -> None:
    assert set(Section.__subclasses__()) == set(MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_a_section_cannot_be_changed(model: type[BaseModel]) -> None:
    assert model.model_config["frozen"]
    with pytest.raises(ValidationError, match="frozen"):
        Config(name="x").seed = 2


@pytest.mark.parametrize("model", MODELS)
def test_an_unknown_key_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model.model_validate({"foo": 1})


def test_paths_count_from_the_base_folder_given() -> None:
    values = {"source": "data/a.en", "target": "/elsewhere/a.de"}
    corpus = Corpus.model_validate(values, context={"base": Path("/project")})
    assert corpus == Corpus(source=Path("/project/data/a.en"), target=Path("/elsewhere/a.de"))


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    corpus = Corpus.model_validate({"source": "~/a", "target": "b"}, context={"base": Path("/project")})
    assert corpus.source == Path("/home/me/a")


@pytest.mark.parametrize("tag", ["en", "no", "und", "pt-BR", "zh-Hant-TW", "sr-Latn"])
def test_language_tags_are_taken(tag: str) -> None:
    assert DataConfig(source_lang=tag).source_lang == tag


@pytest.mark.parametrize("tag", ["", "e", "english language", "de_DE", "-en", "en-"])
def test_what_is_no_language_tag_is_refused(tag: str) -> None:
    with pytest.raises(ValidationError):
        DataConfig(source_lang=tag)


@pytest.mark.parametrize(
    "name", ["", ".hidden", "-x", "a/b", "a b", "..", "a\n", "a\0", "a\u00a0b", "a$b", "a\u200bb", "汉" * 67, "x" * 101]
)
def test_a_name_that_is_no_plain_file_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Config(name=name)


@pytest.mark.parametrize("name", ["valid", "train"])
def test_a_test_set_has_a_name_of_its_own(name: str) -> None:
    with pytest.raises(ValidationError, match="must be another name: that is one of the other sets"):
        DataConfig.model_validate({"test": {name: [{"source": "a", "target": "b"}]}})


# --- Keys that must go together ---------------------------------------------------------------------------------------


def test_heads_share_the_width_equally() -> None:
    assert conflict(model={"d_model": 64, "num_heads": 6}) == (
        ("model",),
        "num_heads",
        "d_model 64 cannot be shared equally by num_heads 6: make d_model a multiple of num_heads",
    )
    ModelConfig(d_model=66, num_heads=6)


def test_sinusoidal_positions_need_an_even_width() -> None:
    assert conflict(model={"d_model": 9, "num_heads": 3}) == (
        ("model",),
        "d_model",
        "sinusoidal positions need an even d_model, not 9",
    )
    ModelConfig(d_model=9, num_heads=3, positions="learned")


def test_noam_takes_no_learning_rate() -> None:
    assert conflict(training={"learning_rate": 1e-3}) == (
        ("training",),
        "learning_rate",
        "lr_schedule noam computes its rate from d_model and warmup_steps: scale it with noam_factor instead of "
        "learning_rate, or choose inverse_sqrt, cosine or constant",
    )


def test_noam_needs_a_warm_up() -> None:
    assert conflict(training={"warmup_steps": 0}) == (
        ("training",),
        "warmup_steps",
        "lr_schedule noam divides by warmup_steps: it must be at least 1",
    )
    TrainingConfig(lr_schedule="constant", learning_rate=1e-3, warmup_steps=0)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "constant"])
def test_other_schedules_take_no_noam_factor(schedule: str) -> None:
    assert conflict(training={"lr_schedule": schedule, "learning_rate": 1e-3, "noam_factor": 2.0}) == (
        ("training",),
        "noam_factor",
        f"noam_factor belongs to lr_schedule noam: give {schedule} its peak as learning_rate",
    )


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "constant"])
def test_other_schedules_need_a_learning_rate(schedule: str) -> None:
    assert conflict(training={"lr_schedule": schedule}) == (
        ("training",),
        "lr_schedule",
        f"lr_schedule {schedule} needs learning_rate, its highest rate (such as 5e-4)",
    )


def test_checkpoints_to_average_are_kept() -> None:
    assert conflict(training={"average_last": 6}) == (
        ("training",),
        "average_last",
        "average_last 6 needs as many checkpoints, and keep_last keeps only 5",
    )
    TrainingConfig(average_last=6, keep_last=6)


def test_n_best_come_from_a_beam_as_wide() -> None:
    assert conflict(decoding={"n_best": 5}) == (
        ("decoding",),
        "n_best",
        "n_best 5 needs a beam_size of at least as many, not 4",
    )
    DecodingConfig(n_best=5, beam_size=5)


def test_the_longest_pair_fits_into_a_batch_of_tokens() -> None:
    assert conflict(data={"max_length": 100}, training={"batch_size": 100}) == (
        (),
        "training.batch_size",
        "a pair of data.max_length 100 pieces and its end symbol does not fit into training.batch_size 100: lower the "
        "one or raise the other",
    )
    assert Config.model_validate({"name": "x", "data": {"max_length": 100}, "training": {"batch_size": 101}})


def test_a_batch_of_sentences_may_be_smaller_than_a_sentence() -> None:
    assert Config.model_validate({"name": "x", "training": {"batch_type": "sentences", "batch_size": 8}})


def test_the_longest_pair_fits_into_learned_positions() -> None:
    assert conflict(data={"max_length": 100}, model={"positions": "learned", "max_positions": 100}) == (
        (),
        "model.max_positions",
        "learned positions end at model.max_positions 100, and data.max_length 100 with its end symbol needs 101",
    )
    assert Config.model_validate({"name": "x", "data": {"max_length": 100}, "model": {"max_positions": 100}})


def test_one_embedding_for_all_needs_one_vocabulary() -> None:
    assert conflict(tokenizer={"shared": False}) == (
        (),
        "model.tie_embeddings",
        "model.tie_embeddings all needs one vocabulary: set tokenizer.shared to true, or tie_embeddings to target or "
        "none",
    )
    assert Config.model_validate({"name": "x", "tokenizer": {"shared": False}, "model": {"tie_embeddings": "target"}})


def test_the_best_checkpoint_is_chosen_by_a_metric_that_is_computed() -> None:
    assert conflict(training={"best_metric": "chrf"}, evaluation={"metrics": ["bleu"]}) == (
        (),
        "training.best_metric",
        "training.best_metric chrf is not among evaluation.metrics (bleu)",
    )
    values = {"name": "x", "training": {"best_metric": "loss"}, "evaluation": {"metrics": ["bleu"]}}
    assert Config.model_validate(values)
