"""`train --check`: run all that training does before its first step, and estimate its time, memory and disk space.

The check ends with forward and backward passes: of the largest batch, and of a few updates to time them. No weight is
changed and nothing is written.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch

from transformer_cli.config.schema import Config
from transformer_cli.data.batching import Indices, Update, plan_epoch
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.prepared import Preparation
from transformer_cli.data.stream import Position, Stream, Window
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.device import choose_device
from transformer_cli.errors import DataError
from transformer_cli.log import LOGGER
from transformer_cli.model.transformer import Transformer
from transformer_cli.training.alarms import Alarms
from transformer_cli.training.distributed import Processes, started
from transformer_cli.training.job import build_model, make_sampler, settle
from transformer_cli.training.resume import weights_to_start_from
from transformer_cli.training.run_dir import RunDir
from transformer_cli.training.schedule import peak_rate
from transformer_cli.training.step import Updater, update_size
from transformer_cli.training.validate import Validator

_TIMED_UPDATES = 8
_PADDED_UPDATES = 1000  # or up to twice as many, from which the padding of all is estimated


def check(config: Config, run_dir: Path, threads: int | None) -> Iterator[str]:
    """Yield the lines of a report. Raise every error that training would raise before its first step, except that the
    run directory already holds a run.

    Of several processes only the first checks, and reports what each would do.
    """
    rank, processes = started()
    if rank > 0:
        return
    RunDir(run_dir).refuse_if_unusable()
    base = weights_to_start_from(config)
    config = config if base is None else base.config
    device = choose_device(config.device)
    precision, used_threads = settle(config, device, threads)
    prepared = Preparation(config, used_threads, writable=False)
    tokenizers = prepared.tokenizers() if base is None else Tokenizers.of(base.tokenizers)
    make_sampler(config, tokenizers)  # fails for a tokenizer that cannot be sampled from
    if prepared.stream is None:
        dataset, counts = prepared.dataset(tokenizers)
        yield f"training text   {counts.summary(config.data)}"
    else:
        window = _first_window(prepared.stream, tokenizers, used_threads, processes)
        dataset = window.dataset
        shards = f"{prepared.stream.shards:,} shards"
        yield f"training text   streamed from {shards}, of which one window (shuffle_buffer) is read:"
        yield f"                {window.end.counts.summary(config.data)}"
    valid, tests = prepared.splits.valid(), prepared.splits.tests()
    for name, pairs in {"valid": valid, **tests}.items():
        yield f"{name + ' text':<15} {len(pairs):,} pairs"
    yield from _lengths(dataset, tokenizers)
    validator = Validator(config, tokenizers, valid)
    for alarm in Alarms(config, tokenizers.target.vocab_size).at_start(dataset, validator.dataset):
        LOGGER.warning("%s", alarm)

    settings = config.training
    # Each process plans its own updates of a stream, smaller by the number of processes.
    sharing, bringing = (processes, 1) if prepared.stream is None else (1, processes)
    updates = plan_epoch(dataset, update_size(settings) // bringing, settings.batch_type, config.seed, 0)
    model = build_model(config, base, tokenizers, device, precision)
    shared_by = Processes()
    shared_by.count = sharing
    updater = Updater(model, settings, config.seed, device, precision, shared_by=shared_by)
    planned = "an epoch" if prepared.stream is None else "a window"
    yield (
        f"{planned:<15} {len(updates):,} steps of {updates.pairs / len(updates):,.0f} pairs on average; "
        f"{settings.max_steps:,} steps are {settings.max_steps / len(updates):.1f} {planned.split()[1]}s"
    )
    some = updates[:: max(len(updates) // _PADDED_UPDATES, 1)]
    parts = [part for update in some for part in updater.cut(dataset, update)]
    yield f"padding         {_padding(dataset, parts):.1%} of the cells of {planned}"
    yield from _parameters(model)
    yield f"learning rate   at most {peak_rate(config):.2e}"

    largest = updater.try_largest(dataset, updates)
    assert largest is not None, "an update has pairs"
    size = f"{len(largest):,} pairs of up to {dataset.sizes(largest).max()} pieces"
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    yield f"memory          {_peak_memory(device)} at the largest batch, {size}"
    kept = settings.keep_last + settings.keep_best
    yield f"disk            {(3 * kept + 1) * weights / 2**20:,.0f} MiB for {kept} checkpoints and the model"
    chosen = np.linspace(0, len(updates) - 1, min(_TIMED_UPDATES, len(updates)), dtype=int)
    each = [_seconds(updater, dataset, updates[i]) for i in chosen]
    hours = median(each) * settings.max_steps / 3600
    of_each = f"{used_threads} thread{'s' if used_threads > 1 else ''}"
    yield (
        f"time            about {_duration(hours)} for {settings.max_steps:,} steps on {device} in {precision} with "
        f"{of_each if processes == 1 else f'{processes} processes of {of_each}'}, validations not counted"
    )


def _seconds(updater: Updater, dataset: TokenDataset, update: Update) -> float:
    """Seconds that the first process needs for its share of an update."""
    parts = updater.shared_by.share(updater.cut(dataset, update))
    started = time.perf_counter()
    for part in parts:
        updater.forward_and_backward(dataset, part)
    return time.perf_counter() - started


def _first_window(stream: Stream, tokenizers: Tokenizers, threads: int, processes: int) -> Window:
    """The first window that holds pairs. DataError if there is none."""
    for window in stream.windows(Position(), tokenizers, threads, 0, processes):
        if len(window.dataset):
            return window
    raise DataError("data.train: no pair is left to train on in the stream")


def _lengths(dataset: TokenDataset, tokenizers: Tokenizers) -> Iterator[str]:
    every = np.arange(len(dataset))
    for side, sequences, tokenizer in (
        ("source", dataset.source, tokenizers.source),
        ("target", dataset.target, tokenizers.target),
    ):
        lengths = sequences.lengths(every)
        yield (
            f"{side + ' pieces':<15} {tokenizer.vocab_size:,} in the vocabulary; {lengths.mean():.1f} a line, "
            f"{np.quantile(lengths, 0.99):.0f} at most in 99 of 100, {lengths.max()} in the longest"
        )


def _padding(dataset: TokenDataset, parts: list[Indices]) -> float:
    """Share of the cells of both sides that hold padding."""
    real = allocated = 0
    for part in parts:
        for sequences in (dataset.source, dataset.target):
            lengths = sequences.lengths(part) + 1
            real += int(lengths.sum())
            allocated += len(part) * int(lengths.max())
    return 1.0 - real / allocated


def _parameters(model: Transformer) -> Iterator[str]:
    total = sum(parameter.numel() for parameter in model.parameters())
    yield f"parameters      {total:,}"
    for name, part in (("encoder", model.encoder), ("decoder", model.decoder)):
        count = sum(parameter.numel() for parameter in part.parameters())
        total -= count
        yield f"  {name:<13} {count:,}"
    yield f"  {'vocabulary':<13} {total:,}"


def _peak_memory(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.max_memory_allocated(device) / 2**30:.2f} GiB"
    if sys.platform == "win32":
        return "not measured"
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 2**10)
    return f"{peak / 2**30:.2f} GiB"


def _duration(hours: float) -> str:
    return f"{hours * 60:.0f} minutes" if hours < 2 else f"{hours:.1f} hours"
