"""Warnings that a run does not learn, each with its likely cause and a remedy to try.

An alarm never changes training, and checkpoints hold no alarm state: a resumed run starts watching afresh. The
thresholds lie well outside the values that small models, post- and pre-norm, showed while they learnt.
"""

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from transformer_cli.config.schema import Config
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.tokenizer import UNK
from transformer_cli.training.schedule import peak_rate
from transformer_cli.training.validate import Validation

# Adam moves every weight by about the rate, and a layer sums d_model of them: the highest usable rate falls with width.
# Rate times width is 0.3 to 1 in the usual recipes; models of width 16 to 256 learnt at 1 to 1.4, and hardly from 2 on.
_HIGHEST_RATE = 2.0
_LOWEST_RATE = 1e-3

_WINDOW = 50  # log lines whose median is a layer's usual gradient norm
_KNOWN = 10  # minimum number of log lines for that median
_EXPLODED = 100.0  # times the usual norm; 7 times was seen in runs that learnt
_LONG = 10.0  # minimum norm of an explosion, above the norms at the start: near the end the usual norm can be tiny
_VANISHED = 1e-5  # of the largest norm of a layer's gradient; post-norm stacks of 12 layers still learnt at 6e-5
_IN_A_ROW = 3  # log lines or validations
_FEWEST_STEPS = 100  # minimum steps before translations are judged, and over which a loss counts as stuck

_WORSE = 0.05  # nats above the best validation nll: a perplexity higher by 5%
_FALLEN = 0.98  # of the training nll three validations ago; above this it has hardly fallen
_UNKNOWN = 0.01  # of the pieces
_BLOCK = 1 << 20  # ids compared at a time; all at once would take as much memory again as a large corpus
_FEWEST_LINES = 10
_LONGEST_LOOP = 40  # characters
_PAUSE = 10  # checks for which an alarm is silent after a warning; doubled each time


class Alarms:
    """Check the course of training; each method returns the warnings that are due, mostly none.

    A warning is repeated only after ten more checks, then twenty, and so on.
    """

    def __init__(self, config: Config, vocab_size: int) -> None:
        """`vocab_size` is the number of target pieces."""
        self._config = config
        self._knowing_nothing = math.log(vocab_size)
        self._usual: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_WINDOW))
        self._vanished = 0
        self._nlls: list[float] = []  # one for each log line since the last validation
        self._progress: list[_Progress] = []
        self._silent: Counter[str] = Counter()
        self._told: Counter[str] = Counter()

    def at_start(self, train: TokenDataset, valid: TokenDataset) -> list[str]:
        """Before the first update: check the learning rate, and the share of unknown pieces."""
        return [
            *_rate_out_of_range(self._config),
            *_unknown_pieces("training", train, "a higher tokenizer.character_coverage or vocab_size"),
            *_unknown_pieces("validation", valid, "see that it is text of the same language and kind"),
        ]

    def at_log(self, step: int, nll: float, skipped: int, norms: Mapping[str, float]) -> list[str]:
        """At a log line: nll per token since the last one, steps skipped so far, and `gradient_norms` of this step."""
        if math.isfinite(nll):
            self._nlls.append(nll)
        found = [
            ("skipped", self._skipped(step, skipped)),
            ("explosion", self._explosion(norms)),
            ("vanishing", self._vanishing(norms)),
        ]
        return self._to_tell(step, found)

    def at_validation(self, step: int, found: Validation) -> list[str]:
        """At a validation: check the training and validation losses so far, and the translations."""
        settings = self._config.training
        if self._nlls:
            self._progress.append(_Progress(step, fmean(self._nlls), found.nll))
            self._nlls.clear()
        kinds: list[tuple[str, str | None]] = [("stuck", self._stuck()), ("overfitting", self._overfitting())]
        # Early in training it is normal for a model to repeat itself.
        if step > settings.warmup_steps and step >= max(_IN_A_ROW * settings.valid_steps, _FEWEST_STEPS):
            kinds += _odd_outputs(found)
        return self._to_tell(step, kinds)

    def _to_tell(self, step: int, found: Iterable[tuple[str, str | None]]) -> list[str]:
        messages = []
        for kind, words in found:
            if words is not None and self._silent[kind] == 0:
                messages.append(f"step {step}: {words}")
                self._silent[kind] = _PAUSE << self._told[kind]
                self._told[kind] += 1
            else:
                self._silent[kind] = max(self._silent[kind] - 1, 0)
        return messages

    def _skipped(self, step: int, skipped: int) -> str | None:
        by_design = 20 if self._config.precision == "fp16" else 2  # the loss scale of fp16 starts too high
        if skipped <= by_design + step / 100:
            return None
        return (
            f"{skipped} steps so far were skipped, loss or gradient being no finite number: {_less(self._config)}, "
            "or use precision fp32 (bf16 on a GPU)"
        )

    def _explosion(self, norms: Mapping[str, float]) -> str | None:
        infinite = [layer for layer, norm in norms.items() if not math.isfinite(norm)]
        if infinite:
            if self._config.precision == "fp16":
                return None
            where = "every layer" if len(infinite) == len(norms) else ", ".join(infinite)
            return f"the gradient of {where} is no finite number: {_less(self._config)}"
        exploded = None
        for layer, norm in norms.items():
            usual = self._usual[layer]
            if norm > _LONG and len(usual) >= _KNOWN and norm > _EXPLODED * median(usual):
                exploded = exploded or (
                    f"the gradient of {layer} exploded, from a usual length of {median(usual):.2g} to {norm:.2g}: "
                    f"{_less(self._config)}, and keep clip_grad_norm at 1"
                )
            usual.append(norm)
        return exploded

    def _vanishing(self, norms: Mapping[str, float]) -> str | None:
        layers = {layer: norm for layer, norm in norms.items() if layer != _REST and math.isfinite(norm)}
        if not layers or min(layers.values()) >= _VANISHED * max(layers.values()):
            self._vanished = 0
            return None
        self._vanished += 1
        if self._vanished < _IN_A_ROW:
            return None
        low, high = min(layers, key=layers.__getitem__), max(layers, key=layers.__getitem__)
        return (
            f"the gradient of {low} has all but vanished ({layers[low]:.1e}, that of {high} is {layers[high]:.1e}), so "
            f"that it does not learn: {_less(self._config)}, or use fewer layers"
        )

    def _stuck(self) -> str | None:
        after = [past for past in self._progress if past.step > self._config.training.warmup_steps]
        if len(after) <= _IN_A_ROW or after[-1].step - after[-1 - _IN_A_ROW].step < _FEWEST_STEPS:
            return None
        before, now = after[-1 - _IN_A_ROW].train, after[-1].train
        if now < max(_FALLEN * before, self._knowing_nothing / 2):
            return None
        return (
            f"the training loss has hardly fallen for {_IN_A_ROW} validations (nll {before:.2f}, now {now:.2f}; "
            f"{self._knowing_nothing:.2f} is the loss of a model that knows nothing): see that line N of the target "
            "files translates line N of the source files, and that the lr in the log is neither tiny (a long "
            f"warmup_steps) nor too high ({_rate_key(self._config)})"
        )

    def _overfitting(self) -> str | None:
        best = min(self._progress, key=lambda past: past.valid, default=None)
        late = self._progress[-_IN_A_ROW:]
        if best is None or len(late) < _IN_A_ROW or any(past.valid < best.valid + _WORSE for past in late):
            return None
        now = late[-1]
        if now.train >= best.train:
            return None
        return (
            f"the validation loss rises (nll {best.valid:.2f} at step {best.step}, now {now.valid:.2f}) while the "
            f"training loss falls (from {best.train:.2f} to {now.train:.2f}): too little text for the model; "
            "more text, more dropout, a smaller d_model, or fewer steps (a smaller patience)"
        )


class _Progress(NamedTuple):
    """Training nll per token since the previous validation, and nll per token of the validation."""

    step: int
    train: float
    valid: float


# --- Gradients --------------------------------------------------------------------------------------------------------

_REST = "the embeddings and the output"
_LAYER = re.compile(r"\b(encoder|decoder)\.layers\.(\d+)\.")


def gradient_norms(model: nn.Module, total: float) -> dict[str, float]:
    """Gradient norm of each layer, in model order, scaled so that the norm over all layers is `total`.

    `total` is the norm before clipping: the model's gradients may have been clipped since, which keeps their
    proportions. If any gradient is not finite, the norms are not scaled.
    """
    gradients: dict[str, list[torch.Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found = _LAYER.search(name)
            gradients[f"{found[1]} layer {int(found[2]) + 1}" if found else _REST].append(parameter.grad)
    if not gradients:
        return {}
    lengths = torch.stack([nn.utils.get_total_norm(group) for group in gradients.values()]).tolist()  # one device sync
    whole = math.hypot(*lengths)
    scale = total / whole if whole > 0 and math.isfinite(total / whole) else 1.0
    return {layer: length * scale for layer, length in zip(gradients, lengths, strict=True)}


# --- The learning rate ------------------------------------------------------------------------------------------------


def _rate_out_of_range(config: Config) -> Iterable[str]:
    training, width, rate = config.training, config.model.d_model, peak_rate(config)
    if training.warmup_steps > training.max_steps:
        yield (
            f"training.warmup_steps {training.warmup_steps} is more than max_steps {training.max_steps}: the learning "
            "rate never comes to its height; warm up for a tenth of the steps or so"
        )
    if rate * width > _HIGHEST_RATE:
        yield (
            f"the highest learning rate, {rate:.1e}, is more than a model of d_model {width} usually stands "
            f"({_HIGHEST_RATE / width:.1e}): the loss may jump up or stay high; {_less(config)}"
        )
    if rate * width < _LOWEST_RATE and training.init_from is None:
        yield (
            f"the highest learning rate, {rate:.1e}, is so low that a model of d_model {width} will hardly learn: "
            f"raise {_rate_key(config)} or lower warmup_steps, to a rate of {0.1 / width:.0e} or more"
        )


def _less(config: Config) -> str:
    """The remedy for a learning rate that is too high."""
    calmer = "; norm: pre is calmer than post" if config.model.norm == "post" else ""
    return f"halve {_rate_key(config)} or double warmup_steps{calmer}"


def _rate_key(config: Config) -> str:
    return "training.noam_factor" if config.training.lr_schedule == "noam" else "training.learning_rate"


# --- Text -------------------------------------------------------------------------------------------------------------


def _unknown_pieces(name: str, dataset: TokenDataset, otherwise: str) -> Iterable[str]:
    for side, sequences in (("source", dataset.source), ("target", dataset.target)):
        ids = sequences.ids
        blocks = (ids[first : first + _BLOCK] for first in range(0, len(ids), _BLOCK))
        share = sum(np.count_nonzero(block == UNK) for block in blocks) / max(len(ids), 1)
        if share > _UNKNOWN:
            yield (
                f"{share:.1%} of the pieces of the {name} {side} are unknown (⁇), characters without a piece: try "
                f"tokenizer.byte_fallback: true, or {otherwise}"
            )


def _one_and_the_same(lines: Sequence[str], sources: Sequence[str]) -> float:
    written = Counter(line for line in lines if line.strip())
    return max(written.values(), default=0) / len(lines)


def _empty(lines: Sequence[str], sources: Sequence[str]) -> float:
    return sum(not line.strip() for line in lines) / len(lines)


def _copied(lines: Sequence[str], sources: Sequence[str]) -> float:
    return sum(line.split() == source.split() for line, source in zip(lines, sources, strict=True)) / len(lines)


def _looping(lines: Sequence[str], sources: Sequence[str]) -> float:
    return sum(_ends_in_loop(line.rstrip(" .?!。")) for line in lines) / len(lines)


def _ends_in_loop(line: str) -> bool:
    """Whether the line ends in four repetitions of the same two or more characters."""
    longest = min(_LONGEST_LOOP, len(line) // 4)
    return any(line[-4 * period : -period] == line[-3 * period :] for period in range(2, longest + 1))


# The share of odd lines, the most by which it may be higher in translations than in references, and the warning.
# In runs that learnt, at most a tenth of the lines were odd from the third validation on.
_ODDITIES: tuple[tuple[Callable[[Sequence[str], Sequence[str]], float], float, str], ...] = (
    (_one_and_the_same, 0.5, "have one and the same translation: the decoder ignores the source; train longer, see "
     "that the files are not shifted by a line, or use norm: pre, which finds the source sooner"),
    (_empty, 0.2, "have an empty translation: see that the target files are not cut or of another text, and that the "
     "learning rate is not too high; train longer"),
    (_copied, 0.3, "are copied from source to translation: see that the target files are in the target language, and "
     "leave out pairs whose sides are equal"),
    (_looping, 0.2, "have a translation that repeats a few words or letters over and over: the model has not found the "
     "source yet; train longer, and if the training loss no longer falls, look at the learning rate"),
)  # fmt: skip


def _odd_outputs(found: Validation) -> Iterable[tuple[str, str | None]]:
    if len(found.hypotheses) < _FEWEST_LINES:
        return
    sources, references = [pair.source for pair in found.pairs], [pair.target for pair in found.pairs]
    for share_of, more, words in _ODDITIES:
        share, usual = share_of(found.hypotheses, sources), share_of(references, sources)
        message = f"{share:.0%} of the validation lines ({usual:.0%} of the references) {words}"
        yield words, message if share > usual + more else None
