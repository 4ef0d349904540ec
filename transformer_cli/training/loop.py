"""Training, from a configuration to a tested model, readable from top to bottom.

config -> pairs -> tokenizer -> token ids -> model -> updates -> validations -> the best or the average -> test

With several processes each runs this code, and only the main one validates, writes and tests.
"""

import os
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from transformer_cli.config.schema import Config
from transformer_cli.device import choose_device
from transformer_cli.errors import Stopped
from transformer_cli.log import LOGGER, Progress, RunLog
from transformer_cli.run_files import refuse_if_taken
from transformer_cli.training.distributed import processes
from transformer_cli.training.finish import TrainingResult, choose_model, test_model
from transformer_cli.training.job import Job, prepare
from transformer_cli.training.run_dir import RunDir
from transformer_cli.training.schedule import learning_rate
from transformer_cli.training.signals import StopRequests


def train(
    config: Config,
    run_dir: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    threads: int | None = None,
    command: Sequence[str] = (),
) -> TrainingResult | None:
    """Train, validate, keep the best, average and test. Every UserError says what to do about it.

    With `resume` the run continues from its newest intact checkpoint as if it had never stopped: bit for bit on CPU in
    fp32 with the same number of threads. NothingToDo if it is finished, Stopped if a signal ended it. Of several
    processes only the main one returns a result.
    """
    device = choose_device(config.device)
    slow = config.data.stream is not None or config.training.compile
    run = RunDir(run_dir)
    with processes(device.type, slow) as group, RunLog() as log, ExitStack() as locks:
        if group.is_main:
            run.refuse_if_unusable()
            locks.enter_context(run.locked())
            if not overwrite and not resume:
                refuse_if_taken(run_dir)
        job = prepare(config, run, device, resume, threads, command, group, log)
        try:
            with StopRequests() as stop:  # before this a signal ends the process at once: nothing is lost
                _train(job, stop)
                return _finish(job, stop) if group.is_main else None
        except Stopped as stopped:
            if not group.is_main:
                return None
            raise Stopped(stopped.signal, _how_to_go_on(job.state.step, command, group.count)) from None
        finally:
            job.feed.close()


def _train(job: Job, stop: StopRequests) -> None:
    """Update, log, validate and save until a limit is reached. On a stop request, save and raise Stopped."""
    state, settings, group = job.state, job.config.training, job.group
    before, began = state.seconds, time.monotonic()

    # On resuming, a validation may be due: a stop request interrupted it, or a limit was lowered. If the run ends here,
    # save that, whatever the checkpoint was written for.
    if job.validate_if_due(stop) or state.stop_reason(settings):
        job.save_if_due(stopping=False)

    with Progress(settings.max_steps, state.step, shown=group.is_main) as progress:
        if not state.stop_reason(settings):
            job.updater.try_largest(job.feed.dataset, job.feed.plan(state))
        while not state.stop_reason(settings):
            started = time.monotonic()
            rate = learning_rate(state.step + 1, job.config)
            dataset, update = job.feed.next(state)
            result = job.updater.train_on(dataset, update, state.step + 1, rate)
            seconds = time.monotonic() - started

            # All processes must end an epoch and stop at the same step, by the clock of the main one.
            more, requested = job.feed.advance(state), stop.signal is not None
            elapsed = time.monotonic() - began if group.is_main else 0.0
            more_anywhere, requests, elapsed = group.sum([float(more), float(requested), elapsed])
            stopping = requests > 0
            state.seconds = before + elapsed
            state.advance(ends_epoch=more_anywhere == 0)
            if result.skipped:
                job.note_skipped(rate, dataset, update)
            else:
                state.skipped_in_a_row = 0
                state.interval.add(result.loss, result.nll, result.tokens, seconds)
            if state.update_in_epoch == 0:
                job.feed.end_epoch(state)
            progress.advance()

            # every log_steps, and at the end, which a validation may bring: log
            ends = state.stop_reason(settings) or state.may_run_out_of_patience(settings)
            if state.step % settings.log_steps == 0 or ends:
                job.log(progress, rate, result.grad_norm)

            # every valid_steps, and at the end: validate
            if not stopping:
                try:
                    job.validate_if_due(stop)
                except Stopped:
                    stopping = True

            # every save_steps, at a new best, at the end and when stopping: save all that resuming needs
            job.save_if_due(stopping)
            if stopping:
                raise Stopped(stop.signal or signal.SIGTERM)

    if state.update_in_epoch > 0:  # whatever limit ended it, patience too
        job.feed.end_epoch(state)
    LOGGER.info("training ended: %s", state.stop_reason(settings))


def _finish(job: Job, stop: StopRequests) -> TrainingResult:
    """Choose the best checkpoint or the average, and test it."""
    with stop.let_through():
        choose_model(job.run, job.config, job.state, job.validator, job.translator, job.metrics)
        tested = test_model(job.run, job.validator, job.tests, job.translator, job.metrics, job.state.step)
    finished = {"step": job.state.step, "reason": job.state.stop_reason(job.config.training)}
    job.run.write_record(job.record | {"finished": finished})
    job.pictures.draw_at_end(job.translator, job.tests or {"valid": job.validator.pairs})
    return tested


def _how_to_go_on(step: int, command: Sequence[str], processes: int) -> str:
    words = [word for word in command[1:] if word not in ("--overwrite", "--resume")]
    program = ["transformer-cli"]
    if processes > 1:
        here = os.environ.get("LOCAL_WORLD_SIZE", str(processes))
        program = ["torchrun", "--nproc-per-node", here, "-m", "transformer_cli"]
    return f"step {step} is saved. Go on with: {shlex.join([*program, *words, '--resume'])}"
