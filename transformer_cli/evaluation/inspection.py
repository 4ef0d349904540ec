"""A description of a model as text: its shape, parameters, tokenizer, training and scores."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from transformer_cli import checkpoint
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.evaluation.history import RunHistory, best_validation, read_history, scores_of
from transformer_cli.evaluation.sets import config_of_run, folder_of_run

# Labels of shared matrices, by `tie_embeddings` and the name that the matrix is stored under.
_SHARED = {
    ("all", "source embedding"): "embedding of source, target and output",
    ("target", "target embedding"): "embedding of target and output",
}
_ORDER = ("encoder", "decoder", "self attention", "cross attention", "feed forward", "layer norms")


@dataclass(frozen=True)
class Inspection:
    """The facts on a model; `history`, `scores` and `run` are empty for a model file outside its run directory."""

    file: str
    megabytes: float
    origin: dict[str, Any]
    """From the model file: `kind` is `best`, `average` or `checkpoint`, with `step` or `steps`; and `init_from`, the
    model from which the run took its initial weights, if any."""
    source_lang: str
    target_lang: str
    model: dict[str, Any]
    """The section `model` of the configuration."""
    parameters: dict[str, int]
    """By part, embeddings first, then encoder and decoder; shared matrices count once."""
    tokenizer: dict[str, Any]
    """The section `tokenizer`, and `pieces` with the vocabulary size of each side."""
    history: dict[str, Any]
    """Of the whole run: `step`, `epoch`, `seconds` and `tgt_tokens` of training, and the `best`, `last` and `average`
    validation as in metrics.jsonl."""
    scores: dict[str, Any]
    """Of each test set, as in test/scores.json."""
    run: dict[str, Any]
    """The content of run.json."""

    def as_plain(self) -> dict[str, Any]:
        """For JSON, with the total of the parameters added."""
        return asdict(self) | {"parameters": {**self.parameters, "total": sum(self.parameters.values())}}

    def in_lines(self) -> Iterator[str]:
        """Lines for a person."""
        yield f"{self.file}  {self.megabytes:,.1f} MB"
        yield from _row("origin", _origin(self.origin, self.run))
        yield from _row("languages", f"{self.source_lang} -> {self.target_lang}")
        yield from _row("model", _architecture(self.model))
        yield from _row("tokenizer", _tokenizer(self.tokenizer))
        yield from _row("parameters", f"{sum(self.parameters.values()):,}")
        width = max(map(len, self.parameters))
        total = sum(self.parameters.values())
        for part, count in self.parameters.items():
            yield f"  {part:<{width}}  {count:>12,}  {count / total:6.1%}"
        yield from _history(self.history)
        yield from _scores(self.scores)
        yield from _run(self.run)


def inspect_model(file: Path) -> Inspection:
    """Inspect a model file or checkpoint and, if it lies in one, its run directory.

    Raises CheckpointError when it cannot be read.
    """
    model = checkpoint.read(file)
    folder = folder_of_run(file)
    left = None if folder is None else read_history(folder)
    settings = config_of_run(file)
    first = None if settings is None else settings.training.init_from
    pieces = {side: Tokenizer(proto).vocab_size for side, proto in model.tokenizers.items()}
    return Inspection(
        file=str(file),
        megabytes=file.stat().st_size / 1e6,
        origin=dict(model.origin) | ({} if first is None else {"init_from": str(first)}),
        source_lang=model.config.data.source_lang,
        target_lang=model.config.data.target_lang,
        model=model.config.model.model_dump(mode="json"),
        parameters=parameters_by_part(
            {name: weight.numel() for name, weight in model.weights.items()}, model.config.model.tie_embeddings
        ),
        tokenizer=model.config.tokenizer.model_dump(mode="json") | {"pieces": pieces},
        history={} if left is None else in_short(left, model.config.training.best_metric),
        scores={} if left is None else dict(left.scores),
        run={} if left is None else dict(left.record),
    )


def parameters_by_part(sizes: Mapping[str, int], tied: str) -> dict[str, int]:
    """The number of parameters of each part, from the sizes of weights; `tied` is `model.tie_embeddings`."""
    parts: Counter[str] = Counter()
    for name, size in sizes.items():
        parts[_part(name)] += size
    ordered = sorted(parts, key=lambda part: [index for index, word in enumerate(_ORDER) if word in part])
    return {_SHARED.get((tied, part), part): parts[part] for part in ordered}


def _part(name: str) -> str:
    """The part of a weight: `decoder cross attention` for `decoder.layers.0.cross_attention.key.bias`."""
    stack, *rest = name.split(".")
    if stack not in ("encoder", "decoder"):
        return stack.replace("_", " ")
    block = rest[2] if rest[0] == "layers" else rest[0]
    return f"{stack} {'layer norms' if block.endswith('norm') else block.replace('_', ' ')}"


def in_short(run: RunHistory, best_metric: str) -> dict[str, Any]:
    """The `history` of an `Inspection`."""
    found: dict[str, Any] = {}
    if run.trained:
        found = {key: run.trained[-1].get(key) for key in ("step", "epoch")}
        found |= {key: sum(event.get(key) or 0 for event in run.trained) for key in ("seconds", "tgt_tokens")}
    if run.validated:
        found |= {"best": best_validation(run.validated, best_metric), "last": run.validated[-1]}
    if run.averaged:
        found["average"] = run.averaged[-1]
    return found


def _row(name: str, text: str) -> Iterator[str]:
    yield f"{name:<10}  {text}"


def _origin(origin: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    match origin.get("kind"):
        case "best":
            text = f"the best checkpoint, step {origin['step']}"
        case "average":
            text = f"the average of the checkpoints at steps {', '.join(map(str, origin['steps']))}"
        case "checkpoint":
            text = f"the checkpoint at step {origin['step']}"
        case _:
            text = "unknown"
    if "init_from" in origin:
        text += f"; the run began with {origin['init_from']}"
    return text + (f"; training ended with {run['finished']['reason']}" if run.get("finished") else "")


def _architecture(model: Mapping[str, Any]) -> str:
    dropout = [f"{key.replace('_', ' ')} {value}" for key, value in model.items() if key.endswith("dropout") and value]
    return ", ".join(
        [
            f"Transformer of {model['encoder_layers']} + {model['decoder_layers']} layers",
            f"width {model['d_model']}",
            f"{model['num_heads']} heads",
            f"feed-forward {model['ffn_dim']} {model['activation']}",
            f"{model['norm']}-norm",
            f"{model['positions']} positions",
            f"embeddings tied: {model['tie_embeddings']}",
            *dropout,
        ]
    )


def _tokenizer(tokenizer: Mapping[str, Any]) -> str:
    pieces = ", ".join(f"{count:,} pieces ({side})" for side, count in tokenizer["pieces"].items())
    return f"{tokenizer['model_type']}, {pieces}, normalization {tokenizer['normalization']}"


def _history(history: Mapping[str, Any]) -> Iterator[str]:
    if "step" in history:
        took = timedelta(seconds=round(history["seconds"]))
        tokens = f"{history['tgt_tokens']:,} target tokens"
        yield from _row("training", f"{history['step']:,} steps, epoch {history['epoch']}, {tokens}, {took}")
    for which in ("best", "last", "average"):
        if event := history.get(which):
            where = f"of {len(event['averaged'])}" if which == "average" else f"step {event['step']:,}"
            yield (
                f"  {which} ({where}): loss {_number(event.get('loss'))}, ppl {_number(event.get('ppl'))}, "
                + ", ".join(f"{name} {value:.2f}" for name, value in scores_of(event.get("scores")).items())
            )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _scores(scores: Mapping[str, Any]) -> Iterator[str]:
    if scores:
        yield from _row("scores", "of test/scores.json")
    for name, found in scores.items():
        numbers = " ".join(f"{metric} {value:.2f}" for metric, value in scores_of(found).items())
        signature = next((score.get("signature", "") for score in found.values() if isinstance(score, Mapping)), "")
        yield f"  {name}: {numbers} {signature}"


def _run(run: Mapping[str, Any]) -> Iterator[str]:
    if not run:
        return
    versions = run.get("versions", {})
    commit = f", git {run['git_commit'][:12]}" if run.get("git_commit") else ""
    packages = ", ".join(f"{name} {versions[name]}" for name in ("transformer_cli", "torch") if name in versions)
    yield from _row("trained", f"{run.get('started')} on {run.get('device')} with {packages}{commit}")
    for file in run.get("data", []):
        yield f"  {file['key']}: {file['path']}" + (f" sha256 {file['sha256'][:12]}" if file.get("sha256") else "")
    yield from _row("command", " ".join(run.get("command", [])))
