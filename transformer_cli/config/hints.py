"""Suggest a valid key for an unknown one: a key in the wrong section, a misspelling, or another toolkit's name.

The valid keys come from the schema. The table has the names that JoeyNMT, fairseq, OpenNMT-py and Eole, Sockeye, Marian
and Hugging Face use for them. Keys are written with dots, list items with their index: `training.warmup_steps`,
`data.train[0].source`.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from pydantic import BaseModel

from transformer_cli.config.schema import Config, Corpus, HoldOut, HubSet, Table

_CORPUS = tuple(dict.fromkeys((*Corpus.model_fields, *Table.model_fields, *HubSet.model_fields)))


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")


KEYS = (*_keys(Config), *(f"data.valid.{name}" for name in HoldOut.model_fields))
"""Every key of the schema, written with dots; sections are included."""

PEERS = {
    "training": "optim optimization optimizer trainer",
    "decoding": "testing generation inference",
    "tokenizer": "vocab",
    "seed": "random_seed",
    "device": "use_cuda",
    "precision": "fp16 bf16 amp model_dtype compute_dtype",
    "data.source_lang": "src_lang",
    "data.target_lang": "trg_lang tgt_lang",
    "data.max_length": "src_seq_length tgt_seq_length max_seq_len max_source_length max_target_length "
    "max_source_positions max_target_positions",
    "tokenizer.vocab_size": "voc_limit nwordssrc nwordstgt src_vocab_size tgt_vocab_size num_words dim_vocabs",
    "tokenizer.sample_lines": "input_sentence_size src_subword_sample_size",
    "tokenizer.sampling_alpha": "src_subword_alpha tgt_subword_alpha subword_alpha bpe_dropout dropout_alpha",
    "model.d_model": "hidden_size encoder_embed_dim decoder_embed_dim embedding_dim transformer_model_size dim_emb",
    "model.ffn_dim": "ff_size d_ff encoder_ffn_embed_dim decoder_ffn_embed_dim encoder_ffn_dim decoder_ffn_dim "
    "transformer_ff transformer_feed_forward_num_hidden transformer_dim_ffn",
    "model.num_heads": "heads encoder_attention_heads decoder_attention_heads transformer_attention_heads "
    "transformer_heads",
    "model.encoder_layers": "layers num_layers enc_layers enc_depth",
    "model.decoder_layers": "layers num_layers dec_layers dec_depth",
    "model.norm": "layer_norm encoder_normalize_before decoder_normalize_before transformer_preprocess "
    "transformer_postprocess",
    "model.dropout": "transformer_dropout",
    "model.attention_dropout": "transformer_dropout_attention",
    "model.activation_dropout": "transformer_dropout_ffn",
    "model.tie_embeddings": "tied_embeddings tied_softmax tied_embeddings_all share_all_embeddings share_embeddings "
    "share_decoder_embeddings weight_tying_type tie_word_embeddings",
    "model.max_positions": "max_source_positions max_target_positions",
    "training.batch_size": "max_tokens mini_batch mini_batch_words mini_batch_fit per_device_train_batch_size",
    "training.gradient_accumulation_steps": "batch_multiplier update_freq accum_count update_interval optimizer_delay",
    "training.max_steps": "updates max_update max_updates train_steps after",
    "training.max_epochs": "epochs max_epoch max_num_epochs num_train_epochs after",
    "training.max_hours": "stop_time_hours",
    "training.lr_schedule": "scheduling lr_scheduler lr_scheduler_type decay_method learning_rate_scheduler_type "
    "lr_decay_inv_sqrt",
    "training.learning_rate": "lr initial_learning_rate learn_rate",
    "training.noam_factor": "learning_rate_factor",
    "training.warmup_steps": "warmup lr_warmup learning_rate_warmup warmup_updates",
    "training.label_smoothing": "label_smoothing_factor",
    "training.clip_grad_norm": "clip_norm clip_grad_val max_grad_norm gradient_clipping_threshold",
    "training.adam_betas": "adam_beta1 adam_beta2 optimizer_betas optimizer_params",
    "training.adam_eps": "adam_epsilon optimizer_params",
    "training.valid_steps": "validation_freq validate_interval_updates valid_freq eval_steps checkpoint_interval",
    "training.save_steps": "save_interval_updates save_checkpoint_steps save_freq checkpoint_interval",
    "training.log_steps": "logging_freq log_interval report_every disp_freq logging_steps",
    "training.keep_last": "keep_last_epochs keep_checkpoint keep_last_params save_total_limit",
    "training.keep_best": "keep_best_ckpts keep_best_checkpoints",
    "training.best_metric": "early_stopping_metric best_checkpoint_metric early_stopping_criteria optimized_metric "
    "metric_for_best_model",
    "training.patience": "early_stopping max_num_checkpoint_not_improved",
    "decoding.beam_size": "beam num_beams",
    "decoding.length_penalty": "beam_alpha alpha lenpen length_penalty_alpha normalize",
    # In other toolkits these names imply a formula other than our default, or a second key chooses the formula.
    "decoding.length_penalty_type": "alpha lenpen length_penalty_alpha normalize",
    "decoding.n_best": "nbest_size num_return_sequences",
    "decoding.max_length_a": "max_len_a max_length_ratio max_length_factor max_output_length_num_stds "
    "max_output_length max_new_tokens",
    "decoding.max_length_b": "max_len_b max_output_length max_new_tokens",
    "evaluation.metrics": "valid_metrics",
}
"""The names in other toolkits of each key or section. A name listed under several keys needs all of these keys."""


def suggest(key: str) -> str | None:
    """A hint for an unknown key, as the second half of a sentence; None if no valid key is similar."""
    keys = meant(key)
    section, _, name = key.rpartition(".")
    if not keys:
        return None
    if keys == (key,) and section.endswith("]"):
        return f"an item cannot be set alone: set the whole of {section.partition('[')[0]}"
    if keys == (key,):
        return f"a key has no dots in the file: write {name} under {section}"
    if keys[0].startswith("data.test."):
        return f"did you mean {keys[0]}?"
    if _last(keys[0]) == name:
        return f"{name} belongs {_home(keys[0])}: write {keys[0]}"
    if len(keys) > 1:
        return f"here it is set by {' and '.join(keys)}"
    if _squashed(name) in _FOREIGN:
        return f"here it is called {keys[0]}"
    return f"did you mean {keys[0]}?"


def meant(key: str) -> tuple[str, ...]:
    """The valid keys that an unknown one most likely stands for: none, one, or several for another toolkit's name."""
    section, _, name = key.rpartition(".")
    if section.endswith("]"):
        return tuple(f"{section}.{near}" for near in get_close_matches(name, _CORPUS, n=1))
    if key in KEYS:
        return (key,)
    if key.startswith("data.") and section.count(".") > 0:
        part, _, rest = key.removeprefix("data.").partition(".")
        if part != "test" and _misspelt("data", part) == ("data.test",):  # keys below data.test are names of sets
            return (f"data.test.{rest}",)
    if own := _OWN.get(_squashed(name)):
        return (own,)
    return _FOREIGN.get(_squashed(name)) or _misspelt(section, name)


def siblings(key: str) -> tuple[str, ...]:
    """The valid names in the section of `key`; empty if there is no such section."""
    section, _, _ = key.rpartition(".")
    if section.endswith("]"):
        return _CORPUS
    if section.startswith("data.test."):
        return tuple(HoldOut.model_fields)
    return tuple(_last(other) for other in KEYS if other.rpartition(".")[0] == section)


def _misspelt(section: str, name: str) -> tuple[str, ...]:
    near = get_close_matches(name, siblings(f"{section}.{name}" if section else name), n=1, cutoff=0.7)
    if near:
        return (f"{section}.{near[0]}" if section else near[0],)
    return tuple(_OWN[near] for near in get_close_matches(_squashed(name), _OWN, n=1, cutoff=0.8))


def _home(key: str) -> str:
    section, _, _ = key.rpartition(".")
    return f"to {section}" if section else "at the top level"


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _squashed(name: str) -> str:
    """Normalise a name: toolkits write it as `max_tokens`, `max-tokens`, `--max-tokens` or `maxTokens`."""
    return name.lower().replace("-", "").replace("_", "")


def _by_name() -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    for key, names in PEERS.items():
        for name in names.split():
            keys[_squashed(name)] = (*keys.get(_squashed(name), ()), key)
    return keys


_OWN = {_squashed(_last(key)): key for key in KEYS}
_FOREIGN = _by_name()
