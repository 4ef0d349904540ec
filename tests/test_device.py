"""What `auto` means, and what happens when the device asked for is not there."""

import warnings
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, get_args

import pytest
import torch

from transformer_cli import device
from transformer_cli.device import (
    OutOfMemory,
    Precision,
    attempt,
    attention_form,
    autocast,
    choose_device,
    decoding_cells,
    decoding_precision,
    keep_freed_memory,
    large_parts,
    set_threads,
    training_precision,
)
from transformer_cli.errors import ConfigError
from transformer_cli.model.attention import AttentionForm

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")


def machine_with(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in kinds)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in kinds)


# --- device ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "chosen"), [([], "cpu"), (["mps"], "mps"), (["cuda"], "cuda"), (["mps", "cuda"], "cuda")]
)
def test_auto_takes_the_best_that_is_there(monkeypatch: pytest.MonkeyPatch, there: list[str], chosen: str) -> None:
    machine_with(monkeypatch, *there)
    assert choose_device("auto").type == chosen


def test_a_named_device_is_taken_even_if_there_is_a_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch, "cuda", "mps")
    assert choose_device("cpu") == CPU
    assert choose_device("mps").type == "mps"


def test_a_device_that_is_not_there_is_an_error_that_says_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(monkeypatch, "mps")
    with pytest.raises(ConfigError) as error:
        choose_device("cuda")
    assert str(error.value) == (
        "device cuda is not available here; there is: mps, cpu. Use --set device=auto or --device"
    )
    assert error.value.exit_code == 2


# --- precision ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("avx512", "amx", "chosen"),
    [(False, False, "fp32"), (True, False, "bf16"), (False, True, "bf16"), (True, True, "bf16")],
)
def test_auto_trains_in_bf16_on_a_cpu_that_multiplies_it_natively_and_translates_in_fp32(
    monkeypatch: pytest.MonkeyPatch, avx512: bool, amx: bool, chosen: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert training_precision("auto", CPU, 128) == training_precision("auto", CPU, 512) == chosen
    assert training_precision("auto", CPU, 127) == "fp32"  # little is left to gain
    assert decoding_precision("auto", CPU) == "fp32"
    # whatever the CPU beside it
    assert training_precision("auto", MPS, 512) == decoding_precision("auto", MPS) == "fp32"


@pytest.mark.parametrize(("native", "chosen"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_on_a_gpu_that_multiplies_it_natively(
    monkeypatch: pytest.MonkeyPatch, native: bool, chosen: str
) -> None:
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return native or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    assert training_precision("auto", CUDA, 64) == chosen
    assert decoding_precision("auto", CUDA) == chosen


@pytest.mark.parametrize("name", get_args(Precision))
def test_a_precision_that_is_named_is_taken(name: Precision) -> None:
    for place in (CPU, CUDA, MPS):
        assert training_precision(name, place, 64) == decoding_precision(name, place) == name


def test_every_precision_has_its_type() -> None:
    assert set(device.DTYPES) == set(get_args(Precision))


def test_autocast_computes_in_half_precision_and_not_at_all_in_fp32() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with autocast(CPU, "fp32"):
            assert not torch.is_autocast_enabled("cpu")
            assert torch.equal(a @ b, torch.mm(a, b))
        with autocast(CPU, "bf16"):
            assert (a @ b).dtype == torch.bfloat16
        with autocast(CPU, "fp16"):
            assert (a @ b).dtype == torch.float16
    assert (a @ b).dtype == torch.float32


def test_fp32_also_holds_inside_another_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16), autocast(CPU, "fp32"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


# --- the rest -------------------------------------------------------------------------------------------------------


def test_attention_is_fused_but_for_bf16_on_a_cpu() -> None:
    forms = {
        (place.type, precision): attention_form(place, precision)
        for place in (CPU, CUDA, MPS)
        for precision in get_args(Precision)
    }
    assert set(forms.values()) == set(get_args(AttentionForm))
    assert [key for key, form in forms.items() if form == "written_out"] == [("cpu", "bf16")]


def test_an_update_is_computed_in_small_parts_in_fp32_without_a_gpu() -> None:
    small = [
        (place.type, precision)
        for place in (CPU, CUDA, MPS)
        for precision in get_args(Precision)
        if not large_parts(place, precision)
    ]
    assert small == [("cpu", "fp32"), ("mps", "fp32")]


def fail(error: Exception) -> NoReturn:
    raise error


def runs_out(error: Exception) -> bool:
    try:
        return isinstance(attempt(partial(fail, error), CPU), OutOfMemory)
    except type(error):
        return False


def test_what_succeeds_is_returned_and_another_error_is_raised() -> None:
    assert attempt(lambda: 7, CPU) == 7
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        attempt(partial(fail, RuntimeError("mat1 and mat2 cannot be multiplied")), CPU)


def test_what_a_failed_computation_held_is_free_when_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # An error that is being handled holds the frames of what failed, and they hold its tensors.
    held: list[Callable[[], Any]] = []
    gone: list[bool] = []

    def compute() -> None:
        tensor = torch.zeros(1)
        held.append(weakref.ref(tensor))
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device, "_give_back_memory", lambda _: gone.append(held[0]() is None))
    attempt(compute, CPU)
    assert gone == [True]


@pytest.mark.parametrize(("most", "kept"), [(1 << 30, 1 << 30), (1 << 25, 1 << 25), (0, None)])
def test_freed_memory_is_kept_by_both_settings_or_by_none(
    monkeypatch: pytest.MonkeyPatch, most: int, kept: int | None
) -> None:
    # The first call of mallopt ends that glibc adapts both, even if older versions refuse what they are asked.
    taken: dict[int, int] = {}

    def mallopt(parameter: int, value: int) -> int:
        if parameter == -3 and value > most:
            return 0
        taken[parameter] = value
        return 1

    monkeypatch.setattr(device.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    keep_freed_memory()
    assert taken == ({} if kept is None else {-3: kept, -1: 1 << 30})


def test_a_system_without_such_settings_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (OSError, AttributeError, TypeError):  # no library, no mallopt in it, and Windows
        monkeypatch.setattr(device.ctypes, "CDLL", lambda _, error=error: fail(error()))
        keep_freed_memory()


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
            True,
        ),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)"), False),
        (ValueError("out of memory"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_memory_that_ran_out_is_known_from_other_errors(error: Exception, is_one: bool) -> None:
    assert runs_out(error) == is_one


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", " (2.00 GiB more were asked for)"),
        ("you tried to allocate 41465600000 bytes. Error code 12", " (38.62 GiB more were asked for)"),
        ("CUBLAS_STATUS_ALLOC_FAILED", ""),
    ],
)
def test_how_much_memory_there_was_not_is_told_without_what_stands_around_it(told: str, words: str) -> None:
    assert attempt(partial(fail, torch.OutOfMemoryError(told)), CPU) == OutOfMemory(words)


def test_what_a_cpu_without_memory_raises_is_known() -> None:
    assert isinstance(attempt(lambda: torch.empty(2**60, dtype=torch.uint8), CPU), OutOfMemory)


def test_threads_are_set_and_told() -> None:
    before = torch.get_num_threads()
    try:
        assert set_threads(3) == torch.get_num_threads() == 3
        assert set_threads(None) == 3
        assert set_threads(1) == torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_decoding_batch_holds_a_long_line_and_its_beams() -> None:
    for place in (CPU, CUDA):
        assert decoding_cells(place) >= 8 * 1024


def test_where_cublas_has_no_memory_memory_has_run_out() -> None:
    assert runs_out(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert not runs_out(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"))
