"""Training, from a configuration to a tested model: the order of things, readable top to bottom.

config -> pairs -> tokenizer -> token ids -> model -> updates -> validations -> the best or the average -> test
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_cli import checkpoint
from transformer_cli.checkpoint import ModelFile
from transformer_cli.config.schema import Config, TrainingConfig
from transformer_cli.data.batching import make_batch, micro_batches, plan_epoch
from transformer_cli.data.dataset import TokenDataset, encode_pairs
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.split import Text
from transformer_cli.data.tokenizer import PAD, Tokenizers, train_tokenizers
from transformer_cli.decoding.translator import Translator, load_model, load_tokenizers
from transformer_cli.device import attention_form, choose_device, decoding_precision, set_threads, training_precision
from transformer_cli.errors import CheckpointError, DataError, NewerVersionError, NothingToDo, UserError
from transformer_cli.log import LOGGER, Metrics, Progress, RunLog
from transformer_cli.model.transformer import Transformer
from transformer_cli.training.finish import TrainingResult, choose_model, test_model
from transformer_cli.training.run_dir import (
    RunDir,
    check_data_unchanged,
    data_files,
    describe_environment,
    resumed_config,
)
from transformer_cli.training.schedule import learning_rate, peak_rate
from transformer_cli.training.state import Interval, TrainingState
from transformer_cli.training.step import Updater, derived_seed
from transformer_cli.training.validate import Validator, check_positions, perplexity, score_texts


def train(
    config: Config,
    run_dir: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    command: Sequence[str] = (),
) -> TrainingResult:
    """Train, validate, keep the best, average and test. Every UserError says what to do about it.

    With `resume` the run goes on from its newest intact checkpoint as if it had never stopped: bit for bit on CPU in
    fp32 with as many threads as before. NothingToDo when it is finished.
    """
    run = RunDir(run_dir)
    run.refuse_if_unusable()
    if not overwrite and not resume:
        run.refuse_if_taken()
    with RunLog() as log:
        # Where the run stands: at a checkpoint, or at the beginning.
        saved = _newest_checkpoint(run) if resume else None
        state = TrainingState() if saved is None else TrainingState.from_plain(saved.training)
        record = {} if saved is None else run.read_record()
        if saved is not None:
            config = resumed_config(config, saved.config)
            _refuse_if_finished(run, record, state, config)
            threads = _threads_to_resume_with(threads, record)

        # Where and how to compute.
        device = choose_device(config.device)
        precision = training_precision(config.precision, device)
        config = config.model_copy(update={"precision": precision})
        used_threads = set_threads(threads)
        score_texts(["x"], ["x"], config)  # a metric that cannot be computed here is better known now

        # The text, the tokenizers, the ids.
        files = data_files(config)
        if saved is not None:
            check_data_unchanged(record, files)
        text = Text(config)
        valid, tests = text.valid(), text.tests()
        tokenizers = _train_tokenizers(config, text) if saved is None else load_tokenizers(saved)
        dataset = _encode_training_text(config, text, tokenizers)
        validator = Validator(config, tokenizers, valid)
        for name, pairs in tests.items():
            check_positions(config, tokenizers, f"data.test.{name}", pairs)

        # The model and its optimizer.
        form = attention_form(device, precision)
        if saved is None:
            torch.manual_seed(derived_seed(config.seed))
            vocabularies = tokenizers.source.vocab_size, tokenizers.target.vocab_size
            model = Transformer(config.model, *vocabularies, pad=PAD, form=form).to(device)
        else:
            model = load_model(saved, tokenizers, form).to(device)
        updater = Updater(model, config.training, config.seed, device, precision)
        if saved is not None:
            updater.restore(saved.optimizer, state.loss_scale)
        translator = Translator(model, tokenizers, config, device, decoding_precision("auto", device))

        # The run directory, not touched before all of the above has gone well.
        if saved is None:
            record = describe_environment(command, str(device), used_threads) | {"data": files}
            run.create(config, record)
        else:
            record |= {"threads": used_threads, "finished": None}
            run.go_on(config, record, state.step)
            _restore_best(run, state)
        log.open(run.log)
        metrics = Metrics(run.metrics, state.metrics_lines)
        LOGGER.info("%s", _describe(model, config, device, used_threads))
        if saved is not None:
            LOGGER.info("resumed after step %d", state.step)

        # Training.
        settings = config.training
        update_size = settings.batch_size * settings.gradient_accumulation_steps
        save_steps = settings.save_steps or settings.valid_steps
        planned_epoch = -1
        before, began = state.seconds, time.monotonic()
        with Progress(settings.max_steps, state.step) as progress:
            while not state.stop_reason(settings):
                if planned_epoch != state.epoch:
                    planned_epoch = state.epoch
                    updates = plan_epoch(dataset, update_size, settings.batch_type, config.seed, planned_epoch)
                started = time.monotonic()
                rate = learning_rate(state.step + 1, config)
                parts = micro_batches(updates[state.update_in_epoch], dataset, settings.batch_size, settings.batch_type)
                update = updater.update([make_batch(dataset, part) for part in parts], state.step + 1, rate)
                state.advance(len(updates))
                # In fp16 a gradient may overflow: that step was left out, and the loss scale is smaller from now on.
                if not (math.isfinite(update.loss) and (math.isfinite(update.grad_norm) or precision == "fp16")):
                    raise _diverged(state.step, rate)
                state.interval.add(update.loss, update.nll, update.tokens, time.monotonic() - started)
                state.seconds = before + time.monotonic() - began
                progress.advance()

                # every log_steps, and at the end: log
                if state.step % settings.log_steps == 0 or state.stop_reason(settings):
                    event = _train_event(state, rate, update.grad_norm)
                    metrics.write("train", event)
                    note = "loss {loss:.4f}  ppl {ppl:.2f}  lr {lr:.2e}  {tokens_per_s:,.0f} tgt tokens/s".format(
                        **event
                    )
                    progress.log(f"step {state.step}/{settings.max_steps}", note)
                    state.interval = Interval()

                # every valid_steps, and at the end: validate, and keep the model if it is the best so far
                if state.step % settings.valid_steps == 0 or state.stop_reason(settings):
                    _validate(run, settings, state, validator, translator, metrics)

                # every save_steps, and at the end: save all that resuming needs
                if state.step % save_steps == 0 or state.stop_reason(settings):
                    state.metrics_lines = metrics.lines
                    state.loss_scale = updater.scaler.state_dict()
                    file = replace(
                        translator.as_file({"kind": "checkpoint", "step": state.step}),
                        training=state.to_plain(),
                        optimizer=updater.optimizer_tensors(),
                    )
                    checkpoint.write(checkpoint.checkpoint_path(run.path, state.step), file)
                    steps = [step for step, _ in checkpoint.list_checkpoints(run.path)]
                    run.prune_checkpoints(settings.keep_last, state.best_steps(settings.keep_best, steps))

        # A limit that was lowered on resuming ends a run where it has not been validated.
        if str(state.step) not in state.scores:
            _validate(run, settings, state, validator, translator, metrics)

        # The best or the average, and the test.
        reason = state.stop_reason(settings)
        LOGGER.info("training ended: %s", reason)
        choose_model(run, config, state, validator, translator, metrics)
        result = test_model(run, validator, tests, translator, metrics, state.step)
        run.write_record(record | {"finished": {"step": state.step, "reason": reason}})
        return result


def _validate(
    run: RunDir,
    settings: TrainingConfig,
    state: TrainingState,
    validator: Validator,
    translator: Translator,
    metrics: Metrics,
) -> None:
    found = validator.validate(translator)
    is_best = state.record_validation(found.by(settings.best_metric))
    metrics.write("valid", {"step": state.step, "epoch": state.current_epoch, **found.event()})
    LOGGER.info("step %d  %s%s", state.step, found.in_words(), "  (best)" if is_best else "")
    found.write_samples(run.samples_path(state.step))
    if is_best:
        checkpoint.write(run.model, translator.as_file({"kind": "best", "step": state.step}))


def _newest_checkpoint(run: RunDir) -> ModelFile | None:
    """The newest checkpoint that is intact, or None before the first; damaged ones are named, all damaged an error."""
    saved = checkpoint.list_checkpoints(run.path)
    for _, path in reversed(saved):
        try:
            file = checkpoint.read(path)
            if not file.training:
                raise CheckpointError(f"{path} is a model without a training state, and no checkpoint")
            return file
        except NewerVersionError:
            raise
        except CheckpointError as error:
            LOGGER.warning("%s; trying the one before", error)
    if saved:
        raise CheckpointError(f"no checkpoint of {run.path} can be read: start again with --overwrite")
    if run.read_record().get("finished"):
        raise CheckpointError(
            f"{run.path} is finished and its checkpoints are gone, so it cannot be resumed: start again with "
            "--overwrite, which replaces its model, or choose another folder with --run-dir"
        )
    LOGGER.info("%s has no checkpoint yet: starting from the beginning", run.path)
    return None


def _refuse_if_finished(run: RunDir, record: dict[str, Any], state: TrainingState, config: Config) -> None:
    reason = state.stop_reason(config.training)
    if reason and record.get("finished"):
        raise NothingToDo(f"{run.path} is finished: {reason}. To train on, raise that limit with --set")


def _threads_to_resume_with(threads: int | None, record: dict[str, Any]) -> int | None:
    """The run's own number of threads, whatever the environment says, unless another is asked for."""
    before: int | None = record.get("threads")
    if threads is None:
        return before
    if threads != before:
        LOGGER.warning(
            "--threads %d, and the run had %s: from here on it is no longer bit for bit the unbroken run",
            threads,
            before,
        )
    return threads


def _train_tokenizers(config: Config, text: Text) -> Tokenizers:
    return train_tokenizers(lambda: text.train(FilterCounts()), config.tokenizer)


def _encode_training_text(config: Config, text: Text, tokenizers: Tokenizers) -> TokenDataset:
    counts = FilterCounts()
    dataset = encode_pairs(text.train(counts), tokenizers, counts, config.data.max_length)
    LOGGER.info("training text: %s", counts.summary(config.data.max_length))
    if len(dataset) == 0:
        raise DataError("data.train: no pair is left to train on")
    return dataset


def _restore_best(run: RunDir, state: TrainingState) -> None:
    """Put `model.safetensors` back to the best at the checkpoint; a broken-off or finished run has gone past it."""
    try:
        origin = checkpoint.read(run.model).origin
    except CheckpointError:
        origin = {}
    if state.best_step is None or (origin.get("kind"), origin.get("step")) == ("best", state.best_step):
        return
    try:
        file = checkpoint.read(checkpoint.checkpoint_path(run.path, state.best_step))
    except CheckpointError as error:
        LOGGER.warning("the best model so far, of step %d, cannot be put back: %s", state.best_step, error)
        return
    origin = {"kind": "best", "step": state.best_step}
    checkpoint.write(run.model, replace(file, origin=origin, training={}, optimizer={}))


def _train_event(state: TrainingState, rate: float, grad_norm: float) -> dict[str, Any]:
    interval = state.interval
    nll = interval.nll / interval.tokens
    return {
        "step": state.step,
        "epoch": state.current_epoch,
        "loss": interval.loss / interval.tokens,
        "nll": nll,
        "ppl": perplexity(nll),
        "lr": rate,
        "grad_norm": grad_norm if math.isfinite(grad_norm) else None,  # JSON has no infinity
        "tgt_tokens": interval.tokens,
        "seconds": round(interval.seconds, 3),
        "tokens_per_s": round(interval.tokens / max(interval.seconds, 1e-9), 1),
    }


def _describe(model: Transformer, config: Config, device: torch.device, threads: int) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"model: {parameters:,} parameters, on {device} in {config.precision} with {threads} thread"
        f"{'s' if threads > 1 else ''}; highest learning rate {peak_rate(config):.2e} at step "
        f"{min(max(config.training.warmup_steps, 1), config.training.max_steps)}"
    )


def _diverged(step: int, rate: float) -> UserError:
    return UserError(
        f"training diverged at step {step}: the loss or its gradient is no longer a number (learning rate {rate:.2e}). "
        "Lower the learning rate (training.noam_factor or training.learning_rate), warm up longer or use precision fp32"
    )
