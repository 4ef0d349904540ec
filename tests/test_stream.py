"""Every record once an epoch whoever reads, the same after any break, and no more held than what was asked for."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from transformer_cli.config.schema import Config, HubSet, TokenizerConfig
from transformer_cli.data import stream as stream_module
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.formats import HubStream, Record
from transformer_cli.data.prepared import Preparation
from transformer_cli.data.split import Splits
from transformer_cli.data.stream import Position, Stream
from transformer_cli.data.tokenizer import Tokenizers, train_tokenizer
from transformer_cli.errors import DataError
from transformer_cli.training.distributed import Processes
from transformer_cli.training.feed import Streamed
from transformer_cli.training.state import TrainingState


class Shards:
    """In the place of a set: shard s holds `sizes[s]` records, whose sources are `s number`."""

    sizes: Sequence[int] = ()
    read = 0

    def __init__(self, hub: HubSet) -> None:
        self.shards = len(self.sizes)

    def records(self, shard: int, start: int = 0, step: int = 1) -> Iterator[Record]:
        for number in range(start, self.sizes[shard], step):
            Shards.read += 1
            yield Record(number + 1, f"{shard} {number}", f"x{shard} {number}")

    def report(self) -> None:
        pass


def config_of(**changes: Any) -> Config:
    data = {
        "train": [{"hub": "a/b", "split": "train", "source_field": "a", "target_field": "b", "streaming": True}],
        "max_length": 64,
        **changes.pop("data", {}),
    }
    data["train"][0] |= {"shuffle_buffer": changes.pop("shuffle_buffer", 10)}
    return Config.model_validate({"name": "x", "data": data, **changes})


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    characters = train_tokenizer(["0123456789 x"] * 10, TokenizerConfig(vocab_size=30, model_type="char"))
    return Tokenizers(characters, characters)


def stream_of(
    monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int], config: Config | None = None, text: Any = None
) -> Stream:
    monkeypatch.setattr(stream_module, "HubStream", Shards)
    monkeypatch.setattr(Shards, "sizes", sizes)
    monkeypatch.setattr(Shards, "read", 0)
    config = config or config_of()
    assert config.data.stream is not None
    return Stream(config.data.stream, config, text or Splits(config))


def sources(dataset: TokenDataset, tokenizers: Tokenizers) -> list[str]:
    return [tokenizers.source.decode(dataset.source[i].tolist()) for i in range(len(dataset))]


def epoch_of(
    stream: Stream, tokenizers: Tokenizers, epoch: int = 0, rank: int = 0, processes: int = 1
) -> list[list[str]]:
    """The sources of the windows of one process."""
    return [
        sources(window.dataset, tokenizers)
        for window in stream.windows(Position(epoch), tokenizers, 1, rank, processes)
    ]


def flat(windows: list[list[str]]) -> list[str]:
    return [source for window in windows for source in window]


SIZES = [7, 0, 12, 31, 1]
ALL = Counter(f"{shard} {number}" for shard, size in enumerate(SIZES) for number in range(size))


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 5, 6, 60])
def test_every_record_is_read_once_an_epoch_by_one_of_the_processes(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers, processes: int
) -> None:
    stream = stream_of(monkeypatch, SIZES)
    for epoch in range(3):
        shares = [flat(epoch_of(stream, tokenizers, epoch, rank, processes)) for rank in range(processes)]
        assert sum(map(Counter, shares), Counter()) == ALL


def test_of_as_many_shards_as_processes_or_twice_each_reads_its_own(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers
) -> None:
    stream = stream_of(monkeypatch, [5] * 4)
    for processes, each in ((4, 1), (2, 2)):
        read = [{s.split()[0] for s in flat(epoch_of(stream, tokenizers, 0, r, processes))} for r in range(processes)]
        assert [len(shards) for shards in read] == [each] * processes
        assert len(set.union(*read)) == 4


def test_where_shards_are_left_over_they_are_shared_record_by_record(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers
) -> None:
    stream = stream_of(monkeypatch, [10] * 3)
    one, two = (flat(epoch_of(stream, tokenizers, 0, rank, 2)) for rank in range(2))
    assert len(one) == len(two) == 15
    shared = {s.split()[0] for s in one} & {s.split()[0] for s in two}
    assert len(shared) == 1
    (shard,) = shared
    assert [int(s.split()[1]) % 2 for s in one if s.startswith(f"{shard} ")] == [0] * 5
    assert [int(s.split()[1]) % 2 for s in two if s.startswith(f"{shard} ")] == [1] * 5


def test_the_order_of_shards_follows_from_seed_and_epoch(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers
) -> None:
    def order(seed: int, epoch: int) -> str:
        stream = stream_of(monkeypatch, [1] * 12, config_of(seed=seed))
        return str(epoch_of(stream, tokenizers, epoch))

    orders = [order(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert len(set(orders)) == 4
    assert orders == [order(seed, epoch) for seed in (1, 2) for epoch in (0, 1)]


def test_a_window_is_as_many_records_and_the_last_what_is_left(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers
) -> None:
    stream = stream_of(monkeypatch, SIZES)  # 51 records
    assert [len(window) for window in epoch_of(stream, tokenizers)] == [10] * 5 + [1]


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_from_the_beginning_of_any_window_the_rest_of_the_epoch_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers, processes: int
) -> None:
    stream = stream_of(monkeypatch, SIZES)
    for rank in range(processes):
        whole = list(stream.windows(Position(4), tokenizers, 1, rank, processes))
        for i, window in enumerate(whole):
            for position, rest in ((window.begin, whole[i:]), (window.end, whole[i + 1 :])):
                saved = Position.from_plain(json.loads(json.dumps(position.to_plain())))
                again = list(stream.windows(saved, tokenizers, 1, rank, processes))
                assert [w.begin for w in again] == [w.begin for w in rest]
                assert [w.end for w in again] == [w.end for w in rest]
                assert [sources(w.dataset, tokenizers) for w in again] == [sources(w.dataset, tokenizers) for w in rest]


def test_no_more_is_read_than_the_window_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers
) -> None:
    windows = stream_of(monkeypatch, [1000] * 3).windows(Position(), tokenizers, 1)
    for count in range(1, 5):
        next(windows)
        assert Shards.read == 10 * count


def test_the_filters_leave_out_and_count_as_the_windows_go_by(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers, tmp_path: Path
) -> None:
    class Faulty(Shards):
        def records(self, shard: int, start: int = 0, step: int = 1) -> Iterator[Record]:
            pairs = [("1 2", "3 4"), ("", "x"), ("9", "9"), ("1" * 70, "2"), ("7", "x"), ("0", "  ")] * 5
            yield from (Record(i + 1, *pairs[i]) for i in range(start, 30, step))

    for side in ("src", "tgt"):
        (tmp_path / f"valid.{side}").write_text("7\n")
    filters = {"identical": True, "overlap": True}
    valid = [{"source": tmp_path / "valid.src", "target": tmp_path / "valid.tgt"}]
    config = config_of(data={"filters": filters, "valid": valid}, shuffle_buffer=7)
    stream = stream_of(monkeypatch, [30], config)
    monkeypatch.setattr(stream_module, "HubStream", Faulty)
    assert config.data.stream is not None
    stream = Stream(config.data.stream, config, Splits(config))
    windows = list(stream.windows(Position(), tokenizers, 1))
    assert flat([sources(window.dataset, tokenizers) for window in windows]) == ["1 2"] * 5
    assert windows[0].end.counts == FilterCounts(read=7, empty=2, overlap=1, identical=1, too_long=1)
    assert windows[-1].end.counts == FilterCounts(read=30, empty=10, overlap=5, identical=5, too_long=5)


def test_a_window_of_which_nothing_is_left_is_empty_and_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers
) -> None:
    class Later(Shards):
        def records(self, shard: int, start: int = 0, step: int = 1) -> Iterator[Record]:
            yield from (Record(i + 1, "" if i < 25 else "1", "2") for i in range(start, 31, step))

    stream_of(monkeypatch, [31])
    monkeypatch.setattr(stream_module, "HubStream", Later)
    config = config_of()
    assert config.data.stream is not None
    stream = Stream(config.data.stream, config, Splits(config))
    assert [len(window) for window in epoch_of(stream, tokenizers)] == [0, 0, 5, 1]


def test_the_sample_is_of_several_shards_in_turn_and_then_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = stream_of(monkeypatch, [3] * 10)
    sample = [pair.source for pair in stream.sample(8)]
    assert len({source.split()[0] for source in sample}) == 8
    assert {source.split()[1] for source in sample} == {"0"}
    assert Shards.read == 8
    assert len({pair.source for pair in stream.sample(100)}) == 30


def test_once_closed_it_ends_at_the_next_record(monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers) -> None:
    stream = stream_of(monkeypatch, [1000])
    windows = stream.windows(Position(), tokenizers, 1)
    next(windows)
    stream.close()
    assert list(windows) == []
    assert Shards.read == 11


# --- sets as they are on the disk -------------------------------------------------------------------------------------

RECORDS: list[dict[str, Any]] = [
    {"translation": {"en": f"line {i}", "de": f"Zeile {i}"}, "more": i} for i in range(2500)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def write(folder: Path, kind: str) -> None:
    if kind == "saved":
        import datasets

        datasets.Dataset.from_list(RECORDS).save_to_disk(folder)
        return
    for name, rows in (("train-0", RECORDS[:2400]), ("train-1", RECORDS[2400:])):
        if kind == "parquet":
            parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{name}.parquet", row_group_size=700)
        else:
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def hub(folder: Path, **changes: Any) -> HubSet:
    fields = {"split": "train", "source_field": "translation.en", "target_field": "translation.de", "streaming": True}
    return HubSet.model_validate({"hub": str(folder), **fields, **changes})


@pytest.mark.parametrize(("kind", "sizes"), [("parquet", [2400, 100]), ("jsonl", [2400, 100]), ("saved", [2500])])
def test_the_records_of_a_shard_begin_and_step_as_those_of_a_list(folder: Path, kind: str, sizes: list[int]) -> None:
    write(folder, kind)
    found = HubStream(hub(folder))
    assert found.shards == len(sizes)
    begin = 0
    for shard, size in enumerate(sizes):
        whole = [
            Record(i + 1, row["translation"]["en"], row["translation"]["de"])
            for i, row in enumerate(RECORDS[begin : begin + size])
        ]
        for start, step in [(0, 1), (1, 1), (999, 1), (1000, 3), (2399, 1), (1, 700), (7, 1500), (5000, 1)]:
            assert list(found.records(shard, start, step)) == whole[start::step], (start, step)
        begin += size


def test_a_saved_set_is_shards_of_some_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "saved")
    monkeypatch.setattr("transformer_cli.data.formats._SHARD", 1000)
    found = HubStream(hub(folder))
    assert found.shards == 3
    assert len({record.source for shard in range(3) for record in found.records(shard)}) == 2500


def test_a_faulty_record_is_named_by_shard_and_number(folder: Path) -> None:
    rows = [{"en": f"line {i}", "de": None if i == 1234 else "x"} for i in range(1500)]
    for number in range(2):
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"train-{number}.parquet")
    found = HubStream(hub(folder, source_field="en", target_field="de"))
    with pytest.raises(DataError, match=r"set \(train\), shard 2 of 2, record 1235: de is null, which is no text$"):
        list(found.records(1, 1000))
    assert len(list(found.records(1, 1235))) == 265
    with pytest.raises(DataError, match=r"record 1: there is no field fr; there are en, de$"):
        list(HubStream(hub(folder, source_field="fr")).records(0))
    (folder / "train-1.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"^the set .*set cannot be read: "):
        list(HubStream(hub(folder, source_field="en", target_field="de")).records(1))


def test_line_feeds_are_counted_over_the_shards(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2):
        parquet.write_table(
            pyarrow.Table.from_pylist([{"a": "x\ny", "b": "z"}] * 2), folder / f"train-{number}.parquet"
        )
    found = HubStream(hub(folder, source_field="a", target_field="b"))
    assert {record.source for shard in range(2) for record in found.records(shard)} == {"x y"}
    for _ in range(2):
        found.report()
    assert [record.message for record in caplog.records if "line feed" in record.message] == [
        f"{folder} (train): 4 fields held a line feed; a space stands in its place"
    ]


def test_nothing_of_a_streamed_set_is_hashed_or_kept(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, "parquet")
    caplog.set_level(logging.INFO)
    config = config_of(
        data={"train": [hub(folder).model_dump()], "cache_dir": tmp_path / "kept"},
        tokenizer={"vocab_size": 40, "sample_lines": 100},
    )
    prepared = Preparation(config, 1)
    prepared.tokenizers()
    assert not (tmp_path / "kept").exists()
    assert "the tokenizer is trained on the first lines of the stream, at most 50 pairs" in caplog.text


class OfTwo(Processes):
    """One of two processes, of which the other always has something left."""

    rank, count = 1, 2

    def sum(self, values: Sequence[float]) -> list[float]:
        return [value + 1 for value in values]

    def gather(self, words: bytes) -> list[bytes]:
        return [words, words]


def test_who_is_at_the_end_of_its_share_before_the_others_reads_nothing_again_after_a_break(
    monkeypatch: pytest.MonkeyPatch, tokenizers: Tokenizers
) -> None:
    config = config_of(training={"batch_type": "sentences", "batch_size": 8})
    stream, state = stream_of(monkeypatch, [25, 25], config), TrainingState()

    def steps(feed: Streamed) -> Iterator[int]:
        """How many pairs each update has, to the end of the share."""
        going = True
        while going:
            yield sum(map(len, feed.next(state)[1]))
            going = feed.advance(state)

    trained, going = 0, True
    feed = Streamed(stream, tokenizers, config, None, 1, OfTwo(), state)
    while going:
        state.stream = feed.positions()
        assert trained + sum(steps(Streamed(stream, tokenizers, config, None, 1, OfTwo(), state))) == 25
        trained += sum(map(len, feed.next(state)[1]))
        going = feed.advance(state)
    state.stream = feed.positions()
    assert trained == 25
    assert sum(steps(Streamed(stream, tokenizers, config, None, 1, OfTwo(), state))) == 0
