"""Training speed beside two baselines: the same pairs, the same model, each in a process of its own, taken in turn.

    python scripts/bench_train.py --threads 1
    python scripts/bench_train.py --source train.en --target train.de --model medium --learn 300 --first-update

The baselines are a plain loop around `torch.nn.Transformer` and, with the extra `bench`, Hugging Face's `MarianMTModel`
from random weights. Both compute all logits at once, and each gets the faster of two cuts of the same pairs into
updates: the micro-batches of our plan, or one padded batch of like lengths. Making the batches is not timed.

A rate counts real target tokens, end symbols included and padding never. Ratios and shares go by CPU-seconds of the
process on a CPU, and by wall seconds elsewhere. The work of training is taken as 6 x (encoder parameters x source
tokens + decoder and output parameters x target tokens) operations, and compared with a product of two big square
matrices.
"""

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from bench_systems import LONGEST, MARIAN, OURS, PLAIN, SEED, System, build

from transformer_cli.config.schema import Corpus, ModelConfig, TokenizerConfig, TrainingConfig
from transformer_cli.data.batching import Batch, Indices, cut, joined_groups, make_batch, micro_batches, plan_epoch
from transformer_cli.data.corpus import Pair, read_pairs
from transformer_cli.data.dataset import TokenDataset, encode_pairs
from transformer_cli.data.demo import make_demo
from transformer_cli.data.filters import FilterCounts, drop_empty
from transformer_cli.data.tokenizer import PAD, train_tokenizers
from transformer_cli.device import DTYPES, Precision, choose_device, large_parts, training_precision
from transformer_cli.model.transformer import Transformer
from transformer_cli.training.schedule import cosine

SIZES = {
    "small": ModelConfig(d_model=128, ffn_dim=256, num_heads=4, encoder_layers=4, decoder_layers=4),
    "medium": ModelConfig(d_model=256, ffn_dim=1024, num_heads=4),
    "base": ModelConfig(),
    "big": ModelConfig(d_model=1024, ffn_dim=4096, num_heads=16, dropout=0.3),
}
DENSE_PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12}  # bf16 operations per second, by the maker
HELD_OUT = 30  # one pair in so many is kept for validation

Parts = list[Indices]  # the micro-batches of an update


class Tokens(NamedTuple):
    """Real tokens, end symbols included and padding never."""

    source: int
    target: int


def count_tokens(batches: Sequence[Batch]) -> Tokens:
    source = sum(int((batch.src != PAD).sum()) for batch in batches)
    return Tokens(source, target=sum(int((batch.tgt_out != PAD).sum()) for batch in batches))


@dataclass(frozen=True)
class Task:
    """What all systems are given. It can be sent to another process."""

    size: ModelConfig
    vocab_size: int
    training: TrainingConfig
    device: torch.device
    threads: int
    train: TokenDataset
    valid: TokenDataset

    def build(self, name: str, precision: Precision) -> System:
        choose_device(self.device.type)  # in each process, since it chooses kernels, too
        torch.set_num_threads(self.threads)
        return build(name, self.size, self.vocab_size, self.training, self.device, precision)

    def updates(self, precision: Precision) -> Iterator[Parts]:
        """As training plans and cuts them, epoch after epoch."""
        budget, kind = self.training.batch_size, self.training.batch_type
        for epoch in count():
            for update in plan_epoch(self.train, budget, kind, SEED, epoch):
                if large_parts(self.device, precision):
                    update = joined_groups(update, self.train, budget, kind)
                yield micro_batches(update, self.train, budget, kind)

    def batches(self, parts: Parts) -> list[Batch]:
        return [make_batch(self.train, part) for part in parts]


def one_batch_updates(updates: Sequence[Parts], dataset: TokenDataset, budget: int) -> list[Parts]:
    """The pairs of some updates dealt out anew: sorted by length, each update one padded batch."""
    pairs = np.concatenate([part for update in updates for part in update])
    order = pairs[np.lexsort((dataset.source.lengths(pairs), dataset.target.lengths(pairs)))]
    return [[order[run]] for run in cut(dataset.sizes(order), budget, "tokens")]


def read_text(source: Path | None, target: Path | None) -> list[Pair]:
    if source is None or target is None:
        return [Pair(*texts) for texts in make_demo(SEED).train]
    return list(drop_empty(read_pairs([Corpus(source=source, target=target)]), FilterCounts()))


def prepare(pairs: Sequence[Pair], args: argparse.Namespace) -> Task:
    train, valid = [pair for i, pair in enumerate(pairs) if i % HELD_OUT], pairs[::HELD_OUT]
    tokenizers = train_tokenizers(lambda: train, TokenizerConfig(vocab_size=args.vocab_size))
    return Task(
        size=SIZES[args.model],
        vocab_size=args.vocab_size,  # also where the text has not words enough for so many pieces
        training=TrainingConfig(batch_size=args.batch_size),
        device=choose_device(args.device),
        threads=args.threads,
        train=encode_pairs(train, tokenizers, FilterCounts(), LONGEST - 1),
        valid=encode_pairs(valid, tokenizers, FilterCounts(), LONGEST - 1),
    )


class Turn(NamedTuple):
    """What some updates took; `clock` has the seconds that count."""

    tokens: Tokens
    cpu_seconds: float
    seconds: float
    clock: float

    @property
    def rate(self) -> float:
        return self.tokens.target / self.clock


def total(turns: Sequence[Turn]) -> Turn:
    tokens, *seconds = zip(*turns, strict=True)
    return Turn(Tokens(*map(sum, zip(*tokens, strict=True))), *map(sum, seconds))


def measure(device: torch.device, tokens: Tokens, action: Callable[[], object]) -> Turn:
    def now() -> tuple[float, float]:
        if device.type != "cpu":
            getattr(torch, device.type).synchronize()
        return time.process_time(), time.perf_counter()

    started = now()
    action()
    cpu, wall = (end - start for end, start in zip(now(), started, strict=True))
    return Turn(tokens, cpu, wall, clock=cpu if device.type == "cpu" else wall)


class Contestant:
    """A system in a process of its own: what one leaves of its heap changes how fast another is."""

    _task: Task  # in its process
    _system: System

    def __init__(self, task: Task, name: str, precision: Precision) -> None:
        self.process = ProcessPoolExecutor(1, get_context("spawn"), Contestant._start, (task, name, precision))

    def run(self, parts: Parts) -> Future[Turn]:
        """One update, of which making the batches is not timed."""
        return self.process.submit(Contestant._run, parts)

    @classmethod
    def _start(cls, task: Task, name: str, precision: Precision) -> None:
        cls._task, cls._system = task, task.build(name, precision)

    @classmethod
    def _run(cls, parts: Parts) -> Turn:
        batches = cls._task.batches(parts)
        return measure(cls._task.device, count_tokens(batches), lambda: cls._system.update(batches, rate=1e-4))


@dataclass
class Column:
    """A system in a precision, and what is found out about it."""

    name: str
    precision: Precision
    cut: str
    updates: list[Parts]
    contestant: Contestant
    turns: list[Turn] = field(default_factory=list)
    rows: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name} {self.precision}"

    @property
    def rate(self) -> float:
        return median(turn.rate for turn in self.turns)


def contestants(task: Task, names: Sequence[str], precisions: Sequence[Precision], updates: int) -> list[Column]:
    """Two for each baseline, which get the same pairs in two cuts; each by itself, as a user would run it."""
    columns = []
    for precision in precisions:
        planned = list(islice(task.updates(precision), updates))
        cuts = {"micro-batches": planned, "one batch": one_batch_updates(planned, task.train, task.training.batch_size)}
        for name in names:
            for kind in ["micro-batches"] if name == OURS else cuts:
                columns.append(Column(name, precision, kind, cuts[kind], Contestant(task, name, precision)))
    return columns


def race(columns: Sequence[Column], turns: int) -> list[Column]:
    """An update of each system in turn, so that what slows the machine down for a while slows all of them. Of the two
    cuts for a baseline the faster is kept."""
    for warm in [column.contestant.run(column.updates[0]) for column in columns]:  # all start at once
        warm.result()
    for turn in range(turns):
        taken: list[list[Turn]] = [[] for _ in columns]
        for i in range(max(len(column.updates) for column in columns)):
            for column, own in zip(columns, taken, strict=True):
                own += [column.contestant.run(parts).result() for parts in column.updates[i : i + 1]]
        for column, own in zip(columns, taken, strict=True):
            column.turns.append(total(own))
            note(f"turn {turn + 1}: {column.title}, {column.cut}: {column.turns[-1].rate:,.0f}")
    for column in columns:
        column.contestant.process.shutdown()
    titles = dict.fromkeys(column.title for column in columns)
    return [max((c for c in columns if c.title == title), key=lambda c: c.rate) for title in titles]


def work(model: Transformer, tokens: Tokens) -> int:
    """Operations of training on some tokens; an embedding is looked up and not multiplied."""
    encoder = sum(parameter.numel() for parameter in model.encoder.parameters())
    decoder = sum(parameter.numel() for parameter in model.decoder.parameters()) + model.output.weight.numel()
    return 6 * (encoder * tokens.source + decoder * tokens.target)


def matrix_rate(device: torch.device, precision: Precision) -> float:
    """Operations per second of a product of two square matrices: the median of some."""
    n = 2048 if device.type == "cpu" else 8192
    a, b = torch.randn(2, n, n, device=device).to(DTYPES[precision])
    return 2 * n**3 / median(measure(device, Tokens(0, 0), lambda: a @ b).clock for _ in range(9))


def describe_speed(columns: Sequence[Column], task: Task) -> None:
    model = Transformer(task.size, task.vocab_size, task.vocab_size, PAD)
    machine = {column.precision: matrix_rate(task.device, column.precision) for column in columns}
    for column in columns:
        rows, turns = column.rows, column.turns
        reached = median(work(model, turn.tokens) / turn.clock for turn in turns)
        rows["an update is"] = column.cut
        rows["target tokens per CPU-second"] = f"{median(turn.tokens.target / turn.cpu_seconds for turn in turns):,.0f}"
        rows["target tokens per second"] = f"{median(turn.tokens.target / turn.seconds for turn in turns):,.0f}"
        for place, precision in (("fp32", "fp32"), ("its precision", column.precision)):
            rivals = [rival for rival in columns if rival.name != OURS and rival.precision == precision]
            if rivals:
                rows[f"times the faster baseline in {place}"] = ratio(column, max(rivals, key=lambda r: r.rate))
        rows["GFLOP/s of training"] = f"{reached / 1e9:,.0f}"
        rows["GFLOP/s of a big square matrix product"] = f"{machine[column.precision] / 1e9:,.0f}"
        rows["share of it"] = f"{reached / machine[column.precision]:.0%}"
        if peak := dense_peak(task.device):
            rows["share of the dense bf16 peak (MFU)"] = f"{reached / peak:.1%}"


def ratio(column: Column, other: Column) -> str:
    """How many times as fast: the median over turns."""
    return f"{median(a.rate / b.rate for a, b in zip(column.turns, other.turns, strict=True)):.2f}"


def dense_peak(device: torch.device) -> float | None:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((peak for key, peak in DENSE_PEAKS.items() if key in name), None)


# Quality, memory, the first update.


def learn(column: Column, task: Task, updates: int) -> float:
    """Plain NLL per token on the held-out pairs after a short training from scratch, the same for all systems."""
    system = task.build(column.name, column.precision)
    peak = (task.size.d_model * 2000) ** -0.5
    losses = [
        system.update(task.batches(update), cosine(step, peak, updates // 4, updates))
        for step, update in enumerate(islice(task.updates(column.precision), updates), start=1)
    ]
    note(f"{column.title}: loss {losses[0]:.3f} at the start, {losses[-1]:.3f} at update {updates:,}")
    every = np.arange(len(task.valid))
    order = every[np.argsort(task.valid.sizes(every), kind="stable")]
    runs = cut(task.valid.sizes(order), task.training.batch_size, "tokens")
    batches = [make_batch(task.valid, order[run]) for run in runs]
    system.model.eval()
    with torch.no_grad():
        return sum(system.nll(batch.to(task.device)) for batch in batches) / count_tokens(batches).target


def peak_memory(name: str, precision: Precision, task: Task, updates: Sequence[Parts]) -> tuple[int, int]:
    """Bytes at the peak of some updates, and by how much that is more than the built model took."""
    system = task.build(name, precision)
    on_gpu = task.device.type == "cuda"
    before = torch.cuda.memory_allocated() if on_gpu else process_memory("VmRSS")
    for update in updates:
        system.update(task.batches(update), rate=1e-4)
    peak = torch.cuda.max_memory_allocated() if on_gpu else process_memory("VmHWM")
    return peak, peak - before


def process_memory(kind: str) -> int:
    """Bytes that this process holds, VmRSS, or held at its peak, VmHWM."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss starts at what the parent process holds
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith(kind))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


FIRST_UPDATE = """\
import os, time, torch
started = time.perf_counter()
from transformer_cli.training.step import Updater
update = Updater.update
def first_update(*arguments):
    update(*arguments)
    print(time.perf_counter() - started, flush=True)
    os._exit(0)
Updater.update = first_update
from transformer_cli.cli import main
main()
"""


def first_updates(pairs: Sequence[Pair], task: Task, precision: Precision) -> tuple[float, float]:
    """Seconds from the end of `import torch` to the end of the first update of `train`; and the median of three more
    starts, when whatever can be kept of the text has been kept."""
    config = {
        "data": {"train": [{"source": "source.txt", "target": "target.txt"}], "valid": {"hold_out": 100}},
        "tokenizer": {"vocab_size": task.vocab_size},
        "model": task.size.model_dump(exclude_none=True),
        "training": {"batch_size": task.training.batch_size},
        "device": task.device.type,
        "precision": precision,
    }
    with TemporaryDirectory() as folder:
        for side in ("source", "target"):
            lines = "".join(getattr(pair, side) + "\n" for pair in pairs)
            Path(folder, f"{side}.txt").write_text(lines, encoding="utf-8", newline="\n")
        Path(folder, "config.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        words = ["train", "config.yaml", "--overwrite", "--threads", str(task.threads)]
        command = [sys.executable, "-c", FIRST_UPDATE, *words]

        def start() -> float:
            return float(subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True).stdout)

        return start(), median(start() for _ in range(3))


# The table.


def table(columns: Sequence[Column]) -> str:
    """A line for each measure, a column for each system and precision."""
    measures = dict.fromkeys(measure for column in columns for measure in column.rows)
    lines = [["", *(column.title for column in columns)]]
    lines += [[measure, *(column.rows.get(measure, "") for column in columns)] for measure in measures]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    for line in lines:
        line[:] = [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--source", type=Path, metavar="FILE", help="source sentences; left out: a made text")
    add("--target", type=Path, metavar="FILE", help="their translations")
    add("--model", choices=SIZES, default="small")
    add("--vocab-size", type=int, default=8000, metavar="N")
    add("--batch-size", type=int, default=4096, metavar="N", help="cells of an update")
    add("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    add("--precision", choices=("fp32", "bf16"), nargs="+", help="left out: fp32, and what auto takes here")
    add("--threads", type=int, default=torch.get_num_threads(), metavar="N")
    add("--updates", type=int, default=20, metavar="N", help="of each system in a turn")
    add("--turns", type=int, default=5, metavar="N")
    add("--learn", type=int, default=0, metavar="N", help="also train each system for N updates")
    add("--first-update", action="store_true", help="also time `train` up to its first update")
    args = parser.parse_args()
    if (args.source is None) != (args.target is None):
        parser.error("--source and --target go together")
    return args


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    pairs = read_text(args.source, args.target)
    task = prepare(pairs, args)
    names = [PLAIN, MARIAN, OURS]
    if importlib.util.find_spec("transformers") is None:
        note("MarianMT is left out: pip install transformers brings it in")
        names.remove(MARIAN)
    by_itself = training_precision("auto", task.device, task.size.d_model)
    precisions = args.precision or list(dict.fromkeys(("fp32", by_itself)))
    note(f"{args.model} model, {args.vocab_size:,} pieces, updates of {args.batch_size:,} cells, {len(pairs):,} pairs")
    note(f"{task.device}, {args.threads} threads, PyTorch {torch.__version__}")

    columns = race(contestants(task, names, precisions, args.updates), args.turns)
    describe_speed(columns, task)
    note(table(columns))  # in case that what follows is not waited for
    plain: dict[tuple[str, Precision], float] = {}  # what the plain loop takes, which comes first in each precision
    for column in columns:
        if args.learn:
            nll = learn(column, task, args.learn)
            column.rows[f"valid NLL per token after {args.learn:,} updates"] = f"{nll:.3f}"
            column.rows["to the plain loop's"] = f"{nll / plain.setdefault(('nll', column.precision), nll):.3f}"
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            peak, on_top = pool.submit(peak_memory, column.name, column.precision, task, column.updates).result()
        column.rows["peak memory, MiB"] = f"{peak / 2**20:,.0f}"
        column.rows["to that of the plain loop"] = f"{peak / plain.setdefault(('peak', column.precision), peak):.2f}"
        column.rows["of it above the built model"] = f"{on_top / 2**20:,.0f}"
        if args.first_update and column.name == OURS:
            first, again = first_updates(pairs, task, column.precision)
            column.rows |= {"first update, s": f"{first:.2f}", "the same again, s": f"{again:.2f}"}
    print(table(columns))


if __name__ == "__main__":
    main()
