"""The second start gives what the first one gave, reads no training text, and believes nothing that has changed."""

import gzip
import logging
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transformer_cli.config.schema import AnyCorpus, Config, Corpus, HubSet
from transformer_cli.data import corpus as corpus_module
from transformer_cli.data import dataset as dataset_module
from transformer_cli.data import split
from transformer_cli.data.corpus import Pair, read_pairs
from transformer_cli.data.dataset import CorpusPart, TokenDataset
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.formats import Record
from transformer_cli.data.lines import Errors
from transformer_cli.data.prepared import Preparation
from transformer_cli.errors import ConfigError, DataError

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
    return tokenizers.protos(), dataset, counts, prepared.splits.valid()


def assert_same(one: TokenDataset, other: TokenDataset) -> None:
    assert one.corpora == other.corpora
    for ours, theirs in zip(one.columns().values(), other.columns().values(), strict=True):
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.starts, theirs.starts)


def never(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    """From here on no training text is read and no line tokenised."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("this was done before")

    def other_text(corpora: tuple[AnyCorpus, ...], errors: Errors) -> Iterator[Pair]:
        return refuse() if corpora == config.data.train else read_pairs(corpora, errors)

    monkeypatch.setattr(split, "read_pairs", other_text)
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
    never(monkeypatch, config)
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


def test_weights_that_leave_no_pair_in_an_epoch_are_refused(tmp_path: Path) -> None:
    valid = [corpus(tmp_path, "valid", 3, 9).model_dump()]
    with pytest.raises(ConfigError, match=r"data\.train: by these weights no pair stands in an epoch"):
        prepare(config_in(tmp_path, (0.019, 0.001), valid=valid))
    prepare(config_in(tmp_path, (0.021, 0.001), valid=valid))


FILTERS = {"length_ratio": 2.0, "identical": True, "duplicates": True, "overlap": True, "script": True}


def mixed(folder: Path, **data: Any) -> Config:
    """Two files of which one is compressed, and a table; each holds pairs for every filter."""
    bad = [("same", "same"), ("cat", "DOG " * 20), ("\u0436\u0436\u0436\u0436", "X"), ("seen", "GESEHEN"), ("", "X")]
    first = [(line, line.upper()) for line in sentences(30, 1)] + bad
    second = [(line, line.upper()) for line in sentences(20, 2)] + bad + first[:3]
    (folder / "a.src.gz").write_bytes(gzip.compress("".join(f"{source}\n" for source, _ in first).encode(), mtime=0))
    write(folder / "a.tgt", [target for _, target in first])
    write(folder / "b.tsv", [f"{source}\t{target}" for source, target in second])
    train = [
        {"source": folder / "a.src.gz", "target": folder / "a.tgt"},
        {"path": folder / "b.tsv", "source_field": 1, "target_field": 2, "weight": 0.5},
    ]
    valid = [{"source": write(folder / "v.src", ["seen"]), "target": write(folder / "v.tgt", ["GESEHEN"])}]
    languages = {"source_lang": "en", "target_lang": "de"}
    return config_in(folder, (), **{"train": train, "valid": valid, "filters": FILTERS, **languages, **data})


def test_what_the_filters_left_out_is_the_same_on_every_start_and_counted_for_its_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_module, "_CHUNK", 7)
    config = mixed(tmp_path)
    protos, dataset, counts, _ = prepare(config)
    unfiltered = prepare(mixed(tmp_path, filters={}, valid=config.data.model_dump()["valid"]))[1]
    assert [part.pairs for part in unfiltered.corpora] == [34, 27]
    assert counts.read == 35 + 28
    assert (counts.empty, counts.overlap, counts.identical, counts.length_ratio, counts.script) == (2, 2, 2, 2, 2)
    different = len({*sentences(30, 1)}), len({*sentences(20, 2)} - {*sentences(30, 1)})
    assert [part.pairs for part in dataset.corpora] == list(different)
    assert counts.duplicates == 30 + 20 + 3 - sum(different)
    never(monkeypatch, config)
    again = prepare(config)
    assert (again[0], again[2]) == (protos, counts)
    assert again[2].summary(config.data) == counts.summary(config.data)
    assert_same(again[1], dataset)


def kept_ids(folder: Path) -> set[str]:
    return {path.name for path in (folder / "kept").glob("tokens-*")}


@pytest.mark.parametrize(
    ("change", "other_ids"),
    [
        ({"filters": {**FILTERS, "identical": False}}, True),
        ({"filters": {**FILTERS, "length_ratio": 3.0}}, True),
        ({"errors": "replace"}, True),
        ({"target_lang": "fr"}, True),
        ({"max_length": 39}, True),
        ({"test": {"more": [{"path": "m.tsv", "source_field": 1, "target_field": 2}]}}, True),
        ({"filters": {**FILTERS, "overlap": False}, "test": {}}, True),
        ({"test": {}}, False),
    ],
    ids=str,
)
def test_ids_are_kept_by_all_that_decides_what_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], other_ids: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "m.tsv", [f"{line}\tX" for line in sentences(5, 1)])
    prepare(mixed(tmp_path))
    before = kept_ids(tmp_path)
    prepare(mixed(tmp_path, **change))
    assert (kept_ids(tmp_path) > before) is other_ids


def test_other_test_sets_and_seeds_find_the_ids_that_do_not_depend_on_them(tmp_path: Path) -> None:
    config = mixed(tmp_path, filters={"duplicates": True})
    prepare(config)
    before = kept_ids(tmp_path)
    prepare(config.model_copy(update={"seed": 7}))
    prepare(config.model_copy(update={"data": config.data.model_copy(update={"test": {"t": config.data.valid}})}))
    assert kept_ids(tmp_path) == before


@pytest.mark.parametrize(
    ("entry", "kept"),
    [
        ({"revision": "0123456789abcdef0123456789abcdef01234567"}, True),
        ({"revision": "v1.0"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_a_set_of_the_hub_is_kept_by_its_commit_and_without_one_read_anew(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    entry: dict[str, Any],
    kept: bool,
) -> None:
    reads = []

    def read_hub(hub: HubSet) -> Iterator[Record]:
        reads.append(hub.hub)
        yield from (Record(number, line, line.upper()) for number, line in enumerate(sentences(30, 1), 1))

    monkeypatch.setattr(corpus_module, "read_hub", read_hub)
    caplog.set_level(logging.INFO)
    hub = {"hub": "owner/name", "split": "train", "source_field": "en", "target_field": "de", **entry}
    config = mixed(tmp_path, train=[hub])
    first = prepare(config)
    once = len(reads)
    second = prepare(config)
    assert_same(first[1], second[1])
    assert first[2] == second[2]
    assert (len(reads) == once) is kept
    assert bool(kept_ids(tmp_path)) is kept
    assert ("nothing of the text is kept in the cache, as owner/name can change" in caplog.text) is not kept


def test_a_set_in_a_folder_is_kept_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_hub(hub: HubSet) -> Iterator[Record]:
        lines = (Path(hub.hub) / "part").read_text().splitlines()
        yield from (Record(number, line, line.upper()) for number, line in enumerate(lines, 1))

    monkeypatch.setattr(corpus_module, "read_hub", read_hub)
    (tmp_path / "set").mkdir()
    hub = {"hub": str(tmp_path / "set"), "split": "train", "source_field": "en", "target_field": "de"}
    for count in (20, 30):
        write(tmp_path / "set" / "part", sentences(count, 1))
        for _ in range(2):
            assert prepare(mixed(tmp_path, train=[hub], filters={}))[2].read == count
    assert len(kept_ids(tmp_path)) == 4


def test_without_a_line_with_text_the_files_are_named(tmp_path: Path) -> None:
    config = config_in(tmp_path, valid=[corpus(tmp_path, "valid", 3, 9).model_dump()], filters={"duplicates": True})
    for count in (0, 2):
        write(tmp_path / "train0.src", [""] * count)
        write(tmp_path / "train0.tgt", ["x"] * count)
        found = "2 pairs read, 2 with an empty side" if count else "0 pairs read"
        with pytest.raises(DataError) as caught:
            prepare(config)
        assert str(caught.value) == (
            f"data.train: no pair is left to train on: {found} ({tmp_path}/train0.src, {tmp_path}/train0.tgt)"
        )


def test_no_pair_at_all_is_an_error_and_is_not_kept(tmp_path: Path) -> None:
    valid = [corpus(tmp_path, "valid", 3, 9).model_dump()]
    config = config_in(tmp_path, valid=valid)
    write(config.data.train[0].source, ["cat " * 50] * 52)
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            prepare(config)
        assert str(caught.value) == (
            "data.train: no pair is left to train on: 52 pairs read, 52 longer than data.max_length "
            f"({tmp_path}/train0.src, {tmp_path}/train0.tgt)"
        )
    assert list((tmp_path / "kept").glob("tokens-*")) == []


def test_what_is_noticed_in_the_text_is_told_again_when_it_comes_from_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_in(tmp_path, errors="replace")
    with (tmp_path / "train0.src").open("ab") as file:
        file.write(b"gr\xfcn\n")
    with (tmp_path / "train0.tgt").open("ab") as file:
        file.write(b"GREEN\n")
    config = config.model_copy(update={"tokenizer": config.tokenizer.model_copy(update={"vocab_size": 5000})})
    told = []
    for _ in range(2):
        caplog.clear()
        prepared = Preparation(config, 1)
        prepared.dataset(prepared.tokenizers())
        told.append({record.getMessage() for record in caplog.records if record.levelno == logging.WARNING})
    assert told[0] == told[1]
    assert any("lines held bytes that are not UTF-8" in message for message in told[0])
    assert any("tokenizer.vocab_size is 5,000, but the text has only enough words" in message for message in told[0])
