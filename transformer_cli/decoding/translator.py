"""A trained model with its tokenizers: lines of text in, translations out, in the same order.

lines -> windows of many batches -> ids -> batches of like length -> search -> text -> the order of the lines
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from transformer_cli import checkpoint
from transformer_cli.config.schema import Config, DecodingConfig
from transformer_cli.data.batching import pad_sequences
from transformer_cli.data.tokenizer import BOS, EOS, PAD, Tokenizer, Tokenizers
from transformer_cli.decoding.search import Hypothesis, SearchOptions, SpecialIds, beam_search
from transformer_cli.device import (
    Precision,
    PrecisionName,
    attention_form,
    autocast,
    choose_device,
    decoding_cells,
    decoding_precision,
)
from transformer_cli.errors import CheckpointError, DataError
from transformer_cli.model.attention import AttentionForm
from transformer_cli.model.masks import padding_mask
from transformer_cli.model.transformer import Transformer

SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)
DEFAULT_BATCH_SIZE = 64
_BATCHES_IN_WINDOW = 16  # lines of this many batches are sorted by length together


@dataclass(frozen=True)
class Translation:
    """One translation of one line. An empty line has the empty translation, of log-probability 0 and no steps."""

    text: str
    log_prob: float
    score: float
    n: int
    truncated: bool


class Translator:
    """Translates. Usually made by `Translator.load("runs/NAME")`."""

    def __init__(
        self, model: Transformer, tokenizers: Tokenizers, config: Config, device: torch.device, precision: Precision
    ) -> None:
        self.model = model
        self.tokenizers = tokenizers
        self.config = config
        self.device = device
        self.precision = precision

    @classmethod
    def load(cls, run: str | Path, device: str = "auto", precision: PrecisionName = "auto") -> "Translator":
        """The model of a run directory, a model file or a checkpoint. CheckpointError when there is none to use."""
        file = checkpoint.read(checkpoint.locate(Path(run)))
        tokenizers = load_tokenizers(file.tokenizers)
        place = choose_device(device)
        chosen = decoding_precision(precision, place)
        model = load_model(file, tokenizers, attention_form(place, chosen)).to(place)
        return cls(model, tokenizers, file.config, place, chosen)

    def translate(
        self, lines: Iterable[str], decoding: DecodingConfig | None = None, batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[list[Translation]]:
        """For each line, in order, its `n_best` translations, best first; for an empty line one empty translation.

        `decoding` replaces the run's own settings. A batch has at most `batch_size` sentences, and fewer when they are
        long; with 1, each translation comes before the next line is read. DataError for a line that the model cannot
        take, by number.
        """
        decoding = self.config.decoding if decoding is None else decoding
        size = batch_size * _BATCHES_IN_WINDOW if batch_size > 1 else 1
        remaining = iter(lines)
        first = 1
        while window := list(islice(remaining, size)):
            yield from self._translate_window(window, first, decoding, batch_size)
            first += len(window)

    def best_texts(self, lines: Sequence[str], decoding: DecodingConfig | None = None) -> list[str]:
        """The best translation of each line."""
        return [best[0].text for best in self.translate(lines, decoding)]

    def as_file(self, origin: Mapping[str, Any]) -> checkpoint.ModelFile:
        """What to write so that `load` finds this model again; `origin` tells where it comes from."""
        return checkpoint.ModelFile(self.config, self.tokenizers.protos(), dict(self.model.named_parameters()), origin)

    def _translate_window(
        self, lines: list[str], first: int, decoding: DecodingConfig, batch_size: int
    ) -> Iterator[list[Translation]]:
        sources = self.tokenizers.source.encode_batch(lines)
        self._check_lengths(sources, first)
        translations = [[Translation("", 0.0, 0.0, 0, False)] for _ in lines]
        for batch in self._batches([len(ids) for ids in sources], decoding.beam_size, batch_size):
            found = self._search([sources[i] for i in batch], decoding)
            for i, hypotheses in zip(batch, found, strict=True):
                translations[i] = [self._as_text(hypothesis) for hypothesis in hypotheses]
        return iter(translations)

    def _check_lengths(self, sources: list[list[int]], first: int) -> None:
        config = self.config.model
        if config.positions == "sinusoidal":
            return
        for number, ids in enumerate(sources, start=first):
            if len(ids) + 1 > config.max_positions:
                raise DataError(
                    f"line {number} has {len(ids)} pieces, and this model's learned positions (model.max_positions "
                    f"{config.max_positions}) take at most {config.max_positions - 1}: split the line"
                )

    def _batches(self, lengths: list[int], beam_size: int, batch_size: int) -> Iterator[list[int]]:
        """Numbers of the lines that are not empty, longest first, in batches."""
        order = [int(i) for i in np.argsort([-length for length in lengths], kind="stable") if lengths[i]]
        while order:
            rows = decoding_cells(self.device) // ((lengths[order[0]] + 1) * beam_size)
            size = max(1, min(batch_size, rows))
            yield order[:size]
            order = order[size:]

    def _search(self, sources: list[list[int]], decoding: DecodingConfig) -> list[list[Hypothesis]]:
        src = pad_sequences(sources, suffix=EOS).to(self.device)
        limits = [
            math.floor(decoding.max_length_a * len(ids) + decoding.max_length_b) for ids in sources
        ]  # a batch's neighbours have no say in it
        if self.config.model.positions == "learned":
            limits = [min(limit, self.config.model.max_positions) for limit in limits]
        self.model.eval()
        with autocast(self.device, self.precision):
            return beam_search(
                self.model,
                src,
                padding_mask(src, PAD),
                torch.tensor(limits, device=self.device),
                SPECIAL,
                SearchOptions(
                    beam_size=decoding.beam_size,
                    length_penalty=decoding.length_penalty,
                    length_penalty_type=decoding.length_penalty_type,
                    n_best=decoding.n_best,
                ),
            )

    def _as_text(self, hypothesis: Hypothesis) -> Translation:
        return Translation(
            text=self.tokenizers.target.decode(list(hypothesis.ids)),
            log_prob=hypothesis.log_prob,
            score=hypothesis.score,
            n=hypothesis.n,
            truncated=hypothesis.truncated,
        )


def load_tokenizers(protos: Mapping[str, bytes]) -> Tokenizers:
    """The tokenizers in a model file; one object for both sides where they are shared."""
    loaded = {side: Tokenizer(proto) for side, proto in protos.items()}
    if "shared" in loaded:
        return Tokenizers(loaded["shared"], loaded["shared"])
    if loaded.keys() != {"source", "target"}:
        raise CheckpointError("the model file holds no tokenizers: it is damaged or not written by transformer_cli")
    return Tokenizers(loaded["source"], loaded["target"])


def load_model(file: checkpoint.ModelFile, tokenizers: Tokenizers, form: AttentionForm) -> Transformer:
    """The model in a model file, on the CPU and ready to translate."""
    vocabularies = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = Transformer(file.config.model, *vocabularies, pad=PAD, form=form, initialise=False)
    expected = {name for name, _ in model.named_parameters()}
    if expected != file.weights.keys():
        differing = ", ".join(sorted(expected ^ file.weights.keys())[:5])
        raise CheckpointError(f"the weights in the file are not those its configuration asks for: {differing} …")
    try:
        model.load_state_dict(dict(file.weights), strict=False)  # tied names are in the file once
    except RuntimeError as error:
        raise CheckpointError(f"the weights in the file do not fit its configuration: {error}") from error
    return model.eval()
