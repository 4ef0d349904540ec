"""Choices that depend on the device: precision, threads, form of attention, size of a decoding batch, use of memory."""

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch

from transformer_cli.errors import ConfigError

Precision = Literal["fp32", "bf16", "fp16"]
PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

T = TypeVar("T")

# d_model from which training on CPU is faster in bf16; below, little is left to gain.
_BF16_FROM_WIDTH = 128

# Parameters of mallopt, from <malloc.h>, and the number of bytes to keep.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 30
_MOST_KEPT_BY_OLDER = 1 << 25  # versions of glibc that refuse more


def choose_device(name: str) -> torch.device:
    """The device of a configured name; `auto` picks cuda, then mps, then cpu. ConfigError when it is not available."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if not available[name]:
        there = ", ".join(kind for kind, there in available.items() if there)
        raise ConfigError(f"device {name} is not available here; there is: {there}. Use --set device=auto or --device")
    if name == "cuda":
        # cuDNN attention would plan anew for each of thousands of batch shapes, and has given wrong results with masks
        # (pytorch#196678). Flash and memory-efficient attention stay enabled.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device(name)


def training_precision(name: PrecisionName, device: torch.device, d_model: int) -> Precision:
    """The precision to train in: `auto` is bf16 where the device supports it natively and it is faster, else fp32."""
    if name != "auto":
        return name
    if device.type == "cpu":
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return "bf16" if native and d_model >= _BF16_FROM_WIDTH else "fp32"
    return _fastest_on_gpu(device)


def decoding_precision(name: PrecisionName, device: torch.device) -> Precision:
    """The precision to translate in: `auto` is bf16 on a GPU that supports it natively, else fp32."""
    if name != "auto":
        return name
    return _fastest_on_gpu(device)


def _fastest_on_gpu(device: torch.device) -> Precision:
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"


def attention_form(
    device: torch.device, precision: Precision, *, training: bool = True
) -> Literal["written_out", "fused"]:
    """The faster of two equivalent forms of attention: on CPU, the backward pass of the fused one is slow in bf16."""
    return "written_out" if training and device.type == "cpu" and precision == "bf16" else "fused"


def large_parts(device: torch.device, precision: Precision) -> bool:
    """Whether to compute an update in few large micro-batches instead of small ones that stay in cache: on a GPU, and
    in half precision, where every matrix product on a CPU has a fixed cost."""
    return device.type == "cuda" or precision != "fp32"


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """The autocast context of a precision, for a model with fp32 weights."""
    return torch.autocast(device.type, DTYPES[precision], enabled=precision != "fp32")


@dataclass(frozen=True)
class OutOfMemory:
    """The outcome of a computation that ran out of memory; `missing` says how much more it asked for, as words to
    append, if that is known."""

    missing: str


def attempt(compute: Callable[[], T], device: torch.device) -> T | OutOfMemory:
    """The result of `compute`, or OutOfMemory, when all memory of the failed computation is free again."""
    try:
        return compute()
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        outcome = OutOfMemory(_memory_asked_for(error))
    # Only here: an error that is being handled holds the frames of what failed, and these hold its tensors.
    _give_back_memory(device)
    return outcome


def _is_out_of_memory(error: Exception) -> bool:
    """Whether a device has run out of memory. PyTorch's CPU allocator and cuBLAS have no exception class for it."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        words in str(error) for words in ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    )


def _give_back_memory(device: torch.device) -> None:
    """Free the memory of a failed attempt, and take it out of the peak statistics."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _memory_asked_for(error: Exception) -> str:
    asked = re.search(r"tried to allocate ([\d.]+) ?(bytes|\w?iB)", str(error), re.IGNORECASE)
    if asked is None:
        return ""
    amount = f"{int(asked[1]) / 2**30:.2f} GiB" if asked[2] == "bytes" else f"{asked[1]} {asked[2]}"
    return f" ({amount} more were asked for)"


def set_threads(threads: int | None) -> int:
    """Compute with this many threads, or with PyTorch's default; return their number."""
    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def keep_freed_memory() -> None:
    """Make Linux's C library keep the memory that one step frees for the next.

    By default it returns the end of its heap to the system. Getting that back, page by page, takes 2 to 3 % of
    training, and in decoding several times as long as the softmax over a vocabulary. Other C libraries are left alone.
    """
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        # Each switches off that the library adapts both by itself, so neither must be set alone.
        if mallopt(_M_MMAP_THRESHOLD, _KEPT) or mallopt(_M_MMAP_THRESHOLD, _MOST_KEPT_BY_OLDER):
            mallopt(_M_TRIM_THRESHOLD, _KEPT)


def decoding_cells(device: torch.device) -> int:
    """The maximum number of cells (rows of all beams x longest source) of a decoding batch."""
    return 16_384 if device.type == "cpu" else 131_072
