"""The end of a run: choose the best checkpoint or the average of the last ones, and score it on the test sets."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer_cli import checkpoint
from transformer_cli.config.schema import Config
from transformer_cli.data.corpus import Pair
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import CheckpointError
from transformer_cli.evaluation.history import Sample
from transformer_cli.evaluation.scores import Score, result_line, scores_json
from transformer_cli.log import LOGGER, Metrics
from transformer_cli.run_files import list_checkpoints, replace_text
from transformer_cli.streams import write_lines
from transformer_cli.training.resume import restore_best
from transformer_cli.training.run_dir import RunDir
from transformer_cli.training.state import TrainingState
from transformer_cli.training.validate import Validator, score_texts


@dataclass(frozen=True)
class TrainingResult:
    """The result of training: the scores of each set, in the order of the configuration, and a few translations.

    `kind` is `test`, or `valid` when there is no test set.
    """

    kind: str
    scores: dict[str, list[Score]]
    samples: list[Sample]


def choose_model(
    run: RunDir, config: Config, state: TrainingState, validator: Validator, translator: Translator, metrics: Metrics
) -> None:
    """Write the best checkpoint or the average of the last ones, whichever validates better, to `model.safetensors`.

    The translator ends up with the chosen weights.
    """
    settings = config.training
    due = [(step, path) for step, path in list_checkpoints(run.path) if step not in state.besides]
    last = _intact(due[-settings.average_last :]) if settings.average_last > 1 else []
    if len(last) > 1:
        weights = checkpoint.average_weights([path for _, path in last])
        translator.model.load_state_dict(weights, strict=False)  # a file holds tied weights once
        found = validator.validate(translator)
        score = found.by(settings.best_metric)
        steps = [step for step, _ in last]
        metrics.write("valid", {"step": state.step, "epoch": state.current_epoch, "averaged": steps, **found.event()})
        better = state.best_score is None or score > state.best_score
        LOGGER.info(
            "average of %d checkpoints, steps %s  %s  (%s)",
            len(steps),
            ", ".join(map(str, steps)),
            found.in_words(),
            "used" if better else f"step {state.best_step} is better",
        )
        if better:
            checkpoint.write(run.model, translator.as_file({"kind": "average", "steps": steps}))
            return
    restore_best(run, state)  # the file may have been damaged since
    file = checkpoint.read(run.model)
    translator.model.load_state_dict(dict(file.weights), strict=False)
    if (file.config.decoding, file.config.evaluation) != (config.decoding, config.evaluation):
        checkpoint.write(run.model, replace(file, config=config))  # these may have changed on resuming since


def _intact(saved: Sequence[tuple[int, Path]]) -> list[tuple[int, Path]]:
    """The checkpoints that can be read, with a warning for each of the others."""
    intact = []
    for step, path in saved:
        try:
            checkpoint.read(path)
        except CheckpointError as error:
            LOGGER.warning("%s; the average is made without it", error)
        else:
            intact.append((step, path))
    return intact


def test_model(
    run: RunDir,
    validator: Validator,
    tests: Mapping[str, list[Pair]],
    translator: Translator,
    metrics: Metrics,
    step: int,
) -> TrainingResult:
    """Translate and score the test sets, or the validation set if there are none, as `evaluate` would. On a GPU the
    rounding differs: weights are fp32 here, and half precision there."""
    kind = "test" if tests else "valid"
    scores: dict[str, list[Score]] = {}
    samples: list[Sample] = []
    run.test.mkdir(exist_ok=True)
    for name, pairs in (tests or {"valid": validator.pairs}).items():
        hypotheses = translator.best_texts([pair.source for pair in pairs])
        scores[name] = score_texts(hypotheses, [pair.target for pair in pairs], translator.config)
        samples = samples or _three_samples(pairs, hypotheses)
        write_lines(run.test / f"{name}.hyp", hypotheses)
        event = {"step": step, "name": name, "scores": scores_json(scores[name])}
        metrics.write("test", event | {"decoding": translator.config.decoding.model_dump()})
        LOGGER.debug("%s", result_line(name, scores[name]))  # for train.log; the command prints its result
    content = {name: scores_json(found) for name, found in scores.items()}
    replace_text(run.test / "scores.json", json.dumps(content, indent=1) + "\n")
    return TrainingResult(kind, scores, samples)


def _three_samples(pairs: list[Pair], hypotheses: list[str]) -> list[Sample]:
    """Samples from the beginning, the middle and the end, so that they differ."""
    chosen = sorted({0, len(pairs) // 2, len(pairs) - 1})
    return [Sample(pairs[i].source, pairs[i].target, hypotheses[i]) for i in chosen]
