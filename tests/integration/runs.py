"""Whole runs: what they left behind, compared, and commands in processes of their own that start at once."""

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

from transformer_cli import checkpoint
from transformer_cli.run_files import list_checkpoints
from transformer_cli.training.step import Updater, UpdateResult

CLOCK = ("seconds", "tokens_per_s")
WITHIN = 60  # seconds

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["transformer_cli.cli", "transformer_cli.training.loop", "datasets"])


def record_weights() -> None:
    """Before a command: have written down after each update, in weights-RANK beside the run, how many pairs this
    process computed and what the weights are."""
    update = Updater.update
    path = Path(sys.argv[sys.argv.index("--run-dir") + 1]).with_name(f"weights-{os.environ['RANK']}")

    def recorded(self: Updater, batches: Any, step: int, rate: float) -> UpdateResult:
        result = update(self, batches, step, rate)
        total = [repr(float(tensor.detach().double().square().sum())) for tensor in self.model.parameters()]
        with path.open("a") as file:
            file.write(" ".join([str(sum(len(batch.src) for batch in batches)), *total]) + "\n")
        return result

    Updater.update = recorded  # type: ignore[method-assign]


def metrics(run: Path) -> list[dict[str, Any]]:
    """The events of a run without what the clock says."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in event.items() if key not in CLOCK} for event in found]


def updates_done(run: Path) -> int:
    """How many updates a run with log_steps 1 has logged; it may be in the middle of writing."""
    try:
        return (run / "metrics.jsonl").read_bytes().count(b'"event": "train"')
    except FileNotFoundError:
        return 0


def saved_steps(run: Path) -> list[int]:
    return [step for step, _ in list_checkpoints(run)]


def assert_same_run(run: Path, unbroken: Path) -> None:
    """The same files, and the same in them to the last bit, but for what tells of the clock and the machine."""
    assert _files(run).keys() == _files(unbroken).keys(), sorted(_files(run).keys() ^ _files(unbroken).keys())
    for name, path in _files(unbroken).items():
        if name.endswith(".safetensors"):
            _assert_same_file(_files(run)[name], path)
        elif name.startswith(("samples", "test")):
            assert _files(run)[name].read_bytes() == path.read_bytes(), name
    assert metrics(run) == metrics(unbroken), "metrics.jsonl"


def _files(run: Path) -> dict[str, Path]:
    return {str(path.relative_to(run)): path for path in run.rglob("*") if path.is_file()}


def _assert_same_file(path: Path, other: Path) -> None:
    one, two = checkpoint.read(path), checkpoint.read(other)
    for ours, theirs in ((one.weights, two.weights), (one.optimizer, two.optimizer)):
        assert ours.keys() == theirs.keys(), path
        different = [name for name in theirs if not torch.equal(ours[name], theirs[name])]
        assert different == [], f"{path}: {different}"
    assert one.origin == two.origin, path
    assert one.tokenizers == two.tokenizers, path
    assert _without_clock(one.training) == _without_clock(two.training), path


def _without_clock(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_clock(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key not in CLOCK
    }


def start(
    arguments: Sequence[object],
    output: Path,
    *,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> BaseProcess:
    """Start `transformer-cli ARGUMENTS` in a process that is forked from one which has imported everything.

    What it says on stdout and stderr goes to the end of `output`; `before` is called in it first.
    """
    words = [str(argument) for argument in arguments]
    process = _FORKS.Process(target=_run, args=(words, output, dict(environment or {}), before))
    process.start()
    return process


def _run(words: list[str], output: Path, environment: dict[str, str], before: Callable[[], None] | None) -> None:
    from transformer_cli.cli import app

    os.environ.update(environment)
    torch.set_num_threads(1)
    file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["transformer-cli", *words]
    if before is not None:
        before()
    app(words)


def in_processes(
    count: int,
    words: Sequence[object],
    folder: Path,
    before: Callable[[], None] | None = None,
    main_code: int = 0,
    others_code: int = 0,
) -> None:
    """Run a command in processes such as torchrun would start. What each says is in FOLDER/RANK."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # torchrun, too, holds it itself
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    address["WORLD_SIZE"] = str(count)
    started = [
        start(
            words, folder / str(rank), environment=address | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, before=before
        )
        for rank in range(count)
    ]
    for process in started:
        process.join(WITHIN)
    codes = [process.exitcode for process in started]
    said = [(folder / str(rank)).read_text() for rank in range(count)]
    assert codes == [main_code] + [others_code] * (count - 1), (codes, said)
