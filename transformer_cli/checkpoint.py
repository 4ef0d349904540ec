"""The model file: one safetensors file with all that translation needs.

    tensors    model.NAME       the weights, shared ones once (loading ties them again)
               tokenizer.SIDE   the SentencePiece models as bytes; SIDE is `shared`, or `source` and `target`
               optimizer.NAME   in a checkpoint only: the optimizer's state, to continue training
    metadata   one key with one JSON text: format_version, origin, config (without paths), training, checksum, and
               longest_source where it is known

A checkpoint is a model file with optimizer tensors and a training record. Files are written to a temporary name,
flushed to disk and renamed, so that a file under its final name is complete. Reading a file never runs code from it: no
pickle is read.
"""

import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from transformer_cli.config.load import config_from_plain
from transformer_cli.config.schema import Config, HoldOut
from transformer_cli.errors import CheckpointError, ConfigError, NewerVersionError
from transformer_cli.run_files import CHECKPOINTS, TEST

FORMAT_VERSION = 1
METADATA_KEY = "transformer_cli"
_HEADER = {"format_version": int, "origin": dict, "config": dict, "training": dict, "checksum": str}
# Ours, and those that safetensors itself creates: remove no foreign file.
_UNFINISHED = re.compile(r"\..+\.(?:safetensors|json|yaml|html)\.[0-9]+\.tmp|\.tmp[A-Za-z0-9]{6}")
_INTACT = "What was saved before is intact; make room on the disk and go on, or choose another folder with --run-dir"
_RESERVE = 1 << 20  # bytes, for the header and the other files of a run


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file. `training` and `optimizer` are empty unless it is a checkpoint."""

    config: Config
    tokenizers: Mapping[str, bytes]
    weights: Mapping[str, Tensor]
    origin: Mapping[str, Any]
    training: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Tensor] = field(default_factory=dict)
    longest_source: int | None = None
    """Pieces of the longest source in training; None where that is not known, as with a stream."""


def write(path: Path, model: ModelFile) -> None:
    """Write atomically. CheckpointError on failure, which leaves an earlier file at `path` intact."""
    tensors = {f"model.{name}": tensor for name, tensor in model.weights.items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in model.optimizer.items()}
    tensors |= {
        f"tokenizer.{side}": torch.frombuffer(bytearray(proto), dtype=torch.uint8)
        for side, proto in model.tokenizers.items()
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "origin": dict(model.origin),
        "config": _without_paths(model.config),
        "training": dict(model.training),
    }
    if model.longest_source is not None:
        content["longest_source"] = model.longest_source
    # The checksum covers the header as it will be read: JSON turns number keys into strings and tuples into lists.
    header: dict[str, Any] = json.loads(json.dumps(content))
    header["checksum"] = _checksum(header, tensors)
    try:
        _check_space(path, sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))
        with _replacing(path) as temporary:
            save_file(tensors, temporary, {METADATA_KEY: json.dumps(header, sort_keys=True)})
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {path}: {error}. {_INTACT}") from error


def read(path: Path) -> ModelFile:
    """Read and verify. CheckpointError for a file that is missing, damaged, foreign or from a newer version."""
    header, tensors = _open(path)
    if _checksum({key: value for key, value in header.items() if key != "checksum"}, tensors) != header["checksum"]:
        raise CheckpointError(f"{path} is damaged: its content does not match its checksum. Use another checkpoint")
    try:
        config = config_from_plain(header["config"])
    except ConfigError as error:
        raise CheckpointError(f"{path} holds a configuration that this version cannot read: {error}") from error
    tokenizers = {name: bytes(tensor.numpy().tobytes()) for name, tensor in _under("tokenizer", tensors).items()}
    if tokenizers.keys() not in ({"shared"}, {"source", "target"}):
        raise CheckpointError(f"{path} holds no tokenizers: it is damaged or not written by transformer_cli")
    return ModelFile(
        config=config,
        tokenizers=tokenizers,
        weights=_under("model", tensors),
        origin=header["origin"],
        training=header["training"],
        optimizer=_under("optimizer", tensors),
        longest_source=header.get("longest_source"),
    )


def remove_unfinished(run_dir: Path) -> None:
    """Remove the temporary files of processes that were killed while writing."""
    for folder in (run_dir, run_dir / CHECKPOINTS, run_dir / TEST):
        for path in folder.glob(".*"):
            if _UNFINISHED.fullmatch(path.name) and path.is_file():
                path.unlink(missing_ok=True)


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each weight over several files, summed in fp64. CheckpointError when names or shapes differ."""
    first = read(paths[0]).weights
    shapes = {name: tensor.shape for name, tensor in first.items()}
    total = {name: tensor.double() for name, tensor in first.items()}
    for path in paths[1:]:
        weights = read(path).weights
        if {name: tensor.shape for name, tensor in weights.items()} != shapes:
            raise CheckpointError(
                f"{path} cannot be averaged with {paths[0]}: their weights differ in name or shape. Average "
                "checkpoints of one run only"
            )
        for name, tensor in weights.items():
            total[name] += tensor
    return {name: (tensor / len(paths)).to(first[name].dtype) for name, tensor in total.items()}


def _without_paths(config: Config) -> dict[str, Any]:
    """The configuration as plain values; of the texts, only those held out of the training text remain."""
    content: dict[str, Any] = config.model_dump(mode="json")
    del content["training"]["init_from"], content["tokenizer"]["model"], content["tokenizer"]["target_model"]
    data = content["data"]
    del data["train"], data["cache_dir"]
    if not isinstance(config.data.valid, HoldOut):
        del data["valid"]
    data["test"] = {name: data["test"][name] for name, part in config.data.test.items() if isinstance(part, HoldOut)}
    return content


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def _checksum(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """CRC-32 of the header and every tensor in order of name; safetensors itself has no checksum."""
    crc = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        crc = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, crc)
    return f"crc32:{crc:08x}"


def _open(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and all tensors of a model file."""
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder, not a model file")
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if METADATA_KEY not in metadata:
                raise CheckpointError(f"{path} is a safetensors file, but not one that transformer_cli wrote")
            header = _parse(metadata[METADATA_KEY], path)
            return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise CheckpointError(f"{path} {_what_is_wrong(path)}") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def _parse(text: str, path: Path) -> dict[str, Any]:
    """The header of a model file, checked to have every key with its type."""
    try:
        header: dict[str, Any] = json.loads(text)
        version = header["format_version"]
        if version > FORMAT_VERSION:
            raise NewerVersionError(
                f"{path} has format version {version}, and this transformer_cli reads up to {FORMAT_VERSION}: "
                "update transformer_cli to use it"
            )
        if not all(isinstance(header[key], kind) for key, kind in _HEADER.items()):
            raise TypeError("a key of the header has a value of a wrong type")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its header cannot be read") from error
    return header


def _what_is_wrong(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(9)
    if not start:
        return "is empty: its writing was cut off"
    # A safetensors file begins with the length of its header in 8 bytes, which may look like either signature, followed
    # by the header's brace. A file of at most 8 bytes does not show which it is.
    if start[8:] not in (b"", b"{") and (start[:2] == b"PK" or start[:1] == b"\x80"):
        return (
            "is not a safe model file: it looks like a PyTorch pickle, which can run code when it is opened, so it was "
            "not. Only safetensors files written by transformer_cli are read"
        )
    return "is not a safetensors file, or is cut short or damaged"


def _check_space(path: Path, needed: int) -> None:
    """CheckpointError when the disk has too little space, before anything is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path.parent).free
    if free < needed + _RESERVE:
        raise CheckpointError(
            f"cannot write {path}: it takes {needed / 2**20:,.1f} MiB, and {free / 2**20:,.1f} MiB are free. {_INTACT}"
        )


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder; once written, it is flushed to disk and renamed to `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # safetensors makes files that only their owner can read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            with suppress(OSError):  # the new file is in place; some file systems cannot flush a folder
                os.fsync(folder)
        finally:
            os.close(folder)
