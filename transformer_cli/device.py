"""What `auto` means: device, precision, threads, form of attention, and how much a decoding batch may hold."""

import ctypes
import re
from contextlib import suppress
from typing import Literal

import torch

from transformer_cli.errors import ConfigError

Precision = Literal["fp32", "bf16", "fp16"]
PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


# The names and numbers of <malloc.h>, and up to how many bytes are kept.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 1 << 30


def choose_device(name: str) -> torch.device:
    """The device of a configured name; `auto` takes cuda, then mps, then cpu. ConfigError when it is not there."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if not available[name]:
        there = ", ".join(kind for kind, there in available.items() if there)
        raise ConfigError(f"device {name} is not available here; there is: {there}. Use --set device=auto or --device")
    if name == "cuda":
        # It would plan anew for every shape of a batch, of which there are thousands, and has had wrong results with
        # masks (pytorch#196678); flash and memory-efficient attention stay.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device(name)


# Width from which a CPU trains faster in bf16; below, the conversions cost more than the products save.
_BF16_FROM_WIDTH = 256


def training_precision(name: PrecisionName, device: torch.device, d_model: int) -> Precision:
    """The number format to train in: `auto` is bf16 where the device multiplies it natively and it pays, else fp32."""
    if name != "auto":
        return name
    if device.type == "cpu":
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return "bf16" if native and d_model >= _BF16_FROM_WIDTH else "fp32"
    return _fastest_on_gpu(device)


def decoding_precision(name: PrecisionName, device: torch.device) -> Precision:
    """The number format to translate in: `auto` is fp32 on CPU and bf16 on a GPU that multiplies it natively."""
    if name != "auto":
        return name
    return _fastest_on_gpu(device)


def _fastest_on_gpu(device: torch.device) -> Precision:
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"


def attention_form(
    device: torch.device, precision: Precision, *, training: bool = True
) -> Literal["written_out", "fused"]:
    """The faster of the two equal forms of attention: on CPU the fused one is slow backward in bf16."""
    return "written_out" if training and device.type == "cpu" and precision == "bf16" else "fused"


def large_parts(device: torch.device, precision: Precision) -> bool:
    """Whether an update is computed in few large parts and not in small ones that stay in cache: on a GPU, and in half
    precision, whose products have a price of their own on a processor, whatever their size."""
    return device.type == "cuda" or precision != "fp32"


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """The context in which a model computes in a precision; its weights stay fp32."""
    return torch.autocast(device.type, DTYPES[precision], enabled=precision != "fp32")


def is_out_of_memory(error: Exception) -> bool:
    """Whether this is what a device without memory raises; PyTorch's own allocator on CPU has no class for it, and
    neither has cuBLAS."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        words in str(error) for words in ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    )


def give_back_memory(device: torch.device) -> None:
    """Free what a failed attempt held, and count it no more as needed. To be called after its error was handled, which
    holds it, too."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def memory_asked_for(error: Exception) -> str:
    """How much memory there was not, as far as the error of `is_out_of_memory` tells, in words behind others."""
    asked = re.search(r"tried to allocate ([\d.]+) ?(bytes|\w?iB)", str(error), re.IGNORECASE)
    if asked is None:
        return ""
    amount = f"{int(asked[1]) / 2**30:.2f} GiB" if asked[2] == "bytes" else f"{asked[1]} {asked[2]}"
    return f" ({amount} more were asked for)"


def set_threads(threads: int | None) -> int:
    """Compute with this many threads, or with PyTorch's default; returns how many."""
    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def keep_freed_memory() -> None:
    """Have the C library of Linux keep memory that is freed in one step for the next.

    Left alone it gives the end of its heap back to the system, and getting that again, page by page, takes several
    times as long as the softmax over a vocabulary that is computed there. Another library is left as it is.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT)
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT)


def decoding_cells(device: torch.device) -> int:
    """The most cells (rows of all beams x longest source) of a decoding batch."""
    return 16_384 if device.type == "cpu" else 131_072
