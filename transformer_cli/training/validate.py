"""Validation: the loss on the validation pairs, and the scores of the model's own translations of them."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transformer_cli.config.schema import Config, DecodingConfig
from transformer_cli.data.batching import Indices, cut, make_batch
from transformer_cli.data.corpus import Pair
from transformer_cli.data.dataset import encode_pairs
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.translator import Translator
from transformer_cli.device import OutOfMemory, attempt, autocast
from transformer_cli.errors import DataError, UserError
from transformer_cli.evaluation.scores import (
    NAMES,
    Measure,
    Score,
    corpus_scores,
    metric_tokenizer,
    scores_json,
    worth,
)
from transformer_cli.evaluation.suspicions import suspicions_of_references, suspicions_of_script
from transformer_cli.log import LOGGER
from transformer_cli.training.loss import smoothed_cross_entropy
from transformer_cli.training.step import batch_loss

_SAMPLES = 100  # translations kept of each validation
_LOGITS, _CELLS = 1 << 26, 1 << 14  # maximum of a batch; that many logits are 256 MB


@dataclass(frozen=True)
class Validation:
    """The result of one validation; `loss` and `nll` are per target token."""

    loss: float
    nll: float
    tokens: int
    scores: list[Score]
    decoding: DecodingConfig
    pairs: list[Pair]
    hypotheses: list[str]

    def by(self, metric: str) -> float:
        """Its value under a `best_metric`, higher is better."""
        values = {score.name: score.value for score in self.scores}
        return worth(0.0 if metric == "loss" else values[NAMES[metric]], self.loss)

    def event(self) -> dict[str, Any]:
        """Its line in the metrics, without step and epoch."""
        return {
            "loss": self.loss,
            "nll": self.nll,
            "ppl": perplexity(self.nll),
            "tgt_tokens": self.tokens,
            "scores": scores_json(self.scores),
            "decoding": self.decoding.model_dump(),
        }

    def in_words(self) -> str:
        """Its line in the log."""
        scores = "  ".join(f"{score.name} {score.value:.2f}" for score in self.scores)
        return f"valid loss {self.loss:.4f}  ppl {perplexity(self.nll):.2f}  {scores}"

    def write_samples(self, path: Path) -> None:
        """Write source, reference and translation of the first lines, tab-separated."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for pair, hypothesis in islice(zip(self.pairs, self.hypotheses, strict=True), _SAMPLES):
                fields = (pair.source, pair.target, hypothesis)
                file.write("\t".join(field.replace("\t", " ") for field in fields) + "\n")


def perplexity(nll: float) -> float:
    """exp of a mean negative log-likelihood, infinite if that overflows."""
    return math.exp(nll) if nll < 700 else math.inf


class Validator:
    """The validation set, tokenised once."""

    def __init__(self, config: Config, tokenizers: Tokenizers, pairs: list[Pair]) -> None:
        check_positions(config, tokenizers, "data.valid", pairs)
        self.config = config
        self.pairs = pairs
        self.dataset = encode_pairs(self.pairs, tokenizers, FilterCounts())
        self._cells = max(min(_LOGITS // tokenizers.target.vocab_size, _CELLS), 1)  # per batch
        if len(self.dataset) == 0:
            raise DataError("data.valid: no pair has text on both sides, so that nothing could be measured")
        sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
        for words in (
            *suspicions_of_references(references, _measure(config)),
            *suspicions_of_script("sources", sources, config.data.source_lang),
            *suspicions_of_script("references", references, config.data.target_lang),
        ):
            LOGGER.warning("data.valid: %s", words)

    def validate(self, translator: Translator) -> Validation:
        """Compute the loss, translate every line with the validation beam, and score the translations."""
        config = self.config
        loss, nll, tokens = self._losses(translator)
        beam = config.decoding.model_copy(update={"beam_size": config.evaluation.valid_beam_size, "n_best": 1})
        hypotheses = translator.best_texts([pair.source for pair in self.pairs], beam)
        return Validation(
            loss=loss / max(tokens, 1),
            nll=nll / max(tokens, 1),
            tokens=tokens,
            scores=score_texts(hypotheses, [pair.target for pair in self.pairs], config),
            decoding=beam,
            pairs=self.pairs,
            hypotheses=hypotheses,
        )

    @torch.inference_mode()
    def _losses(self, translator: Translator) -> tuple[float, float, int]:
        indices = np.arange(len(self.dataset))
        order = indices[np.argsort(self.dataset.sizes(indices), kind="stable")]
        loss = nll = 0.0
        translator.model.eval()
        while len(order):
            sizes = self.dataset.sizes(order[: self._cells])
            part = order[cut(sizes, self._cells, "tokens")[0]]
            sums = attempt(partial(self._sums, translator, part), translator.device)
            if isinstance(sums, OutOfMemory):
                self._use_less(part, sums)
                continue
            loss, nll = loss + sums[0], nll + sums[1]
            order = order[len(part) :]
        return loss, nll, int((self.dataset.target.lengths(indices) + 1).sum())

    def _use_less(self, part: Indices, outcome: OutOfMemory) -> None:
        """Halve the batches from now on; UserError if the batch was a single pair."""
        if len(part) == 1:
            raise UserError(
                f"data.valid: a pair of {self.dataset.longest(part)} pieces does not fit into memory{outcome.missing}: "
                "leave such long lines out of the validation set"
            )
        self._cells = self.dataset.cells(part) // 2
        LOGGER.warning("out of memory with %d pairs of the validation set at once: from here on fewer", len(part))

    def _sums(self, translator: Translator, part: Indices) -> tuple[float, float]:
        """The sums of loss and negative log-likelihood over the target tokens of a batch."""
        training = self.config.training
        batch = make_batch(self.dataset, part).to(translator.device)
        # Eager: a compiled model would be recompiled, without gradients, for the few passes of a validation.
        plain = torch.compiler.set_stance("force_eager") if training.compile else nullcontext()
        with plain, autocast(translator.device, translator.precision):
            sums = batch_loss(translator.model, batch, smoothed_cross_entropy, training.label_smoothing)
        return float(sums.loss), float(sums.nll)


def check_positions(config: Config, tokenizers: Tokenizers, key: str, pairs: Sequence[Pair]) -> None:
    """DataError if a line of an evaluation set is longer than the learned positions."""
    if config.model.positions == "sinusoidal":
        return
    most = config.model.max_positions - 1  # the end symbol takes one
    for number, pair in enumerate(pairs, start=1):
        pieces = max(len(tokenizers.source.encode(pair.source)), len(tokenizers.target.encode(pair.target)))
        if pieces > most:
            raise DataError(
                f"{key}: pair {number} ({pair.source[:60]!r} …) has {pieces} pieces, and learned positions take at "
                f"most {most}: raise model.max_positions or leave the pair out"
            )


def score_texts(hypotheses: Sequence[str], references: Sequence[str], config: Config) -> list[Score]:
    """Scores in the configured metrics, with the configured tokenizer or else the target language's."""
    return corpus_scores(hypotheses, [references], *_measure(config))


def _measure(config: Config) -> Measure:
    settings = config.evaluation
    tokenize = settings.tokenize or metric_tokenizer(config.data.target_lang)
    return Measure(settings.metrics, tokenize, settings.lowercase)
