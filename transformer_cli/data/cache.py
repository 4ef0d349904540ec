"""A cache folder for prepared data: tokenizers, held-out lines and token ids.

KIND-KEY.json      a few values with their checksum: the hash of a data file, trained tokenizers, held-out lines
tokens-KEY.arrow   the ids of all pairs (Arrow IPC, large lists), memory-mapped; tokens-KEY.json has its checksum

The key is a hash of everything that determines the content. Writes are atomic: a file is written under a temporary name
and renamed, and the .json of an .arrow is written last. Concurrent or killed programs thus never leave an entry that a
later one takes for valid. A file's modification time is its last use; entries unused for UNUSED_AFTER_DAYS are removed
when a new one is written. A memory map stays valid after its file is removed, so training runs are not disturbed.
"""

import hashlib
import json
import os
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile, gettempdir
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import ipc

from transformer_cli.data.dataset import Sequences, TokenDataset
from transformer_cli.log import LOGGER

_BLOCK = 1 << 22
_ABANDONED_AFTER = 24 * 3600  # seconds; an older temporary file is from a killed program
UNUSED_AFTER_DAYS = 30
# Remove no foreign file.
_ENTRY = re.compile(r"(?:file|tokenizer|held-out|tokens)-[0-9a-f]{24}\.(?:json|arrow)")
_UNFINISHED = re.compile(rf"\.{_ENTRY.pattern}\.[0-9a-f]{{16}}\.tmp")

Record = dict[str, Any]


def cache_folder() -> Path:
    """The default folder: in the user's cache folder, or in the temporary folder if the user has no home."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        folder = Path(gettempdir())
    return folder / "transformer_cli"


def key_of(*values: Any) -> str:
    """A hash of plain values, paths and bytes, as hexadecimal text."""
    text = json.dumps(
        values, sort_keys=True, default=lambda value: value.hex() if isinstance(value, bytes) else str(value)
    )
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class Cache:
    """A folder of records and token ids. An entry that cannot be read or written is logged, never an error; the caller
    prepares it again. With `writable` false nothing is written."""

    def __init__(self, folder: Path, writable: bool = True) -> None:
        self.folder = folder
        self.writable = writable
        self._tidied = False

    def record(self, kind: str, key: str) -> Record | None:
        """The values stored under a key; None if there are none or their checksum is wrong."""
        path = self._path(kind, key, "json")
        try:
            content = json.loads(path.read_bytes())
            if content["checksum"] == key_of(content["values"]):
                values: Record = content["values"]
                self._note_use(path)
                return values
        except OSError:
            return None
        except (ValueError, TypeError, KeyError):
            pass
        LOGGER.warning("%s is damaged and made anew", path)
        return None

    def keep(self, kind: str, key: str, values: Record) -> None:
        """Store values under a key."""
        text = json.dumps({"checksum": key_of(values), "values": values})
        self._write(self._path(kind, key, "json"), lambda path: path.write_text(text, encoding="utf-8"))

    def file_hash(self, path: Path) -> str:
        """The SHA-256 of a file, cached while its size and modification time stay the same."""
        stat = path.stat()
        # With them in the key no record is written over, which could be another user's in a shared folder.
        key = key_of(path.absolute(), stat.st_size, stat.st_mtime_ns)
        remembered = self.record("file", key)
        if remembered is not None:
            return str(remembered["sha256"])
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.keep("file", key, {"path": str(path), "sha256": digest})
        return digest

    def dataset(self, key: str) -> tuple[TokenDataset, Record] | None:
        """The memory-mapped ids under a key and the values stored with them; None if missing or damaged."""
        path = self._path("tokens", key, "arrow")
        self._note_use(path)  # before the slow read, so that no other program removes the file meanwhile
        record = self.record("tokens", key)
        if record is None:
            return None
        try:
            # The checksum reads the file: pages touched through a memory map would count as this program's memory.
            if _checksum(path) == record["crc32"]:
                batch = ipc.open_file(pyarrow.memory_map(str(path))).get_batch(0)
                columns = {name: _sequences(batch[name]) for name in batch.schema.names}
                return TokenDataset.of(columns), record["values"]
        except FileNotFoundError:
            return None  # another program removed it as unused
        except (OSError, pyarrow.ArrowInvalid):
            pass
        LOGGER.warning("%s is damaged: the text is tokenised anew", path)
        return None

    def keep_dataset(self, key: str, chunks: Iterable[TokenDataset], values: Callable[[], Record]) -> None:
        """Store the ids of all chunks under a key, and with them `values()`, called after the last chunk.

        The chunks are not held in memory but in unnamed temporary files, which vanish when this program ends.
        """

        checksum = 0

        def fill(path: Path) -> None:
            nonlocal checksum
            columns: dict[str, _Column] = defaultdict(lambda: _Column(self.folder))
            for chunk in chunks:
                for name, sequences in chunk.columns().items():
                    columns[name].append(sequences)
            batch = pyarrow.record_batch({name: column.array() for name, column in columns.items()})
            with pyarrow.OSFile(str(path), "wb") as file, ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            checksum = _checksum(path)

        if self._write(self._path("tokens", key, "arrow"), fill):
            self.keep("tokens", key, {"crc32": checksum, "values": values()})

    def _path(self, kind: str, key: str, suffix: str) -> Path:
        return self.folder / f"{kind}-{key}.{suffix}"

    def _write(self, path: Path, fill: Callable[[Path], object]) -> bool:
        """Write a file atomically: let `fill` write a temporary file, then rename it. Returns whether it succeeded."""
        if not self.writable:
            return False
        temporary = path.with_name(f".{path.name}.{token_hex(8)}.tmp")  # random: others may write the same entry
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._tidy()
            try:
                fill(temporary)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            self.writable = False
            LOGGER.warning(
                "cannot write to the cache %s (%s): the text will be prepared again at the next start. Free some space "
                "or choose another folder with data.cache_dir",
                self.folder,
                error.strerror or error,
            )
        return self.writable

    def _note_use(self, path: Path) -> None:
        if self.writable:
            with suppress(OSError):
                os.utime(path)

    def _tidy(self) -> None:
        """Remove abandoned temporary files and unused entries, once per program."""
        if self._tidied:
            return
        self._tidied = True
        now = time.time()
        for unfinished in self.folder.glob(".*.tmp"):
            with suppress(OSError):  # in a folder of several users that of another stays, which its owner removes
                if _UNFINISHED.fullmatch(unfinished.name) and now - unfinished.stat().st_mtime > _ABANDONED_AFTER:
                    unfinished.unlink()
        removed = 0
        # Remove a .json before its .arrow: an .arrow without a .json is ignored.
        for entry in sorted(self.folder.iterdir(), key=lambda path: path.suffix, reverse=True):
            with suppress(OSError):  # on systems where a memory-mapped file cannot be removed, it stays
                stat = entry.stat()
                if _ENTRY.fullmatch(entry.name) and now - stat.st_mtime > UNUSED_AFTER_DAYS * 24 * 3600:
                    entry.unlink()
                    removed += stat.st_size
        if removed:
            LOGGER.info(
                "removed %s MB that had not been used for %d days from the cache %s",
                f"{removed / 1e6:,.1f}",
                UNUSED_AFTER_DAYS,
                self.folder,
            )


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _sequences(lists: Any) -> Sequences:
    return Sequences(_as_numpy(lists.values), _as_numpy(lists.offsets))


# pyarrow's own conversions from and to NumPy import pandas if it is installed, which takes a third of a second.


def _as_numpy(numbers: Any) -> NDArray[Any]:
    dtype, buffer = np.dtype(str(numbers.type)), numbers.buffers()[1]
    if not len(numbers):
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype, count=len(numbers), offset=numbers.offset * dtype.itemsize)


def _as_arrow(numbers: NDArray[Any]) -> Any:
    kind = pyarrow.from_numpy_dtype(numbers.dtype)
    return pyarrow.Array.from_buffers(kind, len(numbers), [None, pyarrow.py_buffer(numbers)])


class _Column:
    """Sequences gathered in unnamed temporary files, then memory-mapped as one Arrow array."""

    def __init__(self, folder: Path) -> None:
        self._ids = TemporaryFile(dir=folder)  # noqa: SIM115  # closed when their memory maps are
        self._starts = TemporaryFile(dir=folder)  # noqa: SIM115
        self._starts.write(np.zeros(1, dtype=np.int64).data)
        self._end = 0
        self._type: np.dtype[Any] = np.dtype(np.uint16)

    def append(self, sequences: Sequences) -> None:
        self._ids.write(sequences.ids.data)
        self._starts.write((sequences.starts[1:] + self._end).data)
        self._end += len(sequences.ids)
        self._type = sequences.ids.dtype

    def array(self) -> Any:
        ids, starts = _mapped(self._ids, self._type), _mapped(self._starts, np.dtype(np.int64))
        return pyarrow.LargeListArray.from_arrays(_as_arrow(starts), _as_arrow(ids))


def _mapped(file: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    file.flush()
    return np.memmap(file, dtype, mode="r") if file.tell() else np.zeros(0, dtype)
