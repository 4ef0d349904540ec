"""What is kept is what comes back, and whatever is damaged, half written or older than its file is not believed."""

import hashlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transformer_cli.data.cache import Cache, cache_folder, key_of
from transformer_cli.data.dataset import Sequences, TokenDataset

VALUES = {"counts": {"read": 5}, "sizes": [2, 3]}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kept")


def sequences(*lists: list[int], dtype: Any = np.uint16) -> Sequences:
    starts = np.cumsum([0, *map(len, lists)])
    return Sequences(np.array([id_ for ids in lists for id_ in ids], dtype=dtype), starts)


def chunks() -> Iterator[TokenDataset]:
    yield TokenDataset(sequences([4, 5], [6]), sequences([7], [8, 9, 10], dtype=np.uint32))
    yield TokenDataset(sequences([11, 65535, 13]), sequences([70_000], dtype=np.uint32))


def as_lists(side: Sequences) -> list[list[int]]:
    return [side[i].tolist() for i in range(len(side))]


def keep(cache: Cache, key: str = "key") -> None:
    cache.keep_dataset(key, chunks(), lambda: VALUES)


def is_whole(cache: Cache, key: str = "key") -> bool:
    found = cache.dataset(key)
    if found is None:
        return False
    dataset, values = found
    assert as_lists(dataset.source) == [[4, 5], [6], [11, 65535, 13]]
    assert as_lists(dataset.target) == [[7], [8, 9, 10], [70_000]]
    assert values == VALUES
    return True


def names(cache: Cache) -> list[str]:
    return sorted(path.name for path in cache.folder.iterdir()) if cache.folder.exists() else []


# --- ids ------------------------------------------------------------------------------------------------------------


def test_chunks_come_back_as_one_dataset_in_a_memory_map(cache: Cache) -> None:
    assert cache.dataset("key") is None
    keep(cache)
    assert is_whole(cache)
    assert names(cache) == ["tokens-key.arrow", "tokens-key.json"]
    found = cache.dataset("key")
    assert found is not None
    for column in found[0].columns().values():
        assert not column.ids.flags.owndata
        assert not column.ids.flags.writeable
    assert (found[0].source.ids.itemsize, found[0].target.ids.itemsize) == (2, 4)


def test_no_pairs_at_all_come_back_as_such(cache: Cache) -> None:
    cache.keep_dataset("none", [TokenDataset(sequences(), sequences())], lambda: VALUES)
    found = cache.dataset("none")
    assert found is not None
    assert len(found[0].source) == len(found[0].target) == 0


def test_neither_writing_nor_reading_ids_loads_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    program = """
import sys
from pathlib import Path
import numpy as np
from transformer_cli.data.cache import Cache
from transformer_cli.data.dataset import Sequences, TokenDataset
cache = Cache(Path(sys.argv[1]))
side = Sequences(np.array([4, 5, 6], np.uint16), np.array([0, 2, 3]))
cache.keep_dataset("key", [TokenDataset(side, side)], dict)
print(cache.dataset("key")[0].source[0].tolist(), "pandas" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout == "[4, 5] False\n"


def test_an_arrow_file_that_lost_its_end_or_has_another_bit_is_named_and_not_believed(
    cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    keep(cache)
    path = cache.folder / "tokens-key.arrow"
    whole = path.read_bytes()
    for place in range(0, len(whole), 50):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not is_whole(cache), place
        path.write_bytes(whole[:place])
        assert not is_whole(cache), place
    assert caplog.messages[0] == f"{path} is damaged: the text is tokenised anew"
    keep(cache)
    assert is_whole(cache)


def test_an_arrow_file_alone_is_not_believed(cache: Cache) -> None:
    keep(cache)
    (cache.folder / "tokens-key.json").unlink()
    assert not is_whole(cache)
    keep(cache)
    (cache.folder / "tokens-key.arrow").unlink()
    assert not is_whole(cache)


def test_an_error_half_way_leaves_nothing(cache: Cache) -> None:
    def broken() -> Iterator[TokenDataset]:
        yield next(chunks())
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        cache.keep_dataset("key", broken(), lambda: VALUES)
    assert names(cache) == []


@pytest.mark.parametrize("place", ["reading", "writing"])
def test_a_process_killed_half_way_leaves_nothing_that_is_believed(cache: Cache, place: str) -> None:
    def killed() -> Iterator[TokenDataset]:
        yield next(chunks())
        os._exit(9)

    def work() -> None:
        if place == "reading":
            cache.keep_dataset("key", killed(), lambda: VALUES)
        else:
            # The ids lie in their place, and the values that belong to them do not.
            cache.keep_dataset("key", chunks(), lambda: os._exit(9))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 9
    assert not is_whole(cache)
    keep(cache)
    assert is_whole(cache)


def test_two_that_prepare_the_same_at_once_do_not_disturb_each_other(cache: Cache) -> None:
    def interrupted() -> Iterator[TokenDataset]:
        first, second = chunks()
        yield first
        keep(cache)
        assert is_whole(cache)
        yield second

    cache.keep_dataset("key", interrupted(), lambda: VALUES)
    assert is_whole(cache)
    assert names(cache) == ["tokens-key.arrow", "tokens-key.json"]


def unfinished(cache: Cache, value: str) -> Path:
    """Where a program that is killed leaves a file, a different one for each value."""
    return cache.folder / f".tokens-{key_of(value)}.arrow.{key_of(value)[:16]}.tmp"


def test_what_was_abandoned_long_ago_is_removed_and_what_is_being_written_stays(cache: Cache) -> None:
    cache.folder.mkdir()
    old, new = unfinished(cache, "a"), unfinished(cache, "b")
    foreign = cache.folder / ".notes.tmp", cache.folder / ".tokens-mine.arrow.1.tmp"
    for path in (old, new, *foreign):
        path.touch()
    for path in (old, *foreign):
        os.utime(path, (0, 0))
    keep(cache)
    assert not old.exists()
    assert new.exists()
    assert all(path.exists() for path in foreign)


def test_what_another_user_abandoned_in_a_shared_folder_stays_and_the_cache_is_used(
    cache: Cache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.folder.mkdir()
    theirs, mine = unfinished(cache, "a"), unfinished(cache, "b")
    for path in (theirs, mine):
        path.touch()
        os.utime(path, (0, 0))
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path == theirs:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    keep(cache)
    assert is_whole(cache)
    assert cache.writable
    assert caplog.messages == []
    assert (theirs.exists(), mine.exists()) == (True, False)


def age(path: Path, days: float) -> None:
    os.utime(path, (time.time() - days * 24 * 3600,) * 2)


def test_what_was_not_used_for_30_days_goes_when_something_is_written_and_nothing_else(
    cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    old, recent, used = key_of("old"), key_of("recent"), key_of("used")
    for key in (old, recent, used):
        keep(cache, key)
        cache.keep("held-out", key, {})
    foreign = cache.folder / "tokens.arrow", cache.folder / "tokens-of-mine.json", cache.folder / "file-0.json"
    for path in foreign:
        path.touch()
    for path in cache.folder.iterdir():
        age(path, 29.9 if recent in path.name else 30.1)
    reader = Cache(cache.folder)
    assert is_whole(reader, used)
    assert reader.record("held-out", used) == {}
    reader.keep("tokenizer", key_of("new"), {})
    assert names(cache) == sorted(
        [
            *(path.name for path in foreign),
            *(f"held-out-{key}.json" for key in (recent, used)),
            *(f"tokens-{key}.{suffix}" for key in (recent, used) for suffix in ("arrow", "json")),
            f"tokenizer-{key_of('new')}.json",
        ]
    )
    (message,) = caplog.messages
    assert message.endswith(f" MB that had not been used for 30 days from the cache {cache.folder}")


def test_ids_that_a_program_has_mapped_outlive_their_removal(cache: Cache) -> None:
    keep(cache, key_of("a"))
    found = cache.dataset(key_of("a"))
    assert found is not None
    for path in cache.folder.iterdir():
        age(path, 31)
    other = Cache(cache.folder)
    other.keep("tokenizer", key_of("new"), {})
    assert names(cache) == [f"tokenizer-{key_of('new')}.json"]
    dataset, _ = found
    assert as_lists(dataset.source) == [[4, 5], [6], [11, 65535, 13]]
    assert as_lists(dataset.target) == [[7], [8, 9, 10], [70_000]]


def test_an_entry_half_of_which_was_removed_is_made_anew_without_a_word(
    cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    for suffix in ("json", "arrow"):
        keep(cache)
        (cache.folder / f"tokens-key.{suffix}").unlink()
        assert cache.dataset("key") is None
    assert caplog.messages == []


def _use(folder: Path) -> None:
    cache = Cache(folder)
    for number in range(40):
        key = key_of("shared", number % 2)
        if not is_whole(cache, key):
            keep(cache, key)
        for path in folder.glob("tokens-*"):
            with suppress(FileNotFoundError):
                age(path, 31)
        Cache(folder).keep("tokenizer", key_of(os.getpid()), {})


def test_programs_that_use_and_remove_the_same_entries_at_once_find_them_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    several = [multiprocessing.get_context("fork").Process(target=_use, args=(tmp_path / "kept",)) for _ in range(3)]
    for process in several:
        process.start()
    for process in several:
        process.join(60)
    assert [process.exitcode for process in several] == [0, 0, 0]


def test_a_folder_that_cannot_be_written_is_told_once_and_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file" / "kept")
    keep(cache)
    cache.keep("kind", "key", {})
    assert not is_whole(cache)
    assert not cache.writable
    (message,) = caplog.messages
    assert message.startswith(f"cannot write to the cache {cache.folder} (Not a directory): ")
    assert "data.cache_dir" in message


def test_one_that_only_reads_writes_nothing(cache: Cache, tmp_path: Path) -> None:
    reader = Cache(cache.folder, writable=False)
    (tmp_path / "text").write_text("a\n")
    reader.file_hash(tmp_path / "text")
    keep(reader)
    reader.keep("kind", "key", {})
    assert not cache.folder.exists()
    keep(cache)
    assert is_whole(reader)


# --- records --------------------------------------------------------------------------------------------------------


def test_a_record_comes_back_by_its_key(cache: Cache) -> None:
    cache.keep("kind", "key", {"a": [1, "ä"], "b": 2**63 + 1})
    assert cache.record("kind", "key") == {"a": [1, "ä"], "b": 2**63 + 1}
    assert cache.record("kind", "other") is None
    assert cache.record("other", "key") is None


def test_a_damaged_record_is_named_and_not_believed(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    cache.keep("kind", "key", {"a": 12})
    path = cache.folder / "kind-key.json"
    whole = path.read_text()
    for damaged in (whole.replace("12", "13"), whole[:-3], "", "[]", "{}", "\0" * 20):
        caplog.clear()
        path.write_text(damaged)
        assert cache.record("kind", "key") is None
        assert caplog.messages == [f"{path} is damaged and made anew"]


def test_keys_differ_by_each_value_and_its_place() -> None:
    keys = [key_of(1, 2), key_of(2, 1), key_of([1, 2]), key_of("1", 2), key_of(b"1", 2), key_of({"a": 1}), key_of()]
    assert len(set(keys)) == len(keys)
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_file_is_read_again_only_when_its_size_or_time_has_changed(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\n")
    os.utime(path, ns=(0, 1_000))
    read: list[str] = []

    def digest(file: Any, name: str) -> Any:
        read.append(file.name)
        return hashlib.new(name, file.read())

    monkeypatch.setattr(hashlib, "file_digest", digest)
    expected = hashlib.sha256(b"one\n").hexdigest()
    assert [cache.file_hash(path), cache.file_hash(path), Cache(cache.folder).file_hash(path)] == [expected] * 3
    assert len(read) == 1
    os.utime(path, ns=(0, 2_000))
    assert cache.file_hash(path) == expected
    assert len(read) == 2
    path.write_bytes(b"two\n")
    os.utime(path, ns=(0, 3_000))
    assert cache.file_hash(path) == hashlib.sha256(b"two\n").hexdigest()
    path.write_bytes(b"three\n")
    os.utime(path, ns=(0, 3_000))
    assert cache.file_hash(path) == hashlib.sha256(b"three\n").hexdigest()


def test_a_file_that_has_changed_gets_another_record_as_the_first_may_be_another_users(
    cache: Cache, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("one\n")
    cache.file_hash(tmp_path / "text")
    (first,) = cache.folder.iterdir()
    before = first.read_bytes()
    (tmp_path / "text").write_text("three\n")
    cache.file_hash(tmp_path / "text")
    assert first.read_bytes() == before
    assert len(names(cache)) == 2


def test_the_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "transformer_cli"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "transformer_cli"


def test_who_has_no_home_has_a_folder_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_home(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_folder() == tmp_path / "transformer_cli"
