"""The folder of a run: what may be replaced or resumed, what may change on the way, and what stays as it was."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transformer_cli.config.load import load_config
from transformer_cli.config.schema import Config, FilterConfig, HubSet, ModelConfig, Section, Table
from transformer_cli.data.cache import Cache
from transformer_cli.errors import ConfigError
from transformer_cli.log import Metrics
from transformer_cli.run_files import CHECKPOINTS, checkpoint_path, list_checkpoints, refuse_if_taken
from transformer_cli.training.resume import check_data_unchanged, resumed_config
from transformer_cli.training.run_dir import RunDir, data_files, describe_environment

OURS = [
    "config.yaml", "run.json", "model.safetensors", "train.log", "metrics.jsonl", "checkpoints", "samples", "test",
    "report.html", "tensorboard",
]  # fmt: skip


NAMES = ("train", "valid", "test")


def config_for(folder: Path) -> Config:
    """A configuration whose text lies in this folder, as it is when a run begins: with its precision decided."""
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        (folder / f"{name}.src").write_text(f"{name}\n")
        (folder / f"{name}.tgt").write_text(f"{name.upper()}\n")
    corpus = {name: {"source": str(folder / f"{name}.src"), "target": str(folder / f"{name}.tgt")} for name in NAMES}
    data = {"train": [corpus["train"]], "valid": [corpus["valid"]], "test": {"news": [corpus["test"]]}}
    return Config.model_validate({"name": "x", "precision": "fp32", "data": data})


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_for(tmp_path / "data")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "runs" / "x")


def make_ours(run: RunDir) -> None:
    """All that a run leaves behind, each with something in it."""
    for name in OURS:
        path = run.path / name
        if "." in name:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("old")
        else:
            path.mkdir(parents=True)
            (path / "old").write_text("old")


# --- a folder that is taken -----------------------------------------------------------------------------------------


def refuse(run: RunDir) -> None:
    run.refuse_if_unusable()
    refuse_if_taken(run.path)


def test_a_folder_that_is_not_there_or_is_empty_is_free(run: RunDir) -> None:
    refuse(run)
    run.path.mkdir(parents=True)
    refuse(run)


def test_a_folder_with_other_files_is_free(run: RunDir) -> None:
    run.path.mkdir(parents=True)
    (run.path / "notes.txt").write_text("mine")
    refuse(run)


def test_a_folder_with_a_run_is_refused_naming_the_ways_out(run: RunDir, config: Config) -> None:
    run.create(config, {})
    run.refuse_if_unusable()
    with pytest.raises(ConfigError) as error:
        refuse_if_taken(run.path)
    assert str(error.value) == (
        f"{run.path} already holds a run: continue it with --resume, replace it with --overwrite, or choose another "
        "folder with --run-dir"
    )
    assert error.value.exit_code == 2


@pytest.mark.parametrize("name", OURS)
def test_files_of_somebody_else_with_our_names_are_never_replaced(run: RunDir, name: str) -> None:
    path = run.path / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    if name in ("run.json", "checkpoints"):  # a run without the rest
        run.refuse_if_unusable()
        with pytest.raises(ConfigError, match=r"--resume.*--overwrite"):
            refuse_if_taken(run.path)
        return
    with pytest.raises(ConfigError) as error:
        run.refuse_if_unusable()
    assert str(error.value) == (
        f"{run.path} holds {name} but no run (there is no run.json), and a run would replace that: choose another "
        "folder with --run-dir"
    )


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_is_no_folder(run: RunDir, below: str) -> None:
    run.path.parent.mkdir()
    run.path.write_text("")
    with pytest.raises(ConfigError, match=re.escape(f"{run.path} is a file: choose another folder with --run-dir")):
        RunDir(run.path / below).refuse_if_unusable()


# --- starting and going on ------------------------------------------------------------------------------------------


def test_creating_writes_the_configuration_and_the_record(run: RunDir, config: Config) -> None:
    run.create(config, {"threads": 2})
    assert load_config(run.config) == config
    assert run.read_record() == {"threads": 2}
    assert run.samples.is_dir()
    assert list_checkpoints(run.path) == []


def test_overwriting_removes_the_old_run_and_nothing_else(run: RunDir, config: Config) -> None:
    make_ours(run)
    foreign = [run.path / "notes.txt", run.path / "plots" / "loss.png", run.path / "config.yml"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    run.create(config, {})
    assert all(path.read_text() == "mine" for path in foreign)
    left = sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*"))
    assert left == ["config.yaml", "config.yml", "notes.txt", "plots", "plots/loss.png", "run.json", "samples"]
    assert load_config(run.config) == config


def test_the_record_comes_back_as_it_was_written(run: RunDir, config: Config) -> None:
    record = {"command": ["train", "übung.yaml"], "threads": 2, "finished": {"step": 5, "reason": "…"}, "git": None}
    run.create(config, record)
    assert run.read_record() == record
    run.write_record(record | {"threads": 1})
    assert run.read_record() == record | {"threads": 1}
    assert [path.name for path in run.path.iterdir() if "tmp" in path.name] == []


@pytest.mark.parametrize("text", [None, "", "{", "\udcff"])
def test_a_record_that_is_gone_or_damaged_is_empty(run: RunDir, config: Config, text: str | None) -> None:
    run.create(config, {"threads": 2})
    if text is None:
        run.record.unlink()
    else:
        run.record.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert run.read_record() == {}


def test_going_on_keeps_the_run_and_cuts_what_lies_after_the_step(run: RunDir, config: Config) -> None:
    run.create(config, {"threads": 2})
    for step in (10, 20, 30, 123_456_789):
        run.samples_path(step).write_text(f"{step}")
    for name in ("mine.tsv", "step-of-mine.tsv"):
        (run.samples / name).write_text("mine")
    saved = checkpoint_path(run.path, 20)
    saved.parent.mkdir()
    saved.write_text("20")
    checkpoint_path(run.path, 30).write_text("damaged")
    run.test.mkdir()
    unfinished = (
        saved.with_name(f".{saved.name}.4711.tmp"),
        saved.with_name(".tmpf1Fkr0"),  # safetensors' own
        run.test / ".scores.json.4711.tmp",
    )
    for path in unfinished:
        path.write_text("half")
    foreign = run.path / ".notes.tmp", run.path / ".run.json.tmp.swp", saved.with_name(".tmp-mine")
    for path in foreign[:2]:
        path.write_text("mine")
    foreign[2].mkdir()
    longer = config.model_copy(update={"training": config.training.model_copy(update={"max_steps": 99})})

    run.go_on(longer, {"threads": 1}, step=20)

    assert sorted(path.name for path in run.samples.iterdir()) == [
        "mine.tsv", "step-00000010.tsv", "step-00000020.tsv", "step-of-mine.tsv",
    ]  # fmt: skip
    assert list_checkpoints(run.path) == [(20, saved)]
    assert not any(path.exists() for path in unfinished)
    assert all(path.exists() for path in foreign)
    assert load_config(run.config) == longer
    assert run.read_record() == {"threads": 1}


def test_samples_of_a_hundred_million_steps_are_later_than_those_of_fewer(run: RunDir, config: Config) -> None:
    run.create(config, {})
    for step in (99_999_999, 100_000_000, 100_000_001):
        run.samples_path(step).write_text("")
    run.go_on(config, {}, step=100_000_000)
    assert sorted(path.name for path in run.samples.iterdir()) == ["step-100000000.tsv", "step-99999999.tsv"]


def test_a_run_is_trained_by_one_process_at_a_time(run: RunDir) -> None:
    run.path.mkdir(parents=True)
    with run.locked():
        with pytest.raises(ConfigError, match=r"another process is training in .*: wait for its end, or choose"):
            RunDir(run.path).locked().__enter__()
        assert run.path.is_dir()
    with RunDir(run.path).locked():
        pass


def test_a_new_folder_is_made_and_locked_only_when_it_is_needed(tmp_path: Path, config: Config) -> None:
    one, other = (RunDir(tmp_path / "runs" / "run") for _ in range(2))
    with one.locked():
        assert not one.path.parent.exists()
        with other.locked():
            one.make()
            with pytest.raises(ConfigError, match="another process is training in"):
                other.make()
            one.create(config, {})
    with one.locked():
        one.make()  # it is locked already, and the run is to be gone on with or replaced


def test_a_run_that_another_process_has_begun_meanwhile_is_not_replaced(tmp_path: Path, config: Config) -> None:
    run = RunDir(tmp_path / "run")
    with run.locked():
        RunDir(run.path).create(config, {})
        with pytest.raises(ConfigError, match="already holds a run"):
            run.make()


def test_a_link_in_the_place_of_a_folder_is_removed_and_not_what_it_leads_to(
    run: RunDir, config: Config, tmp_path: Path
) -> None:
    run.create(config, {})
    large = tmp_path / "large disk"
    large.mkdir()
    (large / "step-00000001.safetensors").write_text("kept")
    (run.path / "checkpoints").symlink_to(large)
    run.create(config, {"threads": 2})
    assert run.read_record() == {"threads": 2}
    assert not (run.path / "checkpoints").exists()
    assert (large / "step-00000001.safetensors").read_text() == "kept"


def test_a_folder_of_samples_that_was_deleted_is_there_again_after_resuming(run: RunDir, config: Config) -> None:
    run.create(config, {})
    run.samples.rmdir()
    run.go_on(config, {}, step=0)
    assert run.samples.is_dir()


def test_a_configuration_and_a_record_are_replaced_whole_or_not_at_all(
    run: RunDir, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.create(config, {"threads": 2})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    longer = with_value(config, "training.max_steps", 99)
    with pytest.raises(KeyboardInterrupt):
        run.go_on(longer, {}, step=0)
    with pytest.raises(KeyboardInterrupt):
        run.write_record({})
    assert load_config(run.config) == config
    assert run.read_record() == {"threads": 2}


def test_going_on_cuts_the_metrics_after_the_lines_that_the_checkpoint_knew(run: RunDir, config: Config) -> None:
    run.create(config, {})
    metrics = Metrics(run.metrics, keep_lines=0)
    for step in (1, 2):
        metrics.write("train", {"step": step})
    lines_at_checkpoint = metrics.lines
    metrics.write("train", {"step": 3})
    resumed = Metrics(run.metrics, lines_at_checkpoint)
    resumed.write("train", {"step": 3, "again": True})
    found = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert found == [
        {"event": "train", "step": 1},
        {"event": "train", "step": 2},
        {"event": "train", "step": 3, "again": True},
    ]
    assert resumed.lines == 3


# --- checkpoints that are kept --------------------------------------------------------------------------------------


def test_checkpoints_that_are_not_to_be_kept_are_removed_and_no_other_file(run: RunDir) -> None:
    folder = run.path / CHECKPOINTS
    folder.mkdir(parents=True)
    for step in (10, 20, 30, 40, 50):
        checkpoint_path(run.path, step).write_text("")
    (folder / "mine.safetensors").write_text("")
    run.prune_checkpoints({20, 50, 60})
    assert [step for step, _ in list_checkpoints(run.path)] == [20, 50]
    assert (folder / "mine.safetensors").exists()


# --- what may change on the way -------------------------------------------------------------------------------------

# Another value for every key there is. A new key has to be put here, and among FREE if a run may change it.
OTHER: dict[str, Any] = {
    "name": "y",
    "seed": 2,
    "device": "cpu",
    "precision": "bf16",
    "data.source_lang": "en",
    "data.target_lang": "de",
    "data.train": (),
    "data.valid": (),
    "data.test": {},
    "data.filters": FilterConfig(duplicates=True),
    "data.errors": "replace",
    "data.max_length": 100,
    "data.cache_dir": Path("elsewhere"),
    "tokenizer.vocab_size": 500,
    "tokenizer.model_type": "bpe",
    "tokenizer.shared": False,
    "tokenizer.byte_fallback": True,
    "tokenizer.normalization": "nfkc",
    "tokenizer.character_coverage": 0.99,
    "tokenizer.user_defined_symbols": ("<a>",),
    "tokenizer.sample_lines": 10,
    "tokenizer.model": Path("other.model"),
    "tokenizer.target_model": Path("other.model"),
    "tokenizer.sampling_alpha": 0.1,
    "model.d_model": 64,
    "model.ffn_dim": 64,
    "model.num_heads": 4,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.norm": "pre",
    "model.positions": "learned",
    "model.activation": "gelu",
    "model.dropout": 0.2,
    "model.attention_dropout": 0.2,
    "model.activation_dropout": 0.2,
    "model.embedding_dropout": 0.2,
    "model.tie_embeddings": "none",
    "model.max_positions": 512,
    "training.batch_type": "sentences",
    "training.batch_size": 2048,
    "training.gradient_accumulation_steps": 2,
    "training.activation_checkpointing": True,
    "training.compile": True,
    "training.init_from": Path("/elsewhere/model.safetensors"),
    "training.max_steps": 99,
    "training.max_epochs": 3,
    "training.max_hours": 1.5,
    "training.lr_schedule": "constant",
    "training.noam_factor": 2.0,
    "training.learning_rate": 1e-3,
    "training.warmup_steps": 100,
    "training.label_smoothing": 0.2,
    "training.adam_betas": (0.9, 0.999),
    "training.adam_eps": 1e-8,
    "training.weight_decay": 0.01,
    "training.clip_grad_norm": None,
    "training.valid_steps": 7,
    "training.save_steps": 7,
    "training.log_steps": 7,
    "training.tensorboard": True,
    "training.keep_last": 9,
    "training.keep_best": 2,
    "training.average_last": 2,
    "training.best_metric": "loss",
    "training.patience": None,
    "decoding.beam_size": 7,
    "decoding.length_penalty": 1.0,
    "decoding.length_penalty_type": "avg",
    "decoding.max_length_a": 3.0,
    "decoding.max_length_b": 20,
    "decoding.n_best": 2,
    "decoding.min_length": 1,
    "decoding.no_repeat_ngram_size": 3,
    "decoding.repetition_penalty": 1.2,
    "evaluation.metrics": ("bleu",),
    "evaluation.valid_beam_size": 2,
    "evaluation.tokenize": "char",
    "evaluation.lowercase": True,
}
FREE = {
    "name", "device",
    "data.cache_dir", "tokenizer.model", "tokenizer.target_model",
    "data.train", "data.valid", "data.test",  # by name; the content of the first two must stay
    "training.max_steps", "training.max_epochs", "training.max_hours", "training.patience",
    "training.valid_steps", "training.save_steps", "training.log_steps",
    "training.keep_last", "training.keep_best", "training.average_last",
    "training.activation_checkpointing", "training.init_from", "training.tensorboard",
    "decoding.beam_size", "decoding.length_penalty", "decoding.length_penalty_type", "decoding.max_length_a",
    "decoding.max_length_b", "decoding.n_best", "decoding.min_length", "decoding.no_repeat_ngram_size",
    "decoding.repetition_penalty",
    "evaluation.metrics", "evaluation.valid_beam_size", "evaluation.tokenize", "evaluation.lowercase",
}  # fmt: skip
# Free together, as long as their product stays.
UPDATE_SIZE = {"training.batch_size", "training.gradient_accumulation_steps"}


def keys() -> Iterator[str]:
    for name, field in Config.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from (f"{name}.{key}" for key in field.annotation.model_fields)
        else:
            yield name


def value(config: Config, key: str) -> Any:
    for name in key.split("."):
        config = getattr(config, name)
    return config


def with_value(config: Config, key: str, new: Any) -> Config:
    section, _, name = key.rpartition(".")
    if not section:
        return config.model_copy(update={name: new})
    return config.model_copy(update={section: getattr(config, section).model_copy(update={name: new})})


def test_every_key_is_either_free_to_change_or_not() -> None:
    assert set(OTHER) == set(keys())
    assert set(OTHER) > FREE | UPDATE_SIZE


@pytest.mark.parametrize("key", sorted(FREE))
def test_a_free_key_may_change(config: Config, key: str) -> None:
    changed = with_value(config, key, OTHER[key])
    assert value(changed, key) != value(config, key)
    assert resumed_config(changed, config) == changed


@pytest.mark.parametrize("key", sorted(set(OTHER) - FREE - UPDATE_SIZE))
def test_any_other_key_is_refused_by_name_with_both_values(config: Config, key: str) -> None:
    changed = with_value(config, key, OTHER[key])
    assert value(changed, key) != value(config, key)
    with pytest.raises(ConfigError) as error:
        resumed_config(changed, config)
    lines = str(error.value).split("\n")
    assert lines[0] == "the run cannot be resumed with another configuration:"
    assert lines[1] == f"  {key}: {value(config, key)!r} in the run, {OTHER[key]!r} now"
    assert lines[2] == "Set these back, or start a new run with --run-dir or --overwrite"
    assert len(lines) == 3


@pytest.mark.parametrize(("batch_size", "accumulation"), [(2048, 2), (1024, 4), (1, 4096)])
def test_an_update_may_be_cut_otherwise(config: Config, batch_size: int, accumulation: int) -> None:
    changed = with_value(config, "training.batch_size", batch_size)
    changed = with_value(changed, "training.gradient_accumulation_steps", accumulation)
    assert resumed_config(changed, config) == changed
    assert resumed_config(config, changed) == config


@pytest.mark.parametrize(("batch_size", "accumulation", "product"), [(2048, 1, 2048), (4096, 2, 8192), (1000, 4, 4000)])
def test_another_size_of_the_update_is_refused(
    config: Config, batch_size: int, accumulation: int, product: int
) -> None:
    changed = with_value(config, "training.batch_size", batch_size)
    changed = with_value(changed, "training.gradient_accumulation_steps", accumulation)
    with pytest.raises(ConfigError) as error:
        resumed_config(changed, config)
    assert str(error.value).split("\n")[1:-1] == [
        f"  training.batch_size x gradient_accumulation_steps: 4096 in the run, {product} now"
    ]


STANDS_FOR = {"model.embedding_dropout": 0.1, "training.noam_factor": 1.0, "training.save_steps": 500}


@pytest.mark.parametrize("key", STANDS_FOR)
def test_a_key_left_out_may_be_written_with_the_value_that_it_stands_for(
    config: Config, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    written = with_value(config, key, STANDS_FOR[key])
    assert value(config, key) is None
    assert resumed_config(written, config) == written
    assert resumed_config(config, written) == config
    assert caplog.messages == []


def test_a_value_that_no_longer_follows_another_key_is_refused_with_it(config: Config) -> None:
    changed = with_value(with_value(config, "model.dropout", 0.2), "model.embedding_dropout", 0.2)
    with pytest.raises(ConfigError, match=r"model\.dropout: 0\.1 in the run, 0\.2 now") as error:
        resumed_config(changed, config)
    assert "model.embedding_dropout: None in the run, 0.2 now" in str(error.value)


def test_all_that_is_refused_is_named_at_once(config: Config) -> None:
    changed = with_value(with_value(with_value(config, "seed", 9), "model.dropout", 0.9), "training.max_steps", 9)
    with pytest.raises(ConfigError) as error:
        resumed_config(changed, config)
    assert re.findall(r"^  ([\w.]+):", str(error.value), re.M) == ["seed", "model.dropout"]


def test_max_steps_is_not_free_under_cosine(config: Config) -> None:
    cosine = with_value(with_value(config, "training.lr_schedule", "cosine"), "training.learning_rate", 1e-3)
    assert resumed_config(with_value(cosine, "training.max_epochs", 3), cosine).training.max_epochs == 3
    with pytest.raises(ConfigError, match=r"training\.max_steps: 20000 in the run, 9 now \(the cosine schedule"):
        resumed_config(with_value(cosine, "training.max_steps", 9), cosine)


def test_auto_precision_is_what_the_run_began_with(config: Config) -> None:
    began = with_value(config, "precision", "bf16")
    assert resumed_config(with_value(config, "precision", "auto"), began) == began
    with pytest.raises(ConfigError, match="precision: 'bf16' in the run, 'fp32' now"):
        resumed_config(config, began)


@pytest.fixture
def tuned(config: Config) -> Config:
    """A configuration that leaves the tokenizer and the model to the weights it starts from."""
    return with_value(config, "training.init_from", Path("/elsewhere/model.safetensors"))


def test_what_came_with_the_weights_of_init_from_need_not_be_said_again(config: Config, tuned: Config) -> None:
    began = with_value(with_value(config, "tokenizer.vocab_size", 500), "model.d_model", 64)
    resumed = resumed_config(tuned, began)
    assert (resumed.tokenizer, resumed.model) == (began.tokenizer, began.model)
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size: 500 in the run, 8000 now"):
        resumed_config(config, began)


def test_what_is_said_of_them_must_be_what_the_run_has(tuned: Config) -> None:
    began = with_value(tuned, "model.d_model", 64)
    said = tuned.model_copy(update={"model": ModelConfig(d_model=128, ffn_dim=2048)})
    with pytest.raises(ConfigError) as error:
        resumed_config(said, began)
    assert str(error.value).split("\n")[1:-1] == ["  model.d_model: 64 in the run, 128 now"]


# --- data -----------------------------------------------------------------------------------------------------------

sha256 = Cache(Path("nowhere"), writable=False).file_hash


def test_the_record_of_the_data_has_sizes_and_hashes(tmp_path: Path, config: Config) -> None:
    files = data_files(config, sha256)
    assert [(file["key"], Path(file["path"]).name) for file in files] == [
        ("data.train", "train.src"),
        ("data.train", "train.tgt"),
        ("data.valid", "valid.src"),
        ("data.valid", "valid.tgt"),
    ]
    assert files[0]["bytes"] == 6
    # printf "train\n" | sha256sum
    assert files[0]["sha256"] == "f6e12a5f03044dbc1249b543e1266da8aacd381f1ffa090b29c789c3d6efed78"
    json.dumps(files)


def test_unchanged_data_goes_through_wherever_it_lies(tmp_path: Path, config: Config) -> None:
    began = {"data": data_files(config, sha256)}
    check_data_unchanged(began, data_files(config, sha256))
    moved = config_for(tmp_path / "elsewhere")
    assert moved != config
    check_data_unchanged(began, data_files(moved, sha256))


def test_another_weight_is_refused(config: Config) -> None:
    began = {"data": data_files(config, sha256)}
    (corpus,) = config.data.train
    doubled = with_value(config, "data.train", (corpus.model_copy(update={"weight": 2.0}),))
    with pytest.raises(ConfigError, match=r"the data has changed since the run began \(.*train\.src"):
        check_data_unchanged(began, data_files(doubled, sha256))


@pytest.mark.parametrize("name", ["train.src", "train.tgt", "valid.src", "valid.tgt"])
def test_changed_data_is_refused_by_file(tmp_path: Path, config: Config, name: str) -> None:
    began = {"data": data_files(config, sha256)}
    path = tmp_path / "data" / name
    path.write_bytes(path.read_bytes().replace(b"a", b"b").replace(b"A", b"B"))  # as long as before
    with pytest.raises(ConfigError) as error:
        check_data_unchanged(began, data_files(config, sha256))
    assert str(error.value).startswith(f"the data has changed since the run began ({path}): ")


def test_test_sets_may_change(tmp_path: Path, config: Config) -> None:
    began = {"data": data_files(config, sha256)}
    (tmp_path / "data" / "test.src").write_text("another\n")
    check_data_unchanged(began, data_files(config, sha256))


def test_test_sets_may_not_change_where_their_sentences_are_kept_out_of_training(
    tmp_path: Path, config: Config
) -> None:
    config = with_value(config, "data.filters", FilterConfig(overlap=True))
    began = {"data": data_files(config, sha256)}
    check_data_unchanged(began, data_files(config, sha256))
    (tmp_path / "data" / "test.src").write_text("another\n")
    with pytest.raises(ConfigError, match=r"the data has changed since the run began \(.*test\.src\)"):
        check_data_unchanged(began, data_files(config, sha256))


def test_what_an_entry_says_besides_its_files_is_part_of_the_data(tmp_path: Path, config: Config) -> None:
    (tmp_path / "t.tsv").write_text("a\tb\n")
    hub = HubSet(hub="owner/name", split="train", source_field="a", target_field="b", revision="1")

    def record(table: Table, hub: HubSet) -> list[dict[str, Any]]:
        return data_files(with_value(config, "data.train", (table, hub)), sha256)

    table = Table(path=tmp_path / "t.tsv", source_field=1, target_field=2)
    began = {"data": json.loads(json.dumps(record(table, hub)))}
    assert [file["path"] for file in began["data"][:2]] == [str(tmp_path / "t.tsv"), "owner/name"]
    check_data_unchanged(began, record(table, hub))
    (tmp_path / "moved.tsv").write_text("a\tb\n")
    check_data_unchanged(began, record(table.model_copy(update={"path": tmp_path / "moved.tsv"}), hub))
    for other in ({"source_field": 2}, {"weight": 2.0}):
        with pytest.raises(ConfigError, match=r"the data has changed .*t\.tsv"):
            check_data_unchanged(began, record(table.model_copy(update=other), hub))
    with pytest.raises(ConfigError, match=r"the data has changed .*owner/name"):
        check_data_unchanged(began, record(table, hub.model_copy(update={"revision": "2"})))


def test_another_number_of_files_is_a_change(config: Config) -> None:
    began = {"data": data_files(config, sha256)}
    twice = with_value(config, "data.valid", config.data.valid * 2)
    with pytest.raises(ConfigError, match="another number of files"):
        check_data_unchanged(began, data_files(twice, sha256))


def test_text_that_moved_from_validation_to_training_is_a_change(tmp_path: Path, config: Config) -> None:
    twice = with_value(config, "data.valid", config.data.valid * 2)
    began = {"data": data_files(twice, sha256)}
    with pytest.raises(ConfigError, match=r"the data has changed since the run began \(.*valid\.src"):
        both = with_value(config, "data.train", config.data.train + config.data.valid)
        check_data_unchanged(began, data_files(both, sha256))


def test_a_run_that_kept_no_record_of_its_data_goes_on_with_a_warning(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    check_data_unchanged({}, data_files(config, sha256))
    assert "run.json does not tell what data the run began with" in caplog.text


# --- how the run was made -------------------------------------------------------------------------------------------


def test_the_environment_tells_what_a_number_depends_on() -> None:
    found = json.loads(json.dumps(describe_environment(["transformer-cli", "train"], "cpu", 2, 3)))
    assert found["command"] == ["transformer-cli", "train"]
    assert (found["device"], found["threads"], found["processes"], found["adam"]) == ("cpu", 2, 3, "fused")
    assert set(found["versions"]) >= {"transformer_cli", "python", "torch", "sentencepiece", "sacrebleu"}


def test_the_commit_is_that_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert describe_environment([], "cpu", 1, 1)["git_commit"] is None
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert re.fullmatch("[0-9a-f]{40}", describe_environment([], "cpu", 1, 1)["git_commit"])


def test_a_limit_that_changes_on_resuming_is_said(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    resumed_config(with_value(config, "training.max_steps", 60), config)
    assert caplog.messages == ["training.max_steps is 60 from here on; it was 20000"]


def test_where_a_run_started_from_is_of_no_interest_once_it_goes_on(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    started = with_value(config, "training.init_from", Path("/elsewhere/model.safetensors"))
    assert resumed_config(started, config) == started
    assert caplog.messages == []
