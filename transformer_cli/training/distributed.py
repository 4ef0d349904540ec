"""The processes of one training run, behind a few methods that do nothing when there is only one process.

`torchrun` starts the processes and sets their ranks in the environment (RANK, LOCAL_RANK, WORLD_SIZE). Each computes
its share of every update; PyTorch's DistributedDataParallel (Li et al. 2020) averages the gradients. Only the main
process (rank 0) writes, validates and decides; the others wait for it.
"""

import atexit
import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from transformer_cli.errors import ProcessError, UserError
from transformer_cli.model.blocks import Linear
from transformer_cli.model.transformer import Transformer

_PEER_LOST_AFTER = timedelta(seconds=60)  # timeout of a collective, which all reach at about the same time
_SLOW_PEER_LOST_AFTER = timedelta(minutes=10)  # the same, if one may wait for the network or recompile
_STARTED_WITHIN = timedelta(minutes=10)
_POLL_SECONDS = 0.05
_LAST_WORDS = "last-words"
_FAILED, _MAIN = "failed", b"0"  # the key that says which process has failed, and the main one's rank
_LAST_WORDS_WITHIN = 10.0  # seconds for the main process to meet the same error

T = TypeVar("T")


class ReplicatedTransformer(DistributedDataParallel):
    """A model whose gradients are averaged over the processes during the backward pass."""

    module: Transformer

    @property
    def output(self) -> Linear:
        """The output projection, which the loss needs."""
        return self.module.output


class Processes:
    """A single process. `_Group` has the same methods for one of several."""

    rank = 0
    count = 1

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes, validates and decides."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """This process's own device of the given type."""
        return device

    def replicate(self, model: Transformer) -> Transformer | ReplicatedTransformer:
        """The model to call in training: its gradients are averaged over the processes."""
        return model

    def without_exchange(self, model: nn.Module) -> AbstractContextManager[None]:
        """Context in which backward passes accumulate gradients without an all-reduce."""
        return nullcontext()

    def share(self, parts: Sequence[T]) -> Sequence[T]:
        """This process's share of `parts`."""
        return parts[self.rank :: self.count]

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each value summed over the processes (fp64)."""
        return list(values)

    def min(self, value: int) -> int:
        """The minimum of the processes' values."""
        return value

    def broadcast(self, make: Callable[[], bytes]) -> bytes:
        """Call `make` in the main process only and broadcast the result; the others wait as long as it takes."""
        return make()

    def gather(self, words: bytes) -> list[bytes]:
        """Gather the message of every process in the main one, in rank order; the others get an empty list."""
        return [words]

    def barrier(self) -> None:
        """Wait until all processes are here; unlike in a collective, there is no timeout."""
        self.gather(b"")
        self.broadcast(bytes)
        self.gather(b"")  # the main process goes on last: its end may be that of the store

    def main_first(self, make: Callable[[], T]) -> T:
        """Call `make` in the main process first, then in the others, which reuse the files it has left on disk. All
        return together; where it can leave none, the others take as long again."""
        if not self.is_main:
            self.broadcast(bytes)
        made = make()
        if self.is_main:
            self.broadcast(bytes)
        self.barrier()
        return made


class _Group(Processes):
    """One process of several."""

    def __init__(self, store: Store, rank: int, count: int) -> None:
        self.rank = rank
        self.count = count
        self.store = store
        self.turn = 0
        self.exchange_device = torch.device("cpu")

    def device(self, device: torch.device) -> torch.device:
        if device.type != "cuda":
            return device
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        if local_rank >= torch.cuda.device_count():
            raise ProcessError(
                f"process {self.rank} has no GPU of its own: {torch.cuda.device_count()} are visible on this machine. "
                "Start as many processes as there are GPUs (torchrun --nproc-per-node)"
            )
        self.exchange_device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self.exchange_device)
        return self.exchange_device

    def replicate(self, model: Transformer) -> Transformer | ReplicatedTransformer:
        # The positional table is a buffer that grows independently in each process; it must not be broadcast.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about the argument's new name, which older versions lack
            return ReplicatedTransformer(model, broadcast_buffers=False)

    def without_exchange(self, model: nn.Module) -> AbstractContextManager[None]:
        assert isinstance(model, ReplicatedTransformer)
        return model.no_sync()

    def sum(self, values: Sequence[float]) -> list[float]:
        total = torch.tensor(values, dtype=torch.float64, device=self.exchange_device)
        dist.all_reduce(total)
        summed: list[float] = total.tolist()
        return summed

    def min(self, value: int) -> int:
        smallest = torch.tensor(value, device=self.exchange_device)
        dist.all_reduce(smallest, dist.ReduceOp.MIN)
        return int(smallest)

    def broadcast(self, make: Callable[[], bytes]) -> bytes:
        self.turn += 1
        key = f"broadcast-{self.turn}"
        if self.is_main:
            made = make()
            self._set(key, made)
            return made
        return self._wait_for(key)

    def gather(self, words: bytes) -> list[bytes]:
        self.turn += 1
        if not self.is_main:
            self._set(f"gather-{self.turn}-{self.rank}", words)
            return []
        return [words, *(self._wait_for(f"gather-{self.turn}-{rank}") for rank in range(1, self.count))]

    def _set(self, key: str, words: bytes) -> None:
        self.store.set(key, words)  # type: ignore[arg-type]  # its annotation says str; it accepts bytes, too

    def _wait_for(self, key: str) -> bytes:
        # Not a collective: those time out after a minute, and a validation may take longer.
        while not self.store.check([key]):
            if self.store.check([_FAILED]):
                if bytes(self.store.get(_FAILED)) == _MAIN:
                    raise SystemExit(UserError.exit_code)  # without a word: the main process says why
                raise ProcessError(_lost(self.rank))
            time.sleep(_POLL_SECONDS)
        return bytes(self.store.get(key))

    def note_failure(self) -> None:
        """Tell the processes that wait for this one that it has failed, unless another has failed before."""
        with suppress(RuntimeError):  # the main process has gone, and the store with it
            self.store.compare_set(_FAILED, "", str(self.rank))

    def is_said_by_main(self, words: str) -> bool:
        """Whether the main process fails with the same error text, within some seconds."""
        if self.is_main:
            self.store.set(_LAST_WORDS, words)
            return True
        with suppress(RuntimeError):  # the main process has gone, and the store with it
            until = time.monotonic() + _LAST_WORDS_WITHIN
            while time.monotonic() < until:
                if self.store.check([_LAST_WORDS]):
                    return bytes(self.store.get(_LAST_WORDS)).decode() == words
                time.sleep(_POLL_SECONDS)
        return False


def started() -> tuple[int, int]:
    """The rank of this process and the number of processes that torchrun started; (0, 1) without torchrun."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def processes(device_kind: str, slow: bool = False) -> Iterator[Processes]:
    """Connect the processes that torchrun started, for a type of device, or yield this one alone. `slow` gives
    collectives a longer timeout, for a stream or a compiled model.

    A lost connection becomes a ProcessError: another process has failed, and its own message says why. So does a
    UserError or OSError that the main process does not meet.
    """
    if started()[1] == 1:
        yield Processes()
        return
    group = None
    try:
        store, rank, count = next(iter(rendezvous("env://", timeout=_STARTED_WITHIN)))
        dist.init_process_group(
            "nccl" if device_kind == "cuda" else "gloo",
            store=PrefixStore("exchange", store),
            rank=rank,
            world_size=count,
            timeout=_SLOW_PEER_LOST_AFTER if slow else _PEER_LOST_AFTER,
        )
        # Destroyed at exit, not after training: a model that outlives the group would hold the last reference to it,
        # and its destructor holds the GIL while it waits for a thread that may need the GIL.
        atexit.register(_leave_group)
        group = _Group(PrefixStore("words", store), rank, count)
        try:
            yield group
        except BaseException:
            group.note_failure()
            raise
    except (UserError, OSError) as error:
        if isinstance(error, ProcessError) or group is None or group.is_said_by_main(str(error)):
            raise
        raise ProcessError(f"process {group.rank}: {error}") from error
    except (dist.DistError, RuntimeError) as error:
        if not _is_lost_peer(error):
            raise
        raise ProcessError(f"{_lost(started()[0])} ({str(error).splitlines()[0]})") from error


def _lost(rank: int) -> str:
    return (
        f"process {rank} lost the others: one of them has failed, and its own message says why. The run goes on with "
        "--resume."
    )


def _leave_group() -> None:
    # A model in a reference cycle holds the group, too, and a process that ends while threads of it run is aborted.
    gc.collect()
    dist.destroy_process_group()


def _is_lost_peer(error: Exception) -> bool:
    """Whether the connection was lost, which Gloo reports as a plain RuntimeError."""
    words = ("gloo", "Connection closed by peer", "Connection reset", "Broken pipe", "Timed out", "NCCL", "ncclRemote")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)
