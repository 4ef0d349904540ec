"""The second start gives what the first one gave, reads no training text, and believes nothing that has changed."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transformer_cli.config.schema import Config, Corpus
from transformer_cli.data import dataset as dataset_module
from transformer_cli.data import split
from transformer_cli.data.corpus import Pair
from transformer_cli.data.dataset import CorpusPart, TokenDataset
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.prepared import Preparation
from transformer_cli.errors import DataError

WORDS = ["red", "green", "blue", "cat", "dog", "bird", "sings", "runs"]


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def sentences(count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, 6))) for _ in range(count)]


def corpus(folder: Path, name: str, count: int, seed: int, weight: float = 1.0) -> Corpus:
    sources = sentences(count, seed)
    return Corpus(
        source=write(folder / f"{name}.src", [*sources, "", "cat " * 50]),
        target=write(folder / f"{name}.tgt", [*map(str.upper, sources), "X", "Y"]),
        weight=weight,
    )


def config_in(folder: Path, weights: Sequence[float] = (1.0,), **data: Any) -> Config:
    train = tuple(corpus(folder, f"train{i}", 50, i, weight) for i, weight in enumerate(weights))
    return Config.model_validate(
        {
            "name": "x",
            "data": {
                "train": [part.model_dump() for part in train],
                "valid": {"hold_out": 5},
                "max_length": 40,
                "cache_dir": folder / "kept",
                **data,
            },
            "tokenizer": {"vocab_size": 40},
        }
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_in(tmp_path)


def prepare(config: Config, **options: Any) -> tuple[dict[str, bytes], TokenDataset, FilterCounts, list[Pair]]:
    prepared = Preparation(config, 1, **options)
    tokenizers = prepared.tokenizers()
    dataset, counts = prepared.dataset(tokenizers)
    return tokenizers.protos(), dataset, counts, prepared.text.valid()


def assert_same(one: TokenDataset, other: TokenDataset) -> None:
    assert one.corpora == other.corpora
    for ours, theirs in zip(one.columns().values(), other.columns().values(), strict=True):
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.starts, theirs.starts)


def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no text is read and no line tokenised."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("this was done before")

    monkeypatch.setattr(split, "read_pairs", refuse)
    monkeypatch.setattr(split, "read_corpus", refuse)
    monkeypatch.setattr(dataset_module, "_encode", refuse)


def test_the_second_start_reads_no_training_text_and_gives_the_same(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    protos, dataset, counts, valid = prepare(config)
    assert counts.read == 52
    assert (counts.empty, counts.too_long) == (1, 1)
    assert counts.kept == len(dataset) == 50 - counts.held_out
    assert counts.held_out >= 5
    never(monkeypatch)
    again = prepare(config)
    assert again[0] == protos
    assert_same(again[1], dataset)
    assert again[2:] == (counts, valid)
    assert_same(prepare(config, writable=False)[1], dataset)


def test_what_only_reads_leaves_nothing_and_gives_the_same(config: Config, tmp_path: Path) -> None:
    protos, dataset, counts, valid = prepare(config, writable=False)
    assert not (tmp_path / "kept").exists()
    again = prepare(config)
    assert (tmp_path / "kept").exists()
    assert (again[0], again[2], again[3]) == (protos, counts, valid)
    assert_same(again[1], dataset)


def test_a_folder_that_cannot_be_written_gives_the_same(config: Config, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    elsewhere = {"data": config.data.model_copy(update={"cache_dir": tmp_path / "file" / "kept"})}
    assert_same(prepare(config.model_copy(update=elsewhere))[1], prepare(config)[1])


def changed(config: Config, tmp_path: Path) -> Iterator[Config]:
    yield config.model_copy(update={"seed": 2})
    yield config.model_copy(update={"data": config.data.model_copy(update={"max_length": 10})})
    yield config.model_copy(update={"tokenizer": config.tokenizer.model_copy(update={"vocab_size": 36})})
    yield config.model_copy(update={"tokenizer": config.tokenizer.model_copy(update={"shared": False})})
    path = config.data.train[0].source
    write(path, [line.replace("cat", "dog") for line in path.read_text().splitlines()])  # as long as before
    yield config


def test_whatever_the_ids_follow_from_gives_others(config: Config, tmp_path: Path) -> None:
    for other in changed(config, tmp_path):
        fresh = other.model_copy(update={"data": other.data.model_copy(update={"cache_dir": tmp_path / "fresh"})})
        prepare(config)
        protos, dataset, counts, valid = prepare(other)
        expected = prepare(fresh, writable=False)
        assert (protos, counts, valid) == (expected[0], expected[2], expected[3])
        assert_same(dataset, expected[1])


def test_the_pairs_of_each_corpus_are_counted_and_its_weight_is_none_of_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_module, "_CHUNK", 7)
    valid = [corpus(tmp_path, "valid", 3, 9).model_dump()]
    _, dataset, _, _ = prepare(config_in(tmp_path, (1.0, 2.5), valid=valid))
    assert dataset.corpora == (CorpusPart(50, 1.0), CorpusPart(50, 2.5))
    assert dataset.shares() == "28.6% of corpus 1 (50 pairs x 1), 71.4% of corpus 2 (50 pairs x 2.5)"
    other = config_in(tmp_path, (0.5, 1.0), valid=valid)
    files = sorted(path.name for path in (tmp_path / "kept").glob("tokens-*"))
    assert prepare(other)[1].corpora == (CorpusPart(50, 0.5), CorpusPart(50, 1.0))
    assert sorted(path.name for path in (tmp_path / "kept").glob("tokens-*")) == files


def test_no_pair_at_all_is_an_error_and_is_not_kept(tmp_path: Path) -> None:
    valid = [corpus(tmp_path, "valid", 3, 9).model_dump()]
    config = config_in(tmp_path, valid=valid)
    write(config.data.train[0].source, ["cat " * 50] * 52)
    for _ in range(2):
        with pytest.raises(DataError, match=r"data\.train: no pair is left to train on"):
            prepare(config)
    assert list((tmp_path / "kept").glob("tokens-*")) == []
