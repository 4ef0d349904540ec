"""A prepared run and the work between its updates: validate, save, log, warn."""

import json
import logging
import math
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from transformer_cli import checkpoint
from transformer_cli.checkpoint import ModelFile
from transformer_cli.config.left_out import save_steps
from transformer_cli.config.schema import Config
from transformer_cli.data.batching import Update
from transformer_cli.data.corpus import Pair
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.prepared import Preparation
from transformer_cli.data.subword_sampling import Sampler
from transformer_cli.data.tokenizer import PAD, Tokenizers
from transformer_cli.decoding.translator import Translator, load_model
from transformer_cli.device import (
    OutOfMemory,
    Precision,
    attempt,
    attention_form,
    decoding_precision,
    keep_freed_memory,
    set_threads,
    training_precision,
)
from transformer_cli.errors import Stopped, UserError
from transformer_cli.log import LOGGER, Metrics, Progress, RunLog
from transformer_cli.model.transformer import Transformer
from transformer_cli.run_files import checkpoint_path, list_checkpoints
from transformer_cli.training.alarms import Alarms, gradient_norms
from transformer_cli.training.distributed import Processes
from transformer_cli.training.feed import Feed, Planned, Streamed, check_processes
from transformer_cli.training.pictures import Pictures, check_tensorboard
from transformer_cli.training.resume import (
    check_data_unchanged,
    newest_checkpoint,
    refuse_if_finished,
    restore_best,
    resumed_config,
    threads_to_resume_with,
    weights_to_start_from,
)
from transformer_cli.training.run_dir import (
    RunDir,
    data_files,
    describe_environment,
    describe_text,
)
from transformer_cli.training.schedule import peak_rate
from transformer_cli.training.signals import StopRequests
from transformer_cli.training.state import Interval, TrainingState
from transformer_cli.training.step import Updater, derived_seed
from transformer_cli.training.validate import Validator, perplexity, score_texts

# Consecutive steps without a finite gradient after which training has diverged. By then the loss scale of fp16, which
# starts high on purpose, has fallen by a factor of 2^20.
_SKIPS_IN_A_ROW = 20


@dataclass
class Job:
    """A run that is ready to train. In processes other than the main one, `metrics` writes to the null device."""

    run: RunDir
    config: Config
    group: Processes
    record: dict[str, Any]
    state: TrainingState
    feed: Feed
    validator: Validator
    tests: Mapping[str, list[Pair]]
    updater: Updater
    translator: Translator
    metrics: Metrics
    alarms: Alarms
    pictures: Pictures

    def validate_if_due(self, stop: StopRequests) -> bool:
        """Validate if a validation is due and not yet done; return whether it was. A stop request raises Stopped
        and leaves the state unchanged."""
        state, settings = self.state, self.config.training
        ended = state.stop_reason(settings) is not None
        if state.step == 0 or not (state.step % settings.valid_steps == 0 or ended) or str(state.step) in state.scores:
            return False
        found = None
        if self.group.is_main:
            with suppress(Stopped), stop.let_through():
                found = self.validator.validate(self.translator)
        # The main process decides for all: a stop request to another one takes effect at the next step.
        own = None if found is None else found.by(settings.best_metric)
        score = json.loads(self.group.broadcast(lambda: json.dumps(own).encode()))
        if score is None:
            self.group.barrier()
            raise Stopped(stop.signal or signal.SIGTERM)
        is_best = state.record_validation(score)
        if found is not None:
            self.metrics.write("valid", {"step": state.step, "epoch": state.current_epoch, **found.event()})
            LOGGER.info("step %d  %s%s", state.step, found.in_words(), "  (best)" if is_best else "")
            found.write_samples(self.run.samples_path(state.step))
            self.warn(self.alarms.at_validation(state.step, found))
            self.pictures.draw_if_due(self.translator)
        self.group.barrier()  # drawing may outlast a collective's timeout
        return True

    def save_if_due(self, stopping: bool) -> None:
        """Write a checkpoint if one is due, at a new best and when stopping; then the model file, if this step is the
        best so far."""
        state, settings = self.state, self.config.training
        ended = state.stop_reason(settings) is not None
        due = state.step % save_steps(settings) == 0 or ended
        is_best = state.best_step == state.step
        if due or is_best or stopping:
            state.stream = self.feed.positions()
            if self.group.is_main:
                self._save(due)
                # After the checkpoint, so that the model is never newer than the one a killed run resumes from.
                if is_best:
                    checkpoint.write(self.run.model, self.translator.as_file({"kind": "best", "step": state.step}))
            self.group.barrier()  # writing may outlast a collective's timeout

    def _save(self, due: bool) -> None:
        state, settings = self.state, self.config.training
        state.metrics_lines = self.metrics.lines
        state.loss_scale = self.updater.scaler.state_dict()
        state.batch_size = self.updater.batch_size if self.updater.batch_size != settings.batch_size else None
        kept = state.checkpoints_to_keep([step for step, _ in list_checkpoints(self.run.path)], due, settings)
        file = replace(
            self.translator.as_file({"kind": "checkpoint", "step": state.step}),
            training=state.to_plain(),
            optimizer=self.updater.optimizer_tensors(),
        )
        checkpoint.write(checkpoint_path(self.run.path, state.step), file)
        self.run.prune_checkpoints(kept)

    def log(self, progress: Progress, rate: float, grad_norm: float) -> None:
        """Log the updates since the last log line."""
        event = _train_event(self.state, rate, grad_norm)
        self.metrics.write("train", event)
        if self.state.interval.tokens:
            note = "loss {loss:.4f}  ppl {ppl:.2f}  lr {lr:.2e}  {tokens_per_s:,.0f} tgt tokens/s".format(**event)
        else:
            note = f"no step was taken  lr {rate:.2e}"
        if self.state.skipped:
            note += f"  {self.state.skipped} skipped"
        progress.log(f"step {self.state.step}/{self.config.training.max_steps}", note)
        if self.group.is_main:
            norms = gradient_norms(self.translator.model, grad_norm)
            self.warn(self.alarms.at_log(self.state.step, event["nll"], self.state.skipped, norms))
        self.state.interval = Interval()
        self.pictures.follow()

    def warn(self, alarms: Sequence[str]) -> None:
        """Log each alarm as a warning."""
        for alarm in alarms:
            LOGGER.warning("%s", alarm)

    def note_skipped(self, rate: float, dataset: TokenDataset, update: Update) -> None:
        """Count a skipped step; UserError after too many in a row."""
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        # In fp16 the loss scale starts too high on purpose, and falls with each skipped step.
        expected = self.config.precision == "fp16"
        LOGGER.log(
            logging.DEBUG if expected else logging.WARNING,
            "step %d: loss or gradient is not a finite number; the step is skipped (%d so far)",
            state.step,
            state.skipped,
        )
        if state.skipped_in_a_row < _SKIPS_IN_A_ROW:
            return
        pairs, longest = sum(map(len, update)), max(map(dataset.longest, update), default=0)
        raise UserError(
            f"training diverged: at step {state.step} the loss or its gradient was not a finite number for the "
            f"{_SKIPS_IN_A_ROW}th time in a row (update {state.update_in_epoch or 'the last'} of epoch "
            f"{state.current_epoch}, {pairs} pairs of up to {longest} pieces; learning rate {rate:.2e}). Most likely "
            "the learning rate is too high: start again with a lower training.noam_factor or training.learning_rate, "
            "warm up longer, or use precision "
            f"{'bf16 or fp32' if expected else 'fp32'}"
        )


def prepare(
    config: Config,
    run: RunDir,
    device: torch.device,
    resume: bool,
    threads: int | None,
    command: Sequence[str],
    group: Processes,
    log: RunLog,
) -> Job:
    """Read, tokenise, build and restore all that training needs. UserError for unusable input; the files in the run
    directory stay unchanged until the data and the model are ready.
    """
    config, threads, saved, base, state, record = _starting_point(config, run, resume, threads, group)

    device = group.device(device)
    precision, used_threads = settle(config, device, threads)
    config = config.model_copy(update={"precision": precision})

    # The text, the tokenizers, the ids.
    prepared = group.main_first(lambda: Preparation(config, used_threads))
    files = data_files(config, prepared.cache.file_hash)
    if saved is not None:
        check_data_unchanged(record, files)
    valid, tests = prepared.splits.valid(), prepared.splits.tests()
    tokenizers = _train_tokenizers(prepared, group) if base is None else Tokenizers.of(base.tokenizers)
    validator = Validator(config, tokenizers, valid)
    feed = _feed(prepared, tokenizers, config, used_threads, group, state)

    with ExitStack() as on_error:
        on_error.callback(feed.close)  # it may be reading ahead

        # The model and its optimizer.
        settings = config.training
        model = build_model(config, base, tokenizers, device, precision)
        group.barrier()  # before the first collective, which has a short timeout
        updater = Updater(model, settings, config.seed, device, precision, group, feed.shared_by)
        if saved is not None:
            updater.restore(saved.optimizer, state.loss_scale)
            updater.batch_size = min(state.batch_size or settings.batch_size, settings.batch_size)
        translator = Translator(
            model, tokenizers, config, device, decoding_precision("auto", device), feed.longest_source
        )

        # The run directory.
        if group.is_main:
            run.make()
        if group.is_main and saved is None:
            record = describe_environment(command, str(device), used_threads, group.count) | {"data": files}
            if feed.counts is not None:
                record["text"] = describe_text(feed.dataset, feed.counts, {"valid": valid, **tests})
            run.create(config, record)
        elif group.is_main:
            record |= {"threads": used_threads, "processes": group.count, "finished": None}
            run.go_on(config, record, state.step)
            restore_best(run, state)
        log.open(run.log if group.is_main else Path(os.devnull))
        metrics = Metrics(run.metrics if group.is_main else Path(os.devnull), state.metrics_lines)
        LOGGER.info("%s", _describe(model, config, device, used_threads, group.count))
        if saved is not None:
            LOGGER.info("resumed after step %d", state.step)
        alarms = Alarms(config, tokenizers.target.vocab_size)
        pictures = Pictures(run, config.training.tensorboard, group.is_main)
        job = Job(
            run, config, group, record, state, feed, validator, tests, updater, translator, metrics, alarms, pictures
        )
        if group.is_main:
            job.warn(alarms.at_start(feed.dataset, validator.dataset))
        group.barrier()  # the main process had more to do
        on_error.pop_all()
    return job


def settle(config: Config, device: torch.device, threads: int | None) -> tuple[Precision, int]:
    """Choose the precision, the number of threads and the use of memory. UserError for a metric or plots that need what
    is not installed: now, and not after hours of training."""
    score_texts(["x"], ["x"], config)
    check_tensorboard(config.training)
    keep_freed_memory()
    return training_precision(config.precision, device, config.model.d_model), set_threads(threads)


class _Start(NamedTuple):
    """Where a run starts: from a checkpoint (`saved`), from another run's weights, or from random weights."""

    config: Config
    threads: int | None
    saved: ModelFile | None
    base: ModelFile | None  # whose weights and tokenizers are used
    state: TrainingState
    record: dict[str, Any]


def _starting_point(config: Config, run: RunDir, resume: bool, threads: int | None, group: Processes) -> _Start:
    found = group.broadcast(lambda: str((resume and newest_checkpoint(run)) or "").encode()).decode()
    if not found:
        base = weights_to_start_from(config)
        return _Start(config if base is None else base.config, threads, None, base, TrainingState(), {})
    saved = checkpoint.read(Path(found))
    state, record = TrainingState.from_plain(saved.training), run.read_record()
    config = resumed_config(config, saved.config)
    refuse_if_finished(run, record, state, config)
    if state.stop_reason(saved.config.training) and not state.stop_reason(config.training):
        state.go_on_from_end(config.training)
    check_processes(state, group)
    return _Start(config, threads_to_resume_with(threads, record), saved, saved, state, record)


def _train_tokenizers(prepared: Preparation, group: Processes) -> Tokenizers:
    """Train in the main process and broadcast: another machine might train different tokenizers."""
    return Tokenizers.unpacked(group.broadcast(lambda: prepared.tokenizers().packed()))


def _feed(
    prepared: Preparation, tokenizers: Tokenizers, config: Config, threads: int, group: Processes, state: TrainingState
) -> Feed:
    sampler = make_sampler(config, tokenizers)
    if prepared.stream is not None:
        LOGGER.info("training text: streamed from %d shards, as it is needed", prepared.stream.shards)
        return Streamed(prepared.stream, tokenizers, config, sampler, threads, group, state)
    dataset, counts = group.main_first(lambda: prepared.dataset(tokenizers))
    LOGGER.info("training text: %s", counts.summary(config.data))
    if len(config.data.train) > 1 or config.data.train[0].weight != 1.0:
        LOGGER.info("an epoch: %s", dataset.shares())
    return Planned(dataset, counts, config, sampler, group)


def make_sampler(config: Config, tokenizers: Tokenizers) -> Sampler | None:
    """The sampler that segments the training text anew each epoch, or None if sampling is not configured."""
    alpha = config.tokenizer.sampling_alpha
    return None if alpha is None else Sampler(tokenizers, alpha, config.seed, config.data.max_length)


def build_model(
    config: Config, base: ModelFile | None, tokenizers: Tokenizers, device: torch.device, precision: Precision
) -> Transformer:
    """The model to train: from random weights, or from those of `base`."""
    form = attention_form(device, precision)
    vocabularies = tokenizers.source.vocab_size, tokenizers.target.vocab_size

    def build() -> Transformer:
        if base is not None:
            return load_model(base, tokenizers, form).to(device)
        torch.manual_seed(derived_seed(config.seed))
        return Transformer(config.model, *vocabularies, pad=PAD, form=form).to(device)

    model = attempt(build, device)
    if isinstance(model, OutOfMemory):
        raise UserError(
            f"the model does not fit into memory{model.missing}: lower model.d_model, model.ffn_dim or the number of "
            "layers, or tokenizer.vocab_size"
        )
    if config.training.activation_checkpointing:
        model.checkpoint_activations()
    if config.training.compile:
        model.compile(dynamic=True)
    return model


def _train_event(state: TrainingState, rate: float, grad_norm: float) -> dict[str, Any]:
    interval = state.interval
    tokens = interval.tokens or math.nan  # zero if all steps were skipped
    nll = interval.nll / tokens
    return {
        "step": state.step,
        "epoch": state.current_epoch,
        "loss": interval.loss / tokens,
        "nll": nll,
        "ppl": perplexity(nll),
        "lr": rate,
        "grad_norm": grad_norm,
        "skipped": state.skipped,
        "tgt_tokens": interval.tokens,
        "seconds": round(interval.seconds, 3),
        "tokens_per_s": round(interval.tokens / max(interval.seconds, 1e-9), 1),
    }


def _describe(model: Transformer, config: Config, device: torch.device, threads: int, processes: int) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    everywhere = f" in each of {processes} processes" if processes > 1 else ""
    return (
        f"model: {parameters:,} parameters, on {device} in {config.precision} with {threads} thread"
        f"{'s' if threads > 1 else ''}{everywhere}; highest learning rate {peak_rate(config):.2e} at step "
        f"{min(max(config.training.warmup_steps, 1), config.training.max_steps)}"
    )
